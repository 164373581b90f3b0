//! Exchange and archive in one SQLite file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::{
    ATTEMPTS_MAX, Archive, BookEntry, BookError, Exchange, IS_OPEN, Job, JobEvent, JobRow,
    JobState, Report, SILENCE_MS, call_text, json, read_call, read_versioned,
};

/// Time limit for waiting on another writer.
const WRITER_TIMEOUT: Duration = Duration::from_secs(60);

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS fences (fence INTEGER PRIMARY KEY AUTOINCREMENT);
    CREATE TABLE IF NOT EXISTS jobs (
        job TEXT PRIMARY KEY, experiment TEXT NOT NULL, host TEXT NOT NULL, state TEXT NOT NULL,
        attempt INTEGER NOT NULL, fence INTEGER NOT NULL, args TEXT NOT NULL, not_after_ms INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS outcomes (
        job TEXT PRIMARY KEY REFERENCES jobs, host TEXT NOT NULL, attempt INTEGER NOT NULL,
        state TEXT NOT NULL, body TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS given (host TEXT PRIMARY KEY, job TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS reports (number INTEGER PRIMARY KEY AUTOINCREMENT, report TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS confirmed (fence INTEGER PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS leases (host TEXT PRIMARY KEY, fence INTEGER NOT NULL, until_ms INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS alive (host TEXT PRIMARY KEY, at_ms INTEGER NOT NULL);
";

/// Exchange and archive in one file, which several processes may use at once.
#[derive(Debug)]
pub struct SqliteBook {
    connection: Connection,
    path: PathBuf,
}

impl SqliteBook {
    /// Opens the file, and creates it and its folder if missing.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, BookError> {
        let path = path.as_ref().to_path_buf();
        let connection = open(&path, SCHEMA)?;
        Ok(SqliteBook { connection, path })
    }

    fn sqlite(&self, doing: &'static str) -> impl Fn(rusqlite::Error) -> BookError + '_ {
        move |source| BookError::Sqlite { path: self.path.clone(), doing, source }
    }

    fn execute(
        &self,
        doing: &'static str,
        sql: &str,
        values: impl rusqlite::Params,
    ) -> Result<usize, BookError> {
        self.connection.execute(sql, values).map_err(self.sqlite(doing))
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn state(&self, name: &str) -> Result<JobState, BookError> {
        JobState::from_name(name).ok_or_else(|| BookError::Strange {
            place: self.place(),
            what: "state",
            why: name.to_owned(),
        })
    }

    fn new_fence(&self) -> Result<u64, BookError> {
        self.execute("a new fence", "INSERT INTO fences DEFAULT VALUES", [])?;
        Ok(self.connection.last_insert_rowid() as u64)
    }

    fn select(&self, filter: &str, value: Option<&str>) -> Result<Vec<BookEntry>, BookError> {
        let sql = format!(
            "SELECT job, experiment, host, state, attempt, fence, args, not_after_ms FROM jobs {filter} ORDER BY rowid"
        );
        let doing = self.sqlite("reading jobs");
        let mut statement = self.connection.prepare(&sql).map_err(&doing)?;
        let mut rows = statement.query(rusqlite::params_from_iter(value)).map_err(&doing)?;
        let mut entries = Vec::new();
        while let Some(row) = rows.next().map_err(&doing)? {
            let text = |at| row.get::<_, String>(at).map_err(&doing);
            let job = Job {
                v: super::VERSION,
                job: text(0)?,
                experiment: text(1)?,
                host: text(2)?,
                attempt: row.get(4).map_err(&doing)?,
                fence: row.get::<_, i64>(5).map_err(&doing)? as u64,
                call: read_call(&self.place(), &text(6)?)?,
                not_after_ms: row.get::<_, i64>(7).map_err(&doing)? as u64,
            };
            entries.push(BookEntry { job, state: self.state(&text(3)?)? });
        }
        Ok(entries)
    }
}

/// Opens a file of the books, and creates it and its folder if missing.
pub(crate) fn open(path: &Path, schema: &str) -> Result<Connection, BookError> {
    let failed =
        |source| BookError::Sqlite { path: path.to_path_buf(), doing: "opening it", source };
    if let Some(folder) = path.parent() {
        // SQLite says why the file cannot be opened.
        let _ = std::fs::create_dir_all(folder);
    }
    let connection = Connection::open(path).map_err(failed)?;
    connection.busy_timeout(WRITER_TIMEOUT).map_err(failed)?;
    // Two processes may create it at once; the journal's mode is changed by one of them.
    connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    connection.execute_batch(&format!("BEGIN IMMEDIATE; {schema} COMMIT;")).map_err(failed)?;
    Ok(connection)
}

/// Numbers of SQLite are signed.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Exchange for SqliteBook {
    fn send(&mut self, jobs: &[Job]) -> Result<(), BookError> {
        let sql = "INSERT INTO given VALUES (?1, ?2) ON CONFLICT (host) DO UPDATE SET job = ?2";
        for job in jobs {
            self.execute("giving a job", sql, params![job.host, json(job)])?;
        }
        Ok(())
    }

    fn next(&mut self, host: &str) -> Result<Option<Job>, BookError> {
        let sql = "SELECT job FROM given WHERE host = ?1";
        let found: Option<String> = self
            .connection
            .query_row(sql, [host], |row| row.get(0))
            .optional()
            .map_err(self.sqlite("reading a job"))?;
        found.map(|text| read_versioned(&self.place(), "job", &text)).transpose()
    }

    fn report(&mut self, report: &Report) -> Result<(), BookError> {
        let sql = "INSERT INTO reports (report) VALUES (?1)";
        self.execute("reporting", sql, [json(report)]).map(drop)
    }

    fn reports(&mut self) -> Result<Vec<(i64, Report)>, BookError> {
        let doing = self.sqlite("reading reports");
        let sql = "SELECT number, report FROM reports ORDER BY number LIMIT 500";
        let mut statement = self.connection.prepare(sql).map_err(&doing)?;
        let found = statement
            .query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(&doing)?;
        found
            .into_iter()
            .map(|(number, text)| Ok((number, read_versioned(&self.place(), "report", &text)?)))
            .collect()
    }

    fn acknowledge(&mut self, numbers: &[i64]) -> Result<(), BookError> {
        let sql = "DELETE FROM reports WHERE number = ?1";
        for number in numbers {
            self.execute("dropping a report", sql, [number])?;
        }
        Ok(())
    }

    fn confirm(&mut self, fences: &[u64]) -> Result<(), BookError> {
        let sql = "INSERT OR IGNORE INTO confirmed VALUES (?1)";
        for fence in fences {
            self.execute("confirming a report", sql, [number(*fence)])?;
        }
        Ok(())
    }

    fn is_confirmed(&mut self, fence: u64) -> Result<bool, BookError> {
        let sql = "SELECT 1 FROM confirmed WHERE fence = ?1";
        let found = self.connection.query_row(sql, [number(fence)], |_| Ok(())).optional();
        found.map(|found| found.is_some()).map_err(self.sqlite("reading a confirmation"))
    }

    fn lease(
        &mut self,
        host: &str,
        fence: u64,
        now_ms: u64,
        until_ms: u64,
    ) -> Result<bool, BookError> {
        let sql = "INSERT INTO leases VALUES (?1, ?2, ?4) ON CONFLICT (host) DO UPDATE
                   SET fence = ?2, until_ms = ?4 WHERE fence = ?2 OR until_ms < ?3";
        let values = params![host, number(fence), number(now_ms), number(until_ms)];
        Ok(self.execute("taking a lease", sql, values)? == 1)
    }

    fn release(&mut self, host: &str, fence: u64) -> Result<(), BookError> {
        let sql = "DELETE FROM leases WHERE host = ?1 AND fence = ?2";
        self.execute("ending a lease", sql, params![host, number(fence)]).map(drop)
    }

    fn beat(&mut self, host: &str, now_ms: u64) -> Result<(), BookError> {
        let sql = "INSERT INTO alive VALUES (?1, ?2) ON CONFLICT (host) DO UPDATE SET at_ms = ?2";
        self.execute("a sign of life", sql, params![host, number(now_ms)]).map(drop)
    }

    fn are_alive(&mut self, hosts: &[&str], now_ms: u64) -> Result<Vec<bool>, BookError> {
        hosts.iter().map(|host| self.is_alive(host, now_ms)).collect()
    }
}

impl SqliteBook {
    fn is_alive(&self, host: &str, now_ms: u64) -> Result<bool, BookError> {
        let sql = "SELECT 1 FROM alive WHERE host = ?1 AND at_ms >= ?2
                   UNION SELECT 1 FROM leases WHERE host = ?1 AND until_ms >= ?3";
        let since = number(now_ms.saturating_sub(SILENCE_MS));
        let values = params![host, since, number(now_ms)];
        let found = self.connection.query_row(sql, values, |_| Ok(())).optional();
        found.map(|found| found.is_some()).map_err(self.sqlite("reading a sign of life"))
    }
}

impl SqliteBook {
    fn give_one(&self, entry: &BookEntry) -> Result<Option<BookEntry>, BookError> {
        let fence = self.new_fence()?;
        let Some(next) = entry.state.after(JobEvent::Give) else { return Ok(None) };
        let sql =
            "UPDATE jobs SET state = ?1, fence = ?2 WHERE job = ?3 AND state = ?4 AND fence = ?5";
        let old = number(entry.job.fence);
        let values = params![next.name(), number(fence), entry.job.job, entry.state.name(), old];
        let moved = self.execute("giving a job", sql, values)? == 1;
        Ok(moved.then(|| BookEntry { job: Job { fence, ..entry.job.clone() }, state: next }))
    }

    fn enter(&mut self, report: &Report) -> Result<(), BookError> {
        let found = self.select("WHERE job = ?1", Some(&report.job))?.pop();
        let Some(entry) = found else { return Ok(()) };
        let is_current = entry.job.fence == report.fence && entry.job.host == report.host;
        if !is_current || entry.state.is_final() {
            return Ok(());
        }
        let attempt = entry.job.attempt;
        match report.state {
            JobState::Accepted => self.step(&entry, JobEvent::Accept).map(drop),
            JobState::Running => self.step(&entry, JobEvent::Begin).map(drop),
            JobState::Interrupted if attempt < ATTEMPTS_MAX => self.again(&entry).map(drop),
            state => {
                let (job, host) = (report.job.clone(), report.host.clone());
                let row = JobRow { job, host, attempt, state, body: report.body.clone() };
                self.close(&entry, &row).map(drop)
            }
        }
    }

    /// Moves a job on by an event that [`JobState::after`] allows; false if state or fence differ.
    fn step(&self, entry: &BookEntry, event: JobEvent) -> Result<bool, BookError> {
        let Some(next) = entry.state.after(event) else { return Ok(false) };
        let sql = "UPDATE jobs SET state = ?1 WHERE job = ?2 AND state = ?3 AND fence = ?4";
        let fence = number(entry.job.fence);
        let values = params![next.name(), entry.job.job, entry.state.name(), fence];
        Ok(self.execute("moving a job on", sql, values)? == 1)
    }
}

impl Archive for SqliteBook {
    fn plan(&mut self, jobs: &[Job]) -> Result<(), BookError> {
        for job in jobs {
            let values = params![
                job.job,
                job.experiment,
                job.host,
                JobState::Planned.name(),
                job.attempt,
                0,
                call_text(job),
                number(job.not_after_ms)
            ];
            let sql = "INSERT OR IGNORE INTO jobs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
            self.execute("planning a job", sql, values)?;
        }
        Ok(())
    }

    fn give(&mut self, planned: &[BookEntry]) -> Result<Vec<BookEntry>, BookError> {
        let mut given = Vec::new();
        for entry in planned {
            given.extend(self.give_one(entry)?);
        }
        Ok(given)
    }

    fn store(&mut self, reports: &[Report]) -> Result<(), BookError> {
        reports.iter().try_for_each(|report| self.enter(report))
    }

    fn again(&mut self, entry: &BookEntry) -> Result<bool, BookError> {
        let Some(next) = entry.state.after(JobEvent::Again) else { return Ok(false) };
        let fence = number(self.new_fence()?);
        let sql = "UPDATE jobs SET state = ?1, attempt = attempt + 1, fence = ?2
                   WHERE job = ?3 AND state = ?4 AND fence = ?5";
        let old = number(entry.job.fence);
        let values = params![next.name(), fence, entry.job.job, entry.state.name(), old];
        Ok(self.execute("planning another attempt", sql, values)? == 1)
    }

    fn close(&mut self, entry: &BookEntry, row: &JobRow) -> Result<bool, BookError> {
        if !entry.state.can_end_as(row.state) {
            return Ok(false);
        }
        let last = if row.state.is_final() { row.state } else { JobState::Stored };
        let path = self.path.clone();
        let failed =
            |source| BookError::Sqlite { path: path.clone(), doing: "ending a job", source };
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(failed)?;
        let moved = transaction
            .execute(
                "UPDATE jobs SET state = ?1 WHERE job = ?2 AND state = ?3 AND fence = ?4",
                params![last.name(), row.job, entry.state.name(), number(entry.job.fence)],
            )
            .map_err(failed)?;
        if moved != 1 {
            return Ok(false);
        }
        let values = params![row.job, row.host, row.attempt, row.state.name(), row.body];
        transaction
            .execute("INSERT INTO outcomes VALUES (?1, ?2, ?3, ?4, ?5)", values)
            .map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(true)
    }

    fn entries(&mut self, experiment: Option<&str>) -> Result<Vec<BookEntry>, BookError> {
        match experiment {
            Some(_) => self.select("WHERE experiment = ?1", experiment),
            None => self.select(&format!("WHERE {IS_OPEN}"), None),
        }
    }

    fn open_entries(&mut self, experiment: &str) -> Result<Vec<BookEntry>, BookError> {
        self.select(&format!("WHERE experiment = ?1 AND {IS_OPEN}"), Some(experiment))
    }

    fn newest(&mut self, count: u32) -> Result<Vec<String>, BookError> {
        let doing = self.sqlite("reading experiments");
        let sql = "SELECT DISTINCT experiment FROM jobs WHERE instr(experiment, '.') = 0
                   ORDER BY experiment DESC LIMIT ?1";
        let mut statement = self.connection.prepare(sql).map_err(&doing)?;
        let found = statement.query_map([count], |row| row.get(0)).map_err(&doing)?;
        found.collect::<Result<_, _>>().map_err(&doing)
    }

    fn rows(&mut self, experiment: &str) -> Result<Vec<JobRow>, BookError> {
        let sql = "SELECT o.job, o.host, o.attempt, o.state, o.body FROM outcomes o
                   JOIN jobs j ON j.job = o.job WHERE j.experiment = ?1 ORDER BY j.rowid";
        let doing = self.sqlite("reading outcomes");
        let mut statement = self.connection.prepare(sql).map_err(&doing)?;
        let mut found = statement.query([experiment]).map_err(&doing)?;
        let mut rows = Vec::new();
        while let Some(row) = found.next().map_err(&doing)? {
            let text = |at| row.get::<_, String>(at).map_err(&doing);
            rows.push(JobRow {
                job: text(0)?,
                host: text(1)?,
                attempt: row.get(2).map_err(&doing)?,
                state: self.state(&text(3)?)?,
                body: text(4)?,
            });
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::Outbox;

    fn assert_names_both_versions<T: std::fmt::Debug>(read: Result<T, BookError>, what: &str) {
        let text = read.expect_err(what).to_string();
        assert!(text.contains(what) && text.contains("of version 1"), "{text}");
        assert!(text.contains("reads version 2"), "{text}");
    }

    #[test]
    fn rows_of_an_earlier_version_are_refused_with_both_versions() {
        let folder = tempfile::tempdir().unwrap();
        let (file, memory) = (folder.path().join("fleet.db"), folder.path().join("agents.db"));
        let mut book = SqliteBook::open(&file).unwrap();
        drop(Outbox::open(&memory, "h").unwrap());
        let report =
            r#"{"v":1,"job":"j","host":"h","attempt":1,"fence":1,"state":"done","body":""}"#;
        let job = r#"{"v":1,"job":"j","experiment":"e","host":"h","attempt":1,"fence":1,
                      "args":["probe"],"not_after_ms":9}"#;
        let insert = |file: &Path, sql: &str, text: &str| {
            Connection::open(file).unwrap().execute(sql, [text]).unwrap();
        };
        let row = "INSERT INTO jobs VALUES ('j', 'e', 'h', 'planned', 1, 0, ?1, 9)";
        insert(&file, row, r#"["probe","--json"]"#);
        insert(&file, "INSERT INTO given VALUES ('h', ?1)", job);
        insert(&file, "INSERT INTO reports (report) VALUES (?1)", report);
        insert(&memory, "INSERT INTO outbox VALUES ('h', 1, ?1)", report);
        assert_names_both_versions(book.entries(None), "job");
        assert_names_both_versions(book.next("h"), "job");
        assert_names_both_versions(book.reports(), "report");
        assert_names_both_versions(Outbox::open(&memory, "h").unwrap().all(), "report");
    }
}
