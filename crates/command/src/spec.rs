//! A checked experiment.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use lab::adapters::{Adapter, Figure, FigureSyntaxError, Origin};
use lab::program::{Ready, ReadyError};
use lab::{BuiltInLoadError, FarEnd, FarEndError};
use model::{Programs, ProgramsError, WireSpec};
use thiserror::Error;

use crate::switches::{At, Switch, SwitchError};

/// Figures that need no parsing.
pub(crate) const MEASURED: &[&str] = &[
    "client_wall_ns",
    "client_cpu_ns",
    "client_memory_bytes_max",
    "server_cpu_ns",
    "server_memory_bytes_max",
    "server_ready_ns",
    "interface_bytes",
    "interface_drop_count",
    "udp_buffer_error_count",
    "tcp_retransmit_count",
    "cpu_ns_per_packet",
    "context_switches_per_packet",
    PROCESSOR[0],
    PROCESSOR[1],
    PROCESSOR[2],
    PROCESSOR[3],
];

/// Figures of the processor's own counters.
pub(crate) const PROCESSOR: [&str; 4] = [
    "instructions_per_packet",
    "cycles_per_packet",
    "llc_misses_per_packet",
    "tlb_misses_per_packet",
];

/// An experiment that cannot be read or makes no sense.
#[derive(Debug, Error)]
pub enum SpecError {
    #[error("cannot read the experiment from {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Programs(#[from] ProgramsError),
    #[error("arm {name} has no command: give it one, or --server for all arms")]
    NoCommand { name: String },
    #[error(
        "{name:?} is not a valid name of an arm: it is empty, or has a comma, a plus sign or a control character"
    )]
    ArmName { name: String },
    #[error(
        "arm {name}: {variable:?} is not a valid name of a variable; use letters, digits and _"
    )]
    Variable { name: String, variable: String },
    #[error("two arms are named {name}")]
    SameName { name: String },
    #[error(
        "no command to measure: give --server 'COMMAND' --client 'COMMAND', or two --arm NAME='COMMAND'"
    )]
    NoArm,
    #[error("nothing to compare: give --against 'OLD COMMAND', a second --arm, or a --switch")]
    OneArm,
    #[error("--against {0}")]
    Against(&'static str),
    #[error(transparent)]
    Switch(#[from] SwitchError),
    #[error("switch {text} is listed twice")]
    SameSwitch { text: String },
    #[error(
        "switch {text}: no place is named {name}; add --at {name}=netns:NAME, or write near: or far:"
    )]
    NoPlace { text: String, name: String },
    #[error(
        "switch {text} is a pair of commands, and a lab has nothing for it to change; name existing places with --near and --far"
    )]
    CommandsInLab { text: String },
    #[error("--at {name}: {why}")]
    At { name: String, why: String },
    #[error("--arms needs switches: give --switch KNOB=VALUE or --switch env:NAME=VALUE")]
    NoSwitch,
    #[error(transparent)]
    Arms(#[from] model::ArmPlanError),
    #[error(transparent)]
    Figure(#[from] FigureSyntaxError),
    #[error(
        "no figure {name:?}: write NAME='SOURCE lower|higher', or one of {}", MEASURED.join(", ")
    )]
    NoFigure { name: String },
    #[error("deciding: {name} is not a judged figure; those are {judged}")]
    NotJudged { name: String, judged: String },
    #[error("{name} is a figure of the stages of packets; add --stages")]
    Untraced { name: String },
    #[error("{name} is measured without parsing; give the figure another name")]
    Taken { name: String },
    #[error("two figures are named {name}")]
    SameFigure { name: String },
    #[error("'{name}' is not an adapter{hint}adapters: {known}")]
    Adapter { name: String, hint: String, known: String },
    #[error(transparent)]
    Ready(#[from] ReadyError),
    #[error("--keep-servers has ports {first} to {last}, which do not exist; give a lower --port")]
    Ports { first: u16, last: u32 },
    #[error("{key}: {text:?} is not a valid time; write 500ms, 2s or 1m30s")]
    Time { key: &'static str, text: String },
    #[error("{key}: {text:?} is not a valid list of CPUs; write 0-3,8")]
    Cpus { key: &'static str, text: String },
    #[error("{text:?} is not a valid place; write netns:NAME, netns:PID or netns:FILE")]
    Place { text: String },
    #[error(transparent)]
    Load(#[from] BuiltInLoadError),
    #[error(
        "load {text} has a server and a client of its own; remove it, or --server, --client, --feed, --adapter and commands of arms"
    )]
    LoadAndCommand { text: String },
    #[error(transparent)]
    Far(#[from] FarEndError),
    #[error(
        "place: {text:?} is not a valid place; write this, netns:NAME, either with @INTERFACE, here or loopback, or leave \
         it out for a lab of two namespaces"
    )]
    SharedPlace { text: String },
    #[error("place {place}: {why}")]
    PlaceOf { place: SharedPlace, why: &'static str },
    #[error(
        "a wire with distance joins the two namespaces of a lab; leave out place, near, far and at, or the wire"
    )]
    WireOfPlace,
    #[error("{0} runs no programs; write ssh:[USER@]HOST or netns:NAME")]
    FarPeer(FarEnd),
    #[error(
        "far-address: {text:?} is not an address that a client can use; give one such as 192.0.2.7 or fd00::7"
    )]
    FarAddress { text: String },
    #[error("{key} is of a far end on another host; add --far ssh:[USER@]HOST")]
    NoHost { key: &'static str },
    #[error("{0}")]
    Feed(&'static str),
    #[error("figure {name} is of {of}")]
    Origin { name: String, of: &'static str },
}

/// Preparation of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Warmup {
    Command(String),
    Wait(Duration),
}

/// Place that both ends share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedPlace {
    /// This host itself, without a namespace.
    Here,
    /// One namespace of their own.
    Loopback,
    /// One that exists, with an interface under test.
    Existing {
        /// `None` for that of this process.
        netns: Option<String>,
        /// `None` for the first one with an address.
        interface: Option<String>,
    },
}

impl fmt::Display for SharedPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SharedPlace::Here => f.write_str("here"),
            SharedPlace::Loopback => f.write_str("loopback"),
            SharedPlace::Existing { netns, interface } => {
                match netns {
                    None => f.write_str("this")?,
                    Some(name) => write!(f, "netns:{name}")?,
                }
                interface.as_ref().map_or(Ok(()), |interface| write!(f, "@{interface}"))
            }
        }
    }
}

/// Place between both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MiddlePlace {
    pub name: String,
    /// `None` for the namespace of the caller.
    pub host: Option<FarEnd>,
}

/// Names of the figures of a place.
pub(crate) fn figures_of_place(place: &str) -> [String; 2] {
    ["packet_count", "drop_count"].map(|figure| format!("{place}_{figure}"))
}

/// Time limits of the steps of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramLimits {
    /// Server to get ready.
    pub ready: Duration,
    /// Each other command.
    pub step: Duration,
    /// Server to end after SIGTERM.
    pub grace: Duration,
}

/// One arm of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArmSpec {
    pub name: String,
    /// Of the server; of the client if the experiment has no other.
    pub command: String,
    pub env: Vec<(String, String)>,
    pub switches: Vec<Switch>,
}

/// A checked experiment.
#[derive(Debug, Clone)]
pub struct CheckedPrograms {
    /// Arms of the user, the baseline first.
    pub arms: Vec<ArmSpec>,
    /// Switches that are combined into further arms of the baseline.
    pub switches: Vec<Switch>,
    /// Their combination, as in [`model::ArmPlan::parse`], or `best`.
    pub plan: String,
    /// `None` if the arms are the clients.
    pub(crate) client: Option<String>,
    /// The load in place of a client.
    pub(crate) feed: Option<String>,
    /// Program beside each trial, and the sign that it is ready.
    pub(crate) beside: Option<(String, Ready)>,
    pub(crate) ready: String,
    pub(crate) setup: Option<String>,
    pub(crate) cleanup: Option<String>,
    pub(crate) warmup: Option<Warmup>,
    pub(crate) keep: bool,
    pub(crate) adapter: Option<Adapter>,
    /// Figures of outputs and files besides those of the adapter.
    pub(crate) figures: Vec<Figure>,
    /// Figures that decide, most important first.
    pub judged: Vec<String>,
    /// Of these, those that decide a gate; empty for all.
    pub deciding: Vec<String>,
    /// Place of both ends; `None` for a lab of two namespaces, or for the places below.
    pub place: Option<SharedPlace>,
    /// Place of the client; `None` for a lab.
    pub near: Option<String>,
    /// Place of the server; `None` for a lab.
    pub far: Option<FarEnd>,
    /// Places between near and far.
    pub middle: Vec<MiddlePlace>,
    /// Address of the server on another host; `None` for that of the connection.
    pub(crate) far_address: Option<IpAddr>,
    pub(crate) ssh_options: Vec<String>,
    /// As its user wrote it.
    pub(crate) source: Programs,
    pub(crate) queues: u32,
    /// Wire with distance of a lab.
    pub(crate) wire: Option<WireSpec>,
    pub(crate) near_cpus: Option<Vec<usize>>,
    pub(crate) far_cpus: Option<Vec<usize>>,
    pub(crate) port: u16,
    pub(crate) limits: ProgramLimits,
    pub(crate) stages: bool,
}
impl CheckedPrograms {
    /// Judged figure of the processor's counters.
    pub(crate) fn processor_figure(&self) -> Option<&String> {
        self.judged.iter().find(|name| PROCESSOR.contains(&name.as_str()))
    }

    /// True if a figure of the processor's counters decides: they are not free.
    pub(crate) fn counts_processor(&self) -> bool {
        self.processor_figure().is_some()
    }

    /// Sign that a server on a port is ready.
    pub(crate) fn ready(&self, port: u16) -> Result<Ready, SpecError> {
        let text = match self.ready.as_str() {
            "tcp" | "udp" => format!("{}:{port}", self.ready),
            text => match text.split_once(':') {
                // The first port of several.
                Some((transport @ ("tcp" | "udp"), first)) if first == self.port.to_string() => {
                    format!("{transport}:{port}")
                }
                _ => text.replace("$WIREPATH_PORT", &port.to_string()),
            },
        };
        Ok(text.parse()?)
    }

    /// Mistake in the client's URL, of an address in the form of the other IP version.
    ///
    /// - `far`: value of $WIREPATH_FAR.
    pub(crate) fn url_mistake(&self, far: IpAddr) -> Option<String> {
        let client = self.client.as_ref()?;
        let has = |texts: [&'static str; 2]| texts.into_iter().find(|text| client.contains(text));
        match far {
            IpAddr::V6(_) => has(["://$WIREPATH_FAR", "://${WIREPATH_FAR}"]).map(|text| {
                format!(
                    "the client has {text}, and the server's address is of IPv6, {far}; write \
                     http://[$WIREPATH_FAR]:$WIREPATH_PORT"
                )
            }),
            IpAddr::V4(_) => has(["://[$WIREPATH_FAR]", "://[${WIREPATH_FAR}]"]).map(|text| {
                format!(
                    "the client has {text}, and the server's address is of IPv4, {far}; write \
                     http://$WIREPATH_FAR:$WIREPATH_PORT"
                )
            }),
        }
    }

    /// Longest time that one trial may take.
    pub fn limit(&self) -> Duration {
        /// Setup, warm-up, client or feed, and cleanup.
        const STEPS: u32 = 4;
        /// Server and the program beside it.
        const STARTS: u32 = 2;
        /// Those two, and the feed.
        const STOPS: u32 = 3;
        let limits = &self.limits;
        limits.ready * STARTS + limits.step * STEPS + limits.grace * STOPS
    }

    /// True if the arms are servers.
    pub fn has_server(&self) -> bool {
        self.client.is_some() || self.feed.is_some()
    }

    /// Command of the client, for the record; `None` if each arm has its own.
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// True if the ends are in namespaces that only this experiment has.
    pub fn is_lab(&self) -> bool {
        let is_made = matches!(self.place, None | Some(SharedPlace::Loopback));
        is_made && self.near.is_none() && self.far.is_none() && self.middle.is_empty()
    }

    /// Figures that are taken at the server's end: those of its output, of its files, and of the program beside it.
    pub(crate) fn figures_of_far(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|figure| self.is_of_far(figure))
    }

    pub(crate) fn is_of_far(&self, figure: &Figure) -> bool {
        match figure.origin {
            Origin::Own => false,
            Origin::Server | Origin::Beside => true,
            Origin::File(_) => self.has_server(),
        }
    }

    /// True if the server runs on another host.
    pub fn is_far_elsewhere(&self) -> bool {
        matches!(self.far, Some(FarEnd::Ssh(_)))
    }

    /// Switches of all arms.
    pub(crate) fn all_switches(&self) -> impl Iterator<Item = &Switch> {
        self.switches.iter().chain(self.arms.iter().flat_map(|arm| &arm.switches))
    }

    /// True if any arm changes settings at a place.
    pub fn has_settings_at(&self, at: &At) -> bool {
        self.all_switches().any(|switch| switch.at == *at && switch.is_setting())
    }

    /// Places between the ends that are on this host.
    pub fn middle_here(&self) -> impl Iterator<Item = &MiddlePlace> {
        self.middle.iter().filter(|place| !matches!(place.host, Some(FarEnd::Ssh(_))))
    }
}
