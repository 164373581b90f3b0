//! The small C kernel of the tests: a foreign system with a plain driver of its own.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use wirepath_guest::echo::EchoKind;
use wirepath_guest::link::GUEST_IP;
use wirepath_guest::ping::{self, Until};
use wirepath_guest::qemu::{self, Boot, GuestMachine};

use testkit::skip;

use super::{booted, kernel_c};

/// Time limit for the next words on the console, on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// An image of the kernel; `None`, with a skip, if it cannot run.
fn boot(name: &str) -> Option<Boot> {
    if qemu::version().is_none() {
        skip("qemu-system-aarch64", "not installed");
        return None;
    }
    Some(Boot::reference(kernel_c::image(name)?))
}

/// An image with the driver for C, on a card and an interrupt controller that it has a driver for.
fn boot_of_library(name: &str, card: &'static str, machine: &str) -> Option<Boot> {
    kernel_c::library_image(name)?;
    let arguments = vec!["-M".to_owned(), machine.to_owned()];
    Some(Boot { arguments, card: Some(card), ..boot(name)? })
}

/// 1000 echoes in a row, and one of each size.
fn answers_everything(name: &str, boot: &Boot) {
    let (_machine, link, peer) = booted(boot);
    for (bytes, count) in [(56, 1000), (0, 1), (1, 1), (18, 1), (1471, 1), (1472, 1)] {
        let pinged = ping::run(&link, &peer, EchoKind::Icmp, bytes, Until::Count(count))
            .unwrap_or_else(|error| panic!("{name}, {bytes} bytes: {error}"));
        assert_eq!(pinged.answered_count, u64::from(count), "{name}, {bytes} bytes");
    }
}

#[test]
fn small_kernel_answers_whether_it_polls_or_prints() {
    for name in ["poll-print", "poll", "async-print", "async"] {
        let Some(boot) = boot(name) else { return };
        answers_everything(name, &boot);
    }
}

#[test]
fn small_kernel_with_a_race_answers_if_frames_come_later() {
    let Some(boot) = boot("race") else { return };
    answers_everything("race", &boot);
}

/// Frames that wait for the card from the start: fewer than a socket's queue holds, because a card that hangs takes none.
const WAITING_FRAMES: usize = 6;

/// Boots while frames wait from the first moment; returns true if the kernel then has an address.
fn answers_after_a_start_under_traffic(boot: &Boot) -> bool {
    let (_machine, console, link) =
        GuestMachine::start_with_console(boot, None).expect("it starts");
    let link = link.expect("a wire");
    link.connect().expect("the card is there");
    for _ in 0..WAITING_FRAMES {
        link.request(GUEST_IP).expect("there is room");
    }
    await_ready(console);
    link.resolve(GUEST_IP).is_ok()
}

/// Waits until the console says that the kernel is ready.
fn await_ready(mut console: UnixStream) {
    console.set_read_timeout(Some(READY_TIMEOUT)).expect("a time limit");
    let (mut said, mut bytes) = (String::new(), [0; 256]);
    while !said.contains("Net ready") {
        let count = console.read(&mut bytes).expect("it says so in time");
        assert!(count > 0, "the console ended: {said}");
        said += &String::from_utf8_lossy(&bytes[..count]);
    }
}

#[test]
fn planted_race_hangs_the_small_kernel_and_its_repair_does_not() {
    let (Some(race), Some(fixed)) = (boot("race"), boot("race-fixed")) else { return };
    assert!(!answers_after_a_start_under_traffic(&race), "the race is gone");
    assert!(answers_after_a_start_under_traffic(&fixed));
}

#[test]
fn driver_for_c_answers_over_mmio_and_pci_by_pin_and_by_message() {
    let (mmio, pci) = ("virtio-net-device,netdev=n", "virtio-net-pci,netdev=n");
    for (name, card, machine) in [
        ("lib", mmio, "virt,gic-version=3"),
        ("lib-pci", pci, "virt,gic-version=3"),
        // Messages of the older controller come without a translation service.
        ("lib-msix", pci, "virt,gic-version=2"),
    ] {
        let Some(boot) = boot_of_library(name, card, machine) else { return };
        answers_everything(name, &boot);
        assert!(answers_after_a_start_under_traffic(&boot), "{name}");
    }
}
