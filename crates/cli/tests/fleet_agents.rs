//! `wirepath fleet` over agents, with a real broker and a real database.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread;

use common::star::{Star, right_meshes, seeds};
use common::{
    Data, LONG, PLAN_WITHOUT_EFFECT, Running, all_text, enter, fail, get, is_installed, json, run,
    succeed, until,
};
use serde_json::Value;
use sys::netns::Netns;
use testkit::servers::{Authority, Broker, Database};

fn wirepath(data: &Data, args: &[&str]) -> Command {
    let mut command = common::wirepath(args);
    command.env("WIREPATH_DATA", data.path()).env("WIREPATH_LOCKS", data.path());
    command
}

/// Replaces the addresses of the files that `fleet init` wrote before the servers had theirs.
fn init(data: &Data, folder: &str, authority: &Authority, broker: &str, database: &str) {
    let hosts = data.file("hosts.txt");
    fs::write(&hosts, "h1\nh2\n").expect("a file");
    let ca = authority.file_of_ca().display().to_string();
    let (cert, key) = authority.server();
    let (cert, key) = (cert.display().to_string(), key.display().to_string());
    let options = ["--broker", broker, "--database", database, "--database-ca", &ca];
    let options = [&options[..], &["--ca", &ca, "--cert", &cert, "--cert-key", &key]].concat();
    let args = [&["fleet", "init", "--dir", folder, "--hosts", &hosts], &options[..]].concat();
    let said = succeed(wirepath(data, &args));
    assert!(said.contains("2 hosts"), "{said}");
}

/// Asserts that systemd knows every line of the unit of an agent.
fn check_unit(data: &Data, enrolment: &str) {
    if !is_installed("systemd-analyze") {
        return;
    }
    let unit = succeed(wirepath(data, &["fleet", "agent", "--enrol", enrolment, "--unit"]));
    let file = data.file("wirepath-agent.service");
    fs::write(&file, unit).expect("a file");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", &file]);
    // Units of the machine that it names are not ours.
    let said = all_text(&run(verify));
    assert!(!said.contains("wirepath-agent"), "{said}");
}

#[test]
fn agents_measure_report_encrypted_and_are_missed_when_killed() {
    let Some(authority) = Authority::new() else { return };
    let Some(database) = Database::start_encrypted(&authority) else { return };
    let data = Data::new();
    let folder = data.file("fleet");
    let address = format!("host={} user=postgres dbname=postgres", authority.address());
    init(&data, &folder, &authority, "nats://127.0.0.1:1", &address);
    check_unit(&data, &format!("{folder}/enrol/h1.wp"));
    let plain = ["fleet", "init", "--dir", &folder, "--hosts", &data.file("hosts.txt")];
    let remote = [&plain[..], &["--database", "host=192.0.2.1 user=wirepath"]].concat();
    let refused = fail(wirepath(&data, &remote), 2);
    assert!(refused.contains("--database-ca"), "{refused}");
    let config = fs::read_to_string(format!("{folder}/nats.conf")).expect("nats.conf");
    let Some(broker) = Broker::start(&config) else { return };
    // Keys stay.
    init(&data, &folder, &authority, &broker.url(), &address);
    assert_eq!(fs::read_to_string(format!("{folder}/nats.conf")).expect("nats.conf"), config);
    database.sql("postgres", &fs::read_to_string(format!("{folder}/schema.sql")).expect("it"));

    // It prepares the broker's streams, which agents need.
    let mut collector = Running::start(wirepath(&data, &["fleet", "collect", "--fleet", &folder]));
    collector.await_stderr("collects reports");
    let agent = |host: &str| {
        let enrol = format!("{folder}/enrol/{host}.wp");
        let mut agent = Running::start(wirepath(&data, &["fleet", "agent", "--enrol", &enrol]));
        agent.await_stderr("waits for jobs");
        agent
    };
    let (first, second) = (agent("h1"), agent("h2"));
    let plan = data.file("plan.toml");
    fs::write(&plan, PLAN_WITHOUT_EFFECT).expect("a plan");
    let rollout = ["fleet", "rollout", &plan, "--fleet", &folder, "--agents", "h1"];
    let load = ["--stages", "1", "--", "--far", "peer:127.0.0.1:1", "--load", "ping"];
    let refused = fail(wirepath(&data, &[&rollout[..], &load].concat()), 1);
    assert!(refused.contains("not begun") && refused.contains("--allow-tune"), "{refused}");
    let program = ["--stages", "1", "--", "--client", "x", "--server", "y"];
    let refused = fail(wirepath(&data, &[&rollout[..], &program].concat()), 2);
    assert!(refused.contains("--client"), "{refused}");
    let short =
        ["probe", "--load", "ping", "--arms", "spin", "--max-blocks", "6", "--trial", "20ms"];
    let prove = [&["fleet", "prove", "--json", "--fleet", &folder], &short[..]].concat();
    // One after the other, each within its `--time`.
    let ended = Running::start(wirepath(&data, &prove)).finish(LONG * 5).expect("it ends");
    assert!(ended.status.success(), "{}", all_text(&ended));
    let document: Value = serde_json::from_slice(&ended.stdout).expect("a document");
    let hosts = document["hosts"].as_array().expect("hosts");
    assert_eq!(hosts.len(), 2);
    assert!(hosts.iter().all(|host| host["id"].is_string()), "{document:#}");
    let stored = "SELECT count(*), count(DISTINCT job) FROM outcomes WHERE state = 'done'";
    assert_eq!(database.sql("postgres", stored), "2|2");
    let status = json(wirepath(&data, &["fleet", "status", "--json", "--fleet", &folder]));
    assert_eq!(status["hosts"][1]["alive"], true, "{status:#}");

    // A job that no agent takes counts as missing.
    drop(second.end_by("KILL", LONG));
    let head = ["fleet", "prove", "--json", "--fleet", &folder, "--agents", "h2"];
    let args = [&head[..], &["--taken-within", "1s"], &short[..]].concat();
    let late = run(wirepath(&data, &args));
    assert_eq!(late.status.code(), Some(1), "{}", all_text(&late));
    assert!(all_text(&late).contains("expired"), "{}", all_text(&late));
    let command = ["command", "--arm", "a=./x", "--arm", "b=./y", "--client", "z"];
    let refused = fail(wirepath(&data, &[&head[..], &command[..]].concat()), 2);
    assert!(refused.contains("agents start no programs"), "{refused}");
    assert!(first.end_by("TERM", LONG).status.success());
    assert!(collector.end_by("TERM", LONG).status.success());
}

/// Makes a port of loopback in this namespace reachable in another one. Ends with the test.
fn forward_port(netns: &str, port: u16) {
    let netns = Netns::open(format!("/run/netns/{netns}")).expect("our namespace");
    let listener = netns
        .run(|| TcpListener::bind(("127.0.0.1", port)).expect("a free port of a new namespace"))
        .expect("the namespace");
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            for (from, to) in [(&near, &far), (&far, &near)] {
                let (mut from, mut to) =
                    (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                thread::spawn(move || {
                    let _ended = io::copy(&mut from, &mut to);
                    let _gone = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
}

/// A fleet of hosts in namespaces, and a peer for their load.
struct Tuned {
    data: Data,
    star: Star,
    folder: String,
    _broker: Broker,
    database: Database,
    _peer: Running,
}

impl Tuned {
    /// `None` if a server is not installed.
    fn start(count: usize) -> Option<Tuned> {
        Tuned::start_in(|| Star::new(count, None), count)
    }

    fn start_in(star: impl FnOnce() -> Star, count: usize) -> Option<Tuned> {
        let (data, database) = (Data::new(), Database::start()?);
        let (folder, hosts, plan) =
            (data.file("fleet"), data.file("hosts.txt"), data.file("plan.toml"));
        fs::write(
            &hosts,
            (1..=count).map(|at| format!("h{at} address=10.79.0.{at}\n")).collect::<String>(),
        )
        .expect("a file");
        fs::write(&plan, PLAN_WITHOUT_EFFECT).expect("a plan");
        let address = database.address("postgres");
        let init = |broker: &str| {
            let files = ["fleet", "init", "--dir", &folder, "--hosts", &hosts];
            let servers = ["--broker", broker, "--database", &address];
            succeed(wirepath(&data, &[&files[..], &servers].concat()));
        };
        init("nats://127.0.0.1:1");
        let broker = Broker::start(&fs::read_to_string(format!("{folder}/nats.conf")).ok()?)?;
        init(&broker.url());
        let schema = fs::read_to_string(format!("{folder}/schema.sql")).expect("it");
        database.sql("postgres", &schema);
        let star = star();
        let port = broker.url().rsplit(':').next().and_then(|port| port.parse().ok());
        for name in &star.names {
            forward_port(name, port.expect("a port"));
        }
        let program = env!("CARGO_BIN_EXE_wirepath");
        let mut peer = enter(&star.hub, &[program, "peer", "--listen", "10.79.0.254:7117"]);
        peer.env("WIREPATH_LOCKS", data.path());
        let mut peer = Running::start(peer);
        peer.await_stderr("listening on ");
        // Prepares the streams.
        run(wirepath(&data, &["fleet", "status", "--fleet", &folder]));
        Some(Tuned { data, star, folder, _broker: broker, database, _peer: peer })
    }

    /// Agent of the first host, which may tune.
    fn agent(&self) -> Running {
        self.agent_at(0, &["--allow-tune"])
    }

    fn agent_at(&self, at: usize, options: &[&str]) -> Running {
        self.agent_with(at, options, &search_path())
    }

    /// - `path`: its PATH.
    fn agent_with(&self, at: usize, options: &[&str], path: &str) -> Running {
        let host = format!("h{}", at + 1);
        let enrol = format!("{}/enrol/{host}.wp", self.folder);
        let words = [env!("CARGO_BIN_EXE_wirepath"), "fleet", "agent", "--enrol", &enrol];
        let mut command = enter(&self.star.names[at], &[&words[..], options].concat());
        let own = self.data.file(&host);
        command.env("WIREPATH_DATA", &own).env("WIREPATH_LOCKS", &own);
        command.env("WIREPATH_STATE", format!("{own}/state"));
        command.env("PATH", path);
        let mut agent = Running::start(command);
        agent.await_stderr("waits for jobs");
        agent
    }

    /// `fleet prove` of the example of a stranger's path.
    fn prove_echo(&self, agents: &str) -> Output {
        let own = ["fleet", "prove", "--json", "--fleet", &self.folder, "--agents", agents];
        let short = ["echo", "--arms", "batch", "--max-blocks", "6", "--trial", "20ms"];
        let mut command = wirepath(&self.data, &[&own[..], &short].concat());
        command.env("PATH", example_path());
        Running::start(command).finish(LONG * 5).expect("it ends")
    }

    fn rollout(&self, options: &[&str]) -> Command {
        let own = ["fleet", "rollout", "--fleet", &self.folder];
        wirepath(&self.data, &[&own[..], options].concat())
    }

    fn begin(&self, limits: &[&str]) -> Command {
        let plan = self.data.file("plan.toml");
        let own = [&plan, "--stages", "1", "--metric", "rtt p50", "--accept-inconclusive"];
        let load = ["--", "--far", "peer:10.79.0.254:7117", "--load", "ping", "--time", "300s"];
        let few = ["--min-blocks", "6", "--max-blocks", "6", "--trial", "100ms"];
        self.rollout(&[&own[..], limits, &load, &few].concat())
    }

    fn value(&self) -> String {
        let file = "/proc/sys/net/ipv4/tcp_early_demux";
        succeed(enter(&self.star.names[0], &["cat", file])).trim().to_owned()
    }

    fn open_jobs(&self) -> String {
        let open =
            "SELECT count(*) FROM jobs WHERE state IN ('planned', 'given', 'accepted', 'running')";
        self.database.sql("postgres", open)
    }

    /// Id and state of the newest roll-out.
    fn newest(&self) -> (String, Value) {
        // Exit code 4 while the host is silent.
        let status =
            run(wirepath(&self.data, &["fleet", "status", "--json", "--fleet", &self.folder]));
        let mut status: Value = serde_json::from_slice(&status.stdout).expect("a document");
        assert_eq!(
            status["experiments"],
            Value::Array(Vec::new()),
            "steps are not listed as experiments"
        );
        let newest = &mut status["rollouts"][0];
        (newest["id"].as_str().expect("a roll-out").to_owned(), newest["state"]["name"].take())
    }
}

/// The example of a stranger's path.
const CONTRIB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib");

fn search_path() -> String {
    std::env::var("PATH").expect("a search path")
}

fn example_path() -> String {
    format!("{CONTRIB}:{}", search_path())
}

#[test]
fn paths_of_strangers_are_measured_by_agents_whose_administrators_named_them() {
    let Some(fleet) = Tuned::start(2) else { return };
    let allowed = ["--allow-path", "echo"];
    let first = fleet.agent_with(0, &allowed, &example_path());
    let second = fleet.agent_with(1, &allowed, &example_path());
    let ended = fleet.prove_echo("h1,h2");
    assert!(ended.status.success(), "{}", all_text(&ended));
    let document: Value = serde_json::from_slice(&ended.stdout).expect("a document");
    let hosts = document["hosts"].as_array().expect("hosts");
    assert!(hosts.len() == 2 && hosts.iter().all(|host| host["id"].is_string()), "{document:#}");
    assert!(second.end_by("TERM", LONG).status.success());
    let second = fleet.agent_with(1, &["--allow-path", "other"], &example_path());
    let refused = fleet.prove_echo("h2");
    assert_eq!(refused.status.code(), Some(1), "{}", all_text(&refused));
    assert!(all_text(&refused).contains("--allow-path echo"), "{}", all_text(&refused));
    assert!(first.end_by("TERM", LONG).status.success());
    assert!(second.end_by("TERM", LONG).status.success());
}

/// Wake-ups of all threads of a process so far.
fn wake_ups(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a process").flatten();
    tasks
        .map(|task| {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let line =
                status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0)
        })
        .sum()
}

#[test]
#[ignore = "takes minutes, and its figures need a quiet machine; .ci/fleet runs it"]
fn measurements_under_an_agent_show_no_difference_to_those_by_hand() {
    let Some(fleet) = Tuned::start(1) else { return };
    let agent = fleet.agent();
    let program = env!("CARGO_BIN_EXE_wirepath");
    let measure =
        ["probe", "--load", "ping", "--arms", "spin", "--max-blocks", "8", "--time", "300s"];
    let measure = [&measure[..], &["--trial", "120ms"]].concat();
    let own = fleet.data.file("h1");
    let here = |args: &[&str]| {
        let mut command = enter(&fleet.star.names[0], &[&[program], args].concat());
        command.env("WIREPATH_DATA", &own).env("WIREPATH_LOCKS", &own);
        command
    };
    let newest = || {
        let list = json(here(&["history", "list", "--last", "1", "--json"]));
        list["experiments"][0]["id"].as_str().expect("an experiment").to_owned()
    };
    let (mut by_hand, mut under_agent) = (Vec::new(), Vec::new());
    for round in 0..6 {
        let done = Running::start(here(&[&["prove"], &measure[..]].concat())).finish(LONG * 10);
        assert!(done.is_some_and(|done| done.status.success()));
        by_hand.push(newest());
        let prove = [&["fleet", "prove", "--fleet", &fleet.folder], &measure[..]].concat();
        let conducting = Running::start(wirepath(&fleet.data, &prove));
        let is_measuring = |(_, line): &(u32, String)| line.starts_with("wirepath answer host");
        assert!(until(LONG, || agent.descendants().iter().any(is_measuring)), "{}", agent.stderr());
        if round == 0 {
            let (child, _) = agent.descendants().into_iter().find(is_measuring).expect("as above");
            let names = fs::read_dir(format!("/proc/{child}/task")).expect("it runs").flatten();
            let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm"));
            let names: String = names.filter_map(|task| name(task).ok()).collect();
            assert!(!names.contains("tokio"), "asynchronous code beside the measurement: {names}");
            let before = (wake_ups(agent.pid()), std::time::Instant::now());
            assert!(until(LONG * 10, || !agent.descendants().iter().any(is_measuring)));
            let (count, time) = (wake_ups(agent.pid()) - before.0, before.1.elapsed());
            let rate = count as f64 / time.as_secs_f64();
            testkit::note(&format!("agent beside its measurement: {rate:.2} wake-ups a second"));
            assert!(rate <= 1.0, "{count} in {time:?}");
        }
        let done = conducting.finish(LONG * 10).expect("it ends");
        assert!(done.status.success(), "{}", all_text(&done));
        under_agent.push(newest());
    }
    let (olds, news) = (by_hand.join(","), under_agent.join(","));
    assert!(by_hand.iter().all(|id| !under_agent.contains(id)), "{olds} {news}");
    testkit::note(&succeed(here(&["history", "compare", &olds, &news, "--unit", "run"])));
    let document = json(here(&["history", "compare", &olds, &news, "--unit", "run", "--json"]));
    for arm in document["arms"].as_array().expect("arms") {
        for (name, metric) in arm["metrics"].as_object().expect("metrics") {
            let verdict = metric["value"]["verdict"].as_str().unwrap_or("none");
            assert!(!["better", "worse"].contains(&verdict), "{name}: {metric:#}");
        }
    }
}

#[test]
fn plan_goes_out_over_agents_and_a_host_rolls_back_by_itself_unless_it_was_confirmed() {
    let Some(fleet) = Tuned::start(1) else { return };
    let agent = fleet.agent();
    let done = Running::start(fleet.begin(&["--hold", "1s"])).finish(LONG * 4).expect("it ends");
    assert!(done.status.success(), "{}\n{}", all_text(&done), agent.stderr());
    let (id, state) = fleet.newest();
    assert_eq!((fleet.value().as_str(), state), ("0", "done".into()));
    // A plan that was confirmed stays without its agent, until it is aborted.
    drop(agent.end_by("KILL", LONG));
    let agent = fleet.agent();
    assert_eq!(fleet.value(), "0");
    let aborted = succeed(fleet.rollout(&["--abort", &id, "--json"]));
    assert!(aborted.contains("restored to 1"), "{aborted}");
    assert_eq!(fleet.value(), "1");

    // The coordinator is killed while the plan is unconfirmed, and another process goes on.
    let limits = ["--hold", "1h", "--confirm-within", "10s"];
    let first = Running::start(fleet.begin(&limits));
    assert!(until(LONG * 4, || fleet.value() == "0"), "{}", first.stderr());
    drop(first.end_by("KILL", LONG));
    let (id, _) = fleet.newest();
    let mut second = Running::start(fleet.rollout(&["--resume", &id]));
    second.await_stderr("holding");
    assert_eq!(fleet.value(), "0");
    // Its agent falls silent.
    agent.signal("STOP");
    assert!(until(LONG, || fleet.value() == "1"), "it rolls back by itself: {}", second.stderr());
    let stuck = second.finish(LONG * 2).expect("it ends");
    assert_eq!(stuck.status.code(), Some(1), "{}", all_text(&stuck));
    assert!(all_text(&stuck).contains("no word of a rollback from h1"), "{}", all_text(&stuck));
    assert_eq!(fleet.newest().1, "stuck");
    agent.signal("CONT");
    assert!(
        until(LONG, || {
            let ended = run(fleet.rollout(&["--resume", &id]));
            // Stuck again while the agent connects.
            assert!(matches!(ended.status.code(), Some(1 | 4)), "{}", all_text(&ended));
            ended.status.code() == Some(4)
        }),
        "{}",
        agent.stderr()
    );
    assert_eq!((fleet.value().as_str(), fleet.newest().1), ("1", "rolled-back".into()));
    assert!(agent.end_by("TERM", LONG).status.success());
}

#[test]
fn mesh_goes_over_agents_and_one_that_is_silent_is_a_failure_of_its_pairs() {
    let Some(fleet) = Tuned::start(3) else { return };
    let agents = [0, 1].map(|at| fleet.agent_at(at, &[]));
    let few = ["--rounds", "1", "-c", "20", "--taken-within", "10s", "--json"];
    let mesh = ["fleet", "mesh", "--fleet", &fleet.folder];
    let document = json(wirepath(&fleet.data, &[&mesh[..], &few].concat()));
    assert_eq!(document["hosts"].as_array().map(Vec::len), Some(3), "{document:#}");
    let pairs = document["pairs"].as_array().expect("pairs");
    assert_eq!(pairs.len(), 3);
    for pair in pairs {
        let why = pair["failures"].to_string();
        if pair["other"] == "h3" {
            assert!(why.contains("h3: expired") && pair["rtt_ns"][0].is_null(), "{pair:#}");
        } else {
            assert!(why == "[]" && pair["rtt_ns"][0].is_number(), "{pair:#}");
        }
    }
    let status =
        run(wirepath(&fleet.data, &["fleet", "status", "--json", "--fleet", &fleet.folder]));
    let status: Value = serde_json::from_slice(&status.stdout).expect("a document");
    assert_eq!(
        status["experiments"],
        Value::Array(Vec::new()),
        "rounds are not listed as experiments"
    );
    // Ctrl-C cancels the jobs that are open.
    let stopped = [&mesh[..], &["--agents", "h1,h3=10.79.0.3"]].concat();
    let stopped = Running::start(wirepath(&fleet.data, &stopped));
    assert!(until(LONG, || fleet.open_jobs() != "0"), "{}", stopped.stderr());
    let stopped = stopped.end_by("INT", LONG);
    assert_eq!(stopped.status.code(), Some(130), "{}", all_text(&stopped));
    assert!(all_text(&stopped).contains("interrupted"), "{}", all_text(&stopped));
    assert_eq!(fleet.open_jobs(), "0");
    for agent in agents {
        assert!(agent.end_by("TERM", LONG).status.success());
    }
}

#[test]
#[ignore = "takes half an hour; .ci/fleet runs it"]
fn mesh_of_eight_agents_names_the_slow_host_and_the_lossy_link_and_nothing_without_them() {
    let mut right = [0, 0];
    for is_faulty in [true, false] {
        let mut expected = BTreeSet::new();
        let Some(fleet) = Tuned::start_in(
            || {
                let mut star = Star::new(8, is_faulty.then_some(3));
                if is_faulty {
                    star.make_lossy(1, 6);
                    expected.extend(["h4,".to_owned(), "h2,h7".to_owned()]);
                }
                star
            },
            8,
        ) else {
            return;
        };
        let _agents: Vec<Running> = (0..8).map(|at| fleet.agent_at(at, &[])).collect();
        right[usize::from(is_faulty)] = right_meshes(&expected, |seed| {
            let mesh = ["fleet", "mesh", "--fleet", &fleet.folder, "-c", "100", "--json", "--seed"];
            wirepath(&fleet.data, &[&mesh[..], &[seed]].concat())
        });
    }
    assert_eq!(right, [seeds(); 2], "clean, with both faults");
}

#[test]
fn watched_mesh_over_agents_goes_on_after_a_silent_agent_and_without_its_database() {
    let Some(mut fleet) = Tuned::start(2) else { return };
    let agents = [0, 1].map(|at| fleet.agent_at(at, &[]));
    let few = ["--rounds", "1", "-c", "20", "--taken-within", "5s", "--json"];
    let mesh = ["fleet", "mesh", "--fleet", &fleet.folder];
    let mesh = [&mesh[..], &few].concat();
    let watch = |every: &str| {
        let more = ["--watch", "--every", every, "--listen", "0"];
        let mut watching = Running::start(wirepath(&fleet.data, &[&mesh[..], &more].concat()));
        watching.await_stderr("/metrics");
        watching
    };
    let figure = |watching: &Running, of: &str| -> Option<f64> {
        let metrics = get(&watching.stderr(), "/metrics");
        let line =
            metrics.lines().find_map(|line| line.strip_prefix("wirepath_mesh_")?.strip_prefix(of));
        line.map(|rest| rest.trim().parse().expect("a number"))
    };
    let repeats = |watching: &Running| figure(watching, "repeats_total").expect("a counter");
    let rtt = r#"rtt_seconds{one="h1",other="h2"}"#;

    // Between two repeats others are coordinators.
    let idle = watch("1h");
    assert!(until(LONG, || figure(&idle, rtt).is_some()), "{}", idle.stderr());
    // The figures are there a moment before the repeat has ended.
    let once = || run(wirepath(&fleet.data, &mesh)).status.success();
    assert!(until(LONG, once), "{}", idle.stderr());
    assert_eq!(repeats(&idle), 1.0);
    assert!(idle.end_by("INT", LONG).status.success());

    let watching = watch("10ms");
    assert!(until(LONG, || repeats(&watching) >= 2.0), "{}", watching.stderr());
    agents[1].signal("STOP");
    let failures = r#"failures_total{one="h1",other="h2"}"#;
    assert!(
        until(LONG * 4, || figure(&watching, failures) >= Some(1.0)
            && figure(&watching, rtt).is_none()),
        "{}",
        watching.stderr()
    );
    agents[1].signal("CONT");
    assert!(until(LONG * 4, || figure(&watching, rtt).is_some()), "{}", watching.stderr());
    fleet.database.kill();
    assert!(
        until(LONG, || ["skipped: ", "trying again"]
            .iter()
            .any(|text| watching.stderr().contains(text))),
        "{}",
        watching.stderr()
    );
    fleet.database.resume();
    let before = repeats(&watching);
    assert!(until(LONG * 2, || repeats(&watching) > before + 1.0), "{}", watching.stderr());

    // Ctrl-C in the middle of a repeat cancels its jobs.
    assert!(until(LONG, || fleet.open_jobs() != "0"), "{}", watching.stderr());
    let ended = watching.end_by("INT", LONG);
    assert_eq!(ended.status.code(), Some(0), "{}", all_text(&ended));
    let document: Value = serde_json::from_slice(&ended.stdout).expect("a document");
    assert_eq!(document["pairs"].as_array().map(Vec::len), Some(1), "{document:#}");
    assert_eq!(fleet.open_jobs(), "0");
    for agent in agents {
        assert!(agent.end_by("TERM", LONG).status.success());
    }
}
