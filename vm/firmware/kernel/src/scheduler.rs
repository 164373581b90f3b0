//! Ready set, wait lists, timeouts. A state machine: it decides, the caller switches.

use core::fmt;

use crate::bitmap::Bitmap;

/// Number of priorities, and therefore the maximum number of tasks.
pub const PRIORITIES: usize = 64;
/// Maximum number of semaphores and queues together.
pub const EVENTS_MAX: usize = 16;
/// Capacity of a queue.
pub const QUEUE_MESSAGES: usize = 16;

/// A task's priority and its identity: 0 the most urgent, 63 the least.
pub type Priority = u8;

/// The wait timed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOut;

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the wait timed out")
    }
}

impl core::error::Error for TimedOut {}

/// The counter of a semaphore or a queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow;

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the semaphore or queue is full")
    }
}

impl core::error::Error for Overflow {}

/// Identifies a semaphore or queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventId(u8);

/// A context switch to perform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    /// Task to leave; `None` before the first.
    pub from: Option<Priority>,
    /// Task to enter.
    pub to: Priority,
}

/// Result of [`Scheduler::pend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pend {
    /// No wait needed: the message, or 0 from a semaphore.
    Taken(u64),
    /// The task waits; [`Scheduler::outcome`] has the result once it runs again.
    Blocked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    None,
    Event(EventId),
}

#[derive(Debug, Clone, Copy)]
struct Task {
    exists: bool,
    wait: Wait,
    /// Ticks left of a delay or timeout; 0 for none.
    ticks_left: u32,
    outcome: Result<u64, TimedOut>,
}

impl Task {
    const NONE: Task = Task { exists: false, wait: Wait::None, ticks_left: 0, outcome: Ok(0) };
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Semaphore { count: u32 },
    Queue { ring: [u64; QUEUE_MESSAGES], head: usize, len: usize },
}

#[derive(Debug, Clone, Copy)]
struct Event {
    kind: Kind,
    waiters: Bitmap,
}

pub struct Scheduler {
    tasks: [Task; PRIORITIES],
    events: [Option<Event>; EVENTS_MAX],
    ready: Bitmap,
    timed: Bitmap,
    current: Option<Priority>,
    nesting: u32,
    locks: u32,
    tick_count: u64,
    switch_count: u64,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self::new()
    }
}

impl Scheduler {
    pub const fn new() -> Self {
        Scheduler {
            tasks: [Task::NONE; PRIORITIES],
            events: [None; EVENTS_MAX],
            ready: Bitmap::EMPTY,
            timed: Bitmap::EMPTY,
            current: None,
            nesting: 0,
            locks: 0,
            tick_count: 0,
            switch_count: 0,
        }
    }

    /// Adds a task, ready to run. Panics if the priority is taken or out of range: tasks are fixed
    /// at design time.
    pub fn add_task(&mut self, priority: Priority) {
        let task = &mut self.tasks[usize::from(priority)];
        assert!(!task.exists, "priority {priority} is taken");
        *task = Task { exists: true, ..Task::NONE };
        self.ready.insert(priority);
    }

    pub fn remove_current(&mut self) {
        if let Some(current) = self.current {
            self.tasks[usize::from(current)] = Task::NONE;
            self.ready.remove(current);
            self.timed.remove(current);
        }
    }

    /// Adds a semaphore. Panics if there are too many events.
    pub fn add_semaphore(&mut self, count: u32) -> EventId {
        self.add_event(Kind::Semaphore { count })
    }

    /// Adds a queue of [`QUEUE_MESSAGES`]. Panics if there are too many events.
    pub fn add_queue(&mut self) -> EventId {
        self.add_event(Kind::Queue { ring: [0; QUEUE_MESSAGES], head: 0, len: 0 })
    }

    fn add_event(&mut self, kind: Kind) -> EventId {
        let free = self.events.iter().position(Option::is_none).expect("too many events");
        self.events[free] = Some(Event { kind, waiters: Bitmap::EMPTY });
        EventId(free as u8)
    }

    pub fn current(&self) -> Option<Priority> {
        self.current
    }

    pub fn tick_count(&self) -> u64 {
        self.tick_count
    }

    pub fn switch_count(&self) -> u64 {
        self.switch_count
    }

    /// Interrupt nesting depth.
    pub fn nesting(&self) -> u32 {
        self.nesting
    }

    /// Takes from a semaphore or queue, or makes the running task wait for it.
    ///
    /// - `timeout_ticks`: 0 waits without limit.
    /// - Panics in an interrupt, where waiting is impossible.
    pub fn pend(&mut self, id: EventId, timeout_ticks: u32) -> Pend {
        assert!(self.nesting == 0, "an interrupt cannot wait");
        if let Some(message) = self.try_take(id) {
            return Pend::Taken(message);
        }
        let current = self.current.expect("only a task can wait");
        self.event(id).waiters.insert(current);
        let task = &mut self.tasks[usize::from(current)];
        task.wait = Wait::Event(id);
        task.ticks_left = timeout_ticks;
        task.outcome = Err(TimedOut);
        self.ready.remove(current);
        if timeout_ticks > 0 {
            self.timed.insert(current);
        }
        Pend::Blocked
    }

    /// Takes without waiting; also allowed in interrupts.
    pub fn try_take(&mut self, id: EventId) -> Option<u64> {
        match &mut self.event(id).kind {
            Kind::Semaphore { count } => {
                *count = count.checked_sub(1)?;
                Some(0)
            }
            Kind::Queue { ring, head, len } => {
                *len = len.checked_sub(1)?;
                let message = ring[*head];
                *head = (*head + 1) % QUEUE_MESSAGES;
                Some(message)
            }
        }
    }

    /// Posts to a semaphore (`message` is ignored) or a queue. The most urgent waiting task gets it
    /// and becomes ready.
    pub fn post(&mut self, id: EventId, message: u64) -> Result<(), Overflow> {
        let event = self.event(id);
        if let Some(waiter) = event.waiters.first() {
            event.waiters.remove(waiter);
            self.wake(waiter, Ok(message));
            return Ok(());
        }
        match &mut event.kind {
            Kind::Semaphore { count } => *count = count.checked_add(1).ok_or(Overflow)?,
            Kind::Queue { ring, head, len } => {
                if *len == QUEUE_MESSAGES {
                    return Err(Overflow);
                }
                ring[(*head + *len) % QUEUE_MESSAGES] = message;
                *len += 1;
            }
        }
        Ok(())
    }

    /// Result of the running task's last wait.
    pub fn outcome(&self) -> Result<u64, TimedOut> {
        self.current.map_or(Ok(0), |current| self.tasks[usize::from(current)].outcome)
    }

    /// Delays the running task by `ticks`; 0 does not wait.
    pub fn delay(&mut self, ticks: u32) {
        assert!(self.nesting == 0, "an interrupt cannot wait");
        let Some(current) = self.current else { return };
        if ticks > 0 {
            self.tasks[usize::from(current)].ticks_left = ticks;
            self.ready.remove(current);
            self.timed.insert(current);
        }
    }

    /// Advances time by one tick: delays and timeouts count down.
    pub fn tick(&mut self) {
        self.tick_count += 1;
        for priority in self.timed.iter() {
            let task = &mut self.tasks[usize::from(priority)];
            task.ticks_left -= 1;
            if task.ticks_left > 0 {
                continue;
            }
            let outcome = match task.wait {
                Wait::None => Ok(0),
                Wait::Event(id) => {
                    self.event(id).waiters.remove(priority);
                    Err(TimedOut)
                }
            };
            self.wake(priority, outcome);
        }
    }

    /// True if a task waits with a limit of ticks.
    pub fn has_timed(&self) -> bool {
        self.timed.first().is_some()
    }

    /// Advances time by ticks that did not come, because the machine slept.
    ///
    /// Panics if a task waits with a limit: it would wait longer.
    pub fn skip_ticks(&mut self, count: u64) {
        assert!(!self.has_timed(), "a task waits for a tick");
        self.tick_count += count;
    }

    /// Enters an interrupt.
    pub fn enter_interrupt(&mut self) {
        self.nesting += 1;
    }

    /// Leaves an interrupt. Returns a switch if the outermost ends in another task.
    pub fn exit_interrupt(&mut self) -> Option<Switch> {
        self.nesting = self.nesting.checked_sub(1).expect("no interrupt began");
        self.schedule()
    }

    /// Disables task switches. Nests.
    pub fn lock(&mut self) {
        self.locks += 1;
    }

    /// Undoes one [`lock`](Self::lock).
    pub fn unlock(&mut self) -> Option<Switch> {
        self.locks = self.locks.checked_sub(1).expect("the scheduler is not locked");
        self.schedule()
    }

    /// Returns the switch to perform, if another task must run.
    pub fn schedule(&mut self) -> Option<Switch> {
        if self.nesting > 0 || (self.locks > 0 && self.current_is_ready()) {
            return None;
        }
        let to = self.ready.first()?;
        if self.current == Some(to) {
            return None;
        }
        let from = self.current.replace(to);
        self.switch_count += 1;
        Some(Switch { from, to })
    }

    fn current_is_ready(&self) -> bool {
        self.current.is_some_and(|current| self.ready.contains(current))
    }

    fn wake(&mut self, priority: Priority, outcome: Result<u64, TimedOut>) {
        let task = &mut self.tasks[usize::from(priority)];
        task.wait = Wait::None;
        task.ticks_left = 0;
        task.outcome = outcome;
        self.timed.remove(priority);
        self.ready.insert(priority);
    }

    fn event(&mut self, id: EventId) -> &mut Event {
        self.events[usize::from(id.0)].as_mut().expect("events are never removed")
    }
}

#[cfg(test)]
mod tests;
