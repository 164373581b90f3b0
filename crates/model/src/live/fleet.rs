//! The same judge over the groups of a fleet, half of whose hosts are on while the other half is off.

use serde::{Deserialize, Serialize};

use super::LiveFigure;
use super::judge::FigureJudge;
use super::outcome::LiveVerdict;
use super::pair::{difference, is_figure};
use crate::statistics::{finite, mean};
use crate::{Better, Random};

/// Host that was on in one of two stages and off in the other.
#[derive(Debug, Clone, PartialEq)]
pub struct CrossedHost {
    /// True if it was on in the first stage.
    pub is_on_first: bool,
    /// Figure of each stage; `None` without one, which counts as the worst in either arm.
    pub values: [Option<f64>; 2],
    /// Requests of the stage with fewer.
    pub request_count: u64,
}

/// Hosts that are not independent, such as those of a rack.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveGroup {
    /// Name of the rack, class or site.
    pub name: String,
    /// Its hosts, half of them on in the first stage.
    pub hosts: Vec<CrossedHost>,
}

/// Verdict over the groups of a fleet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LivePooled {
    /// Verdict; its pairs are groups.
    pub verdict: LiveVerdict,
    /// Fewest groups that have one.
    pub groups_needed: u32,
    /// Groups without any figure; they do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// True if the first half of a group's hosts is on in the first stage: a fair coin for each group.
///
/// - `group`: number of the group, from 0.
pub fn is_first_half_on(seed: u64, group: u32) -> bool {
    Random::new(seed, u64::from(group)).below(2) == 0
}

/// Judges one figure over groups, in the order in which they finished.
///
/// The group is the unit, as hosts of one group are not independent. Its difference is the mean of those of its two halves: a
/// drift between the stages that all its hosts share falls out, and the group's coin gives the rest a random sign. A group that
/// is crossed over again, with a new coin, is one more unit; a group of one host has one half, whose drift the coin alone
/// takes.
///
/// - `judged`: figures of the rollout that are judged.
/// - `stage_ns`: length of a stage.
pub fn pool_live(
    groups: &[LiveGroup],
    figures: &[LiveFigure],
    index: usize,
    resolve: f64,
    stage_ns: u64,
) -> LivePooled {
    let mut judge = FigureJudge::new(figures, index, resolve, 2.0);
    let mut left_out = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let Some(crossed) = crossed_over(group, &figures[index]) else {
            left_out.push(group.name.clone());
            continue;
        };
        let requests = group.hosts.iter().map(|host| host.request_count);
        let request_count = requests.fold(0u64, u64::saturating_add);
        let now_ns = (number as u64 + 1).saturating_mul(stage_ns.saturating_mul(2));
        judge.add_difference(crossed.difference, crossed.level, [request_count; 2], now_ns);
    }
    LivePooled {
        verdict: judge.verdict(stage_ns),
        groups_needed: super::pairs_min(figures.len()),
        left_out,
    }
}

struct CrossedOver {
    difference: f64,
    level: f64,
}

/// On less off of a group; `None` if no host has a figure.
fn crossed_over(group: &LiveGroup, figure: &LiveFigure) -> Option<CrossedOver> {
    let halves = [true, false].map(|is_on_first| half_difference(group, figure, is_on_first));
    let difference = mean(&halves.into_iter().flatten().collect::<Vec<f64>>())?;
    let values: Vec<f64> =
        group.hosts.iter().flat_map(|host| host.values).flatten().filter_map(finite).collect();
    // A missing figure in both arms has no direction.
    let difference = if difference.is_nan() { 0.0 } else { difference };
    Some(CrossedOver { difference, level: mean(&values).unwrap_or_default() })
}

/// Mean over the hosts of one half of a group.
fn half_difference(group: &LiveGroup, figure: &LiveFigure, is_on_first: bool) -> Option<f64> {
    let hosts = group.hosts.iter().filter(|host| host.is_on_first == is_on_first);
    mean(&hosts.filter_map(|host| host_difference(host, figure)).collect::<Vec<f64>>())
}

fn host_difference(host: &CrossedHost, figure: &LiveFigure) -> Option<f64> {
    let [first, second] = host.values;
    let (on, off) = if host.is_on_first { (first, second) } else { (second, first) };
    let worst = match figure.better {
        Better::Lower => f64::INFINITY,
        Better::Higher => f64::NEG_INFINITY,
    };
    match (on.filter(is_figure), off.filter(is_figure)) {
        (Some(on), Some(off)) => difference(on, off, figure.scale),
        (None, Some(_)) => Some(worst),
        (Some(_), None) => Some(-worst),
        (None, None) => None,
    }
}
