//! An experiment as one typed document.
//!
//! Words of a command line and experiment files become a [`Request`] once, in the command that reads them. It is what
//! processes, hosts and jobs of a fleet are given; none of them reads words.

mod file;
mod limits;
mod load;
mod plan;
mod programs;
mod replay;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use file::PathFile;
pub use limits::{Limits, RequestError, Series};
pub use load::{LoadRequest, VLAN_MASK, VLANS};
pub use plan::{PlanArms, PlanLoad, PlanRequest};
pub use programs::{ArmEntry, Programs, ProgramsError};
pub use replay::ReplayRequest;

/// Version of [`Request`]; raised when a field changes its meaning.
pub const REQUEST_VERSION: u32 = 1;

/// Longest name of an experiment, and longest note on it, characters.
pub(crate) const TITLE_LEN_MAX: usize = 200;

/// Time that an experiment may take beside its trials: labs on a busy machine, and programs that end late.
const BESIDE_TRIALS: Duration = Duration::from_secs(600);

/// Everything that defines an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// [`REQUEST_VERSION`].
    pub version: u32,
    pub subject: Subject,
    pub limits: Limits,
    #[serde(default, skip_serializing_if = "Series::is_default")]
    pub series: Series,
    /// True if no arm may be worse by more than the resolution.
    #[serde(default)]
    pub gate: bool,
    /// False if the result is not stored.
    #[serde(default = "yes")]
    pub is_stored: bool,
    /// The user's name for the experiment, and note on it: one line of at most 200 characters each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Command line of the request, for the record of the user's own programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
}

fn yes() -> bool {
    true
}

/// Subject of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// Switches of a path.
    Path(Box<PathRequest>),
    /// The user's own programs and settings.
    Programs(Box<Programs>),
    /// A plan of host settings.
    Plan(Box<PlanRequest>),
}

/// Switches of a path as arms under one of its loads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PathRequest {
    /// Name of the path.
    pub path: String,
    pub load: LoadRequest,
    /// Arms in the notation of [`ArmPlan`](crate::ArmPlan), or `best`.
    pub arms: String,
    /// Other programs that run as arms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,
    /// Another build of the program, which becomes the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<PathBuf>,
    /// File of a path whose arms are described by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathFile>,
}

impl Request {
    /// A stored experiment of one run without a gate.
    pub fn new(subject: Subject, limits: Limits) -> Self {
        Request {
            version: REQUEST_VERSION,
            subject,
            limits,
            series: Series::default(),
            gate: false,
            is_stored: true,
            name: None,
            note: None,
            words: None,
        }
    }

    /// Errors: another version, or limits under which no verdict is possible.
    pub fn check(&self) -> Result<(), RequestError> {
        if self.version != REQUEST_VERSION {
            return Err(RequestError::Version { theirs: self.version });
        }
        for (option, text) in [("--name", &self.name), ("--note", &self.note)] {
            if text.as_ref().is_some_and(|text| !is_title(text)) {
                return Err(RequestError::Title { option });
            }
        }
        self.limits.check()
    }

    /// Name under which its results are stored.
    pub fn path(&self) -> &str {
        match &self.subject {
            Subject::Path(path) => &path.path,
            Subject::Programs(_) => Programs::PATH,
            Subject::Plan(plan) => plan.load.path(),
        }
    }

    /// One run of its series.
    ///
    /// - `number`: from 0; added to the seed if one is given.
    pub fn run_of_series(&self, number: u32) -> Self {
        let seed = self.limits.seed.map(|seed| seed.wrapping_add(u64::from(number)));
        let limits = Limits { seed, ..self.limits.clone() };
        Request { limits, series: Series::default(), ..self.clone() }
    }

    /// Time after which a host that runs it counts as stuck.
    pub fn time_limit(&self) -> Duration {
        let run = self.limits.time.saturating_mul(2).saturating_add(BESIDE_TRIALS);
        let every = self.series.every.unwrap_or_default();
        run.max(every).saturating_mul(self.series.runs)
    }
}

/// True for one line of text that is not too long.
fn is_title(text: &str) -> bool {
    !text.trim().is_empty()
        && text.chars().count() <= TITLE_LEN_MAX
        && !text.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ping(time: Duration) -> Request {
        let path = PathRequest {
            path: "probe".into(),
            load: LoadRequest { kind: Some("ping".into()), ..LoadRequest::default() },
            arms: "spin".into(),
            ..PathRequest::default()
        };
        let limits = Limits { time, ..Limits::default() };
        Request::new(Subject::Path(Box::new(path)), limits)
    }

    #[test]
    fn a_request_survives_its_document_and_unknown_fields_are_refused() {
        let mut request = ping(Duration::from_millis(1500));
        request.series.every = Some(Duration::from_secs(7));
        let mut document = serde_json::to_value(&request).unwrap();
        assert_eq!(serde_json::from_value::<Request>(document.clone()).unwrap(), request);
        for part in ["", "/subject/path", "/subject/path/load", "/limits"] {
            let mut newer = document.clone();
            newer.pointer_mut(part).unwrap()["colour"] = 7.into();
            let refused = serde_json::from_value::<Request>(newer).unwrap_err().to_string();
            assert!(refused.contains("unknown field `colour`"), "{part}: {refused}");
        }
        document["subject"] = serde_json::json!({ "shell": {} });
        assert!(serde_json::from_value::<Request>(document).is_err());
    }

    #[test]
    fn names_and_notes_are_one_line_of_at_most_two_hundred_characters() {
        let mut request = ping(Duration::from_secs(1));
        request.name = Some("é".repeat(TITLE_LEN_MAX));
        assert_eq!(request.check(), Ok(()));
        for bad in ["", "  ", "a\nb", "\u{1b}[31m", &"x".repeat(TITLE_LEN_MAX + 1)] {
            request.note = Some(bad.to_owned());
            let refused = request.check().unwrap_err();
            assert_eq!(refused, RequestError::Title { option: "--note" }, "{bad:?}");
        }
    }

    #[test]
    fn the_limit_of_a_host_follows_the_time_and_the_series() {
        assert_eq!(ping(Duration::from_secs(60)).time_limit().as_secs(), 720);
        assert_eq!(ping(Duration::from_secs(1200)).time_limit().as_secs(), 3000);
        let mut series = ping(Duration::from_secs(60));
        series.series = Series { runs: 5, every: Some(Duration::from_secs(7200)) };
        assert_eq!(series.time_limit().as_secs(), 36_000);
        series.series.runs = u32::MAX;
        assert!(series.time_limit() > Duration::from_secs(36_000));
    }

    #[test]
    fn runs_of_a_series_differ_by_their_seeds() {
        let mut series = ping(Duration::from_secs(60));
        series.series.runs = 3;
        assert_eq!(series.run_of_series(2), ping(Duration::from_secs(60)));
        series.limits.seed = Some(u64::MAX);
        assert_eq!(series.run_of_series(2).limits.seed, Some(1));
    }
}
