//! The command line of `wirepath probe`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use house::args::{parse_bytes, parse_duration};
use io::Stamps;
use model::Arm;
use probe::endpoint::Choice;
use probe::peer::DEFAULT_PORT;

use super::measure::MeasureArgs;
use crate::shared_args::{IpVersion, SecretArgs, parse_ip, parse_ipv4, parse_vlan};

#[derive(Debug, Subcommand)]
pub(crate) enum ProbeCommand {
    /// Send datagrams one way
    #[command(after_help = "\
Example:
  wirepath probe send 192.0.2.7 --arm bypass+native --size 1460 --time 10s")]
    Send(NearArgs),
    /// Receive datagrams and count losses and reordering
    #[command(after_help = "\
Example:
  wirepath probe receive -i eth1 --packet
  wirepath probe receive --from 192.0.2.7 --time 5s        (its wirepath peer sends)")]
    Receive(ReceiveArgs),
    /// Return datagrams to their sender
    #[command(after_help = "Example:\n  wirepath probe echo -i eth1 --arm spin+bypass")]
    Echo(FarArgs),
    /// Measure round trips
    #[command(after_help = "\
Example:
  wirepath probe ping 192.0.2.7 --arm spin+bypass --time 5s
  wirepath probe ping fd00::7 --rate 10000")]
    Ping(NearArgs),
    /// Send frames from the kernel's live-frame generator (veth: the peer needs GRO or XDP)
    #[command(after_help = "\
Example:
  wirepath probe generate --lab           (into a counting XDP_DROP, nothing leaves)
  wirepath probe generate 192.0.2.7 --time 5s")]
    Generate(GenerateArgs),
    /// Measure latency against load, up to the rate that each arm no longer carries
    #[command(after_help = "\
Example:
  wirepath probe measure --arms spin,spin+bypass --seed 7 --html curve.html
  wirepath probe measure --far ssh:db2 --start 10000 --trial 1s --json")]
    Measure(Box<MeasureArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct EngineArgs {
    /// Switches of path probe that are on, joined by +, such as spin+bypass+native (list: wirepath paths probe)
    #[arg(long, value_name = "A+B", default_value = "baseline", value_parser = probe::parse_arm)]
    pub(crate) arm: Arm,
    /// AF_PACKET rings in place of UDP sockets
    #[arg(long)]
    pub(crate) packet: bool,
    /// Interface; default: by the route
    #[arg(short = 'i', long, value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// First receive queue; default: for a receiver all of them, a socket each (bypass)
    #[arg(short = 'q', long)]
    pub(crate) queue: Option<u32>,
    /// Queues to use, one thread each (bypass, send and receive)
    #[arg(long, default_value_t = 1)]
    pub(crate) queues: u32,
    /// Receive through the XDP program that is attached already: its map of AF_XDP sockets, pinned in a bpffs (bypass)
    #[arg(long, value_name = "PATH")]
    pub(crate) xsk_map: Option<PathBuf>,
    /// Fail where zero-copy is not possible, in place of copying
    #[arg(long)]
    pub(crate) require_zero_copy: bool,
    /// Datagrams of a batch; default: 64 (batch)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) batch_size: Option<u16>,
    /// Number of frames in the UMEM; default: 4096, or 16384 with big-rings (bypass)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(64..=262144))]
    pub(crate) frames: Option<u32>,
    /// Size of a UMEM frame in bytes: 2048 or 4096; with unaligned-chunks 2048 to 4096, a multiple of 64.
    /// Default: 2048, or 2112 with unaligned-chunks (bypass)
    #[arg(long, value_name = "BYTES")]
    pub(crate) frame_bytes: Option<u32>,
    /// Entries of the RX and TX rings, a power of two; default: 2048, or 8192 with big-rings (bypass)
    #[arg(long, value_name = "N")]
    pub(crate) ring_entries: Option<u32>,
    /// Packets may span frames (jumbo; bypass)
    #[arg(long)]
    pub(crate) multi_buffer: bool,
    /// VLAN of the datagrams and its priority: bypass writes and takes tags of its own, sockets need a VLAN device. A
    /// peer sends and receives in the same VLAN
    #[arg(long, value_name = "ID[:PRIORITY]", value_parser = parse_vlan)]
    pub(crate) vlan: Option<u16>,
    /// Receive buffer of a UDP socket in bytes
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) rcvbuf: Option<usize>,
    /// Receive time stamps: add the segment kernel→app (--packet: software only; hardware under bypass needs native)
    #[arg(long, value_enum)]
    pub(crate) stamps: Option<Stamps>,
    /// CPU to run on
    #[arg(long, value_name = "CPU")]
    pub(crate) pin: Option<usize>,
}

impl EngineArgs {
    /// Local end of the run.
    pub(crate) fn choice(&self, port: u16) -> Choice {
        Choice { ifname: self.interface.clone(), queue: self.queue.unwrap_or(0), port }
    }
}

#[derive(Debug, Args)]
pub(crate) struct NearArgs {
    /// Far end's address
    #[arg(value_parser = parse_ip)]
    pub(crate) to: IpAddr,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// UDP port of the far end
    #[arg(long, default_value_t = 9000)]
    pub(crate) port: u16,
    /// Own UDP port
    #[arg(long, default_value_t = 9001)]
    pub(crate) source_port: u16,
    /// UDP payload of each datagram in bytes
    #[arg(long, default_value = "64", value_parser = parse_bytes)]
    pub(crate) size: usize,
    /// Datagrams per second on a fixed schedule; default: as fast as possible
    #[arg(long)]
    pub(crate) rate: Option<u64>,
    /// Datagrams to send
    #[arg(short = 'c', long)]
    pub(crate) count: Option<u64>,
    /// Time to send or to measure: 10s, 500ms
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) time: Option<Duration>,
    /// Source ports to send from
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) flows: u16,
    /// TCP port of the far end's `wirepath peer`
    #[arg(long, default_value_t = DEFAULT_PORT)]
    pub(crate) peer_port: u16,
    /// Switches of the far end's peer; default: those of the near end
    #[arg(long, value_name = "A+B", value_parser = probe::parse_arm)]
    pub(crate) far_arm: Option<Arm>,
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
    /// IP version; default: 4
    #[arg(long, value_name = "4|6", hide_possible_values = true)]
    pub(crate) ip: Option<IpVersion>,
    /// Own UDP port
    #[arg(long, default_value_t = 9000)]
    pub(crate) port: u16,
    /// Largest UDP payload expected in bytes; default: that of a packet of 1500 bytes
    #[arg(long, value_parser = parse_bytes)]
    size: Option<usize>,
    /// Time to receive; default: until Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) time: Option<Duration>,
}

impl FarArgs {
    /// Largest UDP payload over an IP version.
    pub(crate) fn size(&self, ipv6: bool) -> usize {
        self.size.unwrap_or(if ipv6 { 1452 } else { 1472 })
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReceiveArgs {
    #[command(flatten)]
    pub(crate) far: FarArgs,
    /// Request the `wirepath peer` of this host (HOST or HOST:PORT) to send
    #[arg(long, value_name = "HOST")]
    pub(crate) from: Option<String>,
    /// Datagrams per second that it sends; default: as fast as possible
    #[arg(long, requires = "from")]
    pub(crate) rate: Option<u64>,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// Far end's address; none with --lab
    #[arg(required_unless_present = "lab", value_parser = parse_ipv4)]
    pub(crate) to: Option<Ipv4Addr>,
    /// Run in a lab: a veth pair with an XDP program that counts and drops at its far end
    #[arg(long, conflicts_with = "to")]
    pub(crate) lab: bool,
    /// Interface; default: by the route
    #[arg(short = 'i', long, value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// UDP port of the far end
    #[arg(long, default_value_t = 9000)]
    pub(crate) port: u16,
    /// UDP payload of each datagram in bytes
    #[arg(long, default_value = "64", value_parser = parse_bytes)]
    pub(crate) size: usize,
    /// Time to send
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    pub(crate) time: Duration,
}
