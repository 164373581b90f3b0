//! The question that a run answers, as its title.

use model::{ArmKind, ArmOutcome, BEST, Outcome};

use crate::wording;

/// Parameter of the load that names the client of the user's programs.
const CLIENT: &str = "client";

/// Programs named in a title; more are counted.
const NAMED_MAX: usize = 3;

/// Returns the user's name for a run; without one, the question: `new against old, wrk`, `Which switch makes a ping
/// faster?`.
pub(crate) fn title(outcome: &Outcome) -> String {
    if let Some(name) = &outcome.name {
        return name.clone();
    }
    let variants: Vec<&ArmOutcome> = (outcome.arms.iter())
        .filter(|arm| matches!(arm.kind, ArmKind::Variant | ArmKind::Peer))
        .collect();
    let base = outcome.arms.iter().find(|arm| arm.kind == ArmKind::Baseline);
    let is_by_switches = variants.iter().any(|arm| !arm.switches.is_empty());
    let subject = client(outcome).unwrap_or_else(|| wording::subject(&outcome.path, &outcome.load));
    match (variants.as_slice(), base) {
        ([], _) | (_, None) => subject,
        (arms, Some(base)) if !is_by_switches || arms.len() == 1 => {
            format!("{} against {}, {subject}", names(arms), base.name)
        }
        _ => switches(outcome, &subject),
    }
}

/// Name of the client's program: `wrk`.
fn client(outcome: &Outcome) -> Option<String> {
    let line = outcome.load.get(CLIENT)?;
    let program = line.split_whitespace().find(|word| !word.contains('='))?;
    let name = program.rsplit('/').next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

fn names(arms: &[&ArmOutcome]) -> String {
    let names: Vec<String> = arms.iter().map(|arm| arm.name.clone()).collect();
    if names.len() <= NAMED_MAX {
        return wording::listed(&names);
    }
    format!("{} arms", names.len())
}

fn switches(outcome: &Outcome, subject: &str) -> String {
    let is_search = outcome.load.get("arms").is_some_and(|arms| arms == BEST);
    let (which, make) =
        if is_search { ("Which switches together", "make") } else { ("Which switch", "makes") };
    match outcome.phrases.noun.as_str() {
        "" => format!("{which} {make} a difference? ({subject})"),
        noun => format!("{which} {make} a {noun} faster? ({subject})"),
    }
}
