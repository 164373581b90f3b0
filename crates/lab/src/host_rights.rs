//! Switches that need rights on the whole host, which a lab in a user namespace does not have.

use model::Support;
use sys::capability::{self, Capability};

/// Way to all rights that labs and their switches use.
pub const GRANT: &str = "root, or: sudo setcap cap_sys_admin,cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon,cap_sys_nice,\
                         cap_ipc_lock+ep \"$(command -v wirepath)\"";

/// For a BPF program that reads or changes packets.
pub const BPF: &[Capability] = &[Capability::Bpf, Capability::NetAdmin, Capability::Perfmon];

/// Reason that this process cannot have a switch on; `None` if it has the rights. Decided without a trial, so that no trial
/// fails for it. Switches that lack the same right have the same reason.
///
/// - `needed`: capabilities that the kernel requires in the initial user namespace.
pub fn denied(needed: &[Capability]) -> Option<Support> {
    let first = needed.iter().find_map(|one| capability::missing_on_host(&[*one]))?;
    Some(Support::unsupported(format!("no {first} on this host"), GRANT))
}

/// As [`denied`], of a load: nothing of it can run.
pub fn denied_load(load: &str, needed: &[Capability]) -> Option<Support> {
    let missing = capability::missing_on_host(needed)?;
    Some(Support::unsupported(format!("load {load} without {missing} on this host"), GRANT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_named_with_the_way_to_get_it() {
        let rights = [Capability::NetAdmin, Capability::Bpf];
        let reasons = std::thread::spawn(move || {
            capability::keep(&[]).expect("nothing is gained");
            [denied(&rights), denied_load("storm", &rights)].map(|denied| denied?.reason())
        });
        let [switch, load] = reasons.join().expect("no panic").map(|why| why.expect("unsupported"));
        assert!(switch.starts_with("no CAP_NET_ADMIN on this host; needs root, or"), "{switch}");
        assert!(switch.contains("sudo setcap ") && switch.contains("cap_net_admin"), "{switch}");
        assert!(load.starts_with("load storm without CAP_NET_ADMIN and CAP_BPF on"), "{load}");
        assert_eq!(denied(&[]), None);
    }
}
