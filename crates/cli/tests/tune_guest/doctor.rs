//! Findings that only a real card can cause.

use serde_json::Value;

use crate::common::rig::Rig;

pub(crate) fn findings(report: &Value, check: &str) -> Vec<Value> {
    let all = report["findings"].as_array().expect("a list").iter();
    all.filter(|found| found["cause"] == check).cloned().collect()
}

pub(crate) fn examine(rig: &Rig, more: &str) -> Value {
    rig.json(&format!("wirepath doctor --json {more}"))
}

fn text<'a>(found: &'a Value, field: &str) -> &'a str {
    found[field].as_str().expect("text")
}

/// Binds interrupts, found by name, to the first CPU.
const PIN: &str = "
of() { awk -v name=\"$1\" '$NF ~ name { sub(\":\", \"\"); print $1 }' /proc/interrupts; }
pin() { for irq in $(of $1); do echo 1 >/proc/irq/$irq/smp_affinity; done; }
";

pub(crate) fn finds_coalescing_and_wandering_interrupts_and_not_their_twins(rig: &Rig) {
    let latency = |card: &str| examine(rig, &format!("{card} --profile latency"));
    let report = latency("intel");
    let found = findings(&report, "coalescing");
    assert_eq!(found.len(), 1, "{report:#}");
    assert_eq!(found[0]["evidence"][0]["value"], "rx-usecs 3");
    assert!(text(&found[0], "what").contains("intel delays interrupts"));
    // Every check can run.
    assert_eq!(report["unseen"], Value::Array(Vec::new()), "{report:#}");
    // The driver accepts the change and its undo.
    rig.succeed(text(&found[0], "change"));
    assert!(findings(&latency("intel"), "coalescing").is_empty());
    rig.succeed(text(&found[0], "undo"));
    assert_eq!(findings(&latency("intel"), "coalescing"), found);
    for clean in ["vmx", "vio"] {
        assert!(findings(&latency(clean), "coalescing").is_empty(), "{clean}");
    }

    // Both of these cards have a clock, and no program keeps it.
    let clock = findings(&report, "clocks");
    assert!(clock.iter().any(|found| found.to_string().contains("/dev/ptp")), "{report:#}");

    // Two cards with traffic: interrupts of one are moved, those of the other are not.
    rig.put(
        "root/usr/bin/irqbalance",
        "#!/usr/bin/sh
while :; do for cpu in 1 2; do echo $cpu >/proc/irq/$1/smp_affinity; usleep 30000; done; done
",
    );
    rig.succeed(&format!(
        "cp /host/root/usr/bin/irqbalance /usr/bin
         chmod 755 /usr/bin/irqbalance
         {PIN}
         pin '^vmx-'
         ping -q -i 0.03 10.81.0.2 >/dev/null 2>&1 &
         ping -q -i 0.03 10.82.0.2 >/dev/null 2>&1 &
         irqbalance $(of '^intel-rx-0$') >/dev/null 2>&1 &
         echo $! >/tmp/balancer
         n=0
         until awk '$NF == \"intel-rx-0\" {{ exit !($2 > 100 && $3 > 100) }}' /proc/interrupts; do
             usleep 50000; n=$((n + 1)); [ $n -lt 1000 ] || exit 1
         done
         until awk '$NF == \"vmx-rxtx-0\" {{ exit !($2 > 200) }}' /proc/interrupts; do
             usleep 50000; n=$((n + 1)); [ $n -lt 1000 ] || exit 1
         done"
    ));
    let found = findings(&latency("intel"), "interrupts");
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(text(&found[0], "what").contains("of intel moves between 2 CPUs"), "{found:#?}");
    assert!(found[0]["evidence"].to_string().contains("irqbalance runs"), "{found:#?}");
    let found_beside = |card: &str, app: u32| {
        let more = format!("{card} --profile latency --app-cpu {app}");
        findings(&examine(rig, &more), "interrupts")
    };
    assert_eq!(found_beside("vmx", 1), [Value::Null; 0]);
    assert!(
        text(&found_beside("vmx", 0)[0], "what").contains("arrives on the application's CPU 0")
    );
    // It no longer moves: an earlier move is not a finding.
    rig.succeed(&format!("kill -9 $(cat /tmp/balancer)\n{PIN}\npin '^intel'\nsleep 0.2"));
    assert_eq!(found_beside("intel", 1), [Value::Null; 0]);

    // After the plan for the same purpose, nothing is found.
    rig.succeed(
        "wirepath tune plan --profile latency --interface intel --app-cpu 1 >/tmp/plan.toml
         wirepath tune apply /tmp/plan.toml
         wirepath doctor intel --profile latency --app-cpu 1 --severity medium
         wirepath tune rollback",
    );
    let worse = "wirepath doctor intel --profile latency --severity medium";
    assert_eq!(rig.run(worse).code, 4, "and everything is as before");
    rig.succeed("killall ping");
}
