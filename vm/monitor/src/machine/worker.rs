//! The device's thread: frames that arrive, doorbells, and what was put off.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use sys::clock::monotonic_ns;

use super::backend::Receiver;
use super::error::MonitorError;
use super::shared::Shared;
use super::switches::COMBINE_TICK_US;
use crate::bus::Reception;
use crate::lance::FRAME_BYTES_MAX;

/// Longest sleep: a guard, nothing depends on it.
const IDLE_TIMEOUT: Duration = Duration::from_millis(200);
/// How long the device goes on looking after the last frame; the guest counts on half of it.
const LINGER_NS: u64 = 2 * guest_pages::POLL_LINGER_US * 1000;
/// Frames received in one turn, after which doorbells, polling and timers have theirs: a flood from the
/// wire must not stop what the guest sends.
const RECEIVE_BUDGET: u64 = 64;
/// How often a device that looks at its ring without pause asks for frames that arrive, where
/// asking is a system call.
const RECEIVE_INTERVAL_NS: u64 = 50_000;

/// System calls, and time, since they were last entered in the device's books.
#[derive(Default)]
struct Calls {
    wait_count: u64,
    event_count: u64,
    receive_ns: u64,
    /// Frames received without a poll() before them.
    unpolled_count: u64,
}

/// Runs until the monitor stops.
pub(super) fn run(shared: &Shared, receiver: &mut dyn Receiver) -> Result<(), MonitorError> {
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    // A frame that the device did not want yet.
    let mut held = None;
    let mut calls = Calls::default();
    // The device polls its ring without pause, so it ignores doorbells.
    let mut spins = false;
    let (mut last_busy_ns, mut last_look_ns) = (0, 0);
    // This turn follows a poll(); the doorbell was rung, or may have been.
    let (mut has_polled, mut is_rung) = (false, false);
    while !shared.is_stopping() {
        let mut busy = false;
        if !spins && is_rung {
            busy |= ring_doorbell(shared, &mut calls)?;
        }
        let mut has_more = false;
        if !spins
            || receiver.looks().is_some()
            || monotonic_ns() - last_look_ns >= RECEIVE_INTERVAL_NS
        {
            let begin_ns = monotonic_ns();
            let count = receive(shared, receiver, &mut buffer, &mut held)?;
            busy |= count > 0;
            has_more = count == RECEIVE_BUDGET;
            calls.unpolled_count += count.saturating_sub(has_polled.into());
            last_look_ns = monotonic_ns();
            calls.receive_ns += last_look_ns - begin_ns;
        }
        let (waiting, polls, interval_ns) = {
            let mut device = shared.device();
            if shared.switches.guest_umem {
                busy |= device.exchange()?;
            }
            if shared.switches.own_polling {
                busy |= device.poll()?;
            }
            device.tick(monotonic_ns())?;
            device.receive_call_count = receiver.call_count();
            device.work.wait_call_count += std::mem::take(&mut calls.wait_count);
            device.work.event_call_count += std::mem::take(&mut calls.event_count);
            device.work.receive_ns += std::mem::take(&mut calls.receive_ns);
            device.work.received_unpolled_count += std::mem::take(&mut calls.unpolled_count);
            let nic = &device.nic;
            (device.is_waiting(), nic.polls(), nic.poll_interval_ns())
        };
        if shared.switches.own_polling && polls {
            let now_ns = monotonic_ns();
            if busy {
                last_busy_ns = now_ns;
            }
            spins = now_ns - last_busy_ns < LINGER_NS;
            if spins {
                has_polled = false;
                std::hint::spin_loop();
                continue;
            }
        } else {
            spins = false;
        }
        if has_more {
            (has_polled, is_rung) = (false, true);
            continue;
        }
        if shared.switches.own_polling && shared.device().rearm()? {
            // A frame that came since the last look brings no demand.
            (has_polled, is_rung) = (false, false);
            last_busy_ns = monotonic_ns();
            continue;
        }
        // This thread is not notified of interrupts that the vCPU's thread delays.
        let switches = &shared.switches;
        // Nor does the kernel notify it of frames that were sent in place.
        let puts_off = switches.send_combining || switches.int_moderation || switches.guest_umem;
        let timeout = if waiting || puts_off && !switches.tdmd_doorbell {
            Duration::from_micros(COMBINE_TICK_US)
        } else if let Some(interval_ns) = interval_ns {
            Duration::from_nanos(interval_ns)
        } else {
            IDLE_TIMEOUT
        };
        is_rung = wait(shared, receiver, held.is_none(), timeout, &mut calls)?;
        has_polled = true;
        if interval_ns.is_some() && !shared.switches.own_polling {
            // The chip's own timer.
            shared.device().poll()?;
        }
    }
    Ok(())
}

/// Sleeps until something happens. This is the baseline's select(): before every receive. Returns true
/// if the doorbell was rung.
fn wait(
    shared: &Shared,
    receiver: &dyn Receiver,
    hears: bool,
    timeout: Duration,
    calls: &mut Calls,
) -> Result<bool, MonitorError> {
    let mut fds: Vec<BorrowedFd<'_>> = vec![shared.wake.as_fd(), shared.doorbell.as_fd()];
    fds.extend(receiver.fd().filter(|_| hears));
    let ready = sys::poll::readable_set(&fds, timeout).map_err(MonitorError::Wait)?;
    calls.wait_count += 1;
    if ready & 0b01 != 0 {
        shared.wake.take();
        calls.event_count += 1;
    }
    Ok(ready & 0b10 != 0)
}

/// Serves the demands that came as doorbells.
fn ring_doorbell(shared: &Shared, calls: &mut Calls) -> Result<bool, MonitorError> {
    if !shared.switches.tdmd_doorbell {
        return Ok(false);
    }
    let count = shared.doorbell.take();
    calls.event_count += 1;
    if count == 0 {
        return Ok(false);
    }
    let mut device = shared.device();
    // One that was rung before the guest stopped the device means nothing.
    if device.nic.can_transmit() {
        device.work.doorbell_count += count;
        device.work.doorbell_wake_count += 1;
        device.demand(count, monotonic_ns())?;
    }
    Ok(true)
}

/// Gives the device what has arrived: one frame, or, when a look at shared memory is enough to
/// know of more, up to [`RECEIVE_BUDGET`]. Returns how many it took.
fn receive(
    shared: &Shared,
    receiver: &mut dyn Receiver,
    buffer: &mut [u8],
    held: &mut Option<usize>,
) -> Result<u64, MonitorError> {
    let mut count = 0;
    loop {
        let len = match held.take() {
            Some(len) => len,
            None => match receiver.receive(buffer).map_err(MonitorError::Receive)? {
                Some(len) => len,
                None => return Ok(count),
            },
        };
        let Some(frame) = buffer.get(..len) else { return Ok(count) };
        if shared.device().receive(frame)? == Reception::Off {
            *held = Some(len);
            return Ok(count);
        }
        count += 1;
        let more = shared.switches.shared_ring && receiver.looks() == Some(true);
        if !more || count == RECEIVE_BUDGET || shared.stopping.load(Ordering::Relaxed) {
            return Ok(count);
        }
    }
}
