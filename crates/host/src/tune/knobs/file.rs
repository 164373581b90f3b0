//! Settings of an interface or queue that are one file of its sysfs.

use std::io;

use crate::tune::error::KnobError;
use crate::tune::knob::{Asked, Knob};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Format, Value};

/// One file below `/sys/class/net/IF`, or below one of its queues.
///
/// Source: Documentation/ABI/testing/sysfs-class-net and sysfs-class-net-queues;
/// Documentation/networking/scaling.rst and napi.rst.
#[derive(Debug)]
pub(super) struct File {
    id: &'static str,
    file: &'static str,
    scope: Scope,
    format: Format,
    what: &'static str,
    needs: &'static str,
}

const fn number(max: i64) -> Format {
    Format::Number { min: 0, max }
}

pub(super) static FILES: &[File] = &[
    File {
        id: "tx-queue-len",
        file: "tx_queue_len",
        scope: Scope::Interface,
        format: number(i32::MAX as i64),
        what: "packets that wait on their way out, of a queueing discipline without its own limit",
        needs: "",
    },
    File {
        id: "threaded-napi",
        file: "threaded",
        scope: Scope::Interface,
        format: number(2),
        what: "receive work in kernel threads (1) and not in softirqs (0)",
        needs: "a driver with NAPI; a veth has it while GRO is on or XDP is attached",
    },
    File {
        id: "napi-defer-hard-irqs",
        file: "napi_defer_hard_irqs",
        scope: Scope::Interface,
        format: number(i32::MAX as i64),
        what: "empty polls before interrupts are switched on again",
        needs: "",
    },
    File {
        id: "gro-flush-timeout",
        file: "gro_flush_timeout",
        scope: Scope::Interface,
        format: number(i64::MAX),
        what: "nanoseconds until merged packets are handed on, and until a deferred poll",
        needs: "",
    },
    File {
        id: "rps-cpus",
        file: "rps_cpus",
        scope: Scope::RxQueue,
        format: Format::Mask,
        what: "CPUs to which a receive queue hands its packets, by flow",
        needs: "a kernel with CONFIG_RPS",
    },
    File {
        id: "rps-flow-count",
        file: "rps_flow_cnt",
        scope: Scope::RxQueue,
        format: number(1 << 30),
        what: "flows of a queue that follow their application's CPU (RFS)",
        needs: "a kernel with CONFIG_RPS",
    },
    File {
        id: "xps-cpus",
        file: "xps_cpus",
        scope: Scope::TxQueue,
        format: Format::Mask,
        what: "CPUs that send by a transmit queue",
        needs: "at least two transmit queues",
    },
    File {
        id: "xps-rxqs",
        file: "xps_rxqs",
        scope: Scope::TxQueue,
        format: Format::Mask,
        what: "receive queues whose flows send by a transmit queue",
        needs: "at least two transmit queues",
    },
];

impl File {
    fn path(&self, target: &Target) -> Result<String, KnobError> {
        <dyn Knob>::check_target(self, target)?;
        Ok(match target {
            Target::RxQueue(name, queue) => format!("{name}/queues/rx-{queue}/{}", self.file),
            Target::TxQueue(name, queue) => format!("{name}/queues/tx-{queue}/{}", self.file),
            _ => format!("{}/{}", target.interface().unwrap_or_default(), self.file),
        })
    }

    fn asked<'a>(&self, system: &'a System, target: &'a Target) -> Asked<'a> {
        Asked { knob: self.id, target, needs: self.needs, system }
    }
}

impl Knob for File {
    fn id(&self) -> &'static str {
        self.id
    }

    fn what(&self) -> &'static str {
        self.what
    }

    fn scope(&self) -> Scope {
        self.scope
    }

    fn format(&self) -> Format {
        self.format
    }

    fn read(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let path = self.path(target)?;
        let text = system
            .read_net(&path)
            .map_err(|source| self.asked(system, target).read_error(&path, source))?;
        value(&path, text)
    }

    fn set(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let path = self.path(target)?;
        system
            .write_net(&path, value.as_str())
            .map_err(|source| self.asked(system, target).write_error(&path, value.as_str(), source))
    }

    fn probe(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        let path = self.path(target)?;
        self.read(system, target)?;
        system
            .probe_net(&path)
            .map_err(|source| self.asked(system, target).write_error(&path, "", source))
    }
}

/// A value out of what a file held.
pub(super) fn value(what: &str, text: String) -> Result<Value, KnobError> {
    Value::new(text).ok_or_else(|| KnobError::Read {
        what: what.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, "it is not one line of text"),
    })
}
