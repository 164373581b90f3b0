//! Network namespaces for a test's commands, and what is set up in them.

use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use host::net::{self, ethtool::Feature};
use sys::netns::Netns;

use super::{LONG, Running, clean, ip, succeed, until};

/// Two namespaces of our own, joined by a veth pair: `va` (10.77.0.1) and `vb` (10.77.0.2);
/// gone when dropped.
pub(crate) struct Spaces {
    pub(crate) near: String,
    pub(crate) far: String,
}

pub(crate) const NEAR_IP: &str = "10.77.0.1";
pub(crate) const FAR_IP: &str = "10.77.0.2";

/// A configuration of `tunnel run` between the two ends of [`Spaces`], for frames of 1400 bytes.
///
/// - `underlay`: interface and address at this end.
/// - `remote`: address at the other.
pub(crate) fn tunnel_config(
    engine: &str,
    port: &str,
    underlay: (&str, &str),
    remote: &str,
) -> String {
    let (interface, address) = underlay;
    format!(
        "workers = 2\nengine = \"{engine}\"\n[port]\ninterface = \"{port}\"\nmtu = 1400\n\
         [underlay]\ninterface = \"{interface}\"\naddress = \"{address}\"\nmtu = 1500\n\
         [[tunnel]]\nname = \"b\"\ncarrier = \"vxlan\"\nvni = 42\nremote = \"{remote}\"\n"
    )
}

/// Features by which a veth sends TCP segments whole.
const WHOLE_SENDERS: [&str; 4] = [
    Feature::TSO,
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
];

fn offloads(namespace: &str, interface: &str, wanted: &[(&str, bool)]) {
    let netns = Netns::open(format!("/run/netns/{namespace}")).expect("our namespace");
    netns
        .run(|| {
            let index = net::link_named(interface).expect("it was made").index;
            net::ethtool::set_features(index, wanted).expect("a veth has it");
        })
        .expect("entered");
}

/// Lets one end of a veth pair poll, and so use timers. A veth does so for packets that GRO might merge: not for those that
/// its peer could have sent whole. Each end is a namespace and an interface.
pub(crate) fn let_poll(end: (&str, &str), peer: (&str, &str)) {
    offloads(end.0, end.1, &[(Feature::GRO, true)]);
    offloads(peer.0, peer.1, &WHOLE_SENDERS.map(|name| (name, false)));
}

impl Spaces {
    /// Lets `va` poll.
    pub(crate) fn let_near_poll(&self) {
        let_poll((&self.near, "va"), (&self.far, "vb"));
    }

    pub(crate) fn new() -> Self {
        Self::with_queues(1)
    }

    /// Makes the interface `pa` at the near end, as a tunnel's port, and `hp` behind it.
    pub(crate) fn add_port(&self) {
        let near = &self.near;
        succeed(ip(&["-n", near, "link", "add", "pa", "type", "veth", "peer", "name", "hp"]));
        for link in ["pa", "hp"] {
            succeed(ip(&["-n", near, "link", "set", link, "mtu", "1400", "up"]));
        }
    }

    pub(crate) fn with_queues(queues: u32) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("wpt{}-{n}{end}", std::process::id());
        let spaces = Spaces { near: name("a"), far: name("b") };
        for name in [&spaces.near, &spaces.far] {
            succeed(ip(&["netns", "add", name]));
            let quiet = ["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"];
            let quiet = [&quiet[..], &["net.ipv6.conf.default.disable_ipv6=1"]].concat();
            succeed(enter(name, &quiet));
        }
        let q = queues.to_string();
        let queues = ["numtxqueues", &q, "numrxqueues", &q];
        let mut args = vec!["link", "add", "va", "netns", &spaces.near];
        args.extend(queues);
        args.extend(["type", "veth", "peer", "name", "vb", "netns", &spaces.far]);
        args.extend(queues);
        succeed(ip(&args));
        for (name, link, address) in [(&spaces.near, "va", NEAR_IP), (&spaces.far, "vb", FAR_IP)] {
            succeed(ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", link]));
            succeed(ip(&["-n", name, "link", "set", "lo", "up"]));
            succeed(ip(&["-n", name, "link", "set", link, "up"]));
        }
        let lower_up = |name: &str, link: &str| {
            succeed(ip(&["-n", name, "link", "show", link])).contains("LOWER_UP")
        };
        assert!(until(LONG, || lower_up(&spaces.near, "va") && lower_up(&spaces.far, "vb")));
        spaces
    }

    /// The program in the near one.
    pub(crate) fn near(&self, args: &[&str]) -> Command {
        clean(enter(&self.near, &[env!("CARGO_BIN_EXE_wirepath")]), args)
    }

    /// The program in the far one.
    pub(crate) fn far(&self, args: &[&str]) -> Command {
        clean(enter(&self.far, &[env!("CARGO_BIN_EXE_wirepath")]), args)
    }

    /// `ip link show` of the far interface.
    pub(crate) fn far_link(&self) -> String {
        succeed(ip(&["-n", &self.far, "-d", "link", "show", "vb"]))
    }

    pub(crate) fn near_link(&self) -> String {
        succeed(ip(&["-n", &self.near, "-d", "link", "show", "va"]))
    }

    /// A `wirepath peer` in the far one that listens already.
    pub(crate) fn peer(&self, args: &[&str]) -> Running {
        let listen = format!("{FAR_IP}:7117");
        let all = [&["peer", "--listen", &listen], args].concat();
        let mut peer = Running::start(self.far(&all));
        peer.await_stderr("listening on ");
        peer
    }

    /// A `probe echo` in the far one that is ready for datagrams.
    pub(crate) fn echo(&self, args: &[&str]) -> Running {
        self.listening("echo", args, |_| {})
    }

    /// `probe echo` or `receive` in the far one, ready for datagrams, with something added to the
    /// command.
    pub(crate) fn listening(
        &self,
        what: &str,
        args: &[&str],
        add: impl Fn(&mut Command),
    ) -> Running {
        let all = [&["probe", what], args].concat();
        let mut command = self.far(&all);
        add(&mut command);
        let mut echo = Running::start(command);
        echo.await_stderr("listening on ");
        // It says so before its engine is open: see for ourselves.
        let of_kernel = |table: &str| {
            fs::read_to_string(format!("/proc/{}/net/{table}", echo.pid())).unwrap_or_default()
        };
        let ready = until(LONG, || {
            if args.contains(&"xdp") {
                return self.far_link().contains("xdp");
            }
            let bound = of_kernel("udp").contains(":2328 ");
            bound && (!args.contains(&"packet") || of_kernel("packet").contains(" 0800 "))
        });
        assert!(ready && !echo.has_ended(), "{}", echo.stderr());
        echo
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for name in [&self.near, &self.far] {
            let _ = ip(&["netns", "delete", name]).output();
        }
    }
}

/// A socket of a network namespace; it may be used from any thread.
pub(crate) fn udp_in(space: &Netns, at: (&str, u16)) -> UdpSocket {
    space.run(|| UdpSocket::bind(at).expect("the address is there")).expect("the namespace")
}

/// Datagrams that arrive of 50 sent, one after the other.
pub(crate) fn arrived_of_50(
    sender: &UdpSocket,
    receiver: &UdpSocket,
    at: (&str, u16),
    payload: &[u8],
) -> usize {
    receiver.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket");
    let mut bytes = [0; 2048];
    (0..50)
        .filter(|_| {
            sender.send_to(payload, at).expect("a route");
            receiver.recv(&mut bytes).is_ok()
        })
        .count()
}

/// A command inside a named namespace. `ip netns exec` becomes the program, so that its process
/// id is the program's.
pub(crate) fn enter(namespace: &str, program: &[&str]) -> Command {
    let mut command = ip(&["netns", "exec", namespace]);
    command.args(program);
    command
}
