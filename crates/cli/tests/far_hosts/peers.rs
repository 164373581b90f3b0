//! iperf3 between hosts: its server is started at the far end, and ends with the run.

use super::*;
use crate::common::wirepath;

fn median(arm: &Value, name: &str) -> f64 {
    arm["metrics"][name]["median"].as_f64().unwrap_or_else(|| panic!("{name}: {arm:#}"))
}

fn assert_ran(arm: &Value) {
    assert_eq!(arm["failures"].as_array().map(Vec::len), Some(0), "{arm:#}");
    assert!(arm["trials"].as_u64() >= Some(6), "{arm:#}");
    assert!(median(arm, "cpu_ns_per_packet") > 0.0, "{arm:#}");
}

/// Processes of the program at the far end.
fn servers(spaces: &Spaces) -> usize {
    far_pids(spaces).into_iter().filter(|pid| command_line(*pid).starts_with("iperf3")).count()
}

#[test]
fn one_page_by_ssh_has_rates_of_both_directions_round_trips_and_jitter_beside_iperf3() {
    let Some(sshd) = Sshd::start(SYSTEM_PATH).filter(|_| is_installed("iperf3")) else { return };
    let file = sshd.data.file("page.html");
    let load = ["--load", "echo-flood", "--arms", "batch", "--peers", "iperf3", "--size", "1400"];
    let data = sshd.data.file("results");
    let at = ["--data-dir", &data, "--json"];
    let args = [&load[..], &at, &SHORT[..SHORT.len() - 1]].concat();
    let document = json(sshd.prove("user", "known", &args));
    let (own, peer) = (arm(&document, "baseline"), arm(&document, "iperf3"));
    for arm in [own, peer] {
        assert_ran(arm);
        for name in ["goodput_bps_forward", "goodput_bps_return", "sent_pps", "jitter_ns"] {
            assert!(median(arm, name) > 0.0, "{name}: {arm:#}");
        }
    }
    assert!(peer["mode"]["version"].as_str().is_some_and(|text| text.contains("3.")), "{peer:#}");
    succeed(wirepath(&["report", "last", "--data-dir", &data, "--html", &file]));
    let page = fs::read_to_string(&file).expect("a page");
    for title in ["Rate by tool and direction", "Round trip", "Jitter"] {
        assert!(page.contains(&format!("<h3>{title}</h3>")), "{title}");
    }
    for label in ["→ baseline", "← baseline", "→ iperf3", "← iperf3"] {
        assert!(page.contains(label), "{label}");
    }
    sshd.assert_nothing_left();
}

#[test]
fn iperf3_floods_in_the_direction_of_the_run_and_its_server_ends_with_a_kill() {
    if !is_installed("iperf3") {
        return;
    }
    let spaces = Spaces::new();
    let far = format!("netns:{}", spaces.far);
    for direction in ["send", "receive"] {
        let load = ["--far", &far, "--load", "flood", "--direction", direction, "--size", "1400"];
        let args = [&load[..], &["--arms", "batch", "--peers", "iperf3", "--json"]].concat();
        let before = near_packets(&spaces);
        let document = json(prove(&spaces, &args, &SHORT));
        let after = near_packets(&spaces);
        let (received, sent) = (after[0] - before[0], after[1] - before[1]);
        assert_eq!(sent > received, direction == "send", "{direction}: {sent} and {received}");
        let peer = arm(&document, "iperf3");
        assert_ran(peer);
        assert!(median(peer, "received_pps") > 0.0 && median(peer, "sent_pps") > 0.0, "{peer:#}");
        let text = succeed(prove(&spaces, &args[..args.len() - 1], &SHORT));
        assert!(text.contains("jitter") && text.contains("bit/s"), "{text}");
        assert_far_end_gone(&spaces, &[]);
    }
    let args = ["--far", &far, "--load", "flood", "--arms", "batch", "--peers", "iperf3"];
    let mut near =
        Running::start(prove(&spaces, &[&args[..], &["--no-history"]].concat(), &ENDLESS));
    let serves = until(LONG * 2, || near.has_ended() || servers(&spaces) > 0);
    assert!(serves && !near.has_ended(), "{}", near.stderr());
    near.end_by("KILL", LONG);
    assert_far_end_gone(&spaces, &[]);
}

#[test]
fn programs_that_a_far_end_cannot_start_are_refused_with_the_reason() {
    let spaces = Spaces::new();
    let _peer = spaces.peer(&[]);
    let why = |at: &[&str], name: &str| {
        let load = ["--load", "flood", "--arms", "batch", "--peers", name, "--json"];
        let document = json(prove(&spaces, &[at, &load[..]].concat(), &SHORT));
        arm(&document, name)["support"].to_string()
    };
    let refused = why(&["--far", &format!("peer:{FAR_IP}")], "iperf3");
    assert!(refused.contains("a peer starts no other programs; use --far ssh:HOST"), "{refused}");
    let refused = why(&["--far", &format!("netns:{}", spaces.far)], "qperf");
    assert!(refused.contains("qperf runs in the lab only; between hosts iperf3"), "{refused}");
}
