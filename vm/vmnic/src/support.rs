//! Support on this host, found by trying.

use std::sync::OnceLock;

use lab::TapEnd;
use model::{Arm, PathError, Support};

use super::image;
use super::run_guest::RAM_BYTES;
use super::topology::{BackEnd, Topology};
use crate::switches::Switch;
use host::kvm::GuestRam;
use host::text::chain;

/// Support for a virtual machine, its image and a lab, with the first that is missing.
fn tried() -> &'static Support {
    static TRIED: OnceLock<Support> = OnceLock::new();
    TRIED.get_or_init(|| {
        if let Err(error) = vmm::exit_cost_ns() {
            return Support::unsupported(
                format!("a virtual machine ({})", chain(&error)),
                "a readable and writable /dev/kvm (`modprobe kvm_intel` or `kvm_amd`, \
                 virtualisation on in the firmware, group kvm)",
            );
        }
        let image = image::support();
        if !image.is_yes() {
            return image;
        }
        lab()
    })
}

/// Support for a lab, which is all that a native loop needs.
pub(super) fn lab() -> Support {
    static TRIED: OnceLock<Support> = OnceLock::new();
    let support = TRIED.get_or_init(|| match TapEnd::new() {
        Ok(_) => Support::Yes,
        Err(error) => Support::unsupported(
            format!("a lab of network namespaces and a TAP ({})", chain(&error)),
            "CAP_SYS_ADMIN, CAP_NET_ADMIN and /dev/net/tun: run it as root",
        ),
    });
    support.clone()
}

/// Support for an arm of the monitor.
pub(super) fn support(arm: &Arm) -> Support {
    let tried = tried();
    if !tried.is_yes() {
        return tried.clone();
    }
    for switch in [Switch::EventIdx, Switch::PackedRing, Switch::GuestUmem] {
        if arm.has(switch) && !arm.has(Switch::VirtioNet) {
            return Support::unsupported(
                format!("{switch} on a Lance, whose rings have no such feature"),
                "the virtio-net card: switch virtio-net in the same arm",
            );
        }
    }
    let cpu_count = sys::affinity::allowed_cpus().map_or(1, |cpus| cpus.len());
    if arm.has(Switch::OwnPolling) && cpu_count < 2 {
        let why = "own-polling with one CPU: the device's thread spins on the CPU that the guest needs; \
                   allow the process two (taskset)";
        return Support::Refused { why: why.into() };
    }
    match arm {
        arm if arm.has(Switch::GuestUmem) => rings(BackEnd::GuestUmem),
        arm if arm.has(Switch::XdpRing) => rings(BackEnd::XdpRing),
        arm if arm.has(Switch::SharedRing) => rings(BackEnd::PacketRing),
        _ => Support::Yes,
    }
}

/// Support for a native loop.
pub(super) fn native(name: &str) -> Support {
    let lab = lab();
    match name {
        _ if !lab.is_yes() => lab,
        "native" => rings(BackEnd::PacketRing),
        "native-xdp" => rings(BackEnd::XdpRing),
        _ => lab,
    }
}

/// Support for shared rings, each kind tried once.
fn rings(back_end: BackEnd) -> Support {
    static PACKET: OnceLock<Support> = OnceLock::new();
    static XDP: OnceLock<Support> = OnceLock::new();
    static GUEST: OnceLock<Support> = OnceLock::new();
    let tried = match back_end {
        BackEnd::GuestUmem => &GUEST,
        BackEnd::XdpRing => &XDP,
        BackEnd::PacketRing | BackEnd::Tap => &PACKET,
    };
    tried.get_or_init(|| try_rings(back_end)).clone()
}

/// Opens rings in a throw-away lab.
fn try_rings(back_end: BackEnd) -> Support {
    let (what, needs) = match back_end {
        BackEnd::XdpRing => (
            "AF_XDP rings",
            "a kernel with AF_XDP; CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW; CAP_IPC_LOCK or \
             `ulimit -l` of 8 MiB",
        ),
        BackEnd::GuestUmem => (
            "AF_XDP rings over guest memory",
            "Linux 5.4 or newer with AF_XDP; CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW; CAP_IPC_LOCK \
             or `ulimit -l` of 40 MiB",
        ),
        _ => ("TPACKET_V3 rings", "CAP_NET_RAW"),
    };
    match open_rings(back_end) {
        Ok(()) => Support::Yes,
        Err(error) => Support::unsupported(format!("{what} on a veth ({})", chain(&error)), needs),
    }
}

fn open_rings(back_end: BackEnd) -> Result<(), PathError> {
    let ram = GuestRam::new(RAM_BYTES).map_err(PathError::part)?;
    Topology::new()?.open(back_end, Some(&ram)).map(drop)
}

#[cfg(test)]
mod tests {

    use sys::capability::{self, Capability};

    use super::*;

    #[test]
    fn own_polling_is_refused_on_one_cpu() {
        // Affinity is the thread's own.
        let supported = std::thread::spawn(|| {
            sys::affinity::pin_to(&[0]).expect("CPU 0 is there");
            support(&Arm::with([Switch::OwnPolling]))
        });
        let supported = supported.join().expect("no panic");
        if !tried().is_yes() {
            testkit::skip("kvm", format!("{:?}", tried()));
            return;
        }
        assert!(matches!(&supported, Support::Refused { why } if why.contains("one CPU")));
    }

    #[test]
    fn rings_that_do_not_open_are_unsupported_with_the_reason() {
        if !lab().is_yes() {
            testkit::skip("netns", format!("{:?}", lab()));
            return;
        }
        for (back_end, kind) in [
            (BackEnd::XdpRing, "AF_XDP rings"),
            (BackEnd::PacketRing, "TPACKET_V3 rings"),
            (BackEnd::GuestUmem, "AF_XDP rings over guest memory"),
        ] {
            assert_eq!(try_rings(back_end), Support::Yes);
            // Capabilities are the thread's own: with these, a lab can be made and rings cannot.
            let tried = std::thread::spawn(move || {
                capability::keep(&[Capability::SysAdmin, Capability::NetAdmin])
                    .expect("it has them");
                try_rings(back_end)
            });
            let tried = tried.join().expect("no panic");
            let Support::Unsupported { what, needs } = tried else { panic!("{tried:?}") };
            assert!(what.starts_with(kind) && what.contains("ermi"), "{what}");
            assert!(needs.contains("CAP_NET_RAW"), "{needs}");
        }
    }
}
