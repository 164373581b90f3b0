//! `wirepath peer` among ends that fail, lie, stall or vanish: it outlives them all and serves the
//! next one.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use common::group::{Group, Without};
use common::{
    Data, FAR_IP, LONG, NEAR_IP, Running, Spaces, all_text, arrived_of_50, fail, json, run,
    succeed, udp_in, until, wirepath,
};
use serde_json::{Value, json};
use sys::netns::Netns;

/// How long a near end may take to notice that its peer has gone.
const SOON: Duration = Duration::from_secs(5);

/// A peer on a port of loopback that was free a moment ago.
struct Local {
    peer: Running,
    at: SocketAddr,
}

impl Local {
    fn new(args: &[&str]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listen = free.to_string();
        // Tests share the host's loopback, and each takes ports that are free.
        let all = [&["peer", "--listen", &listen, "--ports", "1024-65535"], args].concat();
        let mut peer = Running::start(wirepath(&all));
        peer.await_stderr("listening on ");
        Local { peer, at: free }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// A near end that counts: the peer still serves.
    fn assert_serves(&mut self) {
        let port = self.at.port().to_string();
        let mut last = String::new();
        let served = until(LONG, || {
            let output = run(ping(&port, "20", None));
            last = all_text(&output);
            // The end before this one may not have been noticed as gone yet.
            assert!(output.status.success() || last.contains("busy"), "{last}");
            output.status.success()
        });
        assert!(served && last.contains("received 20, lost 0"), "{last}");
        assert!(!self.peer.has_ended());
    }
}

/// A ping to a peer on loopback, from and to unused UDP ports.
fn ping(peer_port: &str, count: &str, secret: Option<&str>) -> Command {
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let [to, from] = sockets.map(|s| s.local_addr().unwrap().port().to_string());
    let mut args = vec!["probe", "ping", "127.0.0.1", "-c", count, "--peer-port", peer_port];
    args.extend(["--port", &to, "--source-port", &from]);
    args.extend(secret.map(|file| ["--secret-file", file]).iter().flatten());
    wirepath(&args)
}

/// A conversation as a near end of our own has it.
struct Conversation(BufReader<TcpStream>);

impl Conversation {
    fn open(local: &Local) -> Self {
        let mut it = Conversation(BufReader::new(local.connect()));
        let hello = it.hear();
        assert_eq!(hello["wirepath_peer"], 4, "{hello}");
        it.say(&json!({ "wirepath_peer": 4, "handshake": null }));
        assert!(it.hear().get("welcome").is_some());
        it
    }

    fn say(&mut self, message: &Value) {
        self.0.get_mut().write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e} in {line:?}"))
    }
}

/// A run of the peer's, sending `rate` datagrams a second to `near_port` for ever.
fn sending(near_port: u16, port: u16, rate: u64) -> Value {
    let engine = json!({
        "kind": "udp", "wait": "block", "batch": 1, "gso": false, "xdp_mode": "skb",
        "copying": "copy", "busy_poll": false, "need_wakeup": false, "frames": 4096,
        "frame_bytes": 2048, "multi_buffer": false, "all_queues": false, "receive_buffer_bytes": null, "stamps": "off",
    });
    json!({ "run": {
        "task": {
            "role": "send", "engine": engine, "pace": { "rate": rate }, "payload_bytes": 64,
            "flows": 1, "first_flow": 0, "session": 7, "count": null, "duration": null,
            "one_clock": false,
        },
        "near_port": near_port,
        "port": port,
    }})
}

fn secret(data: &Data, name: &str, text: &str) -> String {
    let file = data.file(name);
    common::write_secret(&file, text);
    file
}

/// A UDP port of loopback that was free a moment ago.
fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn it_listens_on_loopback_unless_told() {
    let help = succeed(wirepath(&["peer", "--help"]));
    assert!(help.contains("[default: 127.0.0.1:7117]"), "{help}");
}

#[test]
fn only_the_right_secret_gets_in() {
    let data = Data::new();
    let right = secret(&data, "right", "correct horse battery\n");
    let wrong = secret(&data, "wrong", "incorrect horse battery\n");
    let short = secret(&data, "short", "horse\n");
    let local = Local::new(&["--secret-file", &right]);
    let port = local.at.port().to_string();
    let ping_with = |secret| ping(&port, "10", secret);
    assert!(fail(ping_with(Some(&wrong)), 1).contains("the shared secret is wrong"));
    assert!(fail(ping_with(None), 1).contains("give it with --secret-file"));
    let said = fail(ping_with(Some(&short)), 2);
    assert!(said.contains("shorter than 16 bytes") && said.contains("wirepath secret"), "{said}");
    assert!(fail(ping_with(Some("/nonexistent")), 2).contains("/nonexistent"));
    assert!(succeed(ping_with(Some(&right))).contains("received 10, lost 0"));
    // The other way round: a peer that cannot prove it gets nothing from us.
    let without = Local::new(&[]);
    let other = without.at.port().to_string();
    let said = fail(ping(&other, "10", Some(&right)), 1);
    assert!(said.contains("could not prove that it knows the secret"), "{said}");
    // A peer does not start with a secret that is none.
    assert!(fail(wirepath(&["peer", "--secret-file", &short]), 2).contains("shorter than 16"));
    // Nor with one that other users may read.
    for mode in [0o640, 0o604] {
        fs::set_permissions(&right, fs::Permissions::from_mode(mode)).unwrap();
        let said = fail(wirepath(&["peer", "--secret-file", &right]), 2);
        assert!(said.contains("chmod 600") && said.contains(&format!("{mode:03o}")), "{said}");
    }
}

#[test]
fn secrets_are_made_random_and_readable_by_their_owner_alone() {
    let data = Data::new();
    let file = data.file("key");
    succeed(wirepath(&["secret", "--out", &file]));
    let made = fs::read_to_string(&file).unwrap();
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!((made.len(), mode & 0o777), (65, 0o600));
    let printed = succeed(wirepath(&["secret"]));
    assert!(printed.len() == 65 && printed != made, "{printed}");
    // The other host may have it already.
    let said = fail(wirepath(&["secret", "--out", &file]), 1);
    assert!(said.contains("remove it first"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), made);
    let local = Local::new(&["--secret-file", &file]);
    let port = local.at.port().to_string();
    assert!(succeed(ping(&port, "10", Some(&file))).contains("received 10, lost 0"));
}

/// Copies what two streams send into each other until one ends; returns the bytes of `from`.
fn relay(mut from: TcpStream, mut to: TcpStream, flip_at: Option<usize>) -> Vec<u8> {
    let mut all = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut piece) {
        if let Some(at) = flip_at.filter(|at| (all.len()..all.len() + len).contains(at)) {
            piece[at - all.len()] ^= 1;
        }
        all.extend_from_slice(&piece[..len]);
        if to.write_all(&piece[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    all
}

#[test]
fn between_ends_with_a_secret_nothing_can_be_read_changed_or_used_again() {
    let data = Data::new();
    let file = secret(&data, "right", "correct horse battery\n");
    let local = Local::new(&["--secret-file", &file]);
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = between.local_addr().unwrap().port().to_string();
    let through = |flip_at| {
        let near = std::thread::spawn({
            let command = ping(&port, "10", Some(&file));
            move || run(command)
        });
        let (near_side, _) = between.accept().unwrap();
        let far_side = local.connect();
        far_side.set_read_timeout(None).unwrap();
        let back = std::thread::spawn({
            let (from, to) = (far_side.try_clone().unwrap(), near_side.try_clone().unwrap());
            move || relay(from, to, None)
        });
        let forth = relay(near_side, far_side, flip_at);
        (near.join().unwrap(), forth, back.join().unwrap())
    };
    let (output, forth, back) = through(None);
    assert!(all_text(&output).contains("received 10, lost 0"), "{}", all_text(&output));
    let handshake = forth.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for (bytes, words) in
        [(&forth[handshake..], ["run", "stop", "task"]), (&back[..], ["ready", "report", "kernel"])]
    {
        let text = String::from_utf8_lossy(bytes);
        assert!(bytes.len() > 100, "{text}");
        words.iter().for_each(|word| assert!(!text.contains(word), "{word} in {text}"));
    }
    // A request that was changed on its way starts no run.
    let (output, ..) = through(Some(handshake + 40));
    assert_eq!(output.status.code(), Some(1), "{}", all_text(&output));
    assert!(until(LONG, || local.peer.stderr().contains("not made with the shared secret")));
    assert_eq!(local.peer.stderr().matches("payloads").count(), 1, "{}", local.peer.stderr());
    // A recording opens no other connection.
    let mut again = local.connect();
    again.write_all(&forth).unwrap();
    let mut said = String::new();
    let _ = again.read_to_string(&mut said);
    assert!(said.contains("the shared secret is wrong"), "{said}");
}

#[test]
fn ends_of_different_versions_say_so_at_both_ends() {
    // A near end of the next version.
    let local = Local::new(&[]);
    let mut it = Conversation(BufReader::new(local.connect()));
    it.hear();
    it.say(&json!({ "wirepath_peer": 5, "handshake": null }));
    let told = it.hear();
    let why = told["error"]["why"].as_str().unwrap();
    assert!(why.contains("the peer uses protocol version 4, the near end 5"), "{told}");
    let heard = || local.peer.stderr().contains("the other end uses protocol version 5");
    assert!(until(LONG, heard), "{}", local.peer.stderr());
    // One of the version before hangs up by itself.
    let mut it = Conversation(BufReader::new(local.connect()));
    let hello = it.hear();
    // It reads these fields.
    assert!(hello["challenge"].is_string() && hello["secret"].is_boolean(), "{hello}");
    drop(it);
    let heard = || local.peer.stderr().contains("does it run another wirepath version?");
    assert!(until(LONG, heard), "{}", local.peer.stderr());
    // A far end of the version before, and one of the next.
    for version in [3, 5] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let near = std::thread::spawn(move || fail(ping(&port, "1", None), 1));
        let (stream, _) = listener.accept().unwrap();
        let mut far = Conversation(BufReader::new(stream));
        far.say(&json!({
            "wirepath_peer": version, "version": "x", "challenge": "00", "secret": false,
        }));
        assert_eq!(far.hear()["wirepath_peer"], 4, "it tells its own version");
        let said = near.join().unwrap();
        assert!(said.contains(&format!("uses protocol version {version}")), "{said}");
    }
}

#[test]
fn runs_use_ports_of_the_operator_s_range_alone() {
    let spaces = Spaces::new();
    let peer = spaces.peer(&[]);
    assert!(until(LONG, || peer.stderr().contains("runs use UDP ports 9000-9999")));
    for (port, is_refused) in [("53", true), ("1023", true), ("10000", true), ("9999", false)] {
        let args = ["probe", "ping", FAR_IP, "-c", "5", "--port", port];
        let output = run(spaces.near(&args));
        let said = all_text(&output);
        match is_refused {
            true => assert!(said.contains("outside of the peer's range, 9000-9999"), "{said}"),
            false => assert!(said.contains("received 5, lost 0"), "{said}"),
        }
    }
    for bad in ["53", "80-9999", "9999-9000"] {
        let said = fail(wirepath(&["peer", "--ports", bad]), 2);
        assert!(said.contains("from 1024 to 65535"), "{said}");
    }
}

#[test]
fn a_second_near_end_is_told_to_come_later() {
    let mut local = Local::new(&[]);
    let first = Conversation::open(&local);
    let port = local.at.port().to_string();
    let said = fail(ping(&port, "1", None), 1);
    assert!(said.contains("busy"), "{said}");
    drop(first);
    local.assert_serves();
}

#[test]
fn it_outlives_nonsense() {
    let mut local = Local::new(&[]);
    for nonsense in [&b"\n"[..], b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b"\xff\xfe\0\0\n", b"{\"a\":"]
    {
        let mut stream = local.connect();
        stream.write_all(nonsense).unwrap();
        drop(stream);
        local.assert_serves();
    }
    // Nonsense once the doors are open.
    for nonsense in ["null", "{\"run\":{}}", "{\"stop\":1}", "[[[[", "\"stop\" \"stop\""] {
        let mut it = Conversation::open(&local);
        it.0.get_mut().write_all(format!("{nonsense}\n").as_bytes()).unwrap();
        let mut rest = String::new();
        // It may answer or hang up; it must not wait for more.
        let _ = it.0.read_to_string(&mut rest);
        local.assert_serves();
    }
    let mut it = Conversation::open(&local);
    it.say(&json!("stop"));
    assert!(it.hear()["error"]["why"].as_str().unwrap().contains("no run is in progress"));
    // Sizes that no engine has.
    let mut task = sending(9001, 9000, 10);
    for (field, value) in [("payload_bytes", json!(1)), ("flows", json!(100_000))] {
        let right = task["run"]["task"][field].take();
        task["run"]["task"][field] = value;
        it.say(&task);
        assert!(it.hear()["error"]["why"].as_str().unwrap().contains("out of range"));
        task["run"]["task"][field] = right;
    }
    // The system-call filter ends a process that sets io_uring up.
    task["run"]["task"]["role"] = json!("echo");
    task["run"]["task"]["engine"]["receiving"] = json!("io-uring");
    it.say(&task);
    assert!(it.hear()["error"]["why"].as_str().unwrap().contains("does not receive by io_uring"));
    drop(it);
    local.assert_serves();
}

#[test]
fn a_line_without_end_is_cut_off() {
    let mut local = Local::new(&[]);
    for welcome in [false, true] {
        let mut stream =
            if welcome { Conversation::open(&local).0.into_inner() } else { local.connect() };
        stream.set_write_timeout(Some(LONG)).unwrap();
        let piece = vec![b'x'; 1 << 16];
        // It hangs up before all of it is written, or reads no further.
        let written = (0..32).take_while(|_| stream.write_all(&piece).is_ok()).count();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(written > 0);
        drop(stream);
        local.assert_serves();
    }
}

#[test]
fn a_line_that_comes_slowly_is_read_whole() {
    let local = Local::new(&[]);
    let mut it = Conversation::open(&local);
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    let line = format!("{}\n", sending(near.local_addr().unwrap().port(), free_port(), 1000));
    let (head, tail) = line.split_at(line.len() / 2);
    it.0.get_mut().write_all(head.as_bytes()).unwrap();
    // Longer than it looks at a time.
    std::thread::sleep(Duration::from_millis(300));
    it.0.get_mut().write_all(tail.as_bytes()).unwrap();
    assert!(it.hear().get("ready").is_some());
}

#[test]
fn who_comes_when_no_thread_is_left_is_turned_away_and_served_later() {
    let threads = Without::Threads;
    if !Group::is_there(threads) {
        return;
    }
    let mut local = Local::new(&[]);
    let group = Group::around(&local.peer, threads);
    let port = local.at.port().to_string();
    fail(ping(&port, "20", None), 1);
    local.peer.await_stderr("no thread could be started");
    group.relieve(threads);
    local.assert_serves();
    drop(local);
}

#[test]
fn a_connection_that_says_nothing_does_not_block_it_for_long() {
    let mut local = Local::new(&[]);
    let mute = local.connect();
    local.assert_serves();
    drop(mute);
}

#[test]
fn a_near_end_that_asks_for_nothing_is_disconnected_and_the_next_is_served() {
    let mut local = Local::new(&[]);
    let mut silent = Conversation::open(&local);
    let port = local.at.port().to_string();
    assert!(fail(ping(&port, "1", None), 1).contains("busy"));
    local.assert_serves();
    let said = silent.hear();
    let why = said["error"]["why"].as_str().unwrap();
    assert!(why.contains("no run was requested for 20 s"), "{said}");
    assert_eq!(silent.0.read(&mut [0]).unwrap(), 0, "the connection is closed");
    // Signs of life are no requests.
    let mut lively = Conversation::open(&local);
    let told = local.peer.stderr();
    let served = until(LONG, || {
        let _ = lively.0.get_mut().write_all(b"\"alive\"\n");
        std::thread::sleep(Duration::from_millis(200));
        local.peer.stderr()[told.len()..].contains("no run was requested")
    });
    assert!(served, "{}", local.peer.stderr());
}

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
const SPINNING: [[&str; 8]; 2] = [
    ["probe", "ping", FAR_IP, "-d", "300s", "--engine", "xdp", "--spin"],
    ["probe", "send", FAR_IP, "-d", "300s", "--engine", "xdp", "--spin"],
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
        let near = match is_killed {
            true => Err(near.end_by("KILL", LONG)),
            false => Ok(near),
        };
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
        assert_freed(&spaces, &mut peer, told, said, || near.signal("KILL"));
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
    for engine in [&["--engine", "xdp", "--native", "--spin"][..], &[]] {
        for role in ["ping", "send"] {
            let mut args = vec!["probe", role, FAR_IP, "-d", "300s"];
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
    let args = ["probe", "ping", FAR_IP, "-d", "300s", "--engine", "xdp", "--native"];
    let mut run = Running::start(spaces.near(&args));
    run.await_stderr("peer at ");
    assert!(spaces.far_link().contains("xdp"));
    // Attaching the program resets the link: the run begins when that is over.
    let counters = sys::sysfs::Sysfs::of(&far).expect("a view of the far end");
    let received = || counters.read("class/net/vb/statistics/rx_packets").expect("a count");
    let begun = until(LONG, || received().trim().parse::<u64>().is_ok_and(|n| n >= 100));
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
        &["probe", "ping", FAR_IP, "-d", "300s"][..],
        &["probe", "ping", FAR_IP, "-d", "300s", "--rate", "1000", "--engine", "xdp"],
        &["probe", "send", FAR_IP, "-d", "300s", "--rate", "1"],
        &["probe", "send", FAR_IP, "-d", "300s", "--engine", "packet"],
        &["probe", "receive", "--from", FAR_IP, "-d", "300s"],
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

/// Wake-up latency in microseconds that all requests together allow; `None` without the device.
fn latency_in_force_us() -> Option<i32> {
    let mut bytes = [0xff; 4];
    fs::File::open("/dev/cpu_dma_latency").ok()?.read_exact(&mut bytes).ok()?;
    Some(i32::from_ne_bytes(bytes))
}

/// CPUs of a peer's thread that runs a near end's task.
fn cpus_of_run(peer: u32) -> Option<String> {
    let tasks = fs::read_dir(format!("/proc/{peer}/task")).ok()?;
    let status = tasks.flatten().find_map(|task| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        status.starts_with("Name:\trun\n").then_some(status)
    })?;
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(line.trim().to_owned())
}

#[test]
fn settings_of_a_run_act_on_the_peers_host_and_end_with_it() {
    let local = Local::new(&[]);
    let mut it = Conversation::open(&local);
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut ask = sending(near.local_addr().unwrap().port(), port, 10);
    let cpus = sys::affinity::allowed_cpus().unwrap();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    for (cpus, expected) in [(json!([last]), last), (json!([]), first)] {
        ask["run"]["settings"] = json!({ "is_pinned": true, "cpus": cpus, "stays_awake": true });
        it.say(&ask);
        assert!(it.hear().get("ready").is_some());
        assert_eq!(cpus_of_run(local.peer.pid()), Some(expected.to_string()));
        let awake = latency_in_force_us();
        it.say(&json!("stop"));
        let report = it.hear();
        let not_effective = &report["report"]["report"]["not_effective"];
        match awake {
            // Another test may hold it, too, for a while.
            Some(latency_us) => {
                assert_eq!((latency_us, not_effective), (0, &json!([])), "{report}");
                assert!(until(LONG, || latency_in_force_us() != Some(0)), "{report}");
            }
            None => assert_eq!(not_effective[0][0], "no-idle-states", "{report}"),
        }
        let time = &report["report"]["host_time"];
        assert!(
            time["cores_ns"].as_u64() > Some(0) && time["own_ns"].as_u64() > Some(0),
            "{report}"
        );
    }
    ask["run"]["settings"] = json!({ "is_pinned": false, "cpus": [4000], "stays_awake": false });
    it.say(&ask);
    let why = it.hear()["error"]["why"].take();
    assert!(why.as_str().unwrap().contains("CPU 4000 is none of those"), "{why}");
}

/// A peer whose secret and end come by standard input; its address.
fn owned(listen: &str) -> (std::process::Child, SocketAddr) {
    let mut command =
        wirepath(&["peer", "--secret-stdin", "--listen", listen, "--ports", "1024-65535"]);
    command.stdin(std::process::Stdio::piped());
    let mut peer = command.spawn().unwrap();
    let mut line = String::new();
    peer.stdin.as_mut().unwrap().write_all(b"correct horse battery\n").unwrap();
    BufReader::new(peer.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let at = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}"));
    (peer, at.parse().unwrap())
}

#[test]
fn owned_peer_wants_its_secret_and_ends_with_standard_input() {
    let data = Data::new();
    let right = secret(&data, "right", "correct horse battery\n");
    let (mut peer, at) = owned("127.0.0.1:0");
    let port = at.port().to_string();
    assert!(fail(ping(&port, "1", None), 1).contains("a shared secret is required"));
    assert!(succeed(ping(&port, "10", Some(&right))).contains("received 10, lost 0"));
    // In the middle of a run, too.
    let args = ["probe", "ping", "127.0.0.1", "-d", "300s", "--peer-port", &port, "--port", "9821"];
    let near = Running::start(wirepath(
        &[&args[..], &["--source-port", "19322", "--secret-file", &right]].concat(),
    ));
    std::thread::sleep(Duration::from_millis(500));
    drop(peer.stdin.take());
    assert!(until(LONG, || peer.try_wait().unwrap().is_some()), "it outlives its owner");
    assert_eq!(near.finish(LONG).expect("it ends").status.code(), Some(1));
    let mut short = wirepath(&["peer", "--secret-stdin"]);
    short.stdin(std::process::Stdio::null());
    assert!(fail(short, 2).contains("standard input is shorter than 16"));
}
