//! Settings in `/proc/sys`.

use std::io;

use super::access::{Access, value};
use crate::tune::error::KnobError;
use crate::tune::knob::{About, Kept, Knob, Reaches};
use crate::tune::system::{self, System};
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Value, ValueFormat};

/// One file in `/proc/sys`.
///
/// Network settings exist once for the machine, once for each namespace, or read-only in a namespace,
/// depending on the kernel version. A knob of scope [`Scope::Netns`] returns [`KnobError::HostOnly`]
/// if the namespace has no value of its own.
///
/// Source: Documentation/admin-guide/sysctl/net.rst and kernel.rst,
/// Documentation/networking/ip-sysctl.rst.
#[derive(Debug)]
pub(super) struct Sysctl {
    about: About,
    file: &'static str,
    reaches: Reaches,
    accepts: Option<Accepts>,
    note: Option<Note>,
}

/// Refuses a value that the kernel would not take; the first argument is for the error.
type Accepts = fn(&Sysctl, &System, &Target, &Value) -> Result<(), KnobError>;
/// Text for the user after the value was set.
type Note = fn(&System, &Value) -> Option<String>;

const COUNT: ValueFormat = ValueFormat::Number { min: 0, max: i32::MAX as i64 };

const fn net(id: &'static str, file: &'static str, what: &'static str) -> Sysctl {
    of_netns(id, file, COUNT, what)
}

pub(super) const fn of_netns(
    id: &'static str,
    file: &'static str,
    format: ValueFormat,
    what: &'static str,
) -> Sysctl {
    let about = About { id, what, scope: Scope::Netns, format };
    Sysctl { about, file, reaches: Reaches::AtOnce, accepts: None, note: None }
}

const fn triple(id: &'static str, file: &'static str, what: &'static str) -> Sysctl {
    of_netns(id, file, ValueFormat::Numbers { count: 3 }, what)
}

const fn host(
    id: &'static str,
    file: &'static str,
    format: ValueFormat,
    what: &'static str,
) -> Sysctl {
    let about = About { id, what, scope: Scope::Host, format };
    Sysctl { about, file, reaches: Reaches::AtOnce, accepts: None, note: None }
}

impl Sysctl {
    pub(super) const fn reaching(self, reaches: Reaches) -> Self {
        Sysctl { reaches, ..self }
    }

    pub(super) const fn accepting(self, accepts: Accepts) -> Self {
        Sysctl { accepts: Some(accepts), ..self }
    }

    pub(super) const fn noting(self, note: Note) -> Self {
        Sysctl { note: Some(note), ..self }
    }
}

pub(super) static SYSCTLS: &[Sysctl] = &[
    // Maximum before default: a default above the maximum would have no effect.
    net("rmem-max", "net/core/rmem_max", "largest receive buffer a socket may ask for, bytes")
        .reaching(Reaches::NewConnections),
    net(
        "rmem-default",
        "net/core/rmem_default",
        "receive buffer of a socket that sets none, bytes",
    )
    .reaching(Reaches::NewConnections),
    net("wmem-max", "net/core/wmem_max", "largest send buffer a socket may ask for, bytes")
        .reaching(Reaches::NewConnections),
    net("wmem-default", "net/core/wmem_default", "send buffer of a socket that sets none, bytes")
        .reaching(Reaches::NewConnections),
    net("optmem-max", "net/core/optmem_max", "ancillary memory of a socket, bytes"),
    net("netdev-max-backlog", "net/core/netdev_max_backlog", "packets queued for a CPU's softirq"),
    net(
        "netdev-budget",
        "net/core/netdev_budget",
        "packets that one softirq run processes, over all devices",
    ),
    net("netdev-budget-usecs", "net/core/netdev_budget_usecs", "microseconds of one softirq run"),
    net(
        "dev-weight",
        "net/core/dev_weight",
        "packets that the backlog processes in one softirq run",
    ),
    net("busy-poll", "net/core/busy_poll", "microseconds that poll() and select() poll the device"),
    net("busy-read", "net/core/busy_read", "microseconds that a read polls the device")
        .reaching(Reaches::NewConnections),
    net(
        "rps-sock-flow-entries",
        "net/core/rps_sock_flow_entries",
        "flows tracked by RFS on all queues",
    ),
    net("gro-normal-batch", "net/core/gro_normal_batch", "packets passed to the stack together"),
    triple(
        "tcp-rmem",
        "net/ipv4/tcp_rmem",
        "receive buffer of TCP: minimum, initial and maximum bytes",
    )
    .reaching(Reaches::NewConnections),
    triple(
        "tcp-wmem",
        "net/ipv4/tcp_wmem",
        "send buffer of TCP: minimum, initial and maximum bytes",
    )
    .reaching(Reaches::NewConnections),
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
        "socket lookup before routing: a cost when forwarding",
    ),
    net("udp-early-demux", "net/ipv4/udp_early_demux", "the same for UDP"),
    net("tcp-early-demux", "net/ipv4/tcp_early_demux", "the same for TCP"),
    host(
        "sched-rt-runtime",
        "kernel/sched_rt_runtime_us",
        ValueFormat::Number { min: -1, max: i32::MAX as i64 },
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
        let is_own = *target == Target::Netns;
        let path = format!("/proc/sys/{}", self.file);
        match (code, value) {
            (Some(libc::ENOENT), _) if is_own && system.is_child_netns() => {
                KnobError::HostOnly { knob: self.about.id.into() }
            }
            // Visible in the namespace, but without write permission for any user.
            (Some(libc::EACCES), Some(_)) if is_own && self.is_locked(system) => {
                KnobError::HostOnly { knob: self.about.id.into() }
            }
            (_, None) => Access::new(self, system, target).read_error(&path, source),
            (_, Some(value)) => {
                Access::new(self, system, target).write_error(&path, value.as_str(), source)
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
        self.accepts_at(system, target, value)?;
        system
            .sysctl(target, self.file, |path| system::write(path, value.as_str()))
            .map_err(|source| self.error(system, target, Some(value), source))
    }

    fn accepts_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        self.accepts.map_or(Ok(()), |accepts| accepts(self, system, target, value))
    }

    fn settled(
        &self,
        system: &System,
        _: &Target,
        value: &Value,
    ) -> Result<Option<String>, KnobError> {
        Ok(self.note.and_then(|note| note(system, value)))
    }

    fn reaches(&self) -> Reaches {
        self.reaches
    }

    fn kept(&self, _: &Target, value: &Value) -> Vec<Kept> {
        vec![Kept::Sysctl { key: self.file.replace('/', "."), value: value.to_string() }]
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        let value = self.read_at(system, target)?;
        system
            .sysctl(target, self.file, system::probe)
            .map_err(|source| self.error(system, target, Some(&value), source))
    }
}
