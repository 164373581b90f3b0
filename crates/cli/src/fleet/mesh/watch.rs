//! `fleet mesh --watch`: repeats until the user stops it, the latest ones of which are judged.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use house::metrics::Shown;
use house::{console, metrics, signals};
use remote::Failure;

use super::metrics::Totals;
use super::{Measure, Measured, MeshArgs, MeshDocument, repeat};

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Measures until a stop is requested. Returns the latest repeats. Errors: there is none.
///
/// - `open`: begins a repeat. It ends with its result: experiments may run on the hosts between two, and a host that was
///   lost is part of the next.
pub(super) fn run<M: Measure>(
    args: &MeshArgs,
    measured: Measured,
    open: impl FnMut() -> Result<M, Failure>,
) -> Result<Measured, Failure> {
    let server = metrics::open(args.listen)?;
    let shown = Shown::default();
    let mut watch = Watch {
        args,
        shown: shown.clone(),
        measured,
        totals: Totals::default(),
        named: BTreeSet::new(),
    };
    shown.replace(super::metrics::metrics(&MeshDocument::new(&watch.measured), &watch.totals));
    // On this thread: with it the echoes would end.
    metrics::serving(server.as_ref(), &shown, || watch.until_stopped(open))?;
    if watch.measured.repeats.is_empty() {
        Err(Failure::Interrupted("interrupted before all pairs were measured once".into()))
    } else {
        Ok(watch.measured)
    }
}

struct Watch<'a> {
    args: &'a MeshArgs,
    shown: Shown,
    /// With the latest repeats, as many as `--rounds`.
    measured: Measured,
    totals: Totals,
    /// Hosts and links that are named now.
    named: BTreeSet<String>,
}

impl Watch<'_> {
    fn until_stopped<M: Measure>(
        &mut self,
        mut open: impl FnMut() -> Result<M, Failure>,
    ) -> Result<(), Failure> {
        // Reason, until a repeat is not skipped.
        let mut skipped = None;
        while !signals::stop_requested() {
            let begun = Instant::now();
            match open() {
                Ok(mut mesh) => {
                    skipped = None;
                    match self.turn(&mut mesh) {
                        Err(_) if signals::stop_requested() => break,
                        ended => ended?,
                    }
                }
                Err(_) if signals::stop_requested() => break,
                Err(usage @ Failure::Usage(_)) => return Err(usage),
                Err(failure) => {
                    let why = Some(failure.text().to_owned());
                    if skipped != why {
                        console::say(&format!("skipped: {}", failure.text()));
                    }
                    skipped = why;
                    self.totals.skipped = self.totals.skipped.saturating_add(1);
                }
            }
            self.show()?;
            let until = begun + self.args.every;
            while Instant::now() < until && !signals::stop_requested() {
                std::thread::sleep(
                    POLL_INTERVAL.min(until.saturating_duration_since(Instant::now())),
                );
            }
        }
        Ok(())
    }

    /// Measures all pairs, and judges the latest repeats.
    fn turn(&mut self, mesh: &mut dyn Measure) -> Result<(), Failure> {
        let seed = self.measured.seed;
        let table = repeat(self.args, mesh, seed, self.totals.repeats)?;
        self.totals.add(&table);
        let repeats = &mut self.measured.repeats;
        repeats.push(table);
        if repeats.len() > self.args.rounds as usize {
            repeats.remove(0);
        }
        if repeats.len() < self.args.rounds as usize { Ok(()) } else { self.measured.judge(mesh) }
    }

    /// Reports what is named now and was not before, and what no longer is.
    fn show(&mut self) -> Result<(), Failure> {
        let document = MeshDocument::new(&self.measured);
        self.shown.replace(super::metrics::metrics(&document, &self.totals));
        // Before the messages, so that their reader finds the page that they are about.
        if let Some(file) = &self.args.html {
            console::replace_file(file, report::html::mesh_page(&document.page()))?;
        }
        let named = document.named_places();
        for (place, sentence) in &named {
            if !self.named.contains(place) {
                console::say(sentence);
            }
        }
        for place in self.named.iter().filter(|place| !named.contains_key(*place)) {
            console::say(&format!("{place} no longer stands out"));
        }
        self.named = named.into_keys().collect();
        Ok(())
    }
}
