//! [`Archive`] over the tables.

use postgres::Row as SqlRow;

use super::{PostgresArchive, deflate, inflate};
use crate::book::{Archive, BookError, Entry, Event, Job, Row, State, VERSION};

/// Numbers of PostgreSQL are signed.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

const COLUMNS: &str =
    "SELECT job, experiment, host, state, attempt, fence, args, not_after_ms FROM jobs";

impl PostgresArchive {
    fn select(&mut self, filter: &str, value: Option<&str>) -> Result<Vec<Entry>, BookError> {
        let sql = format!("{COLUMNS} {filter} ORDER BY place");
        let rows = self.run("reading jobs", |client| match value {
            Some(value) => client.query(&sql, &[&value]),
            None => client.query(&sql, &[]),
        })?;
        rows.iter().map(|row| self.entry_of(row)).collect()
    }

    fn entry_of(&self, row: &SqlRow) -> Result<Entry, BookError> {
        let text = |at: usize| row.try_get::<_, String>(at).map_err(|e| self.strange("job", e));
        let whole = |at: usize| row.try_get::<_, i64>(at).map_err(|e| self.strange("job", e));
        let attempt: i32 = row.try_get(4).map_err(|e| self.strange("job", e))?;
        let state = text(3)?;
        let job = Job {
            v: VERSION,
            job: text(0)?,
            experiment: text(1)?,
            host: text(2)?,
            attempt: attempt.unsigned_abs(),
            fence: whole(5)?.unsigned_abs(),
            args: serde_json::from_str(&text(6)?).map_err(|e| self.strange("job", e))?,
            not_after_ms: whole(7)?.unsigned_abs(),
        };
        let state = State::of_name(&state).ok_or_else(|| self.strange("state", state))?;
        Ok(Entry { job, state })
    }

    /// Moves a job on with a new fence; returns it, or `None` if state or fence differ.
    fn renew(
        &mut self,
        doing: &'static str,
        entry: &Entry,
        next: State,
        attempt: u32,
    ) -> Result<Option<u64>, BookError> {
        let old = number(entry.job.fence);
        let attempt = attempt as i32;
        let found = self.run(doing, |client| {
            let sql = "UPDATE jobs SET state = $1, attempt = $2, fence = nextval('fences'), changed = now()
                       WHERE job = $3 AND state = $4 AND fence = $5 RETURNING fence";
            let values: [&(dyn postgres::types::ToSql + Sync); 5] =
                [&next.name(), &attempt, &entry.job.job, &entry.state.name(), &old];
            client.query_opt(sql, &values)?.map(|row| row.try_get::<_, i64>(0)).transpose()
        })?;
        Ok(found.map(i64::unsigned_abs))
    }
}

impl Archive for PostgresArchive {
    fn plan(&mut self, jobs: &[Job]) -> Result<(), BookError> {
        let args = |job: &Job| serde_json::to_string(&job.args).unwrap_or_default();
        self.run("planning jobs", |client| {
            let mut transaction = client.transaction()?;
            for job in jobs {
                let sql = "INSERT INTO jobs (job, experiment, host, state, attempt, fence, args, not_after_ms)
                           VALUES ($1, $2, $3, 'planned', $4, 0, $5, $6) ON CONFLICT (job) DO NOTHING";
                let (attempt, not_after_ms) = (job.attempt as i32, number(job.not_after_ms));
                let values: [&(dyn postgres::types::ToSql + Sync); 6] =
                    [&job.job, &job.experiment, &job.host, &attempt, &args(job), &not_after_ms];
                transaction.execute(sql, &values)?;
            }
            transaction.commit()
        })
    }

    fn step(&mut self, entry: &Entry, event: Event) -> Result<bool, BookError> {
        let Some(next) = entry.state.after(event) else { return Ok(false) };
        let fence = number(entry.job.fence);
        let moved = self.run("moving a job on", |client| {
            let sql = "UPDATE jobs SET state = $1, changed = now() WHERE job = $2 AND state = $3 AND fence = $4";
            client.execute(sql, &[&next.name(), &entry.job.job, &entry.state.name(), &fence])
        })?;
        Ok(moved == 1)
    }

    fn give(&mut self, entry: &Entry) -> Result<Option<Entry>, BookError> {
        let Some(next) = entry.state.after(Event::Give) else { return Ok(None) };
        let fence = self.renew("giving a job", entry, next, entry.job.attempt)?;
        Ok(fence.map(|fence| Entry { job: Job { fence, ..entry.job.clone() }, state: next }))
    }

    fn again(&mut self, entry: &Entry) -> Result<bool, BookError> {
        let Some(next) = entry.state.after(Event::Again) else { return Ok(false) };
        let attempt = entry.job.attempt.saturating_add(1);
        Ok(self.renew("planning another attempt", entry, next, attempt)?.is_some())
    }

    fn close(&mut self, entry: &Entry, row: &Row) -> Result<bool, BookError> {
        if !entry.state.can_end_as(row.state) {
            return Ok(false);
        }
        let last = if row.state.is_final() { row.state } else { State::Stored };
        let (fence, attempt) = (number(entry.job.fence), row.attempt as i32);
        let body = deflate(&row.body);
        self.run("ending a job", |client| {
            let mut transaction = client.transaction()?;
            let sql = "UPDATE jobs SET state = $1, changed = now() WHERE job = $2 AND state = $3 AND fence = $4";
            let moved = transaction
                .execute(sql, &[&last.name(), &row.job, &entry.state.name(), &fence])?;
            if moved != 1 {
                return Ok(false);
            }
            let sql = "WITH today AS MATERIALIZED (SELECT wirepath_today() AS day),
                       key AS (INSERT INTO keys SELECT $1::text, $2::int, day FROM today RETURNING day)
                       SELECT day FROM key";
            // The partition must be there before the statement that uses it is planned.
            transaction.execute(sql, &[&row.job, &attempt])?;
            let sql = "INSERT INTO outcomes SELECT day, job, attempt, $2, $3, $4 FROM keys WHERE job = $1";
            transaction.execute(sql, &[&row.job, &row.host, &row.state.name(), &body])?;
            transaction.commit()?;
            Ok(true)
        })
    }

    fn entry(&mut self, job: &str) -> Result<Option<Entry>, BookError> {
        Ok(self.select("WHERE job = $1", Some(job))?.pop())
    }

    fn entries(&mut self, experiment: Option<&str>) -> Result<Vec<Entry>, BookError> {
        match experiment {
            Some(_) => self.select("WHERE experiment = $1", experiment),
            None => self.select("", None),
        }
    }

    fn rows(&mut self, experiment: &str) -> Result<Vec<Row>, BookError> {
        let rows = self.run("reading outcomes", |client| {
            let sql = "SELECT o.job, o.host, o.attempt, o.state, o.body FROM jobs j
                       JOIN keys k ON k.job = j.job JOIN outcomes o ON o.day = k.day AND o.job = k.job
                       WHERE j.experiment = $1 ORDER BY j.place";
            client.query(sql, &[&experiment])
        })?;
        rows.iter().map(|row| self.row_of(row)).collect()
    }
}

impl PostgresArchive {
    fn row_of(&self, row: &SqlRow) -> Result<Row, BookError> {
        let strange = |e: postgres::Error| self.strange("outcome", e);
        let state: String = row.try_get(3).map_err(strange)?;
        let body: Vec<u8> = row.try_get(4).map_err(strange)?;
        Ok(Row {
            job: row.try_get(0).map_err(strange)?,
            host: row.try_get(1).map_err(strange)?,
            attempt: row.try_get::<_, i32>(2).map_err(strange)?.unsigned_abs(),
            state: State::of_name(&state).ok_or_else(|| self.strange("state", state))?,
            body: inflate(&body).map_err(|why| self.strange("outcome", why))?,
        })
    }
}
