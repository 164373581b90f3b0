//! Keepalives of the tunnels: sent at an interval, judged, and shown.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use report::metrics::Metrics;
use serde_json::{Value, json};

use super::{Operator, RunError};
use crate::config::{Config, KeepaliveConfig};
use crate::forwarder::Forwarder;
use crate::keepalive::{Keepalive, KeepaliveCounts};
use crate::spec::Tunnel;

/// State of a tunnel by its keepalives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Not known yet.
    Unknown,
    /// The far end answers.
    Up,
    /// It answered, and does no longer.
    Down,
    /// It has never answered: it is down, or of a kind that does not answer.
    Silent,
}

impl Reach {
    /// Word for it in JSON and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Reach::Unknown => "unknown",
            Reach::Up => "up",
            Reach::Down => "down",
            Reach::Silent => "silent",
        }
    }
}

/// Keepalives of a tunnel as they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepaliveLive {
    /// State of the tunnel.
    pub reach: Reach,
    /// Counters, of which the last request may be on its way.
    pub counts: KeepaliveCounts,
    /// Requests without an answer, those on their way left out.
    pub lost_count: u64,
}

type ByTunnel = [(String, KeepaliveLive)];

/// Keepalives of all tunnels.
#[derive(Debug, Default)]
pub(super) struct Prober {
    by_name: BTreeMap<String, Probed>,
}

#[derive(Debug, Clone)]
struct Probed {
    config: KeepaliveConfig,
    tunnel: Tunnel,
    keepalive: Arc<Keepalive>,
    due: Instant,
    reach: Reach,
    lost_count: u64,
}

impl Prober {
    /// Keepalives of a configuration; tunnels that are in this prober keep their counters.
    ///
    /// Errors: the kernel gives no random bytes.
    pub(super) fn renewed(&self, config: &Config) -> Result<Prober, RunError> {
        let mut by_name = BTreeMap::new();
        for tunnel in &config.tunnels {
            let Some(config) = tunnel.keepalive else { continue };
            let kept = self.by_name.get(&tunnel.name);
            let kept = kept.filter(|it| (it.config, it.tunnel) == (config, tunnel.tunnel));
            let probed = match kept {
                Some(kept) => kept.clone(),
                None => Probed {
                    config,
                    tunnel: tunnel.tunnel,
                    keepalive: Arc::new(Keepalive::new(session()?)),
                    due: Instant::now(),
                    reach: Reach::Unknown,
                    lost_count: 0,
                },
            };
            by_name.insert(tunnel.name.clone(), probed);
        }
        Ok(Prober { by_name })
    }

    /// Keepalives by tunnel, for the workers.
    pub(super) fn keepalives(&self, config: &Config) -> Vec<Option<Arc<Keepalive>>> {
        let probed = config.tunnels.iter().map(|tunnel| self.by_name.get(&tunnel.name));
        probed.map(|it| it.map(|it| it.keepalive.clone())).collect()
    }

    /// Sends the requests that are due, and reports tunnels whose state has changed.
    pub(super) fn maintain(
        &mut self,
        config: &Config,
        forwarder: &Forwarder<'_>,
        operator: &mut impl Operator,
    ) {
        let now = Instant::now();
        for (at, tunnel) in config.tunnels.iter().enumerate() {
            let Some(probed) = self.by_name.get_mut(&tunnel.name) else { continue };
            if let Some(note) = probed.judge(now) {
                operator.note(&format!("tunnel {}: {note}", tunnel.name));
            }
            if now >= probed.due {
                probed.due = now + probed.config.interval;
                // Counted as lost if it cannot be sent.
                forwarder.send_keepalive(at as u16, &probed.keepalive.request());
            }
        }
    }

    /// State by tunnel.
    pub(super) fn live(&self) -> Vec<(String, KeepaliveLive)> {
        self.by_name.iter().map(|(name, it)| (name.clone(), it.live())).collect()
    }
}

impl Probed {
    fn live(&self) -> KeepaliveLive {
        let Probed { reach, lost_count, .. } = *self;
        KeepaliveLive { reach, counts: self.keepalive.counts(), lost_count }
    }

    /// Message for a change of state. Losses are judged when the next request is due.
    fn judge(&mut self, now: Instant) -> Option<String> {
        let counts = self.keepalive.counts();
        let lost = self.config.lost;
        if now >= self.due {
            self.lost_count = counts.sent_count.saturating_sub(counts.answered_count);
        }
        let is_out = now >= self.due && counts.unanswered_count >= lost;
        let reach = match self.reach {
            Reach::Unknown | Reach::Silent if counts.answered_count > 0 => Reach::Up,
            Reach::Unknown if is_out => Reach::Silent,
            Reach::Up if is_out => Reach::Down,
            Reach::Down if counts.unanswered_count < lost => Reach::Up,
            same => same,
        };
        let was = std::mem::replace(&mut self.reach, reach);
        (was != reach).then(|| match (was, reach) {
            (Reach::Down, Reach::Up) => "the far end answers again".to_owned(),
            (_, Reach::Up) => "the far end answers keepalives".to_owned(),
            (_, Reach::Silent) => format!(
                "no answer to {lost} keepalives, and none before: the far end is down, or is not a \
                 `wirepath tunnel run` that answers them"
            ),
            _ => format!("no answer to {lost} keepalives: the far end, or the way to it, is down"),
        })
    }
}

/// A number that no other sender has.
fn session() -> Result<u64, RunError> {
    let mut bytes = [0; 8];
    sys::random::fill(&mut bytes).map_err(|source| {
        let what = "taking a number for keepalives".to_owned();
        RunError::System { what, source }
    })?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Delay in milliseconds.
fn ms(delay_ns: u64) -> f64 {
    Duration::from_nanos(delay_ns).as_secs_f64() * 1e3
}

/// Part of the status line.
pub(super) fn text(tunnels: &ByTunnel) -> String {
    let mut out = String::new();
    for (name, live) in tunnels {
        let _ = write!(out, "  {name}: {}", short(live));
    }
    out
}

/// State, delay and losses in a few words.
pub fn short(live: &KeepaliveLive) -> String {
    let KeepaliveLive { reach, counts, lost_count } = live;
    let mut out = reach.word().to_owned();
    if *reach == Reach::Up {
        let _ = write!(out, " {:.2} ms", ms(counts.delay_ns));
    }
    if *lost_count > 0 {
        let _ = write!(out, ", {lost_count} of {} lost", counts.sent_count);
    }
    out
}

/// An object by tunnel.
pub(super) fn json(tunnels: &ByTunnel) -> Value {
    let by_name = tunnels.iter().map(|(name, KeepaliveLive { reach, counts, lost_count })| {
        let is_known = counts.answered_count > 0;
        let live = json!({
            "state": reach.word(),
            "sent": counts.sent_count,
            "answered": counts.answered_count,
            "lost": lost_count,
            "delay_ns": is_known.then_some(counts.delay_ns),
            "delay_ns_max": is_known.then_some(counts.delay_ns_max),
        });
        (name.clone(), live)
    });
    Value::Object(by_name.collect())
}

/// Adds the metrics of the tunnels that have keepalives.
pub(super) fn add_metrics(metrics: &mut Metrics, tunnels: &ByTunnel) {
    if tunnels.is_empty() {
        return;
    }
    let mut sent = metrics.counter("keepalives_total", "Keepalives of tunnels by outcome.");
    for (name, KeepaliveLive { counts, .. }) in tunnels {
        for (fate, count) in [("sent", counts.sent_count), ("answered", counts.answered_count)] {
            sent.sample(&[("tunnel", name), ("fate", fate)], count);
        }
    }
    let mut up = metrics.gauge("up", "1 if the far end of a tunnel answers keepalives.");
    for (name, KeepaliveLive { reach, .. }) in tunnels {
        up.sample(&[("tunnel", name)], u8::from(*reach == Reach::Up));
    }
    let mut delays =
        metrics.gauge("keepalive_delay_seconds", "Time to the last answer of a far end.");
    for (name, KeepaliveLive { counts, .. }) in tunnels {
        if counts.answered_count > 0 {
            let delay = Duration::from_nanos(counts.delay_ns);
            delays.sample(&[("tunnel", name)], delay.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Carrier;

    fn probed(lost: u64) -> Probed {
        let [local, remote] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        Probed {
            config: KeepaliveConfig { interval: Duration::from_secs(1), lost },
            tunnel: Tunnel { local, remote, carrier: Carrier::Vxlan { vni: 1 } },
            keepalive: Arc::new(Keepalive::new(1)),
            due: Instant::now(),
            reach: Reach::Unknown,
            lost_count: 0,
        }
    }

    /// One interval with an answer or without. Returns the note of its end.
    fn interval(probed: &mut Probed, is_answered: bool) -> Option<String> {
        let request = probed.keepalive.request();
        if is_answered {
            let answer = request.answer().expect("a request");
            probed.keepalive.answered(&answer, 2_500_000);
        }
        probed.judge(probed.due)
    }

    #[test]
    fn far_end_that_dies_and_comes_back_is_reported_once_each() {
        let mut probed = probed(3);
        let mut notes = Vec::new();
        for is_answered in [true, true, false, false, false, false, true, false, true] {
            notes.extend(interval(&mut probed, is_answered));
        }
        let expected = ["answers keepalives", "no answer to 3 keepalives: the far end", "again"];
        assert_eq!(notes.len(), expected.len(), "{notes:?}");
        for (note, expected) in notes.iter().zip(expected) {
            assert!(note.contains(expected), "{note}");
        }
        assert_eq!((probed.reach, probed.lost_count), (Reach::Up, 5));
    }

    #[test]
    fn far_end_that_never_answers_is_said_to_be_perhaps_of_another_kind() {
        let mut probed = probed(2);
        assert_eq!(interval(&mut probed, false), None);
        let note = interval(&mut probed, false).expect("two are lost");
        assert!(note.contains("or is not a `wirepath tunnel run`"), "{note}");
        assert_eq!(probed.reach, Reach::Silent);
        // A request on its way is not lost yet.
        probed.keepalive.request();
        assert_eq!(probed.judge(probed.due - Duration::from_millis(1)), None);
        assert_eq!(probed.lost_count, 2);
        assert!(interval(&mut probed, true).is_some_and(|note| note.contains("answers")));
    }

    #[test]
    fn state_loss_and_delay_are_shown_by_tunnel() {
        let mut probed = probed(3);
        interval(&mut probed, true);
        interval(&mut probed, false);
        let tunnels = [("b".to_owned(), probed.live())];
        assert_eq!(text(&tunnels), "  b: up 2.50 ms, 1 of 2 lost");
        let shown = json(&tunnels);
        assert_eq!((&shown["b"]["state"], &shown["b"]["lost"]), (&"up".into(), &1.into()));
        assert_eq!(shown["b"]["delay_ns"], 2_500_000);
        let mut metrics = Metrics::new("wirepath_tunnel");
        add_metrics(&mut metrics, &tunnels);
        let metrics = metrics.text();
        for line in [
            "wirepath_tunnel_keepalives_total{tunnel=\"b\",fate=\"answered\"} 1\n",
            "wirepath_tunnel_up{tunnel=\"b\"} 1\n",
            "wirepath_tunnel_keepalive_delay_seconds{tunnel=\"b\"} 0.0025\n",
        ] {
            assert!(metrics.contains(line), "{metrics}");
        }
        let mut none = Metrics::new("wirepath_tunnel");
        add_metrics(&mut none, &[]);
        assert_eq!(none.text(), "");
    }
}
