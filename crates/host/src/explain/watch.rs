//! Causes as they begin and end: drops, counters and the library of causes, looked at once a second.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sys::bpf::BpfError;
use sys::netns::Netns;

use super::drops::{DropRow, Spaces};
use super::{Observer, counters, drop_sentences, drops};
use crate::causes::{self, Confidence, Evidence, Sample};
use crate::tune::{Place, System};

/// Seconds without a sign of it after which a cause has ended.
const QUIET_PERIODS: u32 = 3;

/// A cause that begins or ends.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CauseEvent {
    pub event: CauseMoment,
    /// Id in the library of causes, else the kernel's drop reason.
    pub cause: String,
    /// Network namespace: name of `ip netns`, or a process in it; `None` for the one of this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    pub sentence: String,
    pub remedy: String,
    pub undo: String,
    /// At the begin: packets, or what the sentence counts, in the last second. At the end: mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// At the end: all since the begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// At the end: time from the first to the last sign of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lasted_ns: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CauseMoment {
    Begin,
    End,
}

/// A cause as it was seen within a period.
#[derive(Debug, Clone)]
struct Sign {
    sentence: String,
    remedy: String,
    undo: String,
    /// 0 if it is not counted.
    count: u64,
}

/// Cause and namespace.
type Key = (String, Option<String>);

/// A cause that is under way.
#[derive(Debug)]
struct UnderWay {
    sign: Sign,
    began: Instant,
    last_seen: Instant,
    count: u64,
    quiet_periods: u32,
}

/// An observation that reports causes.
#[derive(Debug)]
pub struct Watch {
    observer: Observer,
    /// Namespaces whose settings and counters the library examines, with their names in events.
    places: Vec<(Place, Option<String>)>,
    interface: Option<String>,
    dropped: BTreeMap<(String, String), u64>,
    ongoing: Ongoing,
}

/// Causes that are under way.
#[derive(Debug, Default)]
struct Ongoing(BTreeMap<Key, UnderWay>);

impl Watch {
    /// - `places`: namespaces of the observer's scopes.
    /// - `interface`: where the packets pass; `None` for all interfaces.
    pub fn new(observer: Observer, places: Vec<Place>, interface: Option<String>) -> Watch {
        let mut spaces = Spaces::default();
        let named = |place: Place| {
            let netns = Netns::open(place.netns_file()).and_then(|netns| netns.inode());
            let inode = netns.ok().and_then(|inode| u32::try_from(inode).ok());
            let name = inode.and_then(|inode| {
                spaces.open(inode);
                spaces.opened(inode)?.name.clone()
            });
            (place, name)
        };
        let places = places.into_iter().map(named).collect();
        let (dropped, ongoing) = (BTreeMap::new(), Ongoing::default());
        Watch { observer, places, interface, dropped, ongoing }
    }

    /// Observes for a period of at most a second, and returns the causes that begin or end.
    ///
    /// # Errors
    /// [`BpfError`] if the programs cannot be attached or read.
    pub fn period(
        &mut self,
        at_most: Duration,
        stop: impl Fn() -> bool,
    ) -> Result<Vec<CauseEvent>, BpfError> {
        let before: Vec<Option<Sample>> =
            self.places.iter().map(|(place, _)| sample(place)).collect();
        let mut spaces = Spaces::default();
        let counted = counters::Before::read(&self.observer.scopes);
        self.observer.period(at_most, stop)?;
        let growth = counted.growth(&mut spaces);
        let mut signs = BTreeMap::new();
        let dropped = self.dropped_now()?;
        self.signs_of_drops(&dropped, &mut spaces, &mut signs);
        for ((place, name), before) in self.places.iter().zip(before) {
            self.signs_of_library(place, name.as_ref(), before, &mut signs);
        }
        for row in counters::rows(&growth, &spaces, &dropped) {
            let cause = cause_of(row.reason);
            let sign = Sign {
                sentence: row.sentence,
                remedy: row.remedy.to_owned(),
                undo: row.undo.to_owned(),
                count: row.count,
            };
            merge(&mut signs, (cause, row.netns), sign);
        }
        Ok(self.ongoing.take(signs, Instant::now()))
    }

    /// The causes that are under way, as ended now.
    pub fn finish(self) -> Vec<CauseEvent> {
        self.ongoing.0.into_iter().map(|(key, cause)| ended(key, cause)).collect()
    }

    /// Rows of this period: their counts are those since the last one.
    fn dropped_now(&mut self) -> Result<Vec<DropRow>, BpfError> {
        let mut rows = self.observer.summary()?.drops;
        for row in &mut rows {
            let key = (row.reason.clone(), row.function.clone());
            let before = self.dropped.insert(key, row.count).unwrap_or(0);
            row.count = row.count.saturating_sub(before);
        }
        rows.retain(|row| row.count > 0);
        Ok(rows)
    }

    fn signs_of_drops(
        &self,
        rows: &[DropRow],
        spaces: &mut Spaces,
        signs: &mut BTreeMap<Key, Sign>,
    ) {
        let is_harmless = |row: &&DropRow| {
            drop_sentences::of(row.meaning()).is_some_and(|known| known.is_harmless())
        };
        for row in rows.iter().filter(|row| !is_harmless(row)) {
            let mut located = vec![row.clone()];
            drops::locate(&mut located, spaces, &self.observer.symbols);
            let Some(place) = located.first_mut().and_then(|row| row.places.first().cloned())
            else {
                continue;
            };
            let sign = Sign {
                sentence: place.sentence,
                remedy: place.remedy,
                undo: place.undo,
                count: row.count,
            };
            merge(signs, (cause_of(row.meaning()), place.netns), sign);
        }
    }

    /// Findings that the library sees happen. A namespace that is gone has none.
    fn signs_of_library(
        &self,
        place: &Place,
        name: Option<&String>,
        before: Option<Sample>,
        signs: &mut BTreeMap<Key, Sign>,
    ) {
        let (Some(before), Some(after)) = (before, sample(place)) else { return };
        let evidence = System::open(place)
            .and_then(|system| Evidence::new(system, self.interface.as_deref(), None, None));
        let Ok(evidence) = evidence else { return };
        let report = causes::examine_counted(&evidence.watched(before, after));
        let now = report.findings.into_iter().filter(|found| found.confidence == Confidence::Now);
        for found in now {
            let sign =
                Sign { sentence: found.what, remedy: found.change, undo: found.undo, count: 0 };
            merge(signs, (found.cause.to_owned(), name.cloned()), sign);
        }
    }
}

impl Ongoing {
    /// Compares what was seen within a period with what is under way.
    fn take(&mut self, signs: BTreeMap<Key, Sign>, now: Instant) -> Vec<CauseEvent> {
        let seen: BTreeSet<Key> = signs.keys().cloned().collect();
        let mut events = Vec::new();
        for (key, sign) in signs {
            if let Some(cause) = self.0.get_mut(&key) {
                cause.count += sign.count;
                (cause.last_seen, cause.quiet_periods) = (now, 0);
                continue;
            }
            events.push(began(&key, &sign));
            let count = sign.count;
            let cause = UnderWay { sign, began: now, last_seen: now, count, quiet_periods: 0 };
            self.0.insert(key, cause);
        }
        let mut quiet = Vec::new();
        for (key, cause) in &mut self.0 {
            cause.quiet_periods += u32::from(!seen.contains(key));
            if cause.quiet_periods >= QUIET_PERIODS {
                quiet.push(key.clone());
            }
        }
        for key in quiet {
            events.extend(self.0.remove(&key).map(|cause| ended(key, cause)));
        }
        events
    }
}

fn sample(place: &Place) -> Option<Sample> {
    System::open(place).and_then(|system| Sample::take(&system)).ok()
}

/// Id of the cause of a drop reason, or the reason.
fn cause_of(reason: &str) -> String {
    causes::of_reason(reason).map_or(reason, |cause| cause.id).to_owned()
}

/// Adds a sign; the first sentence on a cause stays, and counts of the same packets are not added.
fn merge(signs: &mut BTreeMap<Key, Sign>, key: Key, sign: Sign) {
    match signs.get_mut(&key) {
        Some(known) => known.count = known.count.max(sign.count),
        None => drop(signs.insert(key, sign)),
    }
}

fn began((cause, netns): &Key, sign: &Sign) -> CauseEvent {
    CauseEvent {
        event: CauseMoment::Begin,
        cause: cause.clone(),
        netns: netns.clone(),
        sentence: sign.sentence.clone(),
        remedy: sign.remedy.clone(),
        undo: sign.undo.clone(),
        per_second: (sign.count > 0).then_some(sign.count as f64),
        count: None,
        lasted_ns: None,
    }
}

fn ended((cause, netns): Key, of: UnderWay) -> CauseEvent {
    // The first sign came within the second before.
    let lasted = of.last_seen.saturating_duration_since(of.began) + Duration::from_secs(1);
    CauseEvent {
        event: CauseMoment::End,
        cause,
        netns,
        sentence: of.sign.sentence,
        remedy: of.sign.remedy,
        undo: of.sign.undo,
        per_second: (of.count > 0).then(|| of.count as f64 / lasted.as_secs_f64()),
        count: (of.count > 0).then_some(of.count),
        lasted_ns: Some(u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(causes: &[(&str, u64)]) -> BTreeMap<Key, Sign> {
        let sign = |count| Sign {
            sentence: "it is full".to_owned(),
            remedy: "empty it".to_owned(),
            undo: String::new(),
            count,
        };
        causes.iter().map(|(cause, count)| (((*cause).to_owned(), None), sign(*count))).collect()
    }

    #[test]
    fn a_cause_begins_once_and_ends_when_it_was_quiet_for_some_periods() {
        let mut ongoing = Ongoing::default();
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let events = ongoing.take(seen(&[("full", 5)]), at(0));
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!((events[0].event, events[0].per_second), (CauseMoment::Begin, Some(5.0)));
        assert_eq!(ongoing.take(seen(&[("full", 7)]), at(1)), []);
        // A pause shorter than the quiet time.
        assert_eq!(ongoing.take(seen(&[]), at(2)), []);
        assert_eq!(ongoing.take(seen(&[("full", 3)]), at(3)), []);
        assert_eq!(ongoing.take(seen(&[]), at(4)), []);
        assert_eq!(ongoing.take(seen(&[]), at(5)), []);
        let events = ongoing.take(seen(&[]), at(6));
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!((events[0].event, events[0].count), (CauseMoment::End, Some(15)));
        assert_eq!(events[0].lasted_ns, Some(4_000_000_000));
        assert!(ongoing.0.is_empty());
    }

    #[test]
    fn causes_are_told_apart_by_name_and_namespace() {
        let mut ongoing = Ongoing::default();
        let mut signs = seen(&[("full", 1), ("slow", 0)]);
        let sign = signs.values().next().cloned().expect("one");
        signs.insert(("full".to_owned(), Some("blue".to_owned())), sign);
        let events = ongoing.take(signs, Instant::now());
        assert_eq!(events.len(), 3, "{events:?}");
        assert!(events.iter().any(|one| one.cause == "slow" && one.per_second.is_none()));
    }

    #[test]
    fn counts_of_the_same_packets_are_not_added() {
        let mut signs = seen(&[("full", 4)]);
        let (key, sign) = seen(&[("full", 9)]).pop_first().expect("one");
        merge(&mut signs, key.clone(), sign);
        assert_eq!(signs[&key].count, 9);
    }
}
