//! Runs of netfilter's hooks.

use serde::Serialize;
use sys::bpf::HookFunction;
use sys::bpf::observer::HookCounts;

use super::Observed;

/// Runs of one hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ObservedHook {
    /// `ip`, `ip6`, `bridge`, `arp` or `netdev`.
    pub family: &'static str,
    /// `prerouting`, `input`, `forward`, `output`, `postrouting` or `ingress`.
    pub hook: &'static str,
    /// Frames that ran it.
    pub runs_count: u64,
    /// Functions that these runs had to call.
    pub functions_count: u64,
    /// Computed as frames times hooked functions, because the kernel does not let programs trace its functions.
    pub is_computed: bool,
}

/// Source: linux/netfilter.h: NFPROTO_*, nf_inet_hooks, nf_dev_hooks; linux/netfilter_arp.h.
pub(super) fn rows(counts: &[HookCounts]) -> Vec<ObservedHook> {
    const INET: [&str; 6] = ["prerouting", "input", "forward", "output", "postrouting", "ingress"];
    let row = |one: &HookCounts| {
        let (family, hooks) = match one.family {
            2 => ("ip", &INET[..]),
            3 => ("arp", &["input", "output", "forward"][..]),
            5 => ("netdev", &["ingress", "egress"][..]),
            7 => ("bridge", &INET[..5]),
            10 => ("ip6", &INET[..]),
            _ => return None,
        };
        Some(ObservedHook {
            family,
            hook: hooks.get(usize::from(one.hook))?,
            runs_count: one.runs,
            functions_count: one.functions,
            is_computed: false,
        })
    };
    counts.iter().filter_map(row).collect()
}

/// Runs of the hooks that every frame passes: those in front of and behind routing and bridging.
pub(super) fn computed(functions: &[HookFunction], observed: &Observed) -> Vec<ObservedHook> {
    let received = observed.interfaces.iter().map(|one| one.received.count).sum();
    let sent = observed.interfaces.iter().map(|one| one.sent.count).sum();
    let mut rows = Vec::<ObservedHook>::new();
    for function in functions {
        let runs_count = match function.hook {
            "prerouting" => received,
            "postrouting" => sent,
            _ => continue,
        };
        let (family, hook) = (function.family, function.hook);
        match rows.iter_mut().find(|row| (row.family, row.hook) == (family, hook)) {
            Some(row) => row.functions_count += runs_count,
            None => rows.push(ObservedHook {
                family,
                hook,
                runs_count,
                functions_count: runs_count,
                is_computed: true,
            }),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_have_the_names_of_their_family_and_unknown_ones_are_left_out() {
        let count = |family, hook| HookCounts { family, hook, runs: 3, functions: 6 };
        let all = rows(&[count(2, 0), count(7, 4), count(3, 2), count(7, 5), count(12, 0)]);
        let names: Vec<_> = all.iter().map(|row| (row.family, row.hook)).collect();
        assert_eq!(names, [("ip", "prerouting"), ("bridge", "postrouting"), ("arp", "forward")]);
    }
}
