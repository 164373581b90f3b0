//! `wirepath peer` among ends that fail, lie, stall or vanish: it outlives them all and serves the
//! next one.

mod breaks;
#[path = "../common/mod.rs"]
mod common;
mod connections;
mod secrets;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use common::group::{Group, Without};
use common::strangers::Strangers;
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
        assert_eq!(hello["wirepath_peer"], 5, "{hello}");
        it.say(&json!({ "wirepath_peer": 5, "handshake": null }));
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
fn ends_of_different_versions_say_so_at_both_ends() {
    // A near end of the next version.
    let local = Local::new(&[]);
    let mut it = Conversation(BufReader::new(local.connect()));
    it.hear();
    it.say(&json!({ "wirepath_peer": 6, "handshake": null }));
    let told = it.hear();
    let why = told["error"]["why"].as_str().unwrap();
    assert!(why.contains("the peer uses protocol version 5, the near end 6"), "{told}");
    assert!(
        until(LONG, || local.peer.stderr().contains("the other end uses protocol version 6")),
        "{}",
        local.peer.stderr()
    );
    // One of the version before hangs up by itself.
    let mut it = Conversation(BufReader::new(local.connect()));
    let hello = it.hear();
    // It reads these fields.
    assert!(hello["challenge"].is_string() && hello["secret"].is_boolean(), "{hello}");
    drop(it);
    assert!(
        until(LONG, || local.peer.stderr().contains("does it run another wirepath version?")),
        "{}",
        local.peer.stderr()
    );
    // A far end of the version before, and one of the next.
    for version in [4, 6] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let near = std::thread::spawn(move || fail(ping(&port, "1", None), 1));
        let (stream, _) = listener.accept().unwrap();
        let mut far = Conversation(BufReader::new(stream));
        far.say(&json!({
            "wirepath_peer": version, "version": "x", "challenge": "00", "secret": false,
        }));
        assert_eq!(far.hear()["wirepath_peer"], 5, "it tells its own version");
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
        let expected = if is_refused {
            "outside of the peer's range, 9000-9999"
        } else {
            "received 5, lost 0"
        };
        assert!(said.contains(expected), "{said}");
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
    let args =
        ["probe", "ping", "127.0.0.1", "--time", "300s", "--peer-port", &port, "--port", "9821"];
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
