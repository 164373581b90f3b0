//! The device's thread: frames that arrive, doorbells, and what was put off.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use io::clock::monotonic_ns;

use super::backend::Receiver;
use super::monitor::{MonitorError, Shared};
use super::switches::COMBINE_TICK_US;
use crate::vmnic::lance::{FRAME_BYTES_MAX, Received};

/// Longest sleep: a guard, nothing depends on it.
const IDLE: Duration = Duration::from_millis(200);
/// How long the device goes on looking after the last frame; the guest counts on half of it.
const LINGER_NS: u64 = 2 * wire::nettest::POLL_LINGER_US * 1000;
/// How often a device that looks at its ring without pause asks for frames that arrive, where
/// asking is a system call.
const LOOK_NS: u64 = 50_000;

/// System calls, and time, since they were last entered in the device's books.
#[derive(Default)]
struct Calls {
    wait_count: u64,
    event_count: u64,
    receive_ns: u64,
}

/// Runs until the monitor stops.
pub(super) fn run(shared: &Shared, receiver: &mut dyn Receiver) -> Result<(), MonitorError> {
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    // A frame that the device did not want yet.
    let mut held = None;
    let mut calls = Calls::default();
    // The device looks at its ring without pause: a doorbell tells it nothing.
    let mut spins = false;
    let (mut last_busy_ns, mut last_look_ns) = (0, 0);
    while !shared.is_stopping() {
        let mut busy = false;
        if !spins {
            busy |= ring_doorbell(shared, &mut calls)?;
        }
        if !spins || receiver.looks().is_some() || monotonic_ns() - last_look_ns >= LOOK_NS {
            let begin_ns = monotonic_ns();
            busy |= receive(shared, receiver, &mut buffer, &mut held)?;
            last_look_ns = monotonic_ns();
            calls.receive_ns += last_look_ns - begin_ns;
        }
        let (waiting, polls, interval_ns) = {
            let mut device = shared.device();
            if shared.switches.own_polling {
                busy |= device.poll()?;
            }
            device.tick(monotonic_ns())?;
            device.receive_call_count = receiver.call_count();
            device.work.wait_call_count += std::mem::take(&mut calls.wait_count);
            device.work.event_call_count += std::mem::take(&mut calls.event_count);
            device.work.receive_ns += std::mem::take(&mut calls.receive_ns);
            let lance = &device.lance;
            (device.is_waiting(), lance.polls(), lance.poll_interval_ns())
        };
        if shared.switches.own_polling && polls {
            let now_ns = monotonic_ns();
            if busy {
                last_busy_ns = now_ns;
            }
            spins = now_ns - last_busy_ns < LINGER_NS;
            if spins {
                std::hint::spin_loop();
                continue;
            }
        } else {
            spins = false;
        }
        // What the processor's thread puts off, this one is not told of.
        let switches = &shared.switches;
        let puts_off = switches.send_combining || switches.int_moderation;
        let timeout = if waiting || puts_off && !switches.tdmd_doorbell {
            Duration::from_micros(COMBINE_TICK_US)
        } else if polls {
            Duration::from_nanos(interval_ns)
        } else {
            IDLE
        };
        wait(shared, receiver, held.is_none(), timeout)?;
        calls.wait_count += 1;
        calls.event_count += 1;
        if polls && !shared.switches.own_polling {
            // The chip's own timer.
            shared.device().poll()?;
        }
    }
    Ok(())
}

/// Sleeps until something happens. This is the baseline's select(): before every receive.
fn wait(
    shared: &Shared,
    receiver: &dyn Receiver,
    hears: bool,
    timeout: Duration,
) -> Result<(), MonitorError> {
    let mut fds: Vec<BorrowedFd<'_>> = vec![shared.wake.as_fd(), shared.doorbell.as_fd()];
    fds.extend(receiver.fd().filter(|_| hears));
    io::poll::readable(&fds, timeout).map_err(MonitorError::Wait)?;
    shared.wake.take();
    Ok(())
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
    if device.lance.can_transmit() {
        device.work.doorbell_count += count;
        device.work.doorbell_wake_count += 1;
        device.demand(count, monotonic_ns())?;
    }
    Ok(true)
}

/// Gives the device what has arrived: one frame, or, when a look at shared memory is enough to
/// know of more, all of them.
fn receive(
    shared: &Shared,
    receiver: &mut dyn Receiver,
    buffer: &mut [u8],
    held: &mut Option<usize>,
) -> Result<bool, MonitorError> {
    let mut busy = false;
    loop {
        let len = match held.take() {
            Some(len) => len,
            None => match receiver.receive(buffer).map_err(MonitorError::Receive)? {
                Some(len) => len,
                None => return Ok(busy),
            },
        };
        let Some(frame) = buffer.get(..len) else { return Ok(busy) };
        if shared.device().receive(frame)? == Received::Off {
            *held = Some(len);
            return Ok(busy);
        }
        busy = true;
        let more = shared.switches.shared_ring && receiver.looks() == Some(true);
        if !more || shared.stopping.load(Ordering::Relaxed) {
            return Ok(busy);
        }
    }
}
