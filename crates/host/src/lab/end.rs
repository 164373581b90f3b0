//! One end of a wire: an interface with an address, alone in its namespace.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use sys::netns::Netns;
use sys::sysfs::Sysfs;

use super::error::LabError;
use crate::net::{self, Mac, VethEnd, ethtool};

/// An interface of a lab, in a namespace of its own.
#[derive(Debug)]
pub struct End {
    /// Namespace that it is in.
    pub netns: Netns,
    /// Name in that namespace.
    pub ifname: String,
    /// Index in that namespace; the other end may well have the same.
    pub ifindex: u32,
    /// MAC address.
    pub mac: Mac,
    /// IPv4 address; unspecified for the middle of a [`super::Triple`], which has none.
    pub ip: Ipv4Addr,
    /// Length of the network's prefix in bits.
    pub prefix: u8,
    /// Transmit and receive queues in use at the start.
    pub queues: u32,
    /// MTU in bytes at the start.
    pub mtu_bytes: u32,
}

impl End {
    /// Runs `body` on a thread inside this end's namespace; see [`Netns::run`].
    pub fn run<R: Send>(&self, body: impl FnOnce() -> R + Send) -> Result<R, LabError> {
        Ok(self.netns.run(body)?)
    }

    /// The sysfs that shows this end, for what only it offers (steering, NAPI settings).
    pub fn sysfs(&self) -> Result<Sysfs, LabError> {
        Ok(Sysfs::of(&self.netns)?)
    }

    /// Switches an offload on or off, by its ethtool name (see [`ethtool::Feature`]).
    pub fn set_feature(&self, feature: &str, on: bool) -> Result<(), LabError> {
        Ok(self.netns.run(|| ethtool::set_features(self.ifindex, &[(feature, on)]))??)
    }

    /// Sets the interface up or down; the other end loses or gains its carrier.
    pub fn set_up(&self, up: bool) -> Result<(), LabError> {
        Ok(self.netns.run(|| net::set_up(self.ifindex, up))??)
    }

    /// The interface as the kernel describes it now.
    pub fn link(&self) -> Result<net::Link, LabError> {
        Ok(self.netns.run(|| net::link(self.ifindex))??)
    }

    /// Removes the interface, and with it the other end of the wire.
    pub fn delete_link(&self) -> Result<(), LabError> {
        Ok(self.netns.run(|| net::delete(self.ifindex))??)
    }
}

/// What an end of a lab is to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndSpec {
    pub(super) ifname: &'static str,
    pub(super) mac: Mac,
    pub(super) ip: Option<Ipv4Addr>,
    pub(super) queues: u32,
    pub(super) mtu_bytes: u32,
    pub(super) gro: bool,
    pub(super) tso: bool,
}

/// Length of the prefix of every lab network.
pub(super) const PREFIX: u8 = 24;

/// An empty namespace that stays silent: loopback up, IPv6 off, so that no router
/// solicitation or multicast report mixes with what is measured.
pub(super) fn quiet_netns() -> Result<Netns, LabError> {
    let netns = Netns::new()?;
    netns.run(|| {
        for path in [
            "/proc/sys/net/ipv6/conf/all/disable_ipv6",
            "/proc/sys/net/ipv6/conf/default/disable_ipv6",
        ] {
            match fs::write(path, "1") {
                Ok(()) => {}
                // A kernel without IPv6 is as silent.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(LabError::Sysctl { path: path.into(), source }),
            }
        }
        const LOOPBACK: u32 = 1;
        Ok(net::set_up(LOOPBACK, true)?)
    })??;
    Ok(netns)
}

/// Joins two namespaces by a wire that is ready to carry traffic.
pub(super) fn join(
    one: (&Netns, &EndSpec),
    other: (&Netns, &EndSpec),
) -> Result<[End; 2], LabError> {
    let veth = |(netns, spec): (_, &EndSpec)| VethEnd {
        netns,
        name: spec.ifname,
        mac: spec.mac,
        queues: spec.queues,
        mtu_bytes: spec.mtu_bytes,
    };
    // Asked for from inside, the caller's namespace is not involved.
    one.0.run(|| net::create_veth(&veth(one), &veth(other)))??;
    let ends = [configure(one)?, configure(other)?];
    for end in &ends {
        wait_until_running(end)?;
    }
    Ok(ends)
}

fn configure((netns, spec): (&Netns, &EndSpec)) -> Result<End, LabError> {
    let ifindex = netns.run(|| {
        let ifindex = net::link_named(spec.ifname)?.index;
        if let Some(ip) = spec.ip {
            net::add_address(ifindex, ip, PREFIX)?;
        }
        // Up first: a veth whose GRO is switched on while it is down does not poll, and drops
        // the frames that are redirected to it.
        net::set_up(ifindex, true)?;
        ethtool::set_features(
            ifindex,
            &[
                (ethtool::Feature::GRO, spec.gro),
                (ethtool::Feature::TSO, spec.tso),
                (ethtool::Feature::UDP_SEGMENTATION, spec.tso),
            ],
        )?;
        Ok::<_, LabError>(ifindex)
    })??;
    Ok(End {
        netns: netns.try_clone()?,
        ifname: spec.ifname.to_owned(),
        ifindex,
        mac: spec.mac,
        ip: spec.ip.unwrap_or(Ipv4Addr::UNSPECIFIED),
        prefix: if spec.ip.is_some() { PREFIX } else { 0 },
        queues: spec.queues,
        mtu_bytes: spec.mtu_bytes,
    })
}

/// The carrier comes at once, but until the kernel's link watch has run, the interface has
/// no queueing discipline yet and drops what is sent.
fn wait_until_running(end: &End) -> Result<(), LabError> {
    for _ in 0..1000 {
        if end.link()?.is_running {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(LabError::NoCarrier { ifname: end.ifname.clone() })
}
