//! IPsec: packets that no policy or state fits.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses};
use crate::causes::finding::{Notes, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "IPsec drops packets: they do not match a policy or a state",
    symptom: "a VPN is up and its packets vanish, in one direction or after a change of keys; no interface counts a drop",
    evidence: "/proc/net/xfrm_stat, whose counter says which side and what did not match; `ip xfrm policy`, \
               `ip xfrm state`",
    remedy: "a policy, template or state that fits, by the counter: see `ip -s xfrm state` and `ip xfrm policy`",
    undo: "the old policy",
    counters: &[
        "XfrmInNoStates",
        "XfrmInNoPols",
        "XfrmInTmplMismatch",
        "XfrmInPolBlock",
        "XfrmInStateSeqError",
        "XfrmInStateProtoError",
        "XfrmInStateMismatch",
        "XfrmOutNoStates",
        "XfrmOutPolBlock",
    ],
    reasons: &["XFRM_POLICY"],
    references: &[
        "Documentation/networking/xfrm_proc.rst",
        "cilium/cilium#27276",
        "strongswan/strongswan#2647",
    ],
    is_of_forwarding: true,
    ..Cause::new("xfrm", check)
};

/// Counters with their sentence and remedy.
///
/// Source: Documentation/networking/xfrm_proc.rst.
const COUNTERS: [(&str, &str, &str); 12] = [
    (
        "XfrmInNoPols",
        "arrived through a state, and no policy is there for what was inside",
        "add the policy (`ip xfrm policy add ... dir in`, and `dir fwd` on a gateway) for the inner addresses",
    ),
    (
        "XfrmInTmplMismatch",
        "matched a policy and came in another form than its template wants, such as in clear",
        "compare the templates of `ip xfrm policy` with `ip xfrm state`: mode, protocol, reqid and mark have to be equal; \
         or let the far end encrypt",
    ),
    (
        "XfrmInNoStates",
        "came with an SPI that no state has",
        "renew the keys at both ends: the far end uses a state that is gone here; check marks",
    ),
    (
        "XfrmInPolBlock",
        "were blocked by a policy",
        "`ip xfrm policy` with `action block`: remove it, or add one with a higher priority",
    ),
    (
        "XfrmInStateSeqError",
        "had a sequence number outside of the replay window",
        "a larger replay-window in the state (packets overtake each other), or renew the keys",
    ),
    (
        "XfrmInStateProtoError",
        "could not be decrypted or authenticated",
        "renew the keys: those of the two ends differ",
    ),
    (
        "XfrmInStateModeError",
        "had another mode than their state",
        "the same mode (transport or tunnel) at both ends",
    ),
    (
        "XfrmInStateMismatch",
        "matched a state with another encapsulation or selector",
        "the same encapsulation (UDP or none) at both ends",
    ),
    (
        "XfrmInStateExpired",
        "came by a state that has expired",
        "let the daemon renew the keys earlier",
    ),
    (
        "XfrmOutNoStates",
        "have a policy and no state, so that they cannot be encrypted",
        "start the key exchange (`ipsec up`, `swanctl --initiate`), or add the state",
    ),
    (
        "XfrmOutPolBlock",
        "were blocked by a policy on their way out",
        "`ip xfrm policy` with `action block`: remove it, or add one with a higher priority",
    ),
    (
        "XfrmOutStateExpired",
        "had a state that has expired",
        "let the daemon renew the keys earlier",
    ),
];

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let mut known = Vec::new();
    for (name, what, change) in COUNTERS {
        let lost = window.sum(&[name]);
        known.push(name);
        if lost.total > 0 {
            find(notes, lost, name, what, change);
        }
    }
    let others = window.of_prefix("Xfrm").filter(|(name, lost)| {
        lost.total > 0 && !known.iter().any(|known| known.strip_prefix("Xfrm") == Some(*name))
    });
    // Counters of states and policies are errors, all of them.
    let others: Vec<(String, Losses)> =
        others.map(|(name, lost)| (format!("Xfrm{name}"), lost)).collect();
    for (name, lost) in others {
        find(
            notes,
            lost,
            &name,
            "failed in IPsec",
            "see Documentation/networking/xfrm_proc.rst for the counter",
        );
    }
}

fn find(notes: &mut Notes<'_>, lost: Losses, name: &str, what: &str, change: &str) {
    notes.find(
        finding(lost.severity(), format!("{} ({name})", lost.sentence(&format!("packets {what}"))))
            .counted(lost, "packets")
            .read(format!("/proc/net/xfrm_stat: {name}"), lost.evidence())
            .because("IPsec drops what no policy and state fit, and no interface counts it (Documentation/networking/xfrm_proc.rst)")
            .effect("the packets pass")
            .risk("a policy that is too wide lets packets in clear through")
            .change(change, "the old policy or state: `ip xfrm policy` and `ip xfrm state` before the change"),
    );
}
