//! `wirepath tunnel run` against the kernel's gretap: a Debian guest in QEMU, made by
//! `cargo xtask linux-guest`. Skipped without it.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{Data, LONG, Running, finish_frames, ip, is_installed, succeed, until};
use host::netns::Netns;
use serde_json::Value;

const QEMU: &str = "qemu-system-aarch64";
/// How long an emulated machine may take to boot on a busy one.
const BOOT: Duration = Duration::from_secs(120);
const ECHO_PORT: u16 = 47_011;
const CALL_PORT: u16 = 47_012;
const COUNTS_PORT: u16 = 47_013;
/// Frames that the guest is to receive with sequence numbers.
const NUMBERED: (&str, usize) = ("WIREPATH_TEST_NUMBERED", 5_000);
/// A frame to a station that is not there is flooded, as a broadcast is.
const NOT_THERE: (&str, &str) = ("10.89.0.77", "02:00:00:00:00:77");

fn guest() -> Option<[PathBuf; 2]> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/firmware/linux");
    let files = ["Image", "tunnel.cpio"].map(|name| folder.join(name));
    let is_built = files.iter().all(|file| file.exists());
    if !is_built {
        testkit::skip("linux-guest", "not built; run `cargo xtask linux-guest`");
    }
    is_built.then_some(files)
}

/// A plain host and the forwarder's; gone when dropped.
struct Lab {
    names: [String; 2],
}

impl Lab {
    fn new() -> Lab {
        let lab = Lab { names: ["p", "f"].map(|end| format!("wpg{}{end}", std::process::id())) };
        let [plain, ours] = &lab.names;
        for name in &lab.names {
            succeed(ip(&["netns", "add", name]));
            for setting in
                ["net.ipv6.conf.default.disable_ipv6=1", "net.ipv4.ip_local_port_range=51100 51900"]
            {
                succeed(crate::common::enter(name, &["sysctl", "-qw", setting]));
            }
        }
        let run_in = |name: &str, line: &str| {
            let words: Vec<_> = ["-n", name].into_iter().chain(line.split_whitespace()).collect();
            succeed(ip(&words));
        };
        run_in(plain, &format!("link add hp type veth peer name pa netns {ours}"));
        for line in ["address add 10.88.0.1/24 dev hp", "address add 10.89.0.1/24 dev hp"] {
            run_in(plain, line);
        }
        run_in(plain, "link set hp up");
        let (address, mac) = NOT_THERE;
        run_in(plain, &format!("neighbour add {address} lladdr {mac} dev hp"));
        run_in(ours, "link set pa up");
        run_in(ours, "tuntap add ua mode tap");
        run_in(ours, "link set ua mtu 1600 up");
        run_in(ours, "address add 10.99.0.1/24 dev ua");
        finish_frames(&lab.space(plain), "hp");
        lab
    }

    fn space(&self, name: &str) -> Netns {
        Netns::open(format!("/run/netns/{name}")).expect("the namespace is there")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&["netns", "delete", name]).output();
        }
    }
}

const CONFIG: &str = r#"
workers = 2
engine = "packet"
[order]
stuck_after_us = 1000000
[port]
interface = "pa"
[underlay]
interface = "ua"
address = "10.99.0.1"
mtu = 1600
[[tunnel]]
name = "b"
carrier = "gretap"
remote = "10.99.0.2"
"#;
/// Network of the guest behind each tunnel, and the tunnel's keys. One at a time: they are two broadcast
/// domains.
const TUNNELS: [(&str, &str); 2] =
    [("10.88.0", ""), ("10.89.0", "key = 7\nchecksum = true\nsequence = true\n")];

/// Prints the guest's console when a test fails.
struct Console<'a>(&'a str);

impl Drop for Console<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let console = fs::read_to_string(self.0).unwrap_or_default();
            let _stderr_may_be_closed = writeln!(std::io::stderr(), "guest's console: {console}");
        }
    }
}

/// Sends bytes and checks their echo.
fn echoes(stream: &mut TcpStream, len: usize) {
    let sent: Vec<u8> = (0..len).map(|n| (n ^ n >> 8) as u8).collect();
    stream.set_read_timeout(Some(LONG)).expect("a socket");
    let mut writer = stream.try_clone().expect("a descriptor");
    let got = std::thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&sent).expect("it is read");
            writer.shutdown(Shutdown::Write).expect("a connection");
        });
        let mut got = vec![0; len];
        stream.read_exact(&mut got).expect("it comes back");
        got
    });
    assert!(got == sent, "{len} bytes came back changed");
}

#[test]
fn gretap_of_a_debian_kernel_and_ours_reach_each_other() {
    let Some([kernel, initrd]) = guest() else { return };
    if !is_installed("ip") || !is_installed(QEMU) {
        return;
    }
    let lab = Lab::new();
    let [plain, ours] = &lab.names;
    let data = Data::new();
    let serial = data.file("serial");
    let _printed = Console(&serial);
    let console = format!("file:{serial}");
    let (kernel, initrd) = (kernel.display().to_string(), initrd.display().to_string());
    let mut qemu = Running::start(crate::common::enter(
        ours,
        &[
            QEMU,
            "-M",
            "virt",
            "-cpu",
            "cortex-a53",
            "-m",
            "256",
            "-display",
            "none",
            "-monitor",
            "none",
            "-serial",
            &console,
            "-kernel",
            &kernel,
            "-initrd",
            &initrd,
            "-append",
            "console=ttyAMA0 quiet panic=-1",
            "-netdev",
            "tap,id=n,ifname=ua,script=no,downscript=no",
            "-device",
            // Nothing left for a NIC to finish: what we forward goes on as it is.
            "virtio-net-device,netdev=n,csum=off,guest_csum=off,gso=off,host_tso4=off",
        ],
    ));
    let said = || fs::read_to_string(&serial).unwrap_or_default();
    let booted = until(BOOT, || said().contains("wirepath-linux ready") || qemu.has_ended());
    assert!(booted && !qemu.has_ended(), "{}{}", said(), qemu.stderr());
    // Made once there is a route, a tunnel knows what it goes over; before, it guesses.
    assert!(said().contains("early mtu=1462 tx_queues=1."), "{}", said());
    assert!(said().contains("late mtu=1562 tx_queues=1."), "{}", said());
    for tunnel in ["gt0 mtu=1500 tx_queues=4.", "gt1 mtu=1500 tx_queues=4."] {
        assert!(said().contains(tunnel), "{}", said());
    }
    let file = data.file("tunnel.toml");
    let wire = data.file("wire.pcapng");
    let capture = is_installed("tshark").then(|| {
        let args = ["tshark", "-q", "-i", "ua", "-f", "proto gre", "-w", &wire];
        let mut capture = Running::start(crate::common::enter(ours, &args));
        capture.await_stderr("Capturing on");
        capture
    });
    for (net, keys) in TUNNELS {
        let is_numbered = keys.contains("sequence");
        let config = if is_numbered { numbered(keys) } else { format!("{CONFIG}{keys}") };
        fs::write(&file, config).expect("a file");
        let program = [env!("CARGO_BIN_EXE_wirepath"), "tunnel", "run", &file, "--json"];
        let mut running = Running::start(crate::common::enter(ours, &program));
        running.await_stderr("tunnel b: ");
        // The guest takes a number below the last for a late frame, also behind a restart: one forwarder only.
        lab.space(plain)
            .run(|| {
                // The guest calls once a second.
                let listener = TcpListener::bind((format!("{net}.1").as_str(), CALL_PORT));
                let (mut called, _) =
                    listener.expect("the address is there").accept().expect("the guest calls");
                echoes(&mut called, 100_000);
                let mut ours = TcpStream::connect((format!("{net}.2").as_str(), ECHO_PORT))
                    .expect("the guest listens");
                echoes(&mut ours, 100_000);
                if is_numbered {
                    send_numbered();
                }
            })
            .expect("the namespace is there");
        ends_well(running);
    }
    if let Some(capture) = capture {
        let read = |filter: &str| {
            let mut tshark = std::process::Command::new("tshark");
            tshark.args(["-r", &wire, "-Y", filter]);
            // While it is still being written, it ends in the middle of a packet.
            String::from_utf8_lossy(&crate::common::run(tshark).stdout).into_owned()
        };
        for (filter, what) in [("gre && !gre.key", "plain"), ("gre.key == 7", "keyed")] {
            let is_there = until(LONG, || read(filter).lines().count() > 100);
            assert!(is_there, "{what} tunnel in the capture: {}", read(filter));
        }
        capture.end_by("INT", LONG);
        assert_eq!(read("_ws.malformed || _ws.expert.severity == error"), "");
    }
    qemu.end_by("TERM", LONG);
}

/// Configuration with four lanes, two classes and a second tunnel, with numbers of its own, for floods.
fn numbered(keys: &str) -> String {
    let config = CONFIG.replace("[order]\n", "[order]\ndomain = \"flow\"\nlanes = 4\n");
    format!(
        "{config}{keys}[[tunnel]]\nname = \"c\"\ncarrier = \"gretap\"\nremote = \"10.99.0.9\"\n\
         next_hop = \"02:00:00:00:00:09\"\n{keys}\
         [qos]\nrate_kbps = 1000000\n[[qos.class]]\ndscp = [46]\n[[qos.class]]\n"
    )
}

/// Sends floods between other frames until the guest has received enough of both. Its kernel counts every
/// frame whose number is below the one before.
fn send_numbered() {
    let wanted = testkit::series::number(NUMBERED.0, NUMBERED.1) as u64;
    // Source: ip(7).
    const IPPROTO_IP: i32 = 0;
    const IP_TOS: i32 = 1;
    // None from a guest that has no time, or that still knows the port of an earlier connection.
    let counts = || {
        let guest = SocketAddr::from(([10, 89, 0, 2], COUNTS_PORT));
        let mut counts = TcpStream::connect_timeout(&guest, Duration::from_secs(5)).ok()?;
        counts.set_read_timeout(Some(LONG)).expect("a socket");
        let mut text = String::new();
        counts.read_to_string(&mut text).ok()?;
        let numbers = text.lines().map(|line| line.parse().ok());
        <[u64; 2]>::try_from(numbers.collect::<Option<Vec<_>>>()?).ok()
    };
    let flows = [0; 8].map(|_| UdpSocket::bind(("10.89.0.1", 0)).expect("a socket"));
    for (n, flow) in flows.iter().enumerate() {
        flow.set_broadcast(true).expect("a socket");
        let service = if n % 2 == 0 { 46 << 2 } else { 0 };
        sys::socket::set_int(flow.as_fd(), IPPROTO_IP, IP_TOS, service).expect("a socket");
    }
    let mut found = None;
    until(LONG, || {
        found = counts();
        found.is_some()
    });
    let before = found.expect("the guest tells its counts");
    let mut after = before;
    let received = until(LONG.max(Duration::from_millis(wanted)), || {
        for n in 0..2_000 {
            let to = match n % 16 {
                7 => "10.89.0.255",
                15 => NOT_THERE.0,
                _ => "10.89.0.2",
            };
            flows[n % 8].send_to(&[0; 100], (to, 9)).expect("it is sent");
            // About as many as an emulated machine takes.
            if n % 64 == 63 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        after = counts().unwrap_or(after);
        after[1] - before[1] >= wanted
    });
    assert!(received, "the guest received {before:?} to {after:?}");
    assert_eq!(after[0], 0, "out of sequence of {} frames", after[1]);
    testkit::note(&format!("{} frames in sequence", after[1] - before[1]));
}

/// Ends the forwarder, which has forwarded in both directions and found no fault.
fn ends_well(running: Running) {
    let last = ended(running);
    for sent in ["into_tunnels_sent", "out_of_tunnels_sent"] {
        assert!(last["frames"][sent].as_u64() > Some(100), "{last}");
    }
    // `unknown_tunnel` counts the guest's calls through its other tunnel, which this engine sees, too.
    for bad in ["gre_checksum", "gre_header", "gre_type", "looped", "too_big"] {
        assert_eq!(last["frames"][bad], 0, "{last}");
    }
}

/// Ends the forwarder. Returns its last counts.
fn ended(running: Running) -> Value {
    let output = running.end_by("TERM", LONG);
    assert!(output.status.success(), "{}", crate::common::all_text(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap_or("")).expect("JSON")
}
