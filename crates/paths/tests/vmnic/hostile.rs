//! Guests that do not play along: the monitor gets rid of them.

use std::time::Duration;

use wirepath_paths::vmnic::vmm::{End, Silence, Sink, Switches, Task};

use crate::guest;

/// An ELF image of `code` alone, at 2 MiB.
pub(crate) fn image(code: &[u8]) -> Vec<u8> {
    const PLACE: u64 = 0x20_0000;
    let mut image = vec![0; 0x78];
    image[..6].copy_from_slice(b"\x7fELF\x02\x01");
    let mut put = |at: usize, value: u64, len: usize| {
        image[at..at + len].copy_from_slice(&value.to_le_bytes()[..len])
    };
    put(16, 2, 2);
    put(18, 62, 2);
    put(24, PLACE, 8);
    put(32, 0x40, 8);
    put(54, 56, 2);
    put(56, 1, 2);
    put(0x40, 1, 4);
    put(0x48, 0x78, 8);
    put(0x58, PLACE, 8);
    put(0x60, code.len() as u64, 8);
    put(0x68, code.len() as u64, 8);
    image.extend(code);
    image
}

fn run(code: &[u8], switches: Switches) -> Option<End> {
    let task = Task::send(60, 0);
    let running = guest::start_image(
        &image(code),
        task,
        switches,
        Box::new(Sink::default()),
        Box::new(Silence),
    )?;
    running.wait(Duration::from_millis(100));
    Some(running.stop().expect("the monitor runs to its end").end)
}

#[test]
fn guest_that_loops_is_stopped() {
    // jmp $
    let Some(end) = run(&[0xeb, 0xfe], Switches::ALL) else { return };
    assert_eq!(end, End::Stopped);
}

#[test]
fn guest_that_sleeps_for_ever_is_stopped() {
    // hlt; jmp to it
    let Some(end) = run(&[0xf4, 0xeb, 0xfd], Switches::ALL) else { return };
    assert_eq!(end, End::Stopped);
}

#[test]
fn guest_that_halts_with_interrupts_off_is_stopped() {
    // mov al, 0xff; out 0x21, al; out 0xa1, al; cli; hlt; jmp to the cli. Where cli is not allowed
    // it faults, and the monitor's stub ends the guest.
    let code = [0xb0, 0xff, 0xe6, 0x21, 0xe6, 0xa1, 0xfa, 0xf4, 0xeb, 0xfc];
    for switches in [Switches::default(), Switches::ALL] {
        let Some(end) = run(&code, switches) else { return };
        assert!(matches!(end, End::Stopped | End::GuestFailed { .. }), "{end:?}");
    }
}

#[test]
fn guest_that_hammers_ports_is_stopped() {
    // mov dx, 0xc010; out dx, ax; in ax, dx; inc rax; jmp to the out
    let code = [0x66, 0xba, 0x10, 0xc0, 0x66, 0xef, 0x66, 0xed, 0x48, 0xff, 0xc0, 0xeb, 0xf7];
    for switches in [Switches::default(), Switches::ALL] {
        let Some(end) = run(&code, switches) else { return };
        assert_eq!(end, End::Stopped);
    }
}

#[test]
fn guest_without_an_exception_handler_ends_in_a_shutdown() {
    // ud2, and no gate for it
    let Some(end) = run(&[0x0f, 0x0b], Switches::default()) else { return };
    assert!(matches!(end, End::Shutdown | End::Stuck { .. }), "{end:?}");
}

#[test]
fn string_instructions_read_and_write_every_element() {
    // cld; mov edi, 0x300000; mov ecx, 8; mov dx, 0x1234; rep insb; then jmp $
    let code = [
        0xfc, 0xbf, 0x00, 0x00, 0x30, 0x00, 0xb9, 0x08, 0x00, 0x00, 0x00, 0x66, 0xba, 0x34, 0x12,
        0xf3, 0x6c, 0xeb, 0xfe,
    ];
    let Some(end) = run(&code, Switches::default()) else { return };
    assert_eq!(end, End::Stopped);
}
