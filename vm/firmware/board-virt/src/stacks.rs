//! Task stacks, each above a guard page.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

use kernel::Priority;
use kernel::system::Stack;

/// Bytes of a stack. Interrupts use it too, at most one frame per nesting level.
pub const STACK_BYTES: usize = 32 * 1024;
pub const STACKS: usize = 12;
const GUARD_BYTES: usize = 4096;

#[repr(C, align(4096))]
struct Guarded {
    guard: [u8; GUARD_BYTES],
    stack: [u8; STACK_BYTES],
}

#[repr(C, align(4096))]
struct Stacks(UnsafeCell<[Guarded; STACKS]>);

// SAFETY: only the stack pointer of the task that owns a stack refers to its bytes.
unsafe impl Sync for Stacks {}

#[unsafe(link_section = ".stack.tasks")]
static TASK_STACKS: Stacks = Stacks(UnsafeCell::new(
    [const { Guarded { guard: [0; GUARD_BYTES], stack: [0; STACK_BYTES] } }; STACKS],
));

static NEXT: AtomicUsize = AtomicUsize::new(0);

fn slot(number: usize) -> usize {
    TASK_STACKS.0.get() as usize + number * size_of::<Guarded>()
}

/// The guard pages, in ascending order.
pub(crate) fn guards() -> impl Iterator<Item = core::ops::Range<usize>> {
    (0..STACKS).map(|number| slot(number)..slot(number) + GUARD_BYTES)
}

/// Number of the stack whose guard page holds `address`.
pub(crate) fn guarded_by(address: usize) -> Option<usize> {
    guards().position(|guard| guard.contains(&address))
}

/// Allocates a stack. Panics if none is left.
pub fn stack() -> Stack {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(number < STACKS, "all {STACKS} stacks are taken");
    let start = slot(number) + GUARD_BYTES;
    Stack { start, end: start + STACK_BYTES }
}

/// Adds a task with its own stack.
pub fn spawn(priority: Priority, entry: fn(usize), argument: usize) {
    // SAFETY: `stack` returns each stack once.
    unsafe { kernel::system::spawn(priority, stack(), entry, argument) };
}
