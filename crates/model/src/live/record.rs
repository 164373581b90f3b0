//! Record of what an on/off experiment did, for its document and its picture.

use serde::{Deserialize, Serialize};

use super::{LiveArm, LiveStage};

/// Trip of the guard in one period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveTrip {
    /// Reason.
    pub reason: String,
    /// Time of the sample that tripped, since the first switch.
    pub at_ns: u64,
    /// Time from that sample until the setting was undone; `None` in a period without the setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone_after_ns: Option<u64>,
}

/// One period, as it was. Times are since the first switch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LivePeriodRecord {
    /// Side of the pair.
    pub arm: LiveArm,
    /// Number of the pair, from 0.
    pub pair: u32,
    /// Short or long periods.
    pub stage: LiveStage,
    /// Begin of the act of switching.
    pub start_ns: u64,
    /// End of the act: it belongs to no arm.
    pub switched_ns: u64,
    /// End of the wash-out, at which the figures begin.
    pub counted_ns: u64,
    /// End of the period.
    pub end_ns: u64,
    /// Requests from the end of the wash-out.
    pub request_count: u64,
    /// By judged figure.
    pub values: Vec<Option<f64>>,
    /// Trip of the guard; the rest of the period ran without the setting and does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trip: Option<LiveTrip>,
}

/// Spread of pairs without any switch, for one length of periods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LivePlacebo {
    /// Length of the periods.
    pub period_ns: u64,
    /// By judged figure: 1.48 times the median size of the logarithm of a pair's ratio.
    pub spread: Vec<Option<f64>>,
}

/// Time before the first switch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveBaseline {
    /// Length.
    pub time_ns: u64,
    /// Requests in it.
    pub request_count: u64,
    /// By judged figure.
    pub values: Vec<Option<f64>>,
    /// Placebo curve.
    pub placebo: Vec<LivePlacebo>,
    /// Time of the slower act of switching, measured once on and once off.
    pub act_ns: u64,
    /// Lag that the wash-out is four times of: the p99 of a request that was under way, or nothing measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_ns: Option<u64>,
}
