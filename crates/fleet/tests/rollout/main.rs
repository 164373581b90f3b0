//! The roll-out against simulated hosts under every fault: no host keeps a plan that was not confirmed for it.

mod agents;

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;
use wirepath_fleet::book::BookError;
use wirepath_fleet::rollout::{
    Answers, Conductor, Draw, Hosts, Ledger, LedgerRow, Proof, RolloutEvent, RolloutGate,
    RolloutState, Size, StepAnswer, Watched,
};

/// Time after which a host rolls back by itself, in requests of all hosts together.
const SWITCH: u64 = 40;
/// Times that a host is watched while it holds.
const WATCHES: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The process that conducts is killed.
    Kill,
    /// The host restarts: its settings are those from before the plan.
    Restart,
    /// Requests do not reach the host for a while.
    Lose,
    /// The host does what is asked, and its answers do not arrive for a while.
    Mute,
    /// The plan is worse in the next proof.
    Worse,
    /// The plan seems to be worse in the next proof.
    Suspect,
    /// The next proof shows nothing.
    Unclear,
    /// The control group differs from itself in the next proof.
    Void,
    /// The next host to apply cannot.
    Refuse,
    /// Another process changes a setting on the host.
    Drift,
    /// The user interrupts.
    Stop,
    /// The agent of the host is killed, and started again.
    AgentKill,
}

const FAULTS: [Fault; 11] = [
    Fault::Kill,
    Fault::Restart,
    Fault::Lose,
    Fault::Mute,
    Fault::Worse,
    Fault::Suspect,
    Fault::Unclear,
    Fault::Void,
    Fault::Refuse,
    Fault::Drift,
    Fault::Stop,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setting {
    Before,
    /// Rolled back at this time.
    Unconfirmed(u64),
    Confirmed,
}

#[derive(Debug, Clone)]
struct Host {
    setting: Setting,
    /// Time until which requests are lost, or answers.
    lost_until: u64,
    mute_until: u64,
    has_drifted: bool,
}

struct World {
    draw: Draw,
    hosts: Vec<Host>,
    rows: Vec<LedgerRow>,
    now: u64,
    /// Faults by time, each with its host.
    faults: BTreeMap<u64, (Fault, usize)>,
    /// Faults of the process that conducts, until it has met them.
    pending: Vec<Fault>,
    /// Hosts whose agents are killed in their next turn.
    agent_kills: Vec<usize>,
}

#[derive(Debug)]
struct Killed;

impl From<BookError> for Killed {
    fn from(_: BookError) -> Self {
        Killed
    }
}

impl World {
    fn new(hosts: usize, sizes: &[Size], faults: &[(u64, Fault, usize)]) -> RefCell<World> {
        let host =
            Host { setting: Setting::Before, lost_until: 0, mute_until: 0, has_drifted: false };
        let faults = faults.iter().map(|&(at, fault, of)| (at, (fault, of % hosts)));
        RefCell::new(World {
            draw: Draw::new(hosts, sizes, 7).expect("growing sizes"),
            hosts: vec![host; hosts],
            rows: Vec::new(),
            now: 0,
            faults: faults.collect(),
            pending: Vec::new(),
            agent_kills: Vec::new(),
        })
    }

    /// Time passes. Errors: the process was killed.
    fn tick(&mut self) -> Result<(), Killed> {
        self.now += 1;
        let now = self.now;
        for host in &mut self.hosts {
            if matches!(host.setting, Setting::Unconfirmed(until) if until < now) {
                host.setting = Setting::Before;
            }
        }
        self.check();
        let Some((fault, of)) = self.faults.remove(&now) else { return Ok(()) };
        match fault {
            Fault::Kill => return Err(Killed),
            Fault::Restart => {
                self.hosts[of].setting = Setting::Before;
                self.hosts[of].lost_until = now + 5;
            }
            Fault::Lose => self.hosts[of].lost_until = now + 30,
            Fault::Mute => self.hosts[of].mute_until = now + 30,
            Fault::Drift => self.hosts[of].has_drifted = true,
            Fault::AgentKill => self.agent_kills.push(of),
            _ => self.pending.push(fault),
        }
        Ok(())
    }

    /// No host has a plan without a row that came before.
    fn check(&self) {
        let reached = |state| self.rows.iter().any(|row| row.state == state);
        for (at, host) in self.hosts.iter().enumerate() {
            let stage = (0..self.draw.stages()).find(|s| self.draw.stage(*s).contains(&at));
            let is_allowed = match (host.setting, stage) {
                (Setting::Before, _) => true,
                (Setting::Unconfirmed(_), Some(stage)) => reached(RolloutState::Applying { stage }),
                (Setting::Confirmed, Some(stage)) => reached(RolloutState::Confirming { stage }),
                (_, None) => false,
            };
            assert!(is_allowed, "host {at}: {:?} with {:#?}", host.setting, self.rows);
        }
    }

    fn meets(&mut self, fault: Fault) -> bool {
        let at = self.pending.iter().position(|pending| *pending == fault);
        at.map(|at| self.pending.remove(at)).is_some()
    }

    /// Judgement on the next proof.
    fn gate(&mut self) -> RolloutGate {
        type Ending = fn(String) -> RolloutGate;
        let gates: [(Fault, Ending); 4] = [
            (Fault::Worse, RolloutGate::Shut),
            (Fault::Void, RolloutGate::Void),
            (Fault::Suspect, RolloutGate::Suspect),
            (Fault::Unclear, RolloutGate::Unclear),
        ];
        let met = gates.into_iter().find(|(fault, _)| self.meets(*fault));
        met.map_or(RolloutGate::Open as Ending, |(_, gate)| gate)("shown".into())
    }

    /// Has a host do something, if the request arrives; its answer may not.
    fn ask(
        &mut self,
        at: usize,
        work: impl FnOnce(&mut Host, u64) -> StepAnswer,
    ) -> Result<(usize, StepAnswer), Killed> {
        self.tick()?;
        let now = self.now;
        let host = &mut self.hosts[at];
        let silent = || StepAnswer::Silent("no answer".into());
        if host.lost_until > now {
            return Ok((at, silent()));
        }
        let answer = work(host, now);
        let is_mute = host.mute_until > now;
        // Killed between the work and its record.
        self.tick()?;
        Ok((at, if is_mute { silent() } else { answer }))
    }
}

fn done() -> StepAnswer {
    StepAnswer::Done(String::new())
}

/// A step on a host.
fn perform(step: &str, host: &mut Host, now: u64) -> StepAnswer {
    match (step, host.setting) {
        ("apply", Setting::Before) => {
            host.setting = Setting::Unconfirmed(now + SWITCH);
            done()
        }
        // Of a process that was killed: it is not watched any longer.
        ("apply", _) => StepAnswer::Failed("settings are already applied".into()),
        ("refuse", _) => StepAnswer::Failed("no such queue".into()),
        ("watch", _) if host.has_drifted => StepAnswer::Drifted("x is 3".into()),
        ("watch", Setting::Unconfirmed(_)) => {
            host.setting = Setting::Unconfirmed(now + SWITCH);
            done()
        }
        ("watch", _) => StepAnswer::Failed("rolled back by itself".into()),
        ("confirm", Setting::Before) => StepAnswer::Failed("nothing to confirm".into()),
        ("confirm", _) => {
            host.setting = Setting::Confirmed;
            done()
        }
        ("roll back", _) => {
            host.setting = Setting::Before;
            host.has_drifted = false;
            done()
        }
        _ => done(),
    }
}

/// How the steps reach the hosts of a world.
trait Way {
    fn world(&self) -> &RefCell<World>;

    /// Has each host do a step.
    fn each(&mut self, hosts: &[usize], step: &str) -> Result<Answers, Killed>;
}

struct Simulated<'a>(&'a RefCell<World>);

impl Way for Simulated<'_> {
    fn world(&self) -> &RefCell<World> {
        self.0
    }

    fn each(&mut self, hosts: &[usize], step: &str) -> Result<Answers, Killed> {
        hosts
            .iter()
            .map(|at| self.0.borrow_mut().ask(*at, |host, now| perform(step, host, now)))
            .collect()
    }
}

/// The hosts of a world, as a roll-out asks them.
struct Reached<W>(W);

impl<W: Way> Hosts for Reached<W> {
    type Error = Killed;

    fn baseline(&mut self, hosts: &[usize]) -> Result<(Answers, Vec<Option<f64>>), Killed> {
        Ok((self.0.each(hosts, "measure")?, vec![Some(1.0); hosts.len()]))
    }

    fn prove(
        &mut self,
        stage: &[usize],
        _control: &[usize],
        levels: &[Option<f64>],
    ) -> Result<(Answers, Proof), Killed> {
        assert!(!levels.is_empty(), "the baseline survives a kill");
        let answers = self.0.each(stage, "measure")?;
        let gate = self.0.world().borrow_mut().gate();
        Ok((answers, Proof { gate, plan: None, live: None, control_count: 0, control_drift: None }))
    }

    fn apply(&mut self, hosts: &[usize]) -> Result<Answers, Killed> {
        let refuses = self.0.world().borrow_mut().meets(Fault::Refuse);
        self.0.each(hosts, if refuses { "refuse" } else { "apply" })
    }

    fn hold(&mut self, watched: &mut Watched) -> Result<(), Killed> {
        for _ in 0..WATCHES {
            let answers = self.0.each(watched.hosts(), "watch")?;
            if !watched.take(answers) {
                break;
            }
        }
        Ok(())
    }

    fn confirm(&mut self, hosts: &[usize]) -> Result<Answers, Killed> {
        self.0.each(hosts, "confirm")
    }

    fn roll_back(&mut self, hosts: &[usize]) -> Result<Answers, Killed> {
        self.0.each(hosts, "roll back")
    }

    fn is_stopped(&self) -> bool {
        self.0.world().borrow().pending.contains(&Fault::Stop)
    }
}

struct Memory<'a>(&'a RefCell<World>);

impl Ledger for Memory<'_> {
    fn record(&mut self, row: &LedgerRow) -> Result<(), BookError> {
        let killed =
            |_| BookError::Strange { place: String::new(), what: "row", why: "killed".into() };
        self.0.borrow_mut().tick().map_err(killed)?;
        self.0.borrow_mut().rows.push(row.clone());
        self.0.borrow_mut().tick().map_err(killed)
    }

    fn rows(&mut self) -> Result<Vec<LedgerRow>, BookError> {
        Ok(self.0.borrow().rows.clone())
    }
}

/// Begins or goes on with the roll-out as a new process, to its end or to its own.
fn process(world: &RefCell<World>, event: RolloutEvent) -> Result<RolloutState, Killed> {
    process_over(world, event, Simulated(world))
}

fn process_over(
    world: &RefCell<World>,
    event: RolloutEvent,
    way: impl Way,
) -> Result<RolloutState, Killed> {
    let mut hosts = Reached(way);
    let draw = world.borrow().draw.clone();
    let names: Vec<String> = (0..world.borrow().hosts.len()).map(|at| format!("h{at}")).collect();
    let is_new = world.borrow().rows.is_empty();
    // A new process was not interrupted yet.
    world.borrow_mut().pending.retain(|fault| *fault != Fault::Stop);
    let mut ledger = Memory(world);
    let mut conductor = Conductor::new(&draw, &names, &mut hosts, &mut ledger)?;
    if !is_new {
        conductor.take(event, "asked for")?;
    }
    conductor.run()
}

/// Starts processes until the roll-out has ended; `gives_up` aborts what pauses.
fn to_its_end(world: &RefCell<World>, gives_up: bool) -> RolloutState {
    ends_by(world, gives_up, |event| process(world, event))
}

fn ends_by(
    world: &RefCell<World>,
    gives_up: bool,
    mut process: impl FnMut(RolloutEvent) -> Result<RolloutState, Killed>,
) -> RolloutState {
    for _ in 0..200 {
        match process(RolloutEvent::Resume) {
            Ok(RolloutState::Paused { .. }) if gives_up => {
                let _may_be_killed = process(RolloutEvent::Abort);
            }
            Ok(RolloutState::Paused { .. } | RolloutState::Stuck { .. }) | Err(Killed) => {}
            Ok(state) => return state,
        }
        // Time until the next process; faults in it are met by the hosts alone.
        (0..20).for_each(|_| drop(world.borrow_mut().tick()));
    }
    panic!("no end: {:#?}", world.borrow().rows.last());
}

fn let_switches_act(world: &RefCell<World>) {
    (0..=SWITCH + 1).for_each(|_| drop(world.borrow_mut().tick()));
}

fn with_plan(world: &RefCell<World>) -> Vec<usize> {
    let world = world.borrow();
    (0..world.hosts.len()).filter(|at| world.hosts[*at].setting != Setting::Before).collect()
}

fn check_end(world: &RefCell<World>, end: RolloutState) {
    let_switches_act(world);
    let was_worse = world.borrow().rows.iter().any(|row| {
        row.proof.as_ref().is_some_and(|proof| matches!(proof.gate, RolloutGate::Shut(_)))
    });
    match end {
        RolloutState::RolledBack => {
            assert_eq!(with_plan(world), [0; 0], "{:#?}", world.borrow().rows)
        }
        RolloutState::Done => assert!(!was_worse, "{:#?}", world.borrow().rows),
        other => panic!("{other} is not a final state"),
    }
}

fn sizes() -> Vec<Size> {
    vec![Size::Hosts(1), Size::Share(0.5), Size::Share(1.0)]
}

#[test]
fn without_faults_every_host_has_the_plan() {
    let world = World::new(8, &sizes(), &[]);
    assert_eq!(to_its_end(&world, false), RolloutState::Done);
    let_switches_act(&world);
    assert_eq!(with_plan(&world).len(), 8);
    assert_eq!(process(&world, RolloutEvent::Abort).unwrap(), RolloutState::RolledBack);
    assert_eq!(with_plan(&world), [0; 0]);
    assert!(world.borrow().rows.last().unwrap().answers.len() == 8);
}

/// Each fault alone at each moment: every state, before and after its row, and between any two hosts.
#[test]
fn each_fault_at_each_moment_alone() {
    let clean = World::new(8, &sizes(), &[]);
    to_its_end(&clean, false);
    let moments = clean.borrow().now;
    let mut ends = BTreeMap::new();
    for fault in FAULTS {
        for moment in 1..=moments {
            let world = World::new(8, &sizes(), &[(moment, fault, moment as usize)]);
            let end = to_its_end(&world, false);
            check_end(&world, end);
            *ends.entry((format!("{fault:?}"), end.to_string())).or_insert(0) += 1;
        }
    }
    let count = |fault: &str, end: &str| ends.get(&(fault.into(), end.into())).copied();
    assert_eq!(count("Kill", "done"), Some(moments), "a kill alone delays: {ends:?}");
    assert_eq!(count("Stop", "done"), Some(moments), "so does a pause: {ends:?}");
    for noise in ["Suspect", "Unclear"] {
        assert_eq!(count(noise, "done"), Some(moments), "measured again: {ends:?}");
    }
    assert!(count("Worse", "rolled back") > Some(0), "{ends:?}");
    assert!(count("Refuse", "rolled back") > Some(0), "{ends:?}");
    assert!(count("Drift", "rolled back") > Some(0), "{ends:?}");
}

#[test]
fn host_that_is_silent_while_the_plan_is_rolled_back_is_named() {
    let world = World::new(8, &sizes(), &[]);
    assert_eq!(to_its_end(&world, false), RolloutState::Done);
    world.borrow_mut().hosts[3].lost_until = u64::MAX;
    assert_eq!(process(&world, RolloutEvent::Abort).unwrap(), RolloutState::Stuck { stages: 3 });
    assert!(world.borrow().rows.last().unwrap().why.contains("h3"));
    assert_eq!(with_plan(&world), [3]);
    world.borrow_mut().hosts[3].lost_until = 0;
    assert_eq!(process(&world, RolloutEvent::Resume).unwrap(), RolloutState::RolledBack);
    assert_eq!(with_plan(&world), [0; 0]);
}

/// The first proof of the roll-out meets these, one after the other.
fn after_proofs(met: &[Fault]) -> (RolloutState, RefCell<World>) {
    let world = World::new(3, &sizes(), &[]);
    world.borrow_mut().pending.extend(met);
    let end = process(&world, RolloutEvent::Resume).expect("no fault of the process");
    (end, world)
}

#[test]
fn plan_that_seems_worse_twice_is_rolled_back_and_one_that_shows_nothing_waits_for_the_user() {
    let (end, world) = after_proofs(&[Fault::Suspect, Fault::Suspect]);
    assert_eq!(end, RolloutState::RolledBack, "{:#?}", world.borrow().rows);
    let (end, world) = after_proofs(&[Fault::Unclear; 3]);
    assert_eq!(end, RolloutState::Paused { stage: 0, proven: false });
    assert!(world.borrow().rows.iter().all(|row| row.state != RolloutState::Applying { stage: 0 }));
    // A new series: two that show nothing and one that passes.
    world.borrow_mut().pending.extend([Fault::Unclear; 2]);
    assert_eq!(process(&world, RolloutEvent::Resume).unwrap(), RolloutState::Done);
    let proofs = world.borrow().rows.iter().filter(|row| row.proof.is_some()).count();
    assert_eq!(proofs, 3 + 3 + 2);
}

#[test]
fn what_is_kept_can_no_longer_be_aborted() {
    let world = World::new(3, &sizes(), &[]);
    to_its_end(&world, false);
    assert_eq!(process(&world, RolloutEvent::Keep).unwrap(), RolloutState::Kept);
    assert_eq!(process(&world, RolloutEvent::Abort).unwrap(), RolloutState::Kept);
    assert_eq!(with_plan(&world).len(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_host_keeps_a_plan_that_was_not_confirmed_for_it(
        hosts in 3usize..14,
        faults in prop::collection::vec((1u64..400, select(&FAULTS[..]), 0usize..14), 0..8),
        gives_up: bool,
    ) {
        let world = World::new(hosts, &sizes(), &faults);
        let end = to_its_end(&world, gives_up);
        check_end(&world, end);
    }
}
