//! Settings of a run's interface: its interrupts and its receive stamps.

use host::irq_suspend::{IrqSuspend, IrqSuspendError};
use host::net::NetError;
use host::text::chain;
use house::{console, receive_stamps};
use io::{Local, Stamps};
use model::Measurement;
use probe::{Switch, not_suspended};
use remote::Failure;
use sys::hardware_stamps::HardwareStamps;

use super::args::EngineArgs;

/// Interrupts that are suspended or deferred, and hardware stamps that are on, until it is dropped.
pub(super) struct HeldInterface {
    suspension: Option<IrqSuspend>,
    _deferral: Option<IrqSuspend>,
    _stamping: Option<HardwareStamps>,
}

impl HeldInterface {
    /// Does what the options of a run ask for, and says so.
    pub(super) fn hold(args: &EngineArgs, local: &Local) -> Result<Self, Failure> {
        let stamps = args.stamps.unwrap_or(Stamps::Off);
        let stamping = receive_stamps::hold(stamps, local.ifindex, &local.ifname)?;
        if stamps == Stamps::Hardware && args.arm.has(Switch::Bypass) {
            driver_tells_stamps(local)?;
        }
        let suspension = args.arm.has(Switch::IrqSuspend).then(|| suspend(local)).transpose()?;
        let polls = args.arm.has(Switch::BusyPoll) && args.arm.has(Switch::Bypass);
        Ok(HeldInterface {
            suspension,
            _deferral: polls.then(|| defer(local)).flatten(),
            _stamping: stamping,
        })
    }

    /// Adds `irq-suspend` to the switches without effect if it had none.
    pub(super) fn check(&self, m: &mut Measurement) {
        let missed = self.suspension.as_ref().and_then(|held| not_suspended(m, held));
        m.not_effective.extend(missed);
    }
}

/// Errors: the driver has receive stamps, but not for XDP programs.
fn driver_tells_stamps(local: &Local) -> Result<(), Failure> {
    let hints = host::net::xdp_hints(local.ifindex)?;
    if hints.rx_stamp {
        return Ok(());
    }
    Err(Failure::Unsupported(format!(
        "the driver of {} tells its receive stamps to sockets alone (netdev xdp-rx-metadata-features: \
         {hints}); use --stamps software, or an --arm without bypass",
        local.ifname
    )))
}

fn suspend(local: &Local) -> Result<IrqSuspend, Failure> {
    let held = IrqSuspend::hold(local.ifindex, &local.ifname).map_err(|error| match error {
        IrqSuspendError::Net(NetError::Unsupported { .. }) | IrqSuspendError::NoNapi { .. } => {
            Failure::Unsupported(chain(&error))
        }
        error => Failure::from_chain(&error),
    })?;
    console::say(&format!(
        "interrupts of {} may be suspended until the end of this run",
        local.ifname
    ));
    Ok(held)
}

/// Defers interrupts while AF_XDP sockets poll the interface. Before Linux 6.13 they stay as they are, which is said.
fn defer(local: &Local) -> Option<IrqSuspend> {
    let ifname = &local.ifname;
    match IrqSuspend::defer(local.ifindex, ifname) {
        Ok(held) => {
            console::say(&format!("interrupts of {ifname} are deferred until the end of this run"));
            Some(held)
        }
        // A veth: there is nothing to poll either, which the report says.
        Err(IrqSuspendError::NoNapi { .. }) => None,
        Err(error) => {
            let why = chain(&error);
            console::say(&format!("interrupts of {ifname} are not deferred for busy-poll: {why}"));
            None
        }
    }
}
