//! `fleet prove | mesh | rollout --on ssh:HOST`: the work is done at that host, and nothing of it stays but a plan that
//! the user keeps.

use super::*;

/// The command at the near end, whose book is in the folder of the daemon.
fn fleet(sshd: &Sshd, args: &[&str]) -> Command {
    let far = sshd.far("user", "known");
    let options: Vec<&str> = far[2..].iter().map(String::as_str).collect();
    let (folder, on) = (sshd.data.file("near"), format!("ssh:root@{FAR_IP}"));
    let prove = ["fleet", "prove", "--json", "--data-dir", &folder, "--on", &on];
    let load = ["probe", "--load", "ping", "--arms", "spin", "--no-history"];
    sshd.spaces.near(&[&prove[..], &options, &load, args].concat())
}

fn experiment(spaces: &Spaces) -> bool {
    far_pids(spaces).into_iter().any(|pid| has_thread(pid, "far"))
}

#[test]
fn fleet_proves_on_a_host_by_ssh_and_leaves_nothing_when_it_is_killed() {
    let Some(sshd) = Sshd::start(SYSTEM_PATH) else { return };
    let document = json(fleet(&sshd, &["--max-blocks", "6", "--trial", "50ms", "--time", "60s"]));
    let host = &document["hosts"][0];
    assert_eq!(host["host"], format!("ssh:root@{FAR_IP}"), "{document:#}");
    assert!(host["id"].is_string(), "{document:#}");
    let lines = document["arms"][0]["metrics"]["rtt_ns_p50"]["lines"].as_array();
    assert_eq!(lines.map(Vec::len), Some(1), "{document:#}");
    sshd.assert_nothing_left();
    let mut near = Running::start(fleet(&sshd, &ENDLESS));
    let begun = until(LONG * 2, || near.has_ended() || experiment(&sshd.spaces));
    assert!(begun && !near.has_ended(), "{}", near.stderr());
    let client = near.holdings();
    drop(near.end_by("KILL", LONG));
    client.assert_gone();
    sshd.assert_nothing_left();
}

/// A mesh of the near end and hosts by ssh.
fn mesh(sshd: &Sshd, hosts: &[String], args: &[&str]) -> Command {
    let far = sshd.far("user", "known");
    let options: Vec<&str> = far[2..].iter().map(String::as_str).collect();
    let (on, locks) = (format!("this,{}", hosts.join(",")), sshd.data.file("near-locks"));
    fs::create_dir_all(&locks).expect("a folder");
    let own = ["fleet", "mesh", "--json", "--on", &on, "--seed", "7"];
    let mut command = sshd.spaces.near(&[&own[..], &options, args].concat());
    // The far end is another machine: it has its own locks.
    command.env("WIREPATH_LOCKS", locks);
    command
}

#[test]
fn mesh_pings_both_ways_by_ssh_and_a_host_that_is_lost_is_a_failure_of_its_pairs() {
    let Some(sshd) = Sshd::start(SYSTEM_PATH) else { return };
    let far = format!("ssh:root@{FAR_IP}");
    // No host has the last address; the last but one is the machine of the first, which is in use.
    let others = [format!("{far}:22"), "ssh:root@10.77.0.9".to_owned()];
    let hosts = [format!("{far}={FAR_IP}"), others[0].clone(), others[1].clone()];
    let document = json(mesh(&sshd, &hosts, &["--rounds", "2", "-c", "20"]));
    let pair = |one: &str, other: &str| {
        let has = |pair: &&Value, name: &str| pair["one"] == name || pair["other"] == name;
        let pairs = document["pairs"].as_array().expect("pairs").iter();
        let mut found = pairs.filter(|pair| has(pair, one) && has(pair, other));
        found.next().unwrap_or_else(|| panic!("{one} {other}: {document:#}"))
    };
    let measured = pair("this", &far);
    let rtts = measured["rtt_ns"].as_array().expect("one of each direction");
    assert!(rtts.len() == 2 && rtts.iter().all(Value::is_f64), "{document:#}");
    assert_eq!((&measured["sent_count"], &measured["lost_count"]), (&40.into(), &0.into()));
    for (host, expected) in others.iter().zip(["wirepath fleet", "cannot reach root@10.77.0.9"]) {
        let failures = pair("this", host)["failures"].to_string();
        assert!(failures.contains(expected) && failures.contains(host), "{failures}");
        assert_eq!(pair(&far, host)["failures"].as_array().map(Vec::len), Some(2));
    }
    sshd.assert_nothing_left();
}

#[test]
fn mesh_leaves_nothing_on_a_host_however_either_side_ends() {
    let Some(sshd) = Sshd::start(SYSTEM_PATH) else { return };
    let far = format!("ssh:root@{FAR_IP}");
    for victim in ["INT", "KILL", "session"] {
        let args = ["--rounds", "100", "-c", "1000000"];
        let near = Running::start(mesh(&sshd, std::slice::from_ref(&far), &args));
        assert!(
            until(LONG * 2, || {
                let own = near.descendants().into_iter().map(|(pid, _)| pid);
                let pids: Vec<u32> = far_pids(&sshd.spaces).into_iter().chain(own).collect();
                let has = |name: &str| pids.iter().any(|pid| has_thread(*pid, name));
                has("wp-echo") && has("wp-ping")
            }),
            "{}",
            near.stderr()
        );
        let client = near.holdings();
        match victim {
            "session" => {
                for pid in sshd.session() {
                    if command_line(pid).starts_with("sshd") {
                        let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
                    }
                }
                let output = near.finish(LONG).expect("it ends");
                let said = all_text(&output);
                assert_eq!(output.status.code(), Some(1), "{said}");
                assert!(said.contains("no pair of hosts could be measured"), "{said}");
                assert!(said.contains(&format!("the far end {far} ended")), "{said}");
            }
            signal => drop(near.end_by(signal, LONG)),
        }
        client.assert_gone();
        sshd.assert_nothing_left();
    }
}

fn rollout(sshd: &Sshd, plan: &str, args: &[&str]) -> Command {
    let folder = sshd.data.file("near");
    let own = ["fleet", "rollout", plan, "--data-dir", &folder];
    let own = own.into_iter().filter(|word| !word.is_empty());
    sshd.spaces.near(&own.chain(args.iter().copied()).collect::<Vec<_>>())
}

#[test]
fn plan_of_another_host_is_applied_by_ssh_and_kept_and_a_silent_host_is_stuck_until_it_answers() {
    let Some(sshd) = Sshd::start(SYSTEM_PATH) else { return };
    let listen = format!("{NEAR_IP}:7117");
    let mut peer = Running::start(sshd.spaces.near(&["peer", "--listen", &listen]));
    peer.await_stderr("listening on ");
    let plan = sshd.data.file("plan.toml");
    fs::write(&plan, PLAN_WITHOUT_EFFECT).expect("a plan");
    let (far, on) = (sshd.far("user", "known"), format!("ssh:root@{FAR_IP}"));
    let options: Vec<&str> = far[2..].iter().map(String::as_str).collect();
    let hosts = ["--on", &on, "--stages", "1", "--metric", "rtt p50", "--json"];
    let hosts = [&hosts[..], &["--accept-inconclusive"]].concat();
    let peer_at = format!("peer:{listen}");
    // Too few blocks for a verdict.
    let limits = ["--min-blocks", "6", "--max-blocks", "6", "--trial", "200ms", "--time", "300s"];
    let load = [&["--", "--far", &peer_at, "--load", "ping"], &limits[..]].concat();
    let begin_with =
        |hold: &[&str]| rollout(&sshd, &plan, &[&hosts[..], hold, &options, &load].concat());
    let begin = || begin_with(&["--hold", "1s"]);
    let value = || {
        let file = "/proc/sys/net/ipv4/tcp_early_demux";
        succeed(enter(&sshd.spaces.far, &["cat", file])).trim().to_owned()
    };
    let near = Running::start(begin_with(&["--hold", "1h", "--confirm-within", "30s"]));
    assert!(
        until(LONG * 2, || value() == "0" && near.stderr().contains("holding")),
        "{}",
        near.stderr()
    );
    {
        fs::rename(sshd.data.file("authorized"), sshd.data.file("withdrawn")).expect("renamed");
        for pid in sshd.session().into_iter().filter(|pid| command_line(*pid).starts_with("sshd")) {
            // It may have ended by itself.
            drop(run({
                let mut kill = Command::new("kill");
                kill.args(["-KILL", &pid.to_string()]);
                kill
            }));
        }
    };
    assert!(until(LONG, || value() == "1"), "it rolls back by itself: {}", near.stderr());
    let stuck = near.finish(LONG * 2).expect("it ends");
    assert_eq!(stuck.status.code(), Some(1), "{}", all_text(&stuck));
    let said: Value = serde_json::from_slice(&stuck.stdout).expect("a document");
    assert_eq!(said["state"]["name"], "stuck", "{said:#}");
    assert!(said["trigger"].as_str().is_some_and(|why| why.contains("silent")), "{said:#}");
    fs::rename(sshd.data.file("withdrawn"), sshd.data.file("authorized")).expect("renamed");
    let id = said["id"].as_str().expect("an id");
    let answers = run(rollout(&sshd, "", &["--resume", id, "--json"]));
    assert_eq!(answers.status.code(), Some(4), "{}", all_text(&answers));
    assert!(all_text(&answers).contains("rolled back"), "{}", all_text(&answers));

    let done = Running::start(begin()).finish(LONG * 4).expect("it ends");
    assert!(done.status.success(), "{}", all_text(&done));
    let document: Value = serde_json::from_slice(&done.stdout).expect("a document");
    assert_eq!(document["state"]["name"], "done", "{document:#}");
    let id = document["id"].as_str().expect("an id");
    assert_eq!(value(), "0");
    let refused = fail(begin(), 1);
    assert!(refused.contains("not begun") && refused.contains("already applied"), "{refused}");
    assert_eq!(value(), "0", "settings of another roll-out are left alone");
    succeed(rollout(&sshd, "", &["--resume", id, "--keep"]));
    let late = fail(rollout(&sshd, "", &["--abort", id]), 2);
    assert!(late.contains("it is kept"), "{late}");
    assert_eq!(value(), "0");
    let journal = sshd.data.file("state/journal");
    assert!(!std::path::Path::new(&journal).exists(), "the earlier values are forgotten");
    sshd.assert_nothing_left();
}
