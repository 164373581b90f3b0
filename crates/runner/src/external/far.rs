//! The far end of a run between two hosts.

use std::net::IpAddr;

use model::{Arm, Load, Measurement, PathError};
use remote::RemoteError;
use remote::path::{ENDPOINT_BYTES_MAX, FarPoint, PathAnswer, PathCall};

use super::program::PathProgram;
use super::{ANSWER_TIMEOUT, unexpected};

/// The program of a path at the far end, ready for trials.
#[derive(Debug)]
pub(super) struct FarTrials {
    program: PathProgram,
    /// As the near end reaches it.
    pub(super) point: FarPoint,
}

impl FarTrials {
    /// - `address`: of the far end, for the load.
    pub(super) fn open(
        mut program: PathProgram,
        load: &Load,
        address: IpAddr,
    ) -> Result<Self, PathError> {
        let call = PathCall::Listen { load: load.into(), address };
        let endpoint = match program.ask(&call, ANSWER_TIMEOUT).map_err(PathError::part)? {
            PathAnswer::Listening { endpoint } => endpoint,
            other => return Err(unexpected(&program, &other)),
        };
        if endpoint.to_string().len() > ENDPOINT_BYTES_MAX {
            let why = format!("its endpoint is longer than {ENDPOINT_BYTES_MAX} bytes");
            return Err(PathError::part(program.broke_rule(why)));
        }
        Ok(FarTrials { program, point: FarPoint { address, endpoint } })
    }

    /// Begins a trial; the inner error is the program's own.
    pub(super) fn begin(&mut self, arm: &Arm) -> Result<Result<(), PathError>, RemoteError> {
        match self.program.ask(&PathCall::Begin { arm: arm.switches.names() }, ANSWER_TIMEOUT)? {
            PathAnswer::Ready {} => Ok(Ok(())),
            failed @ PathAnswer::Failed(_) => Ok(Err(unexpected(&self.program, &failed))),
            other => Err(self.program.unexpected(&other)),
        }
    }

    /// Ends a trial; the inner error is the program's own.
    pub(super) fn end(&mut self, arm: &Arm) -> Result<Result<Measurement, PathError>, RemoteError> {
        let answer = self.program.ask(&PathCall::End {}, ANSWER_TIMEOUT)?;
        match self.program.measurement(answer, "far", arm)? {
            Ok(measured) => Ok(Ok(measured)),
            Err(failed @ PathAnswer::Failed(_)) => Ok(Err(unexpected(&self.program, &failed))),
            Err(other) => Err(self.program.unexpected(&other)),
        }
    }

    /// Takes it down; its end is that of the program whatever it answers.
    pub(super) fn close(mut self) {
        let _ = self.program.ask(&PathCall::Close {}, ANSWER_TIMEOUT);
    }
}

/// Adds what the far end counted to the measurement of the near end.
pub(super) fn add(near: &mut Measurement, far: Measurement) {
    for (direction, delivery) in far.deliveries {
        *near.deliveries.entry(direction).or_default() += delivery;
    }
    for (name, count) in far.counters {
        let entered = near.counters.entry(name).or_insert(0);
        *entered = entered.saturating_add(count);
    }
    near.costs.extend(far.costs);
    near.throughput = near.throughput.or(far.throughput);
    near.packet_count = near.packet_count.or(far.packet_count);
    // Of names that both have, the near end's count.
    for (name, segment) in far.segments {
        near.segments.entry(name).or_insert(segment);
    }
    for (name, value) in far.figures {
        near.figures.entry(name).or_insert(value);
    }
    for (name, shape) in far.shapes {
        near.shapes.entry(name).or_insert(shape);
    }
    for (name, mode) in far.mode {
        near.mode.entry(name).or_insert(mode);
    }
    near.refused.extend(far.refused);
    near.not_effective.extend(far.not_effective);
}

#[cfg(test)]
mod tests {
    use model::Delivery;

    use super::*;

    fn measured(end: &str, sent_count: u64, received_count: u64) -> Measurement {
        let delivery = Delivery { sent_count, received_count, ..Delivery::default() };
        Measurement {
            deliveries: [("forward".to_owned(), delivery)].into(),
            costs: [(end.to_owned(), model::Cost { user_ns: 7, ..Default::default() })].into(),
            figures: [(format!("{end}_us"), 1.0), ("x_us".to_owned(), sent_count as f64)].into(),
            ..Measurement::default()
        }
    }

    #[test]
    fn counts_of_both_ends_are_added() {
        let mut near = measured("near", 100, 0);
        add(&mut near, measured("far", 0, 98));
        assert_eq!((near.lost_count(), near.cpu_ns()), (2, 14));
        assert_eq!((near.figures["x_us"], near.figures.len()), (100.0, 3));
    }
}
