//! Packets that a queueing discipline drops: full send queues, and filters at ingress.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses};
use crate::causes::finding::{Finding, Notes, finding};
use crate::net::{Link, QdiscState};

pub(super) const CAUSE: Cause = Cause {
    title: "A queueing discipline drops packets: a full send queue, or a filter at ingress",
    symptom: "a program's datagrams are lost on the way out, sendto fails with ENOBUFS, or packets that a \
              capture shows reach no program",
    evidence: "`tc -s qdisc`: dropped and overlimits of the root, ingress or clsact discipline; drop reasons \
               QDISC_DROP, QDISC_OVERLIMIT, TC_INGRESS, TC_EGRESS",
    remedy: "a longer queue or a faster link for bursts, a slower sender for a lasting overload; the filter or \
             policer that drops at ingress",
    undo: "the old limit or filter",
    counters: &["tx_dropped"],
    reasons: &[
        "QDISC_DROP",
        "QDISC_OVERLIMIT",
        "QDISC_CONGESTED",
        "TC_INGRESS",
        "TC_EGRESS",
        "TC_CLS_ACT",
    ],
    references: &["tc(8)", "tc-pfifo(8)", "tc-police(8)"],
    is_of_forwarding: true,
    ..Cause::new("qdisc-drops", check)
};

/// Disciplines that drop on purpose: to keep queues short. Shapers and fq have findings of their own.
const ON_PURPOSE: [&str; 7] = ["fq", "fq_codel", "fq_pie", "codel", "cake", "red", "pie"];
/// Drops a second of such a discipline from which it is overloaded.
const MANY_PER_S: f64 = 1000.0;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    for (before, now) in window.qdiscs().filter(|(_, now)| now.drop_count > 0) {
        let is_top = now.is_root() || now.kind == "ingress" || now.kind == "clsact";
        let Some(link) = view.on_path(now.interface) else { continue };
        if !is_top || now.limits.is_some() {
            continue;
        }
        let earlier = before.map_or(now.drop_count, |before| before.drop_count);
        let lost = window.losses(earlier.into(), now.drop_count.into());
        let mut own = window.after.qdiscs.iter().filter(|one| one.interface == link.index);
        let on_purpose = own.any(|one| ON_PURPOSE.contains(&one.kind.as_str()));
        if on_purpose && lost.per_second() < MANY_PER_S {
            continue;
        }
        notes.find(judge(link, now, lost, &view.prefix()));
    }
}

fn judge(link: &Link, now: &QdiscState, lost: Losses, prefix: &str) -> Finding {
    let (name, kind) = (&link.name, &now.kind);
    let tc = format!("{prefix}tc");
    let is_ingress = kind == "ingress" || kind == "clsact";
    let (what, change, undo) = if is_ingress {
        (
            lost.sentence(&format!(
                "packets were dropped by a filter or policer of tc at {name} ({kind})"
            )),
            format!(
                "{tc} -s filter show dev {name} ingress   (names it; then {tc} filter del dev {name} ingress \
                 pref N)"
            ),
            format!("{tc} filter add with the words that it showed"),
        )
    } else {
        let limit = now.own("limit").map_or(String::new(), |limit| format!(" limit {limit}"));
        let change = match kind.as_str() {
            "pfifo" | "bfifo" => {
                let longer = now.own("limit").unwrap_or(1000) * 4;
                format!("{tc} qdisc change dev {name} root {kind} limit {longer}")
            }
            _ => format!("{prefix}ip link set {name} txqueuelen {}", 10_000),
        };
        let undo = match kind.as_str() {
            "pfifo" | "bfifo" => format!("{tc} qdisc change dev {name} root {kind}{limit}"),
            _ => format!("{prefix}ip link set {name} txqueuelen 1000"),
        };
        let what = format!("packets did not fit the send queue of {name} ({kind}{limit})");
        (lost.sentence(&what), change, undo)
    };
    let found = finding(lost.severity(), what)
        .counted(lost, "packets")
        .read(format!("RTM_GETQDISC of {name}: drops of the {kind}"), lost.evidence())
        .read(format!("RTM_GETQDISC of {name}: overlimits"), now.overlimit_count.to_string())
        .change(change, undo);
    if is_ingress {
        found
            .because("the filter's action is drop, or the rate of its policer is exceeded (tc-police(8))")
            .effect("the packets reach the stack")
            .risk("a policer protects the host: ask its author")
    } else {
        found
            .because("the program or the routed traffic is faster than the link, and the queue is full (tc(8))")
            .effect("bursts wait instead of being lost; a lasting overload still drops")
            .risk("a longer queue adds latency to every packet")
    }
}
