//! AF_XDP sockets that poll their queue: its interrupts are deferred meanwhile, and the settings are restored.

use serde_json::Value;

use crate::common::rig::Rig;
use crate::machine::{ONE_IP, far_namespace};
use crate::suspension::{OFF, held_settings_are_restored_after_a_kill, napi};
use crate::{ONE_QUEUE, Pair};

const ENGINE: &str = "--require-zero-copy --arm spin+bypass+native+zero-copy";
/// The same with busy polling.
const POLLING: &str = "--require-zero-copy --arm spin+bypass+native+zero-copy+busy-poll";
const DEFERRED: &str = "defer-hard-irqs=2147483647 gro-flush-timeout=200000 irq-suspend-timeout=0";
const PINGS: u64 = 300;

/// Interrupts of the receive queues of both cards while both ends run with this engine, and the document.
fn irqs_of_pings(rig: &Rig, engine: &str) -> (u64, Value) {
    far_namespace(rig).start(&format!("probe echo -i oneb {engine}"));
    let irqs = rig.json(&format!(
        "irqs() {{
             awk '/virtio[0-9]+-input/ {{ for (n = 2; n <= 3; n++) sum += $n }} END {{ print sum + 0 }}' /proc/interrupts
         }}
         before=$(irqs)
         wirepath probe ping {ONE_IP} --no-peer -c {PINGS} {engine} --json >/tmp/near.out
         echo $(($(irqs) - before))"
    ));
    rig.succeed(
        "pid=$(cat /tmp/far.pid)
         kill $pid
         while [ -e /proc/$pid ]; do sleep 0.1; done",
    );
    (irqs.as_u64().expect("a count"), rig.json("cat /tmp/near.out"))
}

fn a_polled_queue_interrupts_less_than_once_an_arrival(rig: &Rig) {
    let (plain, _) = irqs_of_pings(rig, ENGINE);
    let (polled, document) = irqs_of_pings(rig, POLLING);
    let said = format!("{plain} interrupts without, {polled} with busy polling: {document}");
    let books = &document["deliveries"]["round-trip"];
    assert_eq!(books["received_count"], PINGS, "{said}");
    // Each ping is an arrival at either end.
    assert!(plain >= PINGS, "{said}");
    // Not none: this driver enables the interrupt for a moment in each poll, before it asks if it may.
    assert!(2 * polled < plain, "{said}");
    assert_ne!(document["mode"]["near napi id"], "0", "{said}");
}

/// Of the far card, which the near end's pings reach meanwhile.
pub(crate) fn settings_are_restored_after_a_kill(rig: &Rig, Pair { far_card, far_ip }: Pair) {
    far_namespace(rig).start(&format!("probe echo -i {far_card} {POLLING}"));
    rig.succeed(&format!("wirepath probe ping {far_ip} --no-peer -c 10"));
    held_settings_are_restored_after_a_kill(rig, far_card, DEFERRED);
}

pub(crate) fn check(rig: &Rig) {
    a_polled_queue_interrupts_less_than_once_an_arrival(rig);
    let after = [napi(rig, "", "onea"), napi(rig, "ip netns exec far", "oneb")];
    assert!(after.iter().flatten().all(|value| value == OFF), "after a clean end: {after:?}");
    settings_are_restored_after_a_kill(rig, ONE_QUEUE);
}
