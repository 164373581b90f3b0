//! Lab with known faults: a filter in the middle injects and counts them, and the roles' reports
//! are compared with its counts.

use io::{EngineSpec, Role};
use lab::{PairSpec, Triple};
use model::Delivery;
use sys::bpf::{Fault, FaultCounts, FaultFilter, FaultSpec};
use wirepath_probe::role::{Pace, RoleReport};

use super::{ip, run, run_on, tasks, until};

/// Period of each fault in datagrams.
pub(crate) const EVERY: u32 = 25;
/// Datagrams of one paced run: whole periods, and fewer than the receive ring of an AF_XDP socket
/// holds, so that only the filter drops datagrams even while a receiver is descheduled.
pub(crate) const COUNT: u64 = 2_000;
pub(crate) const RATE_PPS: u64 = 8_000;
/// Datagrams of one burst: a veth that receives by NAPI queues 256 and drops the rest.
pub(crate) const BURST: u64 = 200;

/// Drops every 25th datagram and duplicates another of each 25; never the last.
pub(crate) const LOSS: FaultSpec = FaultSpec {
    udp_port: 0,
    drop: Some(Fault { every: EVERY, phase: 7 }),
    duplicate: Some(Fault { every: EVERY, phase: 18 }),
    reorder: None,
};

/// Swaps every 25th datagram with its successor.
pub(crate) const ORDER: FaultSpec = FaultSpec {
    udp_port: 0,
    drop: None,
    duplicate: None,
    reorder: Some(Fault { every: EVERY, phase: 11 }),
};

/// No fault, for the direction that is not tested.
pub(crate) const CLEAN: FaultSpec =
    FaultSpec { udp_port: 0, drop: None, duplicate: None, reorder: None };

/// Near and far ends with a fault filter for each direction between them.
///
/// Packets that pass a filter take one more hop, over a bridge: the kernel skips generic XDP for
/// packets that traffic control has redirected (`netif_receive_generic_xdp`), and only another
/// receive clears that mark. Without the hop an AF_XDP socket in SKB mode would not receive them.
pub(crate) struct FaultyLab {
    // Field order is drop order: the filters are detached before their interfaces are removed.
    forth: FaultFilter,
    back: FaultFilter,
    pub(crate) lab: Triple,
}

impl FaultyLab {
    /// Segmentation offload is off, so that a filter counts datagrams and not GSO bundles.
    pub(crate) fn new(forth: &FaultSpec, back: &FaultSpec, ipv6: bool) -> Self {
        let spec = PairSpec { tso: false, ipv6, ..PairSpec::default() };
        let lab = Triple::new(&spec).expect("a lab");
        let (left, right) = (&lab.middle.near_if, &lab.middle.far_if);
        let attached = lab.middle.netns.run(|| {
            let mut there = FaultFilter::load(forth).expect("load");
            let mut again = FaultFilter::load(back).expect("load");
            there.attach(left.ifindex, hop_to(&right.ifname, "forth")).expect("attach");
            again.attach(right.ifindex, hop_to(&left.ifname, "back")).expect("attach");
            (there, again)
        });
        let (forth, back) = attached.expect("the middle");
        FaultyLab { forth, back, lab }
    }

    /// Injected faults: near to far, far to near.
    pub(crate) fn injected(&self) -> [FaultCounts; 2] {
        [&self.forth, &self.back].map(|f| f.counts().expect("counts"))
    }
}

/// Creates a veth whose other end is bridged to `out`. Returns the index of this end; packets sent
/// to it leave through `out`.
fn hop_to(out: &str, name: &str) -> u32 {
    ip(&format!("link add {name}-in type veth peer name {name}-out"));
    ip(&format!("link add {name}-br type bridge mcast_snooping 0"));
    for port in [out, &format!("{name}-out")] {
        ip(&format!("link set {port} master {name}-br"));
    }
    let hop = ["in", "out", "br"].map(|part| format!("{name}-{part}"));
    for part in &hop {
        ip(&format!("link set {part} up"));
    }
    // A port starts forwarding once the kernel has detected its carrier.
    for port in [out, &hop[1]] {
        let forwards = until(|| ip(&format!("-d link show {port}")).contains("state forwarding"));
        assert!(forwards, "{port} does not forward");
    }
    assert!(until(|| host::net::link_named(&hop[0]).is_ok_and(|l| l.is_running)), "{name}");
    host::net::link_named(&hop[0]).expect("the hop").index
}

/// Injected and reported faults of one direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judged {
    pub(crate) injected: FaultCounts,
    pub(crate) reported: Delivery,
}

impl Judged {
    /// First reported count that does not match the injected faults, if any.
    pub(crate) fn mismatch(&self) -> Option<String> {
        let (i, r) = (&self.injected, &self.reported);
        let checks = [
            ("super-packets that passed whole", i.gso_passed, 0),
            ("datagrams on which the filter failed", i.failed, 0),
            ("datagrams still held", i.held, 0),
            ("sent", r.sent_count, i.seen),
            ("lost", r.lost_count(), i.dropped),
            ("duplicated", r.duplicated_count.unwrap_or(u64::MAX), i.duplicated),
            ("reordered", r.reordered_count, i.reordered),
            ("sent and accounted for", r.first_arrival_count() + i.dropped, i.seen),
        ];
        let wrong = checks.iter().find(|(_, found, truth)| found != truth)?;
        Some(format!("{}: reported {}, expected {}; {self:?}", wrong.0, wrong.1, wrong.2))
    }
}

fn delivery(sent: &RoleReport, arrived: &RoleReport) -> Delivery {
    Delivery { sent_count: sent.sent_count, ..arrived.arrived }
}

/// Sends one way: one paced run, then three bursts. Returns the sums.
pub(crate) fn one_way(
    faults: &FaultSpec,
    engine: &EngineSpec,
    ipv6: bool,
) -> Result<Judged, String> {
    let lab = FaultyLab::new(faults, &CLEAN, ipv6);
    let mut reported = Delivery::default();
    let paced = (Pace::Rate(RATE_PPS), COUNT);
    for (pace, count) in [paced].into_iter().chain([(Pace::Flood, BURST); 3]) {
        let (near, far) = tasks(Role::Send, engine, pace, 64, Some(count));
        let (sent, arrived) = run(&lab.lab.near, &lab.lab.far, &near, &far)?;
        reported += delivery(&sent, &arrived);
    }
    Ok(Judged { injected: lab.injected()[0], reported })
}

/// Pings in an open loop with faults in both directions. Returns forward and return.
pub(crate) fn echo(
    faults: &FaultSpec,
    engine: &EngineSpec,
    ipv6: bool,
) -> Result<[Judged; 2], String> {
    echo_over(FaultyLab::new(faults, faults, ipv6), &[], Pace::Rate(RATE_PPS), engine)
}

/// As [`echo`], at another pace, with CPUs for the near end.
pub(crate) fn echo_on(
    cpus: &[usize],
    pace: Pace,
    faults: &FaultSpec,
    engine: &EngineSpec,
) -> Result<[Judged; 2], String> {
    echo_over(FaultyLab::new(faults, faults, false), cpus, pace, engine)
}

fn echo_over(
    lab: FaultyLab,
    cpus: &[usize],
    pace: Pace,
    engine: &EngineSpec,
) -> Result<[Judged; 2], String> {
    let (near, far) = tasks(Role::Ping, engine, pace, 64, Some(COUNT));
    let (near, far) = run_on(cpus, &lab.lab.near, &lab.lab.far, &near, &far)?;
    let [forth, back] = lab.injected();
    Ok([
        Judged { injected: forth, reported: delivery(&near, &far) },
        Judged { injected: back, reported: delivery(&far, &near) },
    ])
}
