//! Random faults: agents and coordinators that are killed between any two calls, messages that come twice
//! or never, hosts that are silent, jobs that expire, an exchange that loses everything.

use std::collections::BTreeSet;

use model::Random;
use wirepath_fleet::book::{
    Agent, Archive, BookEntry, BookError, Coordinator, Exchange, Job, JobRow, JobState, Measured,
    Report,
};

use super::Pair;
use super::suite::job;

const HOSTS: [&str; 3] = ["h1", "h2", "h3"];
/// Jobs of one combination.
pub(crate) const JOBS: usize = 9;

/// A server of the pair.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Server {
    Broker,
    Database,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// Between any two calls or writes.
    AgentKilled,
    CoordinatorKilled,
    JobAgain,
    ReportsAgain,
    /// Time passes without a sign of life.
    Silence,
    /// The exchange loses all that it holds.
    MessagesLost,
    ServerKilled(Server),
}

pub(crate) const FAULTS: [Fault; 8] = [
    Fault::AgentKilled,
    Fault::CoordinatorKilled,
    Fault::JobAgain,
    Fault::ReportsAgain,
    Fault::Silence,
    Fault::MessagesLost,
    Fault::ServerKilled(Server::Broker),
    Fault::ServerKilled(Server::Database),
];

/// A book whose user is killed before one of its calls.
struct Fused<B> {
    book: B,
    /// Calls that are left.
    calls: u64,
}

impl<B> Fused<B> {
    fn burn(&mut self) -> Result<&mut B, BookError> {
        self.calls = self.calls.checked_sub(1).ok_or_else(|| BookError::Strange {
            place: String::new(),
            what: "kill",
            why: String::new(),
        })?;
        Ok(&mut self.book)
    }
}

impl<B: Exchange> Exchange for Fused<B> {
    fn send(&mut self, jobs: &[Job]) -> Result<(), BookError> {
        // Killed after some of them.
        for job in jobs {
            self.burn()?.send(std::slice::from_ref(job))?;
        }
        Ok(())
    }
    fn next(&mut self, host: &str) -> Result<Option<Job>, BookError> {
        self.burn()?.next(host)
    }
    fn report(&mut self, report: &Report) -> Result<(), BookError> {
        self.burn()?.report(report)
    }
    fn reports(&mut self) -> Result<Vec<(i64, Report)>, BookError> {
        self.burn()?.reports()
    }
    fn acknowledge(&mut self, numbers: &[i64]) -> Result<(), BookError> {
        for number in numbers {
            self.burn()?.acknowledge(&[*number])?;
        }
        Ok(())
    }
    fn confirm(&mut self, fences: &[u64]) -> Result<(), BookError> {
        for fence in fences {
            self.burn()?.confirm(&[*fence])?;
        }
        Ok(())
    }
    fn is_confirmed(&mut self, fence: u64) -> Result<bool, BookError> {
        self.burn()?.is_confirmed(fence)
    }
    fn lease(&mut self, host: &str, fence: u64, now: u64, until: u64) -> Result<bool, BookError> {
        self.burn()?.lease(host, fence, now, until)
    }
    fn release(&mut self, host: &str, fence: u64) -> Result<(), BookError> {
        self.burn()?.release(host, fence)
    }
    fn beat(&mut self, host: &str, now_ms: u64) -> Result<(), BookError> {
        self.burn()?.beat(host, now_ms)
    }
    fn are_alive(&mut self, hosts: &[&str], now_ms: u64) -> Result<Vec<bool>, BookError> {
        self.burn()?.are_alive(hosts, now_ms)
    }
}

impl<B: Archive> Archive for Fused<B> {
    fn plan(&mut self, jobs: &[Job]) -> Result<(), BookError> {
        self.burn()?.plan(jobs)
    }
    fn give(&mut self, planned: &[BookEntry]) -> Result<Vec<BookEntry>, BookError> {
        self.burn()?.give(planned)
    }
    fn store(&mut self, reports: &[Report]) -> Result<(), BookError> {
        for report in reports {
            self.burn()?.store(std::slice::from_ref(report))?;
        }
        Ok(())
    }
    fn again(&mut self, entry: &BookEntry) -> Result<bool, BookError> {
        self.burn()?.again(entry)
    }
    fn close(&mut self, entry: &BookEntry, row: &JobRow) -> Result<bool, BookError> {
        self.burn()?.close(entry, row)
    }
    fn entries(&mut self, experiment: Option<&str>) -> Result<Vec<BookEntry>, BookError> {
        self.burn()?.entries(experiment)
    }
    fn open_entries(&mut self, experiment: &str) -> Result<Vec<BookEntry>, BookError> {
        self.burn()?.open_entries(experiment)
    }
    fn newest(&mut self, count: u32) -> Result<Vec<String>, BookError> {
        self.burn()?.newest(count)
    }
    fn rows(&mut self, experiment: &str) -> Result<Vec<JobRow>, BookError> {
        self.burn()?.rows(experiment)
    }
}

struct World<'a, P: Pair> {
    pair: &'a P,
    random: Random,
    now_ms: u64,
    agents: Vec<Agent>,
    coordinator: Coordinator,
    /// Fences whose measurement began.
    begun: Vec<u64>,
    /// Kills of agents, and reports that were lost.
    kills: usize,
}

impl<P: Pair> World<'_, P> {
    fn agent_turn(&mut self, at: usize, is_killed: bool) {
        let calls = if is_killed { self.random.below(14) } else { u64::MAX };
        let mut book = Fused { book: self.pair.open(), calls };
        // A kill between two writes to the agent's own disk.
        let kill_at = if is_killed { self.random.below(6) } else { u64::MAX };
        let (begun, mut moments) = (&mut self.begun, 0);
        let ended = self.agents[at].turn(
            &mut book,
            self.now_ms,
            |job: &Job| {
                begun.push(job.fence);
                Measured::Done(format!("{} {}", job.job, job.attempt))
            },
            |_| {
                moments += 1;
                moments <= kill_at
            },
        );
        assert!(is_killed || ended.is_ok(), "{ended:?}");
        if is_killed {
            self.kills += 1;
            self.agents[at] = Agent::start(HOSTS[at], self.pair.outbox(HOSTS[at])).unwrap();
        }
    }

    fn coordinator_turn(&mut self, is_killed: bool) -> bool {
        let calls = if is_killed { self.random.below(20) } else { u64::MAX };
        let mut exchange = Fused { book: self.pair.open(), calls };
        let calls = if is_killed { self.random.below(20) } else { u64::MAX };
        let mut archive = Fused { book: self.pair.open(), calls };
        let ended = self.coordinator.turn(&mut exchange, &mut archive, self.now_ms);
        assert!(is_killed || ended.is_ok(), "{ended:?}");
        if is_killed {
            self.coordinator = Coordinator::new("e");
        }
        ended.unwrap_or(false)
    }

    fn meet(&mut self, fault: Fault) {
        let mut book = self.pair.open();
        match fault {
            Fault::AgentKilled => {
                let at = self.random.below(HOSTS.len() as u64) as usize;
                self.agent_turn(at, true);
            }
            Fault::CoordinatorKilled => drop(self.coordinator_turn(true)),
            Fault::JobAgain => {
                let entries = book.entries(None).unwrap();
                let at = self.random.below(entries.len().max(1) as u64) as usize;
                if let Some(entry) = entries
                    .get(at)
                    .filter(|of| matches!(of.state, JobState::Given | JobState::Running))
                {
                    book.send(std::slice::from_ref(&entry.job)).unwrap();
                }
            }
            Fault::ReportsAgain => {
                for (_, report) in book.reports().unwrap() {
                    book.report(&report).unwrap();
                }
            }
            Fault::Silence => self.now_ms += self.random.below(45_000),
            Fault::MessagesLost => {
                self.pair.wipe_exchange();
                self.kills += HOSTS.len();
                self.coordinator = Coordinator::new("e");
            }
            Fault::ServerKilled(server) => self.pair.restart(server),
        }
    }

    /// Next fault of a combination.
    fn drawn(&mut self) -> Fault {
        FAULTS[self.random.below(FAULTS.len() as u64) as usize]
    }
}

/// Runs a combination of faults, or one of them again and again, and then lets all jobs end. Returns the number of
/// measurements that began, and of kills.
pub(crate) fn run(pair: &impl Pair, seed: u64, only: Option<Fault>) -> (usize, usize) {
    let mut random = Random::new(seed, 3);
    let mut jobs: Vec<Job> = (0..JOBS).map(|at| job(&format!("j{at}"), HOSTS[at % 3])).collect();
    for job in &mut jobs {
        if random.below(5) == 0 {
            job.not_after_ms = random.below(60_000);
        }
    }
    pair.open().plan(&jobs).unwrap();
    let agents = HOSTS.iter().map(|host| Agent::start(*host, pair.outbox(host)).unwrap()).collect();
    let coordinator = Coordinator::new("e");
    let mut world =
        World { pair, random, now_ms: 0, agents, coordinator, begun: Vec::new(), kills: 0 };
    for _ in 0..30 {
        match world.random.below(6) {
            0 | 1 => {
                let fault = only.unwrap_or_else(|| world.drawn());
                world.meet(fault);
            }
            2 => drop(world.coordinator_turn(false)),
            _ => {
                let at = world.random.below(3) as usize;
                world.agent_turn(at, false);
            }
        }
    }
    let has_ended = (0..100).any(|_| {
        world.now_ms += 5_000;
        (0..HOSTS.len()).for_each(|at| world.agent_turn(at, false));
        world.coordinator_turn(false)
    });
    let mut book = pair.open();
    let entries = book.entries(Some("e")).unwrap();
    assert!(has_ended, "seed {seed}: {entries:?}");
    let rows = book.rows("e").unwrap();
    let named: BTreeSet<&str> = rows.iter().map(|row| row.job.as_str()).collect();
    assert_eq!((rows.len(), named.len()), (jobs.len(), jobs.len()), "seed {seed}: {rows:?}");
    for row in rows.iter().filter(|row| row.state == JobState::Done) {
        assert_eq!(row.body, format!("{} {}", row.job, row.attempt), "seed {seed}");
    }
    let once: BTreeSet<u64> = world.begun.iter().copied().collect();
    assert_eq!(once.len(), world.begun.len(), "seed {seed}: a fence was measured twice");
    let bound = jobs.len() + world.kills;
    assert!(world.begun.len() <= bound, "seed {seed}: {} begun, {bound}", world.begun.len());
    (world.begun.len(), world.kills)
}
