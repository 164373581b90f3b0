//! Table of kernels by feature: each kernel boots in QEMU with the program itself.
//!
//! `cargo xtask kernels` fetches the kernels and runs the ignored test with `UPDATE=1`, which writes
//! docs/reference/kernels.md.

#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "fleet")]
mod contributors;
mod features;
mod machine;
mod page;

use common::rig::Rig;
use features::{Feature, Outcome};
use page::Column;

/// Features that every kernel of the table has, or none of the others means anything.
const EVERYWHERE: [&str; 3] = ["list of paths", "UDP sockets", "AF_PACKET"];

fn column(from: &str, rig: &Rig, features: &[Feature]) -> Column {
    let kernel = rig.succeed("uname -r").trim().to_owned();
    let outcomes: Vec<Outcome> = features.iter().map(|feature| feature.try_on(rig)).collect();
    for (feature, outcome) in features.iter().zip(&outcomes) {
        let is_base = EVERYWHERE.contains(&feature.name);
        assert!(!is_base || *outcome == Outcome::Works, "{kernel}: {}: {outcome:?}", feature.name);
    }
    Column { from: from.to_owned(), kernel, outcomes }
}

#[test]
#[ignore = "minutes: run `cargo xtask kernels`"]
fn features_of_every_kernel_are_those_of_the_page() {
    let features = features::all();
    let mut columns = Vec::new();
    for (from, machine) in &machine::GUESTS {
        let Some(rig) = Rig::boot(machine, &["ip", "ethtool", "ping"]) else {
            panic!("{from}: not booted")
        };
        columns.push(column(from, &rig, &features));
    }
    page::check(&features, &columns);
}
