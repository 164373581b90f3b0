//! Programs of xdp-tools as peers, in a Debian guest whose kernel they support. Skipped without QEMU and the
//! guest of `cargo xtask linux-guest`.

mod common;

use common::rig::{Machine, Rig, USUAL};
use serde_json::Value;

/// bpffs is mounted, as on every host with systemd: programs that pin anything would leave it there.
const MACHINE: Machine = Machine {
    files: ["bzImage", "rig.cpio"],
    memory_mib: 1024,
    setup: r#"
mount -t bpf bpf /sys/fs/bpf
for name in xdp-bench xdp-trafficgen; do
    echo '#!/usr/bin/sh' >/usr/bin/$name
    echo "exec /xdp-tools/ld-linux-x86-64.so.2 --library-path /xdp-tools /xdp-tools/$name \"\$@\"" >>/usr/bin/$name
    chmod +x /usr/bin/$name
done
"#,
    ..USUAL
};

const STORM: &str = "wirepath prove probe --load storm --arms spin --trial 50ms --no-history";

/// Shell function that prints the processes of both programs.
const RUNNING: &str = r#"
running() {
    for process in /proc/[0-9]*; do
        case $(tr '\0' ' ' <$process/cmdline 2>/dev/null) in
            */xdp-tools/xdp-$1*) echo ${process##*/} ;;
        esac
    done
}
wait_for() {
    n=0
    until [ -n "$(running $1)" ]; do n=$((n + 1)); [ $n -lt 300 ] || exit 9; sleep 0.1; done
}
"#;

fn arms(document: &Value) -> &Vec<Value> {
    document["arms"].as_array().unwrap_or_else(|| panic!("{document}"))
}

fn arm<'a>(document: &'a Value, name: &str) -> &'a Value {
    let found = arms(document).iter().find(|arm| arm["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {document}"))
}

fn nothing_is_left(rig: &Rig) {
    let left = rig.succeed(&format!(
        "{RUNNING}
         running bench; running trafficgen
         ls /run | grep -v netns || true
         find /sys/fs/bpf -type f
         ip netns list"
    ));
    assert_eq!(left, "");
}

fn every_peer_reports_what_its_definition_counts(rig: &Rig) {
    let peers = "xdp-drop,xdp-bench-drop,xdp-bench-pass,xdp-bench-tx,xdp-trafficgen";
    let document = rig.json(&format!("{STORM} --peers {peers} --max-blocks 6 --time 100s --json"));
    for name in peers.split(',') {
        let arm = arm(&document, name);
        assert_eq!(arm["failures"], serde_json::json!([]), "{arm}");
        assert!(arm["trials"].as_u64() > Some(0), "{arm}");
        let received = arm["metrics"]["received_pps"]["median"].as_f64();
        assert!(received > Some(0.0), "{arm}");
        let count = |counter: &str| arm["counters"][counter].as_u64();
        let handled = count("far_xdp_handled_count");
        assert!(handled > Some(0), "{arm}");
        let cost = &arm["metrics"]["cpu_ns_per_packet"];
        if name == "xdp-trafficgen" {
            assert!(
                cost.is_null() && count("forward_sent_count").is_none(),
                "absent, not 0: {arm}"
            );
        } else {
            assert!(handled <= count("forward_sent_count"), "{arm}");
            assert!(cost["median"].as_f64() > Some(0.0), "{arm}");
        }
    }
    nothing_is_left(rig);
}

/// Its XDP program stays attached, as no link holds it: the next trial would find it there. The first process only
/// tries if the kernel supports it.
fn a_killed_peer_fails_its_trial_and_no_other(rig: &Rig) {
    let text = rig.succeed(&format!(
        "{RUNNING}
         {STORM} --peers xdp-bench-drop --max-blocks 6 --time 100s --json >/tmp/out &
         run=$!
         wait_for bench
         first=$(running bench)
         n=0
         until pid=$(running bench); [ -n \"$pid\" ] && [ \"$pid\" != \"$first\" ] && kill -9 $pid 2>/dev/null; do
             n=$((n + 1)); [ $n -lt 300 ] || exit 9
             sleep 0.05
         done
         wait $run
         cat /tmp/out"
    ));
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let arm = arm(&document, "xdp-bench-drop");
    assert_eq!(arm["failures"].as_array().map(Vec::len), Some(1), "{arm}");
    let trials = arm["metrics"]["received_pps"]["trials"].as_array().expect("trials");
    assert!(trials.iter().any(|rate| rate.as_f64() > Some(0.0)), "{arm}");
    nothing_is_left(rig);
}

fn nothing_is_left_of_a_killed_run(rig: &Rig) {
    for (peer, program) in [("xdp-bench-tx", "bench"), ("xdp-trafficgen", "trafficgen")] {
        for signal in ["KILL", "INT", "TERM"] {
            rig.succeed(&format!(
                "{RUNNING}
                 {STORM} --peers {peer} --time 100s >/tmp/out 2>&1 &
                 run=$!
                 wait_for {program}
                 kill -{signal} $run
                 wait $run || true
                 n=0
                 while [ -n \"$(running {program})\" ]; do n=$((n + 1)); [ $n -lt 100 ] || exit 9; sleep 0.1; done"
            ));
            nothing_is_left(rig);
        }
    }
}

#[test]
fn programs_of_xdp_tools_run_as_peers_and_leave_nothing() {
    let Some(rig) = Rig::boot(&MACHINE, &["ip"]) else { return };
    every_peer_reports_what_its_definition_counts(&rig);
    a_killed_peer_fails_its_trial_and_no_other(&rig);
    nothing_is_left_of_a_killed_run(&rig);
}
