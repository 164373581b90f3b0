//! Answers of hosts, and how many of them a stage can do without.

use serde::{Deserialize, Serialize};

/// Answer of a host to one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "answer", content = "text", rename_all = "kebab-case")]
pub enum StepAnswer {
    /// Done, with a remark for the record.
    Done(String),
    /// Refused or failed, with the reason; the host has the values from before the request.
    Failed(String),
    /// A setting of the plan has another value than the plan's.
    Drifted(String),
    /// No answer; the state of the host is unknown.
    Silent(String),
}

impl StepAnswer {
    /// Its remark or reason.
    pub fn into_text(self) -> String {
        match self {
            StepAnswer::Done(text)
            | StepAnswer::Failed(text)
            | StepAnswer::Drifted(text)
            | StepAnswer::Silent(text) => text,
        }
    }
}

/// Answers of hosts, each with its place in the list.
pub type Answers = Vec<(usize, StepAnswer)>;

/// Hosts of a stage below which one silent host is too many.
const CANARY_MAX: usize = model::pool::HOSTS_MIN - 1;

/// Number of silent hosts that a stage of so many hosts can do without: none of a canary, otherwise one or
/// 2 %.
pub(super) fn silent_max(hosts: usize) -> usize {
    match hosts {
        0..=CANARY_MAX => 0,
        _ => (hosts / 50).max(1),
    }
}

/// Hosts that the next request leaves out because they are silent. Errors: the reason to roll back.
///
/// - `hosts`: number of hosts in the stage, those that were left out before included.
/// - `silent_before`: those that were left out before.
pub(super) fn judge(
    names: &[String],
    hosts: usize,
    silent_before: usize,
    answers: &[(usize, StepAnswer)],
) -> Result<Vec<usize>, String> {
    let mut silent = Vec::new();
    for (host, answer) in answers {
        let name = names.get(*host).map_or("a host", String::as_str);
        match answer {
            StepAnswer::Done(_) => {}
            StepAnswer::Failed(why) => return Err(format!("{name}: {why}")),
            StepAnswer::Drifted(why) => {
                return Err(format!("{name}: changed by another process: {why}"));
            }
            StepAnswer::Silent(why) => silent.push((*host, format!("{name} ({why})"))),
        }
    }
    let (count, allowed) = (silent.len() + silent_before, silent_max(hosts));
    if count > allowed {
        let newly: Vec<&str> = silent.iter().map(|(_, text)| text.as_str()).collect();
        let newly = newly.join(", ");
        return Err(format!(
            "{count} of {hosts} hosts of the stage are silent, and {allowed} may be: {newly}"
        ));
    }
    Ok(silent.into_iter().map(|(host, _)| host).collect())
}

/// Hosts that are watched while a stage holds its plan. One that falls silent is asked no more, and rolls back by
/// itself; the others hold on for as long as the stage can do without it.
#[derive(Debug)]
pub struct Watched {
    asked: Vec<usize>,
    answers: Answers,
    silent: Answers,
    /// Number of hosts that may fall silent.
    silent_max: usize,
}

impl Watched {
    pub(super) fn new(hosts: Vec<usize>, silent_max: usize) -> Self {
        Watched { asked: hosts, answers: Vec::new(), silent: Vec::new(), silent_max }
    }

    /// Hosts to ask next.
    pub fn hosts(&self) -> &[usize] {
        &self.asked
    }

    /// Takes an answer of each host that was asked; true if the others go on to hold the plan.
    pub fn take(&mut self, answers: Answers) -> bool {
        let (silent, others): (Answers, Answers) =
            answers.into_iter().partition(|(_, answer)| matches!(answer, StepAnswer::Silent(_)));
        self.silent.extend(silent);
        self.asked = others.iter().map(|(host, _)| *host).collect();
        self.answers = others;
        let is_well = self.answers.iter().all(|(_, answer)| matches!(answer, StepAnswer::Done(_)));
        is_well && !self.asked.is_empty() && self.silent.len() <= self.silent_max
    }

    /// The latest answer of each host.
    pub(super) fn answers(self) -> Answers {
        [self.answers, self.silent].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canary_needs_every_host_and_a_large_stage_does_without_a_few() {
        assert_eq!([1, 5, 6, 99, 100, 1000].map(silent_max), [0, 0, 1, 1, 2, 20]);
        let names: Vec<String> = (0..8).map(|at| format!("h{at}")).collect();
        let silent = |host| (host, StepAnswer::Silent("no route".into()));
        assert_eq!(judge(&names, 6, 0, &[silent(3)]), Ok(vec![3]));
        assert!(judge(&names, 6, 1, &[silent(3)]).unwrap_err().contains("2 of 6"));
        assert!(judge(&names, 1, 0, &[silent(3)]).unwrap_err().contains("h3 (no route)"));
    }

    #[test]
    fn one_failure_or_drift_is_enough() {
        let names = ["a".to_owned()];
        let judged = |answer| judge(&names, 100, 0, &[(0, answer)]);
        assert_eq!(
            judged(StepAnswer::Failed("no such knob".into())).unwrap_err(),
            "a: no such knob"
        );
        assert!(
            judged(StepAnswer::Drifted("x is 3".into())).unwrap_err().contains("another process")
        );
        assert_eq!(judged(StepAnswer::Done(String::new())), Ok(vec![]));
    }

    #[test]
    fn others_hold_on_when_a_host_falls_silent_that_the_stage_can_do_without() {
        let silent = |host| (host, StepAnswer::Silent("no route".into()));
        let done = |host| (host, StepAnswer::Done(String::new()));
        let mut watched = Watched::new(vec![4, 5, 6], 1);
        assert!(watched.take(vec![done(4), silent(5), done(6)]));
        assert_eq!(watched.hosts(), [4, 6], "not asked again");
        assert!(watched.take(vec![done(4), done(6)]));
        assert!(!watched.take(vec![silent(4), done(6)]), "the second one is too many");
        assert_eq!(watched.answers(), [done(6), silent(5), silent(4)]);
        let drifted = vec![(4, StepAnswer::Drifted("x is 3".into()))];
        assert!(!Watched::new(vec![4], 1).take(drifted));
        assert!(!Watched::new(vec![4], 1).take(vec![silent(4)]), "no host is left");
    }
}
