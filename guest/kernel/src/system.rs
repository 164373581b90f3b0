//! The running kernel: what tasks and interrupts call.

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
    /// One that can be taken `count` times.
    pub fn new(count: u32) -> Self {
        Semaphore(critical_section::with(|cs| SCHEDULER.borrow_ref_mut(cs).add_semaphore(count)))
    }

    /// Takes it; waits for `timeout_ticks` at most, 0 for ever. Tasks only.
    pub fn pend(self, timeout_ticks: u32) -> Result<(), TimedOut> {
        pend(self.0, timeout_ticks).map(|_| ())
    }

    /// Takes it if that needs no wait.
    pub fn try_take(self) -> bool {
        critical_section::with(|cs| SCHEDULER.borrow_ref_mut(cs).try_take(self.0).is_some())
    }

    /// Gives it; from interrupts too.
    pub fn post(self) -> Result<(), Overflow> {
        post(self.0, 0)
    }
}

/// A queue of messages, 64 bits each.
#[derive(Debug, Clone, Copy)]
pub struct Queue(EventId);

impl Queue {
    /// An empty one.
    #[expect(clippy::new_without_default, reason = "it takes one of the kernel's few events")]
    pub fn new() -> Self {
        Queue(critical_section::with(|cs| SCHEDULER.borrow_ref_mut(cs).add_queue()))
    }

    /// Takes a message; waits for `timeout_ticks` at most, 0 for ever. Tasks only.
    pub fn pend(self, timeout_ticks: u32) -> Result<u64, TimedOut> {
        pend(self.0, timeout_ticks)
    }

    /// Sends a message; from interrupts too.
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

/// Sleeps for so many ticks. Tasks only.
pub fn delay(ticks: u32) {
    critical_section::with(|cs| {
        SCHEDULER.borrow_ref_mut(cs).delay(ticks);
        reschedule(cs);
    });
}

/// A stack for a task: its first byte, and the byte after its last.
#[derive(Debug, Clone, Copy)]
pub struct Stack {
    /// Lowest address.
    pub start: usize,
    /// Highest address, exclusive; aligned to 16.
    pub end: usize,
}

/// Adds a task, which runs as soon as it is the most urgent.
///
/// # Safety
///
/// The stack is memory that nobody else uses, for as long as the task lives.
#[expect(unsafe_code, reason = "only the caller knows who uses the stack")]
pub unsafe fn spawn(priority: Priority, stack: Stack, entry: fn(usize), argument: usize) {
    critical_section::with(|cs| {
        SCHEDULER.borrow_ref_mut(cs).add_task(priority);
        // SAFETY: the caller promises that the stack is ours alone.
        unsafe { arch::prepare(priority, stack.end, entry, argument) };
        // Before the start there is no task to come from.
        if SCHEDULER.borrow_ref(cs).current().is_some() {
            reschedule(cs);
        }
    });
}

/// Leaves the boot stack for the most urgent task, for good.
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

/// One tick; from the timer's interrupt.
pub fn tick() {
    critical_section::with(|cs| SCHEDULER.borrow_ref_mut(cs).tick());
}

/// An interrupt begins. With interrupts masked.
pub fn enter_interrupt() {
    critical_section::with(|cs| SCHEDULER.borrow_ref_mut(cs).enter_interrupt());
}

/// An interrupt ends; may run other tasks before it returns. With interrupts masked, and after
/// the interrupt controller was told.
pub fn exit_interrupt() {
    critical_section::with(|cs| {
        let switch = SCHEDULER.borrow_ref_mut(cs).exit_interrupt();
        perform(cs, switch);
    });
}

/// Runs `work` with no other task in between. Interrupts come; whoever they or `work` wake runs
/// afterwards.
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

/// Context switches since the start.
pub fn switch_count() -> u64 {
    critical_section::with(|cs| SCHEDULER.borrow_ref(cs).switch_count())
}

/// Ticks since the start.
pub fn tick_count() -> u64 {
    critical_section::with(|cs| SCHEDULER.borrow_ref(cs).tick_count())
}

fn reschedule(cs: CriticalSection<'_>) {
    let switch = SCHEDULER.borrow_ref_mut(cs).schedule();
    perform(cs, switch);
}

/// Interrupts are masked from the decision to the switch, and in the task that comes back until
/// it leaves its own critical section.
fn perform(_cs: CriticalSection<'_>, switch: Option<Switch>) {
    if let Some(Switch { from, to }) = switch {
        arch::switch(from, to);
    }
}
