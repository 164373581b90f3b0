//! Engines and the ends of a lab, for tests of engines and of the paths over them.

use std::collections::BTreeMap;

use io::{
    AnyEngine, Copying, EngineKind, EngineSpec, Local, Receiving, Remote, Role, Setup, Stamps,
    Wait, XdpMode,
};
use lab::{End, Pair, PairSpec};

pub const NEAR_PORT: u16 = 9001;
pub const FAR_PORT: u16 = 9000;

pub fn local(end: &End, port: u16) -> Local {
    Local {
        ifindex: end.ifindex,
        ifname: end.ifname.clone(),
        mtu_bytes: end.mtu_bytes,
        queue: 0,
        queues: end.queues,
        mac: end.mac,
        ip: end.load_ip(),
        addresses: Vec::new(),
        port,
    }
}

pub fn remote(end: &End, port: u16) -> Remote {
    Remote { mac: end.mac, ip: end.load_ip(), port }
}

/// A UDP engine with a buffer for all datagrams of a test, however long its thread is preempted.
pub fn udp() -> EngineSpec {
    EngineSpec { receive_buffer_bytes: Some(64 << 20), ..EngineSpec::plain(EngineKind::Udp) }
}

pub fn packet() -> EngineSpec {
    EngineSpec::plain(EngineKind::Packet)
}

pub fn xdp(xdp_mode: XdpMode, wait: Wait, batch: usize) -> EngineSpec {
    EngineSpec { xdp_mode, wait, batch, ..EngineSpec::plain(EngineKind::Xdp) }
}

/// Every engine with its name in messages.
pub fn engines() -> Vec<(&'static str, EngineSpec)> {
    use Wait::{Block, Spin};
    use XdpMode::{Native, Skb};
    vec![
        ("udp", udp()),
        ("udp, spin", EngineSpec { wait: Spin, ..udp() }),
        ("udp, batch 64", EngineSpec { batch: 64, ..udp() }),
        ("udp, gso", EngineSpec { batch: 64, gso: true, ..udp() }),
        ("udp, stamped", EngineSpec { stamps: Stamps::Software, ..udp() }),
        ("udp, epoll", EngineSpec { receiving: Receiving::Epoll, ..udp() }),
        ("udp, io_uring", EngineSpec { receiving: Receiving::IoUring, ..udp() }),
        (
            "udp, io_uring, zero-copy send, spin, batch 64",
            EngineSpec {
                wait: Spin,
                batch: 64,
                receiving: Receiving::IoUring,
                zero_copy_send: true,
                ..udp()
            },
        ),
        ("packet", packet()),
        ("packet, spin, batch 64", EngineSpec { wait: Spin, batch: 64, ..packet() }),
        ("xdp skb", xdp(Skb, Block, 1)),
        ("xdp skb, spin, batch 64", xdp(Skb, Spin, 64)),
        ("xdp native", xdp(Native, Block, 1)),
        ("xdp native, spin, batch 64", xdp(Native, Spin, 64)),
        ("xdp native, stamped", EngineSpec { stamps: Stamps::Software, ..xdp(Native, Block, 1) }),
        (
            "xdp native, need-wakeup, batch 64",
            EngineSpec { need_wakeup: true, copying: Copying::Copy, ..xdp(Native, Block, 64) },
        ),
    ]
}

/// UDP counters of the kernel in a namespace, by name.
pub fn udp_counters(end: &End) -> BTreeMap<String, u64> {
    let text = end.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
    let text = text.expect("the namespace").expect("snmp");
    let mut lines = text.lines().filter(|line| line.starts_with("Udp: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let values = values.split_whitespace().skip(1).map(|v| v.parse().expect("a number"));
    names.split_whitespace().skip(1).map(str::to_owned).zip(values).collect()
}

pub fn pair() -> Pair {
    Pair::new(&PairSpec::default()).expect("a lab")
}

pub fn native() -> EngineSpec {
    xdp(XdpMode::Native, Wait::Block, 1)
}

pub fn skb() -> EngineSpec {
    xdp(XdpMode::Skb, Wait::Block, 1)
}

/// Opens an engine in an end's namespace. Errors: the whole chain of causes.
pub fn open(end: &End, setup: &Setup<'_>) -> Result<AnyEngine, String> {
    end.run(|| io::open(setup).map_err(|e| host::text::chain(&e))).expect("the lab")
}

pub fn towards<'a>(
    spec: &'a EngineSpec,
    role: Role,
    local: &'a Local,
    remote: &'a Remote,
    payload_bytes: usize,
) -> Setup<'a> {
    Setup { spec, role, local, remote: Some(remote), flows: 1, payload_bytes }
}

pub fn open_far(pair: &Pair, spec: &EngineSpec) -> Result<AnyEngine, String> {
    open(&pair.far, &Setup::receive(spec, &local(&pair.far, FAR_PORT), 64))
}

#[track_caller]
pub fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

#[track_caller]
pub fn refused(opened: Result<AnyEngine, String>, parts: &[&str]) {
    // Not `expect_err`, which would print the whole engine.
    let Err(why) = opened else { panic!("it must be refused with {parts:?}") };
    says(&why, parts);
}
