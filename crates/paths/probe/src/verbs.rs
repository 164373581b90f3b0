//! XDP verbs as peers of load `storm`: the kernel's own cost of each step, without user space.

use std::thread;
use std::time::{Duration, Instant};

use host::cpu::CpuClock;
use host::net::{snmp_counter, snmp_table};
use io::XdpMode;
use lab::{Cause, Meter, Pair, Placement, settle};
use model::{Load, Measurement, PathError, Throughput};
use sys::bpf::{DropCounter, DropSpec, Verb, VerbProgram};
use sys::thread::start;

use crate::role::{GRACE, GRACE_MAX};
use crate::storm;

/// Names of the peers.
pub(super) const NAMES: &[&str] = &["xdp-drop", "xdp-pass", "xdp-tx", "xdp-devmap", "xdp-cpumap"];

/// Place at which the frames of a verb count as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// By the program itself, which drops them.
    Handled,
    /// By IP input of the far end's stack.
    InStack,
    /// Out of the far end again, at the near end.
    Returned,
    /// On the CPU that the CPU map led to.
    OnCpu,
}

/// Definition of the received figure, for the record.
fn definition(counted: Counted) -> &'static str {
    match counted {
        Counted::Handled => "frames that the program dropped",
        Counted::InStack => "frames that IP input of the far end's stack counted",
        Counted::Returned => "frames that came out again and reached the near end",
        Counted::OnCpu => "frames that a program on the map's CPU counted and dropped",
    }
}

/// A verb at the far end of a lab, until it is dropped.
struct Attached<'a> {
    pair: &'a Pair,
    program: VerbProgram,
    /// Counts frames that return; it also makes the near end take them.
    returned: DropCounter,
    in_stack_before: u64,
    counted: Counted,
}

impl<'a> Attached<'a> {
    /// - `cpu`: target of the CPU map.
    fn new(pair: &'a Pair, name: &str, cpu: u32) -> Result<Self, Cause> {
        let far = &pair.far;
        let (verb, counted) = match name {
            "xdp-drop" => (Verb::Drop, Counted::Handled),
            "xdp-pass" => (Verb::Pass, Counted::InStack),
            "xdp-tx" => (Verb::Tx, Counted::Returned),
            "xdp-devmap" => (Verb::Devmap { ifindex: far.ifindex }, Counted::Returned),
            "xdp-cpumap" => (Verb::Cpumap { cpu }, Counted::OnCpu),
            _ => return Err(format!("no XDP verb {name}; use one of {}", NAMES.join(", ")).into()),
        };
        let returned = pair.near.run(|| {
            let mut returned = DropCounter::load(&DropSpec::default())?;
            returned.attach(pair.near.ifindex, XdpMode::Native)?;
            Ok::<_, Cause>(returned)
        })??;
        let program = far.run(|| {
            let mut program = VerbProgram::load(verb)?;
            program.attach(far.ifindex, XdpMode::Native)?;
            Ok::<_, Cause>(program)
        })??;
        let in_stack_before = in_stack_count(pair)?;
        Ok(Attached { pair, program, returned, in_stack_before, counted })
    }

    /// Frames handled, and frames received as the verb defines it; never more than handled.
    fn counts(&self) -> Result<(u64, u64), Cause> {
        // Before those handled, as frames may still be on their way.
        let received = match self.counted {
            Counted::Handled => None,
            Counted::InStack => {
                Some(in_stack_count(self.pair)?.saturating_sub(self.in_stack_before))
            }
            Counted::Returned => Some(self.returned.counts()?.frames),
            Counted::OnCpu => Some(self.program.counts()?.on_cpu),
        };
        let handled = self.program.counts()?.handled;
        Ok((handled, received.unwrap_or(handled)))
    }

    /// Waits until no more frames arrive. Returns the counts.
    fn settled(&self) -> Result<(u64, u64), Cause> {
        let begun = Instant::now();
        let (mut last, mut since) = (self.counts()?, Instant::now());
        while since.elapsed() < GRACE && begun.elapsed() < GRACE_MAX {
            thread::sleep(Duration::from_millis(1));
            let now = self.counts()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(last)
    }
}

/// Packets that IP input of the far end has seen.
fn in_stack_count(pair: &Pair) -> Result<u64, Cause> {
    let table = pair.far.run(snmp_table)??;
    snmp_counter(&table, "Ip", "InReceives")
        .ok_or_else(|| "/proc/net/snmp has no counter InReceives of Ip".into())
}

/// Runs one trial of a verb. Losses, duplicates and order are not known, and so not reported.
pub(super) fn trial(
    name: &str,
    pair: &Pair,
    load: &Load,
    places: &Placement,
    clock: &CpuClock,
) -> Result<Measurement, PathError> {
    let at_verb = |cause: Cause| PathError::at(name, cause);
    let attached = Attached::new(pair, name, cpu_of(places)).map_err(at_verb)?;
    let meter = Meter::start(clock, &places.both())?;
    let near = thread::scope(|scope| {
        let running = start(scope, "near", || {
            settle(&pair.near, &places.near)?;
            storm::send(pair, 0, load.size_bytes, load.trial)
        });
        running.end()
    });
    let (near, sending) = near.map_err(|cause| PathError::at("near", cause))?;
    let (handled, received_count) = attached.settled().map_err(at_verb)?;
    let used = meter.stop()?;
    let mut m = Measurement { wall_ns: near.wall_ns.max(1), ..Measurement::default() };
    m.throughput = Some(Throughput {
        interval_ns: sending.as_nanos() as u64,
        received_count,
        payload_bytes: received_count * load.size_bytes as u64,
    });
    // The map's thread is in no count of CPU time, so the cost would leave out half of the work.
    if attached.counted != Counted::OnCpu {
        m.costs.insert("near".into(), near.cost);
    }
    m.counters.insert("forward_sent_count".into(), near.sent_count);
    m.counters.insert("far_xdp_handled_count".into(), handled);
    m.mode.insert("far received".into(), definition(attached.counted).into());
    m.mode.insert("far xdp".into(), "native".into());
    used.account(&mut m);
    Ok(m)
}

/// CPU of a CPU map: the far end's, so that the near end keeps its own.
fn cpu_of(places: &Placement) -> u32 {
    places.far.first().and_then(|cpu| u32::try_from(*cpu).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use model::{Arm, Path};
    use testkit::alone;

    use super::*;

    #[test]
    fn every_verb_reports_frames_of_its_own_definition_and_detaches() {
        let _alone = alone();
        let load = testkit::arms::load(&crate::Probe, "storm", Duration::from_millis(20));
        let mut session = crate::Probe.open(&load).expect("a lab");
        for name in NAMES {
            let arm = Arm::peer(*name);
            assert!(crate::Probe.support(&arm, &load).is_yes(), "{name}");
            // Twice: a program that stays attached would refuse the second.
            for _ in 0..2 {
                let m = session.trial(&arm).unwrap_or_else(|why| panic!("{name}: {why}"));
                let sent = m.counters["forward_sent_count"];
                let handled = m.counters["far_xdp_handled_count"];
                let received = m.throughput.expect("a rate").received_count;
                let counts = format!("{name}: {received} of {handled} of {sent}");
                assert!(0 < received && received <= handled && handled <= sent, "{counts}");
                assert_eq!(
                    *name == "xdp-drop",
                    m.mode["far received"].contains("the program dropped")
                );
                assert!(m.deliveries.is_empty(), "{name}");
                assert_eq!(m.costs.is_empty(), *name == "xdp-cpumap", "absent, not too low");
            }
        }
    }
}
