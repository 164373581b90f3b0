//! Arms of an experiment.

use model::{Arm, ArmKind, ArmPlan, Support, SwitchId, SwitchSet};

use crate::{ArmSpec, CheckedPrograms, SpecError, Switch};

/// Suffix of the name of the arm that runs the baseline a second time.
const CONTROL_SUFFIX: &str = " again";

/// The arms of the user, the first of them twice, and those of the switches, which run the baseline's
/// command. With the plan `best` those of the switches are missing: a search finds them.
pub fn arms(spec: &CheckedPrograms) -> Result<Vec<(Arm, Support)>, SpecError> {
    let base = &spec.arms[0];
    let mut arms = vec![
        arm_with(base, base.name.clone(), ArmKind::Baseline),
        arm_with(base, format!("{}{CONTROL_SUFFIX}", base.name), ArmKind::Control),
    ];
    arms.extend(spec.arms[1..].iter().map(|arm| arm_with(arm, arm.name.clone(), ArmKind::Variant)));
    let mut arms: Vec<_> = arms.into_iter().map(|arm| (support(spec, &arm), arm)).collect();
    if !spec.switches.is_empty() && spec.plan != "best" {
        let ids: Vec<SwitchId> = spec.switches.iter().map(Switch::id).collect();
        let plan = ArmPlan::parse(&spec.plan, &ids)?;
        let combined = match plan {
            ArmPlan::List(_) => model::arms(&plan, &ids, &[], &mut |arm| support(spec, arm)),
            _ => with_latest_values(spec, model::arms(&plan, &ids, &[], &mut |_| Support::Yes)),
        };
        arms.extend(combined.into_iter().skip(2).map(|(arm, support)| (support, arm)));
    }
    Ok(arms.into_iter().map(|(support, arm)| (arm, support)).collect())
}

/// Combinations in which a later value of a knob takes the place of an earlier one; each set once.
fn with_latest_values(
    spec: &CheckedPrograms,
    combined: Vec<(Arm, Support)>,
) -> Vec<(Arm, Support)> {
    let mut kept: Vec<(Arm, Support)> = Vec::new();
    for (at, (mut arm, support)) in combined.into_iter().enumerate() {
        arm.switches = latest_values(&arm_switches(spec, &arm));
        // The baseline and its control are the same set.
        if at < 2 || !kept.iter().skip(2).any(|(other, _)| other.switches == arm.switches) {
            kept.push((arm, support));
        }
    }
    kept
}

/// Switches without those that a later one contradicts.
fn latest_values(on: &[&Switch]) -> SwitchSet {
    let latest = on
        .iter()
        .enumerate()
        .filter(|(at, switch)| !on[at + 1..].iter().any(|later| later.contradicts(switch)));
    latest.map(|(_, switch)| switch.id()).collect()
}

fn arm_with(spec: &ArmSpec, name: String, kind: ArmKind) -> Arm {
    Arm { name, kind, switches: spec.switches.iter().map(Switch::id).collect() }
}

/// Refuses an arm that sets one knob or variable twice.
pub fn support(spec: &CheckedPrograms, arm: &Arm) -> Support {
    let set = arm_switches(spec, arm);
    let twice = set.iter().enumerate().find_map(|(at, switch)| {
        set[..at].iter().find(|earlier| earlier.contradicts(switch)).map(|first| (first, switch))
    });
    match twice {
        None => Support::Yes,
        Some((first, second)) => Support::Refused { why: format!("{first} and {second}") },
    }
}

/// The user's arm whose command an arm runs.
pub(crate) fn arm_spec<'a>(spec: &'a CheckedPrograms, arm: &Arm) -> &'a ArmSpec {
    let named = spec.arms.iter().find(|of| of.name == arm.name && arm.kind != ArmKind::Control);
    named.unwrap_or(&spec.arms[0])
}

/// Switches that are on in an arm.
pub(crate) fn arm_switches<'a>(spec: &'a CheckedPrograms, arm: &Arm) -> Vec<&'a Switch> {
    let of_arms = spec.arms.iter().flat_map(|of| &of.switches);
    let known: Vec<&Switch> = spec.switches.iter().chain(of_arms).collect();
    let ids = arm.switches.iter();
    ids.filter_map(|id| known.iter().find(|switch| switch.id() == *id).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Programs;

    fn names(text: &str) -> Vec<(String, String, bool)> {
        let spec = crate::resolve(&Programs::parse(text).unwrap()).unwrap();
        let arms = arms(&spec).unwrap();
        arms.into_iter().map(|(a, s)| (a.name, a.switches.joined(), s.is_yes())).collect()
    }

    fn row(name: &str, switches: &str, runs: bool) -> (String, String, bool) {
        (name.into(), switches.into(), runs)
    }

    #[test]
    fn the_first_arm_runs_twice_and_the_others_keep_their_names() {
        let text = "client='c'\n[[arm]]\nname='main'\ncommand='x'\n\
                    [[arm]]\nname='pr'\ncommand='y'\nswitches=['gso=off']\n";
        assert_eq!(
            names(text),
            [row("main", "", true), row("main again", "", true), row("pr", "gso=off", true)]
        );
    }

    #[test]
    fn a_later_value_of_a_knob_takes_the_place_of_an_earlier_one_and_a_list_of_both_is_refused() {
        let text = "server='s'\nclient='c'\nswitches=['gso=off','env:W=1','gso=on']\n";
        assert_eq!(
            names(text)[2..],
            [
                row("+gso=off", "gso=off", true),
                row("+env:W=1", "gso=off+env:W=1", true),
                row("+gso=on", "env:W=1+gso=on", true),
            ]
        );
        let both = names(&format!("arms='gso=off+gso=on'\n{text}"));
        assert_eq!(both[2], row("gso=off+gso=on", "gso=off+gso=on", false));
        let alone = names(&format!("arms='alone'\n{text}"));
        assert_eq!(alone[4], row("gso=on", "gso=on", true));
        assert_eq!(names(&format!("arms='best'\n{text}")).len(), 2);
    }
}
