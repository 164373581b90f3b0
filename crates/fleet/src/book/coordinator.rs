//! The coordinator: gives jobs, and closes them by the reports of agents.

use std::collections::BTreeSet;

use super::{ATTEMPTS_MAX, Archive, BookError, Entry, Event, Exchange, Report, Row, State};

/// Drives the jobs of one experiment. It holds nothing but a name: all else is in the archive, so a
/// coordinator that was killed is replaced by another one.
#[derive(Debug)]
pub struct Coordinator {
    experiment: String,
    /// Fences of the jobs that this coordinator has given; a new one gives open jobs again.
    given: BTreeSet<u64>,
}

impl Coordinator {
    /// A coordinator of an experiment whose jobs are planned already.
    pub fn new(experiment: impl Into<String>) -> Self {
        Coordinator { experiment: experiment.into(), given: BTreeSet::new() }
    }

    /// One turn; returns true once every job has ended.
    pub fn turn(
        &mut self,
        exchange: &mut impl Exchange,
        archive: &mut impl Archive,
        now_ms: u64,
    ) -> Result<bool, BookError> {
        for (number, report) in exchange.reports()? {
            take(&report, exchange, archive)?;
            exchange.acknowledge(number)?;
        }
        let mut busy = BTreeSet::new();
        for entry in archive.entries(Some(&self.experiment))? {
            self.drive(entry, &mut busy, exchange, archive, now_ms)?;
        }
        let entries = archive.entries(Some(&self.experiment))?;
        Ok(entries.iter().all(|entry| entry.state.is_final()))
    }

    /// Ends every open job as cancelled.
    pub fn cancel(&self, archive: &mut impl Archive, why: &str) -> Result<(), BookError> {
        for entry in archive.entries(Some(&self.experiment))? {
            if entry.state.after(Event::Cancel).is_some() {
                archive.close(&entry, &row(&entry, State::Cancelled, why))?;
            }
        }
        Ok(())
    }

    /// Gives, expires or gives up one job.
    ///
    /// - `busy`: hosts with an open job so far: each has one at a time.
    fn drive(
        &mut self,
        mut entry: Entry,
        busy: &mut BTreeSet<String>,
        exchange: &mut impl Exchange,
        archive: &mut impl Archive,
        now_ms: u64,
    ) -> Result<(), BookError> {
        if entry.state.after(Event::Expire).is_some() && now_ms > entry.job.not_after_ms {
            let row = row(&entry, State::Expired, "its time passed before a host took it");
            return archive.close(&entry, &row).map(drop);
        }
        let is_lost = matches!(entry.state, State::Accepted | State::Running)
            && !exchange.is_alive(&entry.job.host, now_ms)?;
        if is_lost {
            // The next attempt comes before later jobs of the host, whose fences would be larger.
            busy.insert(entry.job.host.clone());
            return give_up(&entry, archive, State::Lost, "its host fell silent");
        }
        if entry.state.is_final() || !busy.insert(entry.job.host.clone()) {
            return Ok(());
        }
        if entry.state == State::Planned {
            // The row first: a report of a job that is not in the book as given would change nothing.
            match archive.give(&entry)? {
                Some(given) => entry = given,
                None => return Ok(()),
            }
        }
        if entry.state == State::Given && self.given.insert(entry.job.fence) {
            exchange.send(&entry.job)?;
        }
        Ok(())
    }
}

/// Enters a report of any experiment into the book, and confirms its end.
fn take(
    report: &Report,
    exchange: &mut impl Exchange,
    archive: &mut impl Archive,
) -> Result<(), BookError> {
    let is_of = |entry: &Entry| entry.job.fence == report.fence && entry.job.host == report.host;
    let entry = archive.entry(&report.job)?.filter(is_of);
    let is_end = !matches!(report.state, State::Accepted | State::Running);
    if let Some(entry) = entry.filter(|entry| !entry.state.is_final()) {
        match report.state {
            State::Accepted => drop(archive.step(&entry, Event::Accept)?),
            State::Running => drop(archive.step(&entry, Event::Begin)?),
            State::Interrupted => {
                give_up(&entry, archive, State::Interrupted, &report.body)?;
            }
            state => drop(archive.close(&entry, &row(&entry, state, &report.body))?),
        }
    }
    // A report of an older fence, or of a job that has ended, changes nothing; its agent may forget it.
    if is_end {
        exchange.confirm(report.fence)?;
    }
    Ok(())
}

/// Plans another attempt, or ends the job after the last one.
fn give_up(
    entry: &Entry,
    archive: &mut impl Archive,
    state: State,
    why: &str,
) -> Result<(), BookError> {
    match entry.job.attempt < ATTEMPTS_MAX {
        true => archive.again(entry).map(drop),
        false => archive.close(entry, &row(entry, state, why)).map(drop),
    }
}

fn row(entry: &Entry, state: State, body: &str) -> Row {
    Row {
        job: entry.job.job.clone(),
        host: entry.job.host.clone(),
        attempt: entry.job.attempt,
        state,
        body: body.to_owned(),
    }
}
