//! Opens the interfaces of a configuration.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use crate::ports::{
    FastDirection, FastPath, FastSpec, HEADROOM_BYTES, Pool, Port, PortRx, PortSpec, TunnelFrames,
    TunnelId, open_fast_ports, open_packet_port, open_port, open_tap_port,
};
use host::net::{self, Link, ethtool};
use io::{Copying, IoError, XdpMode};
use sys::packet::Promiscuous;

use super::{Operator, RunError};
use crate::config::{Config, ForwardEngine, InterfaceConfig};
use crate::encap::HEADERS_BYTES_MAX;
use crate::forwarder::ecn_table;
use crate::tcx::{open_tcx_ports, tap_name};

/// Frames of the pool: enough for full rings of two ports in both directions, and for the workers.
const POOL_FRAMES: u32 = 16_384;
/// Pool size for frames of several pages, of which the send rings hold fewer.
const POOL_FRAMES_LARGE: u32 = 8192;
/// Receive frames in the kernel per port: a worker that loses its CPU for 30 ms loses no frame at
/// 200,000 frames a second.
const FILL_FRAMES: u32 = 6144;
/// The same for frames of several pages.
const FILL_FRAMES_LARGE: u32 = 2048;
/// Receive queues of an interface at most: a worker waits for 64 sockets.
const QUEUES_MAX: u32 = 32;
/// Size of a page, the unit that the kernel receives into.
const PAGE_BYTES: usize = 4096;
/// End of a page that XDP programs cannot use (struct skb_shared_info), in bytes.
const TAIL_BYTES: usize = 320;
/// Stations of the fast path at most: 6 MB of kernel memory.
const FAST_STATIONS_MAX: usize = 1 << 16;
/// Maximum number of pages of a frame.
const PAGES_MAX: usize = 4;
/// Offload that removes the tags of received frames, by its name in the kernel.
const RX_VLAN: &str = "rx-vlan-hw-parse";
/// Ethernet header and two VLAN tags.
const LINK_BYTES: usize = 22;
/// Maximum MTU.
pub(super) const MTU_BYTES_MAX: usize = PAGES_MAX * PAGE_BYTES - HEADROOM_BYTES - LINK_BYTES;

/// Both ports and what belongs to them.
pub(super) struct Opened<'p> {
    pub(super) port: Port<'p>,
    pub(super) underlay: Port<'p>,
    pub(super) xdp_sockets: bool,
    /// See [`ForwarderSpec::is_unfinished`](crate::forwarder::ForwarderSpec::is_unfinished).
    pub(super) is_unfinished: [bool; 2],
    pub(super) fast: Option<FastPath>,
    /// Devices of the slow path behind tcx programs.
    pub(super) slow_paths: Vec<u32>,
    pub(super) _silencer: Option<UdpSocket>,
    pub(super) _promiscuous: Option<Promiscuous>,
}

/// Interfaces of a configuration, as they are now.
pub(super) struct FoundLinks {
    /// `None` for engine `tap`, which makes it.
    plain: Option<Link>,
    under: Link,
}

/// Finds the interfaces of a configuration. Errors: one does not exist, carries too little, or the underlay's
/// address is on none of this namespace.
pub(super) fn find(config: &Config) -> Result<FoundLinks, RunError> {
    let under = net::link_named(&config.underlay.name)?;
    carries(&under, "underlay", config.underlay.mtu_bytes)?;
    if let Some(address) = config.underlay.address {
        has_address(&under, address)?;
    }
    let plain = match config.engine {
        ForwardEngine::Tap => None,
        _ => {
            let plain = net::link_named(&config.port.name)?;
            carries(&plain, "port", config.port.mtu_bytes)?;
            Some(plain)
        }
    };
    Ok(FoundLinks { plain, under })
}

/// Checks what else of the interfaces prevents a start, without opening them.
pub(super) fn check(config: &Config) -> Result<(), RunError> {
    frames(config)?;
    let FoundLinks { plain, under } = find(config)?;
    keeps_tags(config)?;
    let Some(plain) = plain else { return Ok(()) };
    let links = [(&plain, &config.port), (&under, &config.underlay)];
    let is_tcx = config.engine != ForwardEngine::InKernelXdp && is_of_local_senders(&plain);
    match config.engine {
        ForwardEngine::Packet | ForwardEngine::Tap => Ok(()),
        ForwardEngine::Auto | ForwardEngine::InKernel if is_tcx => Ok(()),
        ForwardEngine::Auto
        | ForwardEngine::InKernel
        | ForwardEngine::InKernelXdp
        | ForwardEngine::Xdp => links.into_iter().try_for_each(|(link, config)| {
            has_no_super_frames(link)?;
            queues(link, config).map(drop)
        }),
    }
}

/// Refuses an address that no interface of this namespace has: the far end could not answer. It need not be the
/// underlay's own: tunnels often end on an address of loopback.
fn has_address(under: &Link, address: IpAddr) -> Result<(), RunError> {
    for link in net::links()? {
        if net::addresses_like(link.index, address)?.iter().any(|(known, _)| *known == address) {
            return Ok(());
        }
    }
    let bits = if address.is_ipv4() { 24 } else { 64 };
    Err(RunError::Unsupported {
        key: "underlay.address".into(),
        problem: format!("no interface here has the address {address}"),
        remedy: format!(
            "correct it (`ip address show dev {0}`), or ip address add {address}/{bits} dev {0}",
            under.name
        ),
    })
}

/// Allocates a pool of frames large enough for both MTUs.
pub(super) fn pool(config: &Config) -> Result<Pool, RunError> {
    let (frame_bytes, frame_count) = frames(config)?;
    Pool::allocate(frame_bytes as u32, frame_count)
        .map_err(|source| RunError::System { what: "cannot allocate frames".into(), source })
}

/// Length and number of the pool's frames. Errors: a packet does not fit.
fn frames(config: &Config) -> Result<(usize, u32), RunError> {
    let mtu_bytes = config.port.mtu_bytes.max(config.underlay.mtu_bytes);
    let needed = HEADROOM_BYTES.max(HEADERS_BYTES_MAX) + usize::from(mtu_bytes) + LINK_BYTES;
    // Frames that do not fit a page with its tail arrive in several buffers.
    Ok(match (needed + TAIL_BYTES).div_ceil(PAGE_BYTES) {
        _ if needed <= 2048 => (2048, POOL_FRAMES),
        1 => (PAGE_BYTES, POOL_FRAMES),
        _ if needed <= PAGES_MAX * PAGE_BYTES => {
            (needed.div_ceil(PAGE_BYTES).max(2) * PAGE_BYTES, POOL_FRAMES_LARGE)
        }
        _ => {
            let key = if config.port.mtu_bytes == mtu_bytes { "port.mtu" } else { "underlay.mtu" };
            return Err(RunError::Unsupported {
                key: key.into(),
                problem: format!("packets of {mtu_bytes} bytes do not fit into a frame"),
                remedy: format!("give at most {MTU_BYTES_MAX}"),
            });
        }
    })
}

/// Opens both ports in the calling thread's namespace.
pub(super) fn open<'p>(
    pool: &'p Pool,
    config: &Config,
    operator: &mut impl Operator,
) -> Result<Opened<'p>, RunError> {
    let FoundLinks { plain, under } = find(config)?;
    let ids = tunnel_ids(config);
    let tunnels = TunnelFrames::Tunnels { vxlan_port: config.vxlan_port, ids };
    let (mut fast, mut xdp_sockets) = (None, true);
    let mut is_unfinished = [false; 2];
    let (port, underlay, _silencer) = match (config.engine, &plain) {
        (ForwardEngine::Auto | ForwardEngine::InKernel, Some(plain))
            if let Some((ports, path)) = open_tcx(pool, config, [plain, &under], operator)? =>
        {
            (fast, xdp_sockets) = (Some(path), false);
            let [port, underlay] = ports;
            (port, underlay, None)
        }
        (
            ForwardEngine::Auto | ForwardEngine::InKernel | ForwardEngine::InKernelXdp,
            Some(plain),
        ) if let Some((ports, path)) = open_in_kernel(pool, config, [plain, &under], operator)? => {
            fast = Some(path);
            is_unfinished = [plain, &under].map(may_be_unfinished);
            let [port, underlay] = ports;
            (port, underlay, None)
        }
        (
            ForwardEngine::Auto
            | ForwardEngine::InKernel
            | ForwardEngine::InKernelXdp
            | ForwardEngine::Xdp,
            Some(plain),
        ) => {
            [plain, &under].into_iter().try_for_each(has_no_super_frames)?;
            is_unfinished = [plain, &under].map(may_be_unfinished);
            let port = open_xdp(pool, plain, &config.port, TunnelFrames::All, None, operator)?;
            let underlay =
                open_xdp(pool, &under, &config.underlay, tunnels, Some(&port.rx), operator)?;
            (port, underlay, None)
        }
        (ForwardEngine::Packet, Some(plain)) => {
            let port = open_packet(pool, plain, config)?;
            (port, open_packet(pool, &under, config)?, silencer(config))
        }
        (_, _) => {
            let port = open_tap_port(pool, &config.port.name)?;
            let tap = net::link_named(&config.port.name)?;
            net::set_mtu(tap.index, config.port.mtu_bytes.into())?;
            net::set_up(tap.index, true)?;
            operator.note(&format!("created TAP device {}", tap.name));
            (port, open_packet(pool, &under, config)?, silencer(config))
        }
    };
    xdp_sockets &= !matches!(config.engine, ForwardEngine::Packet | ForwardEngine::Tap);
    let _promiscuous = plain.as_ref().map(promiscuous).transpose()?;
    let slow_paths = if fast.is_some() && !xdp_sockets { tcx_taps() } else { Vec::new() };
    Ok(Opened {
        port,
        underlay,
        xdp_sockets,
        is_unfinished,
        fast,
        slow_paths,
        _silencer,
        _promiscuous,
    })
}

/// Makes the port take frames to the stations behind the tunnels, which a card's filter of addresses would drop.
fn promiscuous(port: &Link) -> Result<Promiscuous, RunError> {
    Promiscuous::new(port.index).map_err(|source| RunError::System {
        what: format!("cannot make {} receive frames to all addresses", port.name),
        source,
    })
}

/// Opens an AF_PACKET port.
fn open_packet<'p>(pool: &'p Pool, link: &Link, config: &Config) -> Result<Port<'p>, RunError> {
    Ok(open_packet_port(pool, link.index, &link.name, config.vxlan_port)?)
}

/// Binds a socket to VXLAN's UDP port. AF_PACKET only copies frames, so without it the host's stack
/// would answer each datagram with ICMP port unreachable.
fn silencer(config: &Config) -> Option<UdpSocket> {
    let (address, port) = (config.underlay.address?, config.vxlan_port);
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // If another process owns the port, that has the same effect.
    UdpSocket::bind((address, port)).or_else(|_| UdpSocket::bind((any, port))).ok()
}

/// Kinds of interfaces at whose other end is a socket of this machine: a container, or a virtual machine.
const LOCAL_KINDS: [&str; 2] = ["veth", "tun"];

/// True if the frames of an interface come from sockets of this machine.
fn is_of_local_senders(link: &Link) -> bool {
    link.kind.as_deref().is_some_and(|kind| LOCAL_KINDS.contains(&kind))
}

/// Opens the ports behind tcx programs that forward by themselves. `None` if the port's frames come from a
/// NIC, or if the host does not support them.
fn open_tcx<'p>(
    pool: &'p Pool,
    config: &Config,
    [plain, under]: [&Link; 2],
    operator: &mut impl Operator,
) -> Result<Option<([Port<'p>; 2], FastPath)>, RunError> {
    if !is_of_local_senders(plain) {
        return Ok(None);
    }
    let interfaces = [(plain, &config.port), (under, &config.underlay)]
        .map(|(link, config)| (link.index, u32::from(config.mtu_bytes)));
    let is_veth = plain.kind.as_deref() == Some("veth");
    let opened = open_tcx_ports(pool, interfaces, is_veth, &fast_spec(config)).and_then(|opened| {
        opened.1.try_attach(XdpMode::Native).map_err(IoError::from)?;
        Ok(opened)
    });
    match opened {
        Ok(opened) => {
            operator.note(&format!(
                "engine in-kernel: tcx programs at {} and {} forward known stations, with the offloads \
                 of local senders; TAP devices carry the rest",
                plain.name, under.name
            ));
            Ok(Some(opened))
        }
        Err(error) => {
            operator.note(&format!("no tcx programs here: {}", host::text::chain(&error)));
            Ok(None)
        }
    }
}

/// Indexes of the devices of [`open_tcx_ports`].
fn tcx_taps() -> Vec<u32> {
    let names = [FastDirection::Into, FastDirection::OutOf].map(tap_name);
    names.iter().filter_map(|name| Some(net::link_named(name).ok()?.index)).collect()
}

/// Constants of the programs.
fn fast_spec(config: &Config) -> FastSpec {
    FastSpec {
        station_count_max: config.fdb.capacity().min(FAST_STATIONS_MAX) as u32,
        // One tag more than the MTU is what the kernel lets a redirected frame have.
        inner_bytes_max: u32::from(config.port.mtu_bytes) + 18,
        vxlan_port: config.vxlan_port,
        ecn: ecn_table(),
        is_unfinished: [false; 2],
    }
}

/// Opens the ports behind XDP programs that forward by themselves. `None` if the host does not
/// support them and the engine was not chosen by the file.
fn open_in_kernel<'p>(
    pool: &'p Pool,
    config: &Config,
    links: [&Link; 2],
    operator: &mut impl Operator,
) -> Result<Option<([Port<'p>; 2], FastPath)>, RunError> {
    let [plain, under] = links;
    links.into_iter().try_for_each(has_no_super_frames)?;
    let mut specs = Vec::with_capacity(2);
    for (link, config) in links.into_iter().zip([&config.port, &config.underlay]) {
        specs.push(port_spec(pool, link, config, TunnelFrames::All)?);
    }
    let [port, underlay] = &specs[..] else { return Ok(None) };
    let fast = FastSpec { is_unfinished: links.map(may_be_unfinished), ..fast_spec(config) };
    let opened = open_fast_ports(pool, [port, underlay], &fast).and_then(|opened| {
        opened.1.try_attach(XdpMode::Native)?;
        Ok(opened)
    });
    match opened {
        Ok(opened) => {
            operator.note(&format!(
                "engine in-kernel: XDP programs at {} and {} forward known stations, AF_XDP the rest",
                plain.name, under.name
            ));
            for link in links.into_iter().filter(|link| is_of_local_senders(link)) {
                operator.note(&format!(
                    "{0} is a {1}: packets of TCP and UDP whose checksums the sockets behind it leave to a \
                     device take the slow path, which finishes them; for the fast path switch that off at \
                     the other end of {0}: ethtool -K PEER tx off",
                    link.name,
                    link.kind.as_deref().unwrap_or_default(),
                ));
            }
            Ok(Some(opened))
        }
        Err(error) if config.engine != ForwardEngine::Auto => Err(RunError::Unsupported {
            key: "engine".into(),
            problem: format!("in-kernel is not possible here: {}", host::text::chain(&error)),
            remedy: "remove the key, or give \"xdp\" or \"packet\"".into(),
        }),
        Err(error) => {
            operator.note(&format!(
                "engine xdp: in-kernel is not possible here: {}",
                host::text::chain(&error)
            ));
            Ok(None)
        }
    }
}

/// True if senders may leave checksums of an interface's frames to a device: sockets of this machine, or of
/// the machine that a virtual card is in.
fn may_be_unfinished(link: &Link) -> bool {
    // One that cannot be read may be one of these.
    link.kind.is_some()
        || ethtool::driver(link.index).map_or(true, |it| it.as_deref() == Some("virtio_net"))
}

/// Refuses an interface out of which super-frames come, for XDP, which takes none.
fn has_no_super_frames(link: &Link) -> Result<(), RunError> {
    if !link.has_offload_header {
        return Ok(());
    }
    Err(RunError::Unsupported {
        key: "engine".into(),
        problem: format!(
            "{} is the TAP device of a virtual machine or the like that hands over super-frames, \
             which XDP does not take",
            link.name
        ),
        remedy:
            "give engine = \"in-kernel\" (Linux 6.6) or \"packet\", or make the device without \
                 offloads (QEMU: -netdev tap,…,vnet_hdr=off)"
                .into(),
    })
}

/// Local ends of all tunnels: the XDP program takes their frames and no others.
pub(super) fn tunnel_ids(config: &Config) -> Vec<TunnelId> {
    let tunnels = config.tunnels.iter().map(|configured| configured.tunnel);
    tunnels.map(|tunnel| TunnelId { local: tunnel.local, carrier: tunnel.carrier.into() }).collect()
}

/// Refuses an interface that would silently drop the largest packets.
fn carries(link: &Link, section: &str, mtu_bytes: u16) -> Result<(), RunError> {
    if link.mtu_bytes >= mtu_bytes.into() {
        return Ok(());
    }
    Err(RunError::Unsupported {
        key: format!("{section}.mtu"),
        problem: format!("{} carries {} bytes, not {mtu_bytes}", link.name, link.mtu_bytes),
        remedy: format!("ip link set {} mtu {mtu_bytes}, or lower it here", link.name),
    })
}

/// Refuses a port whose NIC removes the tags that decide on the broadcast domain. Returns a warning.
pub(super) fn keeps_tags(config: &Config) -> Result<Option<String>, RunError> {
    let has_vlans = config.tunnels.iter().any(|tunnel| tunnel.vlan.is_some());
    if !has_vlans || config.engine == ForwardEngine::Tap {
        return Ok(None);
    }
    let link = net::link_named(&config.port.name)?;
    if link.kind.as_deref() == Some("veth") {
        if matches!(config.engine, ForwardEngine::Auto | ForwardEngine::InKernel) {
            return Ok(None);
        }
        return Ok(Some(format!(
            "{} is a veth: tags that senders at its other end leave to the device are lost; switch that \
             off there: ethtool -K PEER txvlan off",
            link.name
        )));
    }
    let offloads = ethtool::offloads(link.index)?;
    if offloads.get(RX_VLAN).is_some_and(|offload| offload.is_on) {
        return Err(RunError::Unsupported {
            key: "tunnel.vlan".into(),
            problem: format!("{} removes the VLAN tags of received frames", link.name),
            remedy: format!("ethtool -K {} rxvlan off", link.name),
        });
    }
    Ok(None)
}

/// Opens an AF_XDP port in native mode if the driver supports it, else in generic mode.
fn open_xdp<'p>(
    pool: &'p Pool,
    link: &Link,
    config: &InterfaceConfig,
    frames: TunnelFrames,
    first: Option<&PortRx<'p>>,
    operator: &mut impl Operator,
) -> Result<Port<'p>, RunError> {
    let mut spec = port_spec(pool, link, config, frames)?;
    match open_port(pool, &spec, first) {
        Ok(port) => Ok(port),
        Err(error @ IoError::Bpf(_)) => {
            operator.note(&format!(
                "{}: no XDP support in the driver ({}); using generic XDP",
                link.name,
                host::text::chain(&error)
            ));
            spec.mode = XdpMode::Skb;
            let port = open_port(pool, &spec, first)?;
            match (&link.kind, &spec.frames) {
                // GRO leaves an interface's own frames alone then, but not those of a card below.
                (Some(kind), TunnelFrames::All) => Err(RunError::Unsupported {
                    key: "engine".into(),
                    problem: format!(
                        "{} is a {kind} without XDP in its driver, and super-frames come out of it, which \
                         generic XDP does not take",
                        link.name
                    ),
                    remedy: "give engine = \"packet\"".into(),
                }),
                _ => Ok(port),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Receive queues of an interface. Errors: they are more than are supported, or not as many as the file says.
fn queues(link: &Link, config: &InterfaceConfig) -> Result<u32, RunError> {
    // A driver without channels has one queue.
    let queues = ethtool::channels(link.index).map_or(1, |channels| channels.rx_queues().max(1));
    let wanted = config.queues.unwrap_or(queues.min(QUEUES_MAX));
    if wanted != queues {
        return Err(RunError::Unsupported {
            key: format!("the interface {}", link.name),
            problem: format!("it has {queues} receive queues, not {wanted}"),
            remedy: format!("ethtool -L {} combined {wanted} (or rx {wanted})", link.name),
        });
    }
    Ok(queues)
}

/// Specification of an AF_XDP port in native mode, with all receive queues of the interface: its hash
/// spreads flows over all of them.
fn port_spec(
    pool: &Pool,
    link: &Link,
    config: &InterfaceConfig,
    frames: TunnelFrames,
) -> Result<PortSpec, RunError> {
    Ok(PortSpec {
        ifindex: link.index,
        ifname: link.name.clone(),
        queues: queues(link, config)?,
        mode: XdpMode::Native,
        copying: Copying::PreferZeroCopy,
        frames,
        fill_target: if pool.spans_chunks() { FILL_FRAMES_LARGE } else { FILL_FRAMES },
    })
}
