//! Interface that every path implements.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Arm, LoadKind, LoadWords, Machine, Measurement, PathFile, PathLoad, PathSwitch, ReplayRequest,
    Support, SwitchId, SwitchSpec, WireSpec, ids,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// Name of a [`LoadKind`] of the path.
    pub kind: String,
    /// UDP payload of every datagram in bytes; 0 if the messages have sizes of their own.
    pub size_bytes: usize,
    /// Datagrams per second; 0 if the load has no schedule.
    pub rate_pps: u64,
    /// Length of the measured part of a trial.
    pub trial: Duration,
    /// IPv6 in place of IPv4, on a path that has the choice.
    pub ipv6: bool,
    /// Tag of the frames, 16 bits of priority and VLAN, on a path that has the choice; `None` without one.
    pub vlan_tag: Option<u16>,
    /// Wire with distance between the ends of a lab, on a path that has the choice; `None` for one without.
    pub wire: Option<WireSpec>,
    /// Far end on another host; `None` for a lab of namespaces.
    pub far: Option<TwoHosts>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TwoHosts {
    /// `peer:HOST[:PORT]`, `ssh:HOST` or `netns:NAME`.
    pub end: String,
    /// Shared secret of a `wirepath peer` that runs already.
    pub secret: Option<String>,
    /// Address of the far end that the load uses; `None` for that of the route.
    pub address: Option<IpAddr>,
    /// Options of the ssh client, each as for its `-o`.
    pub ssh_options: Vec<String>,
    /// Direction of a load that goes one way, as the near end sees it.
    pub direction: Direction,
    /// Interface of the near end; `None` for that of the route.
    pub ifname: Option<String>,
    /// Receive queue of the near end; `None` for all of them.
    pub queue: Option<u32>,
    /// CPU to which `pin` moves the near end; `None` for its first one.
    pub near_cpu: Option<usize>,
    /// CPU to which `pin` moves the far end; `None` for its first one.
    pub far_cpu: Option<usize>,
}

/// Direction of a load that goes one way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The near end sends.
    #[default]
    Send,
    /// The near end receives.
    Receive,
}

/// Failure to open a path or to run a trial.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    #[error("{what} is not possible here; {needs}")]
    Unsupported { what: String, needs: String },
    #[error("{what}; {remedy}")]
    Invalid { what: String, remedy: String },
    /// A component failed; its message contains the remedy.
    #[error(transparent)]
    Part(#[from] Box<dyn std::error::Error + Send + Sync>),
    /// One end of a run failed.
    #[error("{end}: {why}")]
    End {
        /// `near`, `far` or the name of a peer program.
        end: String,
        #[source]
        why: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl PathError {
    /// Failure of one end. A cause that is a [`PathError`] already is returned unchanged.
    pub fn at(
        end: impl Into<String>,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        match cause.into().downcast::<PathError>() {
            Ok(error) => *error,
            Err(why) => PathError::End { end: end.into(), why },
        }
    }

    /// Wraps an error whose own message suffices.
    pub fn part(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        PathError::Part(Box::new(error))
    }
}

/// A route of packets from a source to their consumer.
pub trait Path {
    fn name(&self) -> &'static str;

    fn what(&self) -> &'static str;

    fn switches(&self) -> &'static [SwitchSpec];

    /// Switches of `--arms ladder` in the order of its rungs: those that can act under this load here, as far as that is
    /// known before the run.
    fn ladder(&self, load: &Load) -> Vec<SwitchId>;

    /// Supported loads; the first is the default.
    fn loads(&self) -> &'static [LoadKind];

    /// Words for sentences about results under a load.
    fn load_words(&self, _load: &Load) -> LoadWords {
        LoadWords::default()
    }

    /// Determines by trying whether an arm can run on this host, and if not, what is missing.
    fn support(&self, arm: &Arm, load: &Load) -> Support;

    fn open(&self, load: &Load) -> Result<Box<dyn Session>, PathError>;

    /// This path with a capture as its only load. Errors: it replays none, or not this one.
    fn replaying(&self, _replay: &ReplayRequest) -> Result<Box<dyn Path>, PathError> {
        Err(replays_nothing(self.name()))
    }

    /// This path with its arms from a file. Errors: it reads none, or there is a mistake in this one.
    fn configured(&self, _file: &PathFile) -> Result<Box<dyn Path>, PathError> {
        Err(PathError::Invalid {
            what: format!("path {} reads no file", self.name()),
            remedy: "leave it out; arms are switches: --arms".to_owned(),
        })
    }

    /// Arms in place of those made of switches, the baseline first and its control second; empty for none.
    fn arms(&self) -> Vec<Arm> {
        Vec::new()
    }

    /// Program that runs its trials; `None` for this one.
    fn program(&self) -> Option<&std::path::Path> {
        None
    }
}

fn replays_nothing(path: &str) -> PathError {
    PathError::Invalid {
        what: format!("path {path} replays no captures"),
        remedy: "leave out --replay, or name a path that replays them".to_owned(),
    }
}

/// A path whose switches and loads are enums. As a [`Path`] it reads the kind of a load once, and refuses a load that
/// it does not have.
pub trait TypedPath {
    type Switch: PathSwitch;
    type Kind: PathLoad;

    const NAME: &'static str;
    const WHAT: &'static str;

    /// See [`Path::ladder`]. Default: every switch.
    fn ladder(&self, _load: &Load, _kind: Self::Kind) -> Vec<SwitchId> {
        ids(Self::Switch::SPECS)
    }

    /// See [`Path::load_words`].
    fn load_words(&self, _kind: Self::Kind) -> LoadWords {
        LoadWords::default()
    }

    /// See [`Path::support`].
    fn support(&self, arm: &Arm, load: &Load, kind: Self::Kind) -> Support;

    /// See [`Path::open`].
    fn open(&self, load: &Load, kind: Self::Kind) -> Result<Box<dyn Session>, PathError>;

    /// See [`Path::replaying`].
    fn replaying(&self, _replay: &ReplayRequest) -> Result<Box<dyn Path>, PathError> {
        Err(replays_nothing(Self::NAME))
    }
}

impl<P: TypedPath> Path for P {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn what(&self) -> &'static str {
        P::WHAT
    }

    fn switches(&self) -> &'static [SwitchSpec] {
        P::Switch::SPECS
    }

    fn ladder(&self, load: &Load) -> Vec<SwitchId> {
        match P::Kind::parse(load) {
            Ok(kind) => TypedPath::ladder(self, load, kind),
            Err(_) => Vec::new(),
        }
    }

    fn loads(&self) -> &'static [LoadKind] {
        P::Kind::KINDS
    }

    fn load_words(&self, load: &Load) -> LoadWords {
        P::Kind::parse(load)
            .map_or_else(|_| LoadWords::default(), |kind| TypedPath::load_words(self, kind))
    }

    fn support(&self, arm: &Arm, load: &Load) -> Support {
        match P::Kind::parse(load) {
            Ok(kind) => TypedPath::support(self, arm, load, kind),
            Err(why) => Support::Refused { why: why.to_string() },
        }
    }

    fn open(&self, load: &Load) -> Result<Box<dyn Session>, PathError> {
        TypedPath::open(self, load, P::Kind::parse(load)?)
    }

    fn replaying(&self, replay: &ReplayRequest) -> Result<Box<dyn Path>, PathError> {
        TypedPath::replaying(self, replay)
    }
}

/// An open lab in which trials can be run.
pub trait Session {
    /// Runs one bounded trial of one arm and restores the lab.
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError>;

    /// Called once before the first trial, with a number of this experiment alone: what a session draws at random follows
    /// from it.
    fn seed(&mut self, _seed: u64) {}

    /// Called before the first trial of each block: a session whose programs or lab stay from trial to trial may start
    /// them anew, all at the same block, so that the trials of a block have starts of the same age. A failure to do so
    /// fails the trials that follow.
    fn begin_block(&mut self) {}

    /// The interface under test, for the record, e.g. `veth pair, 1 queue, MTU 1500`.
    fn nic(&self) -> String;

    /// Reason why no later trial is valid, such as settings that could not be restored; `None` if they are.
    fn broken(&self) -> Option<String> {
        None
    }

    /// The machine of the far end; `None` if it is this one.
    fn far_machine(&self) -> Option<Machine> {
        None
    }
}
