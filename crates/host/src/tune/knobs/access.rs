//! Reads and writes of a knob at one target, with errors classified by their cause.

use std::io;

use crate::net::NetError;
use crate::tune::error::KnobError;
use crate::tune::knob::Knob;
use crate::tune::system::System;
use crate::tune::target::Target;
use crate::tune::value::Value;

/// One knob at one target.
pub(super) struct Access<'a> {
    knob: &'static str,
    system: &'a System,
    target: &'a Target,
    needs: &'static str,
}

impl<'a> Access<'a> {
    pub(super) fn new(knob: &dyn Knob, system: &'a System, target: &'a Target) -> Self {
        Access { knob: knob.about().id, system, target, needs: "" }
    }

    /// Adds a hint for [`KnobError::NotOffered`]: the requirement that is missing.
    pub(super) fn needing(self, needs: &'static str) -> Self {
        Access { needs, ..self }
    }

    pub(super) fn read(&self, path: &str) -> Result<Value, KnobError> {
        let text = self.system.read_host(path).map_err(|source| self.read_error(path, source))?;
        value(path, text)
    }

    pub(super) fn write(&self, path: &str, value: &str) -> Result<(), KnobError> {
        let written = self.system.write_host(path, value);
        written.map_err(|source| self.write_error(path, value, source))
    }

    /// Succeeds if a file of the host can be opened for writing.
    pub(super) fn probe(&self, path: &str) -> Result<(), KnobError> {
        self.system.probe_host(path).map_err(|source| self.write_error(path, "", source))
    }

    /// Reads a property of the target's interface by netlink.
    ///
    /// Returns the interface's index and the property.
    pub(super) fn get<T: Send>(
        &self,
        read: impl FnOnce(u32) -> Result<T, NetError> + Send,
    ) -> Result<(u32, T), KnobError> {
        let index = self.system.index(self.target.interface().unwrap_or_default())?;
        let found = self.system.within(|| read(index));
        Ok((index, found.map_err(|error| self.net_error(None, error))?))
    }

    pub(super) fn change(
        &self,
        value: &Value,
        set: impl FnOnce() -> Result<(), NetError> + Send,
    ) -> Result<(), KnobError> {
        self.system.within(set).map_err(|error| self.net_error(Some(value), error))
    }

    /// Succeeds if interfaces of the namespace may be configured.
    ///
    /// Tested by changing an interface that cannot exist. The process' own capabilities do not
    /// answer this: CAP_NET_ADMIN has to hold in the user namespace that owns the network
    /// namespace. The kernel checks it before it looks up the interface.
    pub(super) fn may_configure(&self) -> Result<(), KnobError> {
        const NO_SUCH_INDEX: u32 = i32::MAX as u32;
        match self.system.within(|| crate::net::set_up(NO_SUCH_INDEX, true)) {
            Err(error) if error.is_denied() => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn not_offered(&self) -> KnobError {
        let by = match self.target.interface() {
            Some(interface) => format!("by driver {}", self.system.driver(interface)),
            None => "by this kernel or machine".to_owned(),
        };
        KnobError::NotOffered { knob: self.knob.to_owned(), by, needs: self.needs }
    }

    pub(super) fn read_error(&self, what: &str, source: io::Error) -> KnobError {
        self.classify(&format!("reading {what}"), source)
            .unwrap_or_else(|source| KnobError::Read { what: what.to_owned(), source })
    }

    pub(super) fn write_error(&self, what: &str, value: &str, source: io::Error) -> KnobError {
        self.classify(&format!("writing {what}"), source)
            .unwrap_or_else(|source| self.refused(value, source))
    }

    fn net_error(&self, value: Option<&Value>, error: KnobError) -> KnobError {
        match (error, value) {
            (KnobError::Net(NetError::Unsupported { .. }), _) => self.not_offered(),
            (
                KnobError::Net(error @ (NetError::Kernel { .. } | NetError::NotTaken { .. })),
                Some(value),
            ) => self.refused(value.as_str(), error),
            (error, _) => error,
        }
    }

    fn refused(
        &self,
        value: &str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> KnobError {
        KnobError::Refused {
            knob: self.knob.to_owned(),
            target: self.target.clone(),
            value: value.to_owned(),
            source: source.into(),
        }
    }

    fn classify(&self, what: &str, source: io::Error) -> Result<KnobError, io::Error> {
        let what = what.to_owned();
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV) => Ok(
                match self.target.interface().filter(|name| self.system.list_net(name).is_err()) {
                    Some(_) => KnobError::NoTarget { target: self.target.clone() },
                    None => self.not_offered(),
                },
            ),
            Some(libc::EOPNOTSUPP) => Ok(self.not_offered()),
            Some(libc::EPERM | libc::EACCES) => Ok(KnobError::Denied { what, source }),
            Some(libc::EROFS) => Ok(KnobError::ReadOnly { what }),
            _ => Err(source),
        }
    }
}

/// Converts the content of a file.
pub(super) fn value(what: &str, text: String) -> Result<Value, KnobError> {
    Value::new(text).ok_or_else(|| KnobError::Read {
        what: what.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, "not one line of text"),
    })
}

/// Parses a count within a list of pairs.
pub(super) fn number(knob: &dyn Knob, value: &Value, text: &str) -> Result<u32, KnobError> {
    text.parse().map_err(|_| KnobError::Value {
        knob: knob.about().id.to_owned(),
        value: value.to_string(),
        expected: "whole numbers".to_owned(),
    })
}
