//! Settings of TCP have the effect that their texts state, seen from outside: in `sock_diag`, in the kernel's counters, and
//! by the programs that use the sockets.
//!
//! Without a test of its effect here: `tcp-max-orphans`, `busy-poll` and `busy-read` belong to the machine;
//! `tcp-adv-win-scale` has none since Linux 6.6; `tcp-orphan-retries` is used by the lab itself.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use wirepath_host::net::{self, TcpSocket, TcpState, TcpTimer};
use wirepath_host::text::chain;
use wirepath_host::tune::{self, KnobError, Reaches, ScopedSettings, Target};

use crate::bench::{Bench, value};

const TIMEOUT: Duration = Duration::from_secs(20);
/// The network of the bench's wire, as a route.
const WIRE: &str = "route 10.77.0.0/24 dev wp-near";

/// Settings of the near end until the guard drops.
fn set(bench: &Bench, settings: &[(&str, &str)]) -> ScopedSettings {
    let mut held = ScopedSettings::new(&bench.pair.near.netns).unwrap();
    for (knob, value) in settings {
        let target = if knob.starts_with("route-") { WIRE } else { "netns" };
        held.set(knob, target.parse().unwrap(), value)
            .unwrap_or_else(|error| panic!("{}", chain(&error)));
    }
    held
}

/// A listener at the far end.
fn far_listener(bench: &Bench) -> TcpListener {
    bench.pair.far.run(|| TcpListener::bind("10.77.0.2:0").unwrap()).unwrap()
}

fn near_listener(bench: &Bench) -> TcpListener {
    bench.pair.near.run(|| TcpListener::bind("10.77.0.1:0").unwrap()).unwrap()
}

/// A connection from the near end, and its other end.
fn dial(bench: &Bench, to: &TcpListener) -> (TcpStream, TcpStream) {
    let address = to.local_addr().unwrap();
    let near = bench.pair.near.run(|| TcpStream::connect(address).unwrap()).unwrap();
    (near, to.accept().unwrap().0)
}

fn sockets(bench: &Bench) -> Vec<TcpSocket> {
    bench.pair.near.run(|| net::tcp_sockets().unwrap()).unwrap()
}

/// The near end's socket as the kernel shows it.
fn shown(bench: &Bench, stream: &TcpStream) -> TcpSocket {
    let (local, remote) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
    let mut all = sockets(bench).into_iter();
    all.find(|one| (one.local, one.remote) == (local, remote)).expect("it is open")
}

/// A counter of `/proc/net/netstat` of the near end.
fn counter(bench: &Bench, name: &str) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let table = bench.pair.near.run(read).unwrap();
    let lines: Vec<&str> = table.lines().filter(|line| line.starts_with("TcpExt:")).collect();
    let place =
        lines[0].split(' ').position(|word| word == name).unwrap_or_else(|| panic!("no {name}"));
    lines[1].split(' ').nth(place).unwrap().parse().unwrap()
}

/// Output of a program at the near end; it must succeed.
fn run_near(bench: &Bench, program: &str, arguments: &[&str]) -> String {
    let run = || Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    let ran = bench.pair.near.run(run).unwrap();
    assert!(
        ran.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&ran.stderr)
    );
    String::from_utf8(ran.stdout).unwrap()
}

/// Adds a rule of nftables for what the far end receives.
fn filter_far(bench: &Bench, rule: &str) {
    let table =
        format!("table ip test {{ chain in {{ type filter hook input priority 0; {rule} }}; }}");
    let run = || Command::new("nft").arg(&table).status().unwrap();
    assert!(bench.pair.far.run(run).unwrap().success());
}

/// Sends bytes to a reader.
fn transfer(near: &mut TcpStream, far: &TcpStream, bytes: usize) {
    let mut far = far.try_clone().unwrap();
    let reader = thread::spawn(move || far.read_exact(&mut vec![0; bytes]).unwrap());
    near.write_all(&vec![7; bytes]).unwrap();
    reader.join().unwrap();
}

#[test]
fn congestion_control_is_that_of_new_connections_and_old_ones_keep_theirs() {
    let bench = Bench::new();
    let (far, own) = (far_listener(&bench), near_listener(&bench));
    let (old, _old_far) = dial(&bench, &far);
    let before = shown(&bench, &old).congestion;
    let other = if before == "reno" { "bbr" } else { "reno" };
    let held = set(&bench, &[("tcp-congestion-control", other)]);
    let (new, _new_far) = dial(&bench, &far);
    assert_eq!(
        (shown(&bench, &new).congestion, shown(&bench, &old).congestion),
        (other.to_owned(), before)
    );
    // A listener that was open before accepts with the new one.
    let address = own.local_addr().unwrap();
    let _caller = bench.pair.far.run(|| TcpStream::connect(address).unwrap()).unwrap();
    let accepted = own.accept().unwrap().0;
    assert_eq!(shown(&bench, &accepted).congestion, other);
    held.restore().unwrap();
    assert_eq!(tune::find("tcp-congestion-control").unwrap().reaches(), Reaches::NewConnections);
}

#[test]
fn congestion_control_that_a_namespace_may_not_have_is_refused_with_the_remedy() {
    let bench = Bench::new();
    let knob = tune::find("tcp-congestion-control").unwrap();
    let set = |name: &str| knob.set(&bench.system, &Target::Netns, &value(name));
    let read = |file: &str| {
        let path = format!("/proc/sys/net/ipv4/tcp_{file}_congestion_control");
        bench.pair.near.run(|| std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let absent = set("nonesuch").unwrap_err();
    assert!(matches!(absent, KnobError::Refused { .. }), "{absent:?}");
    assert!(chain(&absent).contains("modprobe tcp_nonesuch"), "{}", chain(&absent));
    let (available, allowed) = (read("available"), read("allowed"));
    let restricted =
        available.split_whitespace().find(|name| !allowed.split_whitespace().any(|a| a == *name));
    let Some(restricted) = restricted else {
        return testkit::note("every congestion control is allowed in namespaces here");
    };
    let error = set(restricted).unwrap_err();
    let text = chain(&error);
    assert!(
        text.contains("tcp_allowed_congestion_control")
            && text.contains("route-congestion-control"),
        "{text}"
    );
    // The kernel agrees.
    let path = "/proc/sys/net/ipv4/tcp_congestion_control";
    let denied = bench.pair.near.run(|| std::fs::write(path, restricted).unwrap_err()).unwrap();
    assert_eq!(denied.raw_os_error(), Some(libc::EPERM));
    // A route may have it.
    let listener = far_listener(&bench);
    let held = self::set(&bench, &[("route-congestion-control", restricted)]);
    let (stream, _far) = dial(&bench, &listener);
    assert_eq!(shown(&bench, &stream).congestion, restricted);
    held.restore().unwrap();
}

#[test]
fn initial_windows_of_a_route_are_those_of_new_connections() {
    let bench = Bench::new();
    let listener = far_listener(&bench);
    let (old, old_far) = dial(&bench, &listener);
    let window_of = |far: &TcpStream| {
        let (local, remote) = (far.local_addr().unwrap(), far.peer_addr().unwrap());
        let all = bench.pair.far.run(|| net::tcp_sockets().unwrap()).unwrap();
        all.iter().find(|one| (one.local, one.remote) == (local, remote)).unwrap().info.snd_wnd
    };
    assert_eq!(shown(&bench, &old).info.snd_cwnd, 10);
    let offered = window_of(&old_far);
    let held = set(&bench, &[("route-initcwnd", "40"), ("route-initrwnd", "5")]);
    let (new, new_far) = dial(&bench, &listener);
    assert_eq!((shown(&bench, &new).info.snd_cwnd, shown(&bench, &old).info.snd_cwnd), (40, 10));
    let offered_now = window_of(&new_far);
    assert!(offered_now < offered / 2 && offered_now >= 4 * 1400, "{offered} -> {offered_now}");
    held.restore().unwrap();
}

#[test]
fn first_flight_has_the_segments_of_the_route() {
    if !testkit::is_installed("nft") {
        return;
    }
    let bench = Bench::new();
    let listener = far_listener(&bench);
    // Not bbr, which spreads them over a round trip.
    let _held = set(&bench, &[("tcp-congestion-control", "reno"), ("route-initcwnd", "40")]);
    let (near, _far) = dial(&bench, &listener);
    // Nothing comes back before all of it is on its way.
    filter_far(&bench, "meta l4proto tcp drop;");
    near.set_nonblocking(true).unwrap();
    while (&near).write(&[0; 1 << 16]).is_ok() {}
    assert_eq!(shown(&bench, &near).info.unacked, 40);
}

#[test]
fn unsent_bytes_are_bounded_by_the_low_water_mark_also_on_old_connections() {
    let bench = Bench::new();
    let listener = far_listener(&bench);
    let (mut stream, _far) = dial(&bench, &listener);
    stream.set_nonblocking(true).unwrap();
    // The far end reads nothing.
    let unsent = |stream: &mut TcpStream| {
        let full = testkit::until(TIMEOUT, || {
            let mut is_full = false;
            while !is_full {
                is_full = stream
                    .write(&[0; 4096])
                    .is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            }
            thread::sleep(Duration::from_millis(300));
            stream.write(&[0]).is_err()
        });
        assert!(full);
        shown(&bench, stream).info.notsent_bytes
    };
    let free = unsent(&mut stream);
    let held = set(&bench, &[("tcp-notsent-lowat", "16384")]);
    let (mut other, _other_far) = dial(&bench, &listener);
    other.set_nonblocking(true).unwrap();
    let bound = unsent(&mut other);
    assert!(free > 100_000 && bound < 70_000, "{free} without, {bound} with a mark of 16384");
    // The old one is not writable either, although its buffer may have room.
    assert!(stream.write(&[0]).is_err());
    held.restore().unwrap();
}

#[test]
fn congestion_window_shrinks_while_idle_unless_that_is_off() {
    let bench = Bench::new();
    let listener = far_listener(&bench);
    let _control = set(&bench, &[("tcp-congestion-control", "reno")]);
    for (slow_start, shrinks) in [("1", true), ("0", false)] {
        let _held = set(&bench, &[("tcp-slow-start-after-idle", slow_start)]);
        let (mut near, far) = dial(&bench, &listener);
        transfer(&mut near, &far, 8 << 20);
        let before = shown(&bench, &near).info;
        assert!(before.snd_cwnd > 20, "{} segments", before.snd_cwnd);
        thread::sleep(Duration::from_micros(u64::from(before.rto)) * 8);
        transfer(&mut near, &far, 1);
        let after = shown(&bench, &near).info.snd_cwnd;
        assert_eq!(
            after < before.snd_cwnd,
            shrinks,
            "{} -> {after} with {slow_start}",
            before.snd_cwnd
        );
    }
}

#[test]
fn small_writes_are_corked_while_the_queue_is_not_empty() {
    if !testkit::is_installed("tc") {
        return;
    }
    let bench = Bench::new();
    let listener = far_listener(&bench);
    // Its packets wait, and the socket knows.
    let words = "qdisc add dev wp-near root tbf rate 20mbit burst 4kb limit 1mb";
    run_near(&bench, "tc", &words.split(' ').collect::<Vec<_>>());
    let corked = |bench: &Bench| {
        let (mut near, far) = dial(bench, &listener);
        near.set_nodelay(true).unwrap();
        let before = counter(bench, "TCPAutoCorking");
        let mut reader = far.try_clone().unwrap();
        let reader = thread::spawn(move || reader.read_exact(&mut vec![0; 400 * 300]).unwrap());
        for _ in 0..400 {
            near.write_all(&[0; 300]).unwrap();
        }
        reader.join().unwrap();
        counter(bench, "TCPAutoCorking") - before
    };
    let with = corked(&bench);
    let _held = set(&bench, &[("tcp-autocorking", "0")]);
    assert_eq!((with > 0, corked(&bench)), (true, 0));
}

#[test]
fn fast_open_carries_data_in_the_syn_where_servers_may() {
    if !testkit::is_installed("python3") {
        return;
    }
    let bench = Bench::new();
    // The second connection has the cookie of the first.
    let script = "import socket\n\
        s = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.setsockopt(6, 23, 16)\ns.listen(16)\n\
        for _ in range(2):\n    c = socket.socket()\n    c.sendto(b'hello', 0x20000000, s.getsockname())\n    \
            a = s.accept()[0]\n    assert a.recv(5) == b'hello'\n    a.close()\n    c.close()\n";
    let passive = |bench: &Bench| {
        let before = counter(bench, "TCPFastOpenPassive");
        run_near(bench, "python3", &["-c", script]);
        counter(bench, "TCPFastOpenPassive") - before
    };
    let client_only = {
        let _held = set(&bench, &[("tcp-fastopen", "1")]);
        passive(&bench)
    };
    let _held = set(&bench, &[("tcp-fastopen", "3")]);
    assert_eq!((client_only, passive(&bench) > 0), (0, true));
}

#[test]
fn timestamps_and_selective_acknowledgements_are_negotiated_or_not() {
    /// Source: linux/tcp.h.
    const TIMESTAMPS: u8 = 1;
    const SACK: u8 = 2;
    let bench = Bench::new();
    let listener = far_listener(&bench);
    let options =
        |bench: &Bench, stream: &TcpStream| shown(bench, stream).info.options & (TIMESTAMPS | SACK);
    let (old, _old_far) = dial(&bench, &listener);
    assert_eq!(options(&bench, &old), TIMESTAMPS | SACK);
    for (knob, left) in [("tcp-timestamps", SACK), ("tcp-sack", TIMESTAMPS)] {
        let _held = set(&bench, &[(knob, "0")]);
        let (new, _new_far) = dial(&bench, &listener);
        assert_eq!(
            (options(&bench, &new), options(&bench, &old)),
            (left, TIMESTAMPS | SACK),
            "{knob}"
        );
    }
}

#[test]
fn listen_queue_is_cut_by_somaxconn_when_listen_is_called() {
    let bench = Bench::new();
    let old = near_listener(&bench);
    let backlog = |listener: &TcpListener| {
        let local = listener.local_addr().unwrap();
        let is_it = |one: &TcpSocket| one.state == TcpState::Listen && one.local == local;
        sockets(&bench).into_iter().find(is_it).unwrap().send_queue
    };
    let before = backlog(&old);
    assert!(before > 7);
    let plan = bench.plan(&[("somaxconn", "netns", "7")]);
    let applied = bench.apply(&plan).unwrap();
    let tune::Applied::Done { steps, .. } = applied else { panic!("{applied:?}") };
    let note = steps[0].note.clone().unwrap();
    let listed = format!("{} has {before}", old.local_addr().unwrap());
    assert!(note.contains("listen() again") && note.contains(&listed), "{note}");
    let new = near_listener(&bench);
    assert_eq!((backlog(&new), backlog(&old)), (7, before));
    bench.rollback();
    assert_eq!(tune::find("somaxconn").unwrap().reaches(), Reaches::NewListeners);
}

/// Half-open connections of a listener at the near end, after 60 handshakes that the far end does not complete.
fn half_open(bench: &Bench, listener: SocketAddr) -> usize {
    let script = format!(
        "import socket\nfor _ in range(60):\n    s = socket.socket()\n    s.setblocking(False)\n    \
         s.connect_ex(('{}', {}))\n    s.detach()\nimport time\ntime.sleep(0.5)",
        listener.ip(),
        listener.port()
    );
    let run = || Command::new("python3").args(["-c", &script]).status().unwrap();
    assert!(bench.pair.far.run(run).unwrap().success());
    sockets(bench).iter().filter(|one| one.state == TcpState::SynReceived).count()
}

#[test]
fn flood_of_syns_meets_the_backlog_or_cookies() {
    if !["python3", "nft"].iter().all(|program| testkit::is_installed(program)) {
        return;
    }
    let flooded = |settings: &[(&str, &str)]| {
        let bench = Bench::new();
        filter_far(&bench, "tcp flags & (syn | ack) == syn | ack drop;");
        let _held = set(&bench, settings);
        let listener = near_listener(&bench);
        let count = half_open(&bench, listener.local_addr().unwrap());
        (count, counter(&bench, "SyncookiesSent"), counter(&bench, "ListenDrops"))
    };
    let free = flooded(&[("tcp-syncookies", "0"), ("tcp-max-syn-backlog", "4096")]);
    assert!(free.0 >= 55 && free.1 == 0, "{free:?}");
    // A quarter of the backlog is for hosts that are known.
    let small = flooded(&[("tcp-syncookies", "0"), ("tcp-max-syn-backlog", "16")]);
    assert!((10..=14).contains(&small.0) && small.2 > 30, "{small:?}");
    let cookies = flooded(&[("tcp-syncookies", "2")]);
    assert!(cookies.0 == 0 && cookies.1 >= 55, "{cookies:?}");
}

/// Connections to a listener of the near end, closed by their own side at once; those that succeed.
fn connect_and_close(bench: &Bench, to: &TcpListener, count: usize) -> usize {
    let address = to.local_addr().unwrap();
    let mut made = 0;
    for _ in 0..count {
        match bench.pair.near.run(|| TcpStream::connect(address)).unwrap() {
            Ok(stream) => {
                drop(stream);
                drop(to.accept().unwrap());
                made += 1;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::AddrNotAvailable, "{error}"),
        }
    }
    made
}

fn time_wait_count(bench: &Bench) -> usize {
    sockets(bench).iter().filter(|one| one.state == TcpState::TimeWait).count()
}

#[test]
fn connections_succeed_again_with_reuse_or_a_wider_range() {
    let bench = Bench::new();
    let listener = bench.pair.near.run(|| TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
    let _narrow = set(&bench, &[("tcp-tw-reuse", "0"), ("ip-local-port-range", "40000 40003")]);
    assert_eq!(connect_and_close(&bench, &listener, 10), 4);
    assert!(testkit::until(TIMEOUT, || time_wait_count(&bench) == 4));
    assert_eq!(connect_and_close(&bench, &listener, 1), 0);
    {
        let _wide = set(&bench, &[("ip-local-port-range", "40000 40007")]);
        assert_eq!(connect_and_close(&bench, &listener, 10), 4);
    }
    assert_eq!(connect_and_close(&bench, &listener, 1), 0);
    let _reuse = set(&bench, &[("tcp-tw-reuse", "1")]);
    // A port is used again after a second.
    assert!(testkit::until(TIMEOUT, || connect_and_close(&bench, &listener, 1) == 1));
}

#[test]
fn sockets_in_time_wait_above_the_limit_end_at_once() {
    let bench = Bench::new();
    let listener = bench.pair.near.run(|| TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
    let _held = set(&bench, &[("tcp-max-tw-buckets", "3")]);
    assert_eq!(connect_and_close(&bench, &listener, 10), 10);
    assert!(testkit::until(TIMEOUT, || counter(&bench, "TCPTimeWaitOverflow") > 0));
    assert!(time_wait_count(&bench) <= 3);
}

#[test]
fn keep_alives_are_sent_and_counted_by_the_settings() {
    let bench = Bench::new();
    let listener = far_listener(&bench);
    let keep_alive = |stream: &TcpStream| {
        sys::socket::set_int(stream.as_fd(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1).unwrap();
    };
    let (old, _old_far) = dial(&bench, &listener);
    keep_alive(&old);
    let _held = set(
        &bench,
        &[("tcp-keepalive-time", "1"), ("tcp-keepalive-intvl", "1"), ("tcp-keepalive-probes", "2")],
    );
    let (new, _new_far) = dial(&bench, &listener);
    keep_alive(&new);
    let (late, soon) = (shown(&bench, &old), shown(&bench, &new));
    assert_eq!((late.timer, soon.timer), (TcpTimer::KeepAlive, TcpTimer::KeepAlive));
    // A timer that runs keeps its end.
    assert!(
        late.timer_ms > 3_600_000 && soon.timer_ms <= 1_000,
        "{} {}",
        late.timer_ms,
        soon.timer_ms
    );
    let before = counter(&bench, "TCPKeepAlive");
    assert!(testkit::until(TIMEOUT, || counter(&bench, "TCPKeepAlive") > before));
    // Without an answer, it ends after two of them.
    bench.pair.far.run(|| net::set_up(bench.pair.far.ifindex, false).unwrap()).unwrap();
    new.set_read_timeout(Some(TIMEOUT)).unwrap();
    let error = (&new).read(&mut [0]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::HostUnreachable), "{error:?}");
}

#[test]
fn pacing_follows_the_ratio() {
    let bench = Bench::new();
    let listener = far_listener(&bench);
    let _control = set(&bench, &[("tcp-congestion-control", "reno")]);
    // Rate over what window and round trip give.
    let ratio = |percent: &str| {
        let _held =
            set(&bench, &[("tcp-pacing-ss-ratio", percent), ("tcp-pacing-ca-ratio", percent)]);
        let (mut near, far) = dial(&bench, &listener);
        for _ in 0..50 {
            transfer(&mut near, &far, 20_000);
        }
        let info = shown(&bench, &near).info;
        let usual =
            f64::from(info.snd_mss) * f64::from(info.snd_cwnd) / f64::from(info.rtt.max(1)) * 1e6;
        info.pacing_rate as f64 / usual
    };
    let (low, high) = (ratio("100"), ratio("1000"));
    assert!(high > 3.0 * low, "{low} {high}");
}

#[test]
fn a_connection_leaves_its_metrics_or_not() {
    if !testkit::is_installed("ip") {
        return;
    }
    let left = |no_save: &str| {
        let bench = Bench::new();
        let listener = far_listener(&bench);
        let _held = set(&bench, &[("tcp-no-metrics-save", no_save)]);
        let (mut near, far) = dial(&bench, &listener);
        transfer(&mut near, &far, 1 << 20);
        drop((near, far));
        let listed = || run_near(&bench, "ip", &["tcp_metrics", "show"]);
        testkit::until(TIMEOUT, || time_wait_count(&bench) > 0);
        listed().contains("rtt")
    };
    assert_eq!((left("0"), left("1")), (true, false));
}

#[test]
fn settings_of_the_machine_are_not_those_of_a_namespace() {
    let bench = Bench::new();
    for knob in ["tcp-max-orphans", "busy-poll", "busy-read"] {
        let error = tune::find(knob).unwrap().probe(&bench.system, &Target::Netns).unwrap_err();
        assert!(matches!(error, KnobError::HostOnly { .. }), "{knob}: {error:?}");
    }
}
