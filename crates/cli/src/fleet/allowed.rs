//! Work that an agent takes: a built-in path in a lab on its host, its part of a mesh, with `--allow-path` the paths of
//! programs that its administrator named, and with `--allow-tune` the steps of roll-outs.
//!
//! No job names a file or a program, so that a coordinator that was taken over can start no program of its choice. A
//! step has a plan of settings, whose knobs are those of `tune`.

use std::net::IpAddr;

use fleet::rollout::ID_PREFIX;
use host::tune::Plan;
use model::{
    LoadRequest, PathRequest, PlanArms, PlanLoad, PlanRequest, Request, Subject, TwoHosts,
};
use remote::Failure;
use remote::path::is_path_name;
use remote::work::{Call, Crossing, Echo, Ping, RolloutStep};

use crate::lookup;

/// Round trips of one measurement of a pair.
const PINGS_MAX: u32 = 1_000_000;
/// Time that one end of a pair waits for the other, seconds.
const PAIR_WAIT_S_MAX: u32 = 3600;
/// Length of a period of a live proof, milliseconds.
const CROSSING_MS_MAX: u64 = 600_000;

fn refused(why: impl Into<String>) -> Result<(), Failure> {
    Err(Failure::Usage(why.into()))
}

/// Work of an agent that its administrator allows.
#[derive(Debug, Clone)]
pub(super) struct Permissions {
    /// It runs with `--allow-tune`.
    pub(super) may_tune: bool,
    pub(super) paths: AllowedPaths,
}

/// Paths of strangers that are measured.
#[derive(Debug, Clone)]
pub(super) enum AllowedPaths {
    /// Those that `--allow-path` names.
    Named(Vec<String>),
    /// Any: each agent decides for itself.
    Any,
}

impl Permissions {
    /// Of a coordinator, for work of agents that it cannot ask beforehand.
    pub(super) fn coordinator(may_tune: bool) -> Self {
        Permissions { may_tune, paths: AllowedPaths::Any }
    }
}

/// Errors: an agent does not do this.
pub(super) fn check(call: &Call, permissions: &Permissions) -> Result<(), Failure> {
    match call {
        Call::RunAlone(request) => check_request(request, permissions),
        Call::Cross(_) if !permissions.may_tune => no_tuning(),
        Call::Cross(crossing) => check_crossing(crossing),
        // An agent that no longer may tune still restores what it applied.
        Call::Step(step)
            if !permissions.may_tune && !matches!(**step, RolloutStep::RollBack { .. }) =>
        {
            no_tuning()
        }
        Call::Step(step) => check_step(step),
        Call::Echo(Echo { ipv6: _, session: _, until: Some(until) }) => {
            check_pair(until.count, until.wait_s)
        }
        Call::Ping(ping) => check_ping(ping),
        Call::Echo(Echo { until: None, .. }) | Call::Run(_) | Call::StopPing | Call::Interrupt => {
            refused("agents take no such work")
        }
    }
}

fn no_tuning() -> Result<(), Failure> {
    refused("this host's agent runs without --allow-tune, so no plan is measured or applied here")
}

/// Errors: an agent does not measure this, with or without `--allow-tune`.
pub(super) fn check_request(request: &Request, permissions: &Permissions) -> Result<(), Failure> {
    // Every field is named: a new one is refused until it is thought about.
    let Request {
        version: _,
        subject,
        limits: _,
        series,
        gate,
        is_stored: _,
        name: _,
        note: _,
        words: _,
    } = request;
    request.check().map_err(Failure::usage)?;
    if series.runs != 1 || *gate {
        return refused("agents take one run without a gate");
    }
    match subject {
        Subject::Path(path) => check_path(path, &permissions.paths),
        Subject::Programs(_) => {
            refused("agents start no programs; use `fleet prove --on ssh:HOST command …`")
        }
        Subject::Plan(_) if !permissions.may_tune => no_tuning(),
        Subject::Plan(plan) => check_plan_request(plan, &permissions.paths),
    }
}

fn check_path(request: &PathRequest, allowed: &AllowedPaths) -> Result<(), Failure> {
    let PathRequest { path, load, arms, peers, against, file } = request;
    check_path_name(path, allowed)?;
    if against.is_some() {
        return refused("agents start no other build of Wirepath");
    }
    if file.is_some() {
        return refused("agents run no commands of a file");
    }
    if load.far.is_some() {
        return refused("agents measure a path in a lab: leave out the far end");
    }
    check_load(load)?;
    peers.iter().chain([arms]).try_for_each(|name| check_name(name))
}

/// Errors: the path is neither one of the program's own nor allowed.
fn check_path_name(name: &str, allowed: &AllowedPaths) -> Result<(), Failure> {
    let paths = lookup::all();
    let is_allowed = match allowed {
        AllowedPaths::Named(names) => names.iter().any(|allowed| allowed == name),
        AllowedPaths::Any => true,
    };
    // The hidden path is a built-in one that no agent measures.
    let is_external = is_path_name(name) && lookup::built_in(name).is_none();
    if paths.iter().any(|path| path.name() == name) || (is_allowed && is_external) {
        return Ok(());
    }
    let known: Vec<&str> = paths.iter().map(|path| path.name()).collect();
    let mut why =
        format!("{name:?} is not a path that this agent measures: use {}", known.join(", "));
    if is_external {
        let remedy = format!(
            "; if wirepath-{name} is installed there, start its agent with --allow-path {name}"
        );
        why.push_str(&remedy);
    }
    refused(why + "; for other work, `fleet prove --on ssh:HOST`")
}

/// Errors: the name could be one of a file.
fn check_name(name: &str) -> Result<(), Failure> {
    if name.contains(['/', '\0']) {
        return refused(format!("agents take no name of a file: {name:?}"));
    }
    Ok(())
}

fn check_load(load: &LoadRequest) -> Result<(), Failure> {
    let LoadRequest {
        kind,
        size_bytes: _,
        rate_pps: _,
        trial: _,
        ipv6: _,
        vlan_tag: _,
        wire: _,
        far,
        replay,
    } = load;
    if replay.is_some() {
        return refused("agents replay no file");
    }
    load.check().map_err(Failure::usage)?;
    kind.iter().try_for_each(|kind| check_name(kind))?;
    far.iter().try_for_each(check_far)
}

/// Errors: the far end is not a peer that runs already, or has settings that belong to one host.
fn check_far(far: &TwoHosts) -> Result<(), Failure> {
    let allowed =
        TwoHosts { end: far.end.clone(), direction: far.direction, ..TwoHosts::default() };
    if !far.end.starts_with("peer:") || *far != allowed {
        return refused(format!(
            "agents take no far end {:?}: use peer:HOST[:PORT] alone, and run `wirepath peer` there",
            far.end
        ));
    }
    check_name(&far.end)
}

fn check_plan_request(request: &PlanRequest, allowed: &AllowedPaths) -> Result<(), Failure> {
    let PlanRequest { plan, file: _, rebase: _, arms, from, forward, load } = request;
    if from.is_some() || *forward || !matches!(arms, PlanArms::Plan | PlanArms::None) {
        return refused(
            "agents measure a whole plan, under a load to a peer or in the plan's own lab",
        );
    }
    check_plan(plan)?;
    match load {
        PlanLoad::Path { path, load } => {
            check_path_name(path, allowed)?;
            check_load(load)
        }
        PlanLoad::Programs(_) => {
            refused("agents start no programs: leave out --client and --server")
        }
    }
}

/// Errors: the text is not a plan, or its namespace is a file.
fn check_plan(text: &str) -> Result<(), Failure> {
    match Plan::parse(text).map_err(Failure::usage)?.netns {
        Some(netns) if netns.contains('/') => {
            refused(format!("agents take no file as namespace of a plan: {netns:?}"))
        }
        _ => Ok(()),
    }
}

/// Errors: a figure is not one from outside.
fn check_crossing(crossing: &Crossing) -> Result<(), Failure> {
    // Every field is named: a new one is refused until it is thought about.
    let Crossing {
        plan,
        port: _,
        unit: _,
        metrics,
        primary: _,
        rules: _,
        closes_connections: _,
        arms: _,
        period_ms,
        p99_ns: _,
    } = crossing;
    if let Some(metric) = metrics.first() {
        return refused(format!(
            "agents read no file or address and start no program for a figure: leave out --metric {metric:?}; the figures \
             from outside need none"
        ));
    }
    if *period_ms > CROSSING_MS_MAX {
        return refused(format!("agents switch for at most {} s", CROSSING_MS_MAX / 1000));
    }
    check_plan(plan)
}

fn check_step(step: &RolloutStep) -> Result<(), Failure> {
    if let Some(owner) = step.owner().filter(|owner| !owner.starts_with(ID_PREFIX)) {
        return refused(format!(
            "{owner:?} is not a valid id of a roll-out: it begins with {ID_PREFIX}"
        ));
    }
    step.plan().map_or(Ok(()), check_plan)
}

/// Errors: the address is not one of one host, or a limit is exceeded.
pub(super) fn check_ping(ping: &Ping) -> Result<(), Failure> {
    let Ping { address, count, session: _, wait_s } = ping;
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    if is_broadcast || address.is_multicast() || address.is_unspecified() {
        return refused(format!("{address} is not a valid address of one host"));
    }
    check_pair(*count, *wait_s)
}

fn check_pair(count: u32, wait_s: u32) -> Result<(), Failure> {
    if !(1..=PINGS_MAX).contains(&count) || wait_s > PAIR_WAIT_S_MAX {
        return refused(format!(
            "agents send 1 to {PINGS_MAX} pings, and wait {PAIR_WAIT_S_MAX} s at most"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use model::{Limits, PathFile, Programs, ReplayRequest, Series};
    use remote::work::EchoEnd;

    use super::*;

    const PLAN: &str = "schema = 1\nmachine = \"x\"\nprofile = \"forwarding\"\n";

    fn probe() -> PathRequest {
        PathRequest { path: "probe".into(), arms: "spin".into(), ..PathRequest::default() }
    }

    fn run(subject: Subject) -> Request {
        Request::new(subject, Limits::default())
    }

    fn path_call(path: PathRequest) -> Call {
        Call::RunAlone(Box::new(run(Subject::Path(Box::new(path)))))
    }

    fn named_path_call(path: &str) -> Call {
        path_call(PathRequest { path: path.into(), ..probe() })
    }

    fn permissions(may_tune: bool) -> Permissions {
        Permissions { may_tune, paths: AllowedPaths::Named(vec!["echo".to_owned()]) }
    }

    fn check(call: &Call, may_tune: bool) -> Result<(), Failure> {
        super::check(call, &permissions(may_tune))
    }

    fn assert_refused(call: &Call, what: &str) {
        match check(call, true) {
            Err(failure) => assert_eq!(failure.exit_code(), model::ExitCode::Usage, "{what}"),
            Ok(()) => panic!("{what} is allowed: {call:?}"),
        }
    }

    #[test]
    fn only_paths_in_a_lab_are_measured() {
        assert_eq!(check(&path_call(probe()), false), Ok(()));
        let load = |load: LoadRequest| PathRequest { load, ..probe() };
        let far = Some(TwoHosts { end: "ssh:h2".into(), ..TwoHosts::default() });
        let replay = ReplayRequest { file: "/etc/passwd".into(), sequence: "be32@4".into() };
        for (what, path) in [
            ("a far end", load(LoadRequest { far, ..LoadRequest::default() })),
            ("a file", load(LoadRequest { replay: Some(replay), ..LoadRequest::default() })),
            (
                "a path as load",
                load(LoadRequest { kind: Some("/etc/passwd".into()), ..LoadRequest::default() }),
            ),
            ("another build", PathRequest { against: Some(PathBuf::from("./old")), ..probe() }),
            ("a file of commands", PathRequest { file: Some(PathFile::default()), ..probe() }),
            ("a peer by its file", PathRequest { peers: vec!["/bin/sh".into()], ..probe() }),
            ("an unknown path", PathRequest { path: "../x".into(), ..probe() }),
            ("the hidden path", PathRequest { path: "fake".into(), ..probe() }),
        ] {
            assert_refused(&path_call(path), what);
        }
        let programs = Call::RunAlone(Box::new(run(Subject::Programs(Box::default()))));
        assert_refused(&programs, "programs");
        let request = run(Subject::Path(Box::new(probe())));
        for (what, request) in [
            ("another version", Request { version: 99, ..request.clone() }),
            ("a series", Request { series: Series { runs: 5, every: None }, ..request.clone() }),
            ("a gate", Request { gate: true, ..request }),
        ] {
            assert_refused(&Call::RunAlone(Box::new(request)), what);
        }
        for call in [Call::StopPing, Call::Interrupt] {
            assert_refused(&call, "not the work of a job");
        }
    }

    #[test]
    fn paths_of_strangers_need_the_permission_of_the_host() {
        assert_eq!(check(&named_path_call("echo"), false), Ok(()));
        let refused = check(&named_path_call("other"), false).unwrap_err();
        assert!(refused.text().contains("--allow-path other"), "{}", refused.text());
        let any = Permissions::coordinator(false);
        assert_eq!(super::check(&named_path_call("other"), &any), Ok(()));
        for bad in ["../x", "fake", "a b"] {
            assert!(super::check(&named_path_call(bad), &any).is_err(), "{bad}");
        }
    }

    #[test]
    fn parts_of_a_mesh_have_an_address_of_one_host_and_limits() {
        let ping = |address: &str, count| {
            let address = address.parse().unwrap();
            Call::Ping(Ping { address, count, session: 7, wait_s: 20 })
        };
        for good in ["10.0.0.2", "fd00::7"] {
            assert_eq!(check(&ping(good, 20), false), Ok(()), "{good}");
        }
        for bad in ["255.255.255.255", "224.0.0.1", "ff02::1", "::"] {
            assert_refused(&ping(bad, 20), bad);
        }
        assert_refused(&ping("10.0.0.2", 0), "no ping");
        assert_refused(&ping("10.0.0.2", 1_000_001), "too many pings");
        let echo = |until| Call::Echo(Echo { ipv6: false, session: 7, until });
        assert_eq!(check(&echo(Some(EchoEnd { count: 20, wait_s: 20 })), false), Ok(()));
        assert_refused(&echo(Some(EchoEnd { count: 20, wait_s: 3601 })), "a long wait");
        assert_refused(&echo(None), "an echo without an end");
    }

    #[test]
    fn steps_need_the_permission_of_the_host_and_name_no_file_program_or_other_owner() {
        let step = |step: RolloutStep| Call::Step(Box::new(step));
        let owner = || "rollout-1".to_owned();
        let confirm = step(RolloutStep::Confirm { owner: owner() });
        assert_eq!(check(&confirm, true), Ok(()));
        assert!(check(&confirm, false).unwrap_err().text().contains("--allow-tune"));
        // The way back is always open.
        assert_eq!(check(&step(RolloutStep::RollBack { owner: owner() }), false), Ok(()));
        for bad in ["ansible", "--root=/x"] {
            assert_refused(&step(RolloutStep::RollBack { owner: bad.into() }), bad);
        }
        let file = format!("{PLAN}netns = \"/proc/1/ns/net\"\n");
        for bad in [file.as_str(), "nonsense"] {
            assert_refused(&step(RolloutStep::Verify { plan: bad.into() }), bad);
        }
        let peer = TwoHosts { end: "peer:db9:7117".into(), ..TwoHosts::default() };
        let load = |far: TwoHosts| PlanLoad::Path {
            path: "probe".into(),
            load: Box::new(LoadRequest { far: Some(far), ..LoadRequest::default() }),
        };
        let plan = |load: PlanLoad| PlanRequest {
            plan: PLAN.into(),
            file: "plan.toml".into(),
            rebase: true,
            arms: PlanArms::Plan,
            from: None,
            forward: false,
            load,
        };
        let call = |plan: PlanRequest| Call::RunAlone(Box::new(run(Subject::Plan(Box::new(plan)))));
        let good = plan(load(peer.clone()));
        assert_eq!(check(&call(good.clone()), true), Ok(()));
        assert!(check(&call(good.clone()), false).unwrap_err().text().contains("--allow-tune"));
        let end = |end: &str| plan(load(TwoHosts { end: end.into(), ..TwoHosts::default() }));
        for (what, bad) in [
            ("programs", plan(PlanLoad::Programs(Box::<Programs>::default()))),
            ("ssh", end("ssh:db9")),
            ("a namespace", end("netns:red")),
            (
                "an option of ssh",
                plan(load(TwoHosts { ssh_options: vec!["ProxyCommand=x".into()], ..peer.clone() })),
            ),
            ("an interface", plan(load(TwoHosts { ifname: Some("eth0".into()), ..peer.clone() }))),
            ("a secret", plan(load(TwoHosts { secret: Some("x".into()), ..peer }))),
            ("a namespace of the client", PlanRequest { from: Some("red".into()), ..good.clone() }),
            ("a file as namespace", PlanRequest { plan: file.clone(), ..good.clone() }),
            ("parts of a plan", PlanRequest { arms: PlanArms::Ladder, ..good }),
        ] {
            assert_refused(&call(bad), what);
        }
    }
}
