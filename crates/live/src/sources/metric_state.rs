//! A figure of the service's own, with its state.

use super::error::{LiveError, SourceFault};
use super::log::{LogFollower, LogReading};
use super::metric::{MetricSource, MetricSpec, Statistic};
use super::prometheus::{self, PrometheusReading, Scrape};
use super::{LOG_TIME_MAX, command};

/// A figure of the service's own, with its state.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) spec: MetricSpec,
    pub(super) source: MetricState,
    /// Reason why the last reading has none.
    pub(super) problem: Option<LiveError>,
}

#[derive(Debug)]
pub(super) enum MetricState {
    Prometheus(PrometheusReading),
    Log(LogFollower),
    Command { sum: f64, count: u64 },
}

/// Cumulative state of a metric; `None` if it could not be read.
#[derive(Debug, Clone)]
pub(super) enum MetricReading {
    Prometheus(PrometheusReading),
    Log(LogReading),
    Command { sum: f64, count: u64 },
    None,
}

impl Metric {
    pub(super) fn open(spec: &MetricSpec) -> Result<Metric, LiveError> {
        let source = match &spec.source {
            MetricSource::Prometheus { .. } => {
                MetricState::Prometheus(PrometheusReading::default())
            }
            MetricSource::Log { path, regex } => {
                let log = LogFollower::open(path, regex).map_err(|why| LiveError::Log {
                    name: spec.name.clone(),
                    path: path.clone(),
                    why: why.to_string(),
                })?;
                MetricState::Log(log)
            }
            MetricSource::Command { .. } => MetricState::Command { sum: 0.0, count: 0 },
        };
        let mut metric = Metric { spec: spec.clone(), source, problem: None };
        metric.read();
        match metric.problem.take() {
            Some(why) => Err(why),
            None => Ok(metric),
        }
    }

    pub(super) fn read(&mut self) -> MetricReading {
        match self.try_read() {
            Ok(reading) => {
                self.problem = None;
                reading
            }
            Err(why) => {
                self.problem = Some(why);
                MetricReading::None
            }
        }
    }

    fn try_read(&mut self) -> Result<MetricReading, LiveError> {
        let name = self.spec.name.clone();
        match (&self.spec.source, &mut self.source) {
            (MetricSource::Prometheus { url, selector }, MetricState::Prometheus(state)) => {
                let share = match self.spec.statistic {
                    Statistic::Quantile(share) => Some(share),
                    _ => None,
                };
                let page =
                    prometheus::fetch(url).and_then(|page| Scrape::parse(&page, selector, share));
                let page = page.map_err(|SourceFault(why)| LiveError::Prometheus {
                    name,
                    url: url.to_string(),
                    why,
                })?;
                state.advance(page);
                Ok(MetricReading::Prometheus(state.clone()))
            }
            (MetricSource::Log { path, .. }, MetricState::Log(log)) => {
                let polled = log.poll(LOG_TIME_MAX);
                polled.map_err(|why| LiveError::Log {
                    name,
                    path: path.clone(),
                    why: why.to_string(),
                })?;
                Ok(MetricReading::Log(log.reading()))
            }
            (MetricSource::Command { command }, MetricState::Command { sum, count }) => {
                let value = command::run(command);
                let command = command.clone();
                *sum +=
                    value.map_err(|SourceFault(why)| LiveError::Command { name, command, why })?;
                *count += 1;
                Ok(MetricReading::Command { sum: *sum, count: *count })
            }
            _ => Ok(MetricReading::None),
        }
    }

    /// True if the metric's count is that of requests, as far as its name tells.
    pub(super) fn counts_requests(&self) -> bool {
        let MetricSource::Prometheus { selector, .. } = &self.spec.source else { return false };
        match self.spec.statistic {
            Statistic::Quantile(_) | Statistic::Mean => true,
            Statistic::Rate => selector.metric.contains("request"),
            Statistic::Value => false,
        }
    }
}
