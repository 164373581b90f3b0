//! Tables of the file, and migrations from older versions.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::StoreError;

/// `Wire` in ASCII: distinguishes the file from another program's database.
pub(crate) const APPLICATION_ID: i32 = 0x5769_7265;

/// Step `n` migrates a file from version `n` to `n + 1`. Append steps; never edit a released one.
pub(crate) const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE experiments (
        id       TEXT NOT NULL PRIMARY KEY,
        started  TEXT NOT NULL,
        path     TEXT NOT NULL,
        machine  TEXT NOT NULL,
        header   TEXT NOT NULL,
        ended    TEXT,
        headline TEXT,
        outcome  TEXT
    );
    CREATE INDEX experiments_by_start ON experiments (started DESC, id DESC);
    CREATE TABLE trials (
        experiment  TEXT NOT NULL REFERENCES experiments (id) ON DELETE CASCADE,
        ordinal     INTEGER NOT NULL,
        block       INTEGER NOT NULL,
        arm         TEXT NOT NULL,
        warmup      INTEGER NOT NULL,
        noisy       INTEGER NOT NULL,
        started_ms  INTEGER NOT NULL,
        wall_ns     INTEGER NOT NULL,
        measurement TEXT,
        failure     TEXT,
        PRIMARY KEY (experiment, ordinal),
        CHECK ((measurement IS NULL) <> (failure IS NULL))
    );
    CREATE TABLE segments (
        experiment TEXT NOT NULL,
        ordinal    INTEGER NOT NULL,
        name       TEXT NOT NULL,
        histogram  BLOB NOT NULL,
        PRIMARY KEY (experiment, ordinal, name),
        FOREIGN KEY (experiment, ordinal) REFERENCES trials (experiment, ordinal) ON DELETE CASCADE
    );
",
    "
    -- Lists are filtered by these. From this version on, outcomes and measurements may be
    -- deflated (see `packed`), which readers of version 1 do not know.
    CREATE INDEX experiments_by_path ON experiments (path, started DESC, id DESC);
    CREATE INDEX experiments_by_machine ON experiments (machine, started DESC, id DESC);
",
];

/// Runs all missing steps in one transaction.
///
/// Two processes may migrate at once, so the version is read again under the lock.
pub(crate) fn migrate(
    connection: &mut Connection,
    path: &Path,
    steps: &[&str],
) -> Result<(), StoreError> {
    let sqlite = StoreError::sqlite(path, "bringing it up to date");
    let known = steps.len() as u32;
    if version(connection).map_err(sqlite)? == known && is_ours(connection).map_err(sqlite)? {
        return Ok(());
    }
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate);
    let change = change.map_err(sqlite)?;
    let found = version(&change).map_err(sqlite)?;
    if !is_ours(&change).map_err(sqlite)? {
        let tables: i64 = change
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .map_err(sqlite)?;
        if tables > 0 || found > 0 {
            let why = "it is another program's SQLite database".into();
            return Err(StoreError::NotOurs { path: path.to_path_buf(), why });
        }
    }
    if found > known {
        return Err(StoreError::Newer { path: path.to_path_buf(), found, known });
    }
    for step in &steps[found as usize..] {
        change.execute_batch(step).map_err(sqlite)?;
    }
    change.pragma_update(None, "application_id", APPLICATION_ID).map_err(sqlite)?;
    change.pragma_update(None, "user_version", known).map_err(sqlite)?;
    change.commit().map_err(sqlite)
}

/// True if no step is missing.
pub(crate) fn is_current(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(version(connection)? == MIGRATIONS.len() as u32 && is_ours(connection)?)
}

/// Checks that a read-only file can be read without a migration.
pub(crate) fn readable(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let sqlite = StoreError::sqlite(path, "opening it");
    let (found, known) = (version(connection).map_err(sqlite)?, MIGRATIONS.len() as u32);
    if !is_ours(connection).map_err(sqlite)? {
        let why = "it is another program's SQLite database".into();
        return Err(StoreError::NotOurs { path: path.to_path_buf(), why });
    }
    if found > known {
        return Err(StoreError::Newer { path: path.to_path_buf(), found, known });
    }
    // No step so far changed a table that is read, so older files are readable too.
    Ok(())
}

pub(crate) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

pub(crate) fn is_ours(connection: &Connection) -> rusqlite::Result<bool> {
    let id: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    Ok(id == APPLICATION_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_memory() -> Connection {
        Connection::open_in_memory().unwrap()
    }

    #[test]
    fn a_fresh_file_gets_every_step_and_a_second_run_changes_nothing() {
        let mut db = in_memory();
        let path = Path::new("memory");
        migrate(&mut db, path, MIGRATIONS).unwrap();
        assert_eq!(version(&db).unwrap(), MIGRATIONS.len() as u32);
        migrate(&mut db, path, MIGRATIONS).unwrap();
        assert_eq!(version(&db).unwrap(), MIGRATIONS.len() as u32);
    }

    #[test]
    fn an_older_file_gets_only_the_steps_it_lacks_and_keeps_its_rows() {
        let mut db = in_memory();
        let path = Path::new("memory");
        let steps = ["CREATE TABLE a (x); INSERT INTO a VALUES (7)", "ALTER TABLE a ADD COLUMN y"];
        migrate(&mut db, path, &steps[..1]).unwrap();
        migrate(&mut db, path, &steps).unwrap();
        let row: (i64, Option<i64>) =
            db.query_row("SELECT x, y FROM a", [], |r| Ok((r.get(0)?, r.get(1)?))).unwrap();
        assert_eq!(row, (7, None));
        assert_eq!(version(&db).unwrap(), 2);
    }

    #[test]
    fn a_step_that_fails_leaves_the_file_as_it_was() {
        let mut db = in_memory();
        let path = Path::new("memory");
        let steps = ["CREATE TABLE a (x)", "CREATE TABLE b (x)", "CREATE TABLE a (x)"];
        migrate(&mut db, path, &steps[..1]).unwrap();
        migrate(&mut db, path, &steps).unwrap_err();
        assert_eq!(version(&db).unwrap(), 1);
        let tables: i64 =
            db.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0)).unwrap();
        assert_eq!(tables, 1, "table b must have been rolled back");
    }

    #[test]
    fn another_programs_database_is_left_alone() {
        let mut db = in_memory();
        db.execute_batch("CREATE TABLE bookmarks (url)").unwrap();
        let error = migrate(&mut db, Path::new("places.db"), MIGRATIONS).unwrap_err();
        assert!(matches!(error, StoreError::NotOurs { .. }), "{error}");
        assert_eq!(version(&db).unwrap(), 0);
    }

    #[test]
    fn a_newer_file_is_refused_with_both_versions() {
        let mut db = in_memory();
        let path = Path::new("r.db");
        migrate(&mut db, path, MIGRATIONS).unwrap();
        db.pragma_update(None, "user_version", 99).unwrap();
        let text = migrate(&mut db, path, MIGRATIONS).unwrap_err().to_string();
        assert!(text.contains("99") && text.contains(&MIGRATIONS.len().to_string()), "{text}");
    }
}
