//! The lab, the forwarder in it, and commands in its namespaces.

use sys::packet::{PacketRx, PacketTx};

use super::*;

/// Runs a command in this thread's namespace. Returns its output if it succeeds.
pub(super) fn run(command: &str) -> Result<String, String> {
    let mut words = command.split_whitespace();
    let out = Command::new(words.next().unwrap_or_default())
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{command}: {error}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    if out.status.success() {
        Ok(text)
    } else {
        Err(format!("{command}: {text}{}", String::from_utf8_lossy(&out.stderr)))
    }
}

pub(super) fn address(text: &str) -> IpAddr {
    text.parse().expect("valid address")
}

/// Pings until each of the first `count` requests is answered. Errors: its output.
///
/// - `more`: further arguments of ping.
pub(super) fn ping(count: u64, more: &str) -> Result<(), String> {
    let said = run(&format!("ping -c {count} -w 10 {more}"))?;
    if testkit::unanswered(&said, count).is_empty() { Ok(()) } else { Err(said) }
}

pub(super) fn ip(arguments: &str) {
    run(&format!("ip {arguments}")).expect("ip succeeds");
}

/// True if the programs are installed; reports the missing ones.
pub(super) fn has(programs: &[&str]) -> bool {
    programs.iter().all(|program| testkit::is_installed(program))
}

/// A host, the forwarder's namespace, and a host behind a kernel VXLAN device. Offloads are off, so
/// that no frame is incomplete: the forwarder sends frames as they are.
pub(super) fn lab() -> Triple {
    lab_with_queues(1)
}

/// The same with several queues of each interface.
pub(super) fn lab_with_queues(queues: u32) -> Triple {
    let mtu_bytes = UNDERLAY_MTU.into();
    let spec = PairSpec { mtu_bytes, queues, tso: false, ..PairSpec::default() };
    let lab = Triple::new(&spec).expect("the lab can be built");
    let (near_mac, far_mac) = (mac(&lab.near), mac(&lab.far));
    lab.near.set_feature(ethtool::Feature::TX_CHECKSUM, false).expect("veth has the feature");
    lab.far.set_feature(ethtool::Feature::TX_CHECKSUM, false).expect("veth has the feature");
    lab.near
        .run(|| {
            ip("link set wp-near mtu 1500");
            // Has to be resolved through the tunnel.
            ip("neigh del 10.77.0.2 dev wp-near");
        })
        .expect("the namespace exists");
    let under_mac = mac(&lab.middle.far_if);
    lab.far
        .run(|| {
            ip("addr del 10.77.0.2/24 dev wp-far");
            ip(&format!("addr add {THEIRS}/24 dev wp-far"));
            ip(&format!("neigh replace {OURS} lladdr {under_mac} dev wp-far nud permanent"));
            ip(&format!(
                "link add vx0 type vxlan id {VNI} local {THEIRS} remote {OURS} dstport 4789 \
                 dev wp-far"
            ));
            ip(&format!("link set vx0 address {far_mac} mtu 1500 up"));
            ip("addr add 10.77.0.2/24 dev vx0");
            let vx0 = net::link_named("vx0").expect("it was created").index;
            let off = [ethtool::Feature::TX_CHECKSUM, ethtool::Feature::GSO];
            ethtool::set_features(vx0, &off.map(|name| (name, false)))
                .expect("vxlan has the features");
        })
        .expect("the namespace exists");
    assert_ne!(near_mac, far_mac);
    lab
}

pub(super) fn mac(end: &End) -> String {
    wirepath_forward::fdb::MacDisplay(end.mac).to_string()
}

pub(super) fn port(end: &End, frames: TunnelFrames, mode: XdpMode) -> PortSpec {
    PortSpec {
        ifindex: end.ifindex,
        ifname: end.ifname.clone(),
        queues: end.queues,
        mode,
        copying: io::Copying::Copy,
        frames,
        fill_target: 1024,
    }
}

/// Forwards with `workers` threads while `body` runs. Returns its result and the counters.
pub(super) fn forwarding<T>(
    lab: &Triple,
    mode: XdpMode,
    workers: usize,
    body: impl FnOnce() -> T,
) -> (T, Vec<(&'static str, u64)>) {
    forwarding_with(lab, mode, workers, |_| {}, |_| body())
}

/// Like [`forwarding`], with a changed specification.
pub(super) fn forwarding_with<T>(
    lab: &Triple,
    mode: XdpMode,
    workers: usize,
    tweak: impl FnOnce(&mut ForwarderSpec),
    body: impl FnOnce(&Forwarder) -> T,
) -> (T, Vec<(&'static str, u64)>) {
    forwarding_by(lab, Ports::Xdp(mode), workers, tweak, body)
}

/// The forwarder's ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ports {
    Xdp(XdpMode),
    /// XDP programs that forward, and AF_XDP behind them.
    InKernel,
    /// tcx programs that forward, and TAP devices behind them.
    Tcx,
}

/// Like [`forwarding_with`], by ports of any kind; `body` gets the forwarder.
pub(super) fn forwarding_by<T>(
    lab: &Triple,
    ports: Ports,
    workers: usize,
    tweak: impl FnOnce(&mut ForwarderSpec),
    body: impl FnOnce(&Forwarder<'_>) -> T,
) -> (T, Vec<(&'static str, u64)>) {
    let mode = match ports {
        Ports::Xdp(mode) => mode,
        Ports::InKernel | Ports::Tcx => XdpMode::Native,
    };
    let pool = Pool::allocate(2048, 8192).expect("16 MiB are available");
    let carrier = Carrier::Vxlan { vni: VNI };
    let tunnel = Tunnel { local: address(OURS), remote: address(THEIRS), carrier };
    let middle = &lab.middle;
    // Those of the rules, once these are known.
    let tunnels = TunnelFrames::Tunnels { vxlan_port: 4789, ids: Vec::new() };
    let (near, far) =
        (port(&middle.near_if, TunnelFrames::All, mode), port(&middle.far_if, tunnels, mode));
    let ports = middle.netns.run(|| {
        let fast = FastSpec {
            station_count_max: 256,
            inner_bytes_max: 1518,
            vxlan_port: 4789,
            ecn: ecn_table(),
            is_unfinished: [false; 2],
        };
        if ports == Ports::Tcx {
            let interfaces =
                [&middle.near_if, &middle.far_if].map(|end| (end.ifindex, end.mtu_bytes));
            let ([near, far], path) =
                open_tcx_ports(&pool, interfaces, true, &fast).expect("the ports open");
            return (near, far, Some(path));
        }
        if ports == Ports::InKernel {
            let ([near, far], path) =
                open_fast_ports(&pool, [&near, &far], &fast).expect("the ports open");
            return (near, far, Some(path));
        }
        let near = open_port(&pool, &near, None).expect("the port opens");
        let far = open_port(&pool, &far, Some(&near.rx)).expect("the underlay opens");
        (near, far, None)
    });
    let (near, far, fast) = ports.expect("the namespace exists");
    let mut spec = ForwarderSpec {
        rules: encap_rules(encap(lab, tunnel)),
        fdb: Fdb::new(FdbSpec { entry_count_max: 256, ageing_ns: 60_000_000_000, seed: 1 }),
        shaper: None,
        order: OrderSpec { lanes: 1, window_tickets: 64, stuck_after_ns: 5_000_000_000 },
        tuning: Tuning::default(),
        is_unfinished: [false; 2],
        fast,
    };
    tweak(&mut spec);
    let tunnels = spec.rules.decap.tunnels.iter();
    let ids: Vec<_> = tunnels
        .map(|tunnel| TunnelId { local: tunnel.local, carrier: tunnel.carrier.into() })
        .collect();
    let forwarder = Forwarder::new(&pool, near, far, spec).expect("the order is in range");
    if let [_, Some(filter)] = forwarder.filters() {
        filter.set_tunnels(&ids).expect("there is room");
    }
    let attached = middle.netns.run(|| forwarder.attach(XdpMode::Native));
    attached.expect("the namespace exists").expect("the programs attach");
    let stop = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut worker = Worker::default();
                while !stop.load(Ordering::Relaxed) {
                    let now_ns = sys::clock::monotonic_ns();
                    if forwarder.turn(&mut worker, now_ns).expect("the links are up") == 0 {
                        thread::sleep(Duration::from_micros(20));
                    }
                }
            });
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&forwarder)));
        stop.store(true, Ordering::Relaxed);
        result
    });
    let counts = forwarder.counts();
    for books in forwarder.counters() {
        assert_eq!(books.in_flight_frames(), 0, "{books:?}");
        assert_eq!((books.timed_out_count, books.undelivered_frames), (0, 0), "{books:?}");
    }
    let balance = pool.balance();
    assert!(balance.balances(), "{balance:?}");
    drop(forwarder);
    match result {
        Ok(result) => (result, counts),
        Err(panic) => {
            let _ = writeln!(std::io::stderr(), "counters: {counts:?}");
            std::panic::resume_unwind(panic)
        }
    }
}

/// Rules for one tunnel.
pub(super) fn encap_rules(encap: Encap) -> RulesSpec {
    let decap = DecapSpec { tunnels: vec![*encap.tunnel()], ..DecapSpec::default() };
    RulesSpec {
        keepalives: Vec::new(),
        encaps: vec![encap],
        vlans: Vec::new(),
        decap,
        learns: true,
        classifier: Classifier::new(0),
        policer: None,
    }
}

/// Encapsulation for a tunnel whose remote end is reached through the far host's interface.
pub(super) fn encap(lab: &Triple, tunnel: Tunnel) -> Encap {
    let suggested = Outer::suggested(&tunnel, lab.middle.far_if.mac, lab.far.mac);
    let outer = Outer { mtu_bytes: UNDERLAY_MTU, ..suggested };
    Encap::new(tunnel, outer).expect("valid tunnel")
}

pub(super) fn count(counts: &[(&str, u64)], name: &str) -> u64 {
    counts.iter().find(|(known, _)| *known == name).map(|(_, count)| *count).expect("it is there")
}

/// Sends frames at an end and receives them at another.
pub(super) struct Wire {
    tx: PacketTx,
    rx: PacketRx,
}

impl Wire {
    pub(super) fn open(from: &End, to: &End) -> Self {
        let rx = to.run(|| PacketRx::open_all(to.ifindex, 8 << 20).expect("a packet socket"));
        let tx = from.run(|| PacketTx::open(from.ifindex, 2048, 64).expect("a packet socket"));
        let (rx, tx) = (rx.expect("the namespace exists"), tx.expect("the namespace exists"));
        Wire { tx, rx }
    }

    /// Sends a frame, and returns the one that arrives with [`fast::SENDER`] in it.
    pub(super) fn pass(&mut self, frame: &[u8]) -> Vec<u8> {
        assert_eq!(self.tx.post(1, frame.len(), |slot| slot.copy_from_slice(frame)), 1);
        self.tx.kick().expect("the link is up");
        let mut got: Option<Vec<u8>> = None;
        let begun = Instant::now();
        while got.is_none() && begun.elapsed() < Duration::from_secs(5) {
            self.rx.take(64, |bytes, whole, _| {
                assert_eq!(bytes.len(), whole);
                if bytes.windows(6).any(|window| window == fast::SENDER) {
                    assert!(got.is_none(), "a second frame: {bytes:02x?}");
                    got = Some(bytes.to_vec());
                }
            });
            thread::sleep(Duration::from_micros(200));
            self.tx.reap();
        }
        got.unwrap_or_else(|| panic!("a frame of {} bytes is lost: {frame:02x?}", frame.len()))
    }
}

/// Sends frames one by one from an end, and returns those that arrive at the other, in their order.
pub(super) fn pass(from: &End, to: &End, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut wire = Wire::open(from, to);
    frames.iter().map(|frame| wire.pass(frame)).collect()
}
