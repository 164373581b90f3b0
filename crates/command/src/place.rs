//! Places of client and server: a lab, two existing namespaces, or this host and another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::net;
use host::netns::Netns;
use host::sysfs::Sysfs;
use host::tune::Place as Named;
use lab::{DistantPair, FarEnd, Pair, PairSpec, WireTrials};
use model::{PathError, WireSpec};

use crate::CheckedPrograms;
use crate::middle::Middles;
use crate::remote::{Remote, Role};
use crate::side::{Address, Side, SideAddresses, addresses};
use crate::spec::SharedPlace;
use crate::variables::WireEnd;

/// Place of the server.
pub(crate) enum FarPlace {
    /// On this host.
    Here(Side),
    There(Box<Remote>),
}

/// Both ends of the wire.
pub(crate) struct Place {
    pub(crate) near: Side,
    pub(crate) far: FarPlace,
    /// Places between the ends.
    pub(crate) middle: Middles,
    /// True if both disappear with this process.
    pub(crate) is_lab: bool,
    /// Wire with distance of a lab.
    pub(crate) wire: Option<WireTrials>,
    /// For the record.
    pub(crate) nic: String,
}

impl Place {
    /// - `stop`: ends an exchange with another host.
    pub(crate) fn open(
        spec: &CheckedPrograms,
        stop: &'static AtomicBool,
    ) -> Result<Self, PathError> {
        match &spec.place {
            Some(SharedPlace::Here) => {
                return Place::shared(Side::here()?, true, "none: programs of this host".into());
            }
            Some(SharedPlace::Existing { netns, interface }) => {
                let side =
                    Side::existing(open(netns.as_deref())?, netns.clone(), interface.as_deref())?;
                let nic = self::interface(&side);
                return Place::shared(side, false, nic);
            }
            Some(SharedPlace::Loopback) => {
                let netns = lab::loopback().map_err(PathError::part)?;
                forget_closed_connections(&netns)?;
                return Place::shared(
                    Side::loopback(netns)?,
                    true,
                    "loopback of one namespace".into(),
                );
            }
            None => {}
        }
        let middle = Middles::open(spec, stop)?;
        let is_routed = !spec.middle.is_empty();
        let place = match (&spec.near, &spec.far) {
            (None, None) => Place::lab(spec.queues, spec.wire.as_ref()),
            (near, Some(FarEnd::Ssh(host))) => {
                let far = Remote::start(spec, host, Role::Server, stop)?;
                Place::with_host(near.as_deref(), far, spec)
            }
            (near, Some(FarEnd::Netns(far))) => {
                Place::existing(near.as_deref(), Some(far), is_routed, stop)
            }
            (near, None) => Place::existing(near.as_deref(), None, is_routed, stop),
            (_, Some(peer @ FarEnd::Peer(_))) => Err(PathError::Invalid {
                what: format!("{peer} runs no programs of the user"),
                remedy: "use ssh:[USER@]HOST".into(),
            }),
        }?;
        let mut nic = place.nic;
        if is_routed {
            nic = format!("{nic}, by {}", middle.names().join(", "));
        }
        let mut place = Place { middle, nic, ..place };
        place.open_far_places(spec)?;
        Ok(place)
    }

    /// Opens the places between the ends that are on other hosts.
    fn open_far_places(&mut self, spec: &CheckedPrograms) -> Result<(), PathError> {
        let (near, far) = (self.near.wire_end(), self.far.wire_end());
        let mut hosts = self.middle.there.iter_mut();
        hosts.try_for_each(|place| place.host.open(spec, near.clone(), far.clone()))
    }

    /// One place for both ends.
    fn shared(near: Side, is_lab: bool, nic: String) -> Result<Self, PathError> {
        let far = FarPlace::Here(near.other_end()?);
        Ok(Place { near, far, middle: Middles::default(), is_lab, wire: None, nic })
    }

    /// A namespace of this host, and a far end on another.
    fn with_host(
        near: Option<&str>,
        mut far: Remote,
        spec: &CheckedPrograms,
    ) -> Result<Self, PathError> {
        let (netns, address) = (open(near)?, far.address());
        let found = netns.run(|| {
            let route = net::route_to(address)?;
            Ok::<_, net::NetError>((net::link(route.ifindex)?, route.source))
        });
        let (link, ip) = found.map_err(PathError::part)?.map_err(PathError::part)?;
        if link.is_loopback {
            return Err(PathError::Invalid {
                what: format!("{address} is an address of this host"),
                remedy: "name another host, or two namespaces with --near and --far".into(),
            });
        }
        let sysfs = Sysfs::of(&netns).map_err(PathError::part)?;
        let name = near.map(str::to_owned);
        let (sysfs, is_shared) = (Some(sysfs), false);
        let near = Side { netns, name, ifname: link.name, ip, sysfs, is_shared };
        let far_end = far.wire_end();
        far.open(spec, near.wire_end(), far_end)?;
        let nic = format!("{} to {address}", near.describe()?);
        let far = FarPlace::There(Box::new(far));
        Ok(Place { near, far, middle: Middles::default(), is_lab: false, wire: None, nic })
    }

    /// Two namespaces of a lab, with the interface's defaults of the kernel.
    fn lab(queues: u32, wire: Option<&WireSpec>) -> Result<Self, PathError> {
        let spec = PairSpec { queues, ..PairSpec::default() };
        let plural = if queues == 1 { "queue" } else { "queues" };
        let mut nic = format!("veth pair, {queues} {plural}, MTU 1500");
        let (pair, wire) = match wire {
            None => (Pair::new(&spec).map_err(PathError::part)?, None),
            Some(wire) => {
                nic = format!("{nic}, {wire}");
                let DistantPair { ends, wire } =
                    DistantPair::new(&spec, wire).map_err(PathError::part)?;
                (ends, Some(WireTrials::new(wire)))
            }
        };
        let far = FarPlace::Here(lab_side(pair.far)?);
        let near = lab_side(pair.near)?;
        Ok(Place { near, far, middle: Middles::default(), is_lab: true, wire, nic })
    }

    /// Namespaces of the user; one that is not named is that of the caller.
    ///
    /// - `is_routed`: routers may be between them.
    fn existing(
        near: Option<&str>,
        far: Option<&str>,
        is_routed: bool,
        stop: &AtomicBool,
    ) -> Result<Self, PathError> {
        let (near_netns, far_netns) = (open(near)?, open(far)?);
        let same = near_netns.inode().map_err(PathError::part)?;
        if same == far_netns.inode().map_err(PathError::part)? {
            return Err(PathError::Invalid {
                what: "near and far end are the same namespace".into(),
                remedy: "name two that a wire joins, or neither for a lab".into(),
            });
        }
        let found = wire(&near_netns, &far_netns, is_routed, stop)?;
        let wire = found.ok_or_else(|| PathError::Invalid {
            what: if is_routed { UNREACHED } else { UNREACHED_DIRECTLY }.into(),
            remedy: "name two namespaces that a wire joins, with addresses of one network that are not of the \
                     link alone (fe80::): `ip -n NAME address`"
                .into(),
        })?;
        let near = existing_side(near_netns, near, wire.0)?;
        let far = existing_side(far_netns, far, wire.1)?;
        let nic = format!("{} to {}", interface(&near), interface(&far));
        let far = FarPlace::Here(far);
        Ok(Place { near, far, middle: Middles::default(), is_lab: false, wire: None, nic })
    }
}

impl FarPlace {
    fn wire_end(&self) -> WireEnd {
        match self {
            FarPlace::Here(side) => side.wire_end(),
            FarPlace::There(remote) => remote.wire_end(),
        }
    }
}

fn lab_side(end: lab::End) -> Result<Side, PathError> {
    forget_closed_connections(&end.netns)?;
    let sysfs = end.sysfs().map_err(PathError::part)?;
    let (ip, sysfs) = (end.ip.into(), Some(sysfs));
    Ok(Side { netns: end.netns, name: None, ifname: end.ifname, ip, sysfs, is_shared: false })
}

fn existing_side(
    netns: Netns,
    name: Option<&str>,
    (ifname, ip): Address,
) -> Result<Side, PathError> {
    let sysfs = Sysfs::of(&netns).map_err(PathError::part)?;
    let (name, sysfs) = (name.map(str::to_owned), Some(sysfs));
    Ok(Side { netns, name, ifname, ip, sysfs, is_shared: false })
}

/// The interface of a side with its namespace.
fn interface(side: &Side) -> String {
    match &side.name {
        Some(name) => format!("{} of namespace {name}", side.ifname),
        None => side.ifname.clone(),
    }
}

fn open(name: Option<&str>) -> Result<Netns, PathError> {
    let named = Named { netns: name.map(str::to_owned), root: None };
    Netns::open(named.netns_file()).map_err(PathError::part)
}

const UNREACHED: &str = "no address of the far namespace is reached from the near one";
const UNREACHED_DIRECTLY: &str =
    "no address of the far namespace is reached from the near one without a router";

/// Time for an interface that is up to get its carrier and its addresses: detection of duplicates takes IPv6 one
/// to two seconds, and a switch's port longer.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(10);
const ADDRESS_INTERVAL: Duration = Duration::from_millis(50);

/// The first far address that the near namespace reaches directly, or by routers if there may be any, and the near interface that leads
/// there. Waits for interfaces that are up and have no carrier or no usable address yet.
fn wire(
    near: &Netns,
    far: &Netns,
    is_routed: bool,
    stop: &AtomicBool,
) -> Result<Option<(Address, Address)>, PathError> {
    let until = Instant::now() + ADDRESS_TIMEOUT;
    loop {
        let (own, candidates) = (addresses_in(near)?, addresses_in(far)?);
        let is_complete = !own.is_incomplete && !candidates.is_incomplete;
        let found = wire_between(near, &own.found, candidates.found, is_routed)?;
        let is_over = is_complete || Instant::now() > until || stop.load(Ordering::Relaxed);
        if found.is_some() || is_over {
            return Ok(found);
        }
        std::thread::sleep(ADDRESS_INTERVAL);
    }
}

fn addresses_in(netns: &Netns) -> Result<SideAddresses, PathError> {
    netns.run(addresses).map_err(PathError::part)?.map_err(PathError::part)
}

fn wire_between(
    near: &Netns,
    own: &[Address],
    candidates: Vec<Address>,
    is_routed: bool,
) -> Result<Option<(Address, Address)>, PathError> {
    for candidate in candidates {
        let route = near.run(|| {
            let route = net::route_to(candidate.1)?;
            Ok::<_, net::NetError>((route.gateway, net::link(route.ifindex)?.name))
        });
        // No route leads there: the next address may have one.
        let Ok((gateway, ifname)) = route.map_err(PathError::part)? else { continue };
        if gateway.is_some() && !is_routed {
            continue;
        }
        if let Some((_, ip)) =
            own.iter().find(|(name, ip)| *name == ifname && ip.is_ipv4() == candidate.1.is_ipv4())
        {
            return Ok(Some(((ifname, *ip), candidate)));
        }
    }
    Ok(None)
}

/// Lets a server that does not set SO_REUSEADDR bind its port again at once: closed connections leave no
/// socket in TIME_WAIT.
///
/// Source: Documentation/networking/ip-sysctl.rst, tcp_max_tw_buckets.
fn forget_closed_connections(netns: &Netns) -> Result<(), PathError> {
    const LIMIT_FILE: &str = "/proc/sys/net/ipv4/tcp_max_tw_buckets";
    match netns.run(|| std::fs::write(LIMIT_FILE, "0")).map_err(PathError::part)? {
        // Where the limit is the host's alone, a server has to set SO_REUSEADDR.
        Ok(()) | Err(_) => Ok(()),
    }
}
