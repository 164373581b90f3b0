//! Which arms an experiment has.

use thiserror::Error;

use crate::{Arm, Support, SwitchId, SwitchSet, did_you_mean};

/// How the switches of a path are combined into arms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArmPlan {
    /// Cumulative, from each of these sets: each rung adds one switch of the path's ladder.
    Ladders(Vec<SwitchSet>),
    /// The same with every switch of the path, in its order.
    WholeLadders(Vec<SwitchSet>),
    /// Each switch by itself.
    Alone,
    /// All switches, then all but one for each.
    LeaveOneOut,
    /// These sets of switches, each in the path's order.
    List(Vec<SwitchSet>),
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ArmPlanError {
    #[error("{}", unknown_switch(switch, known, "this path"))]
    UnknownSwitch {
        switch: String,
        /// Ids of the path's switches.
        known: Vec<String>,
    },
    #[error("switch `{switch}` is listed twice in arm `{arm}`; list it once")]
    DuplicateSwitch { switch: String, arm: String },
    #[error("arm `{arm}` is listed twice; list it once")]
    DuplicateArm {
        /// The arm, its switches in the path's order.
        arm: String,
    },
    #[error("`{text}` lists ladders and single arms together; list one kind")]
    Mixed { text: String },
    #[error("`{text}` is not one arm; give its switches joined by +, such as {joined}")]
    NotOne { text: String, joined: String },
    #[error(
        "empty arm in `{text}`; write ladder, A+ladder, all, alone, leave-one-out, \
         or a list such as A,B+C (commas separate arms, + joins switches)"
    )]
    Empty { text: String },
}

impl ArmPlanError {
    /// The error, with the name of the path.
    pub fn message_for(&self, path: &str) -> String {
        match self {
            ArmPlanError::UnknownSwitch { switch, known } => unknown_switch(switch, known, path),
            error => error.to_string(),
        }
    }
}

fn unknown_switch(switch: &str, known: &[String], path: &str) -> String {
    let hint = did_you_mean(switch, known.iter().map(String::as_str).chain(ARM_WORDS));
    format!("'{switch}' is not a switch of {path}{hint}it has: {}", known.join(", "))
}

/// Word for a ladder, by itself or behind the switches that it starts from.
const LADDER: &str = "ladder";
/// The same for a ladder of every switch.
const WHOLE_LADDER: &str = "all";
const ALONE: &str = "alone";
const LEAVE_ONE_OUT: &str = "leave-one-out";
/// Word for a search of the best set, which is not an [`ArmPlan`].
pub const BEST: &str = "best";
/// Words that name arms, beside the baseline and the switches.
pub const ARM_WORDS: [&str; 5] = [LADDER, WHOLE_LADDER, ALONE, LEAVE_ONE_OUT, BEST];

impl ArmPlan {
    /// The ladder from the baseline.
    pub fn ladder() -> Self {
        ArmPlan::Ladders(vec![SwitchSet::default()])
    }

    /// Switches that its arms are made of.
    ///
    /// - `all`: of the path; `ladder`: those of [`crate::Path::ladder`].
    pub fn switches<'a>(&self, all: &'a [SwitchId], ladder: &'a [SwitchId]) -> &'a [SwitchId] {
        match self {
            ArmPlan::Ladders(_) => ladder,
            _ => all,
        }
    }

    /// Reads `alone`, `leave-one-out`, a list such as `A,B+C`, or ladders such as `ladder,A+ladder` and `all,A+all`.
    ///
    /// In a list, commas separate arms and `+` joins switches. The word `baseline`
    /// is accepted and ignored, since the baseline is always there.
    pub fn parse(text: &str, switches: &[SwitchId]) -> Result<Self, ArmPlanError> {
        if let Some(bases) = ladder_bases(text, LADDER, switches)? {
            return Ok(ArmPlan::Ladders(bases));
        }
        if let Some(bases) = ladder_bases(text, WHOLE_LADDER, switches)? {
            return Ok(ArmPlan::WholeLadders(bases));
        }
        match text.trim() {
            ALONE => return Ok(ArmPlan::Alone),
            LEAVE_ONE_OUT => return Ok(ArmPlan::LeaveOneOut),
            _ => {}
        }
        let arms = text.split(',').map(str::trim).filter(|&arm| arm != "baseline");
        Ok(ArmPlan::List(distinct(arms.map(|arm| parse_set(arm, text, switches)))?))
    }

    /// Reads one arm, such as `A+B`; `baseline` is the empty set.
    pub fn parse_one(text: &str, switches: &[SwitchId]) -> Result<Arm, ArmPlanError> {
        let parts: Vec<&str> = text.split([',', '+']).map(str::trim).collect();
        if text.contains(',') || parts.contains(&"") {
            let named: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            let joined = if named.is_empty() { "A+B".into() } else { named.join("+") };
            return Err(ArmPlanError::NotOne { text: text.into(), joined });
        }
        if text.trim() == "baseline" {
            return Ok(Arm::baseline());
        }
        Ok(Arm::with(parse_set(text, text, switches)?.iter().cloned()))
    }
}

/// Sets from which the ladders of a list start; `None` if `word` ends none of its arms.
///
/// Errors: a list of ladders and of other arms.
fn ladder_bases(
    text: &str,
    word: &str,
    switches: &[SwitchId],
) -> Result<Option<Vec<SwitchSet>>, ArmPlanError> {
    let is_ladder = |arm: &str| arm.split('+').next_back().map(str::trim) == Some(word);
    if !text.split(',').any(is_ladder) {
        return Ok(None);
    }
    if !text.split(',').all(is_ladder) {
        return Err(ArmPlanError::Mixed { text: text.into() });
    }
    distinct(text.split(',').map(|arm| match arm.rsplit_once('+') {
        Some((base, _)) => parse_set(base, text, switches),
        None => Ok(SwitchSet::default()),
    }))
    .map(Some)
}

/// Errors: the same set twice.
fn distinct(
    sets: impl Iterator<Item = Result<SwitchSet, ArmPlanError>>,
) -> Result<Vec<SwitchSet>, ArmPlanError> {
    let mut seen = Vec::new();
    for set in sets {
        let set = set?;
        if seen.contains(&set) {
            let arm = if set.is_empty() { LADDER.into() } else { set.joined() };
            return Err(ArmPlanError::DuplicateArm { arm });
        }
        seen.push(set);
    }
    Ok(seen)
}

/// One arm of a list, put into the path's order.
fn parse_set(arm: &str, text: &str, switches: &[SwitchId]) -> Result<SwitchSet, ArmPlanError> {
    let mut set: Vec<usize> = Vec::new();
    for id in arm.split('+').map(str::trim) {
        if id.is_empty() {
            return Err(ArmPlanError::Empty { text: text.into() });
        }
        let Some(place) = switches.iter().position(|switch| switch.as_str() == id) else {
            let known = switches.iter().map(|switch| switch.as_str().to_owned()).collect();
            return Err(ArmPlanError::UnknownSwitch { switch: id.into(), known });
        };
        if set.contains(&place) {
            return Err(ArmPlanError::DuplicateSwitch { switch: id.into(), arm: arm.into() });
        }
        set.push(place);
    }
    set.sort_unstable();
    Ok(set.into_iter().map(|place| switches[place].clone()).collect())
}

/// The arms of an experiment: baseline, control, variants, peers.
///
/// - `support`: asked per arm whether it can run here. An arm that cannot is listed with the reason, and its switch is
///   left out of later rungs of a ladder and of `all`. A later rung that needs that switch has the same reason.
pub fn arms(
    plan: &ArmPlan,
    switches: &[SwitchId],
    peers: &[String],
    support: &mut dyn FnMut(&Arm) -> Support,
) -> Vec<(Arm, Support)> {
    let mut listed = Vec::new();
    let mut list = |arm: Arm| {
        let answer = support(&arm);
        let runs = answer.is_yes();
        listed.push((arm, answer));
        runs
    };
    list(Arm::baseline());
    list(Arm::control());
    match plan {
        ArmPlan::Ladders(bases) | ArmPlan::WholeLadders(bases) => {
            // The top rungs of two ladders may be the same set: it runs once.
            let mut sets = Vec::new();
            for (arm, answer) in bases.iter().flat_map(|base| ladder(base, switches, support)) {
                let mut names = arm.switches.names();
                names.sort();
                if !sets.contains(&names) {
                    sets.push(names);
                    listed.push((arm, answer));
                }
            }
        }
        ArmPlan::Alone => {
            for switch in switches {
                list(Arm::with([switch.clone()]));
            }
        }
        ArmPlan::List(sets) => {
            for set in sets {
                list(Arm::with(set.iter().cloned()));
            }
        }
        ArmPlan::LeaveOneOut => listed.extend(leave_one_out(switches, support)),
    }
    listed.extend(peers.iter().map(|name| {
        let arm = Arm::peer(name.clone());
        let answer = support(&arm);
        (arm, answer)
    }));
    listed
}

/// A ladder from a set of switches: the set itself unless it is empty, then a rung for each other switch.
fn ladder(
    base: &SwitchSet,
    switches: &[SwitchId],
    support: &mut dyn FnMut(&Arm) -> Support,
) -> Vec<(Arm, Support)> {
    let mut listed = Vec::new();
    let mut place = String::new();
    if !base.is_empty() {
        let arm = Arm::with(base.iter().cloned());
        place = format!("{} ", arm.name);
        listed.push((arm.clone(), support(&arm)));
    }
    let mut on = base.clone();
    let mut missing = SwitchSet::default();
    for switch in switches.iter().filter(|switch| !base.contains(switch)) {
        let mut rung = on.clone();
        rung.insert(switch.clone());
        let arm = Arm::variant(format!("{place}+{switch}"), rung.clone());
        let answer = match support(&arm) {
            Support::Refused { why } => {
                let with_missing = rung.iter().chain(missing.iter()).cloned();
                unsupported_alike(&Arm::with(with_missing), support)
                    .unwrap_or(Support::Refused { why })
            }
            answer => answer,
        };
        match answer {
            Support::Yes => on = rung,
            Support::Unsupported { .. } => missing.insert(switch.clone()),
            Support::Refused { .. } => {}
        }
        listed.push((arm, answer));
    }
    listed
}

/// The reason for which a rung is not possible that is refused only because it needs the switch of an earlier rung, which
/// is not possible here.
///
/// - `whole`: the rung with the switches that are not possible.
fn unsupported_alike(whole: &Arm, support: &mut dyn FnMut(&Arm) -> Support) -> Option<Support> {
    Some(support(whole)).filter(|answer| matches!(answer, Support::Unsupported { .. }))
}

/// `all`, then `all -id` for each switch; a switch that `all` cannot hold is listed
/// with the reason it cannot.
fn leave_one_out(
    switches: &[SwitchId],
    support: &mut dyn FnMut(&Arm) -> Support,
) -> Vec<(Arm, Support)> {
    let mut all = SwitchSet::default();
    let mut missing: Vec<(&SwitchId, Support)> = Vec::new();
    for switch in switches {
        let mut more = all.clone();
        more.insert(switch.clone());
        match support(&Arm::variant("all", more.clone())) {
            Support::Yes => all = more,
            answer => missing.push((switch, answer)),
        }
    }
    if all.is_empty() {
        // Nothing to leave out: only the reasons are worth listing.
        return missing
            .into_iter()
            .map(|(id, answer)| (Arm::variant(format!("all -{id}"), SwitchSet::default()), answer))
            .collect();
    }
    let mut listed = vec![(Arm::variant("all", all.clone()), Support::Yes)];
    for switch in switches {
        let arm = Arm::variant(format!("all -{switch}"), all.without(switch));
        let answer = match missing.iter().find(|(id, _)| *id == switch) {
            Some((_, answer)) => answer.clone(),
            None if arm.switches.is_empty() => {
                Support::Refused { why: "without its only switch this arm is the baseline".into() }
            }
            None => support(&arm),
        };
        listed.push((arm, answer));
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PathSwitch, ids};

    crate::switches! {
        enum Switch {
            Spin { effect: "", scope: Process, needs: "", source: "" },
            Batch { effect: "", scope: Process, needs: "", source: "" },
            Zc { effect: "", scope: Process, needs: "", source: "" },
            Pin { effect: "", scope: Process, needs: "", source: "" },
        }
    }

    fn switches() -> Vec<SwitchId> {
        ids(Switch::SPECS)
    }

    #[test]
    fn one_arm_is_read_in_the_order_of_the_path_and_a_list_is_refused_with_the_way_to_join() {
        let switches = switches();
        let one = |text: &str| ArmPlan::parse_one(text, &switches);
        assert_eq!(one("baseline"), Ok(Arm::baseline()));
        assert_eq!(one(" batch + spin ").unwrap().name, "spin+batch");
        for (text, joined) in
            [("spin,batch", "spin+batch"), ("spin,batch+pin", "spin+batch+pin"), ("spin+", "spin")]
        {
            let why = one(text).unwrap_err().to_string();
            assert!(why.ends_with(&format!("such as {joined}")), "{why}");
        }
        assert!(one("").unwrap_err().to_string().contains("such as A+B"));
        assert!(one("ladder").unwrap_err().to_string().contains("not a switch"));
    }

    #[test]
    fn every_switch_has_a_specification() {
        let all: Vec<SwitchId> = Switch::ALL.iter().map(|switch| SwitchId::from(*switch)).collect();
        assert_eq!(all, switches());
    }

    fn without_zc(arm: &Arm) -> Support {
        if arm.has(Switch::Zc) || arm.name == "sockperf" {
            Support::unsupported("zero-copy", "a driver that has it")
        } else {
            Support::Yes
        }
    }

    fn listed(plan: &str) -> Vec<(String, String, bool)> {
        let plan = ArmPlan::parse(plan, &switches()).unwrap();
        let peers = ["sockperf".to_owned()];
        arms(&plan, &switches(), &peers, &mut without_zc)
            .into_iter()
            .map(|(arm, answer)| (arm.name, arm.switches.joined(), answer.is_yes()))
            .collect()
    }

    fn row(name: &str, switches: &str, runs: bool) -> (String, String, bool) {
        (name.into(), switches.into(), runs)
    }

    #[test]
    fn ladder_is_cumulative_and_leaves_an_unsupported_switch_out_of_later_rungs() {
        assert_eq!(
            listed("ladder"),
            [
                row("baseline", "", true),
                row("baseline again", "", true),
                row("+spin", "spin", true),
                row("+batch", "spin+batch", true),
                row("+zc", "spin+batch+zc", false),
                row("+pin", "spin+batch+pin", true),
                row("sockperf", "", false),
            ]
        );
    }

    #[test]
    fn a_rung_that_needs_an_unsupported_one_has_its_reason_and_others_are_refused_for_their_own() {
        // `pin` needs `zc`, and `batch` excludes `spin`.
        let listed = arms(&ArmPlan::ladder(), &switches(), &[], &mut |arm| {
            if arm.has(Switch::Pin) && !arm.has(Switch::Zc) {
                Support::Refused { why: "needs zc".into() }
            } else if arm.has(Switch::Batch) && arm.has(Switch::Spin) {
                Support::Refused { why: "one of two".into() }
            } else {
                without_zc(arm)
            }
        });
        let answers: Vec<_> = listed[2..].iter().map(|(_, answer)| answer.clone()).collect();
        let absent = Support::unsupported("zero-copy", "a driver that has it");
        let refused = Support::Refused { why: "one of two".into() };
        assert_eq!(answers, [Support::Yes, refused, absent.clone(), absent]);
    }

    #[test]
    fn ladders_start_from_their_switches_and_run_the_same_set_once() {
        assert_eq!(
            listed("ladder, pin+ladder")[2..],
            [
                row("+spin", "spin", true),
                row("+batch", "spin+batch", true),
                row("+zc", "spin+batch+zc", false),
                row("+pin", "spin+batch+pin", true),
                row("pin", "pin", true),
                row("pin +spin", "pin+spin", true),
                row("pin +zc", "pin+spin+batch+zc", false),
                row("sockperf", "", false),
            ]
        );
    }

    #[test]
    fn alone_has_each_switch_by_itself() {
        let names: Vec<_> = listed("alone").into_iter().map(|row| row.0).collect();
        assert_eq!(names[2..], ["spin", "batch", "zc", "pin", "sockperf"]);
    }

    #[test]
    fn leave_one_out_starts_from_all_that_run_here() {
        assert_eq!(
            listed("leave-one-out")[2..],
            [
                row("all", "spin+batch+pin", true),
                row("all -spin", "batch+pin", true),
                row("all -batch", "spin+pin", true),
                row("all -zc", "spin+batch+pin", false),
                row("all -pin", "spin+batch", true),
                row("sockperf", "", false),
            ]
        );
    }

    #[test]
    fn leave_one_out_of_a_single_switch_does_not_run_the_baseline_a_third_time() {
        let plan = ArmPlan::LeaveOneOut;
        let listed = arms(&plan, &switches()[..1], &[], &mut |_| Support::Yes);
        assert_eq!(listed[2].0.name, "all");
        assert!(matches!(listed[3].1, Support::Refused { .. }));
    }

    #[test]
    fn list_ignores_the_baseline_and_puts_switches_in_the_path_s_order() {
        assert_eq!(
            listed("baseline, pin+spin ,batch")[2..4],
            [row("spin+pin", "spin+pin", true), row("batch", "batch", true)]
        );
    }

    #[test]
    fn unknown_switch_is_named_with_the_known_ones() {
        let error = ArmPlan::parse("spin,warp", &switches()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "'warp' is not a switch of this path; it has: spin, batch, zc, pin"
        );
    }

    #[test]
    fn duplicates_and_empty_arms_are_errors() {
        let parse = |text| ArmPlan::parse(text, &switches()).unwrap_err();
        assert!(matches!(parse("spin+pin,pin+spin"), ArmPlanError::DuplicateArm { .. }));
        assert!(matches!(parse("spin+spin"), ArmPlanError::DuplicateSwitch { .. }));
        assert!(matches!(parse("ladder,ladder"), ArmPlanError::DuplicateArm { .. }));
        assert!(matches!(parse("ladder,spin"), ArmPlanError::Mixed { .. }));
        assert!(matches!(parse("warp+ladder"), ArmPlanError::UnknownSwitch { .. }));
        assert!(matches!(parse("+ladder"), ArmPlanError::Empty { .. }));
        assert!(matches!(parse("spin,,pin"), ArmPlanError::Empty { .. }));
        assert!(matches!(parse("spin+"), ArmPlanError::Empty { .. }));
        assert!(matches!(parse(""), ArmPlanError::Empty { .. }));
    }
}
