//! `wirepath guest` and `prove guest`, run as commands.

#[path = "../../crates/cli/tests/common/mod.rs"]
mod common;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Data, LONG, Running, fail, is_installed, json, own_links, succeed, until, wirepath};

/// True if the firmware can boot here; prints the reason for skipping otherwise.
fn can_boot() -> bool {
    if !is_installed("qemu-system-aarch64") {
        return false;
    }
    // The program reports what is missing.
    let output = wirepath(&["guest", "run", "--time", "1ms", "--json"]).output().expect("it runs");
    if output.status.code() == Some(3) {
        testkit::skip("aarch64", String::from_utf8_lossy(&output.stderr));
        return false;
    }
    true
}

fn with(mut command: Command, name: &str, value: &str) -> Command {
    command.env(name, value);
    command
}

#[test]
fn missing_parts_are_named_with_a_remedy_and_exit_code_3() {
    let qemu = "qemu-system-aarch64";
    let proved = ["prove", "guest", "--arms", "quiet", "--no-history"];
    for args in [&proved[..], &["guest", "run"], &["guest", "selftest"]] {
        let said = fail(with(wirepath(args), "PATH", "/nonexistent"), 3);
        // By hand, a missing image is reported first: it is looked up before the boot.
        let remedy = said.contains("apt-get install qemu-system-arm");
        assert!(remedy && said.contains(qemu) || said.contains("/usr/share/wirepath"), "{said}");
        if !is_installed(qemu) {
            continue;
        }
        let said = fail(with(wirepath(args), "WIREPATH_GUEST_IMAGE", "/nonexistent"), 3);
        assert!(said.contains("/nonexistent (named by WIREPATH_GUEST_IMAGE)"), "{said}");
        assert!(said.contains("/usr/share/wirepath"), "{said}");
        let older = std::env::current_exe().expect("this program");
        let older = older.to_str().expect("a path in UTF-8");
        let said = fail(with(wirepath(args), "WIREPATH_GUEST_IMAGE", older), 3);
        assert!(
            said.contains("of another version") && said.contains("/usr/share/wirepath"),
            "{said}"
        );
    }
}

#[test]
fn command_of_vmnic_run_is_given_the_address_of_the_guest() {
    let in_run = ["vmnic", "run", "--", "sh", "-c", "ping -c 1 -W 10 \"$WIREPATH_GUEST_IP\""];
    let output = wirepath(&in_run).output().expect("it runs");
    if output.status.code() == Some(3) {
        testkit::skip("kvm", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("64 bytes from 10.77.0.2"), "{output:?}");
}

#[test]
fn paths_lists_switches_and_loads_even_if_they_cannot_run() {
    for path in ["", "/nonexistent"] {
        let mut command = wirepath(&["paths", "--json"]);
        if !path.is_empty() {
            command.env("PATH", path);
        }
        let paths = json(command);
        let all = paths["paths"].as_array().expect("a list");
        let guest = all.iter().find(|path| path["name"] == "guest").expect("it is listed");
        assert_eq!(guest["switches"].as_array().map(Vec::len), Some(17));
        assert_eq!(guest["loads"][0]["peers"][0], "linux");
        if !path.is_empty() {
            assert_eq!(guest["support"]["status"], "unsupported", "{guest}");
        }
    }
}

#[test]
fn unknown_switches_are_refused_before_the_boot() {
    let said = fail(wirepath(&["guest", "run", "--switches", "warp"]), 2);
    assert!(said.contains("no switch warp") && said.contains("event-idx"), "{said}");
    let said = fail(wirepath(&["guest", "run", "--switches", "vcpu-split"]), 2);
    assert!(said.contains("the firmware has no switch vcpu-split"), "{said}");
}

#[test]
fn a_run_shows_the_console_and_dumps_at_its_end() {
    if !can_boot() {
        return;
    }
    let args = ["guest", "run", "--switches", "quiet,async-tx", "--trace", "--time", "2s"];
    let text = succeed(wirepath(&args));
    assert!(text.contains("wirepath-guest ready ip=10.0.0.2"), "{text}");
    assert!(text.contains("switches           3\n"), "{text}");
    assert!(text.contains(" ns posted 42\n"), "the announcement is in the trace: {text}");
    let document = json(wirepath(&[&args[..], &["--json"]].concat()));
    assert_eq!(document["counters"]["switches"], 3);
    assert!(document["console"].as_str().is_some_and(|said| said.contains("ready")));
    assert!(document["trace"].as_array().is_some_and(|entries| !entries.is_empty()));
}

#[test]
fn keys_reach_the_machine_and_switch_it_off() {
    if !can_boot() {
        return;
    }
    let mut command = wirepath(&["guest", "run", "--switches", "quiet"]);
    command.stdin(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    // Keys typed before it reads them are buffered.
    std::thread::sleep(Duration::from_secs(2));
    child.stdin.take().expect("a pipe").write_all(b"d\nq\n").expect("it is open");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("rx_packets ") && said.ends_with("wirepath-guest: off\n"), "{said}");
}

#[test]
fn selftest_reports_every_test_of_the_kernel() {
    if !can_boot() {
        return;
    }
    let document = json(wirepath(&["guest", "selftest", "--json"]));
    let rows = document["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 8, "{document}");
    assert!(rows.iter().all(|row| row["passed"] == true), "{document}");
    assert_eq!(rows[7]["test"], "stack-overflow");
}

#[test]
fn no_qemu_and_no_tap_interface_remain_however_it_ends() {
    if !can_boot() {
        return;
    }
    let links = own_links();
    let data = Data::new();
    let by_hand = ["guest", "run", "--tap", "--time", "600s"];
    let proved = ["prove", "guest", "--arms", "quiet", "--time", "300s", "--min-blocks", "100"];
    for args in [&by_hand[..], &proved] {
        for signal in ["KILL", "INT", "TERM"] {
            let mut running = Running::start(data.wirepath(args));
            let mut found = None;
            let seen = until(LONG, || {
                found = {
                    running.descendants().into_iter().find(|(_, name)| name.contains("qemu-system"))
                };
                found.is_some() || running.has_ended()
            });
            if running.has_ended() && args == by_hand {
                testkit::skip("tap", running.stderr());
                break;
            }
            assert!(seen && !running.has_ended(), "{args:?}: {}", running.stderr());
            let held = running.holdings();
            running.end_by(signal, LONG);
            held.assert_gone();
            let (pid, _) = found.expect("it was seen");
            let gone = until(LONG, || {
                // A zombie that is not reaped has no command line.
                std::fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |line| line.is_empty())
            });
            assert!(gone, "{args:?}, {signal}: QEMU {pid} is still running");
        }
    }
    assert_eq!(own_links(), links);
}
