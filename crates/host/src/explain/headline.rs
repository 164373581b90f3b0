//! The answer in one sentence: where packets are lost, or where they wait.

use super::drops::{DropPlace, DropRow};
use super::stages::{StageRow, point_name, stage_name};
use super::{CounterRow, ExplainSummary, drop_sentences};
use sys::bpf::explain::{Point, WAKE_UP};

/// Share of lost packets from which a loss is the answer although packets wait too.
const MUCH_LOST: f64 = 0.01;
/// Wait of one packet in a hundred that is worth a sentence, nanoseconds.
const LONG_WAIT_NS: f64 = 1e6;
/// Smallest share of the packets that a stage must have had.
const STAGE_SHARE: f64 = 0.01;

/// The sentence, without a full stop.
pub(super) fn of(summary: &ExplainSummary) -> String {
    if summary.packets_count == 0 && summary.drops.is_empty() && summary.counters.is_empty() {
        return "no packet came while packets were traced".to_owned();
    }
    let loss = loss(summary);
    let slowest = slowest(summary);
    let wait = slowest.filter(|row| row.p99_ns >= LONG_WAIT_NS).map(|row| wait(row, summary));
    match (loss, wait) {
        (Some((share, lost)), _) if share >= MUCH_LOST => lost,
        (_, Some(wait)) => wait,
        (Some((_, lost)), None) => lost,
        (None, None) => match slowest {
            Some(row) => format!(
                "nothing is lost and no stage is slow: the longest, {}, takes {} (p99)",
                row.name,
                time(row.p99_ns)
            ),
            None => "nothing is lost".to_owned(),
        },
    }
}

/// Share of the packets that the greatest loss took, and its sentence.
fn loss(summary: &ExplainSummary) -> Option<(f64, String)> {
    let is_harmful =
        |reason: &str| drop_sentences::of(reason).is_none_or(|known| !known.is_harmless());
    let mut losses = Vec::new();
    for row in summary.drops.iter().filter(|row| is_harmful(row.meaning())) {
        let counted = counted_with(row, &summary.counters).map_or(0, |counted| counted.count);
        losses.push((row.count.max(counted), lost(row, summary)));
    }
    for row in summary.counters.iter().filter(|row| row.seen_count == 0) {
        losses.push((row.count, uncounted(row)));
    }
    let (count, sentence) = losses.into_iter().max_by_key(|(count, _)| *count)?;
    Some((count as f64 / summary.packets_count.max(1) as f64, sentence))
}

/// The counters of a drop's reason.
fn counted_with<'a>(row: &DropRow, counters: &'a [CounterRow]) -> Option<&'a CounterRow> {
    let known = drop_sentences::of(row.meaning())?;
    counters.iter().find(|counted| known.has(counted.reason))
}

fn lost(row: &DropRow, summary: &ExplainSummary) -> String {
    let count = match counted_with(row, &summary.counters) {
        Some(counted) => format!(
            "{} packets are lost, {} of them seen",
            thousands(counted.count),
            thousands(counted.seen_count)
        ),
        None => format!(
            "{} of {} packets are lost",
            thousands(row.count),
            thousands(summary.packets_count.max(row.count))
        ),
    };
    let sentence = match row.places.first() {
        Some(DropPlace { sentence, count, .. }) if *count < row.count => {
            format!("{sentence} ({} of them)", thousands(*count))
        }
        Some(DropPlace { sentence, .. }) => sentence.clone(),
        None => row.sentence.map_or_else(|| row.reason.clone(), str::to_owned),
    };
    format!("{count}: {sentence}")
}

fn uncounted(row: &CounterRow) -> String {
    let names: Vec<&str> = row.grown.keys().copied().collect();
    format!(
        "{} packets are lost, counted by {}: {}",
        thousands(row.count),
        names.join(" and "),
        row.sentence
    )
}

/// The stage in which one packet in a hundred waits longest.
fn slowest(summary: &ExplainSummary) -> Option<&StageRow> {
    let least = (summary.packets_count as f64 * STAGE_SHARE) as u64;
    let is_part = stage_name(WAKE_UP.0, WAKE_UP.1);
    let ends = [point_name(Point::Dropped), point_name(Point::Consumed)];
    let mut rows: Vec<&StageRow> = summary
        .stages
        .iter()
        .filter(|row| row.timed_count > 0 && row.count >= least)
        .filter(|row| row.name != is_part && !ends.contains(&row.to))
        .collect();
    rows.sort_by(|a, b| a.p99_ns.total_cmp(&b.p99_ns));
    rows.pop()
}

fn wait(row: &StageRow, summary: &ExplainSummary) -> String {
    let place = row.longest.as_ref();
    let flow = place.and_then(|place| {
        let protocol = place.protocol.as_ref()?;
        Some(match service_port(place.port, place.from_port) {
            Some(port) => format!("{protocol} port {port}"),
            None => protocol.clone(),
        })
    });
    let flow = flow.map_or(String::new(), |flow| format!("{flow}: "));
    let wait = time(row.p99_ns);
    let interface = place.and_then(|place| place.interface.as_deref()).unwrap_or("an interface");
    let interface = crate::text::printable(interface, 16);
    if row.to == point_name(Point::Read) {
        let program = place.and_then(|place| place.program.as_deref()).unwrap_or("it");
        let woken = summary.stages.iter().find(|one| one.name == stage_name(WAKE_UP.0, WAKE_UP.1));
        return match woken.filter(|woken| woken.p99_ns > row.p99_ns / 2.0) {
            Some(woken) => format!(
                "{flow}the scheduler is the slow part: {program} is woken {} (p99) after its packets are in the \
                 socket",
                time(woken.p99_ns)
            ),
            None => format!(
                "{flow}your program is the slow part: packets wait {wait} (p99) in the socket until {program} \
                 reads"
            ),
        };
    }
    if row.from == point_name(Point::Queued) {
        let discipline = place.and_then(|place| place.discipline.as_deref());
        let discipline = discipline.map_or(String::new(), |text| format!(" ({text})"));
        return format!("{flow}packets wait {wait} (p99) in the queue of {interface}{discipline}");
    }
    if row.from == point_name(Point::InBacklog) {
        return format!(
            "{flow}packets wait {wait} (p99) in a CPU's backlog until its softirq runs, of {interface}"
        );
    }
    format!("{flow}packets spend {wait} (p99) in: {}, of {interface}", row.name)
}

/// The port by which a flow is known: the destination's, unless that one is a client's and the other is not.
fn service_port(to: Option<u16>, from: Option<u16>) -> Option<u16> {
    /// First port that clients get.
    ///
    /// Source: ip-sysctl, default of net.ipv4.ip_local_port_range.
    const CLIENTS_FROM: u16 = 32_768;
    match (to, from) {
        (Some(to), Some(from)) if to >= CLIENTS_FROM && from < CLIENTS_FROM => Some(from),
        (to, _) => to,
    }
}

/// A time with its unit.
fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

/// A number with commas.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_known_by_the_port_of_its_server() {
        assert_eq!(service_port(Some(5201), Some(40_000)), Some(5201));
        assert_eq!(service_port(Some(40_000), Some(80)), Some(80));
        assert_eq!(service_port(Some(40_000), Some(50_000)), Some(40_000));
        assert_eq!(service_port(None, None), None);
    }

    #[test]
    fn numbers_have_commas() {
        assert_eq!([0, 999, 1_000, 3_018_000].map(thousands), ["0", "999", "1,000", "3,018,000"]);
    }
}
