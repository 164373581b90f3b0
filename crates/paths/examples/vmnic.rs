//! What each switch of the virtual NIC saves: raw frames from a guest into a back end.
//!
//! `cargo run --release -p wirepath-paths --example vmnic -- GUEST_IMAGE [FRAMES] [BYTES] [ring]`
//!
//! A first look, one run an arm in a row; `prove` is what compares.
#![expect(clippy::print_stdout, reason = "an example is a program")]

use std::time::Duration;

use host::lab::{Pair, PairSpec, TapEnd};
use wire::nettest::report;
use wirepath_paths::vmnic::vmm::{
    self, Receiver, Sender, Silence, Sink, Spec, Switches, Task, ring_backend, tap_backend,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let image = std::fs::read(arguments.next().ok_or("which guest image?")?)?;
    let count: u64 = arguments.next().map_or(Ok(5000), |text| text.parse())?;
    let size: u64 = arguments.next().map_or(Ok(1514), |text| text.parse())?;
    let end = arguments.next().unwrap_or_else(|| "sink".into());
    let base = Switches::default();
    let arms = [
        ("baseline", base),
        ("+rap-in-kernel", Switches { rap_in_kernel: true, ..base }),
        ("+tdmd-doorbell", Switches { rap_in_kernel: true, tdmd_doorbell: true, ..base }),
        ("+send-combining", Switches { shared_ring: false, ..Switches::SOURCE }),
        ("+shared-ring", Switches::SOURCE),
        ("+irq-fd", Switches { irq_fd: true, ..Switches::SOURCE }),
        ("+tx-int-mask", Switches { irq_fd: true, tx_int_mask: true, ..Switches::SOURCE }),
        ("+own-polling", Switches::ALL),
    ];
    println!(
        "{:16} {:>7} {:>7} {:>6} {:>6} {:>6} {:>6} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "arm",
        "exits",
        "coal.",
        "bells",
        "wakes",
        "irqs",
        "full",
        "halts",
        "vcpu us",
        "dev us",
        "handl us",
        "wall us",
        "Mbit/s",
        "kvm io"
    );
    for (name, switches) in arms {
        for log2 in [4, 9] {
            let task = Task { tx_ring_log2: log2, ..Task::send(size, count) };
            let tap;
            let pair;
            let (sender, receiver): (Box<dyn Sender>, Box<dyn Receiver>) = match end.as_str() {
                "tap" => {
                    tap = TapEnd::new()?;
                    let (sender, receiver) = tap_backend(&tap.tap)?;
                    (Box::new(sender), Box::new(receiver))
                }
                "ring" => {
                    pair = Pair::new(&PairSpec::default())?;
                    let index = pair.near.ifindex;
                    let (sender, receiver) = pair.near.run(|| ring_backend(index))??;
                    (Box::new(sender), Box::new(receiver))
                }
                _ => (Box::new(Sink::default()), Box::new(Silence)),
            };
            let mac = [0x02, b'w', b'p', 0, 0, 9];
            let spec = Spec { image: &image, ram_bytes: 32 << 20, mac, task, switches };
            let running = vmm::start(&spec, sender, receiver)?;
            running.wait(Duration::from_secs(10));
            let outcome = running.stop()?;
            let Some(m) = outcome.measured else {
                println!("{name:16} ring {log2}: {:?}", outcome.end);
                continue;
            };
            let each = |value: u64| value as f64 / count as f64;
            let us = |ns: u64| each(ns) / 1000.0;
            println!(
                "{name:13} {:>2} {:7.2} {:7.2} {:6.2} {:6.2} {:6.2} {:6.3} {:6.3} {:8.2} {:8.2} \
                 {:8.2} {:8.2} {:8.1} {:8.2}",
                log2,
                each(m.exits.count()),
                each(m.exits.coalesced_count),
                each(m.work.doorbell_count),
                each(m.work.doorbell_wake_count),
                each(m.work.interrupt_count),
                each(m.report[report::TX_FULL]),
                each(m.report[report::HALTS]),
                us(m.vcpu_cpu_ns),
                us(m.device_cpu_ns),
                us(m.handling_ns),
                us(m.at_ns),
                (size * 8) as f64 * 1000.0 / (each(m.at_ns)),
                each(m.kernel.get("io_exits").copied().unwrap_or(0)),
            );
        }
    }
    Ok(())
}
