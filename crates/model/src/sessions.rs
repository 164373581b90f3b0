//! Sessions and days: runs that are neighbours in time, and share what a day does to a machine.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::{Machine, Outcome, Unit};

/// Time between the end of a run and the start of the next one of its machine from which on they are two sessions,
/// in milliseconds.
pub const SESSION_GAP_MS: i64 = 3_600_000;

/// Groups runs by their unit, oldest first; the runs of a group, too. Runs of different machines never share one.
///
/// Runs whose start is not an RFC 3339 time cannot be told apart, and are one session.
pub fn sessions<'a>(
    runs: impl IntoIterator<Item = &'a Outcome>,
    unit: Unit,
) -> Vec<Vec<&'a Outcome>> {
    let mut timed: Vec<(Option<i64>, &Outcome)> =
        runs.into_iter().map(|run| (start_ms(&run.started), run)).collect();
    timed.sort_by(|a, b| machines(&a.1.machine).cmp(&machines(&b.1.machine)).then(a.0.cmp(&b.0)));
    let mut groups: Vec<(Option<i64>, Vec<&Outcome>)> = Vec::new();
    let mut end: Option<i64> = None;
    for (start, run) in timed {
        let joins = groups.last().is_some_and(|(first, group)| {
            let is_near = match (unit, *first, start) {
                (Unit::Run, ..) => false,
                (_, None, None) => true,
                (Unit::Session, Some(_), Some(start)) => {
                    end.is_some_and(|end| start - end < SESSION_GAP_MS)
                }
                (Unit::Day, Some(first), Some(start)) => day(first) == day(start),
                (_, None, Some(_)) | (_, Some(_), None) => false,
            };
            is_near && group.iter().all(|other| machines(&other.machine) == machines(&run.machine))
        });
        let run_end = start.map(|start| start.saturating_add_unsigned(run.wall_ms));
        match groups.last_mut().filter(|_| joins) {
            Some((_, group)) => {
                group.push(run);
                end = end.max(run_end);
            }
            None => {
                groups.push((start, vec![run]));
                end = run_end;
            }
        }
    }
    groups.sort_by_key(|(start, _)| *start);
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Number of days (UTC) on which runs began.
pub(crate) fn days<'a>(runs: impl IntoIterator<Item = &'a Outcome>) -> usize {
    let mut days: Vec<Option<i64>> =
        runs.into_iter().map(|run| start_ms(&run.started).map(day)).collect();
    days.sort_unstable();
    days.dedup();
    days.len()
}

/// Ids of the machines of both ends.
pub(crate) fn machines(machine: &Machine) -> [Option<&str>; 2] {
    [Some(&*machine.id), machine.far.as_ref().map(|far| &*far.id)]
}

const DAY_MS: i64 = 86_400_000;

fn day(ms: i64) -> i64 {
    ms.div_euclid(DAY_MS)
}

/// Milliseconds since 1970 of an RFC 3339 time, such as `2026-11-21T08:30:00Z`, in whole seconds; `None` if it is not one.
fn start_ms(text: &str) -> Option<i64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    Some(time.unix_timestamp() * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_milliseconds_since_1970() {
        // `date -u -d TIME +%s`
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-21T08:30:00Z", 1_795_249_800),
            ("2024-02-29T23:59:59.123456Z", 1_709_251_199),
            ("2024-03-01T01:59:59+02:00", 1_709_251_199),
            ("1999-12-31T19:00:00-05:00", 946_684_800),
        ] {
            assert_eq!(start_ms(text), Some(seconds * 1_000), "{text}");
        }
        for text in [
            "",
            "yesterday",
            "2026-11-21",
            "2026-13-21T08:30:00Z",
            "2026-11-21T08:30:00",
            "2026-11-21T08:30:00+é1",
        ] {
            assert_eq!(start_ms(text), None, "{text}");
        }
    }
}
