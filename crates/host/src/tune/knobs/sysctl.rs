//! Settings below `/proc/sys`.

use std::io;

use super::value;
use crate::tune::error::KnobError;
use crate::tune::knob::{About, Asked, Knob};
use crate::tune::system::{self, System};
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Format, Value};

/// One file below `/proc/sys`.
///
/// Those of the network exist once a machine, once a namespace, or read-only in a namespace; only
/// the kernel can tell which, and it changes with its version. A knob of scope
/// [`Scope::Netns`] says [`KnobError::HostOnly`] where the namespace has none of its own.
///
/// Source: Documentation/admin-guide/sysctl/net.rst and kernel.rst,
/// Documentation/networking/ip-sysctl.rst.
#[derive(Debug)]
pub(super) struct Sysctl {
    about: About,
    file: &'static str,
}

const COUNT: Format = Format::Number { min: 0, max: i32::MAX as i64 };

const fn net(id: &'static str, file: &'static str, what: &'static str) -> Sysctl {
    Sysctl { about: About { id, what, scope: Scope::Netns, format: COUNT }, file }
}

const fn triple(id: &'static str, file: &'static str, what: &'static str) -> Sysctl {
    let format = Format::Numbers { count: 3 };
    Sysctl { about: About { id, what, scope: Scope::Netns, format }, file }
}

const fn host(id: &'static str, file: &'static str, format: Format, what: &'static str) -> Sysctl {
    Sysctl { about: About { id, what, scope: Scope::Host, format }, file }
}

pub(super) static SYSCTLS: &[Sysctl] = &[
    // The maximum first: a default above it would be of no use to who asks for more.
    net("rmem-max", "net/core/rmem_max", "largest receive buffer a socket may ask for, bytes"),
    net(
        "rmem-default",
        "net/core/rmem_default",
        "receive buffer of a socket that asks for none, bytes",
    ),
    net("wmem-max", "net/core/wmem_max", "largest send buffer a socket may ask for, bytes"),
    net(
        "wmem-default",
        "net/core/wmem_default",
        "send buffer of a socket that asks for none, bytes",
    ),
    net("optmem-max", "net/core/optmem_max", "ancillary memory of a socket, bytes"),
    net(
        "netdev-max-backlog",
        "net/core/netdev_max_backlog",
        "packets that wait for a CPU's softirq",
    ),
    net("netdev-budget", "net/core/netdev_budget", "packets of one softirq run over all devices"),
    net("netdev-budget-usecs", "net/core/netdev_budget_usecs", "microseconds of one softirq run"),
    net("dev-weight", "net/core/dev_weight", "packets of the backlog's turn in a softirq run"),
    net(
        "busy-poll",
        "net/core/busy_poll",
        "microseconds that poll() and select() ask the device for",
    ),
    net("busy-read", "net/core/busy_read", "microseconds that a read asks the device for"),
    net(
        "rps-sock-flow-entries",
        "net/core/rps_sock_flow_entries",
        "flows followed by RFS on all queues",
    ),
    net("gro-normal-batch", "net/core/gro_normal_batch", "packets handed to the stack together"),
    triple("tcp-rmem", "net/ipv4/tcp_rmem", "receive buffer of TCP: least, first, most bytes"),
    triple("tcp-wmem", "net/ipv4/tcp_wmem", "send buffer of TCP: least, first, most bytes"),
    net(
        "udp-rmem-min",
        "net/ipv4/udp_rmem_min",
        "receive buffer a UDP socket keeps when memory is short, bytes",
    ),
    net(
        "udp-wmem-min",
        "net/ipv4/udp_wmem_min",
        "send buffer a UDP socket keeps when memory is short, bytes",
    ),
    net(
        "ip-early-demux",
        "net/ipv4/ip_early_demux",
        "look for the socket before the route: a loss when forwarding",
    ),
    net("udp-early-demux", "net/ipv4/udp_early_demux", "the same for UDP"),
    net("tcp-early-demux", "net/ipv4/tcp_early_demux", "the same for TCP"),
    host(
        "sched-rt-runtime",
        "kernel/sched_rt_runtime_us",
        Format::Number { min: -1, max: i32::MAX as i64 },
        "microseconds of each second that real-time threads may run; -1 for all",
    ),
    host(
        "numa-balancing",
        "kernel/numa_balancing",
        COUNT,
        "pages follow their threads to other nodes",
    ),
    host("timer-migration", "kernel/timer_migration", COUNT, "timers move to CPUs that are awake"),
];

impl Sysctl {
    fn error(
        &self,
        system: &System,
        target: &Target,
        value: Option<&Value>,
        source: io::Error,
    ) -> KnobError {
        let code = source.raw_os_error();
        let in_child = *target == Target::Netns && system.is_child_netns();
        let path = format!("/proc/sys/{}", self.file);
        match (code, value) {
            (Some(libc::ENOENT), _) if in_child => {
                KnobError::HostOnly { knob: self.about.id.into() }
            }
            // Shown in the namespace, but with no write permission for anybody.
            (Some(libc::EACCES), Some(_)) if in_child && self.is_locked(system) => {
                KnobError::HostOnly { knob: self.about.id.into() }
            }
            (_, None) => Asked::of(self, system, target).read_error(&path, source),
            (_, Some(value)) => {
                Asked::of(self, system, target).write_error(&path, value.as_str(), source)
            }
        }
    }

    fn is_locked(&self, system: &System) -> bool {
        let mode = system.sysctl(&Target::Netns, self.file, |path| {
            use std::os::unix::fs::PermissionsExt;
            Ok(path.metadata()?.permissions().mode())
        });
        mode.is_ok_and(|mode| mode & 0o222 == 0)
    }
}

impl Knob for Sysctl {
    fn about(&self) -> &About {
        &self.about
    }

    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let text = system
            .sysctl(target, self.file, system::read)
            .map_err(|source| self.error(system, target, None, source))?;
        value(self.file, text)
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        system
            .sysctl(target, self.file, |path| system::write(path, value.as_str()))
            .map_err(|source| self.error(system, target, Some(value), source))
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        let value = self.read_at(system, target)?;
        system
            .sysctl(target, self.file, system::probe)
            .map_err(|source| self.error(system, target, Some(&value), source))
    }
}
