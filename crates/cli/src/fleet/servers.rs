//! The servers of a fleet as its coordinator and its collectors use them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fleet::book::{Archive, BookError, Coordinator};
use fleet::enrol::Fleet;
use fleet::keys::Seeds;
use fleet::nats::NatsExchange;
use fleet::postgres::PostgresArchive;
use host::text::chain;
use house::{console, signals};
use remote::Failure;

use super::init::COORDINATOR;
use super::keys::read_secret;
use super::now_ms;

/// Pause before a server that failed is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Time limit for a step that must not be given up because a stop was requested.
const PERSIST_TIMEOUT: Duration = Duration::from_secs(60);
/// Name under which the coordinator measures the broker's clock; no host can have it.
const CLOCK: &str = "_coordinator";

/// Both servers, and the difference of the broker's clock.
pub(super) struct Servers {
    pub(super) fleet: Fleet,
    pub(super) exchange: NatsExchange,
    pub(super) archive: PostgresArchive,
    offset_ms: i64,
}

impl Servers {
    /// Connects to the servers of a folder that `fleet init` wrote.
    pub(super) fn open(folder: &Path) -> Result<Servers, Failure> {
        let fleet = Fleet::read(folder).map_err(Failure::usage)?;
        let seeds = read_secret(&folder.join(COORDINATOR), Seeds::parse)?;
        let address = fleet.address(&seeds, ca_file(folder, &fleet)?);
        let archive = PostgresArchive::open(&fleet.database, fleet.database_ca.as_deref())?;
        let mut exchange = NatsExchange::core(&address, fleet.keyring(&seeds)?)?;
        let offset_ms = exchange.clock_offset_ms(CLOCK, now_ms())?;
        Ok(Servers { fleet, exchange, archive, offset_ms })
    }

    /// Becomes the only coordinator, and cancels what one that was killed left open.
    pub(super) fn coordinate(&mut self) -> Result<(), Failure> {
        if !self.archive.lock_coordinator()? {
            return Err(Failure::failed(
                "another `wirepath fleet prove`, `fleet mesh` or `fleet rollout` runs on the same database; wait for it",
            ));
        }
        let open = self.archive.entries(None)?;
        let experiments: BTreeSet<&str> =
            open.iter().map(|entry| entry.job.experiment.as_str()).collect();
        for experiment in experiments {
            Coordinator::new(experiment).cancel(&mut self.archive, "its coordinator ended")?;
        }
        Ok(())
    }

    /// Milliseconds since 1970 by the broker's clock.
    pub(super) fn now_ms(&self) -> u64 {
        now_ms().saturating_add_signed(self.offset_ms)
    }

    /// Keeps messages that were refused, and drops them.
    pub(super) fn keep_refused(&mut self) -> Result<(), BookError> {
        let refusals = self.exchange.take_refusals();
        if refusals.is_empty() {
            return Ok(());
        }
        self.archive.keep_refused(&refusals)?;
        for refusal in &refusals {
            console::say(&format!("refused a report of {}: {}", refusal.host, refusal.why));
        }
        self.exchange.drop_refused()
    }
}

/// Repeats a step that failed until it succeeds or a stop is requested; `None` then.
pub(super) fn insist<T>(
    servers: &mut Servers,
    step: impl FnMut(&mut Servers) -> Result<T, BookError>,
) -> Option<T> {
    if signals::stop_requested() {
        return None;
    }
    repeat(servers, step, || !signals::stop_requested()).ok()
}

/// Repeats a step that failed until it succeeds, also after a stop was requested. Errors: it failed for a minute.
pub(super) fn persist<S, T>(
    on: &mut S,
    step: impl FnMut(&mut S) -> Result<T, BookError>,
) -> Result<T, BookError> {
    let begun = Instant::now();
    repeat(on, step, || begun.elapsed() < PERSIST_TIMEOUT)
}

/// Repeats a step that failed, with pauses, for as long as `goes_on` says. Errors: that of the last time.
fn repeat<S, T>(
    on: &mut S,
    mut step: impl FnMut(&mut S) -> Result<T, BookError>,
    goes_on: impl Fn() -> bool,
) -> Result<T, BookError> {
    let mut is_reported = false;
    loop {
        let error = match step(on) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        if !is_reported {
            console::say(&format!("{}; trying again", chain(&error)));
        }
        is_reported = true;
        std::thread::sleep(RETRY_INTERVAL);
        if !goes_on() {
            return Err(error);
        }
    }
}

fn ca_file(folder: &Path, fleet: &Fleet) -> Result<Option<PathBuf>, Failure> {
    let Some(pem) = &fleet.ca else { return Ok(None) };
    let file = folder.join("ca.pem");
    if std::fs::read_to_string(&file).ok().as_ref() != Some(pem) {
        console::replace_file(&file, pem)?;
    }
    Ok(Some(file))
}
