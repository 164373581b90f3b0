//! Opens the interfaces of a configuration.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use host::net::{self, Link, ethtool};
use io::forward::{
    FastPath, FastSpec, HEADROOM_BYTES, Pool, Port, PortRx, PortSpec, TunnelFrames, TunnelId,
    open_fast_ports, open_packet_port, open_port, open_tap_port,
};
use io::{Copying, IoError, XdpMode};

use super::{Operator, RunError};
use crate::config::{Config, Engine, Interface};
use crate::encap::HEADERS_BYTES_MAX;
use crate::forwarder::ecn_table;
use crate::tcx::open_tcx_ports;

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
    pub(super) fast: Option<FastPath>,
    pub(super) _silencer: Option<UdpSocket>,
}

/// Allocates a pool of frames large enough for both MTUs.
pub(super) fn pool(config: &Config) -> Result<Pool, RunError> {
    let mtu_bytes = config.port.mtu_bytes.max(config.underlay.mtu_bytes);
    let needed = HEADROOM_BYTES.max(HEADERS_BYTES_MAX) + usize::from(mtu_bytes) + LINK_BYTES;
    // Frames that do not fit a page with its tail arrive in several buffers.
    let (frame_bytes, frame_count) = match (needed + TAIL_BYTES).div_ceil(PAGE_BYTES) {
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
    };
    Pool::allocate(frame_bytes as u32, frame_count)
        .map_err(|source| RunError::System { what: "cannot allocate frames".into(), source })
}

/// Opens both ports in the calling thread's namespace.
pub(super) fn open<'p>(
    pool: &'p Pool,
    config: &Config,
    operator: &mut impl Operator,
) -> Result<Opened<'p>, RunError> {
    let under = net::link_named(&config.underlay.name)?;
    carries(&under, "underlay", config.underlay.mtu_bytes)?;
    let ids = tunnel_ids(config);
    let tunnels = TunnelFrames::Tunnels { vxlan_port: config.vxlan_port, ids };
    let (mut fast, mut xdp_sockets) = (None, true);
    let (port, underlay, _silencer) = match config.engine {
        Engine::Auto | Engine::InKernel
            if let Some((ports, path)) = open_tcx(pool, config, &under, operator)? =>
        {
            (fast, xdp_sockets) = (Some(path), false);
            let [port, underlay] = ports;
            (port, underlay, None)
        }
        Engine::Auto | Engine::InKernel | Engine::InKernelXdp
            if let Some((ports, path)) = open_in_kernel(pool, config, &under, operator)? =>
        {
            fast = Some(path);
            let [port, underlay] = ports;
            (port, underlay, None)
        }
        Engine::Auto | Engine::InKernel | Engine::InKernelXdp | Engine::Xdp => {
            let plain = net::link_named(&config.port.name)?;
            carries(&plain, "port", config.port.mtu_bytes)?;
            let port = open_xdp(pool, &plain, &config.port, TunnelFrames::All, None, operator)?;
            let underlay =
                open_xdp(pool, &under, &config.underlay, tunnels, Some(&port.rx), operator)?;
            (port, underlay, None)
        }
        Engine::Packet => {
            let plain = net::link_named(&config.port.name)?;
            carries(&plain, "port", config.port.mtu_bytes)?;
            let port = open_packet_port(pool, plain.index, &plain.name)?;
            (port, open_packet_port(pool, under.index, &under.name)?, silencer(config))
        }
        Engine::Tap => {
            let port = open_tap_port(pool, &config.port.name)?;
            let tap = net::link_named(&config.port.name)?;
            net::set_mtu(tap.index, config.port.mtu_bytes.into())?;
            net::set_up(tap.index, true)?;
            operator.note(&format!("created TAP device {}", tap.name));
            (port, open_packet_port(pool, under.index, &under.name)?, silencer(config))
        }
    };
    xdp_sockets &= !matches!(config.engine, Engine::Packet | Engine::Tap);
    Ok(Opened { port, underlay, xdp_sockets, fast, _silencer })
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
    under: &Link,
    operator: &mut impl Operator,
) -> Result<Option<([Port<'p>; 2], FastPath)>, RunError> {
    let plain = net::link_named(&config.port.name)?;
    if !is_of_local_senders(&plain) {
        return Ok(None);
    }
    carries(&plain, "port", config.port.mtu_bytes)?;
    let interfaces = [(&plain, &config.port), (under, &config.underlay)]
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

/// Constants of the programs.
fn fast_spec(config: &Config) -> FastSpec {
    FastSpec {
        station_count_max: config.fdb.entry_count_max.min(FAST_STATIONS_MAX) as u32,
        // One tag more than the MTU is what the kernel lets a redirected frame have.
        inner_bytes_max: u32::from(config.port.mtu_bytes) + 18,
        vxlan_port: config.vxlan_port,
        ecn: ecn_table(),
    }
}

/// Opens the ports behind XDP programs that forward by themselves. `None` if the host does not
/// support them and the engine was not chosen by the file.
fn open_in_kernel<'p>(
    pool: &'p Pool,
    config: &Config,
    under: &Link,
    operator: &mut impl Operator,
) -> Result<Option<([Port<'p>; 2], FastPath)>, RunError> {
    let plain = net::link_named(&config.port.name)?;
    carries(&plain, "port", config.port.mtu_bytes)?;
    let links = [&plain, under];
    let mut specs = Vec::with_capacity(2);
    for (link, config) in links.into_iter().zip([&config.port, &config.underlay]) {
        specs.push(spec_of(pool, link, config, TunnelFrames::All)?);
    }
    let [port, underlay] = &specs[..] else { return Ok(None) };
    let opened = open_fast_ports(pool, [port, underlay], &fast_spec(config)).and_then(|opened| {
        opened.1.try_attach(XdpMode::Native)?;
        Ok(opened)
    });
    match opened {
        Ok(opened) => {
            operator.note(&format!(
                "engine in-kernel: XDP programs at {} and {} forward known stations, AF_XDP the rest",
                plain.name, under.name
            ));
            for link in links.into_iter().filter(|link| link.kind.as_deref() == Some("veth")) {
                operator.note(&unfinished(&link.name));
            }
            Ok(Some(opened))
        }
        Err(error) if config.engine != Engine::Auto => Err(RunError::Unsupported {
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

/// Warning for an interface whose senders leave checksums to a NIC.
fn unfinished(ifname: &str) -> String {
    format!(
        "{ifname} is a veth: frames of sockets at its other end may have unfinished checksums, which \
         are forwarded as they are; switch that off there: ethtool -K PEER tx off"
    )
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

/// Refuses a port whose NIC removes the tags that decide on the broadcast domain.
pub(super) fn keeps_tags(config: &Config, operator: &mut impl Operator) -> Result<(), RunError> {
    let has_vlans = config.tunnels.iter().any(|tunnel| tunnel.vlan.is_some());
    if !has_vlans || config.engine == Engine::Tap {
        return Ok(());
    }
    let link = net::link_named(&config.port.name)?;
    if link.kind.as_deref() == Some("veth") {
        if matches!(config.engine, Engine::Auto | Engine::InKernel) {
            return Ok(());
        }
        operator.note(&format!(
            "{} is a veth: tags that senders at its other end leave to the device are lost; switch that \
             off there: ethtool -K PEER txvlan off",
            link.name
        ));
        return Ok(());
    }
    let offloads = ethtool::offloads(link.index)?;
    if offloads.get(RX_VLAN).is_some_and(|offload| offload.is_on) {
        return Err(RunError::Unsupported {
            key: "tunnel.vlan".into(),
            problem: format!("{} removes the VLAN tags of received frames", link.name),
            remedy: format!("ethtool -K {} rxvlan off", link.name),
        });
    }
    Ok(())
}

/// Opens an AF_XDP port in native mode if the driver supports it, else in generic mode.
fn open_xdp<'p>(
    pool: &'p Pool,
    link: &Link,
    config: &Interface,
    frames: TunnelFrames,
    first: Option<&PortRx<'p>>,
    operator: &mut impl Operator,
) -> Result<Port<'p>, RunError> {
    let mut spec = spec_of(pool, link, config, frames)?;
    match open_port(pool, &spec, first) {
        Ok(port) => Ok(port),
        Err(error @ IoError::Bpf(_)) => {
            operator.note(&format!(
                "{}: no XDP support in the driver ({}); using generic XDP",
                link.name,
                host::text::chain(&error)
            ));
            spec.mode = XdpMode::Skb;
            Ok(open_port(pool, &spec, first)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Specification of an AF_XDP port in native mode, with all receive queues of the interface: its hash
/// spreads flows over all of them.
///
/// Errors: they are more than are supported, or not as many as the file says.
fn spec_of(
    pool: &Pool,
    link: &Link,
    config: &Interface,
    frames: TunnelFrames,
) -> Result<PortSpec, RunError> {
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
    Ok(PortSpec {
        ifindex: link.index,
        ifname: link.name.clone(),
        queues,
        mode: XdpMode::Native,
        copying: Copying::PreferZeroCopy,
        frames,
        fill_target: if pool.spans_chunks() { FILL_FRAMES_LARGE } else { FILL_FRAMES },
    })
}
