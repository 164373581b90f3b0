//! `wirepath fleet` over agents, with a real broker and a real database.

mod common;

use std::fs;
use std::process::Command;

use common::{Data, LONG, Running, all_text, fail, is_installed, json, run, succeed};
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
    let short =
        ["probe", "--load", "ping", "--arms", "spin", "--max-blocks", "6", "--trial", "20ms"];
    let prove = [&["fleet", "prove", "--json", "--fleet", &folder], &short[..]].concat();
    let document = json(wirepath(&data, &prove));
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
    assert!(refused.contains("no path that agents measure"), "{refused}");
    assert!(first.end_by("TERM", LONG).status.success());
    assert!(collector.end_by("TERM", LONG).status.success());
}
