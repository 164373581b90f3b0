//! Converts the reports of both ends into one measurement.

use host::irq_suspend::IrqSuspend;
use io::Role;
use lab::Used;
use model::{Delivery, Measurement, NotEffective};

use crate::Switch;
use crate::role::{Pace, RoleReport};

pub use model::ROUND_TRIP;

/// Combines the reports of both ends.
///
/// - `role`: of the near end.
///
/// Without the far end's report the arrivals there are not known. Pings are then counted as round trips;
/// a sender alone has no delivery; for a receiver alone the highest sequence number of each flow says
/// how many were sent at least.
pub fn measurement(role: Role, near: RoleReport, far: Option<RoleReport>) -> Measurement {
    let mut m = Measurement { wall_ns: near.wall_ns.max(1), ..Measurement::default() };
    let pings = role == Role::Ping;
    let echoed = pings || far.as_ref().is_some_and(|f| f.sent_count > 0);
    match &far {
        Some(far) => {
            let forward = Delivery { sent_count: near.sent_count, ..far.arrived };
            m.deliveries.insert("forward".into(), forward);
            if echoed {
                let back = Delivery { sent_count: far.sent_count, ..near.arrived };
                m.deliveries.insert("return".into(), back);
            }
        }
        None if pings => {
            let round_trip = Delivery { sent_count: near.sent_count, ..near.arrived };
            m.deliveries.insert(ROUND_TRIP.into(), round_trip);
        }
        None if role == Role::Send => {}
        None => {
            let forward = Delivery { sent_count: near.expected_count, ..near.arrived };
            m.deliveries.insert("forward".into(), forward);
        }
    }
    if near.sent_count > 0 {
        m.counters.insert("forward_sent_count".into(), near.sent_count);
    }
    for (direction, delivery) in &m.deliveries {
        if direction != ROUND_TRIP {
            m.counters.insert(format!("{direction}_sent_count"), delivery.sent_count);
        }
    }
    let mut reports = vec![("near", near)];
    reports.extend(far.map(|far| ("far", far)));
    for (end, report) in reports {
        let receives = if echoed { end == "near" } else { report.arrived.received_count > 0 };
        if receives {
            m.jitter_ns = report.jitter_ns;
            m.segments = report.segments;
            if !echoed {
                m.throughput = Some(report.throughput);
            }
        }
        m.costs.insert(end.into(), report.cost);
        m.counters.insert(format!("{end}_too_old_count"), report.too_old_count);
        let engine = report.engine;
        for (name, value) in engine.mode {
            m.mode.insert(format!("{end} {name}"), value);
        }
        for (name, value) in engine.counters {
            m.counters.insert(format!("{end}_{name}"), value);
        }
        if let Some(ledger) = engine.ledger {
            m.enter_balance(&format!("{end}_ledger"), ledger.balances());
        }
        for (switch, why) in engine.not_effective {
            if !m.not_effective.iter().any(|n| n.switch == switch) {
                m.not_effective.push(NotEffective { switch, why: format!("{end} end: {why}") });
            }
        }
    }
    m
}

/// As [`measurement`], with the CPU time of the kernel and of other processes, and with the rates
/// of both directions of a load with a window.
pub(super) fn combine(
    (role, pace): (Role, Pace),
    near: RoleReport,
    far: RoleReport,
    used: &Used,
) -> Measurement {
    let arrived = (near.throughput, far.throughput);
    let mut m = measurement(role, near, Some(far));
    if let Pace::Window(_) = pace {
        let (back, forth) = arrived;
        m.throughput = Some(back);
        m.enter_rates("return", back);
        m.enter_rates("forward", forth);
        // The buffer is the load's own, not a switch's.
        m.not_effective.retain(|n| n.switch != "big-rcvbuf");
    }
    used.account(&mut m);
    m
}

/// The measurement of a near end that receives.
///
/// - `sent`: report of the far end, which sends.
pub fn received_from(near: RoleReport, sent: RoleReport) -> Measurement {
    let mut m = measurement(Role::Send, sent, Some(near));
    m.costs = m.costs.into_iter().map(|(end, cost)| (swapped(&end), cost)).collect();
    m.counters = m.counters.into_iter().map(|(name, n)| (swapped(&name), n)).collect();
    m.mode = m.mode.into_iter().map(|(name, value)| (swapped(&name), value)).collect();
    for switch in &mut m.not_effective {
        switch.why = swapped(&switch.why);
    }
    m
}

/// A name that begins with one end, with the other one.
fn swapped(name: &str) -> String {
    match (name.strip_prefix("near"), name.strip_prefix("far")) {
        (Some(rest), _) => format!("far{rest}"),
        (_, Some(rest)) => format!("near{rest}"),
        _ => name.to_owned(),
    }
}

/// As [`received_from`], with the CPU time of the kernel and of other processes.
pub(super) fn received(near: RoleReport, sent: RoleReport, used: &Used) -> Measurement {
    let mut m = received_from(near, sent);
    used.account(&mut m);
    m
}

/// The switch `irq-suspend`, if the near end's socket was served by none of the NAPI instances that it sets.
pub fn not_suspended(m: &Measurement, held: &IrqSuspend) -> Option<NotEffective> {
    let napi = m.mode.get("near napi id")?;
    if held.napi_ids().iter().any(|id| id.to_string() == *napi) {
        return None;
    }
    let why = format!(
        "near end: the socket's NAPI instance is {napi}, and those of the interface are {:?}",
        held.napi_ids()
    );
    Some(NotEffective::new(Switch::IrqSuspend, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_a_receiver_have_their_own_names() {
        let sent = RoleReport { sent_count: 7, ..RoleReport::default() };
        let arrived = Delivery { received_count: 5, ..Delivery::default() };
        let mut near = RoleReport { arrived, too_old_count: 3, ..RoleReport::default() };
        near.engine.not_effective = vec![("gso".into(), "no GRO".into())];
        near.cost.user_ns = 11;
        let m = received_from(near, sent);
        let forward = m.deliveries["forward"];
        assert_eq!((forward.sent_count, forward.received_count), (7, 5));
        assert_eq!((m.costs["near"].user_ns, m.counters["near_too_old_count"]), (11, 3));
        assert_eq!(m.not_effective[0].why, "near end: no GRO");
    }
}
