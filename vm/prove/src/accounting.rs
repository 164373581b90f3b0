//! Measurements made of echoes, of a client, and of what was seen of the machine from outside.

use std::time::Duration;

use lab::program::Usage;
use model::{Delivery, Measurement, Throughput, Trap};
use outside::OutsideCounts;

use crate::client::Served;
use crate::echo::Echoes;

/// Figures of paced echoes or of echoes back to back.
pub(crate) fn echoes(echoes: &Echoes) -> Measurement {
    let mut m = Measurement { wall_ns: echoes.wall_ns.max(1), ..Measurement::default() };
    m.enter_round_trips(Delivery {
        sent_count: echoes.sent_count,
        received_count: echoes.answered_count + echoes.duplicated_count,
        duplicated_count: Some(echoes.duplicated_count),
        reordered_count: 0,
    });
    // As for the mean, a lost one would count as infinitely late.
    if echoes.answered_count == echoes.sent_count {
        m.figures.insert("rtt_ns_mdev".into(), echoes.rtt.stdev());
    }
    m.segments.insert("rtt".into(), echoes.rtt.clone());
    m
}

/// Figures of a flood: of its answers, as their times are of a queue.
pub(crate) fn flooded(flood: &Echoes, payload_bytes: usize) -> Measurement {
    let mut m = echoes(flood);
    m.throughput = Some(Throughput {
        interval_ns: flood.wall_ns,
        received_count: flood.answered_count,
        payload_bytes: flood.answered_count.saturating_mul(payload_bytes as u64),
    });
    m
}

/// Figures of one start.
pub(crate) fn started(first_answer: Duration) -> Measurement {
    let mut m = Measurement { wall_ns: first_answer.as_nanos() as u64, ..Measurement::default() };
    let why = "pings to a guest that starts go unanswered until it has started";
    m.refused.insert("lost_count".into(), why.into());
    m.figures.insert("start_ns_mean".into(), first_answer.as_nanos() as f64);
    m
}

/// Figures of the user's client.
///
/// - `frame_count`: frames of the near side in both directions.
pub(crate) fn served(served: &Served<'_>, frame_count: u64) -> Measurement {
    let wall_ns = served.client.wall.as_nanos() as u64;
    let mut m = Measurement { wall_ns: wall_ns.max(1), ..Measurement::default() };
    m.packet_count = Some(frame_count);
    m.figures.insert("client_wall_ns".into(), wall_ns as f64);
    for (figure, value) in &served.figures {
        figure.enter(*value, &mut m);
    }
    m
}

/// Counts from outside that are also given for each packet, with the name of that figure.
const SHARED: [(&str, &str); 10] = [
    ("outside_main_cpu_ns", "main_cpu_ns_per_packet"),
    ("outside_main_wait_ns", "main_wait_ns_per_packet"),
    ("outside_vcpu_cpu_ns", "vcpu_cpu_ns_per_packet"),
    ("outside_vcpu_wait_ns", "vcpu_wait_ns_per_packet"),
    ("outside_doorbells_count", "doorbells_per_packet"),
    ("outside_interrupts_count", "interrupts_per_packet"),
    ("outside_exits_count", "exits_per_packet"),
    ("outside_process_exits_count", "process_exits_per_packet"),
    ("outside_injections_count", "injections_per_packet"),
    ("outside_halts_count", "halts_per_packet"),
];

/// Use of the machine in a trial.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) text_bytes: Option<u64>,
    pub(crate) usage: Usage,
    pub(crate) console_bytes: u64,
    /// `None` if the file does not want them.
    pub(crate) counts: Option<OutsideCounts>,
    /// Reason that its processes have no control group.
    pub(crate) no_cgroup: Option<String>,
}

/// Adds what was seen of the machine.
pub(crate) fn add_machine(m: &mut Measurement, seen: &Seen) {
    let usage = &seen.usage;
    m.costs.insert("machine".into(), usage.cost());
    m.figures.insert("machine_cpu_ns".into(), usage.cpu_ns() as f64);
    m.figures.extend(seen.text_bytes.map(|bytes| ("image_text_bytes".into(), bytes as f64)));
    m.counters.insert("console_bytes".into(), seen.console_bytes);
    let counted = seen.counts.as_ref().map(OutsideCounts::figures).unwrap_or_default();
    if let Some(packets) = m.packet_count.filter(|packets| *packets > 0) {
        let packets = packets as f64;
        let characters = seen.console_bytes as f64 / packets;
        m.figures.insert("console_characters_per_packet".into(), characters);
        let shared = SHARED.iter().filter_map(|(from, to)| Some((to, counted.get(*from)?)));
        m.figures.extend(shared.map(|(to, amount)| ((*to).to_owned(), amount / packets)));
    }
    m.figures.extend(counted);
    if let Some(counts) = &seen.counts {
        m.segments.extend(counts.segments());
        if !counts.missing.is_empty() {
            m.mode.insert("not counted".into(), counts.missing.join("; "));
        }
    }
    m.traps.extend(seen.no_cgroup.iter().map(|why| Trap {
        what: format!("the machine has no control group: {why}"),
        advice: "read its CPU time as without children of processes that ignore SIGCHLD".into(),
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn five(answered_count: u64) -> Echoes {
        let mut rtt = model::latency_histogram();
        for _ in 0..answered_count {
            rtt.record(1_000_000).unwrap();
        }
        Echoes {
            sent_count: 5,
            answered_count,
            duplicated_count: 0,
            rtt,
            wall_ns: 1_000_000_000,
            is_last_answered: answered_count == 5,
        }
    }

    fn value(m: &Measurement, name: &str) -> Result<f64, String> {
        let metrics = m.metrics();
        metrics.iter().find(|metric| metric.name == name).expect("it is there").value.clone()
    }

    #[test]
    fn an_echo_that_was_lost_leaves_no_mean_and_no_deviation() {
        let whole = echoes(&five(5));
        assert_eq!((value(&whole, "lost_count"), value(&whole, "rtt_ns_mdev")), (Ok(0.0), Ok(0.0)));
        let part = echoes(&five(4));
        assert_eq!(value(&part, "lost_count"), Ok(1.0));
        assert!(value(&part, "rtt_ns_mean").is_err() && !part.figures.contains_key("rtt_ns_mdev"));
    }

    #[test]
    fn cpu_time_and_characters_are_shared_by_the_packets_of_answered_echoes() {
        let mut m = flooded(&five(5), 56);
        let usage = Usage {
            user_ns: 7_000,
            system_ns: 3_000,
            context_switch_count: 20,
            memory_bytes_max: None,
            counted_by: lab::program::CountedBy::Cgroup,
            memory_counted_by: lab::program::CountedBy::Rusage,
            hardware: None,
        };
        let seen = Seen {
            text_bytes: Some(18_000),
            usage,
            console_bytes: 850,
            counts: None,
            no_cgroup: None,
        };
        add_machine(&mut m, &seen);
        assert_eq!(value(&m, "cpu_ns_per_packet"), Ok(1000.0));
        assert_eq!(value(&m, "console_characters_per_packet"), Ok(85.0));
        assert_eq!(value(&m, "received_pps"), Ok(5.0));
        assert_eq!(m.traps, []);
    }
}
