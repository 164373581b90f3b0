//! Both ends of the trials: a lab, or this host and an exchange at a far end.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use host::net::{self, ethtool};
use lab::{End, FarEnd, Pair, PairSpec, describe_nic};
use model::{Load, PathError, TwoHosts};
use remote::FarOptions;
use sys::netns::Netns;

use super::accounting::Place;
use super::exchange::{FarExchange, QUOTE_COUNT_MAX};
use super::interrupts::DeviceInterrupts;

/// Multicast group of the quotes. Administratively scoped, so that no router of a real network carries it and
/// no exchange uses it.
///
/// Source: RFC 2365 section 6.1.
pub(super) const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 255, 100, 100), 10_000);

/// Both ends.
pub(super) enum World {
    /// The exchange is at the near end, the receiver at the far end.
    Lab(Pair),
    TwoEnds(Box<TwoEnds>),
}

/// A receiver on an interface of this host, and an exchange at a far end.
pub(super) struct TwoEnds {
    pub(super) exchange: FarExchange,
    receiver: End,
    nic: String,
    interrupts: Option<DeviceInterrupts>,
    /// Receive queue of the receiver; `None` for all.
    queue: Option<u32>,
    cpu: Option<usize>,
}

/// The exchange of a trial.
pub(super) enum Exchange<'a> {
    Here(&'a End),
    Far(&'a mut FarExchange),
}

/// CPUs of the ends on this machine.
#[derive(Debug, Clone)]
pub(super) struct Cpus {
    /// CPUs that this process may use.
    pub(super) count: usize,
    /// `None` if the exchange is elsewhere.
    pub(super) exchange: Option<usize>,
    /// CPU to which `pin` moves the receiver.
    pub(super) receiver: Option<usize>,
}

impl World {
    pub(super) fn open(load: &Load) -> Result<Self, PathError> {
        match &load.far {
            None => Ok(World::Lab(Pair::new(&PairSpec::default()).map_err(PathError::part)?)),
            Some(two) => Ok(World::TwoEnds(Box::new(TwoEnds::open(load, two)?))),
        }
    }

    pub(super) fn receiver(&self) -> &End {
        match self {
            World::Lab(pair) => &pair.far,
            World::TwoEnds(two) => &two.receiver,
        }
    }

    pub(super) fn ends(&mut self) -> (&End, Exchange<'_>) {
        match self {
            World::Lab(pair) => (&pair.far, Exchange::Here(&pair.near)),
            World::TwoEnds(two) => (&two.receiver, Exchange::Far(&mut two.exchange)),
        }
    }

    pub(super) fn place(&self) -> Place {
        match self {
            World::Lab(_) => Place::LAB,
            World::TwoEnds(two) => Place { end: "near", has_one_clock: two.exchange.is_here },
        }
    }

    /// Receive queue of the receiver; `None` for a socket on each.
    pub(super) fn queue(&self) -> Option<u32> {
        match self {
            World::Lab(_) => Some(0),
            World::TwoEnds(two) => two.queue,
        }
    }

    /// Interrupts of the receiver's device; a lab's has none.
    pub(super) fn interrupts(&self) -> Option<&DeviceInterrupts> {
        match self {
            World::Lab(_) => None,
            World::TwoEnds(two) => two.interrupts.as_ref(),
        }
    }

    pub(super) fn nic(&self) -> String {
        match self {
            World::Lab(_) => "veth pair, 1 queue, MTU 1500".into(),
            World::TwoEnds(two) => two.nic.clone(),
        }
    }

    /// The first CPU for the exchange and the last for the receiver, unless others are named.
    pub(super) fn cpus(&self) -> Result<Cpus, PathError> {
        let allowed = sys::affinity::allowed_cpus().map_err(PathError::part)?;
        let (first, last) = (allowed.first().copied(), allowed.last().copied());
        let count = allowed.len();
        let World::TwoEnds(two) = self else {
            return Ok(Cpus { count, exchange: first, receiver: last });
        };
        if let Some(cpu) = two.cpu.filter(|cpu| !allowed.contains(cpu)) {
            let what = format!("CPU {cpu} is none of those that this command may use: {allowed:?}");
            return Err(PathError::Invalid { what, remedy: "give another --app-cpu".into() });
        }
        let exchange = two.exchange.cpu.or(first).filter(|_| two.exchange.is_here);
        Ok(Cpus { count, exchange, receiver: two.cpu.or(last) })
    }
}

impl TwoEnds {
    fn open(load: &Load, two: &TwoHosts) -> Result<Self, PathError> {
        let count = u128::from(load.rate_pps) * load.trial.as_nanos() / 1_000_000_000;
        if count > QUOTE_COUNT_MAX as u128 {
            return Err(PathError::Invalid {
                what: format!("{count} quotes a trial"),
                remedy: format!(
                    "between two ends use at most {QUOTE_COUNT_MAX}: lower --rate or --trial"
                ),
            });
        }
        let end: FarEnd = two.end.parse().map_err(PathError::part)?;
        let options = FarOptions {
            address: two.address,
            ifname: two.ifname.as_deref(),
            ssh_options: &two.ssh_options,
            ..FarOptions::default()
        };
        let exchange = FarExchange::start(&end, &options, two.far_cpu)?;
        let route = net::route_to(IpAddr::V4(exchange.address())).map_err(PathError::part)?;
        let link = match &two.ifname {
            Some(ifname) => net::link_named(ifname),
            None => net::link(route.ifindex),
        };
        let link = link.map_err(PathError::part)?;
        let driver = ethtool::driver(link.index).ok().flatten();
        let nic = describe_nic(link.index, driver.as_deref()).map_err(PathError::part)?;
        let nic = format!("{nic} to {}", exchange.address());
        let interrupts = Netns::current().map_err(PathError::part)?;
        let interrupts = DeviceInterrupts::open(interrupts, &link.name);
        let netns = Netns::current().map_err(PathError::part)?;
        let receiver = End::existing(netns, &link.name).map_err(PathError::part)?;
        let (queue, cpu) = (two.queue, two.near_cpu);
        Ok(TwoEnds { exchange, receiver, nic, interrupts, queue, cpu })
    }
}
