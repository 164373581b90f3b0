//! An experiment as it is written becomes one that is checked.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use host::tune::list_to_cpus;
use lab::adapters::{self, Adapter, Figure, Origin};
use lab::program::Ready;
use lab::{BuiltInLoad, FarEnd};
use model::{ArmEntry, Programs, did_you_mean, is_event_count};

use crate::spec::{
    ArmSpec, CheckedPrograms, MEASURED, MiddlePlace, ProgramLimits, SharedPlace, SpecError, Warmup,
    figures_of_place,
};
use crate::switches::{Act, At, Switch, is_place_name, is_variable};

/// Start of the figures of `--stages`.
const STAGES: [&str; 2] = ["driver_to_socket_ns_", "socket_to_read_ns_"];

/// Figures of an adapter that decide unless others are named: each verdict more costs certainty.
const JUDGED_OF_ADAPTER: usize = 3;

/// Arm of `--against`, and that of the server which is compared with it.
const OLD: &str = "old";
const NEW: &str = "new";

/// Port unless another is given.
const PORT: u16 = 9000;
fn time(
    key: &'static str,
    text: Option<&String>,
    default: Duration,
) -> Result<Duration, SpecError> {
    let Some(text) = text else { return Ok(default) };
    let read = humantime::parse_duration(text).ok().filter(|time| !time.is_zero());
    read.ok_or_else(|| SpecError::Time { key, text: text.clone() })
}

fn cpus(key: &'static str, text: Option<&String>) -> Result<Option<Vec<usize>>, SpecError> {
    let Some(text) = text else { return Ok(None) };
    match list_to_cpus(text).filter(|cpus| !cpus.is_empty()) {
        Some(cpus) => Ok(Some(cpus)),
        None => Err(SpecError::Cpus { key, text: text.clone() }),
    }
}

/// A namespace as [`host::tune::Place`] names it.
fn place(text: Option<&String>) -> Result<Option<String>, SpecError> {
    let Some(text) = text else { return Ok(None) };
    let name = text.strip_prefix("netns:").filter(|name| !name.is_empty());
    name.map(|name| Some(name.to_owned())).ok_or_else(|| SpecError::Place { text: text.clone() })
}

/// `this[@INTERFACE]` or `netns:NAME[@INTERFACE]`.
fn existing_place(text: &str) -> Option<SharedPlace> {
    let (place, interface) = match text.split_once('@') {
        Some((place, interface)) => (place, Some(interface)),
        None => (text, None),
    };
    let netns = match place {
        "this" => None,
        place => Some(place.strip_prefix("netns:").filter(|name| !name.is_empty())?.to_owned()),
    };
    let interface = interface.map(str::to_owned);
    let is_named = interface.as_ref().is_none_or(|name| !name.is_empty());
    is_named.then_some(SharedPlace::Existing { netns, interface })
}

/// Place of both ends. Errors: it cannot hold this experiment.
fn shared_place(programs: &Programs) -> Result<Option<SharedPlace>, SpecError> {
    let Some(text) = &programs.place else { return Ok(None) };
    let place = match text.as_str() {
        "here" => SharedPlace::Here,
        "loopback" => SharedPlace::Loopback,
        text => existing_place(text).ok_or_else(|| SpecError::SharedPlace { text: text.into() })?,
    };
    let is_existing = matches!(place, SharedPlace::Existing { .. });
    let mut switches =
        programs.switches.iter().chain(programs.arm.iter().flat_map(|arm| &arm.switches));
    let why = if programs.near.is_some() || programs.far.is_some() || !programs.at.is_empty() {
        "it is of both ends; remove near, far and at"
    } else if !is_existing && switches.any(|switch| !switch.starts_with("env:")) {
        "it has no interface under test, so a switch can only be env:NAME=VALUE"
    } else if programs.feed.is_some() {
        "a feed needs a wire to the server; name near and far, or leave all out for a lab"
    } else if place != SharedPlace::Loopback && programs.client.is_some() {
        "a server and its client share the ports of this host; write loopback, or leave it out for a lab"
    } else {
        return Ok(Some(place));
    };
    Err(SpecError::PlaceOf { place, why })
}

/// Reads an experiment file.
pub fn read(file: &Path) -> Result<Programs, SpecError> {
    let text = host::user_file::read_text(file, Programs::BYTES_MAX as u64)
        .map_err(|source| SpecError::Read { path: file.to_owned(), source })?;
    Ok(Programs::parse(&text)?)
}

/// Checks everything that needs no machine. Errors: the first mistake, with its remedy.
pub fn resolve(programs: &Programs) -> Result<CheckedPrograms, SpecError> {
    let spec = resolve_programs(programs)?;
    if spec.switches.is_empty() && programs.arms.is_some() {
        return Err(SpecError::NoSwitch);
    }
    if spec.switches.is_empty() && spec.arms.len() < 2 {
        return Err(SpecError::OneArm);
    }
    Ok(spec)
}

/// As [`resolve`], for programs whose arms are defined elsewhere.
pub fn resolve_programs(programs: &Programs) -> Result<CheckedPrograms, SpecError> {
    let source = programs;
    let with_load = with_load(programs)?;
    let programs = with_load.as_ref().unwrap_or(programs);
    let arms = resolve_arms(programs)?;
    let switches = switches(&programs.switches)?;
    let adapter = resolve_adapter(programs)?;
    let (figures, judged) = resolve_figures(programs, adapter.as_ref())?;
    check_feed(programs)?;
    let default_ready = if programs.feed.is_some() { "udp" } else { "tcp" };
    let ready = programs.ready.clone().unwrap_or_else(|| default_ready.into());
    let port_of_ready = match ready.split_once(':') {
        Some(("tcp" | "udp", port)) => port.parse().ok(),
        _ => None,
    };
    let port = programs.port.or(port_of_ready).unwrap_or(PORT);
    let last = u32::from(port) + arms.len() as u32 + 2 * switches.len() as u32 + 1;
    if port == 0 || programs.keep && last > u32::from(u16::MAX) {
        return Err(SpecError::Ports { first: port, last });
    }
    let spec = CheckedPrograms {
        plan: programs.arms.clone().unwrap_or_else(|| "ladder".into()),
        client: programs.client.clone(),
        feed: programs.feed.clone(),
        beside: beside(programs)?,
        ready,
        setup: programs.setup.clone(),
        cleanup: programs.cleanup.clone(),
        warmup: programs.warmup.as_ref().map(|text| match humantime::parse_duration(text) {
            Ok(time) => Warmup::Wait(time),
            Err(_) => Warmup::Command(text.clone()),
        }),
        keep: programs.keep,
        adapter,
        figures,
        deciding: deciding(programs, &judged)?,
        judged,
        place: shared_place(programs)?,
        near: place(programs.near.as_ref())?,
        far: resolve_far(programs)?,
        middle: resolve_middle(programs)?,
        far_address: resolve_far_address(programs)?,
        ssh_options: programs.ssh_options.clone(),
        source: source.clone(),
        queues: programs.queues.unwrap_or(1).clamp(1, 64),
        wire: programs.wire.clone(),
        near_cpus: cpus("near-cpus", programs.near_cpus.as_ref())?,
        far_cpus: cpus("far-cpus", programs.far_cpus.as_ref())?,
        port,
        limits: ProgramLimits {
            ready: time("ready-within", programs.ready_within.as_ref(), Duration::from_secs(10))?,
            step: time("within", programs.within.as_ref(), Duration::from_secs(60))?,
            grace: time("grace", programs.grace.as_ref(), Duration::from_secs(2))?,
        },
        stages: programs.stages,
        arms,
        switches,
    };
    spec.ready(spec.port)?;
    if spec.wire.is_some() && !(spec.place.is_none() && spec.is_lab()) {
        return Err(SpecError::WireOfPlace);
    }
    check_places(&spec)?;
    Ok(spec)
}

/// Errors: a feed beside what it takes the place of, or without a server.
fn check_feed(programs: &Programs) -> Result<(), SpecError> {
    let is_empty =
        |command: &Option<String>| command.as_ref().is_some_and(|text| text.trim().is_empty());
    let why = if is_empty(&programs.feed) || is_empty(&programs.beside) {
        "--feed and --beside take a command; this one is empty"
    } else if programs.feed.is_some() && programs.client.is_some() {
        "--feed takes the place of --client; give one of them"
    } else if programs.feed.is_some() && programs.adapter.is_some() {
        "--adapter reads a client's output, and --feed has no client; give --metric NAME='server:SOURCE'"
    } else if programs.beside.is_none() && programs.beside_ready.is_some() {
        "--beside-ready is of the program beside the trials; add --beside 'COMMAND'"
    } else if programs.beside.is_some()
        && programs.client.is_none()
        && programs.feed.is_none()
        && programs.place.is_none()
    {
        "--beside runs at the arms' place, which has to exist: add --place netns:NAME or --place this, or give the \
         arms' server a --client or a --feed"
    } else {
        return Ok(());
    };
    Err(SpecError::Feed(why))
}

/// The program beside each trial, and the sign that it is ready.
fn beside(programs: &Programs) -> Result<Option<(String, Ready)>, SpecError> {
    let Some(command) = &programs.beside else { return Ok(None) };
    let ready = programs.beside_ready.as_deref().unwrap_or("sleep:500").parse()?;
    Ok(Some((command.clone(), ready)))
}

/// Errors: a figure of a program that the experiment does not have. With a feed the server's output is that of the
/// arms.
fn placed(mut figure: Figure, programs: &Programs) -> Result<Figure, SpecError> {
    let has_server = programs.client.is_some() || programs.feed.is_some();
    let of = match figure.origin {
        Origin::Server if !has_server => {
            "a server, and the arms are programs that end: leave out server:, or add --client or --feed"
        }
        Origin::Beside if programs.beside.is_none() => {
            "the program beside the trials; add --beside 'COMMAND'"
        }
        Origin::Own if programs.feed.is_some() => {
            figure.origin = Origin::Server;
            return Ok(figure);
        }
        _ => return Ok(figure),
    };
    Err(SpecError::Origin { name: figure.name, of })
}

/// Time of a built-in load in one trial.
const LOAD_TIME: Duration = Duration::from_secs(1);

/// The programs with the two commands of their built-in load; `None` if they have none.
fn with_load(programs: &Programs) -> Result<Option<Programs>, SpecError> {
    let Some(text) = &programs.load else { return Ok(None) };
    let load: BuiltInLoad = text.parse()?;
    let commands = [&programs.server, &programs.client, &programs.feed, &programs.adapter];
    let has_command = commands.into_iter().flatten().next().is_some();
    if has_command
        || programs.against.is_some()
        || programs.arm.iter().any(|arm| arm.command.is_some())
    {
        return Err(SpecError::LoadAndCommand { text: text.clone() });
    }
    let mut metrics = programs.metrics.clone();
    if metrics.is_empty() {
        metrics.extend(load.figures().iter().map(|figure| (*figure).to_owned()));
    }
    Ok(Some(Programs {
        server: Some(load.server()),
        client: Some(load.client(LOAD_TIME)),
        ready: Some(load.ready().to_owned()),
        metrics,
        ..programs.clone()
    }))
}

fn arm_named(name: &str) -> ArmEntry {
    ArmEntry { name: name.into(), ..ArmEntry::default() }
}

/// The arms as they are written, the baseline first.
fn entries(programs: &Programs) -> Result<Vec<ArmEntry>, SpecError> {
    let mut entries = programs.arm.clone();
    if let Some(old) = &programs.against {
        check_against(programs, old)?;
        if entries.is_empty() {
            entries.push(arm_named(NEW));
        }
        entries.insert(0, ArmEntry { command: Some(old.clone()), ..arm_named(OLD) });
    } else if programs.server.is_some() && entries.len() < 2 {
        // With a common server, one arm alone is a variant of it.
        entries.insert(0, arm_named("baseline"));
    }
    if entries.is_empty() { Err(SpecError::NoArm) } else { Ok(entries) }
}

fn check_against(programs: &Programs, old: &str) -> Result<(), SpecError> {
    let why = if old.trim().is_empty() {
        "is empty: give the command of the old server"
    } else if programs.server.is_none() && programs.arm.is_empty() {
        "has nothing to compare with: give the command of the new server by --server, or by --arm NAME='COMMAND'"
    } else if !programs.switches.is_empty() {
        "compares commands, and --switch compares settings of one command: give one of them alone, or \
         `switches` to an arm of the experiment file"
    } else if programs.arm.iter().any(|arm| arm.name == OLD) {
        "makes an arm named old: give the other arm of this name another"
    } else {
        return Ok(());
    };
    Err(SpecError::Against(why))
}

fn resolve_arms(programs: &Programs) -> Result<Vec<ArmSpec>, SpecError> {
    let mut arms: Vec<ArmSpec> = Vec::new();
    for entry in entries(programs)? {
        let name = entry.name;
        if name.is_empty() || name.contains(|c: char| ",+".contains(c) || c.is_control()) {
            return Err(SpecError::ArmName { name });
        }
        if arms.iter().any(|arm| arm.name == name) {
            return Err(SpecError::SameName { name });
        }
        if let Some(variable) = entry.env.keys().find(|variable| !is_variable(variable)) {
            return Err(SpecError::Variable { name, variable: variable.clone() });
        }
        let command = entry.command.or_else(|| programs.server.clone());
        let command = command.filter(|command| !command.trim().is_empty());
        let Some(command) = command else { return Err(SpecError::NoCommand { name }) };
        let env = entry.env.into_iter().collect();
        arms.push(ArmSpec { name, command, env, switches: switches(&entry.switches)? });
    }
    Ok(arms)
}

fn resolve_far(programs: &Programs) -> Result<Option<FarEnd>, SpecError> {
    let far: Option<FarEnd> = programs.far.as_ref().map(|text| text.parse()).transpose()?;
    let has_ssh_place = programs.at.values().any(|place| place.starts_with("ssh:"));
    match far {
        Some(peer @ FarEnd::Peer(_)) => Err(SpecError::FarPeer(peer)),
        Some(FarEnd::Ssh(_)) => Ok(far),
        _ if programs.far_address.is_some() => Err(SpecError::NoHost { key: "far-address" }),
        _ if !programs.ssh_options.is_empty() && !has_ssh_place => {
            Err(SpecError::NoHost { key: "ssh-options" })
        }
        far => Ok(far),
    }
}

fn resolve_middle(programs: &Programs) -> Result<Vec<MiddlePlace>, SpecError> {
    let mut middle = Vec::new();
    for (name, text) in &programs.at {
        let wrong = |why: String| SpecError::At { name: name.clone(), why };
        if !is_place_name(name) {
            return Err(wrong(
                "a name has letters, digits, - and _, and is not near, far or env".into(),
            ));
        }
        let host = match text.parse::<FarEnd>() {
            _ if text == "this" => None,
            Ok(host @ (FarEnd::Netns(_) | FarEnd::Ssh(_))) => Some(host),
            _ => {
                let why = "is not a valid place; write netns:NAME, ssh:[USER@]HOST or this";
                return Err(wrong(format!("{text:?} {why}")));
            }
        };
        middle.push(MiddlePlace { name: name.clone(), host });
    }
    if !middle.is_empty() && programs.near.is_none() && programs.far.is_none() {
        let why = "is between two places: give --near netns:NAME and --far netns:NAME as well";
        return Err(SpecError::At { name: middle[0].name.clone(), why: why.into() });
    }
    Ok(middle)
}

/// Errors: a switch acts at a place that is not there.
fn check_places(spec: &CheckedPrograms) -> Result<(), SpecError> {
    for switch in spec.all_switches() {
        if spec.is_lab() && matches!(switch.act, Act::Commands { .. }) {
            return Err(SpecError::CommandsInLab { text: switch.to_string() });
        }
        if let At::Place(name) = &switch.at
            && !spec.middle.iter().any(|place| place.name == *name)
        {
            return Err(SpecError::NoPlace { text: switch.to_string(), name: name.clone() });
        }
    }
    Ok(())
}

fn resolve_far_address(programs: &Programs) -> Result<Option<IpAddr>, SpecError> {
    let Some(text) = &programs.far_address else { return Ok(None) };
    match text.parse() {
        // An address of the link alone needs an interface beside it.
        Ok(IpAddr::V6(ip)) if ip.is_unicast_link_local() => {}
        Ok(ip) => return Ok(Some(ip)),
        Err(_) => {}
    }
    Err(SpecError::FarAddress { text: text.clone() })
}

fn resolve_adapter(programs: &Programs) -> Result<Option<Adapter>, SpecError> {
    let Some(name) = &programs.adapter else { return Ok(None) };
    match adapters::ready_made(name) {
        Some(adapter) => Ok(Some(adapter)),
        None => {
            let mut known = adapters::PROGRAMS.to_vec();
            known.dedup();
            let hint = did_you_mean(name, known.iter().copied());
            Err(SpecError::Adapter { name: name.clone(), hint, known: known.join(", ") })
        }
    }
}

/// Figures of the client's output besides those of the adapter, and the names of those that decide.
fn resolve_figures(
    programs: &Programs,
    adapter: Option<&Adapter>,
) -> Result<(Vec<Figure>, Vec<String>), SpecError> {
    let of_adapter: Vec<&str> = adapter
        .iter()
        .flat_map(|adapter| &adapter.figures)
        .map(|figure| figure.name.as_str())
        .collect();
    let mut figures: Vec<Figure> = Vec::new();
    let mut judged: Vec<String> = Vec::new();
    for text in &programs.metrics {
        let name = if text.contains('=') {
            let figure = placed(text.parse()?, programs)?;
            let name = figure.name.clone();
            if is_measured(&name) || is_of_place(programs, &name) {
                return Err(SpecError::Taken { name });
            }
            if of_adapter.contains(&name.as_str()) || figures.iter().any(|f| f.name == name) {
                return Err(SpecError::SameFigure { name });
            }
            figures.push(figure);
            name
        } else {
            let name = text.trim().to_owned();
            let is_known = is_measured(&name) || is_of_place(programs, &name);
            if !of_adapter.contains(&name.as_str()) && !is_known {
                return Err(SpecError::NoFigure { name });
            }
            if programs.feed.is_some() && name.starts_with("client_") {
                return Err(SpecError::Origin { name, of: "a client, and --feed has none" });
            }
            name
        };
        if is_stage(&name) && !programs.stages {
            return Err(SpecError::Untraced { name });
        }
        if judged.contains(&name) {
            return Err(SpecError::SameFigure { name });
        }
        judged.push(name);
    }
    if judged.is_empty() {
        // Counts of an adapter are reported; the user's own decide.
        let figures = of_adapter.iter().filter(|name| !is_event_count(name));
        judged.extend(figures.take(JUDGED_OF_ADAPTER).map(|name| (*name).to_owned()));
    }
    if judged.is_empty() {
        let default = if programs.feed.is_some() { "server_cpu_ns" } else { "client_wall_ns" };
        judged.push(default.into());
    }
    // A feed's own CPU time is part of that of the packets.
    let cost = if programs.feed.is_some() { "server_cpu_ns" } else { "cpu_ns_per_packet" };
    let (cost, has_server) =
        (cost.to_owned(), programs.client.is_some() || programs.feed.is_some());
    if has_server && !judged.contains(&cost) {
        judged.push(cost);
    }
    Ok((figures, judged))
}

fn deciding(programs: &Programs, judged: &[String]) -> Result<Vec<String>, SpecError> {
    match programs.deciding.iter().find(|name| !judged.contains(name)) {
        None => Ok(programs.deciding.clone()),
        Some(name) => Err(SpecError::NotJudged { name: name.clone(), judged: judged.join(", ") }),
    }
}

fn is_measured(name: &str) -> bool {
    MEASURED.contains(&name) || is_stage(name)
}

/// True for a figure of a place between the ends.
fn is_of_place(programs: &Programs, name: &str) -> bool {
    let mut figures = programs.at.keys().flat_map(|place| figures_of_place(place));
    figures.any(|figure| figure == name)
}

fn is_stage(name: &str) -> bool {
    STAGES.iter().any(|stem| name.starts_with(stem))
}

fn switches(texts: &[String]) -> Result<Vec<Switch>, SpecError> {
    let mut switches: Vec<Switch> = Vec::new();
    for text in texts {
        for switch in Switch::parse_each(text)? {
            if switches.iter().any(|known| known.id() == switch.id()) {
                return Err(SpecError::SameSwitch { text: switch.to_string() });
            }
            switches.push(switch);
        }
    }
    Ok(switches)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(text: &str) -> Programs {
        Programs::parse(text).unwrap()
    }

    fn refused(text: &str) -> String {
        host::text::chain(&resolve(&experiment(text)).unwrap_err())
    }

    const TWO: &str =
        "client='c'\n[[arm]]\nname='a'\ncommand='x'\n[[arm]]\nname='b'\ncommand='y'\n";

    #[test]
    fn defaults_are_a_tcp_server_on_port_9000_judged_by_time_and_cost() {
        let spec = resolve(&experiment(TWO)).unwrap();
        assert_eq!(spec.judged, ["client_wall_ns", "cpu_ns_per_packet"]);
        assert_eq!(spec.ready(spec.port).unwrap().to_string(), "tcp:9000");
        assert!(spec.has_server() && spec.near.is_none());
    }

    #[test]
    fn a_wire_with_distance_is_of_a_lab() {
        let wire = "wire='delay=20ms,rate=100mbit,loss=0.1%'\n";
        let spec = resolve(&experiment(&format!("{wire}{TWO}"))).unwrap();
        assert_eq!(spec.wire.unwrap().to_string(), "delay=20ms,rate=100mbit,buffer=1bdp,loss=0.1%");
        for place in ["near='netns:x'", "place='loopback'", "far='ssh:h'"] {
            let why = refused(&format!("{wire}{place}\n{TWO}"));
            assert!(why.contains("two namespaces of a lab"), "{place}: {why}");
        }
        let why = Programs::parse(&format!("wire='delay=20ms'\n{TWO}")).unwrap_err().to_string();
        assert!(why.starts_with("line 1 ") && why.contains("it has no rate"), "{why}");
    }

    #[test]
    fn the_port_of_ready_moves_with_the_arm() {
        let spec = resolve(&experiment(&format!("ready='udp:53'\n{TWO}"))).unwrap();
        assert_eq!(spec.port, 53);
        assert_eq!(spec.ready(55).unwrap().to_string(), "udp:55");
        let line = "ready='line:on port $WIREPATH_PORT'\n";
        let spec = resolve(&experiment(&format!("{line}{TWO}"))).unwrap();
        assert_eq!(spec.ready(7).unwrap().to_string(), "line:on port 7");
    }

    #[test]
    fn one_arm_beside_a_server_is_a_variant_of_it() {
        let text = "server='s'\nclient='c'\n[[arm]]\nname='fast'\nenv={F='1'}\n";
        let spec = resolve(&experiment(text)).unwrap();
        let names: Vec<&str> = spec.arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ["baseline", "fast"]);
        assert_eq!(spec.arms[1].command, "s");
        assert_eq!(spec.arms[1].env, [("F".to_owned(), "1".to_owned())]);
    }

    fn arms(text: &str) -> Vec<(String, String)> {
        let spec = resolve(&experiment(text)).unwrap();
        spec.arms.into_iter().map(|arm| (arm.name, arm.command)).collect()
    }

    fn row(name: &str, command: &str) -> (String, String) {
        (name.to_owned(), command.to_owned())
    }

    #[test]
    fn the_old_command_is_the_baseline_of_the_server_or_of_all_arms() {
        let server = "against='o'\nserver='n'\nclient='c'\n";
        assert_eq!(arms(server), [row("old", "o"), row("new", "n")]);
        let by_env = format!("{server}[[arm]]\nname='gso'\nenv={{G='1'}}\n");
        assert_eq!(arms(&by_env), [row("old", "o"), row("gso", "n")]);
        let two = format!("against='o'\n{TWO}");
        assert_eq!(arms(&two), [row("old", "o"), row("a", "x"), row("b", "y")]);
    }

    fn judged(text: &str) -> Vec<String> {
        resolve(&experiment(&format!("{text}\n{TWO}"))).unwrap().judged
    }

    #[test]
    fn figures_of_an_adapter_decide_unless_some_are_named() {
        assert_eq!(
            judged("adapter='redis-benchmark'"),
            ["rps", "p50_ms", "p99_ms", "cpu_ns_per_packet"]
        );
        let named = judged("adapter='redis-benchmark'\nmetrics=['p99_ms','x=re:(.) lower']");
        assert_eq!(named, ["p99_ms", "x", "cpu_ns_per_packet"]);
        assert_eq!(
            judged("metrics=['lost_count=re:(.)','rps=re:(.)','tcp_retransmit_count']")[..3],
            ["lost_count", "rps", "tcp_retransmit_count"]
        );
    }

    #[test]
    fn a_place_that_exists_may_name_its_interface() {
        for text in ["this", "this@eth1", "netns:rx", "netns:rx@eth1"] {
            assert_eq!(existing_place(text).unwrap().to_string(), text);
        }
        for text in ["", "rx", "netns:", "netns:@eth1", "this@", "here@eth1"] {
            assert_eq!(existing_place(text), None, "{text}");
        }
    }

    #[test]
    fn with_a_feed_figures_are_of_the_server_and_its_cpu_time_is_judged() {
        let text = "feed='f'\nserver='s'\nswitches=['env:Q=-q']\nmetrics=['n=json:/n lower']\n";
        let spec = resolve(&experiment(text)).unwrap();
        assert_eq!(spec.figures[0].to_string(), "n=server:json:/n lower");
        assert_eq!(spec.judged, ["n", "server_cpu_ns"]);
        assert_eq!(spec.ready(spec.port).unwrap().to_string(), "udp:9000");
        assert!(spec.has_server() && spec.figures_of_far().count() == 1);
    }

    #[test]
    fn mistakes_name_the_remedy() {
        for (text, says) in [
            ("client='c'", "--arm"),
            ("client='c'\nserver='s'", "second --arm"),
            ("client='c'\n[[arm]]\nname='a'", "no command"),
            ("client='c'\nserver='s'\narms='best'", "--switch"),
            ("client='c'\nserver='s'\nswitches=['gso=off','gso=off']", "twice"),
            (&format!("within='soon'\n{TWO}"), "500ms"),
            (&format!("near='blue'\n{TWO}"), "netns:NAME"),
            (&format!("far='blue'\n{TWO}"), "ssh:"),
            (&format!("far='peer:db2'\n{TWO}"), "ssh:"),
            (&format!("far='ssh:db2'\nfar-address='db2'\n{TWO}"), "fd00::7"),
            (&format!("far='ssh:db2'\nfar-address='fe80::1'\n{TWO}"), "fd00::7"),
            (&format!("far-address='10.0.0.1'\n{TWO}"), "--far ssh:"),
            (&format!("far='netns:a'\nssh-options=['x=y']\n{TWO}"), "--far ssh:"),
            (&format!("far-cpus='all'\n{TWO}"), "0-3"),
            (&format!("metrics=['p99']\n{TWO}"), "cpu_ns_per_packet"),
            (&format!("adapter='nosuch'\n{TWO}"), "wrk"),
            (&format!("ready='soon'\n{TWO}"), "tcp:PORT"),
            (&format!("metrics=['client_wall_ns=json:/x lower']\n{TWO}"), "another name"),
            ("client='c'\nagainst='o'", "--server"),
            ("client='c'\nserver='s'\nagainst=' '", "is empty"),
            ("client='c'\nserver='s'\nagainst='o'\nswitches=['gso=off']", "give one of them alone"),
            ("client='c'\nserver='s'\nagainst='o'\narms='best'", "--arms needs switches"),
            (&format!("against='o'\n{}", TWO.replace("'b'", "'old'")), "named old"),
            (&TWO.replace("'b'", "'a'"), "two arms"),
            (&TWO.replace("'b'", "'b+c'"), "not a valid name"),
        ] {
            let error = refused(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
