//! Failures are counted, or reported with the affected object and a remedy.

mod common;

use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use common::{
    FAR_PORT, NEAR_PORT, Running, beside, counter, local, once_free, packet, remote, run, skip,
    tasks, udp, until,
};
use host::net::ethtool;
use io::{AnyEngine, Copying, Engine, EngineSpec, Receiving, Role, Setup, Wait};
use lab::{End, Pair, PairSpec};
use testkit::engines::{native, open, open_far, pair, refused, says, skb, towards};
use wirepath_probe::endpoint::{self, Choice};
use wirepath_probe::role::{self, Pace};

#[test]
fn refused_zero_copy_falls_back_to_copy_and_is_reported() {
    let _beside = beside();
    let pair = pair();
    let spec = EngineSpec { copying: Copying::PreferZeroCopy, ..native() };
    let (near, far) = tasks(Role::Ping, &spec, Pace::PingPong, 64, Some(10));
    let (pinged, echoed) = run(&pair.near, &pair.far, &near, &far).expect("falls back");
    for (report, ifname) in [(&pinged, "wp-near"), (&echoed, "wp-far")] {
        let mode = ("xdp".to_owned(), "native, copy".to_owned());
        assert!(report.engine.mode.contains(&mode), "{:?}", report.engine.mode);
        let (switch, why) = &report.engine.not_effective[0];
        assert_eq!(switch, "zero-copy");
        says(why, &[ifname, "refused zero-copy", "copy mode is in use"]);
    }
    assert_eq!(pinged.arrived.received_count, 10);
}

#[test]
fn busy_polling_without_a_napi_instance_is_not_effective() {
    let _beside = beside();
    let pair = pair();
    let spec = EngineSpec { busy_poll: true, ..skb() };
    let (near, far) = tasks(Role::Ping, &spec, Pace::PingPong, 64, Some(10));
    let (pinged, _) = run(&pair.near, &pair.far, &near, &far).expect("it runs");
    assert_eq!(pinged.arrived.received_count, 10);
    let (switch, why) = pinged.engine.not_effective.first().expect("copy mode has no NAPI id");
    assert_eq!(switch, "busy-poll");
    says(why, &["SO_INCOMING_NAPI_ID is 0", "do not defer interrupts"]);
}

#[test]
fn busy_polling_without_a_napi_instance_makes_no_system_calls() {
    const LOOKS: u64 = 1000;
    let _beside = beside();
    let pair = pair();
    let spec = EngineSpec { busy_poll: true, wait: Wait::Spin, ..skb() };
    let opened = open_far(&pair, &spec).expect("it opens");
    let AnyEngine::Xdp(mut engine) = opened else { panic!("another engine") };
    let sent = pair.near.run(|| {
        UdpSocket::bind((pair.near.ip, NEAR_PORT))?.send_to(&[0; 64], (pair.far.ip, FAR_PORT))
    });
    assert_eq!(sent.expect("the lab").expect("sent"), 64);
    let mut look = || engine.rx_take(&mut |_| {}).expect("it polls");
    assert!(until(|| look() == 1), "the datagram did not arrive");
    for _ in 0..LOOKS {
        assert_eq!(look(), 0);
    }
    let report = engine.finish();
    assert_eq!(report.not_effective[0].0, "busy-poll");
    assert!(report.syscall_count < LOOKS / 2, "{} system calls", report.syscall_count);
}

/// Links of this process's descriptors that name `kind`, such as `eventpoll`.
fn descriptors(kind: &str) -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    all.map(|entry| entry.path())
        .filter(|path| std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains(kind)))
        .collect()
}

#[test]
fn each_way_to_receive_uses_its_own_kernel_interface() {
    let _beside = beside();
    let pair = pair();
    for (receiving, kind, counter_name) in [
        (Receiving::Epoll, "eventpoll", "epoll_wait_count"),
        (Receiving::EpollBusyPoll, "eventpoll", "epoll_wait_count"),
        (Receiving::IoUring, "io_uring", "uring_request_count"),
    ] {
        for wait in [Wait::Block, Wait::Spin] {
            let spec = EngineSpec { receiving, wait, ..udp() };
            let before = descriptors(kind).len();
            let opened = once_free(|| open_far(&pair, &spec), |why| why.contains("is taken"));
            let opened = opened.expect("it opens");
            assert_eq!(descriptors(kind).len(), before + 1, "{receiving:?}");
            drop(opened);
            assert_eq!(descriptors(kind).len(), before, "{receiving:?}");
            let (near, far) = tasks(Role::Ping, &spec, Pace::PingPong, 64, Some(50));
            let (pinged, echoed) = run(&pair.near, &pair.far, &near, &far).expect("it runs");
            for report in [&pinged, &echoed] {
                assert_eq!(report.arrived.received_count, 50, "{receiving:?} {wait:?}");
                let counters = &report.engine.counters;
                assert!(counter(report, counter_name) > 0, "{receiving:?}: {counters:?}");
            }
            let evidence = pinged.engine.not_effective.iter().find(|(s, _)| s == "epoll-busy-poll");
            let mode = |name: &str| pinged.engine.mode.iter().find(|(n, _)| n == name);
            match receiving {
                Receiving::EpollBusyPoll => {
                    assert!(mode("epoll busy polling").is_some_and(|(_, m)| m.contains("50 µs")));
                    let no_napi = mode("napi id").is_some_and(|(_, id)| id == "0");
                    assert_eq!(evidence.is_some(), no_napi, "{:?}", pinged.engine);
                }
                _ => assert!(evidence.is_none(), "{evidence:?}"),
            }
        }
    }
}

#[test]
fn datagrams_sent_without_a_copy_are_reported_by_the_kernel_and_copied_on_a_veth() {
    let _beside = beside();
    let pair = pair();
    for spec in [udp(), EngineSpec { batch: 64, ..udp() }] {
        let spec = EngineSpec { zero_copy_send: true, ..spec };
        let (near, far) = tasks(Role::Send, &spec, Pace::Rate(20_000), 1400, Some(2000));
        let (sent, received) = run(&pair.near, &pair.far, &near, &far).expect("it runs");
        assert_eq!((sent.sent_count, received.arrived.received_count), (2000, 2000));
        let counted = ["zero_copy_send_count", "zero_copy_send_copied_count"];
        assert_eq!(counted.map(|name| counter(&sent, name)), [0, 2000]);
        assert_eq!(counter(&sent, "zero_copy_send_unfinished_count"), 0);
        let (switch, why) = sent.engine.not_effective.first().expect("a veth copies");
        assert_eq!(switch, "zero-copy-send");
        says(why, &["copied all 2000 sends of wp-near", "SO_EE_CODE_ZEROCOPY_COPIED"]);
        assert!(received.engine.not_effective.is_empty());
    }
}

#[test]
fn a_link_that_is_down_at_the_start_is_reported_with_the_command() {
    let _beside = beside();
    for (name, spec) in [("udp", udp()), ("packet", packet()), ("skb", skb()), ("native", native())]
    {
        let pair = pair();
        pair.far.set_up(false).expect("down");
        let (sender, receiver) = tasks(Role::Send, &spec, Pace::Rate(10_000), 64, None);
        let (at, to) = (local(&pair.far, FAR_PORT), remote(&pair.near, NEAR_PORT));
        for task in [receiver, sender] {
            // Refused at once, or after a timeout; never silently.
            let ended = Running::start(&pair.far, at.clone(), Some(to), task)
                .and_then(|running| running.join().ran.map(|report| report.sent_count));
            let why = ended.expect_err(name);
            says(&why, &["interface wp-far is down", "ip link set wp-far up"]);
        }
    }
}

#[test]
fn a_link_that_stays_down_ends_the_run_and_is_reported() {
    let _beside = beside();
    for (name, spec) in [("udp", udp()), ("packet", packet()), ("skb", skb()), ("native", native())]
    {
        let pair = pair();
        let (near, far) = tasks(Role::Send, &spec, Pace::Rate(10_000), 64, None);
        let (sending, receiving) = Running::both(&pair, near, far).expect(name);
        assert!(until(|| receiving.live.received_count.load(Ordering::Relaxed) > 0), "{name}");
        pair.near.set_up(false).expect("down");
        // Neither end is stopped by the test.
        let (sent, received) = (sending.join(), receiving.join());
        let sent = sent.ran.expect_err("nothing leaves");
        says(&sent, &["interface wp-near is down", "ip link set wp-near up"]);
        let received = received.ran.expect_err("nothing arrives");
        says(&received, &["interface wp-far is down"]);
    }
}

#[test]
fn a_deleted_interface_ends_both_runs_and_is_reported() {
    let _beside = beside();
    for (name, spec) in [("udp", udp()), ("packet", packet()), ("skb", skb()), ("native", native())]
    {
        let pair = pair();
        let (near, far) = tasks(Role::Send, &spec, Pace::Rate(10_000), 64, None);
        let (sending, receiving) = Running::both(&pair, near, far).expect(name);
        assert!(until(|| receiving.live.received_count.load(Ordering::Relaxed) > 0), "{name}");
        pair.near.delete_link().expect("deleted");
        for (ended, ifname) in [(sending.join(), "wp-near"), (receiving.join(), "wp-far")] {
            let why = ended.ran.expect_err("the interface is gone");
            says(&why, &[&format!("interface {ifname} no longer exists")]);
        }
    }
}

/// Sends 640 datagrams of 64 flows, which the kernel distributes over the queues by hash.
fn send_many_flows(pair: &Pair, session: Option<u32>) {
    let (near, _) = tasks(Role::Send, &udp(), Pace::Rate(10_000), 64, Some(640));
    let near = role::Task { flows: 64, session, ..near };
    let (from, to) = (local(&pair.near, NEAR_PORT), remote(&pair.far, FAR_PORT));
    let sent = Running::start(&pair.near, from, Some(to), near).expect("near").join();
    assert_eq!(sent.ran.expect("near").sent_count, 640);
}

#[test]
fn datagrams_on_a_queue_without_a_socket_are_counted_as_missed() {
    let _beside = beside();
    let pair = Pair::new(&PairSpec { queues: 2, ..PairSpec::default() }).expect("a lab");
    let (_, far) = tasks(Role::Receive, &native(), Pace::Flood, 64, None);
    let session = far.session;
    let at = local(&pair.far, FAR_PORT);
    let receiving = Running::start(&pair.far, at, None, far).expect("far");
    send_many_flows(&pair, session);
    let received = receiving.drained().ran.expect("far");
    let missed = counter(&received, "xdp_map_missed_count");
    let redirected = counter(&received, "xdp_redirected_count");
    assert!(missed > 0, "{:?}", received.engine.counters);
    assert_eq!(missed + redirected, 640, "{:?}", received.engine.counters);
    assert_eq!(counter(&received, "xdp_bypassed_count"), missed, "the stack received them");
    assert_eq!(received.arrived.received_count, redirected);
}

#[test]
fn datagrams_that_move_to_a_queue_added_during_the_run_are_counted() {
    let _beside = beside();
    let pair = Pair::new(&PairSpec { queues: 2, ..PairSpec::default() }).expect("a lab");
    let channels = |end: &End, count| {
        let set = end.run(|| {
            let now = ethtool::channels(end.ifindex).expect("channels");
            let wanted = ethtool::Channels { rx: count, tx: count, ..now };
            ethtool::set_channels(end.ifindex, &wanted)?;
            // The change drops the carrier for a moment.
            Ok::<_, host::net::NetError>(until(|| end.link().is_ok_and(|l| l.is_running)))
        });
        assert!(set.expect("the lab").expect("a veth has channels"), "no carrier");
    };
    // One queue at the start of the run...
    channels(&pair.near, 1);
    channels(&pair.far, 1);
    let (_, far) = tasks(Role::Receive, &native(), Pace::Flood, 64, None);
    let session = far.session;
    let at = local(&pair.far, FAR_PORT);
    let receiving = Running::start(&pair.far, at, None, far).expect("far");
    send_many_flows(&pair, session);
    assert!(until(|| receiving.live.received_count.load(Ordering::Relaxed) == 640));
    // ...then two.
    channels(&pair.far, 2);
    channels(&pair.near, 2);
    assert!(until(|| pair.near.link().is_ok_and(|l| l.is_running)), "no carrier");
    assert!(until(|| pair.far.link().is_ok_and(|l| l.is_running)), "no carrier");
    send_many_flows(&pair, session);
    let received = receiving.drained().ran.expect("far");
    let redirected = counter(&received, "xdp_redirected_count");
    let bypassed = counter(&received, "xdp_bypassed_count");
    assert!(bypassed > 0, "{:?}", received.engine.counters);
    assert_eq!(bypassed + redirected, 1280, "{:?}", received.engine.counters);
    // The second sender's sequence numbers start again at the first.
    assert_eq!(received.arrived.received_count, redirected);
}

#[test]
fn a_payload_too_large_for_the_mtu_or_a_frame_is_reported_with_the_limit() {
    let _beside = beside();
    let pair = pair();
    let to = remote(&pair.far, FAR_PORT);
    let at = local(&pair.near, NEAR_PORT);
    for spec in [packet(), skb(), native()] {
        refused(
            open(&pair.near, &towards(&spec, Role::Send, &at, &to, 1473)),
            &["1473 bytes", "wp-near has an MTU of 1500", "--size"],
        );
        open(&pair.near, &towards(&spec, Role::Send, &at, &to, 1472)).expect("fits exactly");
    }
    let jumbo = Pair::new(&PairSpec { mtu_bytes: 9000, ..PairSpec::default() }).expect("a lab");
    let at = local(&jumbo.near, NEAR_PORT);
    refused(
        open(&jumbo.near, &towards(&skb(), Role::Send, &at, &to, 4000)),
        &["4000 bytes", "a UMEM frame holds", "--multi-buffer"],
    );
    refused(
        open(&jumbo.near, &towards(&udp(), Role::Send, &at, &to, 65_508)),
        &["65508 bytes", "65507", "--size"],
    );
    let (near, _) = tasks(Role::Send, &udp(), Pace::Flood, 8, Some(1));
    let refusal = near.check().expect_err("no room for the probe's header").to_string();
    says(&refusal, &["payload size 8", "24 to 65507"]);
}

#[test]
fn sending_without_a_destination_is_reported() {
    let _beside = beside();
    let pair = pair();
    for spec in [udp(), packet(), skb()] {
        let (near, _) = tasks(Role::Send, &spec, Pace::Flood, 64, Some(1));
        let at = local(&pair.near, NEAR_PORT);
        let sending = Running::start(&pair.near, at, None, near).expect("open");
        let why = sending.join().ran.expect_err("no destination");
        says(&why, &["no address to send to"]);
    }
}

#[test]
fn a_far_end_without_a_socket_is_counted_as_unreachable() {
    let _beside = beside();
    let pair = pair();
    // The kernel answers the first datagrams with ICMP errors; sending continues.
    let (near, _) = tasks(Role::Send, &udp(), Pace::Rate(100), 64, Some(20));
    let (from, to) = (local(&pair.near, NEAR_PORT), remote(&pair.far, FAR_PORT));
    let sent = Running::start(&pair.near, from, Some(to), near).expect("near").join();
    let sent = sent.ran.expect("an earlier ICMP error does not end the run");
    assert_eq!(sent.sent_count, 20);
    assert!(counter(&sent, "port_unreachable_count") > 0, "{:?}", sent.engine.counters);
}

const CHILD: &str = "WIREPATH_TEST_CHILD";

/// Opens the requested engine and prints the result; the tests below run it in a restricted
/// process.
#[test]
#[ignore = "role of a child process"]
fn child_that_opens_an_engine() {
    let engine = std::env::var(CHILD).expect("set by the tests below");
    let spec = match engine.as_str() {
        "udp" => udp(),
        "packet" => packet(),
        "skb" => skb(),
        "large" => EngineSpec { frames: 32_768, ..skb() },
        other => panic!("no engine {other}"),
    };
    let spec = EngineSpec { receive_buffer_bytes: None, ..spec };
    let choice = Choice { ifname: Some("wp-far".into()), queue: 0, port: FAR_PORT };
    let at = endpoint::listening(&choice, false).expect("wp-far is here");
    let opened = io::open(&Setup::receive(&spec, &at, 64));
    let said = match opened {
        Ok(_) => "opened".to_owned(),
        Err(error) => host::text::chain(&error),
    };
    use std::io::Write;
    writeln!(std::io::stdout(), "\nsaid: {said}").expect("printed");
}

/// Runs the child in the far namespace under `wrapper`, a command that removes privileges or
/// limits. `None` if the command is not installed.
fn child(pair: &Pair, wrapper: &[&str], engine: &str) -> Option<String> {
    let role = testkit::role("child_that_opens_an_engine");
    let out = pair.far.run(|| {
        Command::new(wrapper[0])
            .args(&wrapper[1..])
            .arg(role.get_program())
            .args(role.get_args())
            .env(CHILD, engine)
            .output()
    });
    match out.expect("the lab") {
        Ok(out) => {
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            let said = text.lines().find_map(|line| line.strip_prefix("said: "));
            let errors = String::from_utf8_lossy(&out.stderr);
            Some(said.unwrap_or_else(|| panic!("{text}{errors}")).to_owned())
        }
        Err(error) => {
            skip(wrapper[0], format!("{error}; package util-linux"));
            None
        }
    }
}

#[test]
fn missing_capabilities_are_reported_with_the_command() {
    let _beside = beside();
    let pair = pair();
    let bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"];
    for (engine, parts) in [
        ("packet", &["CAP_NET_RAW", "setcap cap_net_raw"][..]),
        ("skb", &["CAP_", "setcap cap_", "wirepath"][..]),
    ] {
        let Some(said) = child(&pair, &bare, engine) else { return };
        says(&said, parts);
    }
    let Some(said) = child(&pair, &bare, "udp") else { return };
    assert_eq!(said, "opened", "UDP sockets need no capability");
}

#[test]
fn a_small_locked_memory_limit_is_reported_or_has_no_effect() {
    let _beside = beside();
    let pair = pair();
    // A UMEM of 64 MiB with a limit of 64 KiB. Root may exceed it (CAP_IPC_LOCK); without that
    // capability the kernel refuses. BPF itself has not used the limit since 5.11.
    let limited = ["prlimit", "--memlock=65536:65536"];
    let with_lock = [&limited[..], &["--"]].concat();
    let without = ["--", "setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", "--"];
    let without = [&limited[..], &without].concat();
    let Some(said) = child(&pair, &with_lock, "large") else { return };
    assert_eq!(said, "opened");
    let Some(said) = child(&pair, &without, "large") else { return };
    says(&said, &["UMEM of 67108864 bytes", "locked-memory limit", "ulimit -l", "fewer frames"]);
}

#[test]
fn sigkill_leaves_no_xdp_program_and_frees_the_queue() {
    let _beside = beside();
    let pair = pair();
    let mut child = pair
        .far
        .run(|| {
            testkit::role("child_that_holds_an_engine")
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("starts")
        })
        .expect("the lab");
    let shown = || pair.far.run(|| common::ip("-d link show wp-far")).expect("the lab");
    assert!(until(|| shown().contains("prog/xdp")), "the child did not attach: {}", shown());
    child.kill().expect("killed");
    child.wait().expect("gone");
    assert!(until(|| !shown().contains("prog/xdp")), "the program stayed: {}", shown());
    open_far(&pair, &native()).expect("the queue is free");
}

#[test]
#[ignore = "role of a child process"]
fn child_that_holds_an_engine() {
    let choice = Choice { ifname: Some("wp-far".into()), queue: 0, port: FAR_PORT };
    let at = endpoint::listening(&choice, false).expect("wp-far is here");
    let _held = io::open(&Setup::receive(&native(), &at, 64)).expect("opens");
    // Killed long before this.
    thread::sleep(Duration::from_secs(60));
}
