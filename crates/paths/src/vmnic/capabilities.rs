//! What this host can do for a virtual machine, found out by trying.

use std::sync::OnceLock;

use host::lab::TapEnd;
use model::Support;

use super::{image, vmm};
use crate::text::chain;

/// Whether a machine can be made and run, its image is there, and a lab can be built; each with
/// what is missing.
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
        if let Err(error) = image::load() {
            return Support::unsupported(
                format!("starting the guest ({})", chain(&error)),
                "its image: `cargo xtask firmware` builds it",
            );
        }
        lab()
    })
}

/// Whether a lab can be built: that is all that a native loop needs.
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

/// Whether arms can run here: what one needs, all need.
pub(super) fn support() -> Support {
    tried().clone()
}
