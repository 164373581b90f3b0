//! Hosts of a fleet as the command line names them.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use clap::Args;
use lab::{FarEnd, SshHost};
use remote::Failure;
use sys::netns::Netns;

#[derive(Debug, Args)]
pub(crate) struct HostsArgs {
    /// Hosts: `netns:NAME` of this machine, `ssh:[USER@]HOST[:PORT]`, and `this`
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    pub(crate) on: Vec<Host>,
    /// Option of the ssh client as in its configuration file, e.g. IdentityFile=FILE; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) ssh_option: Vec<String>,
}

impl HostsArgs {
    /// The hosts. Errors: none is named, or one is named twice.
    pub(crate) fn hosts(&self) -> Result<&[Host], Failure> {
        check_named_once(&self.on)?;
        Ok(&self.on)
    }
}

/// Errors: no host is named, or one is named twice.
pub(crate) fn check_named_once(hosts: &[Host]) -> Result<(), Failure> {
    if hosts.is_empty() {
        return Err(Failure::Usage("no host is named; give --on HOST,… before the rest".into()));
    }
    match hosts.iter().enumerate().find(|(at, host)| hosts[..*at].contains(host)) {
        None => Ok(()),
        Some((_, host)) => {
            Err(Failure::Usage(format!("--on names {host} twice; name each host once")))
        }
    }
}

/// A host of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// This machine, in the namespace of the command.
    This,
    /// A namespace of this machine.
    Netns(String),
    Ssh(SshHost),
}

impl Host {
    /// True if it shares this machine with the command.
    pub(crate) fn is_local(&self) -> bool {
        !matches!(self, Host::Ssh(_))
    }

    /// Its namespace; `None` for that of the command.
    pub(crate) fn netns(&self) -> Result<Option<Netns>, Failure> {
        let Host::Netns(name) = self else { return Ok(None) };
        let place = host::tune::Place { netns: Some(name.clone()), root: None };
        Ok(Some(Netns::open(place.netns_file())?))
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "this" {
            return Ok(Host::This);
        }
        match text.parse() {
            Ok(FarEnd::Netns(name)) => Ok(Host::Netns(name)),
            Ok(FarEnd::Ssh(host)) => Ok(Host::Ssh(host)),
            _ => Err(format!(
                "{text:?} is not a valid host; use netns:NAME, ssh:[USER@]HOST[:PORT] or this"
            )),
        }
    }
}

impl Display for Host {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Host::This => f.write_str("this"),
            Host::Netns(name) => write!(f, "netns:{name}"),
            Host::Ssh(host) => write!(f, "ssh:{host}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_and_shown_in_the_same_form() {
        for text in ["this", "netns:blue", "ssh:root@db2:2222"] {
            let host: Host = text.parse().unwrap();
            assert_eq!(
                (host.to_string().as_str(), host.is_local()),
                (text, text != "ssh:root@db2:2222")
            );
        }
        for text in ["", "db2", "peer:db2", "ssh:", "netns:a b"] {
            assert!(text.parse::<Host>().unwrap_err().contains("netns:NAME"), "{text}");
        }
    }

    #[test]
    fn host_that_is_named_twice_is_refused() {
        let args = |list: &[&str]| HostsArgs {
            on: list.iter().map(|text| text.parse().unwrap()).collect(),
            ssh_option: Vec::new(),
        };
        assert_eq!(args(&["this", "netns:a"]).hosts().unwrap().len(), 2);
        assert!(
            args(&["netns:a", "this", "netns:a"]).hosts().unwrap_err().text().contains("netns:a")
        );
    }
}
