//! `wirepath tunnel measure`, and other programs as arms of path `tunnel`: what is measured, and ends that die.

#[path = "../../../crates/cli/tests/common/mod.rs"]
mod common;

mod measure;

use std::time::Duration;

use common::dying::{assert_dead_far_end_has_no_figure, peers_die_with_the_run};
use common::{LONG, Running, until, wirepath};

#[test]
fn tunnel_measurement_without_arrivals_has_no_result() {
    let measure = ["tunnel", "measure", "--sizes", "64", "--trial", "500ms", "--json"];
    // The kernel's forwarder is half dead, the sink deaf, and our forwarder loses its way out.
    let broken = [("kernel", "wp-vx"), ("kernel", "wp-far"), ("bypass+batch+prepend", "wp-to-far")];
    for (forwarder, ifname) in broken {
        let running = Running::start(wirepath(&[&measure[..], &["-f", forwarder]].concat()));
        assert!(
            until(LONG, || running.holdings().received_count() > 20_000),
            "{ifname}: {}",
            running.stderr()
        );
        let namespaces = running.namespaces();
        let done = namespaces.iter().filter(|netns| {
            netns
                .run(|| host::net::set_up(host::net::link_named(ifname)?.index, false))
                .is_ok_and(|d| d.is_ok())
        });
        assert_eq!(done.count(), 1, "{ifname}");
        let output = running.finish(LONG).expect("it ends");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{ifname}: {told}");
        assert!(output.stdout.is_empty(), "{ifname}: no figure of a failure");
        assert!(told.contains("frames arrived at the sink"), "{ifname}: {told}");
    }
}

#[test]
fn program_whose_far_end_dies_has_failed_trials_and_no_figure() {
    // Its start takes about a second.
    let age = Duration::from_millis(3000);
    let experiment = ["tunnel", "flood", "baseline", "5s"];
    assert_dead_far_end_has_no_figure("testpmd", experiment, "dpdk-testpmd", age);
}

#[test]
fn testpmd_dies_with_the_run() {
    for (peer, driver) in [("testpmd", "net_af_xdp"), ("testpmd-packet", "net_af_packet")] {
        let args = ["tunnel", "--arms", "rps", "--peers", peer];
        peers_die_with_the_run(&args, "dpdk-testpmd", driver);
    }
}
