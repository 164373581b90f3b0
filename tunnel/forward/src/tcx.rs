//! Ports whose frames come from sockets of this machine: tcx programs forward known stations, and a pair
//! of TAP devices is the slow path.
//!
//! The devices have no offloads, so the kernel segments super-frames and finishes checksums before a
//! worker reads them. The programs keep the host's own frames away from both. They go with the ports.

use crate::ports::{FastDirection, FastPath, FastSpec, Pool, Port, load_tcx, open_tap_port};
use host::net::{self, NetError};
use io::IoError;

/// Failure to open the ports.
#[derive(Debug, thiserror::Error)]
pub enum TcxError {
    /// A TAP device, or the programs.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A setting of a TAP device.
    #[error(transparent)]
    Net(#[from] NetError),
}

/// Opens the slow path of both interfaces in the calling thread's namespace, and loads the programs. They
/// are not attached yet.
///
/// - `interfaces`: index and MTU of the port, and of the tunnels' interface.
/// - `is_veth`: the port is a veth, which takes super-frames out of tunnels. A TAP device does not.
pub fn open_tcx_ports<'p>(
    pool: &'p Pool,
    interfaces: [(u32, u32); 2],
    is_veth: bool,
    fast: &FastSpec,
) -> Result<([Port<'p>; 2], FastPath), TcxError> {
    let [(port, port_tap), (underlay, underlay_tap)] = [
        open_tap(pool, FastDirection::Into, interfaces[0].1)?,
        open_tap(pool, FastDirection::OutOf, interfaces[1].1)?,
    ];
    let ifindexes = interfaces.map(|(ifindex, _)| ifindex);
    let path = load_tcx(ifindexes, [port_tap, underlay_tap], is_veth, fast)?;
    Ok(([port, underlay], path))
}

/// Name of this process's TAP device that has the frames of a direction.
pub(crate) fn tap_name(direction: FastDirection) -> String {
    let prefix = match direction {
        FastDirection::Into => "wpp",
        FastDirection::OutOf => "wpu",
    };
    format!("{prefix}{}", std::process::id())
}

/// Opens a TAP device of this process. Returns its index, too.
fn open_tap<'p>(
    pool: &'p Pool,
    direction: FastDirection,
    mtu_bytes: u32,
) -> Result<(Port<'p>, u32), TcxError> {
    let name = tap_name(direction);
    let port = open_tap_port(pool, &name)?;
    let ifindex = net::link_named(&name)?.index;
    net::set_mtu(ifindex, mtu_bytes)?;
    net::set_up(ifindex, true)?;
    Ok((port, ifindex))
}
