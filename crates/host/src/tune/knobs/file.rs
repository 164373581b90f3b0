//! Settings of an interface or queue that are one file in sysfs.

use super::access::{Access, value};
use crate::tune::error::KnobError;
use crate::tune::knob::{About, Kept, Knob};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Value, ValueFormat};

/// One file below `/sys/class/net/IF`, or below one of its queues.
///
/// Source: Documentation/ABI/testing/sysfs-class-net and sysfs-class-net-queues;
/// Documentation/networking/scaling.rst and napi.rst.
#[derive(Debug)]
pub(super) struct File {
    about: About,
    file: &'static str,
    needs: &'static str,
}

const fn number(max: i64) -> ValueFormat {
    ValueFormat::Number { min: 0, max }
}

pub(super) static FILES: &[File] = &[
    File {
        about: About {
            id: "tx-queue-len",
            what: "send queue length in packets, for a queueing discipline without its own limit",
            scope: Scope::Interface,
            format: number(i32::MAX as i64),
        },
        file: "tx_queue_len",
        needs: "",
    },
    File {
        about: About {
            id: "threaded-napi",
            what: "receive work in kernel threads (1) instead of softirqs (0)",
            scope: Scope::Interface,
            format: number(2),
        },
        file: "threaded",
        needs: "a driver with NAPI; a veth has it while GRO is on or XDP is attached",
    },
    File {
        about: About {
            id: "napi-defer-hard-irqs",
            what: "empty polls before interrupts are enabled again",
            scope: Scope::Interface,
            format: number(i32::MAX as i64),
        },
        file: "napi_defer_hard_irqs",
        needs: "",
    },
    File {
        about: About {
            id: "gro-flush-timeout",
            what: "nanoseconds until merged packets are passed on, and until a deferred poll",
            scope: Scope::Interface,
            format: number(i64::MAX),
        },
        file: "gro_flush_timeout",
        needs: "",
    },
    File {
        about: About {
            id: "rps-cpus",
            what: "CPUs that process a receive queue's packets, by flow",
            scope: Scope::RxQueue,
            format: ValueFormat::Mask,
        },
        file: "rps_cpus",
        needs: "a kernel with CONFIG_RPS",
    },
    File {
        about: About {
            id: "rps-flow-count",
            what: "flows of a queue that follow their application's CPU (RFS)",
            scope: Scope::RxQueue,
            format: number(1 << 30),
        },
        file: "rps_flow_cnt",
        needs: "a kernel with CONFIG_RPS",
    },
    File {
        about: About {
            id: "xps-cpus",
            what: "CPUs that use a transmit queue",
            scope: Scope::TxQueue,
            format: ValueFormat::Mask,
        },
        file: "xps_cpus",
        needs: "at least two transmit queues",
    },
    File {
        about: About {
            id: "xps-rxqs",
            what: "receive queues whose flows use a transmit queue",
            scope: Scope::TxQueue,
            format: ValueFormat::Mask,
        },
        file: "xps_rxqs",
        needs: "at least two transmit queues",
    },
];

impl File {
    fn path(&self, target: &Target) -> String {
        match target {
            Target::RxQueue(name, queue) => format!("{name}/queues/rx-{queue}/{}", self.file),
            Target::TxQueue(name, queue) => format!("{name}/queues/tx-{queue}/{}", self.file),
            _ => format!("{}/{}", target.interface().unwrap_or_default(), self.file),
        }
    }

    fn access<'a>(&self, system: &'a System, target: &'a Target) -> Access<'a> {
        Access::new(self, system, target).needing(self.needs)
    }
}

impl Knob for File {
    fn about(&self) -> &About {
        &self.about
    }

    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let path = self.path(target);
        let text = system
            .read_net(&path)
            .map_err(|source| self.access(system, target).read_error(&path, source))?;
        value(&path, text)
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let path = self.path(target);
        system.write_net(&path, value.as_str()).map_err(|source| {
            self.access(system, target).write_error(&path, value.as_str(), source)
        })
    }

    fn kept(&self, target: &Target, value: &Value) -> Vec<Kept> {
        let path = self.path(target);
        let file = path.split_once('/').map_or(path.as_str(), |(_, file)| file).to_owned();
        vec![Kept::NetFile { file, value: value.to_string() }]
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        let path = self.path(target);
        self.read_at(system, target)?;
        system
            .probe_net(&path)
            .map_err(|source| self.access(system, target).write_error(&path, "", source))
    }
}
