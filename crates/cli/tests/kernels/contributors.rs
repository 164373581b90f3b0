//! An atlas of machines that differ: each guest proves something and shares its result, signed by a key of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;

use serde_json::Value;

use crate::common::rig::{FarEnd, Machine, Rig};
use crate::common::{json, succeed, wirepath};
use crate::machine::{
    BOOKWORM, FAR_IP, FROM_6_16, FROM_6_18, Kind, NEWEST, TRIXIE, VIRTIO, far, near,
};

const PROVE: &str =
    "--load ping --arms busy-poll,spin+bypass --trial 100ms --max-blocks 8 --time 200s";

/// Guests that run at the same time: how fast the host is changes nothing in them.
const AT_ONCE: usize = 5;

/// A guest, with its kernel in words.
struct Contributor {
    kernel: &'static str,
    machine: Machine,
}

/// Each of the five kernels that have a lab on two machines, and one driver on six: as many as a pooled verdict needs.
static CONTRIBUTORS: [Contributor; 10] = [
    Contributor { kernel: "6.1", machine: SMALL.machine(BOOKWORM) },
    Contributor { kernel: "6.1", machine: E1000E.machine(BOOKWORM) },
    Contributor { kernel: "6.12", machine: SMALL.machine(TRIXIE) },
    Contributor { kernel: "6.12", machine: VMXNET3.machine(TRIXIE) },
    Contributor { kernel: "6.16", machine: SMALL.machine(FROM_6_16) },
    Contributor { kernel: "6.16", machine: VMXNET3.machine(FROM_6_16) },
    Contributor { kernel: "6.18", machine: SMALL.machine(FROM_6_18) },
    Contributor { kernel: "6.18", machine: LARGER.machine(FROM_6_18) },
    Contributor { kernel: "newest", machine: SMALL.machine(NEWEST) },
    Contributor { kernel: "newest", machine: E1000E.machine(NEWEST) },
];

/// 8 ns. Otherwise the host's turns, which last longer than a round trip, were most of the figures: its intervals reached from
/// 0.13 to 1.45.
const INSTRUCTION_TIME: Option<u8> = Some(3);

const SMALL: Kind = Kind { instruction_time: INSTRUCTION_TIME, ..VIRTIO };
const LARGER: Kind = Kind { cpu: "Skylake-Server", memory_mib: 2048, ..SMALL };
const E1000E: Kind = Kind {
    cpu: "Haswell",
    memory_mib: 768,
    instruction_time: INSTRUCTION_TIME,
    cards: &[near("e1000e", "e1000e,netdev=a"), far("e1000e,netdev=b")],
};
const VMXNET3: Kind = Kind {
    cpu: "EPYC",
    memory_mib: 1536,
    instruction_time: INSTRUCTION_TIME,
    cards: &[near("vmxnet3", "vmxnet3,netdev=a"), far("vmxnet3,netdev=b")],
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
            "export WIREPATH_DATA=/root/data
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
    let mut failures = Vec::new();
    for together in CONTRIBUTORS.chunks(AT_ONCE) {
        // A panic does not name its guest, and the others go on.
        let guests: Vec<_> =
            together.iter().map(|one| thread::spawn(|| contribution(&one.machine))).collect();
        for (one, guest) in together.iter().zip(guests) {
            let name = one.name();
            match guest.join() {
                Ok(text) => fs::write(folder.join(format!("{name}.json")), text).expect("a file"),
                Err(panic) => failures.push(format!("{name}: {}", reason(&*panic))),
            }
        }
    }
    failures
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
