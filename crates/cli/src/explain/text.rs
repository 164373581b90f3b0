//! Tables of `explain`.

use std::fmt::Write;

use host::explain::{StageRow, Summary};

use super::ExplainArgs;

/// A time with its unit.
pub(super) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

pub(super) fn text(summary: &Summary, args: &ExplainArgs) -> String {
    let mut out = String::new();
    let seconds = summary.followed.as_secs_f64();
    let is_service = args.service.is_given();
    let of = if is_service { " of the service" } else { "" };
    let _ = writeln!(
        out,
        "{} packets{of} traced in {seconds:.2} s ({} % of the time), one in {} timed\n",
        summary.packets_count, args.duty, args.timed_one_in
    );
    if !summary.stages.is_empty() {
        let _ =
            writeln!(out, "{:<40}{:>9}{:>9}{:>9}{:>9}", "stage", "packets", "p50", "p99", "max");
        for StageRow { name, count, timed_count, p50_ns, p99_ns, max_ns, .. } in &summary.stages {
            let of_timed = |ns: f64| if *timed_count > 0 { time(ns) } else { "-".to_owned() };
            let [p50, p99, max] = [*p50_ns, *p99_ns, *max_ns as f64].map(of_timed);
            let _ = writeln!(out, "{name:<40}{count:>9}{p50:>9}{p99:>9}{max:>9}");
        }
    }
    let _ = writeln!(out, "\n{:<30}{:<36}{:>10}", "drop reason", "by", "packets");
    for row in &summary.drops {
        let _ = writeln!(out, "{:<30}{:<36}{:>10}", row.reason, row.function, row.count);
        if let Some(sentence) = row.sentence {
            let _ = writeln!(out, "    {sentence}");
        }
    }
    if summary.drops.is_empty() {
        out.push_str("nothing\n");
    }
    if !summary.places.is_empty() {
        let _ = writeln!(out, "\n{:<60}{:>16}", "CPUs were", "of the time");
        for row in &summary.places {
            let _ = writeln!(out, "{:<60}{:>14.1} %", row.name, row.share * 100.0);
        }
        let _ = writeln!(out, "\n{:<60}{:>16}", "busy in function", "of busy time");
        for row in summary.functions.iter().take(args.functions) {
            let _ = writeln!(out, "{:<60}{:>14.1} %", row.name, row.share * 100.0);
        }
    }
    out.push('\n');
    match summary.cost.ns_per_packet() {
        Some(ns) => {
            let _ = writeln!(
                out,
                "Tracing took {ns:.0} ns of CPU time per packet ({:.1} program runs, without their entry \
                 and\nexit; mean of {} packets).",
                summary.cost.runs_count as f64 / summary.cost.packets_count as f64,
                summary.cost.packets_count
            );
        }
        None => out.push_str("The cost of tracing a packet was not counted.\n"),
    }
    if summary.read_unseen_count > 0 {
        let _ = writeln!(
            out,
            "{} datagrams that were read had arrived before tracing began.",
            summary.read_unseen_count
        );
    }
    if is_service && summary.unread_count > 0 {
        let _ = writeln!(
            out,
            "{} datagrams wait in the sockets: they were not read while packets were traced.",
            summary.unread_count
        );
    }
    if summary.evicted_count > 0 {
        let why = match is_service {
            true => "their way to the socket was not seen",
            false => {
                "the kernel merged them or freed them without a report, or the table of packets in\n\
                 flight was full"
            }
        };
        let _ =
            writeln!(out, "{} packets were not traced to their end: {why}.", summary.evicted_count);
    }
    for what in &summary.missing {
        let _ = writeln!(out, "not available here: {what}");
    }
    out
}
