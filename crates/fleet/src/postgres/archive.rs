//! [`Archive`] over the tables.

use std::collections::BTreeMap;

use postgres::Row as SqlRow;
use postgres::types::ToSql;

use super::{BODY_MAX, PostgresArchive, batch};
use crate::book::{
    Archive, BookEntry, BookError, IS_OPEN, Job, JobEvent, JobRow, JobState, Report, VERSION,
    call_text, read_call,
};
use crate::packed::{deflate, inflate};

/// Numbers of PostgreSQL are signed.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

const COLUMNS: &str =
    "SELECT job, experiment, host, state, attempt, fence, args, not_after_ms FROM jobs";

impl PostgresArchive {
    fn select(&mut self, filter: &str, value: Option<&str>) -> Result<Vec<BookEntry>, BookError> {
        let sql = format!("{COLUMNS} {filter} ORDER BY place");
        let rows = self.run("reading jobs", |client| match value {
            Some(value) => client.query(&sql, &[&value]),
            None => client.query(&sql, &[]),
        })?;
        rows.iter().map(|row| self.read_entry(row)).collect()
    }

    fn read_entry(&self, row: &SqlRow) -> Result<BookEntry, BookError> {
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
            call: read_call(&self.server, &text(6)?)?,
            not_after_ms: whole(7)?.unsigned_abs(),
        };
        let state = JobState::from_name(&state).ok_or_else(|| self.strange("state", state))?;
        Ok(BookEntry { job, state })
    }
}

impl Archive for PostgresArchive {
    fn plan(&mut self, jobs: &[Job]) -> Result<(), BookError> {
        let calls: Vec<String> = jobs.iter().map(call_text).collect();
        let text = |of: fn(&Job) -> &str| jobs.iter().map(of).collect::<Vec<&str>>();
        let (names, hosts) = (text(|job| &job.job), text(|job| &job.host));
        let experiments = text(|job| &job.experiment);
        let attempts: Vec<i32> = jobs.iter().map(|job| job.attempt as i32).collect();
        let limits: Vec<i64> = jobs.iter().map(|job| number(job.not_after_ms)).collect();
        self.run("planning jobs", |client| {
            let sql = "INSERT INTO jobs (job, experiment, host, state, attempt, fence, args, not_after_ms)
                       SELECT job, experiment, host, 'planned', attempt, 0, args, not_after_ms
                       FROM UNNEST($1::text[], $2::text[], $3::text[], $4::int[], $5::text[], $6::bigint[])
                       WITH ORDINALITY AS new (job, experiment, host, attempt, args, not_after_ms, line)
                       ORDER BY line ON CONFLICT (job) DO NOTHING";
            let values: [&(dyn ToSql + Sync); 6] =
                [&names, &experiments, &hosts, &attempts, &calls, &limits];
            client.execute(sql, &values).map(drop)
        })
    }

    fn give(&mut self, planned: &[BookEntry]) -> Result<Vec<BookEntry>, BookError> {
        if planned.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&str> = planned.iter().map(|entry| entry.job.job.as_str()).collect();
        let old: Vec<i64> = planned.iter().map(|entry| number(entry.job.fence)).collect();
        let fences: BTreeMap<String, i64> = self.run("giving jobs", |client| {
            let sql = "UPDATE jobs SET state = 'given', fence = nextval('fences'), changed = now()
                       FROM UNNEST($1::text[], $2::bigint[]) AS old (job, fence)
                       WHERE jobs.job = old.job AND jobs.state = 'planned' AND jobs.fence = old.fence
                       RETURNING jobs.job, jobs.fence";
            let rows = client.query(sql, &[&names, &old])?;
            rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
        })?;
        let given = planned.iter().filter_map(|entry| {
            let fence = fences.get(&entry.job.job)?.unsigned_abs();
            Some(BookEntry { job: Job { fence, ..entry.job.clone() }, state: JobState::Given })
        });
        Ok(given.collect())
    }

    fn store(&mut self, reports: &[Report]) -> Result<(), BookError> {
        batch::store(self, reports)
    }

    fn again(&mut self, entry: &BookEntry) -> Result<bool, BookError> {
        let Some(next) = entry.state.after(JobEvent::Again) else { return Ok(false) };
        let old = number(entry.job.fence);
        let moved = self.run("planning another attempt", |client| {
            let sql = "UPDATE jobs SET state = $1, attempt = attempt + 1, fence = nextval('fences'), changed = now()
                       WHERE job = $2 AND state = $3 AND fence = $4";
            client.execute(sql, &[&next.name(), &entry.job.job, &entry.state.name(), &old])
        })?;
        Ok(moved == 1)
    }

    fn close(&mut self, entry: &BookEntry, row: &JobRow) -> Result<bool, BookError> {
        if !entry.state.can_end_as(row.state) {
            return Ok(false);
        }
        let last = if row.state.is_final() { row.state } else { JobState::Stored };
        let (fence, attempt) = (number(entry.job.fence), row.attempt as i32);
        let body = deflate(row.body.as_bytes());
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

    fn entries(&mut self, experiment: Option<&str>) -> Result<Vec<BookEntry>, BookError> {
        match experiment {
            Some(_) => self.select("WHERE experiment = $1", experiment),
            None => self.select(&format!("WHERE {IS_OPEN}"), None),
        }
    }

    fn open_entries(&mut self, experiment: &str) -> Result<Vec<BookEntry>, BookError> {
        self.select(&format!("WHERE experiment = $1 AND {IS_OPEN}"), Some(experiment))
    }

    fn newest(&mut self, count: u32) -> Result<Vec<String>, BookError> {
        self.run("reading experiments", |client| {
            let sql = "SELECT experiment FROM jobs WHERE strpos(experiment, '.') = 0
                       GROUP BY experiment ORDER BY experiment DESC LIMIT $1";
            let rows = client.query(sql, &[&i64::from(count)])?;
            rows.iter().map(|row| row.try_get(0)).collect()
        })
    }

    fn rows(&mut self, experiment: &str) -> Result<Vec<JobRow>, BookError> {
        let rows = self.run("reading outcomes", |client| {
            let sql = "SELECT o.job, o.host, o.attempt, o.state, o.body FROM jobs j
                       JOIN keys k ON k.job = j.job JOIN outcomes o ON o.day = k.day AND o.job = k.job
                       WHERE j.experiment = $1 ORDER BY j.place";
            client.query(sql, &[&experiment])
        })?;
        rows.iter().map(|row| self.read_end(row)).collect()
    }
}

impl PostgresArchive {
    fn read_end(&self, row: &SqlRow) -> Result<JobRow, BookError> {
        let strange = |e: postgres::Error| self.strange("outcome", e);
        let state: String = row.try_get(3).map_err(strange)?;
        let body: Vec<u8> = row.try_get(4).map_err(strange)?;
        let body = inflate(&body, BODY_MAX).map_err(|why| self.strange("outcome", why))?;
        Ok(JobRow {
            job: row.try_get(0).map_err(strange)?,
            host: row.try_get(1).map_err(strange)?,
            attempt: row.try_get::<_, i32>(2).map_err(strange)?.unsigned_abs(),
            state: JobState::from_name(&state).ok_or_else(|| self.strange("state", state))?,
            body: String::from_utf8(body).map_err(|e| self.strange("outcome", e))?,
        })
    }
}
