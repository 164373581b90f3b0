//! Plans for a purpose, made from the current settings.

use std::collections::BTreeMap;

use super::error::KnobError;
use super::knob::Knob;
use super::plan::{LeftOut, Plan, PlanError, SCHEMA, Step, machine_id};
use super::registry;
use super::system::System;
use super::target::{Scope, Target};
use super::value::{Value, cpus_to_mask, pairs};
use crate::net::ethtool;
use crate::text::chain;

/// Purpose of the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Profile {
    /// Low latency of each packet.
    Latency,
    /// High packet rates to programs of this machine.
    Throughput,
    /// High packet rates through this machine.
    Forwarding,
    /// Requests over TCP to a program of this machine.
    Service,
}

impl Profile {
    pub fn name(self) -> &'static str {
        match self {
            Profile::Latency => "latency",
            Profile::Throughput => "throughput",
            Profile::Forwarding => "forwarding",
            Profile::Service => "service",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub profile: Profile,
    /// The only interface that the plan may touch.
    pub interface: Option<&'a str>,
    /// CPU of the application that receives the packets.
    pub app_cpu: Option<usize>,
}

/// Maximum socket buffer of the throughput profile, bytes.
const SOCKET_BYTES: i64 = 16 << 20;
const FLOWS: i64 = 32_768;
/// Backlog of listeners of the service profile: the kernel's own since Linux 5.4.
const LISTEN_BACKLOG: i64 = 4096;
/// Unsent bytes of a connection of the service profile.
const UNSENT_BYTES: i64 = 131_072;

/// Makes a plan without changing anything.
///
/// Settings of the machine are planned only if no namespace was named.
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
        Profile::Service => planner.service(),
    }
    let (steps, left_out) = (planner.steps, planner.left_out);
    Ok(Plan {
        schema: SCHEMA,
        machine: machine_id(system),
        profile: wanted.profile.name().to_owned(),
        interface: wanted.interface.map(ToOwned::to_owned),
        driver: wanted.interface.map(|interface| system.driver(interface)),
        other_interfaces: Vec::new(),
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
        self.wish("coalescing", "each packet raises an interrupt at once", |_, now| at_once(now));
        self.wish("lro", "merging delays packets", |_, _| Some("off".into()));
        self.wish(
            "rps-cpus",
            "passing a packet to another CPU costs a wake-up, and one flow is never spread",
            |_, _| Some("0".into()),
        );
        self.wish("threaded-napi", "a kernel thread would have to be woken first", |_, _| {
            Some("0".into())
        });
        self.wish("gro-flush-timeout", "a timer delays merged packets", |_, _| Some("0".into()));
        self.wish("napi-defer-hard-irqs", "interrupts stay disabled for that long", |_, _| {
            Some("0".into())
        });
        let beside = app.map(|app| self.beside(app, online));
        if let Some(beside) = beside {
            let mask = cpus_to_mask(&[beside]);
            let why = "interrupts on a CPU near the application's, and not on it";
            self.wish("irq-affinity", why, |_, _| Some(mask.clone()));
        }
        let why = "a waiting program polls the device instead of sleeping until an interrupt";
        self.wish("busy-poll", why, |_, now| at_least(now, 50));
        self.wish("busy-read", why, |_, now| at_least(now, 50));
        self.wish("rmem-max", "a program may request a buffer for a burst", |_, now| {
            at_least(now, SOCKET_BYTES / 4)
        });
        let near = |target: &Target| match (target, app) {
            (Target::Cpu(cpu), Some(app)) => *cpu as usize == app || Some(*cpu as usize) == beside,
            _ => true,
        };
        self.wish("governor", "the frequency does not have to rise first", |target, _| {
            near(target).then(|| "performance".into())
        });
        self.wish(
            "idle-states",
            "leaving a deep idle state takes longer than a packet",
            |target, now| {
                let states: Vec<_> = pairs(now)?
                    .into_iter()
                    .map(|(state, disable)| {
                        let disable = if state == "state0" { disable } else { "1" };
                        format!("{state}={disable}")
                    })
                    .collect();
                near(target).then(|| states.join(" "))
            },
        );
        self.wish(
            "huge-pages",
            "a thread does not wait for the kernel to assemble a huge page",
            |_, now| (now == "always").then(|| "madvise".into()),
        );
    }

    fn throughput(&mut self, online: &[usize]) {
        self.device(online);
        self.wish("tso", "the device splits large TCP packets", |_, _| Some("on".into()));
        self.wish("gso", "large packets cross the stack in one piece", |_, _| Some("on".into()));
        self.wish("gro", "the stack processes many packets of a flow at once", |_, _| {
            Some("on".into())
        });
        self.spread(online);
        if self.one_queue_many_cpus(online) {
            let why = "each flow's packets go to the CPU of its program";
            self.wish("rps-flow-count", why, |_, now| at_least(now, FLOWS));
            self.wish("rps-sock-flow-entries", why, |_, now| at_least(now, FLOWS));
        }
        let why = "a program may request the buffer that a long or fast path needs";
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
        self.wish("lro", "packets that the device merged cannot be forwarded", |_, _| {
            Some("off".into())
        });
        self.wish("gro", "packets of a flow are forwarded together", |_, _| Some("on".into()));
        self.spread(online);
        let why = "forwarded packets have no socket here to look up";
        for knob in ["ip-early-demux", "udp-early-demux", "tcp-early-demux"] {
            self.wish(knob, why, |_, _| Some("0".into()));
        }
        self.wish("governor", "work is done at full frequency", |_, _| Some("performance".into()));
    }

    /// Settings that help some services and harm others: candidates for a proof.
    fn service(&mut self) {
        self.wish(
            "somaxconn",
            "to be proved: a burst of connections waits for accept()",
            |_, now| at_least(now, LISTEN_BACKLOG),
        );
        let why = "to be proved: data that is not sent yet stays in the program, which can still choose what goes first";
        self.wish("tcp-notsent-lowat", why, |_, now| at_most(now, UNSENT_BYTES));
        let control = registry::find("tcp-congestion-control")
            .and_then(|knob| knob.read(self.system, &Target::Netns).ok());
        if control.is_some_and(|name| name.as_str() == "bbr") {
            self.leave_out(
                "tcp-slow-start-after-idle",
                "bbr, the congestion control here, ignores it",
            );
        } else {
            let why = "to be proved: a connection that was idle answers with the window that it had before";
            self.wish("tcp-slow-start-after-idle", why, |_, _| Some("0".into()));
            let why = "to be proved: bbr does not take a lost packet for a full path";
            self.wish("tcp-congestion-control", why, |_, _| Some("bbr".into()));
        }
    }

    /// Settings for high packet rates.
    fn device(&mut self, online: &[usize]) {
        let largest =
            self.on_interface(ethtool::rings).map(|r| format!("rx={} tx={}", r.rx_max, r.tx_max));
        self.wish("rings", "a burst fits while the CPU is busy", |_, _| largest.clone());
        let cpus = online.len() as u32;
        let most = self.on_interface(ethtool::channels).map(|now| {
            let pick = |now: u32, max: u32| now.max(max.min(cpus));
            // Some devices offer pairs and single queues; pairs are preferred.
            if now.combined_max > 0 {
                return format!("combined={}", pick(now.combined, now.combined_max));
            }
            format!("rx={} tx={}", pick(now.rx, now.rx_max), pick(now.tx, now.tx_max))
        });
        self.wish("channels", "a queue for each CPU", |_, _| most.clone());
        self.wish(
            "coalescing",
            "the device reports packets that arrive together at once",
            |_, now| {
                let has = pairs(now)?.iter().any(|(name, _)| *name == "adaptive-rx");
                has.then(|| "adaptive-rx=on".into())
            },
        );
        self.wish("tx-queue-len", "a burst fits the send queue", |_, now| at_least(now, 1000));
        let why = "a burst waits for the CPU instead of being dropped";
        self.wish("netdev-max-backlog", why, |_, now| at_least(now, 10_000));
        self.wish("netdev-budget", "a softirq run processes more packets", |_, now| {
            at_least(now, 600)
        });
    }

    /// Assignment of queues to CPUs.
    fn spread(&mut self, online: &[usize]) {
        let isolated = self.system.isolated_cpus();
        let app = self.wanted.app_cpu;
        let cpus: Vec<usize> = online
            .iter()
            .copied()
            .filter(|cpu| !isolated.contains(cpu) && Some(*cpu) != app)
            .collect();
        if self.one_queue_many_cpus(online) && !cpus.is_empty() {
            let mask = cpus_to_mask(&cpus);
            let why =
                "one receive queue: its flows are spread over the CPUs (one flow alone is not)";
            self.wish("rps-cpus", why, |_, _| Some(mask.clone()));
        }
        let queues = self.queue_count("tx");
        if queues > 1 {
            let why = "each CPU sends on a queue of its own, without a shared lock";
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
            self.place_irqs(&irqs, &cpus);
        }
    }

    /// Plans interrupts on CPUs of their own: where the driver hints at CPUs, there.
    fn place_irqs(&mut self, irqs: &[u32], cpus: &[usize]) {
        let mut hints: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for irq in irqs {
            let mut hint = self.system.irq_hint(*irq);
            hint.retain(|cpu| cpus.contains(cpu));
            if !hint.is_empty() {
                hints.insert(*irq, hint);
            }
        }
        if !hints.is_empty() {
            self.wish("irq-affinity", "the driver's affinity hint", |target, _| match target {
                Target::Irq(irq) => hints.get(irq).map(|hint| cpus_to_mask(hint)),
                _ => None,
            });
        }
        if hints.len() == irqs.len() {
            return;
        }
        self.wish("irq-affinity", "interrupts of the queues on different CPUs", |target, _| {
            let Target::Irq(irq) = target else { return None };
            let place = irqs.iter().position(|listed| listed == irq)?;
            (!hints.contains_key(irq)).then(|| cpus_to_mask(&[cpus[place % cpus.len()]]))
        });
    }

    /// True if the interface has one receive queue and cannot have more.
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

    /// Returns a CPU that shares a cache with `app`, or at least memory; `app` itself if it is the only
    /// one.
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

    /// Plans a knob at all its targets. `value` maps target and current value to the new one, or
    /// `None` to keep it.
    fn wish(
        &mut self,
        id: &'static str,
        reason: &str,
        value: impl Fn(&Target, &str) -> Option<String>,
    ) {
        let Some(knob) = registry::find(id) else { return };
        let is_machines = matches!(knob.scope(), Scope::Host | Scope::Cpu);
        if is_machines && self.system.place().netns.is_some() {
            return self.leave_out(id, "it is a setting of the machine: plan without a namespace");
        }
        let needs_interface = !is_machines && knob.scope() != Scope::Netns;
        if needs_interface && self.wanted.interface.is_none() {
            return;
        }
        match registry::targets(knob, self.system, self.wanted.interface) {
            Ok(targets) if targets.is_empty() => self.leave_out(id, "no such target here"),
            Ok(targets) => {
                for target in targets {
                    if let Err(error) = self.wish_at(knob, target, reason, &value) {
                        return self.leave_out(id, &chain(&error));
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
    ) -> Result<(), KnobError> {
        let seen = knob.read(self.system, &target)?;
        let wished = value(&target, seen.as_str()).and_then(Value::new);
        let Some(value) = wished.filter(|v| !knob.format().agrees(v.as_str(), seen.as_str()))
        else {
            return Ok(());
        };
        match knob.probe_value(self.system, &target, &value) {
            // The plan may be applied with more privileges than it is made; root has none to gain.
            Err(error) if !error.is_denied() || sys::capability::effective_uid() == 0 => {
                return Err(error);
            }
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

/// Returns the coalescing that reports each received packet at once, as far as the device supports it.
fn at_once(now: &str) -> Option<String> {
    let quick = pairs(now)?.into_iter().filter_map(|(name, _)| match name {
        "adaptive-rx" => Some("adaptive-rx=off"),
        "rx-usecs" => Some("rx-usecs=0"),
        "rx-frames" => Some("rx-frames=1"),
        _ => None,
    });
    let quick = quick.collect::<Vec<_>>().join(" ");
    (!quick.is_empty()).then_some(quick)
}

/// Returns the smaller of `now` and `most`.
fn at_most(now: &str, most: i64) -> Option<String> {
    let now: i64 = now.parse().ok()?;
    Some(now.min(most).to_string())
}

/// Returns the larger of `now` and `least`.
fn at_least(now: &str, least: i64) -> Option<String> {
    let now: i64 = now.parse().ok()?;
    Some(now.max(least).to_string())
}
