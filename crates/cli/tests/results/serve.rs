//! `wirepath serve` against everything that is not the user's own browser.

use std::io::Read;

use crate::QUICK_JSON;
use crate::common::strangers::Strangers;
use crate::common::{Data, LONG, Running, fail, path_names, succeed, until};
use crate::served::Served;
use serde_json::Value;
use sys::netns::Netns;

fn measured(data: &Data) -> String {
    let doc: Value = serde_json::from_str(&succeed(data.wirepath(&QUICK_JSON))).unwrap();
    doc["id"].as_str().unwrap().to_owned()
}

#[test]
fn every_page_carries_its_policy_and_every_download_its_name() {
    let data = Data::new();
    let (old, new) = (measured(&data), measured(&data));
    let served = Served::start(&data);
    let pages = [
        "/".to_owned(),
        "/?path=fake&since=2020-01-01".into(),
        format!("/experiment/{new}"),
        format!("/compare?old={old}&new={new}"),
        "/compare".into(),
        "/paths".into(),
        "/path/fake".into(),
        "/path/fake?machine=another".into(),
        "/path/probe".into(),
        "/style.css".into(),
        "/live.js".into(),
        "/icon.svg".into(),
        format!("/experiment/{new}/progress.json"),
    ];
    for page in &pages {
        let answer = served.get(page);
        assert_eq!(answer.status, 200, "{page}");
        for line in [
            "Content-Security-Policy: default-src 'none'; style-src 'self'; script-src 'self'",
            "frame-ancestors 'none'",
            "X-Content-Type-Options: nosniff",
            "Cross-Origin-Resource-Policy: same-origin",
            "Cache-Control: no-store",
            "Connection: close",
        ] {
            assert!(answer.head.contains(line), "{page}: {line} in {}", answer.head);
        }
        assert!(!answer.head.contains("Access-Control"), "{page}: no other site is let in");
        if answer.head.contains("text/html") {
            let outside = ["http://", "https://", "style=", "onclick", "javascript:"];
            let svg = "http://www.w3.org/2000/svg";
            let body = answer.body.replace(svg, "");
            let found: Vec<_> = outside.iter().filter(|word| body.contains(**word)).collect();
            assert!(found.is_empty(), "{page} has {found:?}");
        }
    }
    for (what, name) in [
        ("outcome.json", format!("{new}.json")),
        ("outcome.csv", format!("{new}.csv")),
        ("trials.csv", format!("{new}-trials.csv")),
    ] {
        let answer = served.get(&format!("/experiment/{new}/{what}"));
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains(&format!("filename=\"{name}\"")), "{}", answer.head);
    }
    let json = served.get(&format!("/experiment/{new}/outcome.json")).body;
    assert_eq!(json.trim(), succeed(data.wirepath(&["report", &new, "--json"])).trim());
    let head =
        served.raw(format!("HEAD / HTTP/1.1\r\nHost: {}\r\n\r\n", served.address()).as_bytes());
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn other_names_other_sites_other_methods_and_endless_heads_are_refused() {
    let data = Data::new();
    measured(&data);
    let served = Served::start(&data);
    let own = served.address().to_owned();
    for host in ["evil.example", &format!("evil.example:{}", own.split(':').nth(1).unwrap())] {
        let answer = served.get_with("/", host, "");
        assert_eq!(answer.status, 421, "{host}");
        assert!(!answer.body.contains("fake"), "nothing of the history");
    }
    let named = own.replace("127.0.0.1", "localhost");
    assert_eq!(served.get_with("/", &named, "").status, 200);
    assert_eq!(served.get_with("/", &own, "Origin: https://evil.example\r\n").status, 403);
    let image =
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n";
    assert_eq!(served.get_with("/", &own, image).status, 403);
    let post = served.raw(format!("POST / HTTP/1.1\r\nHost: {own}\r\n\r\n").as_bytes());
    assert!(post.starts_with("HTTP/1.1 405") && post.contains("Allow: GET, HEAD"), "{post}");
    let endless = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; 9 * 1024]].concat();
    let answer = served.raw(&endless);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    for bad in [&b"\x16\x03\x01\x02\x00\r\n\r\n"[..], b"GET\r\n\r\n"] {
        assert!(served.raw(bad).starts_with("HTTP/1.1 400"));
    }
    for path in [
        "/nothing",
        "/path/",
        "/path/nothing",
        "/path/fake/more",
        "/experiment/",
        "/experiment/zzz",
        "/experiment/%2e%2e%2fpasswd",
        "/experiment/last/secrets",
        "/../etc/passwd",
        "/compare?old=zzz&new=last",
    ] {
        assert_eq!(served.get(path).status, 404, "{path}");
    }
    let script = "/compare?old=%3Cscript%3Ealert(1)%3C/script%3E&new=last";
    assert!(!served.get(script).body.contains("<script>alert"));
    assert!(!served.get("/?path=%22%3E%3Cscript%3E").body.contains("\"><script>"));
}

#[test]
fn a_path_s_page_tells_what_was_measured_and_what_was_not() {
    let data = Data::new();
    let empty = succeed_path(&data, "fake");
    assert!(empty.contains("Nothing was measured here yet"), "{empty}");
    let (_, new) = (measured(&data), measured(&data));
    let served = Served::start(&data);
    let page = served.get("/path/fake").body;
    assert!(page.contains(&format!("href=\"/experiment/{new}\"")), "the newest counts");
    assert!(page.contains("from 2 experiments of this path"), "{page}");
    assert!(page.contains("Not compared under this load: slight, nothing, idle and absent."));
    assert!(page.contains("The best arm over time"));
    let elsewhere = served.get("/path/fake?machine=another").body;
    assert!(elsewhere.contains("Nothing was measured here yet"), "{elsewhere}");
    for path in path_names() {
        assert!(served.get("/paths").body.contains(&format!("href=\"/path/{path}\"")), "{path}");
        assert_eq!(served.get(&format!("/path/{path}")).status, 200, "{path}");
    }
    let file = succeed_path(&data, "fake");
    assert!(file.contains(&new) && !file.contains("<a "), "a file has no links to nowhere");
    fail(data.wirepath(&["report", "--path", "nothing", "--html", "/dev/null"]), 2);
    fail(data.wirepath(&["report", "--path", "fake"]), 2);
}

/// The page of a path as a file.
fn succeed_path(data: &Data, path: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("path.html");
    succeed(data.wirepath(&["report", "--path", path, "--html", file.to_str().unwrap()]));
    std::fs::read_to_string(file).unwrap()
}

#[test]
fn experiments_that_cannot_be_compared_get_a_page_that_says_why() {
    let data = Data::new();
    let one = measured(&data);
    let other: Value = serde_json::from_str(&succeed(
        data.wirepath(&[&QUICK_JSON[..], &["--size", "1400"]].concat()),
    ))
    .unwrap();
    let served = Served::start(&data);
    let answer = served.get(&format!("/compare?old={one}&new={}", other["id"].as_str().unwrap()));
    assert_eq!(answer.status, 422);
    assert!(answer.body.contains("frame size in bytes is 64 in the first"), "{}", answer.body);
}

#[test]
fn connections_that_say_nothing_keep_no_other_out() {
    let data = Data::new();
    let served = Served::start(&data);
    // Accepted in this order: 32 are open at the same time, and each further one closes the oldest.
    let mut idle: Vec<_> = (0..40).map(|_| served.connect()).collect();
    for stream in &mut idle[..8] {
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    }
    drop(idle);
    let address = served.address().parse().unwrap();
    let here = Netns::current().unwrap();
    let strangers = Strangers::start(&here, vec![address; 80]);
    assert!(until(LONG, || strangers.connected() >= 120), "they return");
    // On a busy machine a client of the same address may be closed before it has asked.
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", served.address());
    let answered = (0..30).filter(|_| served.raw(request.as_bytes()).starts_with("HTTP/1.1 200"));
    let answered = answered.count();
    assert!(answered >= 20, "{answered} of 30");
}

#[test]
fn signals_end_it_and_a_taken_port_or_a_strange_file_is_said_at_once() {
    let data = Data::new();
    for signal in ["INT", "TERM", "HUP"] {
        let served = Served::start(&data);
        let _idle = served.connect();
        let ended = served.end_by(signal);
        assert!(ended.status.success(), "{signal}: {}", ended.status);
    }
    let served = Served::start(&data);
    let port = served.address().split(':').nth(1).unwrap().to_owned();
    let said = fail(data.wirepath(&["serve", "--port", &port]), 1);
    assert!(said.contains("--port"), "{said}");
    std::fs::write(data.path().join("history.db"), "no database at all, and long enough to tell")
        .unwrap();
    let said = fail(data.wirepath(&["serve", "--port", "0"]), 1);
    assert!(said.contains("not a Wirepath results file"), "{said}");
}

#[test]
fn a_run_under_way_is_followed_and_one_that_has_ended_is_not() {
    let data = Data::new();
    let served = Served::start(&data);
    assert!(served.get("/").body.contains("No experiment fits"));
    let running = Running::start(data.wirepath(&[
        "prove",
        "fake",
        "--arms",
        "fast",
        "--trial",
        "20ms",
        "--time",
        "60s",
        "--min-blocks",
        "200",
    ]));
    let progress = || -> Value {
        let answer = served.get("/experiment/last/progress.json");
        serde_json::from_str(&answer.body).unwrap_or_default()
    };
    assert!(until(LONG, || progress()["trials"].as_u64() > Some(8)), "{}", progress());
    assert_eq!(progress()["ended"], "unfinished");
    assert!(progress()["said"].as_str().unwrap().contains("of 60.0 s at most"), "{}", progress());
    let page = served.get("/experiment/last").body;
    assert!(page.contains("id=\"live\"") && page.contains("/live.js"), "{page}");
    running.end_by("INT", LONG);
    assert_eq!(progress()["ended"], "interrupted");
    assert!(!served.get("/experiment/last").body.contains("id=\"live\""));
}
