//! Tables of `explain`.

use host::explain::{CounterRow, DropPlace, DropRow, ExplainSummary, StageRow};
use host::observer::Observed;
use host::text::printable;
use report::screen::{Cell, Screen};

use super::ExplainArgs;

/// A time with its unit.
pub(super) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

pub(super) fn text(summary: &ExplainSummary, args: &ExplainArgs) -> String {
    let mut screen = Screen::plain();
    let seconds = summary.followed.as_secs_f64();
    let is_service = args.service.is_given();
    let of_service = if is_service { " of the service" } else { "" };
    screen.line(format!("{}.", summary.headline));
    screen.blank();
    screen.line(format!(
        "{} packets{of_service} traced in {seconds:.2} s ({} % of the time), one in {} timed",
        summary.packets_count, args.duty, args.timed_one_in
    ));
    screen.blank();
    if !summary.stages.is_empty() {
        let columns = ["stage", ">packets", ">p50", ">p99", ">max"];
        screen.table(&columns, summary.stages.iter().map(stage_row));
        screen.blank();
    }
    drops(&mut screen, summary, args.duty);
    if !summary.places.is_empty() {
        screen.blank();
        let places = summary.places.iter().map(|row| share_row(row.name, row.share));
        screen.table(&["CPUs were", ">of the time"], places);
        screen.blank();
        let functions = summary.functions.iter().take(args.functions);
        let functions = functions.map(|row| share_row(&row.name, row.share));
        screen.table(&["busy in function", ">of busy time"], functions);
    }
    screen.blank();
    remarks(&mut screen, summary, is_service);
    screen.finish()
}

/// Counts of `--observe`.
pub(super) fn counted(observed: &Observed) -> String {
    let mut screen = Screen::plain();
    screen.blank();
    screen.line("observed");
    observed.lines().into_iter().for_each(|line| screen.entry("", line));
    let unseen = observed.unseen.iter();
    unseen.for_each(|what| screen.entry("", format!("not seen here: {what}")));
    screen.finish()
}

fn stage_row(row: &StageRow) -> Vec<Cell> {
    let times = [row.p50_ns, row.p99_ns, row.max_ns as f64]
        .map(|ns| if row.timed_count > 0 { time(ns) } else { "-".to_owned() });
    let figures = [row.count.to_string()].into_iter().chain(times);
    [Cell::plain(row.name)].into_iter().chain(figures.map(Cell::plain)).collect()
}

/// Drops with their places and remedies, and counters that say more.
fn drops(screen: &mut Screen, summary: &ExplainSummary, duty: u8) {
    let columns = ["drop reason", "by", ">packets"];
    let row = |row: &DropRow| {
        vec![
            Cell::plain(&row.reason),
            Cell::plain(&row.function),
            Cell::plain(row.count.to_string()),
        ]
    };
    screen.table(&columns, summary.drops.iter().map(row));
    if summary.drops.is_empty() {
        screen.line("nothing");
    }
    for row in &summary.drops {
        screen.blank();
        screen.line(format!("{}:", row.reason));
        explain_row(screen, row);
        let counted = summary
            .counters
            .iter()
            .filter(|counted| counted.seen_count > 0 && row.remedy == Some(counted.remedy));
        counted.for_each(|counted| screen.line(format!("    {}", counted_text(counted, duty))));
    }
    let unseen: Vec<&CounterRow> =
        summary.counters.iter().filter(|counted| counted.seen_count == 0).collect();
    if !unseen.is_empty() {
        screen.blank();
        screen.line("counted by the kernel, and not seen as packets:");
    }
    for counted in unseen {
        screen.line(format!("    {}: {}", counted.sentence, counted_text(counted, duty)));
        advice(screen, counted.remedy, counted.undo);
    }
}

fn explain_row(screen: &mut Screen, row: &DropRow) {
    for place in &row.places {
        let count = if place.count == row.count {
            String::new()
        } else {
            format!("{} packets: ", place.count)
        };
        screen.line(format!("    {count}{}{}", place.sentence, whereabouts(place)));
        advice(screen, &place.remedy, &place.undo);
    }
    if row.other_places_count > 0 {
        screen.line(format!("    {} packets of other places", row.other_places_count));
    }
}

/// Interface and namespace of a place in brackets, and one of its packets.
fn whereabouts(place: &DropPlace) -> String {
    let netns = place.netns.as_deref().map(|name| format!("namespace {}", printable(name, 32)));
    let interface = place.interface.as_deref().map(|name| printable(name, 16));
    let sample = place.sample.as_ref().map(|sample| format!("as {sample}"));
    let known: Vec<String> = [interface, netns, sample].into_iter().flatten().collect();
    if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) }
}

fn advice(screen: &mut Screen, remedy: &str, undo: &str) {
    screen.line(format!("    do: {remedy}"));
    if !undo.is_empty() && !undo.starts_with("none") {
        screen.line(format!("    undo: {undo}"));
    }
}

/// Counters of the kernel beside the drops that were seen.
fn counted_text(row: &CounterRow, duty: u8) -> String {
    let grown: Vec<String> =
        row.grown.iter().map(|(name, count)| format!("{count} ({name})")).collect();
    let part = if duty < 100 {
        format!("; packets are traced {duty} % of the time")
    } else {
        "; the kernel refuses some before they are packets of their own".to_owned()
    };
    format!(
        "the kernel counted {}, {} of them seen as packets{part}",
        grown.join(" and "),
        row.seen_count
    )
}

fn share_row(name: &str, share: f64) -> Vec<Cell> {
    vec![name.into(), format!("{:.1} %", share * 100.0).into()]
}

/// The cost of the observation, and all that it did not see.
fn remarks(screen: &mut Screen, summary: &ExplainSummary, is_service: bool) {
    match summary.cost.ns_per_packet() {
        Some(ns) => screen.line(format!(
            "Tracing took {ns:.0} ns of CPU time per packet ({:.1} program runs, without their entry and exit; \
             mean of {} packets).",
            summary.cost.runs_count as f64 / summary.cost.packets_count as f64,
            summary.cost.packets_count
        )),
        None => screen.line("The cost of tracing a packet was not counted."),
    }
    if summary.read_unseen_count > 0 {
        screen.line(format!(
            "{} datagrams that were read had arrived before tracing began.",
            summary.read_unseen_count
        ));
    }
    if is_service && summary.unread_count > 0 {
        screen.line(format!(
            "{} datagrams wait in the sockets: they were not read while packets were traced.",
            summary.unread_count
        ));
    }
    if summary.evicted_count > 0 {
        let why = if is_service {
            "their way to the socket was not seen"
        } else {
            "the kernel merged them or freed them without a report, or the table of packets in flight was full"
        };
        let count = summary.evicted_count;
        screen.line(format!("{count} packets were not traced to their end: {why}."));
    }
    for missing in &summary.missing {
        screen.line(format!("not available here: {missing}"));
    }
}
