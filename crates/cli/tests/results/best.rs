//! `prove --arms best`: the set that is found is measured, and each of its members is needed.

use crate::common::{Data, Running, fail, json, run, succeed, until};

const ARGS: [&str; 7] = ["prove", "fake", "--arms", "best", "--trial", "5ms", "--seed"];

#[test]
fn the_smallest_set_that_helps_is_found_and_each_member_is_needed() {
    let data = Data::new();
    for seed in ["1", "2", "3"] {
        let doc = json(data.wirepath(&[&ARGS[..], &[seed, "--time", "20s", "--json"]].concat()));
        let search = &doc["search"];
        let set: Vec<&str> =
            search["set"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
        assert!(set.contains(&"fast") && !set.contains(&"harmful"), "{search}");
        assert!(search["candidates"].as_u64() >= Some(set.len() as u64), "{search}");
        let members = doc["members"].as_array().unwrap();
        assert_eq!(members.len(), set.len());
        for member in members {
            assert_eq!(member["verdict"], "better", "{member}");
        }
        // Each set without a member is an arm of the same experiment, and so are both baselines.
        let arms = doc["arms"].as_array().unwrap();
        let of_one = usize::from(set.len() == 1);
        assert_eq!(arms.len(), 3 + set.len() - of_one, "{arms:?}");
        let text = succeed(data.wirepath(&["report", "last", "-v"]));
        assert!(text.contains("best set") && text.contains("worse without it"), "{text}");
        let page = data.path().join("best.html");
        succeed(data.wirepath(&["report", "last", "--html", page.to_str().unwrap()]));
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains("best set") && page.contains("worse without it"), "{page}");
    }
}

#[test]
fn without_time_no_set_is_recommended() {
    let data = Data::new();
    let args = [&ARGS[..], &["1", "--time", "20ms", "--max-blocks", "8", "--json"]].concat();
    let output = run(data.wirepath(&args));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let before = said.lines().next().unwrap_or_default();
    assert!(before.contains("first stage") && before.contains("trials of 5 ms"), "{said}");
    let after = said.lines().nth(1).unwrap_or_default();
    assert!(after.contains("ended before its first stage") && after.contains("--time"), "{said}");
    let doc: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(doc["search"]["out_of_time"], true, "{}", doc["search"]);
    let members = doc["members"].as_array().unwrap().len();
    assert_eq!(members, doc["search"]["set"].as_array().unwrap().len());
}

#[test]
fn a_search_is_interrupted_at_once_and_cannot_be_combined() {
    let data = Data::new();
    let args =
        ["prove", "fake", "--arms", "best", "--trial", "50ms", "--time", "600s", "--seed", "1"];
    let mut running = Running::start(data.wirepath(&args));
    assert!(!until(std::time::Duration::from_millis(700), || running.has_ended()));
    let output = running.end_by("INT", std::time::Duration::from_secs(10));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("interrupted before the first block ended"), "{said}");
    assert_eq!(output.status.code(), Some(130));
    let said = fail(data.wirepath(&[&ARGS[..], &["1", "--runs", "5"]].concat()), 2);
    assert!(said.contains("cannot be combined"), "{said}");
}
