//! Starts while frames arrive: the guest answers after each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::{Arm, Path};
use testkit::arms::supported;
use testkit::series::{self, Loss};
use testkit::skip;
use wirepath_guest::echo::EchoKind;
use wirepath_guest::link::GUEST_IP;
use wirepath_guest::ping::{self, Until};
use wirepath_guest::qemu::Boot;
use wirepath_guest::{Guest, Switch, files};

use super::arms::load;
use super::watched::Watched;
use super::{ALL, ALL_AND_BEYOND, image};

/// Starts of each set of switches, unless the environment has another number.
const STARTS: (&str, usize) = ("WIREPATH_TEST_STARTS", 12);

/// Ring of either kind, with an interrupt per frame and without.
pub(crate) const SETS: [&str; 5] =
    ["", ALL, ALL_AND_BEYOND, "packed", "quiet,async-tx,rx-task,packed"];

pub(crate) fn name(switches: &str) -> &str {
    if switches.is_empty() { "baseline" } else { switches }
}

#[test]
fn every_start_under_traffic_answers() {
    let Some(image) = image() else { return };
    let starts = series::number(STARTS.0, STARTS.1);
    for switches in SETS {
        let boot = Boot::firmware(&image, switches);
        let series = format!("guest start {}", name(switches));
        series::all_answered(&series, starts, || answers_after_a_start(&boot));
    }
    match files::reference() {
        Ok(reference) => {
            let boot = Boot::reference(reference);
            series::all_answered("guest start virtio-drivers", starts, || {
                answers_after_a_start(&boot)
            });
        }
        Err(error) => skip("aarch64", error),
    }
}

/// Starts the guest while a frame arrives every 2 ms; then it must answer an echo.
fn answers_after_a_start(boot: &Boot) -> Result<u64, Loss> {
    let mut guest = Watched::start(boot);
    let is_ready = AtomicBool::new(false);
    let link = guest.link.try_clone().expect("a descriptor");
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !is_ready.load(Ordering::Relaxed) {
                link.request(GUEST_IP).expect("the card takes it");
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let ready = guest.await_ready();
        is_ready.store(true, Ordering::Relaxed);
        ready
    })?;
    // The address may come from an answer to a frame of the start; the echo does not.
    let peer = guest.link.resolve(GUEST_IP).map_err(|error| guest.lost(error))?;
    let pinged = ping::run(&guest.link, &peer, EchoKind::Icmp, 56, Until::Count(1));
    match pinged.map_err(|error| guest.lost(error))?.answered_count {
        1 => Ok(1),
        _ => Err(guest.lost("an echo was not answered within two seconds")),
    }
}

#[test]
fn load_start_times_each_start_to_its_first_answer() {
    if image().is_none() {
        return;
    }
    let load = load("start");
    let mut session = Guest.open(&load).expect("all parts are installed");
    for arm in [Arm::baseline(), Arm::with([Switch::Quiet, Switch::AsyncTx, Switch::Packed])] {
        if !supported(&Guest, &arm, &load) {
            continue;
        }
        let m = session.trial(&arm).expect("each start answers");
        let times = &m.segments["start"];
        assert!(!times.is_empty() && m.deliveries.is_empty(), "{:?}", m.deliveries);
        // An emulator does not start within a millisecond.
        assert!(times.min() > 1_000_000, "{}", times.min());
        assert!(m.not_effective.is_empty(), "{}: {:?}", arm.name, m.not_effective);
    }
}
