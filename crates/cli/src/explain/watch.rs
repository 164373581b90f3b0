//! `explain --watch`: a line for each cause of loss or delay that begins or ends.

use std::time::Instant;

use host::explain::{CauseEvent, CauseMoment, Observer, TracedService, Watch};
use host::text::printable;
use host::tune::Place;
use remote::Failure;
use schemars::JsonSchema;
use serde::Serialize;
use time::OffsetDateTime;

use house::context::Context;
use house::{console, signals};

use super::ExplainArgs;

/// A line of `explain --watch --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct WatchDocument {
    schema: u32,
    command: &'static str,
    /// Time of the line, nanoseconds since 1970.
    at_ns: u64,
    #[serde(flatten)]
    event: CauseEvent,
}

/// Watches until the time is over or a signal comes. Causes that are under way end with it.
pub(super) fn run(
    context: &Context,
    args: &ExplainArgs,
    observer: Observer,
    service: Option<&TracedService>,
) -> Result<(), Failure> {
    let mut names: Vec<Option<String>> =
        super::namespaces(args, service)?.into_iter().map(Some).collect();
    if names.is_empty() {
        names.push(None);
    }
    let places = names.into_iter().map(|netns| Place { netns, root: None }).collect();
    let interface = match args.interfaces.as_slice() {
        [one] => Some(one.clone()),
        _ => None,
    };
    let mut watch = Watch::new(observer, places, interface);
    let begun = Instant::now();
    loop {
        let left = args.left(begun);
        if left.is_zero() || signals::stop_requested() {
            break;
        }
        let events = watch.period(left, signals::stop_requested)?;
        events.into_iter().try_for_each(|event| print(context, event))?;
    }
    watch.finish().into_iter().try_for_each(|event| print(context, event))
}

fn print(context: &Context, event: CauseEvent) -> Result<(), Failure> {
    let now = OffsetDateTime::now_utc();
    if !context.json {
        return console::text(&line(&event, now));
    }
    let at_ns = u64::try_from(now.unix_timestamp_nanos()).unwrap_or(0);
    let document =
        WatchDocument { schema: house::context::DOCUMENT, command: "explain", at_ns, event };
    console::text(&serde_json::to_string(&document)?)
}

/// `19:02:11Z begins listen-queue: the accept queue is full; 312 a second; do: ...`
///
/// - `now`: in UTC.
fn line(event: &CauseEvent, now: OffsetDateTime) -> String {
    let (hour, minute, second) = now.to_hms();
    let place = event
        .netns
        .as_deref()
        .map_or(String::new(), |name| format!(" in namespace {}", printable(name, 32)));
    let cause = &event.cause;
    let head = format!("{hour:02}:{minute:02}:{second:02}Z");
    match event.event {
        CauseMoment::Begin => {
            let rate =
                event.per_second.map_or(String::new(), |rate| format!("; {rate:.0} a second"));
            format!("{head} begins {cause}{place}: {}{rate}; do: {}", event.sentence, event.remedy)
        }
        CauseMoment::End => {
            let seconds = event.lasted_ns.unwrap_or(0) as f64 / 1e9;
            let count = event.count.map_or(String::new(), |count| format!("{count} "));
            format!("{head} ended {cause}{place}: {count}in {seconds:.0} s ({})", event.sentence)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_begin_with_the_time_of_day_and_name_cause_and_rate() {
        let begin = CauseEvent {
            event: CauseMoment::Begin,
            cause: "listen-queue".to_owned(),
            netns: Some("blue".to_owned()),
            sentence: "the accept queue is full".to_owned(),
            remedy: "a larger backlog".to_owned(),
            undo: "the old one".to_owned(),
            per_second: Some(312.4),
            count: None,
            lasted_ns: None,
        };
        let text = line(&begin, OffsetDateTime::UNIX_EPOCH);
        let expected = " begins listen-queue in namespace blue: the accept queue is full; 312 a second; \
                        do: a larger backlog";
        assert_eq!(text, format!("00:00:00Z{expected}"));
        let end = CauseEvent {
            event: CauseMoment::End,
            count: Some(900),
            lasted_ns: Some(3_000_000_000),
            ..begin
        };
        let text = line(&end, OffsetDateTime::UNIX_EPOCH);
        assert!(text.ends_with("900 in 3 s (the accept queue is full)"), "{text}");
    }
}
