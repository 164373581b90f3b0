//! Far ends as the command line names them.

use std::fmt::{self, Display, Formatter};
use std::net::Ipv6Addr;
use std::str::FromStr;

/// Far end of an experiment between two hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FarEnd {
    /// A namespace of this host: a name of `/run/netns`, the number of a process in it, or a file.
    Netns(String),
    Ssh(SshHost),
    /// `HOST` or `HOST:PORT` of a `wirepath peer` that runs already.
    Peer(String),
}

/// A host as OpenSSH names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshHost {
    /// `[user@]host`, or an alias of the client's configuration; IPv6 addresses without brackets.
    pub destination: String,
    pub port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid far end; use ssh:[USER@]HOST[:PORT], netns:NAME or peer:HOST[:PORT]")]
pub struct FarEndError(String);

impl FromStr for FarEnd {
    type Err = FarEndError;

    fn from_str(text: &str) -> Result<Self, FarEndError> {
        let (kind, name) = text.split_once(':').unwrap_or_default();
        // A leading dash would be an option of ssh.
        let is_plain = !name.is_empty()
            && !name.starts_with('-')
            && !name.chars().any(|letter| letter.is_whitespace() || letter.is_control());
        let end = match kind {
            _ if !is_plain => None,
            "netns" => Some(FarEnd::Netns(name.to_owned())),
            "peer" => Some(FarEnd::Peer(name.to_owned())),
            "ssh" => SshHost::parse(name).map(FarEnd::Ssh),
            _ => None,
        };
        end.ok_or_else(|| FarEndError(text.to_owned()))
    }
}

impl SshHost {
    fn parse(name: &str) -> Option<Self> {
        let (user, host) = name.rsplit_once('@').map_or(("", name), |(user, host)| (user, host));
        let (host, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            Some((ip, "")) => (ip.parse::<Ipv6Addr>().ok()?.to_string(), None),
            Some((ip, port)) => {
                (ip.parse::<Ipv6Addr>().ok()?.to_string(), Some(port.strip_prefix(':')?))
            }
            None => match host.split_once(':') {
                None => (host.to_owned(), None),
                Some((host, port)) => (host.to_owned(), Some(port)),
            },
        };
        let port = port.map(str::parse).transpose().ok()?;
        let is_host = !host.is_empty() && !host.starts_with('-') && !user.starts_with('-');
        let destination = if name.contains('@') { format!("{user}@{host}") } else { host };
        (is_host && port != Some(0)).then_some(SshHost { destination, port })
    }
}

impl Display for SshHost {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (user, host) = match self.destination.rsplit_once('@') {
            Some((user, host)) => (format!("{user}@"), host),
            None => (String::new(), &*self.destination),
        };
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{user}{open}{host}{close}")?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Display for FarEnd {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            FarEnd::Netns(name) => write!(f, "netns:{name}"),
            FarEnd::Ssh(host) => write!(f, "ssh:{host}"),
            FarEnd::Peer(host) => write!(f, "peer:{host}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_ends_are_read_and_shown_in_the_same_form() {
        for text in [
            "netns:blue",
            "netns:/proc/7/ns/net",
            "ssh:db2",
            "ssh:root@db2:2222",
            "peer:db2",
            "peer:192.0.2.7:7117",
            "peer:[fd00::2]:7117",
            "ssh:[fd00::2]",
            "ssh:root@[fd00::2]:2222",
        ] {
            assert_eq!(text.parse::<FarEnd>().unwrap().to_string(), text);
        }
        let Ok(FarEnd::Ssh(host)) = "ssh:root@db2:2222".parse() else { panic!("a host") };
        assert_eq!((&*host.destination, host.port), ("root@db2", Some(2222)));
        let Ok(FarEnd::Ssh(host)) = "ssh:root@[fd00::2]:22".parse() else { panic!("a host") };
        assert_eq!((&*host.destination, host.port), ("root@fd00::2", Some(22)));
    }

    #[test]
    fn text_that_names_no_far_end_is_refused_with_the_forms() {
        let bad = [
            "",
            "db2",
            "ssh:",
            "netns:",
            "tcp:db2",
            "ssh:-oProxyCommand=x",
            "ssh:a@-b",
            "ssh:a b",
            "ssh:db2:0",
            "ssh:db2:x",
            "ssh:fe80::1",
            "ssh:[fe80::1",
            "ssh:[fe80::1]22",
            "ssh:[db2]",
            "peer:\n",
            "ssh:@",
        ];
        for text in bad {
            let error = text.parse::<FarEnd>().unwrap_err().to_string();
            assert!(error.contains("netns:NAME"), "{text}: {error}");
        }
    }
}
