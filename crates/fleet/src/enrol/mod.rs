//! Files of a fleet: its hosts and servers, the coordinator's secret, an enrolment for each host, and the
//! configuration of the broker.

mod broker;
mod files;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use broker::configuration;
pub use files::{EnrolError, FILE_MAX, Listed, read_hosts};

use crate::keys::{KeyError, Keyring, PublicKeys, Seeds};
use crate::nats::BrokerAddress;

/// Version of the files.
const VERSION: u32 = 1;

/// A fleet, as its coordinator knows it; holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fleet {
    /// Version of the file.
    pub v: u32,
    /// Address of the broker.
    pub broker: String,
    /// Connection string of the database, without a password.
    pub database: String,
    /// Certificate of the authority that signed the broker's, as PEM.
    pub ca: Option<String>,
    /// The same for the database's; `None` for a database on this machine.
    #[serde(default)]
    pub database_ca: Option<String>,
    /// Keys of the coordinator and of collectors.
    pub coordinator: PublicKeys,
    /// Keys of the hosts.
    pub hosts: BTreeMap<String, PublicKeys>,
    /// Addresses at which hosts of a mesh ping each other, of those that the list gives one.
    #[serde(default)]
    pub addresses: BTreeMap<String, IpAddr>,
    /// Groups, such as racks, of the hosts that the list gives one: hosts of a group are not independent samples.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, String>,
}

/// All that a host needs to be part of a fleet. Holds its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrolment {
    /// Version of the file.
    pub v: u32,
    /// Name of the host.
    pub host: String,
    /// Address of the broker.
    pub broker: String,
    /// Certificate of the authority that signed the broker's, as PEM.
    pub ca: Option<String>,
    /// Public key that signs jobs.
    pub coordinator: String,
    /// Secret of the host; `None` if it made its own.
    pub seeds: Option<Seeds>,
}

/// True for a name of a host: `[a-z0-9-]`, 1 to 63 characters. It is part of subjects and rights at the broker.
pub fn is_host_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(is_plain)
}

impl Fleet {
    /// A fleet that has no addresses and authorities yet.
    pub fn new(coordinator: PublicKeys, hosts: BTreeMap<String, PublicKeys>) -> Fleet {
        Fleet {
            v: VERSION,
            broker: String::new(),
            database: String::new(),
            ca: None,
            database_ca: None,
            coordinator,
            hosts,
            addresses: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }

    /// How its coordinator reaches the broker.
    ///
    /// - `ca`: file with its certificate authority.
    pub fn address(&self, seeds: &Seeds, ca: Option<PathBuf>) -> BrokerAddress {
        BrokerAddress {
            url: self.broker.clone(),
            login: Some(seeds.login.clone()),
            ca,
            inbox: "_INBOX".into(),
        }
    }

    /// Keys of its coordinator.
    pub fn keyring(&self, seeds: &Seeds) -> Result<Keyring, KeyError> {
        let hosts = self.hosts.iter().map(|(host, keys)| (host.clone(), keys.sign.clone()));
        Keyring::new(&seeds.sign, self.coordinator.sign.clone(), hosts.collect())
    }
}

impl Enrolment {
    /// How the host reaches the broker.
    ///
    /// - `ca`: file with its certificate authority.
    pub fn address(&self, seeds: &Seeds, ca: Option<PathBuf>) -> BrokerAddress {
        BrokerAddress {
            url: self.broker.clone(),
            login: Some(seeds.login.clone()),
            ca,
            inbox: format!("_INBOX_{}", self.host),
        }
    }

    /// Keys of the host.
    pub fn keyring(&self, seeds: &Seeds) -> Result<Keyring, KeyError> {
        Keyring::new(&seeds.sign, self.coordinator.clone(), BTreeMap::new())
    }
}
