//! `wirepath tunnel run`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::live::View;
use clap::Args;
use forward::config::Config;
use forward::run::{Live, Operator, RunError};
use house::args::parse_duration;
use house::context::Context;
use house::metrics::MetricsServer;
use house::{console, metrics, privileges, signals};
use remote::Failure;
use report::metrics::Metrics;
use report::units::plural;
use signal_hook::consts::SIGHUP;
use signal_hook::flag;
use sys::capability::{self, Capability};
use sys::thread::{Started, start};

use super::picture::Picture;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Configuration file (TOML); reloaded on SIGHUP
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Check the file, and the interfaces, addresses and routes that it names, and exit
    #[arg(long)]
    check: bool,
    /// Serve Prometheus metrics on this PORT of loopback, or on ADDRESS:PORT
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = metrics::parse_address)]
    listen: Option<SocketAddr>,
    /// Time to run; default: until Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    time: Option<Duration>,
    /// Show the figures on the whole terminal; q ends
    #[arg(long)]
    live: bool,
}

pub(crate) fn run(context: &Context, args: &RunArgs) -> Result<(), Failure> {
    let config = read(&args.file).map_err(Failure::Usage)?;
    if args.check {
        forward::run::check(&config).map_err(refused)?;
        console::say(&format!(
            "{}: {}, {}, nothing wrong",
            args.file.display(),
            plural(config.tunnels.len(), "tunnel"),
            plural(config.workers, "worker"),
        ));
        return Ok(());
    }
    let asked_to_reload = Arc::new(AtomicBool::new(false));
    flag::register(SIGHUP, asked_to_reload.clone())?;
    let view = args.live.then(|| View::open(context.json)).transpose()?;
    let metrics = args.listen.map(MetricsServer::open).transpose()?;
    if let Some(metrics) = &metrics {
        console::say(&format!("metrics at http://{}/metrics", metrics.address()));
    }
    let shown = Arc::new(Mutex::new(None::<Live>));
    let done = AtomicBool::new(false);
    let mut operator = Console {
        context,
        file: &args.file,
        asked_to_reload,
        shown: &shown,
        before: None,
        until: args.time.map(|time| std::time::Instant::now() + time),
        failed: None,
        view,
        picture: Picture::new(&args.file),
    };
    let ran = thread::scope(|scope| {
        let serve = metrics.as_ref().map(|metrics| {
            let (done, shown) = (&done, shown.clone());
            start(scope, "metrics", move || {
                privileges::drop_all().map(|()| metrics.serve(done, move || shown_metrics(&shown)))
            })
        });
        if let Some(why) = serve.as_ref().and_then(Started::refused) {
            return Err(why.to_string());
        }
        let ran = forward::run::run(config, &mut operator);
        done.store(true, Ordering::Relaxed);
        Ok(ran)
    });
    let failed = operator.failed.take();
    // Results and errors are printed on the restored terminal.
    drop(operator.view.take());
    ran.map_err(Failure::failed)?.map_err(refused)?;
    failed.map_or(Ok(()), Err)?;
    let last = shown.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(last) = last else { return Ok(()) };
    if context.json {
        return console::text(&last.json().to_string());
    }
    console::text(&summary(&last))
}

fn refused(error: RunError) -> Failure {
    match error {
        RunError::Unsupported { .. } => Failure::Unsupported(error.to_string()),
        RunError::Net(error) => error.into(),
        RunError::Io(error) => error.into(),
        error => Failure::from_chain(&error),
    }
}

/// A configuration of thousands of tunnels has a tenth of it.
const CONFIG_BYTES_MAX: u64 = 8 << 20;

fn read(file: &Path) -> Result<Config, String> {
    let text = host::user_file::read_text(file, CONFIG_BYTES_MAX)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    Config::parse(&text).map_err(|errors| format!("{}:\n{errors}", file.display()))
}

fn shown_metrics(shown: &Mutex<Option<Live>>) -> Metrics {
    let live = shown.lock().unwrap_or_else(PoisonError::into_inner);
    live.as_ref().map_or_else(|| Metrics::new("wirepath_tunnel"), Live::metrics)
}

/// Operator of the forwarder: signals, configuration file and display.
struct Console<'a> {
    context: &'a Context,
    file: &'a Path,
    asked_to_reload: Arc<AtomicBool>,
    shown: &'a Mutex<Option<Live>>,
    before: Option<Live>,
    until: Option<std::time::Instant>,
    failed: Option<Failure>,
    view: Option<View>,
    picture: Picture,
}

impl Console<'_> {
    /// Handles the result of the view. The view ends with the command or the terminal.
    fn after(&mut self, turn: Result<(), Failure>) {
        if let Err(failure) = turn {
            self.failed = Some(failure);
        }
        if self.failed.is_some() || signals::stop_requested() {
            self.view = None;
        }
    }
}

impl Operator for Console<'_> {
    fn wants_end(&mut self) -> bool {
        if let Some(view) = &mut self.view {
            let turn = view.turn();
            self.after(turn);
        }
        signals::stop_requested()
            || self.failed.is_some()
            || self.until.is_some_and(|until| std::time::Instant::now() >= until)
    }

    fn new_config(&mut self) -> Option<Config> {
        if !self.asked_to_reload.swap(false, Ordering::Relaxed) {
            return None;
        }
        match read(self.file) {
            Ok(config) => Some(config),
            Err(why) => {
                console::say(&format!("not reloaded: {why}"));
                None
            }
        }
    }

    fn opened(&mut self) -> std::io::Result<()> {
        capability::keep(&[Capability::DacReadSearch])
    }

    fn note(&mut self, note: &str) {
        console::say(note);
    }

    fn live(&mut self, live: &Live) {
        let ended = self.wants_end();
        if self.context.json && !ended {
            if let Err(failure) = console::text(&live.json().to_string()) {
                self.failed = Some(failure);
            }
        } else if let Some(view) = &mut self.view {
            let turn = view.show(self.picture.scene(live));
            self.after(turn);
        } else if console::is_watched() {
            console::say(&live.text(self.before.as_ref()));
        }
        self.before = Some(live.clone());
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(live.clone());
    }
}

/// Summary at the end.
fn summary(last: &Live) -> String {
    let mut out = format!(
        "forwarded {} frames into tunnels and {} out of them in {:.1} s; {} addresses\n",
        last.count("into_tunnels_sent"),
        last.count("out_of_tunnels_sent"),
        last.up.as_secs_f64(),
        last.address_count
    );
    let drops: Vec<_> = last.drops().iter().map(|(name, n)| format!("{name} {n}")).collect();
    if !drops.is_empty() {
        out.push_str(&format!("dropped: {}\n", drops.join(", ")));
    }
    let [into, back] = &last.books;
    let passed = into.timed_out_count + back.timed_out_count;
    if passed > 0 {
        out.push_str(&format!("{passed} batches of stuck workers were not waited for\n"));
    }
    out
}
