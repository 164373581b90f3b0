//! The running kernel: calls for tasks and interrupts.

use core::cell::RefCell;

use critical_section::{CriticalSection, Mutex};

use crate::arch;
use crate::scheduler::{EventId, Pend, Scheduler, Switch};
use crate::{Overflow, Priority, TimedOut};

static SCHEDULER: Mutex<RefCell<Scheduler>> = Mutex::new(RefCell::new(Scheduler::new()));

/// A counting semaphore.
#[derive(Debug, Clone, Copy)]
pub struct Semaphore(EventId);

impl Semaphore {
    /// Creates a semaphore with an initial count.
    pub fn new(count: u32) -> Self {
        Semaphore(critical_section::with(|cs| SCHEDULER.borrow_ref_mut(cs).add_semaphore(count)))
    }

    /// Takes the semaphore; waits at most `timeout_ticks`, 0 for no limit. Tasks only.
    pub fn pend(self, timeout_ticks: u32) -> Result<(), TimedOut> {
        pend(self.0, timeout_ticks).map(|_| ())
    }

    /// Takes the semaphore if that needs no wait.
    pub fn try_take(self) -> bool {
        critical_section::with(|cs| SCHEDULER.borrow_ref_mut(cs).try_take(self.0).is_some())
    }

    /// Releases the semaphore; also allowed in interrupts.
    pub fn post(self) -> Result<(), Overflow> {
        post(self.0, 0)
    }
}

/// A queue of 64-bit messages.
#[derive(Debug, Clone, Copy)]
pub struct Queue(EventId);

impl Queue {
    #[expect(clippy::new_without_default, reason = "it takes one of the kernel's few events")]
    pub fn new() -> Self {
        Queue(critical_section::with(|cs| SCHEDULER.borrow_ref_mut(cs).add_queue()))
    }

    /// Takes a message; waits at most `timeout_ticks`, 0 for no limit. Tasks only.
    pub fn pend(self, timeout_ticks: u32) -> Result<u64, TimedOut> {
        pend(self.0, timeout_ticks)
    }

    /// Sends a message; also allowed in interrupts.
    pub fn post(self, message: u64) -> Result<(), Overflow> {
        post(self.0, message)
    }
}

fn pend(id: EventId, timeout_ticks: u32) -> Result<u64, TimedOut> {
    critical_section::with(|cs| {
        let pend = SCHEDULER.borrow_ref_mut(cs).pend(id, timeout_ticks);
        match pend {
            Pend::Taken(message) => Ok(message),
            Pend::Blocked => {
                reschedule(cs);
                SCHEDULER.borrow_ref(cs).outcome()
            }
        }
    })
}

fn post(id: EventId, message: u64) -> Result<(), Overflow> {
    critical_section::with(|cs| {
        let posted = SCHEDULER.borrow_ref_mut(cs).post(id, message);
        reschedule(cs);
        posted
    })
}

/// Sleeps for `ticks`. Tasks only.
pub fn delay(ticks: u32) {
    critical_section::with(|cs| {
        SCHEDULER.borrow_ref_mut(cs).delay(ticks);
        reschedule(cs);
    });
}

/// A task's stack.
#[derive(Debug, Clone, Copy)]
pub struct Stack {
    pub start: usize,
    /// End address, exclusive; aligned to 16.
    pub end: usize,
}

/// Adds a task; it runs as soon as it is the most urgent.
///
/// # Safety
///
/// The stack must be memory with no other user for the lifetime of the task.
#[expect(unsafe_code, reason = "the caller owns the stack")]
pub unsafe fn spawn(priority: Priority, stack: Stack, entry: fn(usize), argument: usize) {
    critical_section::with(|cs| {
        SCHEDULER.borrow_ref_mut(cs).add_task(priority);
        // SAFETY: the caller promises that the stack has no other user.
        unsafe { arch::prepare(priority, stack.end, entry, argument) };
        // Before the start there is no current task.
        if SCHEDULER.borrow_ref(cs).current().is_some() {
            reschedule(cs);
        }
    });
}

/// Leaves the boot stack for the most urgent task; does not return.
pub fn start() -> ! {
    critical_section::with(|cs| {
        reschedule(cs);
    });
    panic!("there is no task to run");
}

/// Ends the running task.
pub fn exit() -> ! {
    critical_section::with(|cs| {
        SCHEDULER.borrow_ref_mut(cs).remove_current();
        reschedule(cs);
    });
    panic!("a task that has ended runs");
}

/// Advances time by one tick. Call from the timer interrupt.
pub fn tick() {
    critical_section::with(|cs| SCHEDULER.borrow_ref_mut(cs).tick());
}

/// True if no task waits with a limit of ticks, so that ticks may be skipped.
pub fn needs_no_tick() -> bool {
    critical_section::with(|cs| !SCHEDULER.borrow_ref(cs).has_timed())
}

/// Advances time by ticks that were skipped. Call it only while [`needs_no_tick`] holds.
pub fn skip_ticks(count: u64) {
    critical_section::with(|cs| SCHEDULER.borrow_ref_mut(cs).skip_ticks(count));
}

/// Enters an interrupt. Call with interrupts masked.
pub fn enter_interrupt() {
    critical_section::with(|cs| SCHEDULER.borrow_ref_mut(cs).enter_interrupt());
}

/// Leaves an interrupt; may run other tasks before it returns. Call with interrupts masked, after
/// ending the interrupt at the interrupt controller.
pub fn exit_interrupt() {
    critical_section::with(|cs| {
        let switch = SCHEDULER.borrow_ref_mut(cs).exit_interrupt();
        perform(cs, switch);
    });
}

/// Runs `work` without switching tasks. Interrupts are allowed; tasks that they or `work` wake
/// run afterwards.
pub fn locked<T>(work: impl FnOnce() -> T) -> T {
    critical_section::with(|cs| SCHEDULER.borrow_ref_mut(cs).lock());
    let result = work();
    critical_section::with(|cs| {
        let switch = SCHEDULER.borrow_ref_mut(cs).unlock();
        perform(cs, switch);
    });
    result
}

/// The running task; `None` before [`start`].
pub fn current() -> Option<Priority> {
    critical_section::with(|cs| SCHEDULER.borrow_ref(cs).current())
}

pub fn switch_count() -> u64 {
    critical_section::with(|cs| SCHEDULER.borrow_ref(cs).switch_count())
}

pub fn tick_count() -> u64 {
    critical_section::with(|cs| SCHEDULER.borrow_ref(cs).tick_count())
}

fn reschedule(cs: CriticalSection<'_>) {
    let switch = SCHEDULER.borrow_ref_mut(cs).schedule();
    perform(cs, switch);
}

/// Interrupts stay masked from the decision to the switch, and in the resumed task until it
/// leaves its own critical section.
fn perform(_cs: CriticalSection<'_>, switch: Option<Switch>) {
    if let Some(Switch { from, to }) = switch {
        arch::switch(from, to);
    }
}
