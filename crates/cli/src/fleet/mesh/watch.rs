//! `fleet mesh --watch`: repeats until the user stops it, the latest ones of which are judged.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use host::exclusive::ExclusiveLock;

use super::measure::Mesh;
use super::metrics::{Totals, text};
use super::{Document, Measured, MeshArgs, repeat};
use crate::exit::Failure;
use crate::metrics::{self, Shown};
use crate::{console, signals};

const LOOK: Duration = Duration::from_millis(50);

/// Measures until a stop is requested. Returns the latest repeats. Errors: there is none.
pub(super) fn run(args: &MeshArgs, measured: Measured) -> Result<Measured, Failure> {
    let server = metrics::open(args.metrics)?;
    let shown = Shown::default();
    let mut watch = Watch {
        args,
        shown: shown.clone(),
        measured,
        totals: Totals::default(),
        named: BTreeSet::new(),
    };
    shown.replace(text(&Document::new(&watch.measured), &watch.totals));
    // On this thread: with it the echoes would end.
    metrics::serving(server.as_ref(), &shown, || watch.until_stopped())?;
    match watch.measured.repeats.is_empty() {
        true => Err(Failure::failed("interrupted before all pairs were measured once")),
        false => Ok(watch.measured),
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
    fn until_stopped(&mut self) -> Result<(), Failure> {
        let mut was_skipped = false;
        while !signals::stop_requested() {
            let begun = Instant::now();
            // For the time of a repeat: experiments may run between two.
            match ExclusiveLock::acquire_alone() {
                Ok(_lock) => {
                    was_skipped = false;
                    match self.turn() {
                        Err(_) if signals::stop_requested() => break,
                        ended => ended?,
                    }
                }
                Err(conflict) => {
                    if !std::mem::replace(&mut was_skipped, true) {
                        console::say(&format!("skipped: {conflict}"));
                    }
                    self.totals.skipped = self.totals.skipped.saturating_add(1);
                }
            }
            self.show()?;
            let until = begun + self.args.every;
            while Instant::now() < until && !signals::stop_requested() {
                std::thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
            }
        }
        Ok(())
    }

    /// Measures all pairs, and judges the latest repeats.
    ///
    /// Its echoes end with it: experiments may run on the hosts between two, and a host that was lost is part of the next.
    fn turn(&mut self) -> Result<(), Failure> {
        let mut mesh = Mesh::open(&self.args.on, &self.args.ssh_option, self.args.count)?;
        let seed = self.measured.seed;
        let table = repeat(self.args, &mut mesh, seed, self.totals.repeats)?;
        self.totals.add(&table);
        let repeats = &mut self.measured.repeats;
        repeats.push(table);
        if repeats.len() > self.args.rounds as usize {
            repeats.remove(0);
        }
        match repeats.len() < self.args.rounds as usize {
            true => Ok(()),
            false => self.measured.judge(&mut mesh),
        }
    }

    /// Reports what is named now and was not before, and what no longer is.
    fn show(&mut self) -> Result<(), Failure> {
        let document = Document::new(&self.measured);
        self.shown.replace(text(&document, &self.totals));
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
        match &self.args.html {
            Some(file) => console::replace_file(file, &report::html::mesh_page(&document.page())),
            None => Ok(()),
        }
    }
}
