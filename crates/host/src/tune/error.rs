//! Errors of knobs.

use std::io;

use sys::netns::NetnsError;
use sys::sysfs::SysfsError;
use thiserror::Error;

use super::target::{Scope, Target};
use crate::net::NetError;

/// A knob could not be read or set.
#[derive(Debug, Error)]
pub enum KnobError {
    #[error("{knob} is not offered {by}{}", hint(.needs))]
    NotOffered {
        knob: String,
        /// Driver or kernel, as a phrase: `by driver veth`, `by this kernel or machine`.
        by: String,
        /// Missing requirement; empty if none would help.
        needs: &'static str,
    },
    #[error(
        "{knob} is host-only: it does not exist or is read-only in this network namespace, where \
         the host's value applies"
    )]
    HostOnly { knob: String },
    #[error("{knob} of {target} could not be restored exactly, and is not changed: {why}")]
    Inexact { knob: String, target: Target, why: &'static str },
    #[error("{target} has no value to read")]
    Unreadable { target: Target },
    #[error("there is no {target} here")]
    NoTarget { target: Target },
    #[error("{what} is not permitted: {}", denial())]
    Denied {
        what: String,
        #[source]
        source: io::Error,
    },
    /// Common in containers.
    #[error("{what} is not possible: the file system is mounted read-only")]
    ReadOnly { what: String },
    #[error("invalid value {value:?} for {knob}: expected {expected}")]
    Value { knob: String, value: String, expected: String },
    #[error("cannot set {knob} of {target} to {value:?}")]
    Refused {
        knob: String,
        target: Target,
        value: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("{knob} of {target} was set to {wanted:?} but reads {found:?}")]
    NotTaken { knob: String, target: Target, wanted: String, found: String },
    #[error("{knob} applies to one {expected}, not to {target}")]
    Scope { knob: String, expected: Scope, target: Target },
    #[error("cannot read {what}")]
    Read {
        what: String,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Netns(#[from] NetnsError),
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
}

/// Root of a container lacks what root of the host has.
fn denial() -> &'static str {
    if sys::capability::effective_uid() == 0 {
        "root of this container or user namespace may not change it; run on the host (CAP_NET_ADMIN \
         and CAP_SYS_ADMIN of the host are required)"
    } else {
        "run as root (CAP_NET_ADMIN and CAP_SYS_ADMIN are required)"
    }
}

fn hint(needs: &str) -> String {
    if needs.is_empty() { String::new() } else { format!(": it requires {needs}") }
}

impl KnobError {
    /// True if the setting does not exist there, regardless of privileges.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            KnobError::NotOffered { .. }
                | KnobError::HostOnly { .. }
                | KnobError::NoTarget { .. }
                | KnobError::Inexact { .. }
                | KnobError::Net(NetError::Unsupported { .. } | NetError::NoInterface { .. })
        )
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_told_to_run_as_root() {
        let source = io::Error::from_raw_os_error(libc::EPERM);
        let text = KnobError::Denied { what: "writing x".into(), source }.to_string();
        let is_root = sys::capability::effective_uid() == 0;
        assert_eq!(text.contains("run as root"), !is_root, "{text}");
        assert_eq!(text.contains("run on the host"), is_root, "{text}");
    }
}
