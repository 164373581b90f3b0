//! Switches that need rights on the whole host, which a lab in a user namespace does not have.

use model::Support;
use sys::capability::{self, Capability};

/// Way to all rights that labs and their switches use.
pub const GRANT: &str = "root, or: sudo setcap cap_sys_admin,cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon,cap_sys_nice,\
                         cap_ipc_lock+ep \"$(command -v wirepath)\"";

/// For a BPF program that reads or changes packets.
pub const BPF: &[Capability] = &[Capability::Bpf, Capability::NetAdmin, Capability::Perfmon];

/// Reason that this process lacks the right to `what`; `None` if it has it. Decided without a trial, so that no trial
/// fails for it.
///
/// - `needed`: capabilities that the kernel requires in the initial user namespace.
pub fn denied(what: &str, needed: &[Capability]) -> Option<Support> {
    let missing = capability::missing_on_host(needed)?;
    Some(Support::unsupported(format!("{what} (no {missing} on this host)"), GRANT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_named_with_the_way_to_get_it() {
        let denied = std::thread::spawn(|| {
            capability::keep(&[]).expect("nothing is gained");
            denied("rps", &[Capability::NetAdmin])
        });
        let why = denied.join().expect("no panic").and_then(|support| support.reason());
        let why = why.expect("unsupported");
        assert!(why.starts_with("rps (no CAP_NET_ADMIN on this host); needs root, or"), "{why}");
        assert!(why.contains("sudo setcap ") && why.contains("cap_net_admin"), "{why}");
        assert_eq!(super::denied("nothing", &[]), None);
    }
}
