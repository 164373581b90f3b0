//! `wirepath fleet agent`: takes the jobs of this host from the broker, measures, and reports.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use fleet::book::{Agent, BookError, Job, Outbox};
use fleet::enrol::Enrolment;
use fleet::keys::Seeds;
use fleet::nats::{BrokerAddress, NatsExchange};
use host::generated::{Line, Text, UnitArgument};
use host::text::chain;
use house::context::Context;
use house::{console, signals};
use remote::Failure;
use remote::path::is_path_name;

use super::allowed::{AllowedPaths, Permissions};
use super::keys::read_secret;
use super::station::Station;
use super::{agents_file, now_ms};

use crate::results;

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Enrolment of this host, from `fleet init`
    #[arg(long, value_name = "FILE")]
    enrol: PathBuf,
    /// Secret of this host, if it made its own (`fleet keys`)
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Also take the steps of roll-outs, which change settings of this host (`fleet rollout`)
    #[arg(long)]
    allow_tune: bool,
    /// Also measure the path of the program `wirepath-NAME` in PATH; may be repeated
    #[arg(long, value_name = "NAME", value_parser = path_name)]
    allow_path: Vec<String>,
    /// Print a systemd unit for this agent, and end
    #[arg(long)]
    unit: bool,
}

/// Time between two turns without news; jobs that come wake the agent at once.
const TURN_INTERVAL: Duration = Duration::from_secs(10);
/// Time between two looks for a job whose message did not come.
const MISSED_JOB_INTERVAL: Duration = Duration::from_secs(60);
/// Turns that follow a wake-up closely: the broker passes a job on before it has stored it, or the end of the lease of
/// the job before. On a busy machine that takes seconds.
const TRIES_AFTER_WAKE_UP: u32 = 12;
/// First pause between them; doubles up to [`POLL_INTERVAL`].
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait without a look at signals.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after a failure of the broker; doubles up to [`RECONNECT_INTERVAL_MAX`].
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);
const RECONNECT_INTERVAL_MAX: Duration = Duration::from_secs(15);

pub(crate) fn run(context: &Context, args: &AgentArgs) -> Result<(), Failure> {
    let enrolment = read_secret(&args.enrol, Enrolment::parse)?;
    let seeds = match (&args.keys, &enrolment.seeds) {
        (Some(file), _) => read_secret(file, Seeds::parse)?,
        (None, Some(seeds)) => seeds.clone(),
        (None, None) => {
            return Err(Failure::Usage(format!(
                "{} holds no secret, because this host made its own: give it with --keys FILE",
                args.enrol.display()
            )));
        }
    };
    if args.unit {
        return console::text(&unit(args)?);
    }
    let _one = lock(context, &enrolment.host)?;
    let ca = ca_file(context, &enrolment)?;
    let work = AgentWork {
        address: enrolment.address(&seeds, ca),
        seeds,
        agent: Agent::start(
            &enrolment.host,
            Outbox::open(agents_file(context)?, &enrolment.host)?,
        )?,
        enrolment,
        station: Station::new(
            Permissions {
                may_tune: args.allow_tune,
                paths: AllowedPaths::Named(args.allow_path.clone()),
            },
            context.data_dir.clone(),
        ),
    };
    work.until_stopped()
}

struct AgentWork {
    enrolment: Enrolment,
    seeds: Seeds,
    address: BrokerAddress,
    agent: Agent,
    station: Station,
}

impl AgentWork {
    fn until_stopped(mut self) -> Result<(), Failure> {
        let mut pause = RECONNECT_INTERVAL;
        let host = self.enrolment.host.clone();
        while !signals::stop_requested() {
            let ended = self.connect().and_then(|(mut exchange, offset)| {
                console::say(&format!("{host} waits for jobs of {}", self.address.url));
                pause = RECONNECT_INTERVAL;
                self.serve(&mut exchange, offset)
            });
            if let Err(error) = ended {
                console::say(&format!("{}; next try in {} s", chain(&error), pause.as_secs()));
                sleep(pause);
                pause = pause.saturating_mul(2).min(RECONNECT_INTERVAL_MAX);
            }
        }
        Ok(())
    }

    /// Connects, and measures the difference of the clocks.
    fn connect(&self) -> Result<(NatsExchange, i64), BookError> {
        let mut exchange = exchange(&self.enrolment, &self.seeds, &self.address)?;
        let offset = exchange.clock_offset_ms(&self.enrolment.host, now_ms())?;
        Ok((exchange, offset))
    }

    fn serve(&mut self, exchange: &mut NatsExchange, offset: i64) -> Result<(), BookError> {
        let clock = || now_ms().saturating_add_signed(offset);
        let mut looks_left = 0;
        let mut looked: Option<Instant> = None;
        while !signals::stop_requested() {
            let (enrolment, seeds, address) = (&self.enrolment, &self.seeds, &self.address);
            let station = &mut self.station;
            station.look_at_waiting();
            let is_early = looked.is_some_and(|at| at.elapsed() < MISSED_JOB_INTERVAL);
            if is_early && looks_left == 0 {
                self.agent.tend(exchange, clock())?;
                looks_left = if wait(exchange) { TRIES_AFTER_WAKE_UP } else { 0 };
                continue;
            }
            let mut has_measured = false;
            let measure = |job: &Job| {
                has_measured = true;
                let mut beats = None;
                station.work(job, &mut || {
                    // A beat that fails is made up for by the next one.
                    let _ = beat(&mut beats, enrolment, seeds, address, job, clock());
                })
            };
            let is_waiting = self.agent.turn(exchange, clock(), measure, |_| true)?;
            looked = (!is_waiting).then(Instant::now);
            for refusal in exchange.take_refusals() {
                console::say(&format!("refused a job: {}", refusal.why));
            }
            looks_left = match (has_measured, looks_left) {
                (true, _) => 0,
                (false, 0) if wait(exchange) => TRIES_AFTER_WAKE_UP,
                (false, 0) => 0,
                (false, left) => {
                    let doubled =
                        RETRY_INTERVAL * 2_u32.pow(TRIES_AFTER_WAKE_UP.saturating_sub(left));
                    std::thread::sleep(doubled.min(POLL_INTERVAL));
                    left - 1
                }
            };
        }
        Ok(())
    }
}

/// Connects this host to the broker.
fn exchange(
    enrolment: &Enrolment,
    seeds: &Seeds,
    address: &BrokerAddress,
) -> Result<NatsExchange, BookError> {
    let keys = enrolment.keyring(seeds).map_err(|e| BookError::Broker {
        server: address.url.clone(),
        doing: "reading its keys",
        source: e.into(),
    })?;
    NatsExchange::agent(address, keys, &enrolment.host)
}

/// Waits for a job or for the next turn; true if a job may have arrived.
fn wait(exchange: &mut NatsExchange) -> bool {
    let looks = 0..TURN_INTERVAL.as_secs() / POLL_INTERVAL.as_secs();
    looks.into_iter().any(|_| signals::stop_requested() || exchange.wait(POLL_INTERVAL))
}

/// Renews the lease over a connection of its own: the other one waits for the end of the measurement.
fn beat(
    beats: &mut Option<NatsExchange>,
    enrolment: &Enrolment,
    seeds: &Seeds,
    address: &BrokerAddress,
    job: &Job,
    now_ms: u64,
) -> Result<(), BookError> {
    let beats = match beats {
        Some(exchange) => exchange,
        None => beats.insert(exchange(enrolment, seeds, address)?),
    };
    Agent::beat(&job.host, job.fence, beats, now_ms)
}

/// One agent of a host on a folder: two would share its memory.
fn lock(context: &Context, host: &str) -> Result<File, Failure> {
    let file =
        results::database(context).file()?.with_file_name(format!("fleet-agent-{host}.lock"));
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&file)
        .map_err(|e| Failure::failed(format!("cannot open {}: {e}", file.display())))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(_) => Err(Failure::failed(format!(
            "another agent of {host} runs on {}; stop it, or choose another folder with --data-dir",
            file.display()
        ))),
    }
}

/// File with the authority's certificate, beside the results: the client reads it from there.
fn ca_file(context: &Context, enrolment: &Enrolment) -> Result<Option<PathBuf>, Failure> {
    let Some(pem) = &enrolment.ca else { return Ok(None) };
    let name = format!("fleet-ca-{}.pem", enrolment.host);
    let file = results::database(context).file()?.with_file_name(name);
    console::replace_file(&file, pem)?;
    Ok(Some(file))
}

fn sleep(limit: Duration) {
    let steps = (limit.as_millis() / 100).max(1);
    for _ in 0..steps {
        if signals::stop_requested() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A unit of systemd. The agent measures as root, because labs need network namespaces.
fn unit(args: &AgentArgs) -> Result<String, Failure> {
    let program = unit_argument(&std::env::current_exe()?)?;
    let enrol = unit_argument(&fs::canonicalize(&args.enrol)?)?;
    let mut command = Line::new(&[&"ExecStart=", &program, &" fleet agent --enrol ", &enrol]);
    if let Some(keys) = &args.keys {
        let keys = unit_argument(&fs::canonicalize(keys)?)?;
        command = Line::new(&[&command, &" --keys ", &keys]);
    }
    if args.allow_tune {
        command = Line::new(&[&command, &" --allow-tune"]);
    }
    for name in &args.allow_path {
        let name = UnitArgument::new(name);
        command = Line::new(&[&command, &" --allow-path ", &name]);
    }
    let mut unit = Text::default();
    unit.literal(
        "[Unit]
Description=Wirepath agent
Wants=network-online.target
After=network-online.target

[Service]",
    )
    .line(&Line::new(&[&command, &" --data-dir /var/lib/wirepath"]))
    .literal(
        "StateDirectory=wirepath
StateDirectoryMode=0700
Restart=on-failure
RestartSec=10
KillMode=mixed
ProtectSystem=full
ProtectHome=read-only
PrivateTmp=yes

[Install]
WantedBy=multi-user.target",
    );
    Ok(unit.as_str().to_owned())
}

/// Errors: no path has such a name.
fn path_name(name: &str) -> Result<String, String> {
    if is_path_name(name) {
        return Ok(name.to_owned());
    }
    Err("it is not a valid name of a path: use a-z, 0-9 and -".to_owned())
}

fn unit_argument(path: &Path) -> Result<UnitArgument, Failure> {
    let text = path.to_str().ok_or_else(|| {
        Failure::Usage(format!("{} is not text; rename it for the unit", path.display()))
    })?;
    Ok(UnitArgument::new(text))
}
