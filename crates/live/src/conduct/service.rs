//! A running service as the conductor sees it: the clock of the machine, its sources, and a plan's settings.

use host::text::chain;
use host::tune::SwitchedPlan;
use model::live::{GuardSample, LiveFigure};

use super::{Clock, Figures, Switch, index_of};
use crate::sources::{Connections, LiveError, Reading, Sources};

/// CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        sys::clock::monotonic_ns()
    }

    fn sleep_until(&mut self, at_ns: u64) {
        let left_ns = at_ns.saturating_sub(self.now_ns());
        std::thread::sleep(std::time::Duration::from_nanos(left_ns));
    }
}

/// Figures of a service, the primary one first.
#[derive(Debug)]
pub struct ServiceFigures {
    sources: Sources,
    figures: Vec<LiveFigure>,
    /// Place of each figure among those of the sources.
    places: Vec<usize>,
}

impl ServiceFigures {
    /// - `primary`: name of the figure that is put first; `None` for the sources' own order.
    ///
    /// Errors: the names of the figures, if none has that name.
    pub fn new(sources: Sources, primary: Option<&str>) -> Result<Self, Vec<String>> {
        let known = sources.figures();
        let mut places: Vec<usize> = (0..known.len()).collect();
        if let Some(name) = primary {
            let names = || known.iter().map(|figure| figure.name.clone()).collect::<Vec<_>>();
            let place = index_of(known, name).ok_or_else(names)?;
            places.retain(|other| *other != place);
            places.insert(0, place);
        }
        let figures = places.iter().map(|place| known[*place].clone()).collect();
        Ok(ServiceFigures { sources, figures, places })
    }

    pub fn sources(&mut self) -> &mut Sources {
        &mut self.sources
    }
}

impl Figures for ServiceFigures {
    type Reading = Reading;

    fn figures(&self) -> &[LiveFigure] {
        &self.figures
    }

    fn read(&mut self) -> Result<Reading, String> {
        self.sources.read().map_err(text)
    }

    fn guard_sample(&mut self, slow_limit_ns: Option<u64>) -> Result<GuardSample, String> {
        self.sources.guard_sample(slow_limit_ns).map_err(text)
    }

    fn value(&self, from: &Reading, to: &Reading, figure: usize) -> Option<f64> {
        to.since(from).value(*self.places.get(figure)?)
    }

    fn request_count(&self, from: &Reading, to: &Reading) -> u64 {
        to.since(from).request_count()
    }
}

fn text(error: LiveError) -> String {
    chain(&error)
}

/// Settings of a plan and, if they reach new connections alone, the connections that are closed at each switch.
#[derive(Debug)]
pub struct ServiceSwitch {
    pub plan: SwitchedPlan,
    /// `None` if connections stay open.
    pub closed: Option<Connections>,
}

impl Switch for ServiceSwitch {
    fn turn(&mut self, on: bool) -> Result<(), String> {
        if on == self.plan.is_on() {
            return Ok(());
        }
        self.plan.turn(on).map_err(|error| chain(&error))?;
        match &self.closed {
            Some(connections) => connections.close().map(drop).map_err(text),
            None => Ok(()),
        }
    }
}
