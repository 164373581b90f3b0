//! The same roll-out over agents: each step is a job in real books.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use remote::work::{Call, RolloutStep};
use tempfile::TempDir;
use wirepath_fleet::book::{Agent, Archive, Coordinator, Outbox, SqliteBook};
use wirepath_fleet::rollout::{Answers, HostStep, RolloutState, Size, StepLimits, Steps, measured};

use super::{
    Fault, Killed, RolloutEvent, Setting, Way, World, check_end, ends_by, let_switches_act,
    perform, process_over, with_plan,
};

/// Milliseconds of a tick.
const TICK_MS: u64 = 1_000;
/// Ticks in which a host answers a step that measures nothing.
const ANSWER: u64 = 8;
const HOSTS: usize = 3;

/// Agents and their books, which outlive the process that conducts.
struct Fleet {
    folder: TempDir,
    agents: Vec<Agent>,
    book: SqliteBook,
    steps: u64,
}

impl Fleet {
    fn new() -> Self {
        // In memory: the books wait for the disk a hundred times a roll-out.
        let memory = PathBuf::from("/dev/shm");
        let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let folder = tempfile::tempdir_in(folder).expect("a folder");
        let book = SqliteBook::open(folder.path().join("fleet.db")).expect("books");
        let agents = (0..HOSTS).map(|at| agent(folder.path(), at)).collect();
        Fleet { folder, agents, book, steps: 0 }
    }

    /// One turn of an agent, which may be killed in it.
    fn turn(&mut self, world: &RefCell<World>, at: usize) {
        let now = world.borrow().now;
        if world.borrow().hosts[at].lost_until > now {
            return;
        }
        let is_killed = world.borrow().agent_kills.contains(&at);
        // Before, at or after the work, by the time of the fault.
        let mut left = if is_killed { now % 4 } else { u64::MAX };
        self.agents[at]
            .turn(
                &mut self.book,
                now * TICK_MS,
                |job: &wirepath_fleet::book::Job| {
                    let mut world = world.borrow_mut();
                    let Call::Step(step) = &job.call else { panic!("not a step: {:?}", job.call) };
                    let answer =
                        perform(step.owner().unwrap_or_default(), &mut world.hosts[at], now);
                    world.check();
                    measured(&answer)
                },
                |_| {
                    let goes_on = left > 0;
                    left = left.saturating_sub(1);
                    goes_on
                },
            )
            .expect("books");
        if is_killed {
            let mut world = world.borrow_mut();
            world.agent_kills.retain(|killed| *killed != at);
            let host = &mut world.hosts[at];
            // The program that waits for the confirmation ends with it.
            if let Setting::Unconfirmed(_) = host.setting {
                host.setting = Setting::Before;
            }
            self.agents[at] = agent(self.folder.path(), at);
        }
    }
}

fn agent(folder: &Path, at: usize) -> Agent {
    let outbox = Outbox::open(folder.join(format!("{at}.db")), format!("h{at}")).expect("memory");
    Agent::start(format!("h{at}"), outbox).expect("memory")
}

/// One process that conducts.
struct ByJobs<'a> {
    world: &'a RefCell<World>,
    fleet: &'a mut Fleet,
    archive: SqliteBook,
}

impl<'a> ByJobs<'a> {
    fn new(world: &'a RefCell<World>, fleet: &'a mut Fleet) -> Self {
        let mut archive = SqliteBook::open(fleet.folder.path().join("fleet.db")).expect("books");
        for entry in archive.entries(None).expect("books") {
            let left = Coordinator::new(entry.job.experiment);
            left.cancel(&mut archive, "its coordinator ended").expect("books");
        }
        ByJobs { world, fleet, archive }
    }
}

impl Way for ByJobs<'_> {
    fn world(&self) -> &RefCell<World> {
        self.world
    }

    fn each(&mut self, hosts: &[usize], step: &str) -> Result<Answers, Killed> {
        let now = self.world.borrow().now;
        let deadline_ms = |ticks: u64| (now + ticks) * TICK_MS;
        let limits = match step {
            "measure" => StepLimits { not_after_ms: deadline_ms(30), until_ms: None },
            "roll back" => {
                StepLimits { not_after_ms: deadline_ms(1000), until_ms: Some(deadline_ms(ANSWER)) }
            }
            _ => StepLimits {
                not_after_ms: deadline_ms(ANSWER),
                until_ms: Some(deadline_ms(ANSWER)),
            },
        };
        let steps: Vec<HostStep> = hosts
            .iter()
            .map(|at| HostStep {
                at: *at,
                host: format!("h{at}"),
                // The world of this test knows steps by name.
                call: Call::Step(Box::new(RolloutStep::Confirm { owner: step.to_owned() })),
                is_repeatable: step != "apply",
            })
            .collect();
        self.fleet.steps += 1;
        let mut steps =
            Steps::plan(&mut self.archive, "rollout", self.fleet.steps, &steps, limits)?;
        loop {
            self.world.borrow_mut().tick()?;
            let now_ms = self.world.borrow().now * TICK_MS;
            if steps.turn(&mut self.fleet.book, &mut self.archive, now_ms)? {
                return Ok(steps.answers(&mut self.archive)?);
            }
            for at in 0..HOSTS {
                self.fleet.turn(self.world, at);
            }
        }
    }
}

/// End of a roll-out under faults, and its length in ticks.
fn roll_out(faults: &[(u64, Fault, usize)]) -> (RolloutState, u64) {
    let world = World::new(HOSTS, &[Size::Hosts(1), Size::Share(1.0)], faults);
    let mut fleet = Fleet::new();
    let mut process =
        |event: RolloutEvent| process_over(&world, event, ByJobs::new(&world, &mut fleet));
    let end = ends_by(&world, false, &mut process);
    let length = world.borrow().now;
    check_end(&world, end);
    if end == RolloutState::Done {
        // A host that was confirmed and restarts has the values of its boot.
        let has_restarted = faults.iter().any(|(_, fault, _)| *fault == Fault::Restart);
        assert!(has_restarted || with_plan(&world).len() == HOSTS, "{faults:?}");
        let aborted = ends_by(&world, false, |event| match event {
            RolloutEvent::Resume => process(RolloutEvent::Abort),
            other => process(other),
        });
        assert_eq!(aborted, RolloutState::RolledBack);
        let_switches_act(&world);
        assert_eq!(with_plan(&world), [0; 0]);
    }
    (end, length)
}

/// Each fault alone at moments of every state; the direct roll-out meets all moments.
#[test]
fn over_agents_no_host_keeps_a_plan_that_was_not_confirmed_for_it() {
    let (end, moments) = roll_out(&[]);
    assert_eq!(end, RolloutState::Done);
    for fault in [Fault::Kill, Fault::AgentKill, Fault::Lose, Fault::Restart, Fault::Worse] {
        let mut ends = Vec::new();
        for moment in 1..=moments {
            ends.push(roll_out(&[(moment, fault, moment as usize)]).0);
        }
        let count = |end| ends.iter().filter(|of| **of == end).count();
        match fault {
            Fault::Kill => assert_eq!(count(RolloutState::Done), ends.len(), "a kill alone delays"),
            _ => assert!(count(RolloutState::RolledBack) > 0, "{fault:?}: {ends:?}"),
        }
    }
}
