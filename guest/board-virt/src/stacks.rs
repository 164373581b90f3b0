//! Stacks of tasks, each above a page that nobody may touch.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

use kernel::Priority;
use kernel::system::Stack;

/// Bytes of a stack. Interrupts run on it too, up to one frame a nesting level.
pub const STACK_BYTES: usize = 32 * 1024;
/// Number of stacks.
pub const STACKS: usize = 12;
const GUARD_BYTES: usize = 4096;

#[repr(C, align(4096))]
struct Guarded {
    guard: [u8; GUARD_BYTES],
    stack: [u8; STACK_BYTES],
}

#[repr(C, align(4096))]
struct Stacks(UnsafeCell<[Guarded; STACKS]>);

// SAFETY: nothing refers to the bytes but the stack pointer of the task that a stack is given to.
unsafe impl Sync for Stacks {}

#[unsafe(link_section = ".stack.tasks")]
static TASK_STACKS: Stacks = Stacks(UnsafeCell::new(
    [const { Guarded { guard: [0; GUARD_BYTES], stack: [0; STACK_BYTES] } }; STACKS],
));

static NEXT: AtomicUsize = AtomicUsize::new(0);

fn slot(number: usize) -> usize {
    TASK_STACKS.0.get() as usize + number * size_of::<Guarded>()
}

/// The pages that guard the stacks, in ascending order.
pub(crate) fn guards() -> impl Iterator<Item = core::ops::Range<usize>> {
    (0..STACKS).map(|number| slot(number)..slot(number) + GUARD_BYTES)
}

/// The stack below which an address lies on the guard.
pub(crate) fn guarded_by(address: usize) -> Option<usize> {
    guards().position(|guard| guard.contains(&address))
}

/// The next stack that nobody has. Panics when all are taken.
pub fn stack() -> Stack {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(number < STACKS, "all {STACKS} stacks are taken");
    let start = slot(number) + GUARD_BYTES;
    Stack { start, end: start + STACK_BYTES }
}

/// Adds a task with a stack of its own.
pub fn spawn(priority: Priority, entry: fn(usize), argument: usize) {
    // SAFETY: `stack` gives each stack away once.
    unsafe { kernel::system::spawn(priority, stack(), entry, argument) };
}
