//! `fleet prove --on ssh:HOST`: the experiment runs at that host, and nothing of it stays.

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
    let mut lines = far_pids(spaces).into_iter().map(command_line);
    lines.any(|line| line.starts_with("wirepath prove probe"))
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
