//! The other guests, as peer arms.

use std::time::Duration;

use model::{Arm, Support};
use model::{Load, Path};
use testkit::arms::supported;
use testkit::{is_installed, skip};
use wirepath_guest::{Guest, files};

use super::arms::{check, load};
use super::image;

fn linux_under(load: &Load) {
    if image().is_none() {
        return;
    }
    if let Err(error) = files::linux() {
        return skip("linux-guest", error);
    }
    let linux = Arm::peer("linux");
    if !supported(&Guest, &linux, load) {
        return;
    }
    let mut session = Guest.open(load).expect("all parts are installed");
    // The second trial resumes the paused machine.
    for turn in ["first", "second"] {
        let m = session.trial(&linux).unwrap_or_else(|error| panic!("{turn}: {error}"));
        check(turn, &m);
        assert_eq!(m.mode["guest"], "Linux");
    }
    let firmware = session.trial(&Arm::baseline()).expect("both machines run side by side");
    check("baseline", &firmware);
}

/// Third-party driver and stack in the reference firmware.
fn reference_under(load: &Load) {
    firmware_under(load, "virtio-drivers", "virtio-drivers and smoltcp");
}

fn firmware_under(load: &Load, peer: &str, guest: &str) {
    if image().is_none() {
        return;
    }
    let reference = Arm::peer(peer);
    if !supported(&Guest, &reference, load) {
        return;
    }
    let mut session = Guest.open(load).expect("all parts are installed");
    let m = session.trial(&reference).expect("it answers");
    check(peer, &m);
    assert_eq!(m.mode["guest"], guest);
    assert!(m.figures["ready_ns"] > 0.0);
}

#[test]
fn virtio_drivers_and_smoltcp_answer_echoes_on_the_same_wire() {
    for kind in ["ping", "udp-ping"] {
        reference_under(&load(kind));
        // A frame of full length, in one buffer.
        reference_under(&Load { size_bytes: 1472, ..load(kind) });
    }
}

#[test]
fn smoltcp_on_this_driver_is_a_peer() {
    firmware_under(&load("udp-ping"), "smoltcp", "smoltcp on this driver");
}

#[test]
fn virtio_drivers_and_smoltcp_answer_ping8() {
    if is_installed("ping") {
        reference_under(&Load { trial: Duration::from_millis(500), ..load("tap-ping") });
    }
}

#[test]
fn linux_answers_echoes_on_the_same_wire_from_trial_to_trial() {
    linux_under(&load("ping"));
}

#[test]
fn linux_answers_ping8() {
    if is_installed("ping") {
        linux_under(&Load { trial: Duration::from_millis(500), ..load("tap-ping") });
    }
}

#[test]
fn linux_is_refused_for_loads_that_it_does_not_support() {
    let refused = Guest.support(&Arm::peer("linux"), &load("flood"));
    let said = match refused {
        // A missing QEMU is reported first.
        Support::Unsupported { what, .. } => what,
        Support::Refused { why } => why,
        Support::Yes => String::new(),
    };
    assert!(said.contains("does not support load flood") || said.contains("qemu"), "{said}");
}
