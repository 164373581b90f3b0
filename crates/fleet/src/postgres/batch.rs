//! A batch of reports in one transaction: copied to a temporary table, then moved by statements over all of it.
//!
//! One transaction a report would wait for the disk each time.

use postgres::binary_copy::BinaryCopyInWriter;
use postgres::types::Type;
use postgres::{Error, Transaction};

use super::PostgresArchive;
use crate::book::{ATTEMPTS_MAX, BookError, JobState, Report};
use crate::packed::deflate;

const INCOMING: &str = "
    CREATE TEMPORARY TABLE IF NOT EXISTS incoming (
        line int, job text, host text, fence bigint, state text, body bytea) ON COMMIT DELETE ROWS";

/// Jobs are locked in one order, so that two collectors never wait for each other; one report a job is kept: its
/// end, or the latest news.
const CHOOSE: &str = "
    CREATE TEMPORARY TABLE chosen ON COMMIT DROP AS
    WITH open AS MATERIALIZED (
        SELECT job, host, fence, attempt FROM jobs
        WHERE state IN ('given', 'accepted', 'running') AND job IN (SELECT job FROM incoming)
        ORDER BY job FOR UPDATE)
    SELECT DISTINCT ON (open.job) open.job, open.attempt, incoming.host, incoming.state, incoming.body
    FROM incoming JOIN open ON open.job = incoming.job AND open.fence = incoming.fence AND open.host = incoming.host
    ORDER BY open.job, incoming.state NOT IN ('accepted', 'running') DESC, incoming.state = 'running' DESC, line";

const BEGUN: &str = "
    UPDATE jobs SET state = chosen.state, changed = now() FROM chosen
    WHERE jobs.job = chosen.job AND (chosen.state = 'running' OR chosen.state = 'accepted' AND jobs.state = 'given')";

const AGAIN: &str = "
    UPDATE jobs SET state = 'planned', attempt = jobs.attempt + 1, fence = nextval('fences'), changed = now()
    FROM chosen WHERE jobs.job = chosen.job AND chosen.state = 'interrupted' AND jobs.attempt < $1";

const KEYS: &str = "
    INSERT INTO keys SELECT job, attempt, wirepath_today() FROM chosen
    WHERE state IN ('done', 'failed', 'refused') OR state = 'interrupted' AND attempt >= $1
    ON CONFLICT (job) DO NOTHING";

const OUTCOMES: &str = "
    INSERT INTO outcomes SELECT keys.day, chosen.job, chosen.attempt, chosen.host, chosen.state, chosen.body
    FROM chosen JOIN keys ON keys.job = chosen.job AND keys.attempt = chosen.attempt
    WHERE chosen.state NOT IN ('accepted', 'running')";

const STORED: &str = "
    UPDATE jobs SET state = 'stored', changed = now() FROM chosen JOIN keys ON keys.job = chosen.job
    WHERE jobs.job = chosen.job AND chosen.state NOT IN ('accepted', 'running')";

const SEEN: &str = "
    UPDATE hosts SET seen = now() FROM (SELECT DISTINCT host FROM incoming) AS of WHERE hosts.host = of.host";

/// Enters reports into the book in one transaction.
pub(super) fn store(archive: &mut PostgresArchive, reports: &[Report]) -> Result<(), BookError> {
    archive.run("storing reports", |client| {
        client.batch_execute(INCOMING)?;
        let mut transaction = client.transaction()?;
        copy(&mut transaction, reports)?;
        let attempts_max = ATTEMPTS_MAX as i32;
        transaction.batch_execute(CHOOSE)?;
        transaction.execute(BEGUN, &[])?;
        transaction.execute(AGAIN, &[&attempts_max])?;
        transaction.execute("SELECT wirepath_today()", &[])?;
        transaction.execute(KEYS, &[&attempts_max])?;
        transaction.execute(OUTCOMES, &[])?;
        transaction.execute(STORED, &[])?;
        transaction.execute(SEEN, &[])?;
        transaction.commit()
    })
}

fn copy(transaction: &mut Transaction<'_>, reports: &[Report]) -> Result<(), Error> {
    let writer = transaction.copy_in("COPY incoming FROM STDIN (FORMAT BINARY)")?;
    let columns = [Type::INT4, Type::TEXT, Type::TEXT, Type::INT8, Type::TEXT, Type::BYTEA];
    let mut rows = BinaryCopyInWriter::new(writer, &columns);
    for (line, report) in reports.iter().enumerate() {
        let body = match report.state {
            JobState::Accepted | JobState::Running => Vec::new(),
            _ => deflate(report.body.as_bytes()),
        };
        // No text of PostgreSQL has a zero byte.
        let (job, host) = (report.job.replace('\0', ""), report.host.replace('\0', ""));
        let (line, fence) = (line as i32, report.fence as i64);
        rows.write(&[&line, &job, &host, &fence, &report.state.name(), &body])?;
    }
    rows.finish().map(drop)
}
