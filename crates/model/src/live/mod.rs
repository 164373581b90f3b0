//! Judge of an on/off experiment on a running service.
//!
//! A setting is switched on and off in short periods. An on-period and an off-period make a **pair**, whose order a fair coin
//! decides: then the sign of the pair's difference is a coin as well if the setting does nothing, whatever else goes on in the
//! machine and however its noise is correlated. Alternation has no such guarantee: a job every two periods fooled it in 97 % of
//! simulated runs. The pair is the unit, and rank-weighted bets judge it at every look.
//!
//! The coin does not see effects that outlast a period (carry-over) or a guard that ends only on-periods; its checks and the rule
//! for tripped periods ([`LivePeriod::trip`]) are for those.

mod checks;
mod experiment;
mod fleet;
mod forecast;
mod guard;
mod judge;
mod outcome;
mod pair;
mod plan;
mod record;

pub use experiment::{LiveExperiment, LiveStep};
pub use fleet::{CrossedHost, LiveGroup, LivePooled, is_first_half_on, pool_live};
pub use forecast::{
    LiveForecast, LiveRefusal, PERIOD_NS, PERIOD_NS_MAX, PERIOD_NS_MIN, PlaceboPoint, forecast,
    placebo,
};
pub use guard::{GuardRule, GuardRuleError, GuardSample, HardGuard, Trip};
pub use outcome::{
    LiveCarryOver, LiveDoubt, LiveEnd, LiveOutcome, LiveRatio, LiveSecondScale, LiveVerdict,
    SecondScale, TripCount,
};
pub use pair::LivePeriod;
pub use plan::{
    LiveArm, LiveFigure, LivePlan, LiveScale, LiveStage, WASHOUT_LAGS, WASHOUT_NS, first_arm,
};

pub use record::{LiveBaseline, LivePeriodRecord, LivePlacebo, LiveTrip};
pub use stats::sequential::pairs_min;
