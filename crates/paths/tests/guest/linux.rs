//! The Linux guest as a peer arm.

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
