//! What can go wrong is met with a message that names the thing and the remedy, or is counted.

mod common;

use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use common::{
    FAR_PORT, NEAR_PORT, Running, alone, counter, local, packet, remote, run, skip, tasks, udp,
    until, xdp,
};
use host::lab::{End, Pair, PairSpec};
use host::net::ethtool;
use io::{AnyEngine, Copying, EngineSpec, Local, Remote, Role, Setup, Wait, XdpMode};
use wirepath_paths::probe::endpoint::{self, Choice};
use wirepath_paths::probe::role::{self, Pace};

fn pair() -> Pair {
    Pair::new(&PairSpec::default()).expect("a lab")
}

fn native() -> EngineSpec {
    xdp(XdpMode::Native, Wait::Block, 1)
}

fn skb() -> EngineSpec {
    xdp(XdpMode::Skb, Wait::Block, 1)
}

/// Opens an engine in an end's namespace; the whole chain of causes when it cannot.
fn open(end: &End, setup: &Setup<'_>) -> Result<AnyEngine, String> {
    end.run(|| io::open(setup).map_err(|e| host::text::chain(&e))).expect("the lab")
}

fn towards<'a>(
    spec: &'a EngineSpec,
    role: Role,
    local: &'a Local,
    remote: &'a Remote,
    payload_bytes: usize,
) -> Setup<'a> {
    Setup { spec, role, local, remote: Some(remote), flows: 1, payload_bytes }
}

fn open_far(pair: &Pair, spec: &EngineSpec) -> Result<AnyEngine, String> {
    open(&pair.far, &Setup::receive(spec, &local(&pair.far, FAR_PORT), 64))
}

/// The message has each part.
#[track_caller]
fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

#[track_caller]
fn refused(opened: Result<AnyEngine, String>, parts: &[&str]) {
    // Not by `expect_err`: that would print the whole engine.
    let Err(why) = opened else { panic!("it must be refused, with {parts:?}") };
    says(&why, parts);
}

#[test]
fn refused_zero_copy_falls_back_to_copy_and_says_so() {
    let _alone = alone();
    let pair = pair();
    let spec = EngineSpec { copying: Copying::PreferZeroCopy, ..native() };
    let (near, far) = tasks(Role::Ping, &spec, Pace::PingPong, 64, Some(10));
    let (pinged, echoed) = run(&pair.near, &pair.far, &near, &far).expect("it falls back");
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
fn zero_copy_that_is_required_is_an_error_with_the_way_out() {
    let _alone = alone();
    let pair = pair();
    let spec = EngineSpec { copying: Copying::RequireZeroCopy, ..native() };
    refused(
        open_far(&pair, &spec),
        &["zero-copy is not offered", "wp-far queue 0", "drop --require-zero-copy"],
    );
    // Nothing stays behind: the same queue opens in copy mode.
    open_far(&pair, &native()).expect("free");
}

#[test]
fn busy_polling_without_a_napi_instance_is_not_effective() {
    let _alone = alone();
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
fn a_queue_that_is_not_there_is_named_with_those_that_are() {
    let _alone = alone();
    let pair = pair();
    let at = Local { queue: 7, ..local(&pair.far, FAR_PORT) };
    for role in [Role::Send, Role::Receive] {
        let to = remote(&pair.near, NEAR_PORT);
        let opened = open(&pair.far, &towards(&skb(), role, &at, &to, 64));
        refused(opened, &["wp-far has no queue 7", "it has 1", "-q", "ethtool -L"]);
    }
}

#[test]
fn a_queue_in_use_is_named_after_a_short_wait() {
    let _alone = alone();
    let pair = pair();
    let to = remote(&pair.near, NEAR_PORT);
    let send =
        |port| open(&pair.far, &towards(&skb(), Role::Send, &local(&pair.far, port), &to, 64));
    let _first = send(9010).expect("free");
    refused(send(9011), &["queue 0 of wp-far stayed busy", "1500 ms", "another queue with -q"]);
}

#[test]
fn a_queue_that_was_just_closed_opens_again_twenty_times() {
    let _alone = alone();
    let pair = pair();
    for spec in [skb(), native()] {
        for n in 0..20 {
            open_far(&pair, &spec).unwrap_or_else(|why| panic!("time {n}: {why}"));
        }
    }
}

#[test]
fn a_link_that_is_down_from_the_start_is_named_with_the_command() {
    let _alone = alone();
    for (name, spec) in [("udp", udp()), ("packet", packet()), ("skb", skb()), ("native", native())]
    {
        let pair = pair();
        pair.far.set_up(false).expect("down");
        let (sender, receiver) = tasks(Role::Send, &spec, Pace::Rate(10_000), 64, None);
        let (at, to) = (local(&pair.far, FAR_PORT), remote(&pair.near, NEAR_PORT));
        for task in [receiver, sender] {
            // Refused at once, or when it did not come up for a while; never silence.
            let ended = Running::start(&pair.far, at.clone(), Some(to), task)
                .and_then(|running| running.join().ran.map(|report| report.sent_count));
            let why = ended.expect_err(name);
            says(&why, &["interface wp-far is down", "ip link set wp-far up"]);
        }
    }
}

#[test]
fn a_link_that_stays_down_ends_the_run_and_is_named() {
    let _alone = alone();
    for (name, spec) in [("udp", udp()), ("packet", packet()), ("skb", skb()), ("native", native())]
    {
        let pair = pair();
        let (near, far) = tasks(Role::Send, &spec, Pace::Rate(10_000), 64, None);
        let (sending, receiving) = Running::both(&pair, near, far).expect(name);
        assert!(until(|| receiving.live.received_count.load(Ordering::Relaxed) > 0), "{name}");
        pair.near.set_up(false).expect("down");
        // Neither is told to stop.
        let (sent, received) = (sending.join(), receiving.join());
        let sent = sent.ran.expect_err("nothing leaves");
        says(&sent, &["interface wp-near is down", "ip link set wp-near up"]);
        let received = received.ran.expect_err("nothing arrives");
        says(&received, &["interface wp-far is down"]);
    }
}

#[test]
fn a_deleted_interface_ends_both_runs_and_is_named() {
    let _alone = alone();
    for (name, spec) in [("udp", udp()), ("packet", packet()), ("skb", skb()), ("native", native())]
    {
        let pair = pair();
        let (near, far) = tasks(Role::Send, &spec, Pace::Rate(10_000), 64, None);
        let (sending, receiving) = Running::both(&pair, near, far).expect(name);
        assert!(until(|| receiving.live.received_count.load(Ordering::Relaxed) > 0), "{name}");
        pair.near.delete_link().expect("deleted");
        for (ended, ifname) in [(sending.join(), "wp-near"), (receiving.join(), "wp-far")] {
            let why = ended.ran.expect_err("it is gone");
            says(&why, &[&format!("interface {ifname} no longer exists")]);
        }
    }
}

#[test]
fn an_interface_that_was_deleted_before_is_named() {
    let _alone = alone();
    let pair = pair();
    let at = local(&pair.far, FAR_PORT);
    pair.near.delete_link().expect("deleted");
    let to = remote(&pair.near, NEAR_PORT);
    for role in [Role::Send, Role::Receive] {
        refused(
            open(&pair.far, &towards(&skb(), role, &at, &to, 64)),
            &["interface wp-far no longer exists"],
        );
    }
}

#[test]
fn an_mtu_too_big_for_native_mode_names_the_ways_out() {
    let _alone = alone();
    let pair = Pair::new(&PairSpec { mtu_bytes: 9000, ..PairSpec::default() }).expect("a lab");
    refused(
        open_far(&pair, &native()),
        &["wp-far", "MTU", "native XDP", "mtu 1500", "fragments", "SKB mode"],
    );
    open_far(&pair, &EngineSpec { multi_buffer: true, ..native() }).expect("with fragments");
    open_far(&pair, &skb()).expect("in SKB mode");
}

#[test]
fn a_program_that_is_there_already_is_named_with_its_remedy() {
    let _alone = alone();
    let pair = pair();
    let first = pair.far.run(|| {
        let mut pass = sys::bpf::PassProgram::load(false).expect("load");
        pass.attach(pair.far.ifindex, sys::bpf::XdpMode::Native).expect("attach");
        pass
    });
    for spec in [native(), skb()] {
        refused(
            open_far(&pair, &spec),
            &["wp-far", "already has an XDP program (id ", "ip link set dev wp-far xdp off"],
        );
    }
    drop(first);
    open_far(&pair, &native()).expect("free again");
}

#[test]
fn a_udp_port_that_is_taken_is_named() {
    let _alone = alone();
    let pair = pair();
    let holder = pair.far.run(|| UdpSocket::bind((pair.far.ip, FAR_PORT)).expect("free"));
    for spec in [udp(), packet(), skb(), native()] {
        refused(open_far(&pair, &spec), &["UDP port 9000 of 10.77.0.2 is taken", "--port"]);
    }
    drop(holder);
    open_far(&pair, &udp()).expect("free again");
}

/// Sends 640 datagrams of 64 flows, which the kernel spreads over the queues by their hash.
fn send_many_flows(pair: &Pair, session: Option<u32>) {
    let (near, _) = tasks(Role::Send, &udp(), Pace::Rate(10_000), 64, Some(640));
    let near = role::Task { flows: 64, session, ..near };
    let (from, to) = (local(&pair.near, NEAR_PORT), remote(&pair.far, FAR_PORT));
    let sent = Running::start(&pair.near, from, Some(to), near).expect("near").join();
    assert_eq!(sent.ran.expect("near").sent_count, 640);
}

#[test]
fn datagrams_on_a_queue_without_a_socket_are_counted_as_missed() {
    let _alone = alone();
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
    assert_eq!(counter(&received, "xdp_bypassed_count"), missed, "the stack got them");
    assert_eq!(received.arrived.received_count, redirected);
}

#[test]
fn datagrams_that_move_to_a_queue_added_under_us_are_counted() {
    let _alone = alone();
    let pair = Pair::new(&PairSpec { queues: 2, ..PairSpec::default() }).expect("a lab");
    let channels = |end: &End, count| {
        let set = end.run(|| {
            let now = ethtool::channels(end.ifindex).expect("channels");
            let wanted = ethtool::Channels { rx: count, tx: count, ..now };
            ethtool::set_channels(end.ifindex, &wanted)?;
            // It takes the carrier away for a moment.
            Ok::<_, host::net::NetError>(until(|| end.link().is_ok_and(|l| l.is_running)))
        });
        assert!(set.expect("the lab").expect("a veth has channels"), "no carrier");
    };
    // One queue when the run begins...
    channels(&pair.near, 1);
    channels(&pair.far, 1);
    let (_, far) = tasks(Role::Receive, &native(), Pace::Flood, 64, None);
    let session = far.session;
    let at = local(&pair.far, FAR_PORT);
    let receiving = Running::start(&pair.far, at, None, far).expect("far");
    send_many_flows(&pair, session);
    assert!(until(|| receiving.live.received_count.load(Ordering::Relaxed) == 640));
    // ...and then somebody gives it two.
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
    // The second sender's numbers begin anew: all twice, as far as they arrived.
    assert_eq!(received.arrived.received_count, redirected);
}

#[test]
fn a_payload_too_large_for_the_mtu_or_a_frame_names_the_limit() {
    let _alone = alone();
    let pair = pair();
    let to = remote(&pair.far, FAR_PORT);
    let at = local(&pair.near, NEAR_PORT);
    for spec in [packet(), skb(), native()] {
        refused(
            open(&pair.near, &towards(&spec, Role::Send, &at, &to, 1473)),
            &["1473 bytes", "wp-near has an MTU of 1500", "--size"],
        );
        open(&pair.near, &towards(&spec, Role::Send, &at, &to, 1472)).expect("it just fits");
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
    let refusal = near.check().expect_err("no room for the probe's header");
    says(&refusal, &["payload size 8", "24 to 65507"]);
}

#[test]
fn sending_without_an_address_to_send_to_is_named() {
    let _alone = alone();
    let pair = pair();
    for spec in [udp(), packet(), skb()] {
        let (near, _) = tasks(Role::Send, &spec, Pace::Flood, 64, Some(1));
        let at = local(&pair.near, NEAR_PORT);
        let sending = Running::start(&pair.near, at, None, near).expect("open");
        let why = sending.join().ran.expect_err("where to?");
        says(&why, &["no address to send to"]);
    }
}

#[test]
fn a_far_end_that_nobody_holds_open_is_counted_as_unreachable() {
    let _alone = alone();
    let pair = pair();
    // The kernel answers the first datagrams with ICMP; they are sent all the same.
    let (near, _) = tasks(Role::Send, &udp(), Pace::Rate(100), 64, Some(20));
    let (from, to) = (local(&pair.near, NEAR_PORT), remote(&pair.far, FAR_PORT));
    let sent = Running::start(&pair.near, from, Some(to), near).expect("near").join();
    let sent = sent.ran.expect("a refusal of the past is no error of now");
    assert_eq!(sent.sent_count, 20);
    assert!(counter(&sent, "port_unreachable_count") > 0, "{:?}", sent.engine.counters);
}

const CHILD: &str = "WIREPATH_TEST_CHILD";

/// Opens what it is told to and says what came of it; for the tests below, which run it in a
/// process that lacks something.
#[test]
fn child_that_opens_an_engine() {
    let Ok(engine) = std::env::var(CHILD) else { return };
    let spec = match engine.as_str() {
        "udp" => udp(),
        "packet" => packet(),
        "skb" => skb(),
        "large" => EngineSpec { frames: 32_768, ..skb() },
        other => panic!("no engine {other}"),
    };
    let spec = EngineSpec { receive_buffer_bytes: None, ..spec };
    let choice = Choice { ifname: Some("wp-far".into()), queue: 0, port: FAR_PORT };
    let at = endpoint::listening(&choice).expect("wp-far is here");
    let opened = io::open(&Setup::receive(&spec, &at, 64));
    let said = match opened {
        Ok(_) => "opened".to_owned(),
        Err(error) => host::text::chain(&error),
    };
    use std::io::Write;
    writeln!(std::io::stdout(), "\nsaid: {said}").expect("told");
}

/// Runs the child in the far namespace behind `wrapper`, a command that takes something away.
fn child(pair: &Pair, wrapper: &[&str], engine: &str) -> Option<String> {
    let own = std::env::current_exe().expect("own path");
    let out = pair.far.run(|| {
        Command::new(wrapper[0])
            .args(&wrapper[1..])
            .arg(&own)
            .args(["--exact", "child_that_opens_an_engine", "--nocapture", "--test-threads=1"])
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
            skip(&format!("{} (package util-linux): {error}", wrapper[0]));
            None
        }
    }
}

#[test]
fn missing_capabilities_are_named_with_the_command() {
    let _alone = alone();
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
    assert_eq!(said, "opened", "plain sockets need no capability");
}

#[test]
fn a_small_locked_memory_limit_is_named_or_does_not_matter() {
    let _alone = alone();
    let pair = pair();
    // A UMEM of 64 MiB with a limit of 64 KiB. Root may exceed it (CAP_IPC_LOCK); without that
    // capability the kernel refuses, and BPF itself needs no limit since 5.11.
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
fn kill_minus_nine_leaves_no_program_and_the_queue_free() {
    let _alone = alone();
    let pair = pair();
    let own = std::env::current_exe().expect("own path");
    let mut child = pair
        .far
        .run(|| {
            Command::new(&own)
                .args(["--exact", "child_that_holds_an_engine", "--nocapture", "--test-threads=1"])
                .env(CHILD, "hold")
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
    open_far(&pair, &native()).expect("free");
}

#[test]
fn child_that_holds_an_engine() {
    if std::env::var(CHILD).as_deref() != Ok("hold") {
        return;
    }
    let choice = Choice { ifname: Some("wp-far".into()), queue: 0, port: FAR_PORT };
    let at = endpoint::listening(&choice).expect("wp-far is here");
    let _held = io::open(&Setup::receive(&native(), &at, 64)).expect("opens");
    // Killed long before this.
    thread::sleep(Duration::from_secs(60));
}
