//! `probe`, `peer` and `prove probe` over IPv6.

mod common;

use common::{
    LONG, Running, Spaces, all_text, fail, ip, json, paths_besides_probe, run, succeed, until,
};

const NEAR_IPV6: &str = "fd77::1";
const FAR_IPV6: &str = "fd77::2";
/// Few and short trials.
const SHORT: [&str; 7] = ["--max-blocks", "6", "--trial", "50ms", "--time", "60s", "--no-history"];

/// Both namespaces with an IPv6 address each, which has no doubt that it is its own.
fn spaces() -> Spaces {
    let spaces = Spaces::new();
    for (name, link, address) in [(&spaces.near, "va", NEAR_IPV6), (&spaces.far, "vb", FAR_IPV6)] {
        let enable = format!("net.ipv6.conf.{link}.disable_ipv6=0");
        succeed(common::enter(name, &["sysctl", "-qw", &enable]));
        let address = format!("{address}/64");
        succeed(ip(&["-n", name, "-6", "address", "add", &address, "dev", link, "nodad"]));
    }
    // The kernel enters the routes of the addresses in the background.
    for (name, address) in [(&spaces.near, NEAR_IPV6), (&spaces.far, FAR_IPV6)] {
        let own = || succeed(ip(&["-n", name, "-6", "route", "get", address]));
        assert!(until(LONG, || own().contains("dev lo")), "{}", own());
    }
    spaces
}

/// A command of the far end that says that it listens.
fn listening(spaces: &Spaces, args: &[&str]) -> Running {
    let mut running = Running::start(spaces.far(args));
    running.await_stderr("listening on ");
    running
}

#[test]
fn echoes_and_peers_answer_over_ipv6_by_sockets_and_by_af_xdp() {
    let spaces = spaces();
    for engine in [&["--arm", "baseline"][..], &["--arm", "bypass+native", "-i", "vb"]] {
        let echo = listening(&spaces, &[&["probe", "echo", "--ip", "6"], engine].concat());
        let own: Vec<&str> = engine.iter().map(|a| if *a == "vb" { "va" } else { *a }).collect();
        let ping = ["probe", "ping", FAR_IPV6, "--no-peer", "-c", "50", "--json"];
        let document = json(spaces.near(&[&ping[..], &own].concat()));
        let round_trip = &document["deliveries"]["round-trip"];
        assert_eq!(round_trip["received_count"], 50, "{engine:?}: {document:#}");
        let ended = echo.end_by("INT", LONG);
        assert!(ended.status.success(), "{}", all_text(&ended));
        assert!(until(LONG, || !spaces.far_link().contains("xdp")), "{}", spaces.far_link());
    }
    let peer = listening(&spaces, &["peer", "--listen", "[::]:7117"]);
    let send = ["probe", "send", FAR_IPV6, "--arm", "bypass", "-i", "va", "--rate", "2000"];
    let sent = [&send[..], &["-c", "200", "--size", "1452", "--json"]].concat();
    let document = json(spaces.near(&sent));
    assert_eq!(document["deliveries"]["forward"]["received_count"], 200, "{document:#}");
    let from = ["probe", "receive", "--from", "[fd77::2]:7117", "--rate", "500", "--time", "300ms"];
    let text = succeed(spaces.near(&from));
    assert!(text.contains("lost 0 "), "{text}");
    // The peer that listens on [::] is reached by IPv4 as well.
    let v4 = ["probe", "ping", common::FAR_IP, "-c", "20", "--json"];
    assert_eq!(json(spaces.near(&v4))["deliveries"]["forward"]["received_count"], 20);
    let long =
        ["probe", "send", FAR_IPV6, "--arm", "bypass", "-i", "va", "--size", "1453", "-c", "1"];
    let told = fail(spaces.near(&long), 1);
    assert!(told.contains("makes packets of 1501 bytes; va has an MTU of 1500"), "{told}");
    drop(peer);
}

#[test]
fn experiments_run_over_ipv6_in_a_lab_and_between_two_ends() {
    let spaces = spaces();
    let arms = ["--arms", "baseline,batch+gso,bypass+native"];
    let lab = [&["prove", "probe", "--ip", "6", "--load", "ping", "--json"], &arms[..], &SHORT];
    let document = json(spaces.near(&lab.concat()));
    assert_eq!(document["load"]["ip"], "6", "{document:#}");
    let nic = document["machine"]["nic"].as_str().expect("a description");
    assert!(nic.contains("IPv6"), "{nic}");
    let far = format!("netns:{}", spaces.far);
    let between = ["prove", "probe", "--far", &far, "--ip", "6", "--load", "flood", "--json"];
    let two = json(spaces.near(&[&between[..], &arms, &SHORT].concat()));
    let nic = two["machine"]["nic"].as_str().expect("a description");
    assert!(nic.contains(FAR_IPV6), "{nic}");
    for document in [&document, &two] {
        let arms = document["arms"].as_array().expect("arms");
        // With the control.
        assert_eq!(arms.len(), 4, "{document:#}");
        for arm in arms {
            assert_eq!(arm["failures"].as_array().map(Vec::len), Some(0), "{arm:#}");
            assert!(arm["trials"].as_u64() >= Some(6), "{arm:#}");
        }
    }
    let v4 = ["prove", "probe", "--far", "peer:10.77.0.2", "--ip", "6"];
    let told = all_text(&run(spaces.near(&v4)));
    assert!(told.contains("10.77.0.2"), "{told}");
    let storm = ["prove", "probe", "--ip", "6", "--load", "storm", "--arms", "baseline"];
    assert!(!run(spaces.near(&storm)).status.success());
    for path in paths_besides_probe() {
        let told = fail(spaces.near(&["prove", &path, "--ip", "6"]), 2);
        assert!(told.contains("--ip is of path probe"), "{path}: {told}");
    }
}
