//! A CPU that goes offline while commands run, and comes back.

use crate::common::rig::{Rig, ScriptResult};

/// Outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    /// It goes on, and ends with this status after SIGINT.
    GoesOn(i32),
    /// It ends by itself, with 1.
    Ends,
}

use Fate::{Ends, GoesOn};

/// A command, a check that succeeds once it works, and its outcome without the CPU.
const COMMANDS: &[(&str, &str, Fate)] = &[
    ("peer --listen 10.81.0.1:7117", "says 'listening on'", GoesOn(0)),
    ("probe echo -i intel", "says 'listening on'", GoesOn(0)),
    #[cfg(feature = "feed")]
    ("feed listen 239.77.1.9:10000 -i intel --json", "says 'Ctrl-C ends'", GoesOn(0)),
    #[cfg(feature = "feed")]
    (
        "feed replay --synthetic --rate 100 --to 239.77.1.9:10000 -i intel --time 300s",
        "sleep 3",
        GoesOn(0),
    ),
    ("serve --port 0", "says 'until Ctrl-C'", GoesOn(0)),
    ("tune apply /tmp/plan.toml --confirm-within 300s", "says 'wirepath tune confirm'", GoesOn(1)),
    // Its ends are pinned to CPUs: a trial on an offline one fails with an error.
    (
        "prove probe --load ping --arms spin --trial 50ms --time 300s --min-blocks 100",
        "wirepath history list --json | grep -q '\"trials\": [1-9][0-9]'",
        Ends,
    ),
];

/// Script that runs `command`, takes CPU 1 offline, and prints the status and output of the command.
fn script(command: &str, is_on: &str, fate: Fate) -> String {
    let see = match fate {
        GoesOn(_) => "sleep 2; kill -INT $p || exit 8",
        Ends => "n=0; while kill -0 $p; do n=$((n + 1)); [ $n -lt 600 ] || exit 7; sleep 0.1; done",
    };
    format!(
        "
says() {{ grep -q \"$1\" /tmp/said; }}
wirepath {command} >/tmp/said 2>&1 &
p=$!
n=0
until {is_on}; do n=$((n + 1)); [ $n -lt 300 ] || exit 9; sleep 0.1; done
echo 0 >/sys/devices/system/cpu/cpu1/online
{see}
wait $p
code=$?
echo 1 >/sys/devices/system/cpu/cpu1/online
echo status $code
cat /tmp/said
"
    )
}

pub(crate) fn commands_survive_a_cpu_going_offline(rig: &Rig) {
    rig.succeed("wirepath tune plan --profile latency --interface intel >/tmp/plan.toml");
    let left = || rig.succeed("ip netns list; ip link; cat /proc/mounts; pidof wirepath || true");
    let before = left();
    for &(command, is_on, fate) in COMMANDS {
        let ScriptResult { code, stdout, stderr } = rig.run(&script(command, is_on, fate));
        assert_eq!(code, 0, "{command}: {stdout}{stderr}");
        let status = if let GoesOn(status) = fate { status } else { 1 };
        let found = stdout.lines().next().unwrap_or_default();
        assert_eq!(found, format!("status {status}"), "{command}: {stdout}{stderr}");
        assert!(!stdout.contains("panicked"), "{command}: {stdout}");
        assert_eq!(left(), before, "{command}");
    }
}
