//! A guest that scribbles over its rings while the device works on them, and over half of its
//! memory before.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use lab::TapEnd;
use vmm::{CountingSink, GuestEnd, GuestOutcome, GuestTask, Receiver, Switches};

use crate::guest::{self, Opened};
use crate::hostile;

/// Assembled with GNU as:
///
/// ```text
///         cld                             ; 16 MiB that the host has to find for it
///         mov  edi, 0x800000
///         mov  ecx, 0x200000
///         mov  rax, -1
///         rep  stosq
///         mov  al, 0xff                   ; without gates: all lines off
///         out  0x21, al
///         out  0xa1, al
///         mov  dx, 0xcf8                  ; ports and bus mastering of device 3
///         mov  eax, 0x80001804
///         out  dx, eax
///         mov  dx, 0xcfc
///         mov  eax, 5
///         out  dx, eax
///         mov  dx, 0xc012                 ; software style 2
///         mov  ax, 20
///         out  dx, ax
///         mov  dx, 0xc016
///         mov  ax, 2
///         out  dx, ax
///         rdtsc
///         mov  ebx, eax
///         or   rbx, 1
///         mov  r10d, 7                    ; restarts
/// restart:mov  edi, 0x300000              ; init block: promiscuous, rings of 16
///         mov  dword ptr [rdi], 0x40408000
///         mov  dword ptr [rdi + 20], 0x301000
///         mov  dword ptr [rdi + 24], 0x302000
///         mov  esi, 4                     ; stop, address, start
///         xor  ecx, ecx
///         call csr
///         mov  esi, 0
///         mov  ecx, 1
///         call csr
///         mov  esi, 0x30
///         mov  ecx, 2
///         call csr
///         mov  esi, 0x43
///         xor  ecx, ecx
///         call csr
///         mov  r8d, 64
/// kick:   mov  r9d, 64
/// scrib:  mov  rax, rbx                   ; xorshift
///         shl  rax, 13
///         xor  rbx, rax
///         mov  rax, rbx
///         shr  rax, 7
///         xor  rbx, rax
///         mov  rax, rbx
///         shl  rax, 17
///         xor  rbx, rax
///         mov  eax, ebx                   ; a word of either ring, and a status that is owned
///         and  eax, 0x10fc
///         mov  edx, ebx                   ; an address in memory, now and then one beyond
///         and  edx, 0x7fffff
///         or   edx, 0x800000
///         test ebx, 0xff00
///         jnz  in
///         mov  edx, 0xfffff000
/// in:     mov  dword ptr [rax + 0x301000], edx
///         or   eax, 4
///         mov  rcx, rbx
///         shr  rcx, 32
///         or   ecx, 0x8300f000
///         mov  dword ptr [rax + 0x301000], ecx
///         dec  r9d
///         jnz  scrib
///         mov  esi, 0x48                  ; demand
///         xor  ecx, ecx
///         call csr
///         dec  r8d
///         jnz  kick
///         dec  r10d
///         jnz  restart
///         mov  al, 4                      ; done
///         mov  dx, 0x600
///         out  dx, al
///         jmp  .
/// csr:    mov  dx, 0xc012
///         mov  eax, ecx
///         out  dx, ax
///         mov  dx, 0xc010
///         mov  eax, esi
///         out  dx, ax
///         ret
/// ```
#[rustfmt::skip]
const CODE: &[u8] = &[
    0xfc, 0xbf, 0x00, 0x00, 0x80, 0x00, 0xb9, 0x00, 0x00, 0x20, 0x00, 0x48, 0xc7, 0xc0, 0xff,
    0xff, 0xff, 0xff, 0xf3, 0x48, 0xab, 0xb0, 0xff, 0xe6, 0x21, 0xe6, 0xa1, 0x66, 0xba, 0xf8,
    0x0c, 0xb8, 0x04, 0x18, 0x00, 0x80, 0xef, 0x66, 0xba, 0xfc, 0x0c, 0xb8, 0x05, 0x00, 0x00,
    0x00, 0xef, 0x66, 0xba, 0x12, 0xc0, 0x66, 0xb8, 0x14, 0x00, 0x66, 0xef, 0x66, 0xba, 0x16,
    0xc0, 0x66, 0xb8, 0x02, 0x00, 0x66, 0xef, 0x0f, 0x31, 0x89, 0xc3, 0x48, 0x83, 0xcb, 0x01,
    0x41, 0xba, 0x07, 0x00, 0x00, 0x00, 0xbf, 0x00, 0x00, 0x30, 0x00, 0xc7, 0x07, 0x00, 0x80,
    0x40, 0x40, 0xc7, 0x47, 0x14, 0x00, 0x10, 0x30, 0x00, 0xc7, 0x47, 0x18, 0x00, 0x20, 0x30,
    0x00, 0xbe, 0x04, 0x00, 0x00, 0x00, 0x31, 0xc9, 0xe8, 0xba, 0x00, 0x00, 0x00, 0xbe, 0x00,
    0x00, 0x00, 0x00, 0xb9, 0x01, 0x00, 0x00, 0x00, 0xe8, 0xab, 0x00, 0x00, 0x00, 0xbe, 0x30,
    0x00, 0x00, 0x00, 0xb9, 0x02, 0x00, 0x00, 0x00, 0xe8, 0x9c, 0x00, 0x00, 0x00, 0xbe, 0x43,
    0x00, 0x00, 0x00, 0x31, 0xc9, 0xe8, 0x90, 0x00, 0x00, 0x00, 0x41, 0xb8, 0x40, 0x00, 0x00,
    0x00, 0x41, 0xb9, 0x40, 0x00, 0x00, 0x00, 0x48, 0x89, 0xd8, 0x48, 0xc1, 0xe0, 0x0d, 0x48,
    0x31, 0xc3, 0x48, 0x89, 0xd8, 0x48, 0xc1, 0xe8, 0x07, 0x48, 0x31, 0xc3, 0x48, 0x89, 0xd8,
    0x48, 0xc1, 0xe0, 0x11, 0x48, 0x31, 0xc3, 0x89, 0xd8, 0x25, 0xfc, 0x10, 0x00, 0x00, 0x89,
    0xda, 0x81, 0xe2, 0xff, 0xff, 0x7f, 0x00, 0x81, 0xca, 0x00, 0x00, 0x80, 0x00, 0xf7, 0xc3,
    0x00, 0xff, 0x00, 0x00, 0x75, 0x05, 0xba, 0x00, 0xf0, 0xff, 0xff, 0x89, 0x90, 0x00, 0x10,
    0x30, 0x00, 0x83, 0xc8, 0x04, 0x48, 0x89, 0xd9, 0x48, 0xc1, 0xe9, 0x20, 0x81, 0xc9, 0x00,
    0xf0, 0x00, 0x83, 0x89, 0x88, 0x00, 0x10, 0x30, 0x00, 0x41, 0xff, 0xc9, 0x75, 0x9f, 0xbe,
    0x48, 0x00, 0x00, 0x00, 0x31, 0xc9, 0xe8, 0x17, 0x00, 0x00, 0x00, 0x41, 0xff, 0xc8, 0x75,
    0x88, 0x41, 0xff, 0xca, 0x0f, 0x85, 0x2a, 0xff, 0xff, 0xff, 0xb0, 0x04, 0x66, 0xba, 0x00,
    0x06, 0xee, 0xeb, 0xfe, 0x66, 0xba, 0x12, 0xc0, 0x89, 0xc8, 0x66, 0xef, 0x66, 0xba, 0x10,
    0xc0, 0x89, 0xf0, 0x66, 0xef, 0xc3,
];

/// More than any allocator keeps; far less than twenty guests touch.
const RSS_GROWTH_MAX: u64 = 24 << 20;

/// A network that never falls silent: its pipe is readable for ever.
struct Flood {
    next: u8,
    pipe: (io::PipeReader, io::PipeWriter),
}

impl Flood {
    fn new() -> Self {
        let mut pipe = io::pipe().unwrap();
        pipe.1.write_all(&[1]).unwrap();
        Flood { next: 0, pipe }
    }
}

impl Receiver for Flood {
    fn receive(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let len = 60 + usize::from(self.next) * 5;
        into[..len].fill(self.next);
        self.next = self.next.wrapping_add(1);
        Ok(Some(len))
    }

    fn looks(&self) -> Option<bool> {
        Some(true)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.pipe.0.as_fd())
    }

    fn call_count(&self) -> u64 {
        0
    }
}

/// Rounds of all sets of switches until the guest has met every kind of end.
const ROUNDS_MAX: usize = 20;

/// Runs a guest of `code` until it is done with its restarts.
pub(crate) fn scribble(
    code: &[u8],
    switches: Switches,
    open: impl FnOnce() -> Opened,
) -> Option<GuestOutcome> {
    let image = hostile::image(code);
    let running = guest::start_image(&image, GuestTask::send(60, 0), switches, open)?;
    running.wait(guest::GUEST_TIMEOUT);
    let (outcome, _) = running.stop().expect("the monitor runs to its end");
    assert_eq!(outcome.end, GuestEnd::Done, "{switches:?}: the guest does not get on");
    Some(outcome)
}

/// A back end that takes everything, and a flood.
pub(crate) fn flood() -> Opened {
    guest::halves(CountingSink::default(), Flood::new())
}

#[test]
fn guest_that_scribbles_over_its_rings_does_not_stop_the_device() {
    let (mut sent, mut received, mut faulted) = (0, 0, 0);
    let sets = [Switches::default(), Switches::SOURCE, guest::LANCE];
    for (turn, switches) in sets.into_iter().cycle().take(ROUNDS_MAX * sets.len()).enumerate() {
        if turn >= sets.len() && sent > 0 && received > 0 && faulted > 0 {
            break;
        }
        let Some(outcome) = scribble(CODE, switches, flood) else { return };
        let lance = &outcome.total.nic;
        sent += lance.tx_frame_count + lance.tx_torn_count + lance.tx_dropped_count;
        received += lance.rx_frame_count + lance.rx_torn_count;
        faulted += lance.bus_error_count;
    }
    // Otherwise it would be no test of the device; what it scribbles is another each time, and may lead to
    // no fault.
    assert!(sent > 0 && received > 0 && faulted > 0, "{sent} {received} {faulted}");
}

#[test]
fn guest_that_scribbles_over_its_rings_does_not_stop_a_tap() {
    let lab = TapEnd::new().expect("the test runs as root");
    scribble(CODE, Switches::default(), || crate::tap::tap(&lab));
}

/// Descriptors, threads and resident bytes of this process.
fn left() -> (usize, usize, u64) {
    let [descriptors, threads] = ["/proc/self/fd", "/proc/self/task"]
        .map(|folder| std::fs::read_dir(folder).unwrap().count());
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    (descriptors, threads, pages * 4096)
}

/// Child process of the next test: descriptors, threads and memory of this process after each of
/// many guests.
#[test]
#[ignore = "role of a child process"]
fn child_that_counts_what_guests_leave() {
    let mut before = None;
    for n in 0..24 {
        let switches = [Switches::default(), guest::LANCE][n % 2];
        if scribble(CODE, switches, flood).is_none() {
            return;
        }
        // The first ones warm the allocator up.
        if n == 3 {
            before = Some(left());
        }
    }
    let (before, after) = (before.unwrap(), left());
    assert_eq!((before.0, before.1), (after.0, after.1), "descriptors and threads");
    assert!(after.2 <= before.2 + RSS_GROWTH_MAX, "{before:?} {after:?}");
}

#[test]
fn hostile_guests_leave_no_memory_descriptor_or_thread_behind() {
    let child = testkit::role("scribbler::child_that_counts_what_guests_leave").output().unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}
