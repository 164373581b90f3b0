//! Suspended interrupts: set for all queues of a card, effective, and restored however the run ends.

use serde_json::Value;

use crate::common::rig::Rig;
use crate::common::until;
use crate::machine::{FAR_IP, far_namespace, plan_of_one_step};
use std::time::Duration;

const RECEIVE: &str = "probe receive -i vib --arm epoll+epoll-busy-poll";
pub(crate) const OFF: &str = "defer-hard-irqs=0 gro-flush-timeout=0 irq-suspend-timeout=0";
const SUSPENDED: &str = "defer-hard-irqs=2 gro-flush-timeout=200000 irq-suspend-timeout=20000000";

/// Settings of the NAPI instances of a card's receive queues.
pub(crate) fn napi(rig: &Rig, inside: &str, card: &str) -> Vec<String> {
    let all = rig.json(&format!("{inside} wirepath tune knobs --interface {card} --json"));
    let knobs = all["knobs"].as_array().expect("a list").iter();
    let rows = knobs.filter(|knob| knob["knob"] == "napi");
    let rows = rows.flat_map(|knob| knob["targets"].as_array().expect("a list").clone());
    rows.map(|row| row["value"].as_str().map_or_else(|| row.to_string(), str::to_owned)).collect()
}

/// Interrupts of all receive queues during a flood, and the datagrams that were received.
fn flood(rig: &Rig, more: &str) -> (u64, u64) {
    let irqs = far_namespace(rig).serve(&format!("{RECEIVE}{more} --json"), || {
        rig.json(&format!(
            "irqs() {{
                 awk '/virtio[0-9]+-input/ {{ for (n = 2; n <= 3; n++) sum += $n }} END {{ print sum + 0 }}' \
                     /proc/interrupts
             }}
             before=$(irqs)
             wirepath probe send {FAR_IP} --no-peer -c 20000 >/tmp/near.out
             after=$(irqs)
             echo $((after - before))"
        ))
    });
    let document = rig.json("cat /tmp/far.out");
    let received = &document["deliveries"]["forward"]["received_count"];
    assert_eq!(document["not_effective"], Value::Array(vec![]), "{document}");
    let count = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{document}"));
    (count(&irqs), count(received))
}

/// A suspended queue interrupts when its traffic pauses, not for each datagram.
fn interrupts_are_fewer_while_datagrams_keep_arriving(rig: &Rig) {
    let (plain_irqs, plain_count) = flood(rig, "");
    let (irqs, count) = flood(rig, "+irq-suspend");
    let said = format!("{plain_irqs} for {plain_count} without, {irqs} for {count} with");
    assert!(plain_count > 100 && count > 100, "{said}");
    assert!(2 * irqs * plain_count < plain_irqs * count, "{said}");
}

/// A program of the far namespace holds the settings of a card of it.
pub(crate) fn held_settings_are_restored_after_a_kill(rig: &Rig, card: &str, value: &str) {
    let far = "ip netns exec far";
    let held = napi(rig, far, card);
    assert!(!held.is_empty() && held.iter().all(|held| held == value), "{held:?}");
    rig.succeed("kill -9 $(cat /tmp/far.pid)");
    assert!(until(Duration::from_secs(60), || napi(rig, far, card)
        .iter()
        .all(|value| value == OFF)));
}

/// The same settings as a knob of one queue, through the journal.
fn the_knob_sets_one_queue_and_rolls_back(rig: &Rig) {
    let file = plan_of_one_step(
        rig,
        "via",
        ["napi", "queue via rx-1", OFF, "irq-suspend-timeout=20000000"],
    );
    rig.succeed(&format!("wirepath tune apply {file}"));
    let set = napi(rig, "", "via");
    let one = "defer-hard-irqs=0 gro-flush-timeout=0 irq-suspend-timeout=20000000";
    assert_eq!(set, [OFF, one, OFF, OFF]);
    rig.succeed("wirepath tune rollback");
    assert_eq!(napi(rig, "", "via"), [OFF; 4]);
}

pub(crate) fn check(rig: &Rig) {
    assert_eq!(napi(rig, "ip netns exec far", "vib"), [OFF; 4]);
    interrupts_are_fewer_while_datagrams_keep_arriving(rig);
    assert_eq!(napi(rig, "ip netns exec far", "vib"), [OFF; 4], "after a clean end");
    far_namespace(rig).start(&format!("{RECEIVE}+irq-suspend"));
    held_settings_are_restored_after_a_kill(rig, "vib", SUSPENDED);
    the_knob_sets_one_queue_and_rolls_back(rig);
}
