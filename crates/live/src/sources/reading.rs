//! Cumulative counts at one moment, and the figures between two of them.

use std::sync::Arc;

use sys::bpf::{ServiceSpan, ServiceTimes, ServiceTotals, service_bin_ns};

use super::bins;
use super::metric::Statistic;
use super::metric_state::MetricReading;
use super::network::{self, Queues};

/// Place of a judged figure in a reading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    CpuPerRequest,
    Latency(f64),
    Errors,
    Metric(usize),
}

/// Cumulative counts of all sources at one moment.
#[derive(Debug, Clone)]
pub struct Reading {
    pub(super) at_ns: u64,
    pub(super) kinds: Arc<[Kind]>,
    pub(super) statistics: Arc<[Statistic]>,
    pub(super) service: Option<ServiceReading>,
    pub(super) cpu_ns: Option<u64>,
    pub(super) interrupt_ticks: Option<(u64, u64)>,
    pub(super) counters: Vec<Option<u64>>,
    pub(super) queues: Option<Queues>,
    pub(super) metrics: Vec<MetricReading>,
    /// The first metric that counts requests.
    pub(super) request_metric: Option<usize>,
}

#[derive(Debug, Clone)]
pub(super) struct ServiceReading {
    pub(super) totals: ServiceTotals,
    pub(super) first_send: ServiceTimes,
    pub(super) last_acknowledgement: ServiceTimes,
}

/// Figures of the time between two readings.
#[derive(Debug)]
pub struct Seen<'a> {
    now: &'a Reading,
    earlier: &'a Reading,
}

/// A figure that is shown and not judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    pub name: &'static str,
    pub unit: &'static str,
    pub value: f64,
}

impl Reading {
    /// Time of the reading, CLOCK_MONOTONIC.
    pub fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// Figures of the time since an earlier reading of the same sources.
    pub fn since<'a>(&'a self, earlier: &'a Reading) -> Seen<'a> {
        Seen { now: self, earlier }
    }
}

impl Seen<'_> {
    /// Value of a judged figure, by its place in [`super::Sources::figures`]; `None` if nothing was counted.
    ///
    /// Figures of [`model::live::LiveScale::Count`] are events per request.
    pub fn value(&self, figure: usize) -> Option<f64> {
        match *self.now.kinds.get(figure)? {
            Kind::CpuPerRequest => {
                let cpu_ns = self.now.cpu_ns?.checked_sub(self.earlier.cpu_ns?)?;
                let requests = self.request_count();
                (requests > 0).then(|| cpu_ns as f64 / requests as f64 / 1000.0)
            }
            Kind::Latency(share) => self.latency_us(ServiceSpan::FirstSend, share),
            Kind::Errors => {
                let totals = self.totals()?;
                let all = totals.answered_count + totals.refused_count;
                (all > 0).then(|| totals.refused_count as f64 / all as f64)
            }
            Kind::Metric(number) => {
                let value = self.metric(number)?;
                (value.is_finite() && value >= 0.0).then_some(value)
            }
        }
    }

    fn metric(&self, number: usize) -> Option<f64> {
        let statistic = *self.now.statistics.get(number)?;
        match (self.now.metrics.get(number)?, self.earlier.metrics.get(number)?) {
            (MetricReading::Prometheus(now), MetricReading::Prometheus(earlier)) => {
                now.since(earlier, statistic)
            }
            (MetricReading::Log(now), MetricReading::Log(earlier)) => now.since(earlier, statistic),
            (
                MetricReading::Command { sum, count },
                MetricReading::Command { sum: before, count: earlier },
            ) => {
                let count = count.checked_sub(*earlier).filter(|count| *count > 0)?;
                Some((sum - before) / count as f64)
            }
            _ => None,
        }
    }

    /// Answered requests: by the kernel, or by the first metric that counts them.
    pub fn request_count(&self) -> u64 {
        if let Some(totals) = self.totals() {
            return totals.answered_count;
        }
        self.requests_of_a_metric().unwrap_or(0)
    }

    fn requests_of_a_metric(&self) -> Option<u64> {
        let number = self.now.request_metric?;
        match (self.now.metrics.get(number)?, self.earlier.metrics.get(number)?) {
            (MetricReading::Prometheus(now), MetricReading::Prometheus(earlier)) => {
                now.count_since(earlier)
            }
            _ => None,
        }
    }

    /// Time between the readings.
    pub fn window_ns(&self) -> u64 {
        self.now.at_ns.saturating_sub(self.earlier.at_ns)
    }

    /// Quantile of a span, microseconds; `None` without BPF or requests.
    pub fn latency_us(&self, span: ServiceSpan, share: f64) -> Option<f64> {
        let bins = self.times(span)?;
        let bins = bins.iter().enumerate().map(|(bin, count)| {
            let (low, high) = (service_bin_ns(bin), service_bin_ns(bin + 1));
            (low as f64, high as f64, f64::from(*count))
        });
        bins::quantile(bins, share).map(|ns| ns / 1000.0)
    }

    fn times(&self, span: ServiceSpan) -> Option<Vec<u32>> {
        let (now, earlier) = (self.now.service.as_ref()?, self.earlier.service.as_ref()?);
        Some(match span {
            ServiceSpan::FirstSend => now.first_send.bins_since(&earlier.first_send),
            ServiceSpan::LastAcknowledgement => {
                now.last_acknowledgement.bins_since(&earlier.last_acknowledgement)
            }
        })
    }

    /// Counts of the kernel's programs between the readings; `None` without BPF.
    pub fn totals(&self) -> Option<ServiceTotals> {
        let (now, earlier) = (self.now.service.as_ref()?, self.earlier.service.as_ref()?);
        Some(now.totals.since(&earlier.totals))
    }

    /// Ratio of the edges of the bucket in which a quantile of a Prometheus histogram lies: smaller changes are
    /// interpolated. `None` for any other figure.
    pub fn bucket_ratio(&self, figure: usize) -> Option<f64> {
        let Kind::Metric(number) = *self.now.kinds.get(figure)? else { return None };
        let MetricReading::Prometheus(now) = self.now.metrics.get(number)? else { return None };
        match self.now.statistics.get(number)? {
            Statistic::Quantile(_) => now.bucket_ratio(self.value(figure)?),
            _ => None,
        }
    }

    /// Figures that are shown and not judged: acknowledgement, retransmissions, queues, counters of the namespace, and the
    /// machine's time in interrupts.
    pub fn beside(&self) -> Vec<Beside> {
        let mut found = Vec::new();
        for (name, share) in
            [("p50 to the last acknowledgement", 0.5), ("p99 to the last acknowledgement", 0.99)]
        {
            found.push((name, "us", self.latency_us(ServiceSpan::LastAcknowledgement, share)));
        }
        if let Some(totals) = self.totals() {
            found.push((
                "segments of the service sent again",
                "",
                Some(totals.resent_count as f64),
            ));
            found.push(("requests given up by clients", "", Some(totals.abandoned_count as f64)));
        }
        if let Some(queues) = self.now.queues {
            found.push(("receive queues at the end", "bytes", Some(queues.receive_bytes as f64)));
            found.push(("send queues at the end", "bytes", Some(queues.send_bytes as f64)));
        }
        for (name, (now, earlier)) in
            network::names().zip(self.now.counters.iter().zip(&self.earlier.counters))
        {
            found.push((
                name,
                "",
                now.zip(*earlier).map(|(now, earlier)| now.saturating_sub(earlier) as f64),
            ));
        }
        let ticks = self.now.interrupt_ticks.zip(self.earlier.interrupt_ticks);
        let share = ticks.and_then(|((now, all), (before, all_before))| {
            let all = all.checked_sub(all_before).filter(|all| *all > 0)?;
            Some(now.saturating_sub(before) as f64 / all as f64)
        });
        found.push(("share of all CPUs in interrupts", "", share));
        found
            .into_iter()
            .filter_map(|(name, unit, value)| Some(Beside { name, unit, value: value? }))
            .collect()
    }
}
