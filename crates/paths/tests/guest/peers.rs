//! The other guests, as peer arms.

use std::time::Duration;

use model::{Arm, Support};
use wirepath_paths::guest::{Guest, files};
use wirepath_paths::{Load, Path};

use super::arms::{check, load};
use super::{has, image, skipped};

fn linux_under(load: &Load) {
    if image().is_none() {
        return;
    }
    if let Err(error) = files::linux() {
        return skipped(error);
    }
    let linux = Arm::peer("linux");
    match Guest.support(&linux, load) {
        Support::Yes => {}
        no => return skipped(format!("{no:?}")),
    }
    let mut session = Guest.open(load).expect("what it takes is there");
    // The second finds it stopped and has it go on.
    for turn in ["first", "second"] {
        let m = session.trial(&linux).unwrap_or_else(|error| panic!("{turn}: {error}"));
        check(turn, &m);
        assert_eq!(m.mode["guest"], "Linux");
    }
    let of_ours = session.trial(&Arm::baseline()).expect("they do not get in each other's way");
    check("baseline", &of_ours);
}

/// Others' driver and stack in firmware like ours.
fn reference_under(load: &Load) {
    if image().is_none() {
        return;
    }
    let reference = Arm::peer("virtio-drivers");
    match Guest.support(&reference, load) {
        Support::Yes => {}
        no => return skipped(format!("{no:?}")),
    }
    let mut session = Guest.open(load).expect("what it takes is there");
    let m = session.trial(&reference).expect("it answers");
    check("virtio-drivers", &m);
    assert_eq!(m.mode["guest"], "virtio-drivers and smoltcp");
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
fn virtio_drivers_and_smoltcp_answer_real_ping() {
    if has("ping") {
        reference_under(&Load { trial: Duration::from_millis(500), ..load("tap-ping") });
    }
}

#[test]
fn linux_answers_echoes_on_the_same_wire_from_trial_to_trial() {
    linux_under(&load("ping"));
}

#[test]
fn linux_answers_real_ping() {
    if has("ping") {
        linux_under(&Load { trial: Duration::from_millis(500), ..load("tap-ping") });
    }
}

#[test]
fn linux_is_no_peer_of_loads_that_it_does_not_carry() {
    let refused = Guest.support(&Arm::peer("linux"), &load("flood"));
    let said = match refused {
        // Where QEMU is missing, that is said first.
        Support::Unsupported { what, .. } => what,
        Support::Refused { why } => why,
        Support::Yes => String::new(),
    };
    assert!(said.contains("does not carry load flood") || said.contains("qemu"), "{said}");
}
