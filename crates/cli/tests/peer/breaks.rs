//! Ends that are cut off, stopped or killed in mid-run.

use super::*;

/// CPU time of a process so far, clock ticks.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    [11, 12].iter().map(|at| fields[*at].parse::<u64>().unwrap()).sum()
}

/// Asserts that a peer gave up a run: it said so, has no XDP program, sleeps, and serves.
fn assert_freed(spaces: &Spaces, peer: &mut Running, told: usize, said: &str, near: impl FnOnce()) {
    let tail = |peer: &Running| peer.stderr()[told..].to_owned();
    assert!(until(LONG, || tail(peer).contains(said)), "{}", tail(peer));
    assert!(!spaces.far_link().contains("xdp"), "the peer keeps no program");
    let before = cpu_ticks(peer.pid());
    std::thread::sleep(Duration::from_secs(1));
    let used = cpu_ticks(peer.pid()) - before;
    assert!(used < 20, "{used} ticks of 100 in a second without a run");
    near();
    let output = run(spaces.near(&["probe", "ping", FAR_IP, "-c", "20"]));
    assert!(all_text(&output).contains("received 20, lost 0"), "{}", all_text(&output));
    assert!(!peer.has_ended());
}

/// Engines and roles that a run is cut off in, with a spinning far end.
const SPINNING: [[&str; 7]; 2] = [
    ["probe", "ping", FAR_IP, "--time", "300s", "--arm", "spin+bypass"],
    ["probe", "send", FAR_IP, "--time", "300s", "--arm", "spin+bypass"],
];

#[test]
fn a_near_end_that_is_cut_off_in_mid_run_leaves_the_peer_free_and_ends() {
    if !common::is_installed("nft") {
        return;
    }
    let spaces = Spaces::new();
    let mut peer = spaces.peer(&[]);
    let nft = |rules: &str| drop(succeed(common::enter(&spaces.near, &["nft", rules])));
    for (args, is_killed) in SPINNING.iter().zip([true, false]) {
        let near = Running::start(spaces.near(args));
        assert!(until(LONG, || spaces.far_link().contains("xdp")), "{}", near.stderr());
        std::thread::sleep(Duration::from_millis(300));
        let told = peer.stderr().len();
        nft("table ip cut { chain in { type filter hook input priority 0; policy drop; }; \
             chain out { type filter hook output priority 0; policy drop; }; }");
        // Nothing of the near end comes any more, no close of its connection either.
        let near = if is_killed { Err(near.end_by("KILL", LONG)) } else { Ok(near) };
        assert_freed(&spaces, &mut peer, told, ": ", || {
            if let Ok(near) = near {
                // It notices by itself.
                let output = near.finish(LONG).expect("it ends");
                let said = all_text(&output);
                assert_eq!(output.status.code(), Some(1), "{said}");
                assert!(said.contains("the control connection broke"), "{said}");
            }
            nft("delete table ip cut");
        });
    }
}

#[test]
fn a_near_end_that_is_stopped_in_mid_run_leaves_the_peer_free() {
    let spaces = Spaces::new();
    let mut peer = spaces.peer(&[]);
    for args in &SPINNING {
        let near = Running::start(spaces.near(args));
        assert!(until(LONG, || spaces.far_link().contains("xdp")), "{}", near.stderr());
        // Longer than the peer waits for a sign of life.
        std::thread::sleep(Duration::from_secs(12));
        let told = peer.stderr().len();
        near.signal("STOP");
        let said = "no sign of life during a run for 10 s";
        // Its XDP program stays on its interface, so it has to go before the next run.
        assert_freed(&spaces, &mut peer, told, said, || drop(near.end_by("KILL", LONG)));
    }
}

#[test]
fn it_sends_only_to_the_near_end_and_stops_when_that_goes() {
    let mut local = Local::new(&[]);
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    near.set_read_timeout(Some(LONG)).unwrap();
    let task = sending(near.local_addr().unwrap().port(), free_port(), 1000);
    // No field names another address than that of the control connection.
    for field in ["ip", "near_ip", "to"] {
        let mut other = task.clone();
        other["run"][field] = json!("127.0.0.99");
        let mut it = Conversation::open(&local);
        it.say(&other);
        let told = it.hear();
        let why = told["error"]["why"].as_str().unwrap_or_default();
        assert!(why.contains(&format!("unknown field `{field}`")), "{told}");
        // The peer is free once the connection is closed.
        it.0.read_to_string(&mut String::new()).unwrap();
    }
    let mut it = Conversation::open(&local);
    let elsewhere =
        UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 99), near.local_addr().unwrap().port())).unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    it.say(&task);
    let ready = it.hear();
    assert_eq!(ready["ready"]["ip"], "127.0.0.1", "{ready}");
    let mut payload = [0; 2048];
    for _ in 0..100 {
        let (len, from) = near.recv_from(&mut payload).unwrap();
        assert_eq!((len, from.ip()), (64, Ipv4Addr::LOCALHOST.into()));
    }
    assert!(elsewhere.recv(&mut payload).is_err(), "nothing goes elsewhere");
    // Gone without a word, as after a kill -9.
    drop(it);
    local.assert_serves();
    near.set_nonblocking(true).unwrap();
    while near.recv(&mut payload).is_ok() {}
    std::thread::sleep(Duration::from_millis(200));
    assert!(near.recv(&mut payload).is_err(), "it sends no more");
}

#[test]
fn a_killed_near_end_leaves_the_peer_free_for_the_next() {
    let spaces = Spaces::new();
    let mut peer = spaces.peer(&[]);
    for engine in [&["--arm", "spin+bypass+native"][..], &[]] {
        for role in ["ping", "send"] {
            let mut args = vec!["probe", role, FAR_IP, "--time", "300s"];
            args.extend(engine);
            let mut near = Running::start(spaces.near(&args));
            near.await_stderr("peer at ");
            std::thread::sleep(Duration::from_millis(300));
            assert!(!near.has_ended(), "{}", near.stderr());
            near.end_by("KILL", LONG);
            let mut last = String::new();
            let served = until(LONG, || {
                let output = run(spaces.near(&["probe", "ping", FAR_IP, "-c", "20"]));
                last = all_text(&output);
                output.status.success()
            });
            assert!(served && last.contains("received 20, lost 0"), "{last}");
            assert!(!peer.has_ended());
            assert!(!spaces.far_link().contains("xdp"), "the peer keeps no program");
        }
    }
    // Nor does it end badly itself.
    assert_eq!(peer.end_by("INT", LONG).status.code(), Some(0));
}

#[test]
fn traffic_to_other_addresses_and_ports_reaches_the_host_during_a_run_by_xdp() {
    let spaces = Spaces::new();
    let other_ip = "10.77.0.9";
    let address = format!("{other_ip}/24");
    succeed(common::ip(&["-n", &spaces.far, "address", "add", &address, "dev", "vb"]));
    let open = |name: &str| Netns::open(format!("/run/netns/{name}")).unwrap();
    let (near, far) = (open(&spaces.near), open(&spaces.far));
    let _peer = spaces.peer(&[]);
    let args = ["probe", "ping", FAR_IP, "--time", "300s", "--arm", "bypass+native"];
    let mut run = Running::start(spaces.near(&args));
    run.await_stderr("peer at ");
    assert!(spaces.far_link().contains("xdp"));
    // Attaching the program resets the link: the run begins when that is over.
    let counters = sys::sysfs::Sysfs::of(&far).expect("a view of the far end");
    let begun = until(LONG, || {
        counters
            .read("class/net/vb/statistics/rx_packets")
            .expect("a count")
            .trim()
            .parse::<u64>()
            .is_ok_and(|n| n >= 100)
    });
    assert!(begun && !run.has_ended(), "{}", run.stderr());
    let sender = udp_in(&near, (NEAR_IP, 0));
    // The port of the run, and one of another service.
    for at in [(other_ip, 9000), (FAR_IP, 53)] {
        let arrived = arrived_of_50(&sender, &udp_in(&far, at), at, b"not the run's");
        assert_eq!(arrived, 50, "{at:?}");
    }
    assert!(!run.has_ended(), "{}", run.stderr());
    let output = run.end_by("INT", LONG);
    // The far end's counters are read behind its filter.
    assert!(all_text(&output).contains("far_xdp_redirected_count"), "{}", all_text(&output));
    assert!(output.status.success());
}

#[test]
fn a_near_end_whose_peer_is_killed_says_so_and_ends() {
    let spaces = Spaces::new();
    for args in [
        &["probe", "ping", FAR_IP, "--time", "300s"][..],
        &["probe", "ping", FAR_IP, "--time", "300s", "--rate", "1000", "--arm", "bypass"],
        &["probe", "send", FAR_IP, "--time", "300s", "--rate", "1"],
        &["probe", "send", FAR_IP, "--time", "300s", "--packet"],
        &["probe", "receive", "--from", FAR_IP, "--time", "300s"],
    ] {
        let peer = spaces.peer(&[]);
        let mut near = Running::start(spaces.near(args));
        assert!(until(LONG, || peer.stderr().contains("payloads")), "{}", near.stderr());
        std::thread::sleep(Duration::from_millis(300));
        assert!(!near.has_ended(), "{args:?}: {}", near.stderr());
        peer.end_by("KILL", LONG);
        let output = near.finish(SOON).unwrap_or_else(|| panic!("{args:?} goes on"));
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", all_text(&output));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("is the peer still running?"), "{args:?}: {said}");
    }
}

#[test]
fn an_experiment_whose_peer_is_killed_keeps_what_it_has_and_fails() {
    let spaces = Spaces::new();
    let data = Data::new();
    let peer = spaces.peer(&[]);
    let dir = data.path().to_str().unwrap();
    let args = [
        "prove",
        "probe",
        "--peer",
        FAR_IP,
        "--load",
        "ping",
        "--arms",
        "spin",
        "--time",
        "300s",
        "--min-blocks",
        "100",
        "--trial",
        "50ms",
        "--data-dir",
        dir,
    ];
    let mut near = Running::start(spaces.near(&args));
    let saved = until(LONG, || near.has_ended() || data.trial_count() >= 12);
    assert!(saved && !near.has_ended(), "{}", near.stderr());
    peer.end_by("KILL", LONG);
    let output = near.finish(SOON * 2).expect("ends");
    assert_eq!(output.status.code(), Some(1), "{}", all_text(&output));
    let said = all_text(&output);
    assert!(said.contains("earlier results are kept") && said.contains("baseline"), "{said}");
    let report = json(data.wirepath(&["report", "last", "--json"]));
    assert!(report["arms"][0]["trials"].as_u64() >= Some(2), "{report}");
}
