//! The question that a run answers, as its title.

use std::collections::BTreeMap;

use model::{ArmKind, BEST, Outcome, Phrases};

use crate::store::ExperimentHeader;
use crate::wording;

/// Parameter of the load that names the client of the user's programs.
const CLIENT: &str = "client";

/// Programs named in a title; more are counted.
const NAMED_MAX: usize = 3;

/// The parts of a run from which its title is made.
struct Question<'a> {
    name: Option<&'a String>,
    path: &'a str,
    load: &'a BTreeMap<String, String>,
    phrases: &'a Phrases,
    /// Kind and name of each arm, and true if it has switches.
    arms: Vec<(ArmKind, &'a str, bool)>,
}

/// Returns the user's name for a run; without one, the question: `new against old, wrk`, `Which switch makes a ping
/// faster?`.
pub(crate) fn title(outcome: &Outcome) -> String {
    let arms = outcome.arms.iter();
    question(&Question {
        name: outcome.name.as_ref(),
        path: &outcome.path,
        load: &outcome.load,
        phrases: &outcome.phrases,
        arms: arms.map(|arm| (arm.kind, arm.name.as_str(), !arm.switches.is_empty())).collect(),
    })
}

/// The same of a stored experiment, with or without an outcome.
pub(crate) fn stored_title(header: &ExperimentHeader) -> String {
    let arms = header.arms.iter();
    question(&Question {
        name: header.name.as_ref(),
        path: &header.path,
        load: &header.load,
        phrases: &header.phrases,
        arms: arms.map(|arm| (arm.kind, arm.name.as_str(), !arm.switches.is_empty())).collect(),
    })
}

fn question(of: &Question<'_>) -> String {
    if let Some(name) = of.name {
        return name.clone();
    }
    let compared: Vec<&(ArmKind, &str, bool)> =
        of.arms.iter().filter(|(kind, ..)| is_compared(*kind)).collect();
    let base = of.arms.iter().find(|(kind, ..)| *kind == ArmKind::Baseline);
    let is_by_switches = compared.iter().any(|(.., has_switches)| *has_switches);
    let subject = client(of.load).unwrap_or_else(|| wording::subject(of.path, of.load));
    match (compared.as_slice(), base) {
        ([], _) | (_, None) => subject,
        (arms, Some((_, base, _))) if !is_by_switches || arms.len() == 1 => {
            let names: Vec<&str> = arms.iter().map(|(_, name, _)| *name).collect();
            format!("{} against {base}, {subject}", listed(&names))
        }
        _ => switches(of, &subject),
    }
}

fn is_compared(kind: ArmKind) -> bool {
    matches!(kind, ArmKind::Variant | ArmKind::Peer)
}

/// Name of the client's program: `wrk`.
fn client(load: &BTreeMap<String, String>) -> Option<String> {
    let mut words = load.get(CLIENT)?.split_whitespace();
    let program = words.find(|word| !word.contains('='))?;
    let name = program.rsplit('/').next()?.trim_matches(['"', '\'']);
    (!name.is_empty()).then(|| name.to_owned())
}

fn listed(names: &[&str]) -> String {
    if names.len() > NAMED_MAX {
        return format!("{} arms", names.len());
    }
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    wording::listed(&names)
}

fn switches(of: &Question<'_>, subject: &str) -> String {
    let is_search = of.load.get("arms").is_some_and(|arms| arms == BEST);
    let (which, make) =
        if is_search { ("Which switches together", "make") } else { ("Which switch", "makes") };
    match of.phrases.noun.as_str() {
        "" => format!("{which} {make} a difference? ({subject})"),
        noun => format!("{which} {make} a {noun} faster?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(client: Option<&str>, arms: &[(ArmKind, &'static str, bool)], noun: &str) -> String {
        let load = client.map(|line| (CLIENT.to_owned(), line.to_owned())).into_iter().collect();
        let phrases = Phrases { noun: noun.into(), ..Phrases::default() };
        let arms = arms.to_vec();
        question(&Question { name: None, path: "probe", load: &load, phrases: &phrases, arms })
    }

    #[test]
    fn title_is_the_question() {
        use ArmKind::{Baseline, Control, Variant};
        let pair =
            [(Baseline, "old", false), (Control, "old again", false), (Variant, "new", false)];
        let wrk = Some("A=1 /usr/bin/wrk -t2 http://$WIREPATH_FAR:9000/");
        assert_eq!(asked(wrk, &pair, ""), "new against old, wrk");
        assert_eq!(asked(None, &pair, ""), "new against old, probe");
        assert_eq!(asked(Some("A=1"), &pair[..1], ""), "probe, client A=1");
        let ladder = [(Baseline, "baseline", false), (Variant, "+a", true), (Variant, "+b", true)];
        assert_eq!(asked(None, &ladder, "ping"), "Which switch makes a ping faster?");
        assert_eq!(asked(None, &ladder, ""), "Which switch makes a difference? (probe)");
        let four = [(Baseline, "a", false), (Variant, "b", false), (Variant, "c", false)];
        assert_eq!(asked(wrk, &four, ""), "b and c against a, wrk");
    }
}
