//! Commands and the path of `feed`, whose other end is far, silent, killed, or another tool's program.

#[path = "../../../crates/cli/tests/common/mod.rs"]
mod common;

mod far_hosts;
mod xsk_map;

use common::dying::SOON;
use common::{Data, LONG, Running, Spaces, all_text, ip, json, succeed, until, wirepath};
use serde_json::Value;

#[test]
fn listener_to_a_silent_line_does_not_claim_that_nothing_is_missing() {
    let spaces = Spaces::new();
    let groups = ["239.77.1.1:10000", "--group-b", "239.77.1.2:20000", "-i", "vb"];
    for (sends, json_too) in [(false, false), (false, true), (true, false), (true, true)] {
        let format: &[&str] = if json_too { &["--json"] } else { &[] };
        let mut listener =
            Running::start(spaces.far(&[&["feed", "listen"], &groups[..], format].concat()));
        listener.await_stderr("Ctrl-C ends");
        if sends {
            let replay = ["feed", "replay", "--synthetic", "--rate", "2000", "-c", "200"];
            json(spaces.near(
                &[&replay[..], &["--to", "239.77.1.1:10000", "-i", "va", "--json"]].concat(),
            ));
        }
        let document = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
        if json_too && !sends {
            assert!(until(LONG, || listener.stdout().contains('\n')), "no line of a second");
            let stdout = listener.stdout();
            let live = document(stdout.lines().next().expect("a line"));
            assert!(live["live"] == true && live["missing_count"].is_null(), "{live}");
            assert!(live["lines"][0]["missing_count"].is_null(), "{live}");
        }
        let output = listener.end_by("INT", LONG);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let silent = if sends { 1 } else { 2 };
        if !json_too {
            let none = "nothing arrived; messages missing are not known";
            assert_eq!(text.matches(none).count(), silent, "{text}");
            assert!(!text.contains("= 0 expected"), "{text}");
            continue;
        }
        let document = document(text.lines().last().expect("a summary"));
        let is_known = [sends, false];
        for (line, is_known) in is_known.into_iter().enumerate() {
            for name in ["expected_count", "missing_count"] {
                let count = &document["lines"][line][name];
                assert_eq!(count.is_u64(), is_known, "{name} {document}");
            }
        }
        assert_eq!(document["missing_count"].is_u64(), sends, "{document}");
    }
}

#[test]
fn killed_feed_commands_leave_nothing_and_a_recording_can_be_read() {
    const GROUP: &str = "239.77.1.9:10000";
    let spaces = Spaces::new();
    for signal in ["KILL", "INT", "TERM"] {
        let data = Data::new();
        let file = data.file("cut.pcapng");
        let listen = ["feed", "listen", GROUP, "-i", "vb", "--listen", "0", "--json"];
        let mut listen = Running::start(spaces.far(&listen));
        listen.await_stderr("Ctrl-C ends");
        let record = ["feed", "record", GROUP, "-i", "vb", &file];
        let mut record = Running::start(spaces.far(&record));
        record.await_stderr("recording to ");
        let replay = ["feed", "replay", "--synthetic", "--rate", "5000", "--to", GROUP];
        let replay =
            Running::start(spaces.near(&[&replay[..], &["-i", "va", "--time", "300s"]].concat()));
        assert!(
            until(LONG, || std::fs::metadata(&file).map_or(0, |meta| meta.len()) > 100_000),
            "{}",
            replay.stderr()
        );
        for (what, running) in [("replay", replay), ("record", record), ("listen", listen)] {
            let held = running.holdings();
            let output = running.end_by(signal, SOON);
            if signal != "KILL" {
                assert_eq!(output.status.code(), Some(0), "{what}: {}", all_text(&output));
            }
            held.assert_gone();
        }
        let decoded = succeed(wirepath(&["feed", "decode", &file]));
        assert!(decoded.lines().count() > 500, "{signal}: {}", decoded.len());
        let groups = succeed(ip(&["-n", &spaces.far, "maddress", "show", "dev", "vb"]));
        assert!(!groups.contains("239.77.1.9"), "{groups}");
    }
}
