//! Terminal, guards and processes of a run on this command line.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use house::context::{Context, DATA_VARIABLE};
use house::place::{ROOT_VARIABLE, STATE_VARIABLE};
use house::{console, signals};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::{LoadRequest, Outcome, Request};
use remote::work::{Answer, Call, Host};
use remote::{Caller, Failure};
use report::text::Detail;
use runner::{Console, JournalFolder, Proven, Runner};
use sys::child::{ChildPlace, this_program};

use crate::guard::Guard;
use crate::{lookup, results};

/// Time that a child has to end its programs and to restore settings.
const CHILD_GRACE: Duration = Duration::from_secs(20);
/// Time between two looks at the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Time between two answers so far, as a multiple of what one takes: that grows with the square of the blocks.
const ANSWER_COST_FACTOR: u32 = 20;

/// The terminal of a run.
pub(crate) struct Terminal {
    bar: RefCell<ProgressBar>,
    /// The answer so far, in few words; empty before the first block has ended.
    so_far: RefCell<String>,
    /// Earliest time of the next one.
    due: Cell<Instant>,
    /// Prints the result so far after each block.
    watch: bool,
}

impl Terminal {
    /// Errors: `--watch` and `--json` cannot be combined.
    pub(crate) fn open(context: &Context, watch: bool) -> Result<Self, Failure> {
        if watch && context.json {
            return Err(Failure::Usage("--watch prints tables; remove --json".into()));
        }
        let bar = if watch { ProgressBar::hidden() } else { progress_bar() };
        Ok(Terminal {
            bar: RefCell::new(bar),
            so_far: RefCell::default(),
            due: Cell::new(Instant::now()),
            watch,
        })
    }
}

impl Console for Terminal {
    fn say(&self, text: &str) {
        self.bar.borrow().suspend(|| console::say(text));
    }

    fn progress(&self, done: u64, text: &str, arm: &str) {
        let (bar, so_far) = (self.bar.borrow(), self.so_far.borrow());
        let so_far = if so_far.is_empty() { String::new() } else { format!("; so far: {so_far}") };
        bar.set_position(done);
        // A narrow terminal cuts off the arm first.
        bar.set_message(format!("{text}{so_far}; {arm}"));
    }

    fn end_progress(&self) {
        let next = if self.watch { ProgressBar::hidden() } else { progress_bar() };
        self.bar.replace(next).finish_and_clear();
        self.so_far.borrow_mut().clear();
    }

    fn result_so_far(&self, outcome: &dyn Fn() -> Outcome) {
        if self.watch {
            let text = report::text::ladder(&outcome(), console::style(), Detail::Brief);
            // The result at the end reports why nothing can be printed.
            let _shown = console::screen(&text);
        } else if console::is_watched() && Instant::now() >= self.due.get() {
            let begun = Instant::now();
            *self.so_far.borrow_mut() = report::forecast::so_far(&outcome());
            self.due.set(begun + begun.elapsed() * ANSWER_COST_FACTOR);
        }
    }
}

/// Runs requests for this command line.
pub(crate) fn runner<'a>(
    context: &Context,
    journal: JournalFolder,
    console: &'a dyn Console,
) -> Runner<'a> {
    Runner {
        find_path: &find_path,
        database: results::database(context),
        journal,
        start_guard: &start_guard,
        stop: signals::stop_flag(),
        console,
    }
}

/// The path, with a capture as its load if one is given.
fn find_path(name: &str, load: &LoadRequest) -> Result<Box<dyn model::Path>, Failure> {
    let path = lookup::find_path(name)?;
    match &load.replay {
        Some(replay) => Ok(path.replaying(replay)?),
        None => Ok(path),
    }
}

fn start_guard(journal: &JournalFolder) -> Result<Box<dyn Any>, Failure> {
    Ok(Box::new(Guard::start(journal)?))
}

fn progress_bar() -> ProgressBar {
    if !console::is_watched() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("[{bar:6}] {wide_msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// Folders of a process of this program on this machine; `None` for those of the user and of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Folders<'a> {
    /// Of results.
    pub(crate) data: Option<&'a Path>,
    /// Of the journal of settings.
    pub(crate) state: Option<&'a Path>,
    /// In place of `/`, for tests.
    pub(crate) root: Option<&'a Path>,
}

impl Folders<'_> {
    /// This program with these folders.
    pub(crate) fn program(self) -> Command {
        let mut command = this_program();
        let Folders { data, state, root } = self;
        for (name, folder) in
            [(DATA_VARIABLE, data), (STATE_VARIABLE, state), (ROOT_VARIABLE, root)]
        {
            if let Some(folder) = folder {
                command.env(name, folder);
            }
        }
        command
    }
}

/// Runs a request in a process of its own, and passes an interruption on.
pub(crate) fn run_in_child(runner: &Runner<'_>, request: &Request) -> Result<Proven, Failure> {
    let folders = Folders {
        data: runner.database.folder.as_deref(),
        state: Some(&runner.journal.folder),
        root: runner.journal.root.as_deref(),
    };
    let mut child = Caller::<Host>::command(folders.program(), &ChildPlace::default())?;
    child.set_grace(CHILD_GRACE);
    child.call(&Call::Run(Box::new(request.clone())))?;
    let mut is_interrupted = false;
    loop {
        match child.answer(POLL_INTERVAL)? {
            Some(Answer::Ran(ran)) => return Ok(Proven::from(*ran)),
            Some(Answer::Failed(failure)) => return Err(failure),
            Some(other) => return Err(child.unexpected(&other).into()),
            None if runner.is_stopped() && !is_interrupted => {
                is_interrupted = true;
                child.call(&Call::Interrupt)?;
            }
            None => {}
        }
    }
}
