//! Starts under traffic: pings arrive from the first moment, and every start must answer.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use model::PathError;

use crate::check::{CheckedArm, CheckedVm};
use crate::echo::Pace;
use crate::machine::Machine;

/// Interval of pings until the first answer.
const INTERVAL: Duration = Duration::from_millis(5);
/// Pings after it: a guest that answers what has queued up, and then no more, has not started.
const AFTER_INTERVAL: Duration = Duration::from_millis(10);
const AFTER_DURATION: Duration = Duration::from_millis(95);

/// A machine that has started under traffic.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) machine: Machine,
    /// From exec to the first answer.
    pub(crate) first_answer: Duration,
}

/// Starts a machine under traffic.
///
/// Errors: no answer within the file's time limit, or none after the first ones, with the last lines of its console.
pub(crate) fn start(
    vm: &CheckedVm,
    arm: &CheckedArm,
    payload_bytes: usize,
    stop: &AtomicBool,
) -> Result<Started, PathError> {
    let machine = Machine::start(vm, arm, true)?;
    let mut pinger = machine.pinger(vm, payload_bytes)?;
    let first_answer = machine.first_answer(&mut pinger, INTERVAL, vm.ready_within, stop)?;
    let after = pinger.run(Pace::Every(AFTER_INTERVAL), AFTER_DURATION, stop)?;
    if !after.is_last_answered {
        let (answered, sent) = (after.answered_count, after.sent_count);
        let why = format!("its guest answered at first, and then {answered} of {sent} pings");
        return Err(machine.failed(&why));
    }
    Ok(Started { machine, first_answer })
}
