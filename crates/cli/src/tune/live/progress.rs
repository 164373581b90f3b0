//! Progress of a live proof on the terminal.

use house::console;
use house::context::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use live::conduct::Observer;
use model::live::{LiveForecast, LiveOutcome, LivePeriodRecord};

/// Progress of a run.
pub(super) struct Terminal {
    bar: ProgressBar,
    time_ns: u64,
    is_quiet: bool,
}

impl Terminal {
    pub(super) fn new(context: &Context) -> Self {
        let bar = if console::is_watched() {
            let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("[{bar:6}] {wide_msg}") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        } else {
            ProgressBar::hidden()
        };
        Terminal { bar, time_ns: 1, is_quiet: context.json }
    }

    fn say(&self, text: &str) {
        self.bar.suspend(|| console::say(text));
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Terminal {
    fn baseline(&mut self, done_ns: u64, time_ns: u64) {
        self.bar.set_position(done_ns * 1000 / time_ns.max(1));
        let left_s = time_ns.saturating_sub(done_ns) / 1_000_000_000;
        self.bar.set_message(format!("baseline, nothing is switched: {left_s} s left"));
    }

    fn forecast(&mut self, forecast: &LiveForecast, time_ns: u64) {
        self.time_ns = time_ns.max(1);
        if !self.is_quiet {
            let seconds = |ns: u64| ns.div_ceil(1_000_000_000);
            self.say(&format!(
                "the primary figure needs about {} s of the {} s: {} pairs of periods of {} s",
                seconds(forecast.time_ns),
                seconds(time_ns),
                forecast.pairs,
                seconds(forecast.period_ns)
            ));
        }
    }

    fn progress(&mut self, elapsed_ns: u64, pairs: u32) {
        self.bar.set_position((elapsed_ns * 1000 / self.time_ns).min(1000));
        self.bar.set_message(format!("{} s, pair {}", elapsed_ns / 1_000_000_000, pairs + 1));
    }

    fn tripped(&mut self, period: &LivePeriodRecord) {
        let Some(trip) = &period.trip else { return };
        let undone = trip
            .undone_after_ns
            .map_or("it was off".to_owned(), |ns| format!("undone after {} ms", ns / 1_000_000));
        self.say(&format!("guard: {}; {undone}", trip.reason));
    }

    fn period(&mut self, _: &LivePeriodRecord, _: &dyn Fn() -> LiveOutcome) {}
}
