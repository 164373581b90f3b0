//! An experiment with the user's own programs, as its user writes it: a TOML file, or words of a command line.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::WireSpec;

/// An experiment that cannot be read.
#[derive(Debug, Error)]
pub enum ProgramsError {
    #[error("the experiment has {bytes} bytes, and 1 MiB is the maximum")]
    TooLong { bytes: usize },
    #[error("line {line} of the experiment: {problem}")]
    Syntax { line: usize, problem: String },
    #[error(
        "{text:?} is not a valid arm: write NAME='COMMAND', or NAME:VAR=VALUE for another environment of \
         the same --server"
    )]
    Arm { text: String },
    #[error("arm {name} has two commands; give each arm a name of its own")]
    TwiceArm { name: String },
}

/// An experiment with the user's own programs.
///
/// Commands are run by `sh -c`. Durations are text such as `500ms`, `2s` or `1m30s`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Experiment"))]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Programs {
    /// Name of the experiment in results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Note on it, which its results keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Command of the server of every arm that has none of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Command of the client, which is measured and runs to its end. Without it the arms' commands are
    /// clients themselves, and no server is started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Command of the load at the near end in place of a client: the trial ends with the server, or with the feed and
    /// a short time for the server to end by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed: Option<String>,
    /// Command of a program that runs at the arms' place from before each trial to after it and is ended by SIGINT, such
    /// as a witness of what was sent. Its figures are `NAME=beside:SOURCE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
    /// Sign that the program beside is ready, as for the server. Default: sleep:500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_ready: Option<String>,
    /// Built-in load in place of a server and a client: `udp:1400@20000`, `tcp`, `ping` and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<String>,
    /// Sign that the server is ready: tcp:PORT, udp:PORT, line:REGEX, file:PATH or sleep:MS; `tcp` and `udp`
    /// alone mean $WIREPATH_PORT. Default: tcp; with a feed: udp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// Command that runs before the server of each trial starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// Command that runs after the server of each trial was stopped, failed trials included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<String>,
    /// Command that runs before the client of each trial, or a time to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup: Option<String>,
    /// Keep one server for each arm over all trials, on a port of its own.
    #[serde(skip_serializing_if = "is_false")]
    pub keep: bool,
    /// Figures by which arms are judged: `NAME=SOURCE lower|higher`, or the name of a figure that is
    /// measured without parsing, such as `cpu_ns_per_packet`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<String>,
    /// Figures that decide a gate. The other judged ones fail it only if they are shown to be worse, and CPU time and
    /// memory never. Default: all judged figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deciding: Vec<String>,
    /// Well-known client whose figures are used: redis-benchmark, wrk, iperf3 and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Switches: `KNOB=VALUE` of `tune`, `env:NAME=VALUE` for the environment of commands, or
    /// `NAME=on:COMMAND|off:COMMAND`; at the far end, or behind `near:` or the name of a place of `at` and a colon. Several
    /// values of a knob, as in `KNOB=VALUE|VALUE`, are several switches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<String>,
    /// How the switches become arms: ladder, alone, leave-one-out, best, or a list such as A,B+C.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arms: Option<String>,
    /// Place of both ends: `here`, this host itself, for programs that end; `loopback`, one namespace of their own; or
    /// one that exists, with an interface under test: `netns:NAME[@INTERFACE]` or `this[@INTERFACE]`. Default: a lab of
    /// two namespaces that a wire joins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Place of the client: netns:NAME. Default: a lab.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near: Option<String>,
    /// Place of the server: `netns:NAME` of this host, or `ssh:[USER@]HOST[:PORT]`. Default: a lab.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far: Option<String>,
    /// Places between both ends, by name: `netns:NAME`, `ssh:[USER@]HOST[:PORT]` or `this`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub at: BTreeMap<String, String>,
    /// IPv4 address of a server on another host. Default: that of the ssh connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far_address: Option<String>,
    /// Options of the ssh client as in its configuration file, such as IdentityFile=FILE.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ssh_options: Vec<String>,
    /// Queues of each interface of the lab. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// Wire with distance between the ends of the lab: `delay=20ms,rate=100mbit,buffer=1bdp,loss=0.1%`. The delay is that
    /// of one way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<WireSpec>,
    /// CPUs of the client, such as 0-3. Default: the first half.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near_cpus: Option<String>,
    /// CPUs of the server. Default: the second half.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far_cpus: Option<String>,
    /// $WIREPATH_PORT; with `keep`, that of the first arm. Default: that of `ready`, or 9000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Time limit for the server to get ready. Default: 10s.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "time_text")]
    pub ready_within: Option<String>,
    /// Time limit for each other command. Default: 60s.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "time_text")]
    pub within: Option<String>,
    /// Time that a server has to end after SIGTERM. Default: 2s.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "time_text")]
    pub grace: Option<String>,
    /// Time the packets of the server between driver, socket and program; costs about a microsecond a packet.
    #[serde(skip_serializing_if = "is_false")]
    pub stages: bool,
    /// Time to spend. Default: 60s.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "time_text")]
    pub time: Option<String>,
    /// Difference that matters, in per cent, such as 2%. Default: 5%.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolve: Option<String>,
    /// Minimum number of blocks before a verdict, at least 6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_blocks: Option<u32>,
    /// Maximum number of blocks, at least 6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_blocks: Option<u32>,
    /// Run each arm uncounted before each of its trials; takes twice the time.
    #[serde(skip_serializing_if = "is_false")]
    pub settle: bool,
    /// Command of the old server, which becomes the baseline, as the arm `old`. The arms below are judged
    /// against it; without any, the experiment's server is, as the arm `new`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// Arms; the first is the baseline unless `against` is given.
    #[serde(rename = "arm", skip_serializing_if = "Vec::is_empty")]
    pub arm: Vec<ArmEntry>,
}

/// A time as text; a bare number is seconds, as on the command line.
fn time_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "expected a time such as 500ms, 2s or 1m30s, or a number of seconds"
    )]
    enum Time {
        Text(String),
        Seconds(u32),
        Fraction(f64),
    }
    Ok(Some(match Time::deserialize(from)? {
        Time::Text(text) => text,
        Time::Seconds(seconds) => seconds.to_string(),
        Time::Fraction(seconds) => seconds.to_string(),
    }))
}

/// One arm.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ArmEntry {
    /// Name in the result.
    pub name: String,
    /// Command of its server; of its client if the experiment has no other. Default: the experiment's
    /// server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Environment of its command.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Switches that are on in this arm.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

impl Programs {
    /// Name of the path under which results are stored.
    pub const PATH: &str = "command";
    /// Longest experiment file.
    pub const BYTES_MAX: usize = 1 << 20;

    /// Parses an experiment file. Errors: it is not one, with the line and the unknown key.
    pub fn parse(text: &str) -> Result<Self, ProgramsError> {
        if text.len() > Self::BYTES_MAX {
            return Err(ProgramsError::TooLong { bytes: text.len() });
        }
        toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            ProgramsError::Syntax {
                line: before.matches('\n').count() + 1,
                problem: error.message().replace('\n', " "),
            }
        })
    }

    /// The experiment as a file, without comments.
    pub fn to_text(&self) -> String {
        toml::to_string(self).expect("an experiment is tables of text")
    }

    /// The experiment without its name, its time, its resolution and its limits of blocks.
    fn unlimited(&self) -> Self {
        let (name, note) = (None, None);
        Programs {
            name,
            note,
            time: None,
            resolve: None,
            min_blocks: None,
            max_blocks: None,
            ..self.clone()
        }
    }

    /// True if nothing is given but a name, a note, a time, a resolution and limits of blocks.
    pub fn is_unspecified(&self) -> bool {
        self.unlimited() == Programs::default()
    }

    /// Hash of all that decides what is measured: 16 hexadecimal digits. Name, note, time, resolution and
    /// limits of blocks do not count.
    pub fn digest(&self) -> String {
        let hash = Sha256::digest(self.unlimited().to_text().as_bytes());
        hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl ArmEntry {
    /// Reads `NAME=COMMAND`, or `NAME:VAR=VALUE` for an arm that differs by its environment.
    pub fn parse(text: &str) -> Result<Self, ProgramsError> {
        Self::read(text).ok_or_else(|| ProgramsError::Arm { text: text.to_owned() })
    }

    fn read(text: &str) -> Option<Self> {
        let (name, rest) = text.split_at(text.find(['=', ':'])?);
        let name = name.trim().to_owned();
        if let Some(variable) = rest.strip_prefix(':') {
            let (key, value) = variable.split_once('=')?;
            let env = BTreeMap::from([(key.to_owned(), value.to_owned())]);
            return Some(ArmEntry { name, env, ..ArmEntry::default() });
        }
        let command = rest[1..].trim().to_owned();
        Some(ArmEntry { name, command: Some(command), ..ArmEntry::default() })
    }

    /// Adds the arguments of the same arm, such as a second variable. Errors: two commands.
    pub fn join(&mut self, more: ArmEntry) -> Result<(), ProgramsError> {
        if self.command.is_some() && more.command.is_some() {
            return Err(ProgramsError::TwiceArm { name: more.name });
        }
        self.command = self.command.take().or(more.command);
        self.env.extend(more.env);
        self.switches.extend(more.switches);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "client = \"bench\"\nmetrics = [\"p99_us=json:/p99 lower\"]\n\
                        [[arm]]\nname = \"main\"\ncommand = \"./main\"\n\
                        [[arm]]\nname = \"pr\"\ncommand = \"./pr\"\nenv = { X = \"1\" }\n";

    #[test]
    fn a_file_and_its_text_are_the_same_experiment() {
        let experiment = Programs::parse(FILE).unwrap();
        assert_eq!(experiment.arm[1].env["X"], "1");
        assert_eq!(Programs::parse(&experiment.to_text()).unwrap(), experiment);
    }

    #[test]
    fn an_unknown_key_is_named() {
        let error = Programs::parse(&format!("cleint = \"x\"\n{FILE}")).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("line 1 ") && text.lines().count() == 1, "{text}");
        assert!(text.contains("cleint") && text.contains("client"), "{text}");
    }

    #[test]
    fn a_bare_number_of_a_time_is_seconds() {
        for (text, time) in [("time = 5", "5"), ("time = 0.5", "0.5"), ("time = \"5s\"", "5s")] {
            assert_eq!(Programs::parse(text).unwrap().time.as_deref(), Some(time));
        }
        let error = Programs::parse("server = \"x\"\ntime = true").unwrap_err().to_string();
        assert!(error.starts_with("line 2 ") && error.contains("number of seconds"), "{error}");
    }

    #[test]
    fn the_digest_follows_every_command_and_no_time() {
        let experiment = Programs::parse(FILE).unwrap();
        let commented = Programs::parse(&format!("# why\n{FILE}")).unwrap();
        assert_eq!(commented.digest(), experiment.digest());
        let longer = Programs { time: Some("5m".into()), ..experiment.clone() };
        assert_eq!(longer.digest(), experiment.digest());
        let finer = Programs { resolve: Some("1%".into()), ..experiment.clone() };
        assert_eq!(finer.digest(), experiment.digest());
        let named = Programs { name: Some("main against pr".into()), ..experiment.clone() };
        assert_eq!(named.digest(), experiment.digest());
        let other = Programs::parse(&FILE.replace("./pr", "./pr2")).unwrap();
        assert_ne!(other.digest(), experiment.digest());
    }

    #[test]
    fn an_arm_is_a_command_or_a_variable() {
        let arm = ArmEntry::parse("main=./a -p 1 --x=y:z").unwrap();
        assert_eq!((arm.name.as_str(), arm.command.as_deref()), ("main", Some("./a -p 1 --x=y:z")));
        let mut arm = ArmEntry::parse("gso:QUIC_GSO=1").unwrap();
        assert_eq!((arm.name.as_str(), arm.env["QUIC_GSO"].as_str()), ("gso", "1"));
        arm.join(ArmEntry::parse("gso:B=a=b").unwrap()).unwrap();
        arm.join(ArmEntry::parse("gso=./x").unwrap()).unwrap();
        assert_eq!((arm.env.len(), arm.env["B"].as_str()), (2, "a=b"));
        assert!(arm.join(ArmEntry::parse("gso=./y").unwrap()).is_err());
        for bad in ["main", "main:X", ""] {
            assert!(ArmEntry::parse(bad).is_err(), "{bad}");
        }
    }
}
