//! `wirepath tune prove`: what a plan and each of its settings is worth, under a load.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use host::lab::{Annex, End, LabError, Pair, Side, Wire};
use host::net;
use host::netns::Netns;
use host::tune::{self, Applied, Options, Place, Plan, Ready, Store, System, Target};
use model::{Arm, ArmOutcome, Measurement, Outcome, Support, Verdict};
use paths::{Load, PathError, Session};
use serde_json::{Value, json};

use super::guard::Guard;
use super::{StateArgs, apply};
use crate::args::{Cli, RunArgs};
use crate::end::Failure;
use crate::prove::{Proof, conduct, find_load, find_path, load_of, turn};
use crate::{console, stop};

#[derive(Debug, Args)]
pub(super) struct TuneProveArgs {
    /// The plan; `-` for standard input
    #[arg(value_name = "PLAN|-")]
    plan: PathBuf,
    /// Path whose loads it is put under
    #[arg(long, default_value = "probe")]
    path: String,
    /// Network namespace at the other end of the wire of the plan's interface: the load is sent
    /// from there into the plan's namespace
    #[arg(long, value_name = "NAME|PID|FILE", conflicts_with = "peer")]
    from: Option<String>,
    /// Have the plan's namespace forward the load to a sink of ours that is joined to it meanwhile
    #[arg(long, conflicts_with = "peer")]
    forward: bool,
    /// Arms: settings one after the other, or each alone, and the whole plan
    #[arg(long, value_enum, default_value = "ladder")]
    arms: Arms,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Arms {
    /// Each adds a setting to those before it; the last is the plan
    Ladder,
    /// The plan, and each setting by itself
    Alone,
}

pub(super) fn run(cli: &Cli, state: &StateArgs, args: &TuneProveArgs) -> Result<(), Failure> {
    let plan = apply::read(&args.plan)?;
    let path = find_path(&args.path)?;
    // What a namespace forwards goes one way.
    let load_name = args.run.load.as_deref().or(args.forward.then_some("flood"));
    let kind = find_load(path.as_ref(), load_name)?;
    let load = load_of(kind, &args.run)?;
    stop::on_hangup()?;
    let _turn = turn()?;
    let store = state.store();
    if store.read()?.is_some() {
        return Err(Failure::failed(
            "settings are applied already: `wirepath tune rollback` gives them back, and then this \
             can measure without them",
        ));
    }
    let place = Place { netns: plan.netns.clone(), root: state.root.clone() };
    let system = System::open(&place)?;
    let ready = plan.check(&system)?;
    let groups = groups_of(&ready);
    if groups.is_empty() {
        return Err(Failure::failed("nothing to prove: all is as the plan wants it already"));
    }
    let arms = arms_of(&groups, args.arms);
    let (inner, wires) = match way_of(args, &plan, &ready)? {
        Way::Own => (path.open(&load)?, Vec::new()),
        Way::Through(netns) => open_through(args, &plan, netns, &load)?,
    };
    let _guard = Guard::start(state)?;
    let within = Duration::from_secs(60) + load.trial * 4;
    let mut session = Tuned { inner, _wires: wires, system, plan, store, within, broken: None };
    session.try_once()?;
    let mut parameters = BTreeMap::from([
        ("plan".to_owned(), args.plan.display().to_string()),
        ("plan_digest".to_owned(), session.plan.digest()),
        ("profile".to_owned(), session.plan.profile.clone()),
    ]);
    let arms_word = args.arms.to_possible_value().map(|value| value.get_name().to_owned());
    parameters.extend(arms_word.map(|word| ("arms".to_owned(), word)));
    parameters.extend(args.from.clone().map(|from| ("from".to_owned(), from)));
    if args.forward {
        parameters.insert("forward".to_owned(), "yes".to_owned());
    }
    let proof = Proof { path: path.name(), kind, load: &load, arms, parameters, baseline: None };
    let proven = conduct(cli, &args.run, proof, &mut session)?;
    let gains = match args.arms {
        Arms::Ladder => gains_of(&proven.outcome),
        Arms::Alone => Vec::new(),
    };
    if cli.json {
        let text = report::json::to_json(&proven.outcome);
        let mut doc: Value = serde_json::from_str(&text).map_err(|error| Failure::of(&error))?;
        doc["steps"] = gains.iter().map(Gain::document).collect();
        console::text(&format!("{doc:#}"))?;
    } else {
        console::text(&report::text::ladder(&proven.outcome, console::style()))?;
        console::text(&table(&gains))?;
        proven.say_where();
    }
    match session.broken {
        Some(why) => Err(Failure::Failed(why)),
        None => proven.verdict(),
    }
}

/// Knobs that the plan changes, in the order in which it does; a knob of several queues is one.
fn groups_of(ready: &[Ready]) -> Vec<&'static str> {
    let mut groups = Vec::new();
    for step in ready.iter().filter(|step| !step.is_done()) {
        if !groups.contains(&step.knob.id()) {
            groups.push(step.knob.id());
        }
    }
    groups
}

/// Name of the arm of the whole plan.
const WHOLE: &str = "plan";

fn arms_of(groups: &[&str], how: Arms) -> Vec<(Arm, Support)> {
    let set = |groups: &[&str]| groups.iter().map(|&knob| knob.to_owned()).collect::<Vec<_>>();
    let mut arms = vec![Arm::baseline(), Arm::control()];
    match how {
        // One setting is the whole plan.
        _ if groups.len() < 2 => {}
        Arms::Ladder => arms.extend((1..groups.len()).map(|count| {
            let rung = &groups[..count];
            Arm::variant(format!("+{}", rung[count - 1]), set(rung))
        })),
        Arms::Alone => arms.extend(groups.iter().map(|knob| Arm::variant(*knob, set(&[knob])))),
    }
    arms.push(Arm::variant(WHOLE, set(groups)));
    arms.into_iter().map(|arm| (arm, Support::Yes)).collect()
}

/// How packets get to meet what the plan changes.
enum Way {
    /// The path brings its own: a lab on this machine, or a peer beyond the plan's interface.
    Own,
    /// Through the plan's namespace.
    Through(Netns),
}

/// Refuses loads that would not meet the plan's settings.
fn way_of(args: &TuneProveArgs, plan: &Plan, ready: &[Ready]) -> Result<Way, Failure> {
    let is_machines = |step: &Ready| matches!(step.target, Target::Host | Target::Cpu(_));
    let usage = |text: String| Err(Failure::Usage(text));
    let interface = plan.interface.as_deref();
    if args.from.is_some() && interface.is_none() {
        return usage(
            "the plan names no interface that a load could come by: leave --from out".into(),
        );
    }
    let is_through = args.from.is_some() || args.forward;
    if !is_through && (args.run.peer.is_some() || ready.iter().all(is_machines)) {
        if let (Some(peer), Some(interface)) = (&args.run.peer, interface) {
            check_route(peer, plan, interface)?;
        }
        return Ok(Way::Own);
    }
    if args.path != "probe" {
        return usage(format!(
            "path {} has a lab of its own, where the plan's settings are not; take --path probe",
            args.path
        ));
    }
    let Some(netns) = &plan.netns else {
        return usage(
            "the plan is about this namespace, and nothing is attached to it: give the `wirepath \
             peer` behind its interface (--peer HOST), or a plan made with --netns"
                .into(),
        );
    };
    if interface.is_some() && args.from.is_none() {
        return usage(
            "name the namespace at the other end of the interface's wire (--from NETNS), so that \
             the load comes by it"
                .into(),
        );
    }
    open_netns(netns).map(Way::Through)
}

fn open_netns(name: &str) -> Result<Netns, Failure> {
    let place = Place { netns: Some(name.to_owned()), root: None };
    Netns::open(place.netns_file()).map_err(|error| Failure::of(&error))
}

/// Refuses a far end that packets do not reach by the plan's interface.
fn check_route(peer: &str, plan: &Plan, interface: &str) -> Result<(), Failure> {
    if plan.netns.is_some() {
        return Err(Failure::Usage(
            "the plan is for a namespace, and --peer is reached from this one: take --from".into(),
        ));
    }
    let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
    // Names are looked up by whoever connects, and so is what is wrong with them.
    let Ok(ip) = host.parse() else { return Ok(()) };
    let route = net::route_to(ip).map_err(|error| Failure::of(&error))?;
    let named = net::link_named(interface).map_err(|error| Failure::of(&error))?;
    if route.ifindex == named.index {
        return Ok(());
    }
    let by = net::link(route.ifindex).map_or("another interface".into(), |link| link.name);
    Err(Failure::Usage(format!("{host} is reached by {by}, and the plan is for {interface}")))
}

/// Opens a load that goes into the plan's namespace, or through it.
fn open_through(
    args: &TuneProveArgs,
    plan: &Plan,
    netns: Netns,
    load: &Load,
) -> Result<(Box<dyn Session>, Vec<Wire>), Failure> {
    let mut wires = Vec::new();
    let place_of = |netns: &Netns| netns.try_clone().map_err(|error| Failure::of(&error));
    let (near, place) = match (&args.from, plan.interface.as_deref()) {
        (Some(from), Some(interface)) => {
            let place = End::existing(place_of(&netns)?, interface).map_err(failure)?;
            (source_in(open_netns(from)?, &place)?, place)
        }
        _ => {
            let annex = Annex::new(&netns, Side::Source, args.forward).map_err(failure)?;
            wires.push(annex.wire);
            (annex.own, annex.in_place)
        }
    };
    let nic = format!("{} of namespace {}", place.ifname, plan.netns.as_deref().unwrap_or("?"));
    if !args.forward {
        let session = paths::probe::between(Pair { near, far: place }, None, nic, load)?;
        return Ok((session, wires));
    }
    if !place.forwards().map_err(failure)? {
        return Err(Failure::failed(format!(
            "the namespace does not forward what comes in by {}: set \
             net.ipv4.conf.{}.forwarding there, or leave --forward out",
            place.ifname, place.ifname
        )));
    }
    let sink = Annex::new(&netns, Side::Sink, true).map_err(failure)?;
    wires.push(sink.wire);
    let pair = Pair { near, far: sink.own };
    let nic = format!("{nic}, forwarded");
    Ok((paths::probe::between(pair, Some(place.mac), nic, load)?, wires))
}

/// The interface of a namespace whose wire leads straight to a place.
fn source_in(from: Netns, place: &End) -> Result<End, Failure> {
    let found = from.run(|| {
        let route = net::route_to(place.ip)?;
        Ok::<_, net::NetError>((route, net::link(route.ifindex)?))
    });
    let (route, link) = found.map_err(|error| Failure::of(&error))?.map_err(|e| Failure::of(&e))?;
    let by = match route.gateway {
        Some(gateway) => format!("by the router {gateway}"),
        None if link.is_loopback => "within itself".to_owned(),
        None => return End::existing(from, &link.name).map_err(failure),
    };
    Err(Failure::Usage(format!(
        "the namespace of --from reaches {} {by}, and not by the wire of the plan's interface",
        place.ip
    )))
}

fn failure(error: LabError) -> Failure {
    Failure::of(&error)
}

/// A session whose arms are settings: each trial begins with applying them, by the journal, and
/// ends with giving them back.
struct Tuned {
    inner: Box<dyn Session>,
    /// Of namespaces of ours that are joined to the plan's; cut after the session.
    _wires: Vec<Wire>,
    system: System,
    plan: Plan,
    store: Store,
    /// How long the settings of a trial may stay if we are killed and cannot be told from who waits.
    within: Duration,
    /// Why no trial means anything any more.
    broken: Option<String>,
}

impl Tuned {
    fn part(&self, knobs: &[String]) -> Plan {
        let mut part = self.plan.clone();
        part.steps.retain(|step| knobs.contains(&step.knob));
        part.left_out.clear();
        part
    }

    /// Applies the whole plan and gives it back, before time is spent on its parts.
    fn try_once(&mut self) -> Result<(), Failure> {
        let plan = self.plan.clone();
        self.apply(&plan)?;
        match self.give_back() {
            None => Ok(()),
            Some(why) => Err(Failure::Failed(why)),
        }
    }

    fn apply(&self, plan: &Plan) -> Result<Applied, tune::ApplyError> {
        let options = Options {
            stop: stop::flag_ref(),
            confirm_within: Some(self.within),
            watch: &mut |_| {},
        };
        tune::apply(&self.system, plan, &self.store, options)
    }

    /// Gives back what is applied; why not, if not all could be.
    fn give_back(&self) -> Option<String> {
        let root = self.system.place().root.as_deref();
        let given = self
            .store
            .lock()
            .map_err(tune::RollbackError::from)
            .and_then(|lock| tune::rollback(&self.store, &lock, root, "the trial is over"));
        match given {
            Err(error) => Some(format!(
                "settings could not be given back: {}; that is tried again when this ends, and by \
                 `wirepath tune rollback`",
                host::text::chain(&error)
            )),
            Ok(report) => {
                let foreign = report.foreign().next().map(|given| {
                    format!(
                        "somebody else changed {} of {} meanwhile; that was left, and nothing \
                         measured from then on means anything",
                        given.knob, given.target
                    )
                });
                report
                    .failure()
                    .map(|why| format!("not all could be given back: {why}"))
                    .or(foreign)
            }
        }
    }
}

/// A trial that means nothing.
fn no_trial(why: String) -> PathError {
    PathError::End { end: "settings".into(), why }
}

impl Session for Tuned {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        if let Some(why) = &self.broken {
            return Err(no_trial(why.clone()));
        }
        if arm.switches.is_empty() {
            return self.inner.trial(&Arm::baseline());
        }
        let part = self.part(&arm.switches);
        let applied = self.apply(&part).map_err(|error| no_trial(host::text::chain(&error)))?;
        let measured = self.inner.trial(&Arm::baseline());
        self.broken = self.give_back();
        if let Some(why) = &self.broken {
            return Err(no_trial(why.clone()));
        }
        let mut measured = measured?;
        let Applied::Done { steps, .. } = applied else {
            return Err(no_trial("nothing was left to set".into()));
        };
        let set: BTreeSet<&str> = steps.iter().map(|step| step.knob.as_str()).collect();
        measured.counters.insert("settings_changed_count".into(), steps.len() as u64);
        for knob in arm.switches.iter().filter(|knob| !set.contains(knob.as_str())) {
            let (switch, why) = (knob.clone(), "it was so already".to_owned());
            measured.not_effective.push(model::NotEffective { switch, why });
        }
        Ok(measured)
    }

    fn nic(&self) -> String {
        self.inner.nic()
    }
}

/// What a setting did on top of those before it.
struct Gain {
    arm: String,
    over: String,
    metric: String,
    ratio: f64,
    interval: Option<(f64, f64)>,
    p: f64,
    verdict: Verdict,
}

impl Gain {
    fn document(&self) -> Value {
        json!({
            "arm": self.arm, "over": self.over, "metric": self.metric, "ratio": self.ratio,
            "low": self.interval.map(|interval| interval.0),
            "high": self.interval.map(|interval| interval.1),
            "p": self.p, "verdict": self.verdict,
        })
    }
}

/// Each rung over the one below it, by the same statistics as over the baseline.
fn gains_of(outcome: &Outcome) -> Vec<Gain> {
    let is_rung = |arm: &&ArmOutcome| arm.kind != model::ArmKind::Control;
    let rungs: Vec<&ArmOutcome> = outcome.arms.iter().filter(is_rung).collect();
    let mut gains = Vec::new();
    for metric in &outcome.judged {
        for pair in rungs.windows(2) {
            let Some((found, verdict)) = outcome.step(pair[0], pair[1], metric) else { continue };
            gains.push(Gain {
                arm: match pair[1].switches.last() {
                    Some(last) if pair[1].name == WHOLE => format!("+{last} ({WHOLE})"),
                    _ => pair[1].name.clone(),
                },
                over: pair[0].name.clone(),
                metric: metric.clone(),
                ratio: found.ratio,
                interval: found.interval.map(|interval| (interval.low, interval.high)),
                p: found.p,
                verdict,
            });
        }
    }
    gains
}

fn table(gains: &[Gain]) -> String {
    if gains.is_empty() {
        return String::new();
    }
    let mut text = String::from("\nEach setting on top of those before it\n");
    let width = gains.iter().map(|gain| gain.arm.len()).max().unwrap_or(0);
    let mut metric = "";
    for gain in gains {
        if gain.metric != metric {
            metric = &gain.metric;
            let _ = writeln!(text, "  {metric}");
        }
        let interval =
            gain.interval.map_or("–".to_owned(), |(low, high)| format!("[{low:.3}, {high:.3}]"));
        let verdict = serde_json::to_value(gain.verdict).unwrap_or_default();
        let verdict = verdict.as_str().unwrap_or_default().replace(['-', '_'], " ");
        let _ = writeln!(
            text,
            "    {:<width$}  {:>7.3}  {interval:<16}  {verdict}",
            gain.arm, gain.ratio
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(groups: &[&str], how: Arms) -> Vec<(String, String)> {
        let arms = arms_of(groups, how).into_iter().skip(2);
        arms.map(|(arm, _)| (arm.name, arm.switches.join(" "))).collect()
    }

    #[test]
    fn rungs_add_up_to_the_plan_and_one_setting_is_the_plan() {
        let row = |name: &str, switches: &str| (name.to_owned(), switches.to_owned());
        let three = ["channels", "gro", "rps-cpus"];
        assert_eq!(
            names(&three, Arms::Ladder),
            [
                row("+channels", "channels"),
                row("+gro", "channels gro"),
                row("plan", "channels gro rps-cpus")
            ]
        );
        let alone = names(&three, Arms::Alone);
        assert_eq!(alone[1], row("gro", "gro"));
        assert_eq!(alone[3], row("plan", "channels gro rps-cpus"));
        for how in [Arms::Ladder, Arms::Alone] {
            assert_eq!(names(&three[..1], how), [row("plan", "channels")]);
        }
    }

    #[test]
    fn a_setting_is_compared_with_those_below_it_block_by_block() {
        let arm = |name: &str, kind, switches: &[&str], values: [f64; 8]| ArmOutcome {
            name: name.to_owned(),
            kind,
            switches: switches.iter().map(|&id| id.to_owned()).collect(),
            support: Support::Yes,
            trials: 8,
            metrics: BTreeMap::from([(
                "rtt_ns_p50".to_owned(),
                model::MetricOutcome::unjudged(
                    "ns",
                    model::Better::Lower,
                    values.map(Some).to_vec(),
                ),
            )]),
            latency: BTreeMap::new(),
            mode: BTreeMap::new(),
            counters: BTreeMap::new(),
            failures: Vec::new(),
        };
        // Blocks differ by far more than settings do.
        let blocks = [1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0];
        let outcome = Outcome {
            schema: model::SCHEMA,
            id: String::new(),
            started: String::new(),
            version: String::new(),
            machine: model::Machine::default(),
            path: "probe".into(),
            load: BTreeMap::new(),
            seed: 1,
            blocks: 8,
            wall_ms: 1,
            ended: model::Ended::TimeUp,
            judged: vec!["rtt_ns_p50".into()],
            arms: vec![
                arm("baseline", model::ArmKind::Baseline, &[], blocks),
                arm("baseline again", model::ArmKind::Control, &[], blocks),
                arm("+gro", model::ArmKind::Variant, &["gro"], blocks.map(|b| b * 0.5)),
                arm("plan", model::ArmKind::Variant, &["gro", "lro"], blocks.map(|b| b * 0.5)),
            ],
            floor: BTreeMap::from([("rtt_ns_p50".into(), model::Floor { low: 0.98, high: 1.02 })]),
            warnings: Vec::new(),
        };
        let gains = gains_of(&outcome);
        assert_eq!(gains.len(), 2);
        assert_eq!((gains[0].arm.as_str(), gains[0].over.as_str()), ("+gro", "baseline"));
        assert_eq!((gains[0].ratio, gains[0].verdict), (0.5, Verdict::Better));
        assert_eq!((gains[1].arm.as_str(), gains[1].over.as_str()), ("+lro (plan)", "+gro"));
        assert_eq!((gains[1].ratio, gains[1].verdict), (1.0, Verdict::NoDifferenceShown));
        let text = table(&gains);
        assert!(text.contains("+gro") && text.contains("no difference shown"), "{text}");
    }
}
