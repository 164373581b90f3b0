//! An atlas of machines that differ: each guest proves something and shares its result, signed by a key of its own.

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use crate::common::rig::{FarEnd, Machine, Rig};
use crate::common::{json, succeed, wirepath};
use crate::machine::{BOOKWORM, FAR_IP, FROM_6_16, FROM_6_18, NEWEST, TRIXIE, VIRTIO, far, near};

const PROVE: &str = "--load ping --arms busy-poll --trial 100ms --max-blocks 8 --time 120s";

/// Guests that run at the same time: how fast the host is changes nothing in them.
const AT_ONCE: usize = 2;

/// A guest, with its kernel in words.
struct Contributor {
    kernel: &'static str,
    machine: Machine,
}

/// Each of the five kernels that have a lab on two machines, and one driver on six: as many as a pooled verdict needs.
static CONTRIBUTORS: [Contributor; 10] = [
    Contributor {
        kernel: "6.1",
        machine: Machine { files: BOOKWORM, instruction_time: None, ..SMALL },
    },
    Contributor {
        kernel: "6.1",
        machine: Machine { files: BOOKWORM, instruction_time: None, ..E1000E },
    },
    Contributor { kernel: "6.12", machine: Machine { files: TRIXIE, ..SMALL } },
    Contributor { kernel: "6.12", machine: Machine { files: TRIXIE, ..VMXNET3 } },
    Contributor { kernel: "6.16", machine: Machine { files: FROM_6_16, ..SMALL } },
    Contributor { kernel: "6.16", machine: Machine { files: FROM_6_16, ..VMXNET3 } },
    Contributor { kernel: "6.18", machine: Machine { files: FROM_6_18, ..SMALL } },
    Contributor { kernel: "6.18", machine: Machine { files: FROM_6_18, ..LARGER } },
    Contributor { kernel: "newest", machine: Machine { files: NEWEST, ..SMALL } },
    Contributor { kernel: "newest", machine: Machine { files: NEWEST, ..E1000E } },
];

/// 8 ns. Without it, on a busy host, the host's turns were most of the figures, as they last longer than a round trip: an interval
/// reached from 0.13 to 1.45. Linux 6.1 does not boot with it.
const INSTRUCTION_TIME: Option<u8> = Some(3);

const SMALL: Machine = Machine { instruction_time: INSTRUCTION_TIME, ..VIRTIO };
const LARGER: Machine = Machine { cpu: "Skylake-Server", memory_mib: 2048, ..SMALL };
const E1000E: Machine = Machine {
    cpu: "Haswell",
    memory_mib: 768,
    cards: &[near("e1000e", "e1000e,netdev=a"), far("e1000e,netdev=b")],
    ..SMALL
};
const VMXNET3: Machine = Machine {
    cpu: "EPYC",
    memory_mib: 1536,
    cards: &[near("vmxnet3", "vmxnet3,netdev=a"), far("vmxnet3,netdev=b")],
    ..SMALL
};

impl Contributor {
    /// `6.18-virtio_net-nehalem`.
    fn name(&self) -> String {
        let Machine { cpu, cards, .. } = &self.machine;
        let driver = cards.iter().find_map(|card| card.driver).expect("a near card");
        format!("{}-{driver}-{}", self.kernel, cpu.to_lowercase())
    }
}

/// The signed file of a guest that boots for it.
fn contribution(machine: &Machine) -> String {
    let rig = Rig::boot(machine, &["ip", "ethtool", "ping"]).expect("it boots");
    let far = FarEnd { rig: &rig, inside: "ip netns exec far" };
    far.serve(&format!("peer --listen {FAR_IP}:7117"), || {
        rig.succeed(&format!(
            "export WIREPATH_DATA=/tmp/data
             wirepath prove probe --far peer:{FAR_IP} {PROVE} >/tmp/prove.out
             wirepath history export last --share"
        ))
    })
}

/// A panic's message.
fn reason(panic: &(dyn std::any::Any + Send)) -> String {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

/// Writes the file of each contributor into a folder; returns the failures, by contributor.
fn collect(folder: &Path) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(one) = CONTRIBUTORS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (name, begun) = (one.name(), Instant::now());
                    // A panic does not name its guest, and the others go on.
                    match catch_unwind(|| contribution(&one.machine)) {
                        Ok(text) => {
                            fs::write(folder.join(format!("{name}.json")), text).expect("a file");
                        }
                        Err(panic) => {
                            let reason = format!("{name}: {}", reason(&*panic));
                            failures.lock().expect("no panic").push(reason);
                        }
                    }
                    testkit::note(&format!("{name}: {} s", begun.elapsed().as_secs()));
                }
            });
        }
    });
    failures.into_inner().expect("no panic")
}

/// Leaves the files and the site in `target/tmp/atlas`.
#[test]
#[ignore = "a study: it makes an atlas of ten guests"]
fn study_atlas_of_machines_that_differ() {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("atlas");
    let _ = fs::remove_dir_all(&home);
    let (results, site) = (home.join("results"), home.join("site"));
    fs::create_dir_all(&results).expect("a folder");
    let failures = collect(&results);
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let text = |path: &Path| path.to_str().expect("a plain path").to_owned();
    let document = json(wirepath(&["atlas", &text(&results), "--out", &text(&site), "--json"]));
    testkit::note(&succeed(wirepath(&["atlas", &text(&results), "--out", &text(&site)])));
    let files = document["contributions"].as_array().expect("a list");
    let signers: BTreeSet<&str> = files.iter().filter_map(|file| file["signer"].as_str()).collect();
    assert_eq!(
        (files.len(), signers.len()),
        (CONTRIBUTORS.len(), CONTRIBUTORS.len()),
        "{document}"
    );
    let refused = |file: &&Value| file["problems"] != serde_json::json!([]);
    assert_eq!(files.iter().find(refused), None, "{document}");
}
