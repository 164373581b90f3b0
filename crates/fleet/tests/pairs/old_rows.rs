//! Rows that a database drops by age.

use testkit::servers::Database;
use wirepath_fleet::book::Archive;
use wirepath_fleet::postgres::{PostgresArchive, SCHEMA};

#[test]
fn ended_jobs_of_meshes_are_dropped_by_age_and_no_others() {
    let Some(database) = Database::start() else { return };
    let sql = |sql: &str| database.sql("postgres", sql);
    sql(SCHEMA);
    for (job, state, args, age) in [
        ("first-version", "stored", r#"["mesh","{}"]"#, "2 days"),
        ("old-mesh", "stored", r#"{"v":2,"call":{"echo":{}}}"#, "2 days"),
        ("old-pings", "stored", r#"{"v":2,"call":{"ping":{}}}"#, "2 days"),
        ("new-mesh", "stored", r#"{"v":2,"call":{"echo":{}}}"#, "0 days"),
        ("open-mesh", "running", r#"{"v":2,"call":{"echo":{}}}"#, "2 days"),
        ("old-prove", "stored", r#"{"v":2,"call":{"run-alone":{}}}"#, "2 days"),
    ] {
        sql(&format!(
            "INSERT INTO jobs (job, experiment, host, state, attempt, fence, args, not_after_ms, changed)
             VALUES ('{job}', 'x', 'h', '{state}', 1, 1, '{args}', 1, now() - interval '{age}')"
        ));
    }
    sql("SELECT wirepath_drop_before(current_date)");
    let left = sql("SELECT string_agg(job, ',' ORDER BY job) FROM jobs");
    assert_eq!(left, "new-mesh,old-prove,open-mesh");
    // Of the first version.
    sql(r#"INSERT INTO jobs (job, experiment, host, state, attempt, fence, args, not_after_ms)
           VALUES ('first-prove', 'y', 'h', 'planned', 1, 0, '["probe","--json"]', 1)"#);
    let mut archive =
        PostgresArchive::open(&database.address("postgres"), None).expect("a database");
    let refused = archive.entries(Some("y")).expect_err("another version").to_string();
    assert!(refused.contains("version 1") && refused.contains("version 2"), "{refused}");
}
