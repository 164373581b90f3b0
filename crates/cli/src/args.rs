//! The command line.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::history::args::{FailOn, HistoryCommand};

/// Measure a packet path, and prove what each optimisation is worth on this machine.
#[derive(Debug, Parser)]
#[command(
    name = "wirepath",
    version,
    max_term_width = 100,
    after_help = "\
Example:
  wirepath prove probe --load ping --arms ladder --peers sockperf --time 60s
  wirepath report last --html report.html"
)]
pub(crate) struct Cli {
    /// One JSON document on standard output instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Folder of the results database
    #[arg(long, global = true, value_name = "DIR", env = "WIREPATH_DATA")]
    pub(crate) data_dir: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Every path, its switches and loads, and what this host supports (and why not)
    #[command(after_help = "Example:\n  wirepath paths")]
    Paths,
    /// Prove what switches are worth, by interleaved trials of all arms in one run
    #[command(after_help = "\
Example:
  wirepath prove probe --load flood --arms ladder --peers iperf3 --time 60s
  wirepath prove probe --load ping --arms spin,bypass+spin --json
  wirepath prove probe --peer 192.0.2.7          (wirepath peer runs there)
  wirepath prove probe --baseline 20261121-0830 --fail-on worse")]
    Prove(ProveArgs),
    /// Send, receive, echo or ping with any engine
    #[command(
        subcommand,
        after_help = "Example:\n  wirepath peer --listen 192.0.2.7:7117     (at the far end)\n  \
                      wirepath probe ping 192.0.2.7 --engine xdp --spin"
    )]
    Probe(ProbeCommand),
    /// Receive, replay, record and decode market data
    #[command(
        subcommand,
        after_help = "Example:\n  wirepath feed decode morning.pcapng | jq -c .trade"
    )]
    Feed(crate::feed::FeedCommand),
    /// Boot the firmware with the virtio-net driver, and measure it by hand
    #[command(
        subcommand,
        after_help = "Example:\n  wirepath guest run --switches quiet --tap\n  \
                      wirepath prove guest --arms ladder --peers linux --time 120s"
    )]
    Guest(crate::guest::GuestCommand),
    /// Run a guest behind an emulated NIC
    #[command(subcommand, after_help = "Example:\n  wirepath vmnic run -- ping -c 3 10.77.0.2")]
    Vmnic(crate::vmnic::VmnicCommand),
    /// Forward Ethernet frames through VXLAN and GRETAP tunnels
    #[command(
        subcommand,
        after_help = "Example:\n  wirepath tunnel run --config /etc/wirepath/tunnel.toml"
    )]
    Tunnel(crate::tunnel::TunnelCommand),
    /// Find what slows packets on this host, with evidence, change and undo; changes nothing
    #[command(after_help = "\
Example:
  wirepath doctor --interface eth1 --profile latency --app-cpu 3
  wirepath doctor --netns blue --severity medium --html findings.html")]
    Doctor(crate::doctor::DoctorArgs),
    /// Change settings of the host by a plan, with a journal that gives them back
    #[command(after_help = "\
Example:
  wirepath tune plan --profile latency --interface eth1 --app-cpu 3 > plan.toml
  wirepath tune apply plan.toml --confirm-within 60s
  wirepath tune rollback")]
    Tune(crate::tune::TuneArgs),
    /// Be the far end for runs between two hosts
    #[command(after_help = "\
Example:
  wirepath peer --listen 192.0.2.7:7117 --secret-file key")]
    Peer(PeerArgs),
    /// Where the time of a packet goes on a live path, and where packets end
    #[command(after_help = "\
Example:
  wirepath explain -i eth0 -d 10s
  wirepath explain --netns blue --duty 100 --json")]
    Explain(crate::explain::ExplainArgs),
    /// Experiments that were run: list, show, compare, export, prune, check
    #[command(after_help = "\
Example:
  wirepath history
  wirepath history compare 20261121-0830 last")]
    History {
        /// `list` unless given
        #[command(subcommand)]
        command: Option<HistoryCommand>,
    },
    /// Show one experiment as text, JSON, CSV or an HTML page
    #[command(after_help = "\
Example:
  wirepath report last --html report.html
  wirepath report --path probe --html probe.html")]
    Report(ReportArgs),
    /// Show the history as pages in a browser, on this host alone
    #[command(after_help = "\
Example:
  wirepath serve
  wirepath serve --port 0 --json")]
    Serve(crate::serve::ServeArgs),
    /// Print a completion script for a shell
    #[command(after_help = "\
Example:
  wirepath completions bash > /etc/bash_completion.d/wirepath")]
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Write man pages to a folder
    #[command(after_help = "Example:\n  wirepath man /usr/local/share/man/man1")]
    Man {
        /// Folder
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ProveArgs {
    /// Path to measure
    #[arg(default_value = "probe")]
    pub(crate) path: String,
    /// Arms: ladder, alone, leave-one-out, or a list such as spin,spin+batch
    #[arg(long, default_value = "ladder")]
    pub(crate) arms: String,
    /// Other programs to run as arms, e.g. iperf3,sockperf
    #[arg(long, value_delimiter = ',')]
    pub(crate) peers: Vec<String>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(flatten)]
    pub(crate) baseline: BaselineArgs,
}

/// What a proof is under, and for how long.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Load; `wirepath paths` lists them
    #[arg(long)]
    pub(crate) load: Option<String>,
    /// Time to spend: 60s, 2m
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    pub(crate) time: std::time::Duration,
    /// UDP payload of each datagram in bytes; the load's own unless given
    #[arg(long)]
    pub(crate) size: Option<usize>,
    /// Datagrams a second of a load with a schedule; the load's own unless given
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) rate: Option<u64>,
    /// Measured part of one trial; the load's own unless given
    #[arg(long, value_parser = parse_duration)]
    pub(crate) trial: Option<std::time::Duration>,
    /// Seed of the order of trials; random unless given
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Blocks at least, before anything is said
    #[arg(long, default_value_t = 6)]
    pub(crate) min_blocks: u32,
    /// Blocks at most
    #[arg(long)]
    pub(crate) max_blocks: Option<u32>,
    /// Far end on another host (HOST or HOST:PORT of a `wirepath peer`)
    #[arg(long, value_name = "HOST")]
    pub(crate) peer: Option<String>,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
    /// Do not store the result
    #[arg(long)]
    pub(crate) no_history: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BaselineArgs {
    /// Compare with this earlier experiment in the end: id, or unique beginning of one
    #[arg(long, value_name = "ID")]
    pub(crate) baseline: Option<String>,
    /// End with exit code 4 if the comparison says so
    #[arg(long, value_enum, requires = "baseline")]
    pub(crate) fail_on: Option<FailOn>,
    /// Compare though the earlier experiment ran on another machine
    #[arg(long, requires = "baseline")]
    pub(crate) any_machine: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SecretArgs {
    /// File with the secret that both ends share
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProbeCommand {
    /// Send datagrams one way
    #[command(after_help = "\
Example:
  wirepath probe send 192.0.2.7 --engine xdp --mode native --size 1460 -d 10s")]
    Send(NearArgs),
    /// Receive datagrams and keep their books
    #[command(after_help = "\
Example:
  wirepath probe receive -i eth1 --engine packet
  wirepath probe receive --from 192.0.2.7 -d 5s        (its wirepath peer sends)")]
    Receive(ReceiveArgs),
    /// Return datagrams to their sender
    #[command(after_help = "Example:\n  wirepath probe echo -i eth1 --engine xdp --spin")]
    Echo(FarArgs),
    /// Measure round trips
    #[command(after_help = "\
Example:
  wirepath probe ping 192.0.2.7 --engine xdp --spin -d 5s
  wirepath probe ping 192.0.2.7 --rate 10000")]
    Ping(NearArgs),
    /// Send frames from the kernel's live-frame generator (veth: the peer needs GRO or XDP)
    #[command(after_help = "\
Example:
  wirepath probe generate --lab           (into a counting XDP_DROP, nothing leaves)
  wirepath probe generate 192.0.2.7 -d 5s")]
    Generate(GenerateArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineName {
    /// UDP sockets
    Udp,
    /// AF_PACKET with TPACKET_V3 rings
    Packet,
    /// AF_XDP
    Xdp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeName {
    /// In the stack (generic XDP)
    Skb,
    /// In the driver
    Native,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StampsName {
    /// By the kernel, when the driver hands the packet over
    Software,
    /// By the NIC, where it can; its clock must be synchronised with the host's (phc2sys)
    Hardware,
}

#[derive(Debug, Args)]
pub(crate) struct EngineArgs {
    /// Engine
    #[arg(long, value_enum, default_value = "udp")]
    pub(crate) engine: EngineName,
    /// Interface; the route's own unless given
    #[arg(short = 'i', long, value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// First receive queue
    #[arg(short = 'q', long, default_value_t = 0)]
    pub(crate) queue: u32,
    /// Queues to use, one thread each (AF_XDP, send and receive)
    #[arg(long, default_value_t = 1)]
    pub(crate) queues: u32,
    /// Native XDP mode (the same as --mode native)
    #[arg(short = 'N', long)]
    pub(crate) native: bool,
    /// SKB XDP mode (the same as --mode skb)
    #[arg(short = 'S', long, conflicts_with = "native")]
    pub(crate) skb: bool,
    /// Where the XDP program runs
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeName>,
    /// Zero-copy where the driver has it, else copy
    #[arg(short = 'z', long)]
    pub(crate) zero_copy: bool,
    /// Zero-copy or fail
    #[arg(long)]
    pub(crate) require_zero_copy: bool,
    /// Sleep in poll() while nothing arrives (the default; --spin is the other)
    #[arg(short = 'p', long, conflicts_with = "spin")]
    pub(crate) poll: bool,
    /// Look again at once instead of sleeping
    #[arg(long)]
    pub(crate) spin: bool,
    /// Poll the device queue from the socket (SO_BUSY_POLL)
    #[arg(long)]
    pub(crate) busy_poll: bool,
    /// Let the kernel sleep until woken (XDP_USE_NEED_WAKEUP)
    #[arg(long)]
    pub(crate) need_wakeup: bool,
    /// Datagrams a call or a look at a ring
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) batch: u16,
    /// Segmentation offload when sending, coalescing when receiving (udp)
    #[arg(long)]
    pub(crate) gso: bool,
    /// Frames of the UMEM
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(64..=262144))]
    pub(crate) frames: u32,
    /// Bytes of a frame of the UMEM: 2048 or 4096
    #[arg(long, default_value_t = 2048)]
    pub(crate) frame_bytes: u32,
    /// Packets may span frames (jumbo)
    #[arg(long)]
    pub(crate) multi_buffer: bool,
    /// Receive buffer of a UDP socket in bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) rcvbuf: Option<usize>,
    /// Receive time stamps: add the segment kernel→app (udp; packet: software only)
    #[arg(long, value_enum)]
    pub(crate) stamps: Option<StampsName>,
    /// Keep CPUs out of deep idle states meanwhile
    #[arg(long)]
    pub(crate) no_idle_states: bool,
    /// CPU to run on
    #[arg(long, value_name = "CPU")]
    pub(crate) pin: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct NearArgs {
    /// Far end's address
    pub(crate) to: Ipv4Addr,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// UDP port of the far end
    #[arg(long, default_value_t = 9000)]
    pub(crate) port: u16,
    /// Own UDP port
    #[arg(long, default_value_t = 9001)]
    pub(crate) source_port: u16,
    /// UDP payload of each datagram in bytes
    #[arg(long, default_value_t = 64)]
    pub(crate) size: usize,
    /// Datagrams a second on a fixed schedule; as fast as possible unless given
    #[arg(long)]
    pub(crate) rate: Option<u64>,
    /// Datagrams to send
    #[arg(short = 'c', long)]
    pub(crate) count: Option<u64>,
    /// How long to send: 10s, 500ms
    #[arg(short = 'd', long, value_parser = parse_duration)]
    pub(crate) duration: Option<std::time::Duration>,
    /// Source ports to send from
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) flows: u16,
    /// TCP port of the far end's `wirepath peer`
    #[arg(long, default_value_t = paths::probe::peer::DEFAULT_PORT)]
    pub(crate) peer_port: u16,
    /// Engine of the far end's peer; the near end's unless given
    #[arg(long, value_enum)]
    pub(crate) far_engine: Option<EngineName>,
    /// Do not look for a `wirepath peer` at the far end
    #[arg(long)]
    pub(crate) no_peer: bool,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FarArgs {
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// Own UDP port
    #[arg(long, default_value_t = 9000)]
    pub(crate) port: u16,
    /// Largest UDP payload expected in bytes
    #[arg(long, default_value_t = 1472)]
    pub(crate) size: usize,
    /// End after this long without being told
    #[arg(short = 'd', long, value_parser = parse_duration)]
    pub(crate) duration: Option<std::time::Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct ReceiveArgs {
    #[command(flatten)]
    pub(crate) far: FarArgs,
    /// Have the `wirepath peer` of this host (HOST or HOST:PORT) send to us
    #[arg(long, value_name = "HOST")]
    pub(crate) from: Option<String>,
    /// Datagrams a second that it is to send; as fast as possible unless given
    #[arg(long, requires = "from")]
    pub(crate) rate: Option<u64>,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// Far end's address; none with --lab
    #[arg(required_unless_present = "lab")]
    pub(crate) to: Option<Ipv4Addr>,
    /// A lab of our own: a veth pair with an XDP program that counts and drops at its far end
    #[arg(long, conflicts_with = "to")]
    pub(crate) lab: bool,
    /// Interface; the route's own unless given
    #[arg(short = 'i', long, value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// UDP port of the far end
    #[arg(long, default_value_t = 9000)]
    pub(crate) port: u16,
    /// UDP payload of each datagram in bytes
    #[arg(long, default_value_t = 64)]
    pub(crate) size: usize,
    /// How long to send
    #[arg(short = 'd', long, default_value = "2s", value_parser = parse_duration)]
    pub(crate) duration: std::time::Duration,
}

#[derive(Debug, Args)]
pub(crate) struct PeerArgs {
    /// Address to listen on
    #[arg(long, default_value_t = SocketAddr::from(([127, 0, 0, 1], paths::probe::peer::DEFAULT_PORT)))]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Id, unique beginning of one, or `last`
    #[arg(default_value = "last")]
    pub(crate) id: String,
    /// Write a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Instead of one experiment, the newest word of all on each switch of a path
    #[arg(long, value_name = "PATH", conflicts_with_all = ["id", "csv"], requires = "html")]
    pub(crate) path: Option<String>,
    /// Write CSV, one row an arm and metric
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
}

/// `60s`, `500ms`, `2m`, `1.5s`; a bare number is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{unit:?} is no unit; use ms, s, m or h")),
    };
    let seconds =
        number.trim().parse::<f64>().map_err(|_| format!("{text:?} is no time; try 60s"))?;
    let seconds = seconds * scale;
    if !(seconds > 0.0 && seconds <= 7.0 * 86_400.0) {
        return Err("give more than 0 and at most 7 days".into());
    }
    Ok(std::time::Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_ends_with_an_example() {
        fn check(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Example:"), "{path} has no example");
            for sub in command.get_subcommands() {
                check(sub, &path);
            }
        }
        check(&Cli::command(), "");
    }

    #[test]
    fn durations_are_read_and_nonsense_is_refused() {
        let ms = |t: &str| parse_duration(t).map(|d| d.as_millis());
        assert_eq!(ms("60s"), Ok(60_000));
        assert_eq!(ms("250ms"), Ok(250));
        assert_eq!(ms("1.5m"), Ok(90_000));
        assert_eq!(ms("3"), Ok(3000));
        for bad in ["", "s", "-1s", "0s", "5 parsecs", "nan", "1e99h"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
