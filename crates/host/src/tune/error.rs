//! Why a knob could not be read or set.

use std::io;

use sys::netns::NetnsError;
use sys::sysfs::SysfsError;
use thiserror::Error;

use super::target::Target;
use crate::net::NetError;

/// Why a knob could not be read or set.
#[derive(Debug, Error)]
pub enum KnobError {
    /// The driver or the kernel does not have this setting there.
    #[error("{knob} is not offered {by}{}", hint(.needs))]
    NotOffered {
        /// Id of the knob.
        knob: String,
        /// Who does not: `by driver veth`, `by this kernel`.
        by: String,
        /// What it would take; empty when nothing helps.
        needs: &'static str,
    },
    /// It exists, but in the machine's first network namespace only.
    #[error(
        "{knob} is host-only: it does not exist, or cannot be changed, in a network namespace of \
         its own, and the host's value counts there"
    )]
    HostOnly {
        /// Id of the knob.
        knob: String,
    },
    /// No such interface, queue, interrupt or CPU.
    #[error("there is no {target} here")]
    NoTarget {
        /// What was asked for.
        target: Target,
    },
    /// The capability is missing.
    #[error("{what} is not permitted: run as root (CAP_NET_ADMIN and CAP_SYS_ADMIN are needed)")]
    Denied {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The file system does not take changes, as in many containers.
    #[error("{what} is not possible: the file system is mounted read-only")]
    ReadOnly {
        /// What was tried.
        what: String,
    },
    /// The value makes no sense for this knob.
    #[error("{value:?} is no value of {knob}: give {expected}")]
    Value {
        /// Id of the knob.
        knob: String,
        /// What was given or read.
        value: String,
        /// What would make sense.
        expected: String,
    },
    /// The kernel or the driver refused the value.
    #[error("{knob} of {target} does not take {value:?}")]
    Refused {
        /// Id of the knob.
        knob: String,
        /// Where.
        target: Target,
        /// What was to be set.
        value: String,
        /// The kernel's answer.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It was set without complaint, and reads otherwise.
    #[error("{knob} of {target} was set to {wanted:?} and reads {found:?}")]
    NotTaken {
        /// Id of the knob.
        knob: String,
        /// Where.
        target: Target,
        /// What was set.
        wanted: String,
        /// What is there.
        found: String,
    },
    /// The knob acts on another kind of place.
    #[error("{knob} acts on one {expected}, not on {target}")]
    Scope {
        /// Id of the knob.
        knob: String,
        /// What it acts on.
        expected: super::Scope,
        /// What was given.
        target: Target,
    },
    /// Reading failed.
    #[error("cannot read {what}")]
    Read {
        /// File or setting.
        what: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A question about interfaces failed.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The namespace could not be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The namespace's sysfs could not be had.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
}

fn hint(needs: &str) -> String {
    if needs.is_empty() { String::new() } else { format!(": it takes {needs}") }
}

impl KnobError {
    /// Whether the setting does not exist there, for whoever asks.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            KnobError::NotOffered { .. }
                | KnobError::HostOnly { .. }
                | KnobError::NoTarget { .. }
                | KnobError::Net(NetError::Unsupported { .. } | NetError::NoInterface { .. })
        )
    }

    /// Whether privileges are what is missing.
    pub fn is_denied(&self) -> bool {
        matches!(
            self,
            KnobError::Denied { .. }
                | KnobError::Net(NetError::Denied { .. })
                | KnobError::Netns(NetnsError::Denied { .. })
                | KnobError::Sysfs(SysfsError::Denied { .. })
        )
    }
}
