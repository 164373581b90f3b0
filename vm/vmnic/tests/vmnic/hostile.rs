//! Guests that do not play along: the monitor gets rid of them.

use std::time::Duration;

use vmm::{CountingSink, GuestEnd, GuestOutcome, GuestTask, Silence, Switches};

use crate::guest;

/// An ELF image of `code` alone, at 2 MiB.
pub(crate) fn image(code: &[u8]) -> Vec<u8> {
    const PLACE: u64 = 0x20_0000;
    let mut image = vec![0; 0x78];
    image[..6].copy_from_slice(b"\x7fELF\x02\x01");
    let len_bytes = code.len() as u64;
    for (at, value, len) in [
        (16, 2, 2),
        (18, 62, 2),
        (24, PLACE, 8),
        (32, 0x40, 8),
        (54, 56, 2),
        (56, 1, 2),
        (0x40, 1, 4),
        (0x48, 0x78, 8),
        (0x58, PLACE, 8),
        (0x60, len_bytes, 8),
        (0x68, len_bytes, 8),
    ] {
        image[at..at + len].copy_from_slice(&u64::to_le_bytes(value)[..len]);
    }
    image.extend(code);
    image
}

fn run(code: &[u8], switches: Switches) -> Option<GuestEnd> {
    Some(outcome(code, switches, Duration::from_millis(100))?.end)
}

fn outcome(code: &[u8], switches: Switches, patience: Duration) -> Option<GuestOutcome> {
    let task = GuestTask::send(60, 0);
    let running = guest::start_image(&image(code), task, switches, || {
        guest::halves(CountingSink::default(), Silence)
    })?;
    running.wait(patience);
    Some(running.stop().expect("the monitor runs to its end").0)
}

#[test]
fn guest_that_loops_is_stopped() {
    // jmp $
    let Some(end) = run(&[0xeb, 0xfe], guest::LANCE) else { return };
    assert_eq!(end, GuestEnd::Stopped);
}

#[test]
fn guest_that_sleeps_for_ever_is_stopped() {
    // hlt; jmp to it
    let Some(end) = run(&[0xf4, 0xeb, 0xfd], guest::LANCE) else { return };
    assert_eq!(end, GuestEnd::Stopped);
}

#[test]
fn guest_that_halts_with_interrupts_off_is_stopped() {
    // mov al, 0xff; out 0x21, al; out 0xa1, al; cli; hlt; jmp to the cli. Where cli is not allowed
    // it faults, and the monitor's stub ends the guest.
    let code = [0xb0, 0xff, 0xe6, 0x21, 0xe6, 0xa1, 0xfa, 0xf4, 0xeb, 0xfc];
    for switches in [Switches::default(), guest::LANCE, Switches::ALL] {
        let Some(end) = run(&code, switches) else { return };
        assert!(matches!(end, GuestEnd::Stopped | GuestEnd::GuestFailed { .. }), "{end:?}");
    }
}

#[test]
fn guest_that_hammers_ports_is_stopped() {
    // mov dx, 0xc010; out dx, ax; in ax, dx; inc rax; jmp to the out
    let code = [0x66, 0xba, 0x10, 0xc0, 0x66, 0xef, 0x66, 0xed, 0x48, 0xff, 0xc0, 0xeb, 0xf7];
    for switches in [Switches::default(), guest::LANCE, Switches::ALL] {
        let Some(end) = run(&code, switches) else { return };
        assert_eq!(end, GuestEnd::Stopped);
    }
}

#[test]
fn guest_without_an_exception_handler_ends_in_a_shutdown() {
    // ud2, and no gate for it
    let Some(end) = run(&[0x0f, 0x0b], Switches::default()) else { return };
    assert!(matches!(end, GuestEnd::Shutdown | GuestEnd::Stuck { .. }), "{end:?}");
}

#[test]
fn string_instructions_read_and_write_every_element() {
    // Four words to RAP, eight words from RAP and eight from the address PROM; each word is compared,
    // and the one after them is untouched. Then four signals.
    #[rustfmt::skip]
    let code = [
        0xfc,                         //       cld
        0xbe, 0x70, 0x00, 0x20, 0x00, //       mov esi, raps
        0xb9, 0x04, 0x00, 0x00, 0x00, //       mov ecx, 4
        0x66, 0xba, 0x12, 0xc0,       //       mov dx, 0xc012
        0x66, 0xf3, 0x6f,             //       rep outsw
        0xbf, 0x00, 0x00, 0x30, 0x00, //       mov edi, 0x300000
        0xb9, 0x08, 0x00, 0x00, 0x00, //       mov ecx, 8
        0x66, 0xf3, 0x6d,             //       rep insw
        0x66, 0xba, 0x00, 0xc0,       //       mov dx, 0xc000
        0xb9, 0x08, 0x00, 0x00, 0x00, //       mov ecx, 8
        0x66, 0xf3, 0x6d,             //       rep insw
        0xbe, 0x00, 0x00, 0x30, 0x00, //       mov esi, 0x300000
        0xb9, 0x08, 0x00, 0x00, 0x00, //       mov ecx, 8
        0x66, 0xad,                   // 1:    lodsw
        0x66, 0x83, 0xf8, 0x44,       //       cmp ax, 0x44
        0x75, 0x2a,                   //       jne failed
        0xe2, 0xf6,                   //       loop 1
        0xb9, 0x08, 0x00, 0x00, 0x00, //       mov ecx, 8
        0x66, 0xad,                   // 2:    lodsw
        0x66, 0x3d, 0x02, b'w',       //       cmp ax, the first word of the MAC address
        0x75, 0x1b,                   //       jne failed
        0xe2, 0xf6,                   //       loop 2
        0x66, 0xad,                   //       lodsw
        0x66, 0x85, 0xc0,             //       test ax, ax
        0x75, 0x12,                   //       jne failed
        0xbe, 0x78, 0x00, 0x20, 0x00, //       mov esi, signals
        0xb9, 0x04, 0x00, 0x00, 0x00, //       mov ecx, 4
        0x66, 0xba, 0x00, 0x06,       //       mov dx, 0x600
        0xf3, 0x6e,                   //       rep outsb
        0xeb, 0xfe,                   // 3:    jmp 3
        0x66, 0xba, 0x00, 0x06,       // failed: mov dx, 0x600
        0xb0, 0x05,                   //       mov al, Failed
        0xee,                         //       out dx, al
        0xeb, 0xf5,                   //       jmp 3
        0x11, 0, 0x22, 0, 0x33, 0, 0x44, 0, // raps
        1, 2, 3, 4,                   // signals: Ready, Begin, End, Done
    ];
    for rap_in_kernel in [false, true] {
        let switches = Switches { rap_in_kernel, ..Switches::default() };
        let Some(outcome) = outcome(&code, switches, guest::GUEST_TIMEOUT) else { return };
        assert_eq!(outcome.end, GuestEnd::Done, "{outcome:?}");
        assert!(outcome.measured.is_some(), "begin before end: {outcome:?}");
        let exits = &outcome.total.exits;
        let rap_writes = [exits.rap_write_count, exits.coalesced_count];
        assert_eq!(rap_writes, if rap_in_kernel { [0, 4] } else { [4, 0] }, "{exits:?}");
        assert_eq!((exits.rap_read_count, exits.other_device_count), (8, 8), "{exits:?}");
        assert_eq!((exits.signal_count, exits.stray_count), (4, 0), "{exits:?}");
    }
}
