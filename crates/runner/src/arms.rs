//! Arms of a request. All sets of switches are made by [`model::arms`]; the rest of an arm is its name.

use host::tune::ReadyStep;
use model::{Arm, ArmKind, ArmPlan, PlanArms, Support, SwitchId, SwitchSet};

/// Arm of a whole plan.
pub const WHOLE_PLAN: &str = "plan";

const OLD: &str = "old";
const NEW: &str = "new";

/// The old program twice, for the A/A pair, and the new one, with the same switches.
pub(crate) fn arms_of_builds(switches: &SwitchSet) -> Vec<(Arm, Support)> {
    [(OLD, ArmKind::Baseline), ("old again", ArmKind::Control), (NEW, ArmKind::Variant)]
        .map(|(name, kind)| {
            (Arm { name: name.into(), kind, switches: switches.clone() }, Support::Yes)
        })
        .into()
}

/// Knobs that a plan changes, in its order. The settings of one knob on several queues count once.
pub(crate) fn changed_knobs(ready: &[ReadyStep]) -> Vec<&'static str> {
    let mut knobs = Vec::new();
    for step in ready.iter().filter(|step| !step.is_done()) {
        if !knobs.contains(&step.knob.id()) {
            knobs.push(step.knob.id());
        }
    }
    knobs
}

/// Arms of a plan's settings and of the switches beside it; that of all of them is called `plan`.
pub(crate) fn plan_arms(ids: &[SwitchId], arms: PlanArms) -> Vec<(Arm, Support)> {
    let whole: SwitchSet = ids.iter().cloned().collect();
    let plan = match arms {
        PlanArms::Ladder => ArmPlan::Ladders(vec![SwitchSet::default()]),
        PlanArms::Alone => ArmPlan::Alone,
        PlanArms::Plan | PlanArms::None => ArmPlan::List(Vec::new()),
    };
    let mut listed = model::arms(&plan, ids, &[], &mut |_| Support::Yes);
    if arms != PlanArms::None {
        // The last rung, or a single setting, is the plan.
        listed.retain(|(arm, _)| arm.kind != ArmKind::Variant || arm.switches != whole);
        listed.push((Arm::variant(WHOLE_PLAN, whole), Support::Yes));
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(knobs: &[&str], arms: PlanArms) -> Vec<(String, String)> {
        let ids: Vec<SwitchId> = knobs.iter().map(|&knob| SwitchId::named(knob)).collect();
        let listed = plan_arms(&ids, arms);
        listed
            .into_iter()
            .skip(2)
            .map(|(arm, _)| (arm.name.clone(), arm.switches.joined()))
            .collect()
    }

    fn row(name: &str, switches: &str) -> (String, String) {
        (name.to_owned(), switches.to_owned())
    }

    #[test]
    fn arms_of_a_plan_end_with_the_whole_of_it() {
        let knobs = ["a", "b", "c"];
        let ladder = [row("+a", "a"), row("+b", "a+b"), row("plan", "a+b+c")];
        assert_eq!(names(&knobs, PlanArms::Ladder), ladder);
        let alone = [row("a", "a"), row("b", "b"), row("c", "c"), row("plan", "a+b+c")];
        assert_eq!(names(&knobs, PlanArms::Alone), alone);
        assert_eq!(names(&knobs, PlanArms::Plan), [row("plan", "a+b+c")]);
        assert_eq!(names(&knobs, PlanArms::None), []);
        for arms in [PlanArms::Ladder, PlanArms::Alone, PlanArms::Plan] {
            assert_eq!(names(&["a"], arms), [row("plan", "a")], "{arms:?}");
        }
    }

    #[test]
    fn builds_have_the_switches_of_one_arm() {
        let arms = arms_of_builds(&["spin"].map(SwitchId::named).into_iter().collect());
        assert!(arms.iter().all(|(arm, _)| arm.switches.joined() == "spin"));
    }
}
