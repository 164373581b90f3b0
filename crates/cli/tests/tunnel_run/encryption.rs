//! An encrypted tunnel between two forwarders: one behind AF_XDP, one with a TAP device.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use host::net::link_named;
use sys::packet::{PacketRx, PacketTx};

use super::*;

/// Start of every payload that must not be seen.
const PAYLOAD: &[u8] = b"\x00\x00\x00\x07\x07\x07\x07\x07\x07\x07\x07\x07";
const REPLAYED: usize = 20;
/// Ethernet, IP without options, UDP.
const ESP_AT: usize = 42;

struct Ends {
    row: Row,
    data: Data,
}

impl Ends {
    fn new() -> Ends {
        let row = Row::new(1500);
        succeed(ip(&["-n", &row.names[2], "link", "delete", "vx0"]));
        Ends { row, data: Data::new() }
    }

    fn near_config(&self, more: &str) -> String {
        // The headers do not fit: the segments of TCP have to be limited.
        let config = config("auto", "pa", &format!("{ENCRYPTED}{more}"));
        config.replace("mtu = 1600", "mtu = 1500")
    }

    /// Both forwarders with their keys.
    fn start(&self) -> (Running, Running) {
        (self.start_near(), self.start_far())
    }

    fn start_far(&self) -> Running {
        let file = self.data.file("far.toml");
        let config = config("tap", "lan0", ENCRYPTED).replace("near.keys", "far.keys");
        let config = config.replace("\"ua\"", "\"tb\"").replace("mtu = 1600", "mtu = 1500");
        let config = config.replace("10.99.0.1", "@").replace("10.99.0.2", "10.99.0.1");
        fs::write(&file, config.replace('@', "10.99.0.2")).expect("a file");
        let space = &self.row.names[2];
        let program = [env!("CARGO_BIN_EXE_wirepath"), "tunnel", "run", "--json", "-c", &file];
        let mut far = Running::start(common::enter(space, &program));
        far.await_stderr(", encrypted");
        // The other host remembers it.
        let mac = ["-n", space, "link", "set", "lan0", "address", "02:00:00:00:00:99"];
        succeed(ip(&mac));
        let address = format!("{BEHIND_IP}/24");
        succeed(ip(&["-n", space, "address", "add", &address, "dev", "lan0"]));
        far
    }

    fn start_near(&self) -> Running {
        let file = self.data.file("near.toml");
        fs::write(&file, self.near_config("")).expect("a file");
        let mut near = self.row.start(&["--json"], &file);
        near.await_stderr(", encrypted");
        near
    }

    fn plain(&self) -> Netns {
        self.row.space(&self.row.names[0])
    }

    fn behind(&self) -> Netns {
        self.row.space(&self.row.names[2])
    }

    /// Sends frames from the near end's interface.
    fn send(&self, frames: &[Vec<u8>]) {
        self.row
            .space(&self.row.names[1])
            .run(|| {
                let index = link_named("ua").expect("it was made").index;
                let mut tx = PacketTx::open(index, 2048, 64).expect("CAP_NET_RAW");
                for frame in frames {
                    tx.post(1, frame.len(), |slot| slot.copy_from_slice(frame));
                }
                tx.kick().expect("the link is up");
            })
            .expect("the namespace is there");
    }
}

const KEPT_ALIVE: &str = "keepalive = { interval_ms = 100, lost = 10 }\n";
const ENCRYPTED: &str = "encryption = { keys = \"near.keys\" }\n";

/// Frames that reach the far end while `work` runs; those that it sends pass no tap.
fn captured(ends: &Ends, work: impl FnOnce()) -> Vec<Vec<u8>> {
    let open = || {
        let index = link_named("tb").expect("it was made").index;
        PacketRx::open_all(index, 32 << 20).expect("CAP_NET_RAW")
    };
    let mut rx = ends.behind().run(open).expect("the namespace is there");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let taking = scope.spawn(|| {
            let mut frames = Vec::new();
            loop {
                let is_last = stop.load(Ordering::Relaxed);
                let taken = rx.take(256, |bytes, _, _| frames.push(bytes.to_vec()));
                if taken == 0 {
                    if is_last {
                        return frames;
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        work();
        stop.store(true, Ordering::Relaxed);
        taking.join().expect("it ends")
    })
}

/// True for an ESP packet to port 4500.
fn is_esp(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[8, 0]) && frame.get(34..38) == Some(&[0x11, 0x94, 0x11, 0x94])
}

fn is_between(frame: &[u8], from: u8, to: u8) -> bool {
    frame.get(26..34) == Some(&[10, 99, 0, from, 10, 99, 0, to])
}

/// Lower half of the sequence number of an ESP packet.
fn number(frame: &[u8]) -> u64 {
    let bytes = frame[ESP_AT + 4..].first_chunk().expect("a whole header");
    u32::from_be_bytes(*bytes).into()
}

/// Highest number received by a state file.
fn received(state: &str) -> u64 {
    let text = fs::read_to_string(state).unwrap_or_default();
    let of = |line: &str| line.split_whitespace().nth(5)?.parse::<u64>().ok();
    text.lines().filter_map(of).max().unwrap_or(0)
}

fn json_of(running: &Running) -> Value {
    let text = running.stdout();
    text.lines().rev().find_map(|line| serde_json::from_str(line).ok()).unwrap_or_default()
}

fn await_count(running: &Running, what: &str, of: impl Fn(&Value) -> &Value, least: u64) {
    let reached = || of(&json_of(running)).as_u64() >= Some(least);
    assert!(until(LONG, reached), "{what}: {} {}", json_of(running), running.stderr());
}

/// Waits for a state by keepalives.
fn await_state(running: &Running, state: &str) {
    let reached = || json_of(running)["keepalive"]["b"]["state"] == state;
    assert!(until(LONG, reached), "{state}: {} {}", json_of(running), running.stderr());
}

/// Ends a forwarder and checks its counters.
fn ended(running: Running, name: &str, replayed: usize) {
    let output = running.end_by("TERM", LONG);
    assert!(output.status.success(), "{name}: {}", common::all_text(&output));
    let last = last_of(&output.stdout);
    let counts = &last["encryption"]["b"];
    assert_eq!(counts["bad_tag"], 0, "{name}: {last}");
    assert!(counts["encrypted"].as_u64() >= Some(50), "{name}: {last}");
    assert!(counts["decrypted"].as_u64() >= Some(50), "{name}: {last}");
    assert!(counts["numbers_left"].as_u64() > Some(1 << 40), "{name}: {last}");
    assert_eq!(counts["replayed"], replayed, "{name}: {last}");
}

#[test]
fn encrypted_tunnel_hides_all_goes_on_after_a_kill_and_refuses_what_it_had_before() {
    if !is_installed("ip") {
        return;
    }
    let ends = Ends::new();
    let keys = [ends.data.file("near.keys"), ends.data.file("far.keys")];
    succeed(wirepath(&["tunnel", "keys", &keys[0], &keys[1]]));
    for file in &keys {
        let mode = fs::metadata(file).expect("it was made").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let said = fail(wirepath(&["tunnel", "keys", &keys[0]]), 1);
    assert!(said.contains("cannot overwrite") && !Path::new(&format!("{}.peer", keys[0])).exists());
    let (mut near, far) = ends.start();
    near.await_stderr("engine xdp: a tunnel is encrypted");
    let (plain, behind) = (ends.plain(), ends.behind());
    let frames = captured(&ends, || {
        udp_echo(&plain, (&behind, BEHIND_IP), 50, 64);
        udp_echo(&plain, (&behind, BEHIND_IP), 8, 700);
        tcp_stream(&plain, (&behind, BEHIND_IP), 400_000);
        // Other tunnels come and go while frames pass; this one stays encrypted.
        let more = "[[tunnel]]\nname = \"c\"\ncarrier = \"vxlan\"\nvni = 7\n\
                    remote = \"10.99.0.2\"\nvlan = 9\n";
        let file = ends.data.file("near.toml");
        thread::scope(|scope| {
            let stream = scope.spawn(|| tcp_stream(&behind, (&plain, PLAIN_IP), 400_000));
            let mut count = 0;
            while !stream.is_finished() || count < 2 {
                let text = ends.near_config(if count % 2 == 0 { more } else { "" });
                fs::write(&file, text).expect("a file");
                near.signal("HUP");
                count += 1;
                let told = until(LONG, || near.stderr().matches("\nreloaded: ").count() >= count);
                assert!(told, "{}", near.stderr());
            }
        });
        // Keys that are gone change nothing.
        let aside = ends.data.file("aside");
        fs::rename(&keys[0], &aside).expect("it is there");
        near.signal("HUP");
        near.await_stderr("not reloaded: tunnel b: ");
        udp_echo(&plain, (&behind, BEHIND_IP), 5, 64);
        fs::rename(&aside, &keys[0]).expect("it is there");
    });
    let between = |frame: &&Vec<u8>| is_between(frame, 1, 2) || is_between(frame, 2, 1);
    let (esp, other): (Vec<&Vec<u8>>, Vec<_>) =
        frames.iter().filter(between).partition(|frame| is_esp(frame));
    assert!(esp.len() > 200 && other.is_empty(), "{} {other:?}", esp.len());
    let shows = |frame: &Vec<u8>| frame.windows(PAYLOAD.len()).any(|window| window == PAYLOAD);
    assert!(!frames.iter().any(shows), "a payload in clear");

    // Killed and started again, each end refuses packets of before, and accepts new ones.
    await_count(&far, "segments", |it| &it["frames"]["mss_clamped"], 1);
    let old: Vec<Vec<u8>> = esp.into_iter().cloned().collect();
    let last = old.iter().map(|frame| number(frame)).max().expect("there are some");
    let [near_state, far_state] = keys.map(|file| format!("{file}.state"));
    assert!(until(LONG, || received(&far_state) >= last), "{} of {last}", received(&far_state));
    near.end_by("KILL", LONG);
    far.end_by("KILL", LONG);
    let (mut near, far) = ends.start();
    ends.send(&old[..REPLAYED]);
    await_count(&far, "replayed", |it| &it["encryption"]["b"]["replayed"], REPLAYED as u64);
    udp_echo(&plain, (&behind, BEHIND_IP), 50, 64);

    // So is one in clear.
    let in_clear = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &[0; 64]].concat();
    let sender = udp_in(&behind, ("10.99.0.2", 0));
    sender.send_to(&in_clear, ("10.99.0.1", 4789)).expect("a route");
    await_count(&near, "in clear", |it| &it["frames"]["esp_clear"], 1);

    // The near end notices that the far end dies, and that it comes back. What is not encrypted is not answered.
    let file = ends.data.file("near.toml");
    fs::write(&file, ends.near_config(KEPT_ALIVE)).expect("a file");
    near.signal("HUP");
    await_state(&near, "up");
    assert!(json_of(&near)["keepalive"]["b"]["delay_ns"].as_u64() > Some(0));
    ended(far, "far", REPLAYED);
    near.await_stderr("tunnel b: no answer to 10 keepalives");
    await_state(&near, "down");
    assert!(json_of(&near)["keepalive"]["b"]["lost"].as_u64() >= Some(10));
    let far = ends.start_far();
    near.await_stderr("tunnel b: the far end answers again");
    await_state(&near, "up");
    ended(near, "near", 0);
    drop(far);

    // Without its state a used key is no key.
    fs::remove_file(&near_state).expect("it is there");
    let program = [env!("CARGO_BIN_EXE_wirepath"), "tunnel", "run", "-c"];
    let file = ends.data.file("near.toml");
    let args = [&program[..], &[&file[..]]].concat();
    let said = fail(common::enter(&ends.row.names[1], &args), 1);
    assert!(said.contains("tunnel b: ") && said.contains("near.keys.state is missing"), "{said}");
}
