//! Sessions and days: runs that are neighbours in time, and share what a day does to a machine.

use serde::{Deserialize, Serialize};

use crate::{Machine, Outcome};

/// Time between the end of a run and the start of the next one of its machine from which on they are two sessions,
/// in milliseconds.
pub const SESSION_GAP_MS: i64 = 3_600_000;

/// Unit that contributes one figure to a question between runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Each run: whatever a day shifts counts as a change.
    Run,
    /// Runs of one machine with less than an hour between the end of one and the start of the next.
    Session,
    /// Runs of one machine and one day (UTC).
    Day,
}

impl Unit {
    /// Name of one, `run`, `session` or `day`.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Run => "run",
            Unit::Session => "session",
            Unit::Day => "day",
        }
    }

    /// Unit of documents that do not state one.
    pub(crate) fn of_older_documents() -> Self {
        Unit::Run
    }
}

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

/// Milliseconds since 1970 of an RFC 3339 time, such as `2026-11-21T08:30:00Z`; `None` if it is not one.
fn start_ms(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| {
        let digits = text.get(from..to).filter(|part| part.bytes().all(|b| b.is_ascii_digit()))?;
        digits.parse::<i64>().ok()
    };
    let is_at =
        |at: usize, allowed: &[u8]| text.as_bytes().get(at).is_some_and(|b| allowed.contains(b));
    let separators = [(4, &b"-"[..]), (7, b"-"), (10, b"Tt "), (13, b":"), (16, b":")];
    if !separators.iter().all(|(at, allowed)| is_at(*at, allowed)) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 {
        return None;
    }
    let rest = text.get(19..)?;
    let fraction = rest
        .strip_prefix('.')
        .map_or("", |rest| &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())]);
    let zone_at = if rest.starts_with('.') { 20 + fraction.len() } else { 19 };
    let offset_minutes = match text.get(zone_at..)? {
        "Z" | "z" => 0,
        zone if zone.len() == 6 && is_at(zone_at, b"+-") && is_at(zone_at + 3, b":") => {
            let minutes =
                number(zone_at + 1, zone_at + 3)? * 60 + number(zone_at + 4, zone_at + 6)?;
            if zone.starts_with('-') { -minutes } else { minutes }
        }
        _ => return None,
    };
    let minutes = (days_since_1970(year, month, day) * 24 + hour) * 60 + minute - offset_minutes;
    Some((minutes * 60 + second) * 1_000)
}

/// Days from 1 January 1970 to a date of the Gregorian calendar.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    /// 1 January 1970, counted so from 1 March of year 0.
    const EPOCH: i64 = 719_468;
    365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - EPOCH
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
