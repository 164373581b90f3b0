//! Keys of encrypted tunnels, from their files, and the numbers that they have used.

mod file;
mod state;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::io::forward::{TunnelCarrier, TunnelId};
use host::private_file::PrivateFileError;
use host::text::chain;

use super::{Operator, RunError};
use crate::config::{Config, EncryptionConfig, TunnelConfig};
use crate::esp::{Association, AssociationCounts, Framing, Receiver, ReplayWindow, Sender};

pub use file::KeyFile;

use state::{Numbers, State};

/// Numbers reserved at a time: those of several seconds at any rate, and a small part of all.
const RESERVED: u64 = 1 << 24;
const RESERVED_SHORT: u64 = 1 << 22;
/// Numbers by which a silent tunnel may run ahead of its last packet, with half of the 32 bits that are sent.
const AHEAD_MAX: u64 = 1 << 31;
/// Numbers between the last packet and the next one after a renumbering, more than are in flight.
const SLACK: u64 = 1 << 20;
/// Received numbers that may arrive late.
const WINDOW: u32 = 16_384;
/// Interval at which the highest number received is written.
const NOTE_RECEIVED: Duration = Duration::from_secs(1);

/// Error in the keys of a tunnel or in their state.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The kernel gave no random bytes.
    #[error("the kernel gave no random bytes")]
    Random(#[source] io::Error),
    /// A file cannot be read or written.
    #[error("cannot {doing} {path}")]
    File {
        /// Operation that failed.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the kernel.
        #[source]
        source: io::Error,
    },
    /// A file is open to other users.
    #[error(transparent)]
    Untrusted(#[from] PrivateFileError),
    /// A file cannot be used.
    #[error("{path} {why}")]
    Refused {
        /// The file.
        path: PathBuf,
        /// Reason and remedy.
        why: String,
    },
}

/// Encryption of the tunnels of a configuration. One of a later configuration shares what both have, so
/// that numbers and windows outlive a reload.
#[derive(Debug, Default)]
pub(super) struct Keyring {
    by_name: BTreeMap<String, Rc<Held>>,
}

/// An encrypted tunnel with its open state file.
#[derive(Debug)]
struct Held {
    config: EncryptionConfig,
    /// Other end, this end.
    ends: (IpAddr, IpAddr),
    fingerprint: String,
    association: Arc<Association>,
    /// Position, number and nonce of the first packet.
    first: (u64, u64, u64),
    state: RefCell<State>,
    is_failing: Cell<bool>,
    noted: Cell<Instant>,
}

/// Reads the key files of a configuration, and uses none.
pub fn check_keys(config: &Config) -> Result<(), RunError> {
    for tunnel in &config.tunnels {
        if let Some(encryption) = &tunnel.encryption {
            KeyFile::read(&encryption.keys)
                .map_err(|source| RunError::Keys { name: tunnel.name.clone(), source })?;
        }
    }
    Ok(())
}

impl Keyring {
    /// Opens the keys of a configuration; tunnels that are in this keyring keep theirs.
    ///
    /// - `position`: frames admitted so far, from which new keys count.
    ///
    /// Errors: a file is refused, or a tunnel has other settings for the same keys. This keyring stays as
    /// it is.
    pub(super) fn of(&self, config: &Config, position: u64) -> Result<Keyring, RunError> {
        let mut keyring = Keyring::default();
        for tunnel in &config.tunnels {
            let Some(encryption) = &tunnel.encryption else { continue };
            let named = |source| RunError::Keys { name: tunnel.name.clone(), source };
            let held = self.held(tunnel, encryption, position).map_err(named)?;
            let spi = held.association.receiver.spi();
            let same = |other: &&Rc<Held>| {
                other.association.receiver.spi() == spi || other.fingerprint == held.fingerprint
            };
            if keyring.by_name.values().any(|other| same(&other)) {
                let why = "has keys or an SPI that another tunnel has; make keys for each tunnel";
                return Err(named(refused(&encryption.keys, why)));
            }
            keyring.by_name.insert(tunnel.name.clone(), held);
        }
        Ok(keyring)
    }

    fn held(
        &self,
        tunnel: &TunnelConfig,
        encryption: &EncryptionConfig,
        position: u64,
    ) -> Result<Rc<Held>, KeysError> {
        let file = KeyFile::read(&encryption.keys)?;
        let fingerprint = file.fingerprint();
        let ends = (tunnel.tunnel.remote, tunnel.tunnel.local);
        let Some(held) = self.by_name.get(&tunnel.name).filter(|it| it.fingerprint == fingerprint)
        else {
            return Held::open(&file, encryption, ends, position).map(Rc::new);
        };
        if (&held.config, held.ends) == (encryption, ends) {
            return Ok(held.clone());
        }
        let why =
            "has the keys that the tunnel uses, with other settings; give new keys, or restart";
        Err(refused(&encryption.keys, why))
    }

    /// Encryption by tunnel. Errors: an encrypted tunnel has no keys here.
    pub(super) fn associations(
        &self,
        config: &Config,
    ) -> Result<Vec<Option<Arc<Association>>>, RunError> {
        let of = |tunnel: &TunnelConfig| {
            let Some(encryption) = &tunnel.encryption else { return Ok(None) };
            let held = self.by_name.get(&tunnel.name).ok_or_else(|| RunError::Keys {
                name: tunnel.name.clone(),
                source: refused(&encryption.keys, "was not read; restart"),
            })?;
            Ok(Some(held.association.clone()))
        };
        config.tunnels.iter().map(of).collect()
    }

    /// Packets that arrive for the encrypted tunnels.
    pub(super) fn ids(&self) -> impl Iterator<Item = TunnelId> {
        self.by_name.values().map(|held| {
            let udp_port = match held.config.framing {
                Framing::Udp { port } => Some(port),
                Framing::Ip => None,
            };
            let spi = held.association.receiver.spi();
            TunnelId { local: held.ends.1, carrier: TunnelCarrier::Esp { spi, udp_port } }
        })
    }

    /// Reserves numbers before they are needed, and writes the highest numbers received. Call it a few
    /// times a second.
    ///
    /// - `position`: frames admitted so far.
    pub(super) fn maintain(&self, position: u64, operator: &mut impl Operator) {
        for (name, held) in &self.by_name {
            let failure = held.maintain(position).err();
            let is_new = failure.is_some() && !held.is_failing.get();
            held.is_failing.set(failure.is_some());
            if let Some(error) = failure.filter(|_| is_new) {
                operator.note(&format!(
                    "tunnel {name}: {}; without new numbers its packets will be dropped",
                    chain(&error)
                ));
            }
        }
    }

    /// Writes the highest numbers received. Call it when no worker runs any more.
    pub(super) fn close(&self, operator: &mut impl Operator) {
        for (name, held) in &self.by_name {
            let numbers = held.state.borrow().numbers();
            if let Err(error) = held.write(numbers) {
                operator.note(&format!("tunnel {name}: {}", chain(&error)));
            }
        }
    }

    /// Counters by tunnel.
    pub(super) fn counts(&self) -> Vec<(String, AssociationCounts)> {
        let of = |(name, held): (&String, &Rc<Held>)| (name.clone(), held.association.counts());
        self.by_name.iter().map(of).collect()
    }
}

impl Held {
    /// Opens the state of keys, and reserves the first numbers.
    fn open(
        file: &KeyFile,
        config: &EncryptionConfig,
        ends: (IpAddr, IpAddr),
        position: u64,
    ) -> Result<Held, KeysError> {
        let now_ns = sys::clock::realtime_ns();
        let fingerprint = file.fingerprint();
        let is_fresh = file.is_fresh(now_ns / 1_000_000_000);
        let mut state = State::open(&config.state, &fingerprint, is_fresh)?;
        file.mark_used(&config.keys)?;
        let (send, receive) = file
            .keys(config.is_extended)
            .map_err(|error| refused(&config.keys, &format!("has a wrong key: {error}")))?;
        let Numbers { sequence: first, iv, received } = state.numbers();
        // A nonce is not used twice even if the state is older than it says, as after a virtual machine was
        // set back: a start begins at the time of day in nanoseconds, and no packet takes less than one.
        let first_iv = iv.max(now_ns);
        let limit = first.saturating_add(reserved(config.is_extended));
        state.write(Numbers {
            sequence: limit,
            iv: first_iv.saturating_add(limit - first),
            received,
        })?;
        let sender =
            Sender::new(send, config.framing, first, limit).starting_at(position, first_iv);
        if first > sender.sequence_max() {
            return Err(refused(&config.keys, "has no sequence numbers left; make new keys"));
        }
        let window = ReplayWindow::new(WINDOW, received);
        let receiver = Receiver::new(receive, config.framing, ends, window);
        Ok(Held {
            config: config.clone(),
            ends,
            fingerprint,
            association: Arc::new(Association { sender, receiver }),
            first: (position, first, first_iv),
            state: RefCell::new(state),
            is_failing: Cell::new(false),
            noted: Cell::new(Instant::now()),
        })
    }

    fn maintain(&self, position: u64) -> Result<(), KeysError> {
        let (first_position, first, first_iv) = self.first;
        let numbers = self.state.borrow().numbers();
        let reserved = reserved(self.config.is_extended);
        let sender = &self.association.sender;
        let (last, at) = (sender.next(), sender.number(position).unwrap_or(first));
        // Behind the last packet if one was numbered while the numbers changed.
        let is_astray = self.config.is_extended
            && (at > last.saturating_add(AHEAD_MAX) || at.saturating_add(SLACK) < last);
        let next = if is_astray { last.saturating_add(SLACK) } else { at };
        let is_due = numbers.sequence.saturating_sub(next) < reserved / 2
            && numbers.sequence <= sender.sequence_max();
        if is_due || is_astray {
            let limit = next.saturating_add(reserved).max(numbers.sequence);
            let ahead = position.saturating_sub(first_position);
            let iv = first_iv.saturating_add(ahead).saturating_add(limit - next).max(numbers.iv);
            self.write(Numbers { sequence: limit, iv, ..numbers })?;
            if is_astray {
                sender.renumber(position, next);
            }
            sender.reserve(limit);
        } else if self.noted.get().elapsed() >= NOTE_RECEIVED
            && self.association.receiver.top() != numbers.received
        {
            self.write(numbers)?;
        }
        Ok(())
    }

    /// Writes numbers with the highest one received.
    fn write(&self, numbers: Numbers) -> Result<(), KeysError> {
        self.noted.set(Instant::now());
        let received = self.association.receiver.top();
        self.state.borrow_mut().write(Numbers { received, ..numbers })
    }
}

fn reserved(is_extended: bool) -> u64 {
    if is_extended { RESERVED } else { RESERVED_SHORT }
}

fn refused(path: &std::path::Path, why: &str) -> KeysError {
    KeysError::Refused { path: path.to_owned(), why: why.to_owned() }
}

#[cfg(test)]
mod tests;
