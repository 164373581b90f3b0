//! One experiment on many hosts, in a terminal.

use model::Verdict;
use model::pool::{FleetSide, HostLine, PooledMetric, PooledOutcome};

use super::Style;
use crate::answer::{self, percent};
use crate::screen::{Cell, Screen, Tone};
use crate::{units, wording};

/// Formats a pooled outcome: for each judged metric the verdicts over all hosts, then each host.
pub fn pooled(outcome: &PooledOutcome, style: Style) -> String {
    let mut screen = Screen::new(style);
    let hosts = units::plural(outcome.hosts.len() as u32, "host");
    let groups = outcome.arms.iter().flat_map(|arm| arm.metrics.values()).find_map(|of| of.groups);
    let within =
        groups.map_or(String::new(), |groups| format!("{}, ", units::plural(groups, "group")));
    screen.heading(&format!("{} on {within}{hosts}", outcome.path));
    for sentence in answer::pooled(outcome) {
        screen.paragraph("", &sentence.text, sentence.tone);
    }
    for host in &outcome.hosts {
        if let Some(why) = &host.why {
            screen.item(&host.host, why, Tone::Bad);
        }
    }
    for name in &outcome.judged {
        let Some(first) = outcome.arms.iter().find_map(|arm| arm.metrics.get(name)) else {
            continue;
        };
        screen.blank();
        let better = wording::better(first.better);
        screen.heading(&format!("{} ({better})", wording::metric(name)));
        over_all(&mut screen, outcome, name);
        each_host(&mut screen, outcome, name);
    }
    for warning in &outcome.warnings {
        screen.blank();
        screen.item(&warning.what, &warning.advice, Tone::Doubt);
    }
    screen.blank();
    let unit = match groups {
        None => "the host is the unit: the mean over hosts",
        Some(_) => "the group is the unit, with the median of its hosts: the mean over groups",
    };
    let units = if groups.is_some() { "groups" } else { "hosts" };
    let method = format!(
        "{unit} needs the interval of Hartung and Knapp beyond that of the control arms (A/A), and p below 0.05 after \
         Holm's correction, or for no difference the interval within {}; six {units} at least. Hosts that are helped \
         or hurt are named at a false-discovery rate of 5 % over all hosts, arms and metrics",
        percent(outcome.resolve - 1.0)
    );
    screen.paragraph("pooled  ", &method, Tone::Dim);
    screen.finish()
}

fn over_all(screen: &mut Screen, outcome: &PooledOutcome, name: &str) {
    let rows =
        outcome.arms.iter().filter_map(|arm| Some(pooled_row(&arm.name, arm.metrics.get(name)?)));
    screen.table(&["arm", ">ratio", ">95 % interval", ">next host?", "all hosts"], rows);
    for (arm, metric) in outcome.arms.iter().filter_map(|arm| Some((arm, arm.metrics.get(name)?))) {
        let counts = format!(
            "helps on {}, hurts on {} of {} hosts",
            metric.helped, metric.hurt, metric.hosts
        );
        let split = metric
            .split
            .as_ref()
            .map(|split| format!("hosts differ most by {split}, which may explain it (a guess)"));
        let parts = [Some(counts), metric.why.clone(), split];
        let text = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
        screen.item(&arm.name, &text, Tone::Plain);
    }
}

fn pooled_row(arm: &str, metric: &PooledMetric) -> Vec<Cell> {
    let interval = metric.low.zip(metric.high);
    let next = metric.next_low.zip(metric.next_high);
    let [interval, next] = [interval, next]
        .map(|ends| Cell::or_dash(ends.map(|(low, high)| units::interval(low, high)).as_deref()));
    vec![
        Cell::plain(arm),
        Cell::or_dash(metric.ratio.map(units::ratio).as_deref()),
        interval,
        next,
        Cell::toned(in_words(metric), wording::tone(metric.verdict)),
    ]
}

fn in_words(metric: &PooledMetric) -> String {
    match (metric.verdict, metric.everywhere) {
        (None, _) => "no pooled verdict".into(),
        (Some(verdict), Some(false)) if verdict.differs() => {
            format!("{} on average, not everywhere", wording::verdict(verdict))
        }
        (Some(verdict), _) => wording::verdict(verdict).into(),
    }
}

fn each_host(screen: &mut Screen, outcome: &PooledOutcome, name: &str) {
    let has_groups = outcome.hosts.iter().any(|run| run.group.is_some());
    let rows = outcome.arms.iter().flat_map(|arm| {
        let lines = arm.metrics.get(name).into_iter().flat_map(|metric| &metric.lines);
        lines.map(|line| host_row(&arm.name, line, has_groups.then(|| group(outcome, line))))
    });
    let columns = ["host", "group", "arm", ">ratio", ">95 % interval?", "verdict"];
    let columns: Vec<&str> =
        columns.into_iter().filter(|name| has_groups || *name != "group").collect();
    screen.table(&columns, rows);
    for arm in &outcome.arms {
        let lines = arm.metrics.get(name).into_iter().flat_map(|metric| &metric.lines);
        for (line, why) in lines.filter_map(|line| Some((line, line.why.as_ref()?))) {
            screen.item(&format!("{} on {}", arm.name, line.host), why, Tone::Doubt);
        }
    }
}

fn group<'a>(outcome: &'a PooledOutcome, line: &HostLine) -> Option<&'a str> {
    outcome.hosts.iter().find(|run| run.host == line.host)?.group.as_deref()
}

/// - `group`: of the host, in a table that has that column.
fn host_row(arm: &str, line: &HostLine, group: Option<Option<&str>>) -> Vec<Cell> {
    let interval = line.low.zip(line.high).map(|(low, high)| units::interval(low, high));
    let verdict = line.verdict.map_or("no figure", wording::verdict);
    let text = match line.side {
        FleetSide::Helped if line.verdict != Some(Verdict::Better) => format!("{verdict}, helped"),
        FleetSide::Hurt if line.verdict != Some(Verdict::Worse) => format!("{verdict}, hurt"),
        _ => verdict.into(),
    };
    let mut row = vec![Cell::plain(&line.host)];
    row.extend(group.map(|group| Cell::plain(group.unwrap_or("–"))));
    row.extend([
        Cell::plain(arm),
        Cell::plain(line.ratio.map_or("–".into(), units::ratio)),
        Cell::plain(interval.unwrap_or_else(|| "–".into())),
        Cell::toned(text, wording::tone(line.verdict)),
    ]);
    row
}
