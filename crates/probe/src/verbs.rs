//! XDP verbs as peers of load `storm`: the kernel's own cost of each step, without user space. The same by
//! the programs of xdp-tools.

use std::thread;
use std::time::{Duration, Instant};

use host::cpu::CpuClock;
use host::net::{snmp_counter, snmp_table};
use io::XdpMode;
use lab::{End, Meter, Pair, Placement, RunCause, settle};
use model::{Load, Measurement, PathError, Support, Throughput, VERSION_MODE};
use sys::bpf::{DropCounter, DropSpec, Verb, VerbProgram};
use sys::thread::start;

use crate::role::{ARRIVAL_GRACE, ARRIVAL_GRACE_MAX};
use crate::{storm, support, xdp_tools};

/// Names of the peers.
pub(super) const NAMES: &[&str] = &[
    "xdp-drop",
    "xdp-pass",
    "xdp-tx",
    "xdp-devmap",
    "xdp-cpumap",
    "xdp-bench-drop",
    "xdp-bench-pass",
    "xdp-bench-tx",
    xdp_tools::GENERATOR,
];

/// Support for a peer of load `storm`.
pub(super) fn support(name: &str) -> Support {
    match support::verbs() {
        Support::Yes if xdp_tools::is_tool(name) => xdp_tools::support(name),
        support => support,
    }
}

/// Place at which the frames of a verb count as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// By the program itself, which drops them.
    Handled,
    /// By the far end's interface, less those that passed into its stack.
    Dropped,
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
        Counted::Dropped => {
            "frames that the far end's interface handed to the program, less those in its stack"
        }
        Counted::InStack => "frames that IP input of the far end's stack counted",
        Counted::Returned => "frames that came out again and reached the near end",
        Counted::OnCpu => "frames that a program on the map's CPU counted and dropped",
    }
}

/// The program at the far end.
enum Program<'a> {
    Own(VerbProgram),
    Bench(xdp_tools::XdpBench<'a>),
}

impl Program<'_> {
    fn handled_count(&self) -> Result<u64, RunCause> {
        match self {
            Program::Own(program) => Ok(program.counts()?.handled),
            Program::Bench(bench) => bench.handled_count(),
        }
    }

    fn on_cpu_count(&self) -> Result<u64, RunCause> {
        match self {
            Program::Own(program) => Ok(program.counts()?.on_cpu),
            Program::Bench(_) => Ok(0),
        }
    }

    /// CPU time of its process so far, nanoseconds.
    fn cpu_ns(&self) -> u64 {
        match self {
            Program::Own(_) => 0,
            Program::Bench(bench) => bench.cpu_ns(),
        }
    }

    fn end(self) -> Result<(), RunCause> {
        match self {
            Program::Own(_) => Ok(()),
            Program::Bench(bench) => bench.stop(),
        }
    }
}

/// A verb at the far end of a lab, until it is dropped.
struct Attached<'a> {
    pair: &'a Pair,
    program: Program<'a>,
    /// Counts frames that return; it also makes the near end take them.
    returned: DropCounter,
    in_stack_before: u64,
    counted: Counted,
}

impl<'a> Attached<'a> {
    fn new(pair: &'a Pair, name: &str, places: &Placement) -> Result<Self, RunCause> {
        let far = &pair.far;
        let returned = pair.near.run(|| {
            let mut returned = DropCounter::load(&DropSpec::default())?;
            returned.attach(pair.near.ifindex, XdpMode::Native)?;
            Ok::<_, RunCause>(returned)
        })??;
        let (program, counted) = match name {
            "xdp-drop" | xdp_tools::GENERATOR => (attach_own(far, Verb::Drop)?, Counted::Handled),
            "xdp-pass" => (attach_own(far, Verb::Pass)?, Counted::InStack),
            "xdp-tx" => (attach_own(far, Verb::Tx)?, Counted::Returned),
            "xdp-devmap" => {
                (attach_own(far, Verb::Devmap { ifindex: far.ifindex })?, Counted::Returned)
            }
            "xdp-cpumap" => {
                (attach_own(far, Verb::Cpumap { cpu: map_cpu(places) })?, Counted::OnCpu)
            }
            "xdp-bench-drop" => (start_bench(far, "drop", places)?, Counted::Dropped),
            "xdp-bench-pass" => (start_bench(far, "pass", places)?, Counted::InStack),
            "xdp-bench-tx" => (start_bench(far, "tx", places)?, Counted::Returned),
            _ => return Err(format!("no XDP verb {name}; use one of {}", NAMES.join(", ")).into()),
        };
        let in_stack_before = in_stack_count(pair)?;
        Ok(Attached { pair, program, returned, in_stack_before, counted })
    }

    /// Packets that IP input of the far end has seen since the start.
    fn in_stack_count(&self) -> Result<u64, RunCause> {
        Ok(in_stack_count(self.pair)?.saturating_sub(self.in_stack_before))
    }

    /// Frames handled, and frames received as the verb defines it; never more than handled.
    fn counts(&self) -> Result<(u64, u64), RunCause> {
        // Before those handled, as frames may still be on their way.
        let received = match self.counted {
            Counted::Handled | Counted::Dropped => None,
            Counted::InStack => Some(self.in_stack_count()?),
            Counted::Returned => Some(self.returned.counts()?.frames),
            Counted::OnCpu => Some(self.program.on_cpu_count()?),
        };
        let handled = self.program.handled_count()?;
        let passed = if self.counted == Counted::Dropped { self.in_stack_count()? } else { 0 };
        Ok((handled, received.unwrap_or(handled.saturating_sub(passed))))
    }

    /// Waits until no more frames arrive. Returns the counts.
    fn settled(&self) -> Result<(u64, u64), RunCause> {
        let begun = Instant::now();
        let (mut last, mut since) = (self.counts()?, Instant::now());
        while since.elapsed() < ARRIVAL_GRACE && begun.elapsed() < ARRIVAL_GRACE_MAX {
            thread::sleep(Duration::from_millis(1));
            let now = self.counts()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(last)
    }
}

fn attach_own<'a>(far: &End, verb: Verb) -> Result<Program<'a>, RunCause> {
    far.run(|| {
        let mut program = VerbProgram::load(verb)?;
        program.attach(far.ifindex, XdpMode::Native)?;
        Ok(Program::Own(program))
    })?
}

fn start_bench<'a>(far: &'a End, verb: &str, places: &Placement) -> Result<Program<'a>, RunCause> {
    xdp_tools::XdpBench::start(far, verb, &places.far).map(Program::Bench)
}

/// Packets that IP input of the far end has seen.
fn in_stack_count(pair: &Pair) -> Result<u64, RunCause> {
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
    let at_verb = |cause: RunCause| PathError::at(name, cause);
    let attached = Attached::new(pair, name, places).map_err(at_verb)?;
    let before_ns = attached.program.cpu_ns();
    let meter = Meter::start(clock, &places.both())?;
    let (mut m, near_ns) = if name == xdp_tools::GENERATOR {
        generated(&attached, load, places).map_err(at_verb)?
    } else {
        // No process of its own.
        (stormed(&attached, load, places).map_err(|cause| PathError::at("near", cause))?, 0)
    };
    let (handled, _) = attached.settled().map_err(at_verb)?;
    let far_ns = attached.program.cpu_ns().saturating_sub(before_ns);
    let used = meter.stop()?.with_children(near_ns + far_ns);
    m.counters.insert("far_xdp_handled_count".into(), handled);
    m.mode.insert("far received".into(), definition(attached.counted).into());
    m.mode.insert("far xdp".into(), "native".into());
    m.mode.extend(xdp_tools::version(name).map(|it| (VERSION_MODE.to_owned(), it.to_owned())));
    used.account(&mut m);
    attached.program.end().map_err(at_verb)?;
    Ok(m)
}

/// Frames of the lab's own generator.
fn stormed(
    attached: &Attached<'_>,
    load: &Load,
    places: &Placement,
) -> Result<Measurement, RunCause> {
    let pair = attached.pair;
    let (near, sending) = thread::scope(|scope| {
        let running = start(scope, "near", || {
            settle(&pair.near, &places.near)?;
            storm::send(pair, 0, load.size_bytes, load.trial)
        });
        running.end()
    })?;
    let (_, received_count) = attached.settled()?;
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
    Ok(m)
}

/// Frames of `xdp-trafficgen`. Returns the measurement, and the program's CPU time in nanoseconds, which
/// includes its start and so is no cost.
fn generated(
    attached: &Attached<'_>,
    load: &Load,
    places: &Placement,
) -> Result<(Measurement, u64), RunCause> {
    let sent = xdp_tools::generate(attached.pair, load.trial, places, || Ok(attached.counts()?.1))?;
    let interval_ns = (sent.interval.as_nanos() as u64).max(1);
    let mut m = Measurement { wall_ns: interval_ns, ..Measurement::default() };
    m.throughput = Some(Throughput {
        interval_ns,
        received_count: sent.received_count,
        payload_bytes: sent.received_count * xdp_tools::GENERATED_PAYLOAD_BYTES,
    });
    m.mode.insert("near generator".into(), "xdp-trafficgen, IPv6, frames of 64 bytes".into());
    Ok((m, sent.cpu_ns))
}

/// CPU of a CPU map: the far end's, so that the near end keeps its own.
fn map_cpu(places: &Placement) -> u32 {
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
        for name in NAMES.iter().filter(|name| !xdp_tools::is_tool(name)) {
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
