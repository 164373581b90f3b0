//! Performs the states of a roll-out.

use super::answer::{Watched, judge, silent_max};
use super::gate::decide;
use super::{
    Answers, Draw, Ledger, LedgerRow, Proof, RolloutEvent, RolloutGate, RolloutState, StepAnswer,
};
use crate::book::BookError;

/// The hosts of a roll-out, by their places in the list. Every request goes to all hosts named, also if some
/// of them fail, and returns one answer each.
pub trait Hosts {
    /// A failure of the process that conducts, never of a host.
    type Error: From<BookError>;
    /// Checks the plan and measures without it; returns each host's figure, too.
    fn baseline(&mut self, hosts: &[usize]) -> Result<(Answers, Vec<Option<f64>>), Self::Error>;
    /// Measures with and without the plan in turn, and the control group without it.
    ///
    /// - `levels`: figure of every host in the baseline.
    fn prove(
        &mut self,
        stage: &[usize],
        control: &[usize],
        levels: &[Option<f64>],
    ) -> Result<(Answers, Proof), Self::Error>;
    /// Applies the plan; each host rolls back by itself unless it is confirmed in time.
    fn apply(&mut self, hosts: &[usize]) -> Result<Answers, Self::Error>;
    /// Watches hosts for the time of the roll-out, and postpones their own rollback meanwhile. Ends early if
    /// [`Watched::take`] says so.
    fn hold(&mut self, watched: &mut Watched) -> Result<(), Self::Error>;
    /// Confirms the plan.
    fn confirm(&mut self, hosts: &[usize]) -> Result<Answers, Self::Error>;
    /// Rolls back in this order; hosts without the plan answer that it is done.
    fn roll_back(&mut self, hosts: &[usize]) -> Result<Answers, Self::Error>;
    /// True if the user interrupts.
    fn is_stopped(&self) -> bool;
}

/// Conducts one roll-out.
#[derive(Debug)]
pub struct Conductor<'a, H, L> {
    draw: &'a Draw,
    names: &'a [String],
    hosts: &'a mut H,
    ledger: &'a mut L,
    state: RolloutState,
    left_out: Vec<usize>,
    levels: Vec<Option<f64>>,
}

/// Outcome of a state.
struct Outcome {
    event: RolloutEvent,
    row: LedgerRow,
}

impl Outcome {
    fn new(event: RolloutEvent, why: impl Into<String>, answers: Answers) -> Self {
        // The state of the row is that after the event.
        let row = LedgerRow { answers, ..LedgerRow::new(RolloutState::Planned, why) };
        Outcome { event, row }
    }
}

fn count(hosts: usize) -> String {
    format!("{hosts} host{}", if hosts == 1 { "" } else { "s" })
}

fn pause() -> Outcome {
    Outcome::new(RolloutEvent::Pause, "interrupted", Vec::new())
}

impl<'a, H: Hosts, L: Ledger> Conductor<'a, H, L> {
    /// Begins a roll-out that has no row yet, or goes on from its last row.
    ///
    /// - `names`: of all hosts, for messages.
    pub fn new(
        draw: &'a Draw,
        names: &'a [String],
        hosts: &'a mut H,
        ledger: &'a mut L,
    ) -> Result<Self, H::Error> {
        let rows = ledger.rows()?;
        let levels = rows.iter().rev().find(|row| !row.levels.is_empty());
        let levels = levels.map_or_else(Vec::new, |row| row.levels.clone());
        let (state, left_out) = match rows.last() {
            Some(row) => (row.state, row.left_out.clone()),
            None => {
                ledger.record(&LedgerRow::new(RolloutState::Planned, "asked for"))?;
                (RolloutState::Planned, Vec::new())
            }
        };
        Ok(Conductor { draw, names, hosts, ledger, state, left_out, levels })
    }

    /// State of its last row.
    pub fn state(&self) -> RolloutState {
        self.state
    }

    /// An event of the user; false if the state does not allow it.
    pub fn take(&mut self, event: RolloutEvent, why: &str) -> Result<bool, H::Error> {
        let before = self.state;
        if before.after(event, self.draw.stages()).is_none() {
            return Ok(false);
        }
        if event == RolloutEvent::Resume {
            self.clear(before)?;
        }
        self.go(Outcome::new(event, why, Vec::new()))?;
        Ok(true)
    }

    /// Performs states until one ends the roll-out, or the user has to decide.
    pub fn run(&mut self) -> Result<RolloutState, H::Error> {
        while !self.state.is_end() {
            let outcome =
                if self.can_pause() && self.hosts.is_stopped() { pause() } else { self.act()? };
            self.go(outcome)?;
            if let RolloutState::Paused { .. } = self.state {
                self.clear(self.state)?;
            }
        }
        Ok(self.state)
    }

    fn can_pause(&self) -> bool {
        self.state.after(RolloutEvent::Pause, self.draw.stages()).is_some()
    }

    /// Moves on: the row is in the ledger before anything of its state is done.
    fn go(&mut self, Outcome { event, mut row }: Outcome) -> Result<(), H::Error> {
        let Some(next) = self.state.after(event, self.draw.stages()) else { return Ok(()) };
        let stage = match self.state {
            RolloutState::Proving { stage }
            | RolloutState::Applying { stage }
            | RolloutState::Holding { stage } => Some(stage),
            _ => None,
        };
        let next_stage = match next {
            RolloutState::Applying { stage }
            | RolloutState::Holding { stage }
            | RolloutState::Confirming { stage } => Some(stage),
            _ => None,
        };
        if stage.is_none() || stage != next_stage || event == RolloutEvent::Resume {
            self.left_out.clear();
        }
        row.state = next;
        row.left_out = self.left_out.clone();
        self.ledger.record(&row)?;
        self.state = next;
        Ok(())
    }

    /// Rolls back hosts of an unconfirmed stage whose process has ended or pauses: they do so by themselves,
    /// but later.
    fn clear(&mut self, state: RolloutState) -> Result<(), H::Error> {
        if let RolloutState::Applying { stage }
        | RolloutState::Holding { stage }
        | RolloutState::Confirming { stage }
        | RolloutState::Paused { stage, proven: true } = state
        {
            // A host that is silent now fails to apply later.
            self.hosts.roll_back(self.draw.stage(stage))?;
        }
        Ok(())
    }

    fn act(&mut self) -> Result<Outcome, H::Error> {
        match self.state {
            RolloutState::Planned => {
                let why = format!("{} drawn", count(self.names.len()));
                Ok(Outcome::new(RolloutEvent::Pass, why, Vec::new()))
            }
            RolloutState::Baseline => self.baseline(),
            RolloutState::Proving { stage } => self.prove(stage),
            RolloutState::Applying { stage } => {
                let hosts = self.members(stage);
                let answers = self.hosts.apply(&hosts)?;
                Ok(self.judged(stage, answers, "applied"))
            }
            RolloutState::Holding { stage } => {
                let allowed = silent_max(self.draw.stage(stage).len());
                let allowed = allowed.saturating_sub(self.left_out.len());
                let mut watched = Watched::new(self.members(stage), allowed);
                self.hosts.hold(&mut watched)?;
                if self.hosts.is_stopped() {
                    Ok(pause())
                } else {
                    Ok(self.judged(stage, watched.answers(), "held"))
                }
            }
            RolloutState::Confirming { stage } => {
                let hosts = self.members(stage);
                let answers = self.hosts.confirm(&hosts)?;
                Ok(self.judged(stage, answers, "confirmed"))
            }
            _ => self.roll_back(),
        }
    }

    /// Hosts of a stage but those that are left out.
    fn members(&self, stage: usize) -> Vec<usize> {
        let mut hosts = self.draw.stage(stage).to_vec();
        hosts.retain(|host| !self.left_out.contains(host));
        hosts
    }

    fn judged(&mut self, stage: usize, answers: Answers, done: &str) -> Outcome {
        let hosts = self.draw.stage(stage).len();
        match judge(self.names, hosts, self.left_out.len(), &answers) {
            Err(why) => Outcome::new(RolloutEvent::Trigger, why, answers),
            Ok(silent) => {
                self.left_out.extend(silent);
                let why = format!("{done} on {}", count(hosts - self.left_out.len()));
                Outcome::new(RolloutEvent::Pass, why, answers)
            }
        }
    }

    fn baseline(&mut self) -> Result<Outcome, H::Error> {
        let all: Vec<usize> = (0..self.names.len()).collect();
        let (answers, levels) = self.hosts.baseline(&all)?;
        if self.hosts.is_stopped() {
            return Ok(pause());
        }
        let mut outcome = match judge(self.names, all.len(), 0, &answers) {
            Err(why) => Outcome::new(RolloutEvent::Trigger, why, answers),
            Ok(_) => {
                let why = format!("{} can apply the plan", count(all.len()));
                Outcome::new(RolloutEvent::Pass, why, answers)
            }
        };
        self.levels.clone_from(&levels);
        outcome.row.levels = levels;
        Ok(outcome)
    }

    fn prove(&mut self, stage: usize) -> Result<Outcome, H::Error> {
        let (hosts, control) = (self.members(stage), self.draw.control(stage));
        let (answers, proof) = self.hosts.prove(&hosts, control, &self.levels)?;
        if self.hosts.is_stopped() {
            return Ok(pause());
        }
        let mut own = answers.clone();
        own.retain(|(host, _)| hosts.contains(host));
        let mut outcome = match judge(self.names, hosts.len(), 0, &own) {
            Err(why) => Outcome::new(RolloutEvent::Trigger, why, answers),
            Ok(silent) => {
                self.left_out.extend(silent);
                let mut gates = self.gates_before(stage)?;
                gates.push(proof.gate.clone());
                let (event, why) = decide(&gates);
                Outcome::new(event, why, answers)
            }
        };
        outcome.row.proof = Some(Box::new(proof));
        Ok(outcome)
    }

    /// Judgements on earlier proofs of a stage that are repeated now, oldest first; a pause forgets them.
    fn gates_before(&mut self, stage: usize) -> Result<Vec<RolloutGate>, H::Error> {
        let rows = self.ledger.rows()?;
        let repeated =
            rows.iter().rev().take_while(|row| row.state == RolloutState::Proving { stage });
        let mut gates: Vec<RolloutGate> =
            repeated.filter_map(|row| Some(row.proof.as_ref()?.gate.clone())).collect();
        gates.reverse();
        Ok(gates)
    }

    fn roll_back(&mut self) -> Result<Outcome, H::Error> {
        let stages = self.state.stages_touched(self.draw.stages());
        let answers = self.hosts.roll_back(&self.draw.newest_first(stages))?;
        let open = answers.iter().filter(|(_, answer)| !matches!(answer, StepAnswer::Done(_)));
        let open: Vec<&str> = open.map(|(host, _)| self.names[*host].as_str()).collect();
        Ok(match (open.is_empty(), answers.len()) {
            (true, 0) => Outcome::new(RolloutEvent::Pass, "no host had the plan", answers),
            (true, hosts) => Outcome::new(
                RolloutEvent::Pass,
                format!("{} with the earlier values", count(hosts)),
                answers,
            ),
            (false, _) => {
                let why = format!("no word of a rollback from {}", open.join(", "));
                Outcome::new(RolloutEvent::Silence, why, answers)
            }
        })
    }
}
