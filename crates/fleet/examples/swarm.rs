//! Load of many agents on one broker and one database, which it starts itself on this machine.
//!
//! ```sh
//! ulimit -n 20000; cargo run --release -p wirepath-fleet --example swarm -- 10000
//! ```
//!
//! Each agent is a connection with its own key that does at the broker what `wirepath fleet agent` does: a sign of
//! life every 10 s, a subscription to its jobs and a look for a missed one every minute, for each job two signed
//! reports, the second of which has 10 kB after compression, and then a look for its confirmation. The coordinator is
//! that of `fleet prove --fleet`, beside one `fleet collect`. The database waits for the disk at every commit.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectOptions};
use futures_util::StreamExt;
use model::Random;
use remote::work::Call;
use testkit::note;
use testkit::servers::{Broker, Database};
use tokio::runtime::Builder;
use tokio::time::timeout;
use wirepath_fleet::book::{self, Archive, Coordinator, Job, JobState, Report, VERSION};
use wirepath_fleet::enrol::{Fleet, configuration};
use wirepath_fleet::keys::{Keyring, PublicKeys, Seeds};
use wirepath_fleet::message::{open, seal};
use wirepath_fleet::nats::NatsExchange;
use wirepath_fleet::postgres::PostgresArchive;

type Failure = Box<dyn Error + Send + Sync>;

/// Bytes of a result before compression; each of its characters holds six bits.
const BODY_BYTES: usize = 13_400;
/// Connections that are opened at the same time.
const OPENING: usize = 64;
/// Times that an agent tries to connect: a busy broker gives a login two seconds.
const TRIES: u32 = 30;
const IDLE: Duration = Duration::from_secs(20);
const BEAT: Duration = Duration::from_secs(10);
/// Signs of life between two looks for a job that was missed.
const BEATS_A_LOOK: u64 = 6;
/// File descriptors of the agents' process beside the connections.
const DESCRIPTORS: usize = 200;
/// Demands on 10,000 agents: memory and CPU of the idle broker, time until all results are stored.
const AT_MOST: &str = "at most 700 MiB, 15 % and 10 s are asked for with 10,000 agents on two CPUs";

fn main() -> Result<(), Failure> {
    let count = std::env::args().nth(1).unwrap_or("200".into());
    let count: usize = count.parse().map_err(|_| format!("{count} is no number of agents"))?;
    check_descriptors(count)?;
    let (Some(database), coordinator) = (Database::start_durable(), Seeds::generate()?) else {
        return Err("PostgreSQL is not installed".into());
    };
    let mut hosts: BTreeMap<String, Seeds> = BTreeMap::new();
    for at in 0..count {
        hosts.insert(format!("h{at}"), Seeds::generate()?);
    }
    let mut keys: BTreeMap<String, PublicKeys> = BTreeMap::new();
    for (name, seeds) in &hosts {
        keys.insert(name.clone(), seeds.public()?);
    }
    let mut fleet = Fleet::new(coordinator.public()?, keys);
    fleet.database = database.address("postgres");
    let broker =
        Broker::start(&configuration(&fleet, None)).ok_or("nats-server is not installed")?;
    fleet.broker = broker.url();
    let mut archive = PostgresArchive::open(&fleet.database, None)?;
    archive.create_tables()?;
    let address = fleet.address(&coordinator, None);
    let mut exchange = NatsExchange::core(&address, fleet.keyring(&coordinator)?)?;

    let connected = Arc::new(AtomicUsize::new(0));
    let (of_agents, url) = (Arc::clone(&connected), broker.url());
    let signer = fleet.coordinator.sign.clone();
    std::thread::Builder::new()
        .name("agents".into())
        .spawn(move || agents(hosts, &url, &signer, &of_agents))?;
    let begun = Instant::now();
    while connected.load(Ordering::Relaxed) < count {
        std::thread::sleep(Duration::from_millis(50));
        if begun.elapsed() > Duration::from_secs(600) {
            return Err(
                format!("only {} agents connected", connected.load(Ordering::Relaxed)).into()
            );
        }
    }
    note(&format!("{count} agents connected in {:.1} s", begun.elapsed().as_secs_f64()));
    let cpu = cpu_ticks(broker.pid())?;
    std::thread::sleep(IDLE);
    let idle = (cpu_ticks(broker.pid())? - cpu) as f64 / IDLE.as_secs_f64();
    // 100 ticks a second (USER_HZ).
    note(&format!("broker idle: {} MiB, {idle:.1} % of a CPU", memory_mib(broker.pid())?));
    let beside = NatsExchange::core(&address, fleet.keyring(&coordinator)?)?;
    let of_collector = PostgresArchive::open(&fleet.database, None)?;
    std::thread::Builder::new()
        .name("collect".into())
        .spawn(move || collect(beside, of_collector))?;
    let cpu = cpu_ticks(broker.pid())?;
    give(&mut exchange, &mut archive, fleet.hosts.keys())?;
    let cpu = (cpu_ticks(broker.pid())? - cpu) as f64 / 100.0;
    note(&format!("broker meanwhile: {cpu:.1} s of CPU time"));
    note(&format!("broker after it: {} MiB", memory_mib(broker.pid())?));
    note(&format!("rows: {}", database.sql("postgres", "SELECT count(*) FROM outcomes")));
    note(AT_MOST);
    Ok(())
}

/// Errors: a process may not open so many connections.
fn check_descriptors(count: usize) -> Result<(), Failure> {
    let text = fs::read_to_string("/proc/self/limits")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft: usize =
        line.and_then(|line| line.split_whitespace().next()).ok_or("no limit")?.parse()?;
    match count + DESCRIPTORS {
        needed if needed > soft => Err(format!(
            "{count} connections need {needed} file descriptors, and {soft} are allowed: ulimit -n {needed}"
        )
        .into()),
        _ => Ok(()),
    }
}

/// Body of the thread that collects reports; it ends with the process.
fn collect(mut exchange: NatsExchange, mut archive: PostgresArchive) {
    loop {
        if let Err(error) = book::collect(&mut exchange, &mut archive) {
            return note(&format!("the collector ended: {error}"));
        }
    }
}

/// Gives a job to every host, and waits until all results are stored.
fn give<'a>(
    exchange: &mut NatsExchange,
    archive: &mut PostgresArchive,
    hosts: impl Iterator<Item = &'a String>,
) -> Result<(), Failure> {
    archive.plan(
        &hosts
            .map(|host| Job::new("swarm", host, Call::StopPing, u64::MAX >> 1))
            .collect::<Vec<Job>>(),
    )?;
    let begun = Instant::now();
    let mut coordinator = Coordinator::new("swarm");
    let mut given = None;
    while !coordinator.turn(exchange, archive, {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |since| since.as_millis() as u64)
    })? {
        given.get_or_insert_with(|| begun.elapsed());
        if let Some(refusal) = exchange.take_refusals().first() {
            return Err(format!("a report was refused: {}", refusal.why).into());
        }
    }
    let given = given.unwrap_or(begun.elapsed()).as_secs_f64();
    note(&format!("all jobs given in {given:.1} s"));
    note(&format!("all results stored in {:.1} s", begun.elapsed().as_secs_f64()));
    Ok(())
}

/// Body of the thread of all agents; it ends with the process.
fn agents(hosts: BTreeMap<String, Seeds>, url: &str, coordinator: &str, connected: &AtomicUsize) {
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
    let digits = &digits();
    let agent = |(host, seeds): (String, Seeds)| async move {
        for _ in 0..TRIES {
            match connect(&host, &seeds, url).await {
                Ok(client) => return Some((host, seeds, client)),
                Err(error) => note(&format!("{host}: {error}; trying again")),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        None
    };
    runtime.block_on(async {
        let opening = futures_util::stream::iter(hosts).map(agent).buffer_unordered(OPENING);
        let serving =
            opening.filter_map(|opened| async move { opened }).map(|(host, seeds, client)| {
                connected.fetch_add(1, Ordering::Relaxed);
                async move {
                    if let Err(error) = serve(&host, &seeds, coordinator, client, digits).await {
                        note(&format!("{host}: {error}"));
                    }
                }
            });
        serving.for_each_concurrent(None, |agent| agent).await;
    });
}

async fn connect(host: &str, seeds: &Seeds, url: &str) -> Result<Client, Failure> {
    let options = ConnectOptions::new()
        .nkey(seeds.login.clone())
        .custom_inbox_prefix(format!("_INBOX_{host}"))
        .read_buffer_capacity(4096)
        .subscription_capacity(64)
        .request_timeout(Some(Duration::from_secs(120)));
    Ok(options.connect(url).await?)
}

async fn serve(
    host: &str,
    seeds: &Seeds,
    coordinator: &str,
    client: Client,
    digits: &str,
) -> Result<(), Failure> {
    let keys = Keyring::new(&seeds.sign, coordinator.to_owned(), BTreeMap::new())?;
    let mut jobs = client.subscribe(format!("wp.job.{host}")).await?;
    let mut unconfirmed = None;
    for beat in 0_u64.. {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let now_ms = now.as_millis().to_string();
        client.publish(format!("wp.up.{host}.hb"), now_ms.into()).await?;
        if let Some(fence) = unconfirmed {
            let confirmation = last(&client, &format!("{host}.last.stored.{fence}")).await?;
            unconfirmed = unconfirmed.filter(|_| !confirmation);
        }
        if beat % BEATS_A_LOOK == 0 {
            last(&client, &format!("{host}.last.job")).await?;
        }
        let Ok(message) = timeout(BEAT, jobs.next()).await else { continue };
        let Some(message) = message else { break };
        let job: Job = open(&keys, host, &message.payload)?;
        for state in [JobState::Running, JobState::Done] {
            let body =
                if state == JobState::Done { body(digits, job.fence) } else { String::new() };
            let report = Report {
                v: VERSION,
                job: job.job.clone(),
                host: host.to_owned(),
                attempt: job.attempt,
                fence: job.fence,
                state,
                body,
            };
            let sealed = seal(&keys, &report)?;
            client.request(format!("wp.up.{host}.result"), sealed.into()).await?;
        }
        unconfirmed = Some(job.fence);
    }
    Err("the broker ended the connection".into())
}

/// True if a stream has the message that agents know by this name.
async fn last(client: &Client, of: &str) -> Result<bool, Failure> {
    let answer = client.request(format!("wp.up.{of}"), "".into()).await?;
    Ok(answer.status.is_none())
}

/// Text without repetitions, from which each agent takes a part of its own.
fn digits() -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut random = Random::new(1, 0);
    (0..2 * BODY_BYTES).map(|_| char::from(DIGITS[random.below(64) as usize])).collect()
}

/// Result of a job.
fn body(digits: &str, fence: u64) -> String {
    let begin = fence as usize % BODY_BYTES;
    digits[begin..begin + BODY_BYTES].to_owned()
}

/// Time that a process has run, in ticks.
///
/// Source: proc(5), /proc/PID/stat, fields 14 and 15.
fn cpu_ticks(pid: u32) -> Result<u64, Failure> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after = text.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks = fields.get(11..13).ok_or("no such fields")?;
    ticks.iter().map(|field| Ok(field.parse::<u64>()?)).sum()
}

fn memory_mib(pid: u32) -> Result<u64, Failure> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let words = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmRSS")?;
    Ok(words.parse::<u64>()? / 1024)
}
