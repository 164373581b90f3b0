//! Plans out of what an interface, its namespace and the machine are set to, for a purpose.

use super::error::KnobError;
use super::knob::{self, Knob};
use super::plan::{LeftOut, Plan, PlanError, SCHEMA, Step, machine_id};
use super::system::System;
use super::target::{Scope, Target};
use super::value::{Value, cpus_to_mask, pairs};
use crate::net::ethtool;
use crate::text::chain;

/// What settings are to be good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Each packet soon.
    Latency,
    /// Many packets to programs of this machine.
    Throughput,
    /// Many packets through this machine.
    Forwarding,
}

impl Profile {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Latency => "latency",
            Profile::Throughput => "throughput",
            Profile::Forwarding => "forwarding",
        }
    }
}

/// What to plan for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Purpose.
    pub profile: Profile,
    /// The only interface that the plan may touch.
    pub interface: Option<&'a str>,
    /// CPU of the application that the packets are for.
    pub app_cpu: Option<usize>,
}

/// Bytes that a socket of a throughput profile may ask for.
const SOCKET_BYTES: i64 = 16 << 20;
/// Flows that RFS follows.
const FLOWS: i64 = 32_768;

/// Makes a plan; nothing is changed.
///
/// Settings of the machine are planned only when no namespace was named: whoever names one means
/// that one.
pub fn plan(system: &System, wanted: Wanted<'_>) -> Result<Plan, PlanError> {
    if let Some(interface) = wanted.interface {
        system.index(interface)?;
    }
    let online = system.online_cpus();
    if let Some(cpu) = wanted.app_cpu.filter(|cpu| !online.contains(cpu)) {
        return Err(KnobError::NoTarget { target: Target::Cpu(cpu as u32) }.into());
    }
    let mut planner = Planner { system, wanted, steps: Vec::new(), left_out: Vec::new() };
    match wanted.profile {
        Profile::Latency => planner.latency(&online),
        Profile::Throughput => planner.throughput(&online),
        Profile::Forwarding => planner.forwarding(&online),
    }
    let (steps, left_out) = (planner.steps, planner.left_out);
    Ok(Plan {
        schema: SCHEMA,
        machine: machine_id(system),
        profile: wanted.profile.name().to_owned(),
        interface: wanted.interface.map(ToOwned::to_owned),
        driver: wanted.interface.map(|interface| system.driver(interface)),
        netns: system.place().netns.clone(),
        steps,
        left_out,
    })
}

struct Planner<'a> {
    system: &'a System,
    wanted: Wanted<'a>,
    steps: Vec<Step>,
    left_out: Vec<LeftOut>,
}

impl Planner<'_> {
    fn latency(&mut self, online: &[usize]) {
        let app = self.wanted.app_cpu;
        self.wish("coalescing", "each packet is worth an interrupt of its own", |_, now| {
            at_once(now)
        });
        self.wish("lro", "merging holds packets back", |_, _| Some("off".into()));
        self.wish(
            "rps-cpus",
            "handing a packet to another CPU costs a wake-up of it, and one flow is never spread",
            |_, _| Some("0".into()),
        );
        self.wish("threaded-napi", "a kernel thread has to be woken first", |_, _| {
            Some("0".into())
        });
        self.wish("gro-flush-timeout", "a timer holds merged packets back", |_, _| {
            Some("0".into())
        });
        self.wish("napi-defer-hard-irqs", "interrupts stay off for that long", |_, _| {
            Some("0".into())
        });
        let beside = app.map(|app| self.beside(app, online));
        if let Some(beside) = beside {
            let mask = cpus_to_mask(&[beside]);
            let why = "interrupts on a CPU near the application's, and not on it";
            self.wish("irq-affinity", why, |_, _| Some(mask.clone()));
        }
        let why = "whoever waits asks the device instead of sleeping until an interrupt";
        self.wish("busy-poll", why, |_, now| at_least(now, 50));
        self.wish("busy-read", why, |_, now| at_least(now, 50));
        self.wish("rmem-max", "a program may ask for room for a burst", |_, now| {
            at_least(now, SOCKET_BYTES / 4)
        });
        let near = |target: &Target| match (target, app) {
            (Target::Cpu(cpu), Some(app)) => *cpu as usize == app || Some(*cpu as usize) == beside,
            _ => true,
        };
        self.wish("governor", "frequency does not have to rise first", |target, _| {
            near(target).then(|| "performance".into())
        });
        self.wish(
            "idle-states",
            "leaving a deep idle state takes longer than a packet",
            |target, now| {
                let shallow = |(state, disable)| {
                    let disable = if state == "state0" { disable } else { "1" };
                    format!("{state}={disable}")
                };
                let states: Vec<_> = pairs(now)?.into_iter().map(shallow).collect();
                near(target).then(|| states.join(" "))
            },
        );
        self.wish(
            "huge-pages",
            "the kernel does not stop a thread to make a huge page",
            |_, now| (now == "always").then(|| "madvise".into()),
        );
    }

    fn throughput(&mut self, online: &[usize]) {
        self.device(online);
        self.wish("tso", "the device cuts large TCP packets", |_, _| Some("on".into()));
        self.wish("gso", "large packets cross the stack whole", |_, _| Some("on".into()));
        self.wish("gro", "the stack takes many packets of a flow at once", |_, _| {
            Some("on".into())
        });
        self.spread(online);
        if self.one_queue_many_cpus(online) {
            let why = "each flow's packets go to the CPU of its program";
            self.wish("rps-flow-count", why, |_, now| at_least(now, FLOWS));
            self.wish("rps-sock-flow-entries", why, |_, now| at_least(now, FLOWS));
        }
        let why = "a program may ask for the room that a long or fast path needs";
        self.wish("rmem-max", why, |_, now| at_least(now, SOCKET_BYTES));
        self.wish("wmem-max", why, |_, now| at_least(now, SOCKET_BYTES));
        let why = "TCP may grow its buffer to what a long or fast path needs";
        for knob in ["tcp-rmem", "tcp-wmem"] {
            self.wish(knob, why, |_, now| {
                let [least, first, most] = now.split_whitespace().collect::<Vec<_>>()[..] else {
                    return None;
                };
                Some(format!("{least} {first} {}", at_least(most, SOCKET_BYTES)?))
            });
        }
        self.wish("governor", "work is done at full frequency", |_, _| Some("performance".into()));
    }

    fn forwarding(&mut self, online: &[usize]) {
        self.device(online);
        self.wish("lro", "what the device merged cannot be forwarded", |_, _| Some("off".into()));
        self.wish("gro", "packets of a flow are forwarded together", |_, _| Some("on".into()));
        self.spread(online);
        let why = "what is forwarded has no socket here to look for";
        for knob in ["ip-early-demux", "udp-early-demux", "tcp-early-demux"] {
            self.wish(knob, why, |_, _| Some("0".into()));
        }
        self.wish("governor", "work is done at full frequency", |_, _| Some("performance".into()));
    }

    /// What helps whenever there are many packets.
    fn device(&mut self, online: &[usize]) {
        let largest =
            self.on_interface(ethtool::rings).map(|r| format!("rx={} tx={}", r.rx_max, r.tx_max));
        self.wish("rings", "a burst finds room while the CPU is busy", |_, _| largest.clone());
        let cpus = online.len() as u32;
        let most = self.on_interface(ethtool::channels).map(|now| {
            let pick = |now: u32, max: u32| now.max(max.min(cpus));
            // Where a device has pairs, they are what counts; some offer both.
            if now.combined_max > 0 {
                return format!("combined={}", pick(now.combined, now.combined_max));
            }
            format!("rx={} tx={}", pick(now.rx, now.rx_max), pick(now.tx, now.tx_max))
        });
        self.wish("channels", "a queue for each CPU", |_, _| most.clone());
        self.wish("coalescing", "the device gathers what arrives together", |_, now| {
            let has = pairs(now)?.iter().any(|(name, _)| *name == "adaptive-rx");
            has.then(|| "adaptive-rx=on".into())
        });
        self.wish("tx-queue-len", "a burst finds room on its way out", |_, now| {
            at_least(now, 1000)
        });
        let why = "a burst waits for the CPU instead of being dropped";
        self.wish("netdev-max-backlog", why, |_, now| at_least(now, 10_000));
        self.wish("netdev-budget", "a softirq run takes more at once", |_, now| at_least(now, 600));
    }

    /// Queues and CPUs: which does what.
    fn spread(&mut self, online: &[usize]) {
        let isolated = self.system.isolated_cpus();
        let app = self.wanted.app_cpu;
        let free = |cpu: &usize| !isolated.contains(cpu) && Some(*cpu) != app;
        let cpus: Vec<usize> = online.iter().copied().filter(free).collect();
        if self.one_queue_many_cpus(online) && !cpus.is_empty() {
            let mask = cpus_to_mask(&cpus);
            let why =
                "one receive queue: its flows are spread over the CPUs (one flow alone is not)";
            self.wish("rps-cpus", why, |_, _| Some(mask.clone()));
        }
        let queues = self.queue_count("tx");
        if queues > 1 {
            let why = "each CPU sends by a queue of its own, without a lock that others want";
            self.wish("xps-cpus", why, |target, _| match target {
                Target::TxQueue(_, queue) => {
                    let own = online.iter().copied().filter(|cpu| cpu % queues == *queue as usize);
                    Some(cpus_to_mask(&own.collect::<Vec<_>>()))
                }
                _ => None,
            });
        }
        let irqs = self.wanted.interface.map(|name| self.system.irqs(name)).unwrap_or_default();
        if irqs.len() > 1 && !cpus.is_empty() {
            self.wish("irq-affinity", "interrupts of the queues on different CPUs", |target, _| {
                let Target::Irq(irq) = target else { return None };
                let place = irqs.iter().position(|listed| listed == irq)?;
                Some(cpus_to_mask(&[cpus[place % cpus.len()]]))
            });
        }
    }

    /// Whether one receive queue is all there can be.
    fn one_queue_many_cpus(&self, online: &[usize]) -> bool {
        let channels = self.on_interface(ethtool::channels).unwrap_or_default();
        let can_have_more = channels.rx_max.max(channels.combined_max) > 1;
        online.len() > 1 && self.queue_count("rx") == 1 && !can_have_more
    }

    fn queue_count(&self, direction: &str) -> usize {
        let listed = self.wanted.interface.map(|name| self.system.queues(name, direction));
        listed.and_then(Result::ok).map_or(0, |queues| queues.len())
    }

    fn on_interface<T: Send>(
        &self,
        ask: impl FnOnce(u32) -> Result<T, crate::net::NetError> + Send,
    ) -> Option<T> {
        let index = self.system.index(self.wanted.interface?).ok()?;
        self.system.within(|| ask(index)).ok()
    }

    /// A CPU that shares a cache with `app`, or at least the memory; `app` itself when it is alone.
    fn beside(&self, app: usize, online: &[usize]) -> usize {
        let isolated = self.system.isolated_cpus();
        let folder = format!("sys/devices/system/cpu/cpu{app}");
        let lists = [
            format!("{folder}/cache/index2/shared_cpu_list"),
            format!("{folder}/cache/index3/shared_cpu_list"),
            format!("{folder}/topology/package_cpus_list"),
        ];
        let near = lists.iter().filter_map(|path| {
            let cpus = super::value::list_to_cpus(&self.system.read_host(path).ok()?)?;
            cpus.into_iter()
                .find(|cpu| *cpu != app && online.contains(cpu) && !isolated.contains(cpu))
        });
        let any = online.iter().copied().find(|cpu| *cpu != app && !isolated.contains(cpu));
        near.into_iter().next().or(any).unwrap_or(app)
    }

    /// Plans a knob at all its targets: `value` says from target and value of now what it should
    /// be, and nothing where it may stay.
    fn wish(
        &mut self,
        id: &'static str,
        reason: &str,
        value: impl Fn(&Target, &str) -> Option<String>,
    ) {
        let Some(knob) = knob::find(id) else { return };
        let is_machines = matches!(knob.scope(), Scope::Host | Scope::Cpu);
        if is_machines && self.system.place().netns.is_some() {
            return self.leave_out(id, "it belongs to the machine: plan without a namespace");
        }
        let needs_interface = !is_machines && knob.scope() != Scope::Netns;
        if needs_interface && self.wanted.interface.is_none() {
            return;
        }
        match knob::targets(knob, self.system, self.wanted.interface) {
            Ok(targets) if targets.is_empty() => self.leave_out(id, "there is none here"),
            Ok(targets) => {
                for target in targets {
                    if let Err(why) = self.wish_at(knob, target, reason, &value) {
                        return self.leave_out(id, &why);
                    }
                }
            }
            Err(error) => self.leave_out(id, &chain(&error)),
        }
    }

    fn wish_at(
        &mut self,
        knob: &'static dyn Knob,
        target: Target,
        reason: &str,
        value: &impl Fn(&Target, &str) -> Option<String>,
    ) -> Result<(), String> {
        let said = |error: KnobError| chain(&error);
        let seen = knob.read(self.system, &target).map_err(said)?;
        let wished = value(&target, seen.as_str()).and_then(Value::new);
        let Some(value) = wished.filter(|v| !knob.format().agrees(v.as_str(), seen.as_str()))
        else {
            return Ok(());
        };
        match knob.probe(self.system, &target) {
            // Who reads the plan may not be who applies it.
            Err(error) if !error.is_denied() => return Err(said(error)),
            _ => {}
        }
        let (knob, reason) = (knob.id().to_owned(), reason.to_owned());
        self.steps.push(Step { knob, target, seen, value, reason });
        Ok(())
    }

    fn leave_out(&mut self, knob: &str, why: &str) {
        self.left_out.push(LeftOut { knob: knob.to_owned(), why: why.to_owned() });
    }
}

/// Coalescing with which each received packet is told at once, of what the device has of it.
pub(super) fn at_once(now: &str) -> Option<String> {
    let quick = pairs(now)?.into_iter().filter_map(|(name, _)| match name {
        "adaptive-rx" => Some("adaptive-rx=off"),
        "rx-usecs" => Some("rx-usecs=0"),
        "rx-frames" => Some("rx-frames=1"),
        _ => None,
    });
    let quick = quick.collect::<Vec<_>>().join(" ");
    (!quick.is_empty()).then_some(quick)
}

/// `least`, unless it is that much already.
fn at_least(now: &str, least: i64) -> Option<String> {
    let now: i64 = now.parse().ok()?;
    Some(now.max(least).to_string())
}
