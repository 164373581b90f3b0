//! Loads and peers of the path, and where it runs.

use std::time::Duration;

use model::{Arm, Load, PathError, Session, Support, TypedPath};

use crate::switches::{FOREIGN, Switch};

/// Native loops, which write the same back ends, another driver of the same device, and the same guest on another
/// device.
const PEERS: &[&str] = &[
    "native",
    "native-tap",
    "native-xdp",
    FOREIGN,
    "qemu-pcnet",
    "qemu-virtio-net",
    "qemu-virtio-net-kvm",
];
/// Peers that keep to a link's rate.
const PACED_PEERS: &[&str] = &["native", "native-tap", "native-xdp", FOREIGN];
/// Peers that receive.
const STREAM_PEERS: &[&str] = &[FOREIGN, "qemu-pcnet", "qemu-virtio-net"];

model::loads! {
    /// Loads of the virtual NIC.
    pub enum VmnicLoad {
        Stream {
            what: "raw frames from the guest to the host as fast as they go",
            judged: &["vcpu_ns_per_packet", "cpu_ns_per_packet", "goodput_bps"],
            size_bytes: 1514,
            rate_pps: 0,
            trial: Duration::from_millis(300),
            peers: PEERS,
        },
        Paced {
            what: "the same into a link of 100 Mbit/s: idle share of the guest",
            judged: &["guest_share_idle", "vcpu_ns_per_packet", "goodput_bps"],
            size_bytes: 1514,
            rate_pps: 0,
            trial: Duration::from_millis(400),
            peers: PACED_PEERS,
        },
        Tcp {
            what: "a TCP stream from the guest to a socket of the host; SHA-256 compared before the first trial",
            judged: STREAM_JUDGED,
            size_bytes: 65_536,
            rate_pps: 0,
            trial: Duration::from_millis(500),
            peers: STREAM_PEERS,
        },
        TcpReceive {
            what: "a TCP stream from a socket of the host to the guest; SHA-256 compared before the first trial",
            judged: STREAM_JUDGED,
            size_bytes: 65_536,
            rate_pps: 0,
            trial: Duration::from_millis(500),
            peers: STREAM_PEERS,
        },
        Ping {
            what: "UDP echoes of the guest back to back: the next when the answer has arrived (closed loop)",
            judged: &["rtt_ns_p50", "rtt_ns_p99", "vcpu_ns_per_packet", "cpu_ns_per_packet"],
            size_bytes: 56,
            rate_pps: 0,
            trial: Duration::from_millis(1500),
            peers: STREAM_PEERS,
        },
    }
}

const STREAM_JUDGED: &[&str] = &["vcpu_ns_per_packet", "goodput_bps", "cpu_ns_per_packet"];

/// The path `vmnic`.
#[derive(Debug, Default, Clone, Copy)]
pub struct Vmnic;

impl TypedPath for Vmnic {
    type Switch = Switch;
    type Kind = VmnicLoad;

    const NAME: &'static str = "vmnic";
    const WHAT: &'static str = "a virtual machine's NIC, an emulated Lance or virtio-net: from the guest's driver to the host's network";

    #[cfg(target_arch = "x86_64")]
    fn support(&self, arm: &Arm, _load: &Load, kind: VmnicLoad) -> Support {
        if arm.kind == model::ArmKind::Peer {
            let peers = model::PathLoad::kind(kind).peers;
            let name = arm.name.as_str();
            if !peers.contains(&name) {
                let carry = peers.join(", ");
                let why = format!(
                    "peer {name} does not support load {kind}; peers of that load: {carry}"
                );
                return Support::Refused { why };
            }
            return match crate::qemu::QemuCard::named(name) {
                Some(card) => crate::qemu::support(card),
                None if name == FOREIGN => crate::support::support(arm),
                None => crate::support::native(name),
            };
        }
        crate::support::support(arm)
    }

    #[cfg(target_arch = "x86_64")]
    fn open(&self, load: &Load, kind: VmnicLoad) -> Result<Box<dyn Session>, PathError> {
        if load.far.is_some() {
            return Err(PathError::Invalid {
                what: "path vmnic runs in its own lab only".into(),
                remedy: "omit --far".into(),
            });
        }
        let (sizes, remedy) = match kind {
            VmnicLoad::Tcp | VmnicLoad::TcpReceive => (1..=65_536, "a write has 1 to 65,536 bytes"),
            VmnicLoad::Ping => (4..=1472, "an echo has 4 to 1,472 bytes, its number included"),
            VmnicLoad::Stream | VmnicLoad::Paced => {
                (60..=1514, "a frame has 60 to 1514 bytes without its check sequence")
            }
        };
        if !sizes.contains(&load.size_bytes) {
            let what = format!("{} bytes is not a valid size for load {kind}", load.size_bytes);
            return Err(PathError::Invalid { what, remedy: remedy.into() });
        }
        Ok(Box::new(crate::session::VmnicSession::open(load, kind)?))
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn support(&self, _: &Arm, _: &Load, _: VmnicLoad) -> Support {
        Support::unsupported(NOT_X86, NEEDS_X86)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn open(&self, _: &Load, _: VmnicLoad) -> Result<Box<dyn Session>, PathError> {
        Err(PathError::Unsupported { what: NOT_X86.into(), needs: NEEDS_X86.into() })
    }
}

#[cfg(not(target_arch = "x86_64"))]
const NOT_X86: &str = "path vmnic on a processor that is not x86-64";
#[cfg(not(target_arch = "x86_64"))]
const NEEDS_X86: &str = "x86-64 with KVM, for its virtual PC";
