//! Opening what a configuration names.

use std::net::UdpSocket;

use host::net::{self, Link, NetError, ethtool};
use io::forward::{
    HEADROOM_BYTES, Pool, Port, PortRx, PortSpec, TunnelFrames, open_packet_port, open_port,
    open_tap_port,
};
use io::{Copying, IoError, XdpMode};

use super::{Operator, RunError, silencer};
use crate::tunnel::config::{Config, Engine};
use crate::tunnel::encap::HEADERS_BYTES_MAX;
use crate::tunnel::spec::Carrier;

/// Frames of the pool: for two ports with full rings either way, and for the workers.
const POOL_FRAMES: u32 = 16_384;
const FILL_FRAMES: u32 = 2048;

/// Both ports, and what goes with them.
pub(super) struct Opened<'p> {
    pub(super) port: Port<'p>,
    pub(super) underlay: Port<'p>,
    /// MAC address that tunnels are sent from.
    pub(super) under_mac: net::Mac,
    pub(super) xdp_sockets: bool,
    pub(super) _silencer: Option<UdpSocket>,
}

/// Frames large enough for both MTUs.
pub(super) fn pool(config: &Config) -> Result<Pool, RunError> {
    let mtu_bytes = config.port.mtu_bytes.max(config.underlay.mtu_bytes);
    // Two tags beside the Ethernet header.
    let needed = HEADROOM_BYTES.max(HEADERS_BYTES_MAX) + usize::from(mtu_bytes) + 22;
    let frame_bytes = match needed {
        ..=2048 => 2048,
        2049..=4096 => 4096,
        _ => {
            return Err(RunError::Unsupported {
                key: "underlay.mtu".into(),
                problem: format!("packets of {mtu_bytes} bytes do not fit a frame of 4096"),
                remedy: format!("give at most {}", 4096 - HEADROOM_BYTES - 22),
            });
        }
    };
    Pool::allocate(frame_bytes, POOL_FRAMES)
        .map_err(|source| RunError::System { what: "allocating the frames".into(), source })
}

/// Opens both ports in the calling thread's namespace.
pub(super) fn open<'p>(
    pool: &'p Pool,
    config: &Config,
    operator: &mut impl Operator,
) -> Result<Opened<'p>, RunError> {
    let under = net::link_named(&config.underlay.name)?;
    let under_mac = under
        .mac
        .ok_or_else(|| NetError::NotEthernet { interface: config.underlay.name.clone() })?;
    let gre = config.tunnels.iter().any(|t| matches!(t.tunnel.carrier, Carrier::Gretap { .. }));
    let tunnels = TunnelFrames::Tunnels { vxlan_port: config.vxlan_port, gre };
    let silencer =
        || config.underlay.address.and_then(|address| silencer(address, config.vxlan_port));
    let (port, underlay, _silencer) = match config.engine {
        Engine::Xdp => {
            let plain = net::link_named(&config.port.name)?;
            let port = open_xdp(pool, &plain, TunnelFrames::All, None, operator)?;
            let underlay = open_xdp(pool, &under, tunnels, Some(&port.rx), operator)?;
            (port, underlay, None)
        }
        Engine::Packet => {
            let plain = net::link_named(&config.port.name)?;
            let port = open_packet_port(pool, plain.index, &plain.name)?;
            (port, open_packet_port(pool, under.index, &under.name)?, silencer())
        }
        Engine::Tap => {
            let port = open_tap_port(pool, &config.port.name)?;
            let tap = net::link_named(&config.port.name)?;
            net::set_mtu(tap.index, config.port.mtu_bytes.into())?;
            net::set_up(tap.index, true)?;
            operator.note(&format!("made the TAP device {}", tap.name));
            (port, open_packet_port(pool, under.index, &under.name)?, silencer())
        }
    };
    let xdp_sockets = config.engine == Engine::Xdp;
    Ok(Opened { port, underlay, under_mac, xdp_sockets, _silencer })
}

/// In the driver where that can be had, else in front of the stack.
fn open_xdp<'p>(
    pool: &'p Pool,
    link: &Link,
    frames: TunnelFrames,
    first: Option<&PortRx<'p>>,
    operator: &mut impl Operator,
) -> Result<Port<'p>, RunError> {
    // A driver without channels has one queue.
    let queues = ethtool::channels(link.index).map_or(1, |channels| channels.rx_queues().max(1));
    if queues > 1 {
        return Err(RunError::Unsupported {
            key: format!("the interface {}", link.name),
            problem: format!("it has {queues} receive queues, and one is served"),
            remedy: format!("ethtool -L {} combined 1 (or rx 1 tx 1)", link.name),
        });
    }
    let mut spec = PortSpec {
        ifindex: link.index,
        ifname: link.name.clone(),
        queue: 0,
        queues,
        mode: XdpMode::Native,
        copying: Copying::PreferZeroCopy,
        frames,
        fill_target: FILL_FRAMES,
    };
    match open_port(pool, &spec, first) {
        Ok(port) => Ok(port),
        Err(error @ IoError::Bpf(_)) => {
            operator.note(&format!(
                "{}: no XDP in the driver ({}); in front of the stack instead",
                link.name,
                crate::text::chain(&error)
            ));
            spec.mode = XdpMode::Skb;
            Ok(open_port(pool, &spec, first)?)
        }
        Err(error) => Err(error.into()),
    }
}
