//! Switches, arms, trials, measurements, experiments and verdicts.
//!
//! Pure: no I/O, no clock, no threads. Time comes in as numbers and randomness from a seed, so every
//! schedule and verdict is reproducible.

mod account;
mod arm;
mod arms;
mod best;
mod best_arm;
mod carry_over;
pub mod change_points;
mod compare;
mod decision;
mod evidence;
mod exit_code;
mod experiment;
mod failures;
mod fake;
mod figure;
mod gain;
mod gate;
mod judge;
pub mod live;
mod load;
mod load_curve;
mod measurement;
mod metrics;
mod nearest;
mod outcome;
mod pairing;
mod path;
pub mod pool;
mod questions;
mod random;
mod request;
mod runner;
mod samples;
mod schedule;
mod search;
mod sequence;
mod sessions;
mod starts;
mod steps;
mod switch;
mod tail;
mod trust;
mod watch;
mod wire_spec;

pub use arm::{Arm, ArmKind};
pub use arms::{ARM_WORDS, ArmPlan, ArmPlanError, BEST, arms};
pub use best::{SearchPlan, confirming_arms, first_stage_trials, search};
pub use compare::{
    ArmComparison, COMPARISON_SCHEMA, Change, CompareError, ComparedRun, CountChange, Difference,
    MetricComparison, RUNS_MIN, RunComparison, comparable, compare, is_beyond, runs_needed,
};
pub use exit_code::ExitCode;
pub use experiment::{
    Experiment, ExperimentPlan, ExperimentStep, FORECAST_AFTER, Forecast, Members, OutcomeHeader,
    RESOLVE, Replayed, RunProgress, TimeNeeded, Trial, TrialRecord,
};
pub use fake::{FakeDrift, FakeSource, FakeSwitch, FakeWorld};
pub use figure::{Distribution, Reliability, Verdict};
pub use gain::Gain;
pub use gate::{Decision, Gate, GateAnswer, Undecided};
pub use load::{LoadKind, LoadWords, PathLoad};
pub use load_curve::{
    ArmCurve, CARRIED_SHARE_MIN, CurveEnd, CurvePlan, KNEE_LOSS, KNEE_P99_RATIO, KNEE_TRIALS_MIN,
    Knee, KneeDoubt, LoadCurve, LoadPoint, LoadTrial, knee, load_curve,
};
pub use measurement::{
    Cost, Delivery, Hardware, Measurement, Metric, NotEffective, QUANTILES, ROUND_TRIP, Refusal,
    SAMPLE_COUNT_MAX, SAMPLES_BEYOND_QUANTILE, Shape, Throughput, Trap, VERSION_MODE,
    latency_histogram, total,
};
pub use metrics::{
    describe, distribution, is_event_count, quantile_of_arrived, segment_stem, stated_unit,
};
pub use nearest::{did_you_mean, nearest};
pub use outcome::{
    ArmOutcome, BestArm, Ended, Machine, MetricOutcome, Outcome, Phrases, RESOLVE_UNRECORDED,
    SCHEMA, Warning,
};
pub use pairing::Pairing;
pub use path::{Direction, Load, Path, PathError, Session, TwoHosts, TypedPath};
pub use questions::{By, Unit};
pub use random::Random;
pub use request::{
    ArmEntry, Limits, LoadRequest, PathFile, PathRequest, PlanArms, PlanLoad, PlanRequest,
    Programs, ProgramsError, REQUEST_VERSION, ReplayRequest, Request, RequestError, Series,
    Subject, VLAN_MASK, VLANS,
};
pub use runner::{Clock, FinishedRun, Sink, Trials, resume, run};
pub use samples::{
    CodeKind, CpuSamples, CpuTimeChange, CpuTimePer, DEVIATIONS_MIN, FUNCTIONS_MAX, FunctionChange,
    FunctionSamples, SHARE_MIN, TimeChange,
};
pub use schedule::{BlockOrder, Schedule, order};
pub use search::{Member, Search, SearchStep};
pub use sequence::{Jitter, SequenceArrival, SequenceCounts};
pub use sessions::{SESSION_GAP_MS, sessions};
pub use starts::Restarts;
pub use stats::{
    Better, CountDifference, Floor, Look, always_valid, blocks_min, paired as statistics, pairs,
    two_samples, verdict,
};
pub use switch::{
    PathSwitch, Support, SwitchId, SwitchScope, SwitchSet, SwitchSpec, ids, kebab, kebab_len,
};
pub use tail::{Estimate, Tail};
pub use trust::{CarryOver, StartSpread, Ticks, Trust};
pub use watch::{
    SeriesChange, WATCH_SCHEMA, WATCHED_MAX, Watch, WatchedPoint, WatchedSeries, watch,
};
pub use wire_spec::{WIRE_DELAY_MIN, WIRE_RATE_BPS_MAX, WireBytes, WireSpec, WireSpecError};
