//! The command line: every command with its help and an example.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use house::context::Context;
use house::privileges::LabUse;

/// Measure a packet path, and prove what each optimisation is worth on this machine.
#[derive(Debug, Parser)]
#[command(
    name = "wirepath",
    version,
    max_term_width = 100,
    after_help = "\
Example:
  wirepath compare ./server-main ./server-pr -- wrk -d1s http://localhost:8080/
  wirepath report last --html report.html"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) context: Context,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compare two programs of your own on this machine: is the new one better, and by how much?
    ///
    /// Ends with 0 if the new one is shown to be no worse, with 4 if it is worse, and with 5 if that is not decided;
    /// --resolve says how much counts.
    #[command(after_help = "\
Example:
  wirepath compare ./sort-old ./sort-new
  wirepath compare ./server-main ./server-pr -- wrk -d1s http://localhost:8080/
  wirepath compare --build make --run ./server main pr -- redis-benchmark -q -p 7000")]
    Compare(Box<crate::compare::CompareArgs>),
    /// List paths with their loads and switches, and whether this host supports them
    #[command(after_help = "Example:\n  wirepath paths\n  wirepath paths probe")]
    Paths(crate::paths_list::PathsArgs),
    /// Measure the effect of switches by interleaved trials of all arms in one run
    #[command(after_help = "\
Example:
  wirepath prove probe --load flood --arms ladder --peers iperf3 --time 60s
  wirepath prove probe --load ping --arms spin,bypass+spin --json
  wirepath prove probe --far ssh:db2 -i eth1 --load flood --direction receive
  wirepath prove probe --load ping --arms best --time 5m
  wirepath prove probe --against ./wirepath.old --arms spin+bypass --fail-on worse
  wirepath prove probe --arms spin --runs 6 --baseline '20261121-08*' --fail-on worse")]
    Prove(Box<crate::prove::ProveArgs>),
    /// Answer calls of another process of this program, which starts it
    #[command(
        hide = true,
        after_help = "Example:\n  wirepath prove command experiment.toml --far ssh:db2"
    )]
    Answer(crate::answer::AnswerArgs),
    /// The two ends of a built-in load of `prove command`
    #[command(
        subcommand,
        hide = true,
        after_help = "Example:\n  wirepath load serve udp:1400@20000 192.0.2.7     (at the far end)\n  \
                      wirepath load run udp:1400@20000 192.0.2.7"
    )]
    Load(crate::load::LoadCommand),
    /// Send, receive, echo or ping with any engine
    #[command(
        subcommand,
        after_help = "Example:\n  wirepath peer --listen 192.0.2.7:7117     (at the far end)\n  \
                      wirepath probe ping 192.0.2.7 --arm spin+bypass"
    )]
    Probe(crate::probe::args::ProbeCommand),
    /// Measure on many hosts: pooled verdicts, and meshes
    #[command(
        subcommand,
        after_help = "Example:\n  wirepath fleet prove --on ssh:db1,ssh:db2,this probe --load ping --arms spin"
    )]
    Fleet(crate::fleet::FleetCommand),
    /// Find settings that slow packets on this host, with evidence and remedy; read-only
    #[command(after_help = "\
Example:
  wirepath doctor eth1 --profile latency --app-cpu 3
  wirepath doctor --port 9000
  wirepath doctor --netns blue --severity medium --html findings.html")]
    Doctor(crate::doctor::DoctorArgs),
    /// Change settings of the host by a plan, with a journal for the rollback
    #[command(after_help = "\
Example:
  wirepath tune plan --profile latency --interface eth1 --app-cpu 3 > plan.toml
  wirepath tune apply plan.toml --confirm-within 60s
  wirepath tune rollback")]
    Tune(Box<crate::tune::TuneArgs>),
    /// Serve as the far end of runs between two hosts
    #[command(after_help = "\
Example:
  wirepath peer --listen 192.0.2.7:7117 --secret-file key")]
    Peer(crate::peer::PeerArgs),
    /// Make a shared secret for `peer` and its near ends
    #[command(after_help = "\
Example:
  wirepath secret --out key        (the same file, with mode 600, at both ends)")]
    Secret(crate::secret::SecretOutArgs),
    /// Show where packets spend time on a live path, and where they are dropped
    #[command(after_help = "\
Example:
  wirepath explain eth0 --time 10s
  wirepath explain --netns blue --duty 100 --json
  wirepath explain --port 443 --duty 100
  wirepath explain --pid 4711 --late
  wirepath explain --cgroup /system.slice/nginx.service --listen 9102")]
    Explain(crate::explain::ExplainArgs),
    /// List, show, compare, export, prune and check stored experiments
    #[command(after_help = "\
Example:
  wirepath history
  wirepath history compare 20261121-0830 last")]
    History {
        /// Default: `list`
        #[command(subcommand)]
        command: Option<crate::history::args::HistoryCommand>,
    },
    /// Show one experiment as text, JSON, CSV, an HTML page, or in the form of a CI system
    #[command(after_help = "\
Example:
  wirepath report last --html report.html
  wirepath report last --format markdown
  wirepath report --path probe --html probe.html")]
    Report(crate::report_cmd::ReportArgs),
    /// Make a static site of what each switch and knob is worth by driver, kernel and machine, from shared results
    #[command(after_help = "\
Example:
  wirepath history export last --share --out mine.json
  wirepath atlas --check mine.json
  wirepath atlas results/ --out site/")]
    #[cfg(feature = "fleet")]
    Atlas(crate::atlas::AtlasArgs),
    /// Show the history as pages in a browser, on this host alone
    #[command(after_help = "\
Example:
  wirepath serve
  wirepath serve --port 0 --json")]
    Serve(crate::serve::ServeArgs),
    /// Print the JSON Schema of a command's `--json` document
    #[command(after_help = "\
Example:
  wirepath schema
  wirepath schema tune apply")]
    Schema {
        /// Command; lists those that have a schema unless given
        command: Vec<String>,
    },
    /// Print a completion script for a shell
    #[command(after_help = "\
Example:
  wirepath completions bash > /etc/bash_completion.d/wirepath")]
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Print the candidates for the last of some words; the scripts of `completions` call it
    #[command(hide = true, after_help = "Example:\n  wirepath complete -- wirepath prove --ti")]
    Complete {
        /// Words, the program first; the last one is completed, and may be empty
        #[arg(last = true, value_name = "WORD")]
        words: Vec<OsString>,
    },
    /// Print help: of a command, of all of them, or the exit codes
    #[command(after_help = "\
Example:
  wirepath help prove command
  wirepath help all
  wirepath help exit-codes")]
    Help {
        /// Words of a command, `all` or `exit-codes`
        topic: Vec<String>,
    },
    /// Write man pages to a folder
    #[command(after_help = "Example:\n  wirepath man /usr/local/share/man/man1")]
    Man {
        /// Folder
        dir: PathBuf,
    },
}

impl Command {
    pub(crate) fn lab_use(&self) -> LabUse {
        match self {
            Command::Paths(_) => LabUse::Tried,
            Command::Prove(args) if args.makes_lab() => LabUse::Needed,
            Command::Compare(args) if args.makes_lab() => LabUse::Needed,
            _ => LabUse::None,
        }
    }

    pub(crate) fn starts_programs(&self) -> bool {
        match self {
            Command::Prove(_)
            | Command::Compare(_)
            | Command::Paths(_)
            | Command::Tune(_)
            | Command::Fleet(_)
            | Command::Doctor(_) => true,
            Command::Answer(args) => args.starts_programs(),
            _ => false,
        }
    }
}
