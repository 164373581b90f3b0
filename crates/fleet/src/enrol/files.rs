//! Reading and writing the files.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Enrolment, Fleet, VERSION, is_host_name};
use crate::keys::{KeyError, PublicKeys, Seeds};

/// Length of a file, bytes.
pub const FILE_MAX: u64 = 64 * 1024 * 1024;

/// A file of a fleet that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The system refused.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// Its error.
        #[source]
        source: io::Error,
    },
    /// Another content than expected.
    #[error("{} is not a file of `wirepath fleet init`: {why}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Detail.
        why: String,
    },
    /// A line of the list of hosts.
    #[error("{} line {line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// Reason with the remedy.
        why: String,
    },
    /// A key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl Fleet {
    /// Reads `fleet.json` of a folder.
    pub fn read(folder: &Path) -> Result<Fleet, EnrolError> {
        let path = folder.join("fleet.json");
        let failed = |source| EnrolError::File { path: path.clone(), doing: "read", source };
        let text = read_text(&path).map_err(failed)?;
        let fleet: Fleet = parse(&path, &text)?;
        check_version(&path, fleet.v)?;
        match fleet.hosts.keys().find(|host| !is_host_name(host)) {
            Some(host) => {
                Err(EnrolError::Content { path, why: format!("{host:?} is not a valid host name") })
            }
            None => Ok(fleet),
        }
    }

    /// Writes `fleet.json` into a folder, in place of an earlier one.
    pub fn write(&self, folder: &Path) -> Result<(), EnrolError> {
        write(&folder.join("fleet.json"), self, 0o644)
    }
}

impl Seeds {
    /// Reads secrets.
    ///
    /// - `path`: of the file with this text.
    pub fn parse(path: &Path, text: &str) -> Result<Seeds, EnrolError> {
        parse(path, text)
    }

    /// Writes secrets, readable by their owner alone.
    pub fn write(&self, path: &Path) -> Result<(), EnrolError> {
        write(path, self, 0o600)
    }
}

impl Enrolment {
    /// Reads the enrolment of a host.
    ///
    /// - `path`: of the file with this text.
    pub fn parse(path: &Path, text: &str) -> Result<Enrolment, EnrolError> {
        let enrolment: Enrolment = parse(path, text)?;
        check_version(path, enrolment.v)?;
        if is_host_name(&enrolment.host) {
            Ok(enrolment)
        } else {
            Err(EnrolError::Content {
                path: path.to_owned(),
                why: format!("{:?} is not a valid host name", enrolment.host),
            })
        }
    }

    /// Writes the enrolment, readable by its owner alone.
    pub fn write(&self, path: &Path) -> Result<(), EnrolError> {
        write(path, self, 0o600)
    }
}

fn check_version(path: &Path, version: u32) -> Result<(), EnrolError> {
    if version == VERSION {
        Ok(())
    } else {
        Err(EnrolError::Content {
            path: path.to_owned(),
            why: format!("it has version {version}, and this Wirepath reads {VERSION}"),
        })
    }
}

fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, EnrolError> {
    serde_json::from_str(text)
        .map_err(|e| EnrolError::Content { path: path.to_owned(), why: e.to_string() })
}

/// Replaces a file as a whole, so that a reader never sees a part.
fn write(path: &Path, value: &impl Serialize, mode: u32) -> Result<(), EnrolError> {
    let failed = |source| EnrolError::File { path: path.to_owned(), doing: "write", source };
    let text = serde_json::to_string_pretty(value).map_err(|e| failed(e.into()))?;
    replace(path, &text, mode).map_err(failed)
}

fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    fs::rename(&new, path)
}

/// A host of the list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    /// Of a host that made its own.
    pub keys: Option<PublicKeys>,
    /// At which others ping it.
    pub address: Option<IpAddr>,
    /// Its group, such as a rack.
    pub group: Option<String>,
}

/// Reads a file of at most [`FILE_MAX`] bytes. A part of a longer one would be another list.
fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX {
        let why = format!("it has more than {FILE_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(text)
}

/// Reads the list of hosts: a line `NAME`, or `NAME LOGIN-KEY SIGNING-KEY` with the public keys of a host that made
/// its own; `address=IP` and `group=NAME` may follow. Empty lines and comments (`#`) are skipped.
pub fn read_hosts(path: &Path) -> Result<BTreeMap<String, Listed>, EnrolError> {
    let failed = |source| EnrolError::File { path: path.to_owned(), doing: "read", source };
    let text = read_text(path).map_err(failed)?;
    let mut hosts = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        let refuse = |why: String| EnrolError::Line { path: path.to_owned(), line: at + 1, why };
        let mut words: Vec<&str> =
            line.split('#').next().unwrap_or_default().split_whitespace().collect();
        let (mut address, mut group) = (None, None);
        while let Some((name, value)) =
            words.pop_if(|word| word.contains('=')).and_then(|word| word.split_once('='))
        {
            let is_twice = match name {
                "address" => {
                    let ip: IpAddr = value.parse().map_err(|_| {
                        refuse(
                            "that is not a valid address; use address=192.0.2.7 or address=fd00::7"
                                .into(),
                        )
                    })?;
                    address.replace(ip).is_some()
                }
                "group" if is_host_name(value) => group.replace(value.to_owned()).is_some(),
                "group" => {
                    let why = format!(
                        "{value:?} is not a valid group; use a-z, 0-9 and -, at most 63, as in group=rack4"
                    );
                    return Err(refuse(why));
                }
                _ => return Err(refuse(format!("{name}= is not known; use address= or group="))),
            };
            if is_twice {
                return Err(refuse(format!("{name}= is there twice; remove one of them")));
            }
        }
        let (host, keys) = match words[..] {
            [] if address.is_none() && group.is_none() => continue,
            [host] => (host, None),
            [host, login, sign] => {
                let keys = PublicKeys { login: login.into(), sign: sign.into() };
                keys.check(host).map_err(|e| refuse(e.to_string()))?;
                (host, Some(keys))
            }
            _ => return Err(refuse("give a name, or a name and two public keys".into())),
        };
        if !is_host_name(host) {
            let why = format!("{host:?} is not a valid host name: use a-z, 0-9 and -, at most 63");
            return Err(refuse(why));
        }
        if hosts.insert(host.to_owned(), Listed { keys, address, group }).is_some() {
            return Err(refuse(format!("{host} is there twice; remove one of them")));
        }
    }
    if hosts.is_empty() {
        Err(EnrolError::Line { path: path.to_owned(), line: 1, why: "no host is listed".into() })
    } else {
        Ok(hosts)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn lists_of_hosts_are_read_and_their_errors_name_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts.txt");
        let read = |text: &str| {
            fs::write(&file, text).unwrap();
            read_hosts(&file)
        };
        let keys = Seeds::generate().unwrap().public().unwrap();
        let own = format!("# all\nh1\n\nh2 {} {}  # made there\n", keys.login, keys.sign);
        let hosts = read(&own).unwrap();
        assert_eq!((hosts["h1"].keys.as_ref(), hosts["h2"].keys.as_ref()), (None, Some(&keys)));
        let own = format!("h1 address=fd00::7\nh2 {} {} address=10.0.0.2\n", keys.login, keys.sign);
        let hosts = read(&own).unwrap();
        assert_eq!(hosts["h1"], Listed { address: "fd00::7".parse().ok(), ..Listed::default() });
        let address = "10.0.0.2".parse().ok();
        assert_eq!(hosts["h2"], Listed { keys: Some(keys.clone()), address, group: None });
        let hosts =
            read("h1 group=rack4 address=fd00::7\nh2 address=fd00::8 group=r-1\nh3\n").unwrap();
        let groups = ["h1", "h2", "h3"].map(|host| hosts[host].group.as_deref());
        assert_eq!(groups, [Some("rack4"), Some("r-1"), None]);
        assert!(hosts["h1"].address.is_some() && hosts["h2"].address.is_some());
        for (text, named) in [
            ("", "no host"),
            ("h1\nH2\n", "line 2"),
            ("h1\nh1\n", "twice"),
            ("h1 U1\n", "two public keys"),
            ("h1 address=db1\n", "not a valid address"),
            ("address=10.0.0.1\n", "a name"),
            ("group=r1\n", "a name"),
            ("h1 group=\n", "not a valid group"),
            ("h1 group=r1 group=r2\n", "group= is there twice"),
            ("h1 rack=r1\n", "use address= or group="),
            ("h1 UX UY\n", "public key"),
            ("a.b\n", "a.b"),
            ("h*\n", "not a valid host name"),
        ] {
            let why = read(text).unwrap_err().to_string();
            assert!(why.contains(named), "{text}: {why}");
        }
    }

    #[test]
    fn secrets_are_written_for_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let seeds = Seeds::generate().unwrap();
        let path = folder.path().join("coordinator.json");
        seeds.write(&path).unwrap();
        assert_eq!(Seeds::parse(&path, &fs::read_to_string(&path).unwrap()).unwrap(), seeds);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
}
