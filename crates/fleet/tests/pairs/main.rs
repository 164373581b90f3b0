//! The suite of books, run against each pair of exchange and archive.

mod coordinators;
mod ends;
mod faults;
mod old_rows;
mod outages;
mod servers;
mod suite;
mod tls;

use std::path::PathBuf;

use faults::Server;
use tempfile::TempDir;
use wirepath_fleet::book::{Archive, Exchange, Outbox, SqliteBook};

/// An exchange and an archive that several processes can open.
trait Pair {
    type Book: Exchange + Archive;
    /// Opens both, as a process that starts does.
    fn open(&self) -> Self::Book;
    /// Deletes all that the exchange holds.
    fn wipe_exchange(&self);
    /// Kills a server, and starts it again; a pair without servers does nothing.
    fn restart(&self, _server: Server) {}
    /// Opens an agent's memory.
    fn outbox(&self, host: &str) -> Outbox;
}

struct Sqlite(TempDir);

impl Sqlite {
    fn new() -> Self {
        // In memory where possible: each step waits for the disk otherwise.
        let memory = PathBuf::from("/dev/shm");
        let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
        Sqlite(tempfile::tempdir_in(folder).unwrap())
    }
}

impl Pair for Sqlite {
    type Book = SqliteBook;

    fn open(&self) -> SqliteBook {
        SqliteBook::open(self.0.path().join("fleet.db")).unwrap()
    }

    fn wipe_exchange(&self) {
        let file = rusqlite::Connection::open(self.0.path().join("fleet.db")).unwrap();
        for table in ["given", "reports", "confirmed", "leases", "alive"] {
            file.execute(&format!("DELETE FROM {table}"), []).unwrap();
        }
    }

    fn outbox(&self, host: &str) -> Outbox {
        Outbox::open(self.0.path().join("agent.db"), host).unwrap()
    }
}

#[test]
fn job_passes_all_its_states_once() {
    suite::job_passes_all_its_states_once(&Sqlite::new());
}

#[test]
fn steps_need_the_expected_state_and_fence() {
    suite::steps_need_the_expected_state_and_fence(&Sqlite::new());
}

#[test]
fn agent_restarted_in_a_measurement_reports_it_as_interrupted() {
    suite::agent_restarted_in_a_measurement_reports_it_as_interrupted(&Sqlite::new());
}

#[test]
fn lease_has_one_owner_until_it_ends() {
    suite::lease_has_one_owner_until_it_ends(&Sqlite::new());
}

#[test]
fn late_report_of_a_lost_job_changes_nothing() {
    suite::late_report_of_a_lost_job_changes_nothing(&Sqlite::new());
}

#[test]
fn expired_and_cancelled_jobs_have_a_row() {
    suite::expired_and_cancelled_jobs_have_a_row(&Sqlite::new());
}

#[test]
fn books_balance_under_200_combinations_of_faults() {
    for seed in 0..200 {
        faults::run(&Sqlite::new(), seed, None);
    }
}

/// One test, because it starts the servers once.
#[test]
fn suite_and_faults_over_nats_and_postgresql() {
    let Some(mut servers) = servers::Servers::start() else { return };
    suite::job_passes_all_its_states_once(&servers.case());
    suite::steps_need_the_expected_state_and_fence(&servers.case());
    suite::agent_restarted_in_a_measurement_reports_it_as_interrupted(&servers.case());
    suite::lease_has_one_owner_until_it_ends(&servers.case());
    suite::late_report_of_a_lost_job_changes_nothing(&servers.case());
    suite::expired_and_cancelled_jobs_have_a_row(&servers.case());
    // 200 combinations run over SQLite; these cover kills, loss of all messages and repeats over both servers.
    let combinations = std::env::var("WIREPATH_TEST_FLEET_FAULTS").ok();
    for seed in 0..combinations.as_deref().map_or(4, |text| text.parse().expect("a number")) {
        faults::run(&servers.case(), seed, None);
    }
    if combinations.is_some() {
        each_alone(&servers);
    }
    outages::run(&mut servers);
}

/// Each fault alone, with the counts for the table.
fn each_alone(servers: &servers::Servers) {
    for fault in faults::FAULTS {
        let (begun, kills) = (0..3)
            .map(|seed| faults::run(&servers.case(), seed, Some(fault)))
            .fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let jobs = 3 * faults::JOBS;
        testkit::note(&format!(
            "{fault:?}: {jobs} rows for {jobs} jobs, {begun} begun, {kills} kills"
        ));
    }
}
