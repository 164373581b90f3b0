//! `wirepath guest` and `prove guest` as their users meet them.

mod common;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{
    Data, LONG, Running, fail, is_installed, json, own_links, skip, succeed, until, wirepath,
};

/// Whether the firmware can be booted here; the reason is said where not.
fn can_boot() -> bool {
    if !is_installed("qemu-system-aarch64") {
        return false;
    }
    // Whatever is missing is told by the program itself.
    let output = wirepath(&["guest", "run", "-d", "1ms", "--json"]).output().expect("it runs");
    if output.status.code() == Some(3) {
        skip(String::from_utf8_lossy(&output.stderr).trim());
        return false;
    }
    true
}

fn with(mut command: Command, name: &str, value: &str) -> Command {
    command.env(name, value);
    command
}

#[test]
fn what_is_missing_is_named_with_its_remedy_and_exit_code_3() {
    let qemu = "qemu-system-aarch64";
    let proved = ["prove", "guest", "--arms", "quiet", "--no-history"];
    for args in [&proved[..], &["guest", "run"], &["guest", "bench", "ping"]] {
        let said = fail(with(wirepath(args), "PATH", "/nonexistent"), 3);
        // Without an image that is said first by hand, which looks for it before it boots.
        let remedy = said.contains("apt-get install qemu-system-arm");
        assert!(remedy && said.contains(qemu) || said.contains("`cargo xtask"), "{said}");
        if !is_installed(qemu) {
            continue;
        }
        let said = fail(with(wirepath(args), "WIREPATH_GUEST_IMAGE", "/nonexistent"), 3);
        assert!(said.contains("/nonexistent (named by WIREPATH_GUEST_IMAGE)"), "{said}");
        assert!(said.contains("`cargo xtask firmware`"), "{said}");
    }
}

#[test]
fn paths_lists_its_switches_and_loads_whether_or_not_they_can_run() {
    for path in ["", "/nonexistent"] {
        let mut command = wirepath(&["paths", "--json"]);
        if !path.is_empty() {
            command.env("PATH", path);
        }
        let paths = json(command);
        let all = paths["paths"].as_array().expect("a list");
        let guest = all.iter().find(|path| path["name"] == "guest").expect("it is listed");
        assert_eq!(guest["switches"].as_array().map(Vec::len), Some(13));
        assert_eq!(guest["loads"][0]["peers"][0], "linux");
        if !path.is_empty() {
            assert_eq!(guest["support"]["status"], "unsupported", "{guest}");
        }
    }
}

#[test]
fn switches_that_the_firmware_does_not_know_are_refused_before_it_boots() {
    for args in [&["guest", "run", "--switches", "warp"][..], &["guest", "bench", "ping", "warp"]] {
        let said = fail(wirepath(args), 2);
        assert!(said.contains("no switch warp") && said.contains("event-idx"), "{said}");
    }
    let said = fail(wirepath(&["guest", "run", "--switches", "vcpu-split"]), 2);
    assert!(said.contains("no switch vcpu-split in the firmware"), "{said}");
    let said = fail(wirepath(&["guest", "bench", "flood", "--size", "1473"]), 2);
    assert!(said.contains("1472"), "{said}");
}

#[test]
fn a_run_shows_the_console_and_dumps_at_its_end() {
    if !can_boot() {
        return;
    }
    let args = ["guest", "run", "--switches", "quiet,async-tx", "--trace", "-d", "2s"];
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
    // Typed before it listens, they are read once it does.
    std::thread::sleep(Duration::from_secs(2));
    child.stdin.take().expect("a pipe").write_all(b"d\nq\n").expect("it is open");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("rx_packets ") && said.ends_with("wirepath-guest: off\n"), "{said}");
}

#[test]
fn bench_counts_what_it_says() {
    if !can_boot() {
        return;
    }
    let args = ["guest", "bench", "dump", "--count", "7", "--json"];
    let document = json(wirepath(&args));
    assert_eq!(document["counters"]["answered_icmp"], 7);
    let ping = json(wirepath(&["guest", "bench", "ping", "baseline", "--count", "50", "--json"]));
    let row = &ping["rows"][0];
    assert_eq!((&row["switches"], &row["lost_count"]), (&"baseline".into(), &0.into()));
    assert!(row["icmp_p50_us"].as_f64().is_some_and(|us| us > 1.0), "{row}");
    let flood = json(wirepath(&["guest", "bench", "flood", "--frames", "5000", "--json"]));
    assert_eq!((&flood["books"], &flood["rows"][0]["sent_count"]), (&"agree".into(), &5000.into()));
    let boot = succeed(wirepath(&["guest", "bench", "boot", "--count", "2"]));
    assert!(boot.contains("2 boots"), "{boot}");
}

#[test]
fn however_it_ends_no_qemu_and_no_tap_interface_stay() {
    if !can_boot() {
        return;
    }
    let links = own_links();
    let data = Data::new();
    let by_hand = ["guest", "run", "--tap", "-d", "600s"];
    let proved = ["prove", "guest", "--arms", "quiet", "--time", "300s", "--min-blocks", "100"];
    for args in [&by_hand[..], &proved] {
        for signal in ["KILL", "INT", "TERM"] {
            let mut running = Running::start(data.wirepath(args));
            let qemu = |running: &Running| {
                running.descendants().into_iter().find(|(_, name)| name.contains("qemu-system"))
            };
            let mut found = None;
            let seen = until(LONG, || {
                found = qemu(&running);
                found.is_some() || running.has_ended()
            });
            if running.has_ended() && args == by_hand {
                skip(&format!("a TAP interface: {}", running.stderr()));
                break;
            }
            assert!(seen && !running.has_ended(), "{args:?}: {}", running.stderr());
            let held = running.holdings();
            running.end_by(signal, LONG);
            held.assert_gone();
            let (pid, _) = found.expect("it was seen");
            let gone = until(LONG, || {
                // A zombie that nobody collects has no command line.
                std::fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |line| line.is_empty())
            });
            assert!(gone, "{args:?}, {signal}: QEMU {pid} stays");
        }
    }
    assert_eq!(own_links(), links);
}
