//! One end of a wire: an interface with an address in a namespace of its own.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::Duration;

use host::net::{self, Mac, VethEnd, ethtool};
use host::tune::ScopedSettings;
use model::PathError;
use sys::netns::Netns;
use sys::sysfs::Sysfs;

use super::error::LabError;

/// An interface of a lab, alone in its namespace.
#[derive(Debug)]
pub struct End {
    pub netns: Netns,
    pub ifname: String,
    /// Index in that namespace; the other end may have the same index.
    pub ifindex: u32,
    /// Index of the interface that has the addresses: this one, or its VLAN device.
    pub ip_ifindex: u32,
    pub mac: Mac,
    /// IPv4 address; unspecified for the middle of a [`super::Triple`], which has none.
    pub ip: Ipv4Addr,
    /// IPv6 address, in a lab that has them.
    pub ipv6: Option<Ipv6Addr>,
    /// Length of the network's prefix in bits.
    pub prefix: u8,
    /// Transmit and receive queues in use at the start.
    pub queues: u32,
    /// MTU in bytes at the start.
    pub mtu_bytes: u32,
}

impl End {
    /// Address of loads: the IPv6 one where the lab has it.
    pub fn load_ip(&self) -> IpAddr {
        self.ipv6.map_or(self.ip.into(), IpAddr::from)
    }

    /// Runs `body` on a thread inside this end's namespace; see [`Netns::run`].
    pub fn run<R: Send>(&self, body: impl FnOnce() -> R + Send) -> Result<R, LabError> {
        Ok(self.netns.run(body)?)
    }

    /// The sysfs of this end's namespace, for settings that only sysfs offers (steering, NAPI).
    pub fn sysfs(&self) -> Result<Sysfs, LabError> {
        Ok(Sysfs::of(&self.netns)?)
    }

    /// Switches an offload on or off, by its ethtool name (see [`ethtool::Feature`]).
    pub fn set_feature(&self, feature: &str, on: bool) -> Result<(), LabError> {
        Ok(self.netns.run(|| ethtool::set_features(self.ifindex, &[(feature, on)]))??)
    }

    /// Sets knobs of all queues until the guard drops. Each is read back, so one without effect is an error.
    pub fn set_knobs(&self, knobs: &[(&str, &str)]) -> Result<ScopedSettings, PathError> {
        let mut scoped = ScopedSettings::new(&self.netns).map_err(PathError::part)?;
        for (knob, value) in knobs {
            scoped.set_all(knob, &self.ifname, value).map_err(PathError::part)?;
        }
        Ok(scoped)
    }

    /// Sets the interface up or down; the other end loses or gains its carrier.
    pub fn set_up(&self, up: bool) -> Result<(), LabError> {
        Ok(self.netns.run(|| net::set_up(self.ifindex, up))??)
    }

    pub fn link(&self) -> Result<net::Link, LabError> {
        Ok(self.netns.run(|| net::link(self.ifindex))??)
    }

    /// Removes the interface, and with it the other end of the wire.
    pub fn delete_link(&self) -> Result<(), LabError> {
        Ok(self.netns.run(|| net::delete(self.ifindex))??)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct EndSpec {
    pub(super) ifname: &'static str,
    pub(super) mac: Mac,
    pub(super) ip: Option<Ipv4Addr>,
    pub(super) ipv6: Option<Ipv6Addr>,
    pub(super) queues: u32,
    pub(super) mtu_bytes: u32,
    pub(super) gro: bool,
    pub(super) tso: bool,
    pub(super) vlan: Option<u16>,
}

/// Prefix length of every lab network.
pub(super) const PREFIX: u8 = 24;
const PREFIX_V6: u8 = 64;

/// Settings of a lab's namespaces.
const SETTINGS: [(&str, &str); 3] = [
    // No router solicitation or multicast report mixes with the measured traffic.
    ("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1"),
    ("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"),
    // A TCP connection of a killed program keeps its namespace until the other end acknowledges its end. If that
    // end's namespace, and with it the wire, has gone first, nothing answers: with the kernel's 8 retries the
    // namespace stayed for over 100 s.
    ("/proc/sys/net/ipv4/tcp_orphan_retries", "1"),
];

/// Creates an empty namespace with loopback up and IPv6 off, that disappears soon after its last process.
pub(super) fn quiet_netns() -> Result<Netns, LabError> {
    let netns = Netns::new()?;
    netns.run(|| {
        for (path, value) in SETTINGS {
            match fs::write(path, value) {
                Ok(()) => {}
                // A kernel without IPv6 sends none either.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(LabError::Sysctl { path: path.into(), source }),
            }
        }
        const LOOPBACK: u32 = 1;
        Ok(net::set_up(LOOPBACK, true)?)
    })??;
    Ok(netns)
}

/// Joins two namespaces by a wire, which is ready to carry traffic on return.
pub(super) fn join(
    one: (&Netns, &EndSpec),
    other: (&Netns, &EndSpec),
) -> Result<[End; 2], LabError> {
    // Created from inside, so that the caller's namespace is not involved.
    one.0.run(|| net::create_veth(&veth_end(one), &veth_end(other)))??;
    let ends = [configure(one)?, configure(other)?];
    for end in &ends {
        wait_until_running(end)?;
    }
    Ok(ends)
}

fn veth_end<'a>((netns, spec): (&'a Netns, &'a EndSpec)) -> VethEnd<'a> {
    VethEnd {
        netns,
        name: spec.ifname,
        mac: spec.mac,
        queues: spec.queues,
        mtu_bytes: spec.mtu_bytes,
    }
}

fn configure((netns, spec): (&Netns, &EndSpec)) -> Result<End, LabError> {
    let (ifindex, ip_ifindex) = netns.run(|| {
        let ifindex = net::link_named(spec.ifname)?.index;
        let (ip_ifname, ip_ifindex) = match spec.vlan {
            Some(vlan) => {
                let name = format!("{}.{vlan}", spec.ifname);
                let index = net::create_vlan(&name, ifindex, vlan)?;
                (name, index)
            }
            None => (spec.ifname.to_owned(), ifindex),
        };
        if let Some(ip) = spec.ip {
            net::add_address(ip_ifindex, ip, PREFIX)?;
        }
        if let Some(ip) = spec.ipv6 {
            enable_ipv6(&ip_ifname)?;
            net::add_address(ip_ifindex, ip, PREFIX_V6)?;
        }
        // Up first: a veth whose GRO is enabled while it is down does not poll, and drops frames
        // that are redirected to it.
        net::set_up(ifindex, true)?;
        net::set_up(ip_ifindex, true)?;
        ethtool::set_features(
            ifindex,
            &[
                (ethtool::Feature::GRO, spec.gro),
                (ethtool::Feature::TSO, spec.tso),
                (ethtool::Feature::UDP_SEGMENTATION, spec.tso),
            ],
        )?;
        Ok::<_, LabError>((ifindex, ip_ifindex))
    })??;
    Ok(End {
        netns: netns.try_clone()?,
        ifname: spec.ifname.to_owned(),
        ifindex,
        ip_ifindex,
        mac: spec.mac,
        ip: spec.ip.unwrap_or(Ipv4Addr::UNSPECIFIED),
        ipv6: spec.ipv6,
        prefix: if spec.ip.is_some() { PREFIX } else { 0 },
        queues: spec.queues,
        mtu_bytes: spec.mtu_bytes,
    })
}

/// Enables IPv6 on an interface of a quiet namespace, without addresses and solicitations of the kernel's own.
fn enable_ipv6(ifname: &str) -> Result<(), LabError> {
    // Last the one that starts it.
    let settings = [
        ("addr_gen_mode", "1"),
        ("router_solicitations", "0"),
        ("accept_ra", "0"),
        ("disable_ipv6", "0"),
    ];
    settings.into_iter().try_for_each(|(name, value)| {
        let path = format!("/proc/sys/net/ipv6/conf/{ifname}/{name}");
        fs::write(&path, value).map_err(|source| LabError::Sysctl { path, source })
    })
}

/// True once packets to the IPv6 address of an end are its own, or if it has none: the kernel enters that
/// route in the background.
fn has_ipv6_route(end: &End) -> Result<bool, LabError> {
    let Some(ip) = end.ipv6 else { return Ok(true) };
    Ok(end.run(|| net::route_to(ip))?.is_ok_and(|route| route.ifindex != end.ip_ifindex))
}

/// Waits until the interface can send. The carrier is up at once, but until the kernel's link watch
/// has run, the interface has no queueing discipline and drops packets.
fn wait_until_running(end: &End) -> Result<(), LabError> {
    for _ in 0..10_000 {
        if end.link()?.is_running && has_ipv6_route(end)? {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(LabError::NoCarrier { ifname: end.ifname.clone() })
}
