//! `--live`: a command's figures on the whole terminal.
//!
//! The command calls [`View::turn`] about twenty times a second and [`View::show`] when it has new
//! figures. There is no drawing thread.

mod draw;
mod terminal;

use std::collections::VecDeque;
use std::io::{IsTerminal, Stdout};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Size;
use remote::Failure;

use draw::{Looks, draw};
use house::{console, notes, signals};
use terminal::{Keys, Taken};

/// Seconds of history of the rates.
const SECONDS: usize = 60;

/// Contents of the view.
#[derive(Debug, Default)]
pub(crate) struct Scene {
    /// The command and what it works on.
    pub(crate) title: String,
    /// Time since the start.
    pub(crate) up: Duration,
    pub(crate) rates: Vec<Rate>,
    /// Side by side.
    pub(crate) tables: Vec<LiveTable>,
    /// Help on keys and signals.
    pub(crate) keys: &'static str,
}

/// A growing count.
#[derive(Debug, Default, Clone)]
pub(crate) struct Rate {
    pub(crate) name: &'static str,
    /// Since the start.
    pub(crate) count: u64,
    /// Of the last minute, oldest first.
    per_second: VecDeque<u64>,
}

impl Rate {
    pub(crate) fn new(name: &'static str) -> Self {
        Rate { name, ..Rate::default() }
    }

    /// Adds a count, `elapsed` after the last one.
    pub(crate) fn push(&mut self, count: u64, elapsed: Duration) {
        let change = count.saturating_sub(self.count) as f64;
        if self.per_second.len() == SECONDS {
            self.per_second.pop_front();
        }
        self.per_second.push_back((change / elapsed.as_secs_f64().max(1e-3)).round() as u64);
        self.count = count;
    }
}

/// Names and figures.
#[derive(Debug, Default)]
pub(crate) struct LiveTable {
    pub(crate) title: &'static str,
    pub(crate) rows: Vec<(String, String)>,
    /// The rows are warnings.
    pub(crate) warns: bool,
}

/// The terminal while figures are drawn on it. Drop restores it and writes the collected notes to
/// standard error.
pub(crate) struct View {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    keys: Keys,
    looks: Looks,
    scene: Scene,
    drawn: Option<(Size, usize)>,
    // Dropped after the terminal, whose own drop writes to it.
    _taken: Taken,
}

impl View {
    /// Takes the terminal.
    ///
    /// - `json`: standard output is a JSON document, which excludes `--live`.
    pub(crate) fn open(json: bool) -> Result<Self, Failure> {
        let refused = |why: &str| Err(Failure::Usage(format!("--live {why}")));
        if json {
            return refused("and --json exclude each other: give one of them");
        }
        if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
            return refused(
                "needs a terminal as standard input and output: omit it, or do not redirect these two",
            );
        }
        if std::env::var("TERM").is_ok_and(|term| term == "dumb") {
            return refused(
                "needs a terminal that can position the cursor, but TERM is dumb: omit it",
            );
        }
        let failed = |e| Failure::failed(format!("--live cannot take the terminal: {e}"));
        let keys = Keys::open().map_err(failed)?;
        let taken = Taken::take().map_err(failed)?;
        let terminal = Terminal::new(CrosstermBackend::new(std::io::stdout())).map_err(failed)?;
        let style = console::style();
        let looks = Looks { color: style.color, ascii: style.ascii };
        let scene = Scene::default();
        Ok(View { terminal, keys, looks, scene, drawn: None, _taken: taken })
    }

    /// Reads keys, and redraws after a note or a change of size.
    pub(crate) fn turn(&mut self) -> Result<(), Failure> {
        if self.keys.ask_for_end().map_err(gone)? {
            signals::request_stop();
        }
        let now = (self.terminal.size().map_err(gone)?, notes::count());
        if self.drawn != Some(now) {
            let notes = notes::lines();
            self.terminal
                .draw(|frame| draw(frame, &self.scene, &notes, self.looks))
                .map_err(gone)?;
            self.drawn = Some(now);
        }
        Ok(())
    }

    pub(crate) fn show(&mut self, scene: Scene) -> Result<(), Failure> {
        self.scene = scene;
        self.drawn = None;
        self.turn()
    }
}

fn gone(error: std::io::Error) -> Failure {
    Failure::failed(format!("the terminal of --live is gone: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_cover_the_last_minute() {
        let mut rate = Rate::new("frames");
        for n in 1..=70 {
            rate.push(n * 10, Duration::from_millis(500));
        }
        assert_eq!(rate.per_second, [20; SECONDS]);
        rate.push(700, Duration::ZERO);
        assert_eq!((rate.count, rate.per_second.back()), (700, Some(&0)));
    }
}
