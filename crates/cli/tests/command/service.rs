//! The page "Your service" is a file that runs.

use super::*;
use crate::common::{is_installed, json};

const PAGE: &str = include_str!("../../../../docs/your-service.md");

#[test]
fn the_file_of_the_page_your_service_runs_and_each_change_is_an_arm() {
    if !is_installed("redis-server") {
        return;
    }
    let file = testkit::page_file(PAGE);
    let data = Data::new();
    let path = data.file("service.toml");
    fs::write(&path, file).expect("a file");
    let more = ["--time", "30s", "--max-blocks", "6", "--json"];
    let args = [&["prove", "command", &path][..], &more].concat();
    let outcome = json(data.wirepath(&args));
    let expected =
        ["baseline", "baseline again", "env:THREADS=2", "tso=off", "rps-cpus=1", "rps-cpus=2"];
    assert_eq!(names(&outcome), expected);
    assert_no_failure(&outcome);
    assert!(median(&outcome, "tso=off", "rps") > 0.0);
}
