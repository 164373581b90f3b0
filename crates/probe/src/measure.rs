//! Trials at changing rates, for a curve of latency against load.

use model::{Arm, CARRIED_SHARE_MIN, Load, Machine, Measurement, PathError};

use crate::path::{ProbeLoad, check_size};
use crate::remote::RemoteSession;
use crate::session::{LabSession, Scheduled};

/// A lab, or a far end, under load `paced` at rates that the caller chooses trial by trial.
pub struct RateSession(Box<dyn Scheduled>);

impl RateSession {
    /// Opens the lab of the path, or the far end of the load, whose kind is `paced`.
    ///
    /// An arm gets 2 % more time than that of the load to send it, so that one that carries a rate barely is
    /// not one that cannot send the last datagrams.
    pub fn open(load: &Load) -> Result<Self, PathError> {
        let load = Load { trial: load.trial.div_f64(CARRIED_SHARE_MIN), ..load.clone() };
        check_size(&load, ProbeLoad::Paced)?;
        Ok(RateSession(match &load.far {
            Some(two) => Box::new(RemoteSession::open(&load, ProbeLoad::Paced, two)?),
            None => Box::new(LabSession::open(&load, ProbeLoad::Paced)?),
        }))
    }

    /// Runs one trial.
    ///
    /// - `count`: datagrams that the schedule has; fewer are sent by an arm that falls behind.
    pub fn trial(
        &mut self,
        arm: &Arm,
        rate_pps: u64,
        count: u64,
    ) -> Result<Measurement, PathError> {
        self.0.offer(rate_pps, count);
        self.0.trial(arm)
    }

    /// Interface under test, for the record.
    pub fn nic(&self) -> String {
        self.0.nic()
    }

    /// Machine of the far end; `None` if it is this one.
    pub fn far_machine(&self) -> Option<Machine> {
        self.0.far_machine()
    }
}
