//! A checked experiment.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use host::tune::list_to_cpus;
use lab::adapters::{self, Adapter, Figure, FigureSyntaxError};
use lab::far::{FarEnd, FarEndError};
use lab::program::{Ready, ReadyError};
use model::is_event_count;
use thiserror::Error;

use crate::switches::is_variable;
use crate::{ArmEntry, Experiment, Switch};

/// Figures that need no parsing.
const MEASURED: &[&str] = &[
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
];

/// Start of the figures of `--stages`.
const STAGES: [&str; 2] = ["driver_to_socket_ns_", "socket_to_read_ns_"];

/// Figures of an adapter that decide unless others are named: each verdict more costs certainty.
const JUDGED_OF_ADAPTER: usize = 3;

/// Arm of `--against`, and that of the server which is compared with it.
const OLD: &str = "old";
const NEW: &str = "new";

/// Port unless another is given.
const PORT: u16 = 9000;

/// An experiment that cannot be read or makes no sense.
#[derive(Debug, Error)]
pub enum SpecError {
    #[error("cannot read the experiment from {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the experiment has {bytes} bytes, and 1 MiB is the maximum")]
    TooLong { bytes: usize },
    #[error("invalid experiment")]
    Syntax(#[from] toml::de::Error),
    #[error(
        "{text:?} is no arm: write NAME='COMMAND', or NAME:VAR=VALUE for another environment of \
         the same --server"
    )]
    Arm { text: String },
    #[error("arm {name} has two commands; give each arm a name of its own")]
    TwiceArm { name: String },
    #[error("arm {name} has no command: give it one, or --server for all arms")]
    NoCommand { name: String },
    #[error(
        "{name:?} is no name for an arm: it is empty, or has a comma, a plus sign or a control character"
    )]
    ArmName { name: String },
    #[error("arm {name}: {variable:?} is no name of a variable")]
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
    #[error("invalid switch {text:?}: {why}")]
    Switch { text: String, why: String },
    #[error("switch {text} is listed twice")]
    SameSwitch { text: String },
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
    #[error("{name} is a figure of the stages of packets; add --stages")]
    Untraced { name: String },
    #[error("{name} is measured without parsing; give the figure another name")]
    Taken { name: String },
    #[error("two figures are named {name}")]
    SameFigure { name: String },
    #[error("no adapter named {name:?}; adapters: {known}")]
    Adapter { name: String, known: String },
    #[error(transparent)]
    Ready(#[from] ReadyError),
    #[error("--keep has ports {first} to {last}, which do not exist; give a lower --port")]
    Ports { first: u16, last: u32 },
    #[error("{key}: {text:?} is no time; write 500ms, 2s or 1m30s")]
    Time { key: &'static str, text: String },
    #[error("{key}: {text:?} is no list of CPUs; write 0-3,8")]
    Cpus { key: &'static str, text: String },
    #[error("{text:?} is no place: write netns:NAME, netns:PID or netns:FILE")]
    Place { text: String },
    #[error(transparent)]
    Far(#[from] FarEndError),
    #[error("{0} runs no programs; write ssh:[USER@]HOST or netns:NAME")]
    FarPeer(FarEnd),
    #[error(
        "far-address: {text:?} is not an address that a client can use; give one such as 192.0.2.7 or fd00::7"
    )]
    FarAddress { text: String },
    #[error("{key} is of a far end on another host; add --far ssh:[USER@]HOST")]
    NoHost { key: &'static str },
}

/// Preparation of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Warmup {
    Command(String),
    Wait(Duration),
}

/// Time limits of the steps of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
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
pub struct Spec {
    /// Arms of the user, the baseline first.
    pub arms: Vec<ArmSpec>,
    /// Switches that are combined into further arms of the baseline.
    pub switches: Vec<Switch>,
    /// Their combination, as in [`model::ArmPlan::parse`], or `best`.
    pub plan: String,
    /// `None` if the arms are the clients.
    pub(crate) client: Option<String>,
    pub(crate) ready: String,
    pub(crate) setup: Option<String>,
    pub(crate) cleanup: Option<String>,
    pub(crate) warmup: Option<Warmup>,
    pub(crate) keep: bool,
    pub(crate) adapter: Option<Adapter>,
    /// Figures of the client's output besides those of the adapter.
    pub(crate) figures: Vec<Figure>,
    /// Figures that decide, most important first.
    pub judged: Vec<String>,
    /// Place of the client; `None` for a lab.
    pub near: Option<String>,
    /// Place of the server; `None` for a lab.
    pub far: Option<FarEnd>,
    /// Address of the server on another host; `None` for that of the connection.
    pub(crate) far_address: Option<IpAddr>,
    pub(crate) ssh_options: Vec<String>,
    /// As its user wrote it.
    pub(crate) source: Experiment,
    pub(crate) queues: u32,
    pub(crate) near_cpus: Option<Vec<usize>>,
    pub(crate) far_cpus: Option<Vec<usize>>,
    pub(crate) port: u16,
    pub(crate) limits: Limits,
    pub(crate) stages: bool,
}

fn time(
    key: &'static str,
    text: Option<&String>,
    default: Duration,
) -> Result<Duration, SpecError> {
    let Some(text) = text else { return Ok(default) };
    let read = humantime::parse_duration(text).ok().filter(|time| !time.is_zero());
    read.ok_or_else(|| SpecError::Time { key, text: text.clone() })
}

fn cpus(key: &'static str, text: Option<&String>) -> Result<Option<Vec<usize>>, SpecError> {
    let Some(text) = text else { return Ok(None) };
    match list_to_cpus(text).filter(|cpus| !cpus.is_empty()) {
        Some(cpus) => Ok(Some(cpus)),
        None => Err(SpecError::Cpus { key, text: text.clone() }),
    }
}

/// A namespace as [`host::tune::Place`] names it.
fn place(text: Option<&String>) -> Result<Option<String>, SpecError> {
    let Some(text) = text else { return Ok(None) };
    let name = text.strip_prefix("netns:").filter(|name| !name.is_empty());
    name.map(|name| Some(name.to_owned())).ok_or_else(|| SpecError::Place { text: text.clone() })
}

impl Experiment {
    /// Checks everything that needs no machine. Errors: the first mistake, with its remedy.
    pub fn resolve(&self) -> Result<Spec, SpecError> {
        let spec = self.resolve_programs()?;
        if spec.switches.is_empty() && self.arms.is_some() {
            return Err(SpecError::NoSwitch);
        }
        if spec.switches.is_empty() && spec.arms.len() < 2 {
            return Err(SpecError::OneArm);
        }
        Ok(spec)
    }

    /// As [`resolve`](Self::resolve), for programs whose arms are defined elsewhere.
    pub fn resolve_programs(&self) -> Result<Spec, SpecError> {
        let arms = self.resolve_arms()?;
        let switches = switches(&self.switches)?;
        let adapter = self.resolve_adapter()?;
        let (figures, judged) = self.resolve_figures(adapter.as_ref())?;
        let ready = self.ready.clone().unwrap_or_else(|| "tcp".into());
        let port_of_ready = match ready.split_once(':') {
            Some(("tcp" | "udp", port)) => port.parse().ok(),
            _ => None,
        };
        let port = self.port.or(port_of_ready).unwrap_or(PORT);
        let last = u32::from(port) + arms.len() as u32 + 2 * switches.len() as u32 + 1;
        if port == 0 || self.keep && last > u32::from(u16::MAX) {
            return Err(SpecError::Ports { first: port, last });
        }
        let spec = Spec {
            plan: self.arms.clone().unwrap_or_else(|| "ladder".into()),
            client: self.client.clone(),
            ready,
            setup: self.setup.clone(),
            cleanup: self.cleanup.clone(),
            warmup: self.warmup.as_ref().map(|text| match humantime::parse_duration(text) {
                Ok(time) => Warmup::Wait(time),
                Err(_) => Warmup::Command(text.clone()),
            }),
            keep: self.keep,
            adapter,
            figures,
            judged,
            near: place(self.near.as_ref())?,
            far: self.resolve_far()?,
            far_address: self.resolve_far_address()?,
            ssh_options: self.ssh_options.clone(),
            source: self.clone(),
            queues: self.queues.unwrap_or(1).clamp(1, 64),
            near_cpus: cpus("near-cpus", self.near_cpus.as_ref())?,
            far_cpus: cpus("far-cpus", self.far_cpus.as_ref())?,
            port,
            limits: Limits {
                ready: time("ready-within", self.ready_within.as_ref(), Duration::from_secs(10))?,
                step: time("within", self.within.as_ref(), Duration::from_secs(60))?,
                grace: time("grace", self.grace.as_ref(), Duration::from_secs(2))?,
            },
            stages: self.stages,
            arms,
            switches,
        };
        spec.ready(spec.port)?;
        Ok(spec)
    }

    /// The arms as they are written, the baseline first.
    fn entries(&self) -> Result<Vec<ArmEntry>, SpecError> {
        let named = |name: &str| ArmEntry { name: name.into(), ..ArmEntry::default() };
        let mut entries = self.arm.clone();
        if let Some(old) = &self.against {
            self.check_against(old)?;
            if entries.is_empty() {
                entries.push(named(NEW));
            }
            entries.insert(0, ArmEntry { command: Some(old.clone()), ..named(OLD) });
        } else if self.server.is_some() && entries.len() < 2 {
            // With a common server, one arm alone is a variant of it.
            entries.insert(0, named("baseline"));
        }
        if entries.is_empty() { Err(SpecError::NoArm) } else { Ok(entries) }
    }

    fn check_against(&self, old: &str) -> Result<(), SpecError> {
        let is_taken = |arm: &ArmEntry| arm.name == OLD;
        let why = if old.trim().is_empty() {
            "is empty: give the command of the old server"
        } else if self.server.is_none() && self.arm.is_empty() {
            "has nothing to compare with: give the command of the new server by --server, or by --arm NAME='COMMAND'"
        } else if !self.switches.is_empty() {
            "compares commands, and --switch compares settings of one command: give one of them alone, or \
             `switches` to an arm of the experiment file"
        } else if self.arm.iter().any(is_taken) {
            "makes an arm named old: give the other arm of this name another"
        } else {
            return Ok(());
        };
        Err(SpecError::Against(why))
    }

    fn resolve_arms(&self) -> Result<Vec<ArmSpec>, SpecError> {
        let mut arms: Vec<ArmSpec> = Vec::new();
        for entry in self.entries()? {
            let name = entry.name;
            if name.is_empty() || name.contains(|c: char| ",+".contains(c) || c.is_control()) {
                return Err(SpecError::ArmName { name });
            }
            if arms.iter().any(|arm| arm.name == name) {
                return Err(SpecError::SameName { name });
            }
            if let Some(variable) = entry.env.keys().find(|variable| !is_variable(variable)) {
                return Err(SpecError::Variable { name, variable: variable.clone() });
            }
            let command = entry.command.or_else(|| self.server.clone());
            let command = command.filter(|command| !command.trim().is_empty());
            let Some(command) = command else { return Err(SpecError::NoCommand { name }) };
            let env = entry.env.into_iter().collect();
            arms.push(ArmSpec { name, command, env, switches: switches(&entry.switches)? });
        }
        Ok(arms)
    }

    fn resolve_far(&self) -> Result<Option<FarEnd>, SpecError> {
        let far: Option<FarEnd> = self.far.as_ref().map(|text| text.parse()).transpose()?;
        match far {
            Some(peer @ FarEnd::Peer(_)) => Err(SpecError::FarPeer(peer)),
            Some(FarEnd::Ssh(_)) => Ok(far),
            _ if self.far_address.is_some() => Err(SpecError::NoHost { key: "far-address" }),
            _ if !self.ssh_options.is_empty() => Err(SpecError::NoHost { key: "ssh-options" }),
            far => Ok(far),
        }
    }

    fn resolve_far_address(&self) -> Result<Option<IpAddr>, SpecError> {
        let Some(text) = &self.far_address else { return Ok(None) };
        // An address of the link alone needs an interface beside it.
        let is_usable = |ip: &IpAddr| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        match text.parse().ok().filter(is_usable) {
            Some(ip) => Ok(Some(ip)),
            None => Err(SpecError::FarAddress { text: text.clone() }),
        }
    }

    fn resolve_adapter(&self) -> Result<Option<Adapter>, SpecError> {
        let Some(name) = &self.adapter else { return Ok(None) };
        match adapters::ready_made(name) {
            Some(adapter) => Ok(Some(adapter)),
            None => {
                let known = adapters::PROGRAMS.join(", ");
                Err(SpecError::Adapter { name: name.clone(), known })
            }
        }
    }

    /// Figures of the client's output besides those of the adapter, and the names of those that decide.
    fn resolve_figures(
        &self,
        adapter: Option<&Adapter>,
    ) -> Result<(Vec<Figure>, Vec<String>), SpecError> {
        let of_adapter: Vec<&str> = adapter
            .iter()
            .flat_map(|adapter| &adapter.figures)
            .map(|figure| figure.name.as_str())
            .collect();
        let mut figures: Vec<Figure> = Vec::new();
        let mut judged: Vec<String> = Vec::new();
        for text in &self.metrics {
            let name = if text.contains('=') {
                let figure: Figure = text.parse()?;
                let name = figure.name.clone();
                if is_measured(&name) {
                    return Err(SpecError::Taken { name });
                }
                if of_adapter.contains(&name.as_str()) || figures.iter().any(|f| f.name == name) {
                    return Err(SpecError::SameFigure { name });
                }
                figures.push(figure);
                name
            } else {
                let name = text.trim().to_owned();
                if !of_adapter.contains(&name.as_str()) && !is_measured(&name) {
                    return Err(SpecError::NoFigure { name });
                }
                name
            };
            if is_stage(&name) && !self.stages {
                return Err(SpecError::Untraced { name });
            }
            if judged.contains(&name) {
                return Err(SpecError::SameFigure { name });
            }
            judged.push(name);
        }
        if judged.is_empty() {
            // Counts of an adapter are reported; the user's own decide.
            let figures = of_adapter.iter().filter(|name| !is_event_count(name));
            judged.extend(figures.take(JUDGED_OF_ADAPTER).map(|name| (*name).to_owned()));
        }
        if judged.is_empty() {
            judged.push("client_wall_ns".into());
        }
        let cost = "cpu_ns_per_packet".to_owned();
        if self.client.is_some() && !judged.contains(&cost) {
            judged.push(cost);
        }
        Ok((figures, judged))
    }
}

fn is_measured(name: &str) -> bool {
    MEASURED.contains(&name) || is_stage(name)
}

fn is_stage(name: &str) -> bool {
    STAGES.iter().any(|stem| name.starts_with(stem))
}

fn switches(texts: &[String]) -> Result<Vec<Switch>, SpecError> {
    let mut switches: Vec<Switch> = Vec::new();
    for text in texts {
        let switch: Switch = text.parse()?;
        if switches.contains(&switch) {
            return Err(SpecError::SameSwitch { text: text.clone() });
        }
        switches.push(switch);
    }
    Ok(switches)
}

impl Spec {
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
        /// Setup, warm-up, client and cleanup.
        const STEPS: u32 = 4;
        self.limits.ready + self.limits.step * STEPS + self.limits.grace
    }

    /// True if the arms are servers.
    pub fn has_server(&self) -> bool {
        self.client.is_some()
    }

    /// Command of the client, for the record; `None` if each arm has its own.
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// True if the server runs on another host.
    pub fn is_far_elsewhere(&self) -> bool {
        matches!(self.far, Some(FarEnd::Ssh(_)))
    }

    /// True if any arm sets a knob at this end.
    pub fn sets_knobs_at(&self, wanted: crate::End) -> bool {
        let own = self.arms.iter().flat_map(|arm| &arm.switches);
        let mut all = self.switches.iter().chain(own);
        all.any(|switch| matches!(switch, Switch::Knob { end, .. } if *end == wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(text: &str) -> Experiment {
        Experiment::parse(text).unwrap()
    }

    fn refused(text: &str) -> String {
        host::text::chain(&experiment(text).resolve().unwrap_err())
    }

    const TWO: &str =
        "client='c'\n[[arm]]\nname='a'\ncommand='x'\n[[arm]]\nname='b'\ncommand='y'\n";

    #[test]
    fn defaults_are_a_tcp_server_on_port_9000_judged_by_time_and_cost() {
        let spec = experiment(TWO).resolve().unwrap();
        assert_eq!(spec.judged, ["client_wall_ns", "cpu_ns_per_packet"]);
        assert_eq!(spec.ready(spec.port).unwrap().to_string(), "tcp:9000");
        assert!(spec.has_server() && spec.near.is_none());
    }

    #[test]
    fn the_port_of_ready_moves_with_the_arm() {
        let spec = experiment(&format!("ready='udp:53'\n{TWO}")).resolve().unwrap();
        assert_eq!(spec.port, 53);
        assert_eq!(spec.ready(55).unwrap().to_string(), "udp:55");
        let line = "ready='line:on port $WIREPATH_PORT'\n";
        let spec = experiment(&format!("{line}{TWO}")).resolve().unwrap();
        assert_eq!(spec.ready(7).unwrap().to_string(), "line:on port 7");
    }

    #[test]
    fn one_arm_beside_a_server_is_a_variant_of_it() {
        let text = "server='s'\nclient='c'\n[[arm]]\nname='fast'\nenv={F='1'}\n";
        let spec = experiment(text).resolve().unwrap();
        let names: Vec<&str> = spec.arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ["baseline", "fast"]);
        assert_eq!(spec.arms[1].command, "s");
        assert_eq!(spec.arms[1].env, [("F".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn the_old_command_is_the_baseline_of_the_server_or_of_all_arms() {
        let arms = |text: &str| -> Vec<(String, String)> {
            let spec = experiment(text).resolve().unwrap();
            spec.arms.into_iter().map(|arm| (arm.name, arm.command)).collect()
        };
        let row = |name: &str, command: &str| (name.to_owned(), command.to_owned());
        let server = "against='o'\nserver='n'\nclient='c'\n";
        assert_eq!(arms(server), [row("old", "o"), row("new", "n")]);
        let by_env = format!("{server}[[arm]]\nname='gso'\nenv={{G='1'}}\n");
        assert_eq!(arms(&by_env), [row("old", "o"), row("gso", "n")]);
        let two = format!("against='o'\n{TWO}");
        assert_eq!(arms(&two), [row("old", "o"), row("a", "x"), row("b", "y")]);
    }

    #[test]
    fn figures_of_an_adapter_decide_unless_some_are_named() {
        let judged = |text: &str| experiment(&format!("{text}\n{TWO}")).resolve().unwrap().judged;
        assert_eq!(
            judged("adapter='redis-benchmark'"),
            ["rps", "p50_ms", "p99_ms", "cpu_ns_per_packet"]
        );
        let named = judged("adapter='redis-benchmark'\nmetrics=['p99_ms','x=re:(.) lower']");
        assert_eq!(named, ["p99_ms", "x", "cpu_ns_per_packet"]);
        assert_eq!(
            judged("metrics=['lost_count=re:(.)','rps=re:(.)','tcp_retransmit_count']")[..3],
            ["lost_count", "rps", "tcp_retransmit_count"]
        );
    }

    #[test]
    fn mistakes_name_the_remedy() {
        for (text, says) in [
            ("client='c'", "--arm"),
            ("client='c'\nserver='s'", "second --arm"),
            ("client='c'\n[[arm]]\nname='a'", "no command"),
            ("client='c'\nserver='s'\narms='best'", "--switch"),
            ("client='c'\nserver='s'\nswitches=['gso=off','gso=off']", "twice"),
            (&format!("within='soon'\n{TWO}"), "500ms"),
            (&format!("near='blue'\n{TWO}"), "netns:NAME"),
            (&format!("far='blue'\n{TWO}"), "ssh:"),
            (&format!("far='peer:db2'\n{TWO}"), "ssh:"),
            (&format!("far='ssh:db2'\nfar-address='db2'\n{TWO}"), "fd00::7"),
            (&format!("far='ssh:db2'\nfar-address='fe80::1'\n{TWO}"), "fd00::7"),
            (&format!("far-address='10.0.0.1'\n{TWO}"), "--far ssh:"),
            (&format!("far='netns:a'\nssh-options=['x=y']\n{TWO}"), "--far ssh:"),
            (&format!("far-cpus='all'\n{TWO}"), "0-3"),
            (&format!("metrics=['p99']\n{TWO}"), "cpu_ns_per_packet"),
            (&format!("adapter='ab'\n{TWO}"), "wrk"),
            (&format!("ready='soon'\n{TWO}"), "tcp:PORT"),
            (&format!("metrics=['client_wall_ns=json:/x lower']\n{TWO}"), "another name"),
            ("client='c'\nagainst='o'", "--server"),
            ("client='c'\nserver='s'\nagainst=' '", "is empty"),
            ("client='c'\nserver='s'\nagainst='o'\nswitches=['gso=off']", "give one of them alone"),
            ("client='c'\nserver='s'\nagainst='o'\narms='best'", "--arms needs switches"),
            (&format!("against='o'\n{}", TWO.replace("'b'", "'old'")), "named old"),
            (&TWO.replace("'b'", "'a'"), "two arms"),
            (&TWO.replace("'b'", "'b+c'"), "no name"),
        ] {
            let error = refused(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
