//! Settings of a card as arms of path `feed`: the interrupts of each arm, the CPUs that handle them, and the times. With `--nocapture`
//! it prints the table of docs/evidence/feed.md.
//! A module of the test program `tune_guest`, which has the guest.

use serde_json::Value;

use crate::common::rig::Rig;
use crate::knobs::{Row, interrupt, plan, rows};

#[path = "receiver/mod.rs"]
mod program;

const ARMS: [&str; 4] = ["baseline", "+rings", "+irq-affinity", "plan"];

/// All trials of an arm.
struct Arm {
    /// Interrupts of the card, by the CPU that handled them.
    on_cpu: [u64; 2],
    received: u64,
}

impl Arm {
    fn of(document: &Value, name: &str) -> Arm {
        let arms = document["arms"].as_array().expect("a list");
        let arm = arms.iter().find(|arm| arm["name"] == name);
        let arm = arm.unwrap_or_else(|| panic!("{name} in {document:#}"));
        assert_eq!(arm["failures"], serde_json::json!([]), "{arm:#}");
        let count = |name: &str| arm["counters"][name].as_u64().unwrap_or(0);
        // A quantile that reaches the losses is none.
        let [p50, p99] = ["schedule_to_app_ns_p50", "schedule_to_app_ns_p99"].map(|metric| {
            let median_ns = arm["metrics"][metric]["median"].as_f64();
            median_ns.map_or("none".into(), |ns| format!("{:.2} ms", ns / 1e6))
        });
        let arm = Arm {
            on_cpu: [0, 1].map(|cpu| count(&format!("near_interrupt_cpu{cpu}_count"))),
            received: count("received_count"),
        };
        assert!(arm.received > 0, "{name}: {document:#}");
        testkit::note(&format!(
            "{name:<16}{:>8} quotes, {:>6} interrupts on CPU 0, {:>6} on CPU 1, {:.3} a quote; \
             p50 {p50}, p99 {p99}",
            arm.received,
            arm.on_cpu[0],
            arm.on_cpu[1],
            arm.a_quote()
        ));
        arm
    }

    fn a_quote(&self) -> f64 {
        self.on_cpu.iter().sum::<u64>() as f64 / self.received as f64
    }
}

/// Plan for `intel` with values of its knobs and their targets.
fn plan_of(rig: &Rig, wanted: &[(&str, String, &str)]) -> String {
    let all = rows(rig, "intel");
    let row = |(knob, target, _): &(&str, String, &str)| -> &Row {
        let found = all.iter().find(|row| row.knob == *knob && row.target == *target);
        found.unwrap_or_else(|| panic!("{knob} of {target} in {all:#?}"))
    };
    let steps: Vec<(&Row, String)> =
        wanted.iter().map(|step| (row(step), step.2.to_owned())).collect();
    plan(rig, "intel", &steps)
}

/// The exchange has CPU 0, at a real-time priority, which leaves CPU 1 to the receiver: without the plan the interrupts are
/// beside it. The plan has the steps of the receiver after which the path is modelled.
pub(crate) fn counts_interrupts_by_cpu_while_they_move_with_the_plan(rig: &Rig) {
    rig.succeed(
        "for irq in $(awk '/ intel/ { sub(\":\", \"\"); print $1 }' /proc/interrupts); do
             echo 1 >/proc/irq/$irq/smp_affinity
         done
         ethtool -C intel rx-usecs 2000
         # The baseline prints to a terminal.
         mkdir -p /dev/pts
         mount -t devpts devpts /dev/pts",
    );
    let (irq, _) = interrupt(rig, "intel-rx-0");
    let file = plan_of(
        rig,
        &[
            ("rings", "interface intel".into(), "rx=4096 tx=256"),
            ("irq-affinity", format!("irq {irq}"), "2"),
            ("coalescing", "interface intel".into(), "rx-usecs=0"),
        ],
    );
    let document = rig.json(&format!(
        "wirepath tune prove {file} --path feed --far netns:far --far-cpu 0 --load paced --rate 1000 \
         --trial 500ms --max-blocks 6 --time 60s --no-history --json"
    ));
    let [beside, rings, moved, whole] = ARMS.map(|name| Arm::of(&document, name));
    for beside in [&beside, &rings] {
        assert!(beside.on_cpu[0] > 0 && beside.on_cpu[1] == 0, "{document:#}");
    }
    for moved in [&moved, &whole] {
        // The first interrupt after a move arrives on the old CPU, and those for sending stay there.
        assert!(moved.on_cpu[1] > 2 * moved.on_cpu[0], "{document:#}");
    }
    let (_, before) = interrupt(rig, "intel-rx-0");
    // Another size of its rings resets the card, which takes its link down for seconds.
    rig.succeed(
        "for try in $(seq 60); do ping -qc 1 -W 1 10.81.0.2 >/dev/null && break || sleep 0.5; done
         ping -qc 5 -i 0.1 10.81.0.2",
    );
    let (_, after) = interrupt(rig, "intel-rx-0");
    assert!(
        after[0] > before[0] && after[1] <= before[1] + 1,
        "{before:?} {after:?}: not moved back"
    );
}

/// A card that receives: its interrupt's name in /proc/interrupts, and the ends of the experiment.
struct ReceivingCard {
    driver: &'static str,
    interrupt: &'static str,
    ends: &'static str,
}

const RECEIVING: [ReceivingCard; 2] = [
    ReceivingCard { driver: "e1000e", interrupt: "intel-rx-0", ends: "--near netns:far" },
    // The card in the namespace; the other one of this driver has no traffic.
    ReceivingCard { driver: "virtio_net", interrupt: "virtio.*-input", ends: "--far netns:far" },
];

/// The arms of the page's command, at these ends.
fn page_arms(ends: &str) -> String {
    let command = program::page_command("irq-affinity");
    let arms =
        command.strip_prefix("receiver.toml --near netns:exchange ").expect("as it is below");
    format!("{arms} {ends}")
}

/// Interrupts on the CPU of a receiver that the tool does not know, and beside it, with its times.
pub(crate) fn times_interrupts_on_and_beside_the_cpu_of_a_receiver(rig: &Rig) {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(receiver) = program::build(folder.path(), &["-static"]) else { return };
    let file = rig.put("receiver", std::fs::read(receiver).expect("it was built"));
    rig.succeed(&format!("cp {file} /tmp/receiver && chmod +x /tmp/receiver"));
    for ReceivingCard { driver, interrupt, ends } in RECEIVING {
        let count = format!(
            "awk -v arm=$WIREPATH_ARM '/{interrupt}/ {{ a += $2; b += $3 }} END {{ print arm, a, b }}' \
             /proc/interrupts >>/tmp/irq.log"
        );
        let experiment = format!(
            r#"
server = "/tmp/receiver -q -c 1 -N 100 239.77.6.1 $WIREPATH_PORT $WIREPATH_INTERFACE"
feed = "$WIREPATH feed replay --synthetic --rate 400 -c 100 --to 239.77.6.1:$WIREPATH_PORT -i $WIREPATH_INTERFACE"
arms = "alone"
metrics = ["p50_us=json:/p50_us lower", "p99_us=json:/p99_us lower", "got_count=json:/count higher"]
setup = """{count}"""
cleanup = """{count}"""
"#
        );
        let file = rig.put("irq.toml", experiment);
        let document = rig.json(&format!(
            "rm -f /tmp/irq.log
             wirepath prove command {file} {} --max-blocks 6 --time 90s --no-history --json",
            page_arms(ends)
        ));
        let log = rig.succeed("cat /tmp/irq.log");
        for (arm, own, other) in [("irq-affinity=1", 0, 1), ("irq-affinity=2", 1, 0)] {
            let found =
                document["arms"].as_array().expect("arms").iter().find(|of| of["name"] == arm);
            let found = found.unwrap_or_else(|| panic!("no {arm} in {document:#}"));
            assert_eq!(found["failures"], serde_json::json!([]), "{driver}: {found:#}");
            let median = |metric: &str| found["metrics"][metric]["median"].as_f64();
            assert!(
                median("p99_us") > Some(0.0) && median("got_count") == Some(100.0),
                "{found:#}"
            );
            let counts = interrupts_of(&log, arm);
            assert!(counts[own] > 2 * counts[other] && counts[own] > 20, "{driver} {arm}: {log}");
            testkit::note(&format!(
                "{driver:<12}{arm:<16} p50 {:?} us, p99 {:?} us, {counts:?} interrupts by CPU",
                median("p50_us"),
                median("p99_us")
            ));
        }
    }
}

/// Interrupts on CPUs 0 and 1 between the set-ups of an arm's trials and their clean-ups, in a log of lines
/// `ARM CPU0 CPU1`.
fn interrupts_of(log: &str, arm: &str) -> [u64; 2] {
    let own = log.lines().filter_map(|line| line.strip_prefix(arm)?.strip_prefix(' '));
    let rows: Vec<[u64; 2]> = own
        .map(|line| {
            let mut counts = line.split(' ').map(|count| count.parse().expect("a count"));
            [(); 2].map(|()| counts.next().expect("two CPUs"))
        })
        .collect();
    let mut sums = [0; 2];
    for pair in rows.chunks_exact(2) {
        for (cpu, sum) in sums.iter_mut().enumerate() {
            *sum += pair[1][cpu] - pair[0][cpu];
        }
    }
    sums
}
