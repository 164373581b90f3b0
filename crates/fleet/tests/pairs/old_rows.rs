//! Rows that a database drops by age.

use testkit::servers::Database;
use wirepath_fleet::postgres::SCHEMA;

#[test]
fn ended_jobs_of_meshes_are_dropped_by_age_and_no_others() {
    let Some(database) = Database::start() else { return };
    let sql = |sql: &str| database.sql("postgres", sql);
    sql(SCHEMA);
    for (job, state, args, age) in [
        ("old-mesh", "stored", r#"["mesh","{}"]"#, "2 days"),
        ("new-mesh", "stored", r#"["mesh","{}"]"#, "0 days"),
        ("open-mesh", "running", r#"["mesh","{}"]"#, "2 days"),
        ("old-prove", "stored", r#"["probe","--json"]"#, "2 days"),
    ] {
        sql(&format!(
            "INSERT INTO jobs (job, experiment, host, state, attempt, fence, args, not_after_ms, changed)
             VALUES ('{job}', 'x', 'h', '{state}', 1, 1, '{args}', 1, now() - interval '{age}')"
        ));
    }
    sql("SELECT wirepath_drop_before(current_date)");
    let left = sql("SELECT string_agg(job, ',' ORDER BY job) FROM jobs");
    assert_eq!(left, "new-mesh,old-prove,open-mesh");
}
