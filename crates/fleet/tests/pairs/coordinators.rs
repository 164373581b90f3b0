//! The one coordinator of a database, when connections end.

use std::thread;
use std::time::Duration;

use testkit::servers::Database;
use wirepath_fleet::book::BookError;
use wirepath_fleet::postgres::PostgresArchive;

/// Tries until a connection that was ended has been made anew, or another coordinator has been found.
fn tried(archive: &mut PostgresArchive) -> Result<bool, BookError> {
    for _ in 0..500 {
        match archive.has_coordinator() {
            Err(BookError::Database { .. }) => thread::sleep(Duration::from_millis(20)),
            other => return other,
        }
    }
    panic!("no connection within ten seconds");
}

#[test]
fn coordinator_whose_connection_ended_is_the_only_one_again_or_fails() {
    let Some(database) = Database::start() else { return };
    let address = database.address("postgres");
    let open = || PostgresArchive::open(&address, None).unwrap();
    let end_all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                   WHERE application_name = 'wirepath'";
    let (mut first, mut second) = (open(), open());
    assert!(first.lock_coordinator().unwrap());
    assert!(!second.lock_coordinator().unwrap());
    assert_eq!(database.sql("postgres", end_all), "2");
    assert!(tried(&mut first).unwrap(), "it is the coordinator again");
    tried(&mut second).unwrap();
    assert!(!second.lock_coordinator().unwrap());

    // Another one is faster.
    assert_eq!(database.sql("postgres", end_all), "2");
    tried(&mut second).unwrap();
    assert!(second.lock_coordinator().unwrap());
    let late = tried(&mut first);
    assert!(matches!(late, Err(BookError::Coordinated { .. })), "{late:?}");
    drop(second);
    // The server ends a connection some time after its client did.
    let is_back = (0..500).any(|_| {
        thread::sleep(Duration::from_millis(20));
        tried(&mut first).is_ok()
    });
    assert!(is_back);
}
