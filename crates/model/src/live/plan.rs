//! Plan of an on/off experiment.

use serde::{Deserialize, Serialize};

use super::GuardRule;
use crate::{Better, Random};

/// Wash-out after a switch unless a lag was measured: 0.5 s.
pub const WASHOUT_NS: u64 = 500_000_000;

/// Wash-out after a switch in measured lags. After 1.5 lags, 43 % of simulated runs were fooled; after 4, 3 to 6 %.
pub const WASHOUT_LAGS: u64 = 4;

/// Side of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LiveArm {
    /// The setting is on.
    On,
    /// The machine as it was found.
    Off,
}

impl LiveArm {
    /// The other side of a pair.
    pub fn other(self) -> Self {
        match self {
            LiveArm::On => LiveArm::Off,
            LiveArm::Off => LiveArm::On,
        }
    }
}

/// Length of a pair's periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LiveStage {
    /// Periods of the forecast; their pairs decide.
    Short,
    /// Periods at least 16 times as long, which confirm each "better".
    Long,
}

/// Scale on which a pair's two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LiveScale {
    /// Logarithm of on over off.
    Ratio,
    /// On less off, in events per request; values are events per request.
    Count,
}

/// Figure that is judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveFigure {
    /// Name, such as `p99`.
    pub name: String,
    /// Unit of its values.
    pub unit: String,
    /// Direction of improvement.
    pub better: Better,
    /// Scale of its differences.
    pub scale: LiveScale,
}

/// Everything that is fixed before the first switch.
#[derive(Debug, Clone)]
pub struct LivePlan {
    /// Judged figures, the primary one first.
    pub figures: Vec<LiveFigure>,
    /// Smallest ratio that the run is asked to decide, above 1.
    pub resolve: f64,
    /// Time from the first switch on, without the baseline.
    pub time_ns: u64,
    /// Seed of the coin.
    pub seed: u64,
    /// Start of each period that its values leave out, after the act of switching.
    pub washout_ns: u64,
    /// Time of the act of switching; it belongs to no arm.
    pub act_ns: u64,
    /// True if each "better" is confirmed by longer periods.
    pub confirm: bool,
    /// Rules of the user. Each `FIGURE > Nx` replaces the factor 2 of the soft guard of that figure.
    pub rules: Vec<GuardRule>,
}

/// Arm of the first period of a pair: a fair coin.
///
/// - `pair`: from 0, counted over both stages.
pub fn first_arm(seed: u64, pair: u32) -> LiveArm {
    if Random::new(seed, u64::from(pair)).below(2) == 0 { LiveArm::On } else { LiveArm::Off }
}
