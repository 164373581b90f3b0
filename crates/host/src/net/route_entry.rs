//! Routes with all of their attributes, of which one metric is changed.
//!
//! The kernel changes a route by replacing it, so a change sends back all that was read. [`RouteEntry::fixed_by`] names the
//! routes that would not come back by that way.
//!
//! Source: linux/rtnetlink.h; fib_table_insert of net/ipv4/fib_trie.c, fib6_add_rt2node of net/ipv6/ip6_fib.c.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_bindings::rt_route::{Request, Rtmsg};
use netlink_bindings::traits::Pusher;

use super::error::{NetError, ask};
use super::route::family;

/// Most routes of an IP version that are read.
const ROWS_MAX: usize = 100_000;
/// Without the flags of attributes.
const TYPE_MASK: u16 = 0x3fff;
const METRICS: u16 = libc::RTA_METRICS;
/// Use counts and times, which change by themselves.
const CACHE_INFO: u16 = libc::RTA_CACHEINFO;
/// Flags of a route that are settings; the others are its state.
const SETTING_FLAGS: u32 = RTNH_F_ONLINK | RTNH_F_PERVASIVE;
const RTNH_F_PERVASIVE: u32 = 2;
const RTNH_F_ONLINK: u32 = 4;
const RTM_F_CLONED: u32 = 0x200;
const RTPROT_RA: u8 = 9;

/// A metric that connections by a route begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteMetric {
    /// Initial congestion window, segments.
    InitialWindow,
    /// Initial receive window, segments.
    InitialReceiveWindow,
    /// Name of a congestion control.
    CongestionControl,
}

impl RouteMetric {
    /// Source: linux/rtnetlink.h, RTAX_INITCWND, RTAX_INITRWND and RTAX_CC_ALGO.
    fn number(self) -> u16 {
        match self {
            RouteMetric::InitialWindow => 11,
            RouteMetric::InitialReceiveWindow => 14,
            RouteMetric::CongestionControl => 16,
        }
    }
}

/// A unicast route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteEntry {
    pub destination: IpAddr,
    pub prefix_bits: u8,
    pub table: u32,
    /// `None` if it has several next hops.
    pub interface: Option<u32>,
    /// Smaller is preferred.
    pub priority: u32,
    /// Protocol, scope, type of service and the like.
    header: [u8; Rtmsg::len()],
    is_next_hop_object: bool,
    expires: bool,
    /// Attributes without metrics and cache, as the kernel encodes them.
    attributes: Vec<u8>,
    /// Nested attributes of metrics.
    metrics: Vec<u8>,
}

impl RouteEntry {
    fn new(header: &Rtmsg, attributes: &[u8]) -> Option<Self> {
        let mut route = RouteEntry {
            destination: if i32::from(header.rtm_family) == libc::AF_INET6 {
                Ipv6Addr::UNSPECIFIED.into()
            } else {
                Ipv4Addr::UNSPECIFIED.into()
            },
            prefix_bits: header.rtm_dst_len,
            table: header.rtm_table.into(),
            interface: None,
            priority: 0,
            header: settings_of(header),
            is_next_hop_object: false,
            expires: false,
            attributes: Vec::new(),
            metrics: Vec::new(),
        };
        for (kind, value, whole) in Attributes(attributes) {
            let number = || value.try_into().ok().map(u32::from_ne_bytes);
            match kind {
                METRICS => {
                    route.metrics = value.to_vec();
                    continue;
                }
                CACHE_INFO => {
                    // struct rta_cacheinfo: the third number is the remaining time.
                    route.expires = value.get(8..12).is_some_and(|left| left != [0; 4]);
                    continue;
                }
                libc::RTA_DST => route.destination = address(value)?,
                libc::RTA_TABLE => route.table = number()?,
                libc::RTA_OIF => route.interface = Some(number()?),
                libc::RTA_PRIORITY => route.priority = number()?,
                RTA_NH_ID => route.is_next_hop_object = true,
                _ => {}
            }
            route.attributes.extend_from_slice(whole);
            route.attributes.resize(route.attributes.len().next_multiple_of(4), 0);
        }
        Some(route)
    }

    /// The same place in the kernel's table: replacing one replaces the first of them.
    fn is_beside(&self, other: &RouteEntry) -> bool {
        let place = |one: &RouteEntry| {
            let header = Rtmsg::new_from_slice(&one.header).unwrap_or_default();
            (one.destination, one.prefix_bits, one.table, one.priority, header.rtm_tos)
        };
        place(self) == place(other)
    }

    /// Reason why it could not be restored after a change; `None` if it could.
    pub fn fixed_by(&self) -> Option<&'static str> {
        let header = Rtmsg::new_from_slice(&self.header).unwrap_or_default();
        let is_of_kernel = i32::from(header.rtm_family) == libc::AF_INET6
            && matches!(header.rtm_protocol, libc::RTPROT_KERNEL | RTPROT_RA);
        if self.expires || is_of_kernel {
            Some(
                "the kernel made or will end this IPv6 route by itself: add one of your own beside it",
            )
        } else if self.is_next_hop_object || self.interface.is_none() {
            Some("it has several next hops or a next hop object")
        } else {
            None
        }
    }

    /// Number of a metric; 0 if it is not set.
    pub fn number(&self, metric: RouteMetric) -> u32 {
        let bytes = self.metric(metric).and_then(|value| value.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    }

    /// Text of a metric; `None` if it is not set.
    pub fn text(&self, metric: RouteMetric) -> Option<String> {
        let value = self.metric(metric)?;
        let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
        Some(String::from_utf8_lossy(&value[..end]).into_owned())
    }

    fn metric(&self, metric: RouteMetric) -> Option<&[u8]> {
        let found = Attributes(&self.metrics).find(|(kind, ..)| *kind == metric.number());
        found.map(|(_, value, _)| value)
    }

    /// The same with another metric; `None` removes it.
    fn with(&self, metric: RouteMetric, value: Option<&[u8]>) -> Self {
        let mut metrics = Vec::new();
        for (kind, _, whole) in Attributes(&self.metrics) {
            if kind != metric.number() {
                metrics.extend_from_slice(whole);
                metrics.resize(metrics.len().next_multiple_of(4), 0);
            }
        }
        if let Some(value) = value {
            push(&mut metrics, metric.number(), value);
        }
        RouteEntry { metrics, ..self.clone() }
    }
}

/// Source: linux/rtnetlink.h.
const RTA_NH_ID: u16 = 30;

/// Header with the flags that are settings.
fn settings_of(header: &Rtmsg) -> [u8; Rtmsg::len()] {
    let mut kept = Rtmsg::new_from_slice(header.as_slice()).unwrap_or_default();
    kept.rtm_flags &= SETTING_FLAGS;
    *kept.as_slice().first_chunk().expect("its own length")
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(<[u8; 4]>::try_from(bytes).ok()?.into()),
        16 => Some(<[u8; 16]>::try_from(bytes).ok()?.into()),
        _ => None,
    }
}

/// Appends an attribute with its padding; its value is short.
fn push(buffer: &mut Vec<u8>, kind: u16, value: &[u8]) {
    buffer.extend(((value.len() + 4) as u16).to_ne_bytes());
    buffer.extend(kind.to_ne_bytes());
    buffer.extend(value);
    buffer.resize(buffer.len().next_multiple_of(4), 0);
}

/// Attributes of netlink: type without flags, value, and the whole without padding. It ends at the first malformed one.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let len = usize::from(u16::from_ne_bytes(*self.0.first_chunk()?));
        let kind = u16::from_ne_bytes(*self.0.get(2..)?.first_chunk()?);
        let whole = self.0.get(..len)?;
        let value = whole.get(4..)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & TYPE_MASK, value, whole))
    }
}

/// Unicast routes by an interface, of both IP versions, without the table `local`.
pub fn routes_by(ifindex: u32) -> Result<Vec<RouteEntry>, NetError> {
    let mut found = listed(libc::AF_INET as u8)?;
    // A kernel without IPv6 has none.
    found.extend(listed(libc::AF_INET6 as u8).unwrap_or_default());
    found.retain(|route| route.interface == Some(ifindex));
    Ok(found)
}

fn listed(family: u8) -> Result<Vec<RouteEntry>, NetError> {
    let mut too_many = false;
    let routes = ask("listing routes", |socket| {
        let header = Rtmsg { rtm_family: family, ..Default::default() };
        let request = Request::new().op_getroute_dump(&header);
        let mut replies = socket.request(&request)?;
        let mut found = Vec::new();
        while let Some((header, attributes)) = replies.recv().transpose()? {
            let is_unicast = header.rtm_type == libc::RTN_UNICAST
                && header.rtm_family == family
                && header.rtm_flags & RTM_F_CLONED == 0;
            if !is_unicast {
                continue;
            }
            too_many = found.len() >= ROWS_MAX;
            if too_many {
                break;
            }
            found.extend(RouteEntry::new(&header, attributes.get_buf()));
        }
        Ok(found)
    })?;
    if too_many {
        let what = format!("changing one of more than {ROWS_MAX} routes");
        return Err(NetError::Unsupported { what });
    }
    Ok(routes.into_iter().filter(|route| route.table != u32::from(libc::RT_TABLE_LOCAL)).collect())
}

/// The route of a destination by an interface in a table.
///
/// Returns `None` if there is none. Errors: several routes are in its place, so that a change could meet another one.
pub fn route_entry(
    destination: IpAddr,
    prefix_bits: u8,
    table: u32,
    ifindex: u32,
) -> Result<Option<RouteEntry>, NetError> {
    let all = listed(family(destination))?;
    let is_asked = |route: &&RouteEntry| {
        (route.destination, route.prefix_bits, route.table) == (destination, prefix_bits, table)
            && route.interface == Some(ifindex)
    };
    let Some(found) = all.iter().find(is_asked) else { return Ok(None) };
    let is_alone = all.iter().filter(is_asked).count() == 1
        && all.iter().filter(|route| route.is_beside(found)).count() == 1;
    if !is_alone {
        let what = format!("changing one of several routes to {destination}/{prefix_bits}");
        return Err(NetError::Unsupported { what });
    }
    Ok(Some(found.clone()))
}

/// Replaces a route by the same one with another metric.
///
/// - `value`: as the kernel encodes it; `None` removes the metric.
///
/// Errors: the kernel refuses it, or something else of the route has changed.
pub fn set_route_metric(
    route: &RouteEntry,
    metric: RouteMetric,
    value: Option<&[u8]>,
) -> Result<(), NetError> {
    let wanted = route.with(metric, value);
    let name = format!("{}/{}", route.destination, route.prefix_bits);
    let header = Rtmsg::new_from_slice(&wanted.header).unwrap_or_default();
    ask(format!("changing the route to {name}"), |socket| {
        let mut request = Request::new().set_replace().op_newroute_do(&header);
        let mut attributes = request.encode();
        let buffer = attributes.as_vec_mut();
        buffer.extend_from_slice(&wanted.attributes);
        if !wanted.metrics.is_empty() {
            push(buffer, METRICS, &wanted.metrics);
        }
        drop(attributes);
        socket.request(&request)?.recv_ack()
    })?;
    let ifindex = route.interface.unwrap_or_default();
    let now = route_entry(route.destination, route.prefix_bits, route.table, ifindex)?;
    // The kernel lists metrics by their numbers.
    if now.is_none_or(|now| now.without_metrics() != wanted.without_metrics()) {
        let what = format!("the route to {name} with all else unchanged");
        return Err(NetError::NotTaken { interface: format!("interface {ifindex}"), what });
    }
    Ok(())
}

impl RouteEntry {
    fn without_metrics(&self) -> Self {
        RouteEntry { metrics: Vec::new(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(list: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        list.iter().for_each(|(kind, value)| push(&mut bytes, *kind, value));
        bytes
    }

    fn entry(list: &[(u16, &[u8])]) -> RouteEntry {
        let header = Rtmsg {
            rtm_family: libc::AF_INET as u8,
            rtm_dst_len: 8,
            rtm_table: 254,
            rtm_flags: 0x4000 | RTNH_F_ONLINK,
            ..Default::default()
        };
        RouteEntry::new(&header, &attributes(list)).unwrap()
    }

    #[test]
    fn one_metric_changes_and_all_else_is_kept_byte_for_byte() {
        let inner = attributes(&[(2, &1400_u32.to_ne_bytes()), (16, b"bbr\0")]);
        let whole = [
            (1, &[10, 0, 0, 0][..]),
            (8, &inner),
            (12, &[0; 32]),
            (99, b"odd"),
            (4, &[3, 0, 0, 0]),
        ];
        let route = entry(&whole);
        assert_eq!((route.destination, route.interface), (IpAddr::from([10, 0, 0, 0]), Some(3)));
        assert_eq!(route.text(RouteMetric::CongestionControl).as_deref(), Some("bbr"));
        assert_eq!(route.number(RouteMetric::InitialWindow), 0);
        let set = route.with(RouteMetric::InitialWindow, Some(&20_u32.to_ne_bytes()));
        assert_eq!(set.number(RouteMetric::InitialWindow), 20);
        assert_eq!(set.text(RouteMetric::CongestionControl).as_deref(), Some("bbr"));
        assert_eq!(set.attributes, attributes(&[whole[0], whole[3], whole[4]]));
        assert_eq!(set.with(RouteMetric::InitialWindow, None), route);
        assert_eq!(Rtmsg::new_from_slice(&route.header).unwrap().rtm_flags, RTNH_F_ONLINK);
    }

    #[test]
    fn malformed_attributes_end_the_list() {
        let good = attributes(&[(4, &[3, 0, 0, 0])]);
        for bad in [&[1][..], &[3, 0, 1, 0], &[255, 255, 1, 0, 0], &[0, 0, 0, 0, 0, 0, 0, 0]] {
            let found: Vec<_> = Attributes(&[&good, bad].concat()).map(|(kind, ..)| kind).collect();
            assert_eq!(found, [4], "{bad:?}");
        }
    }

    #[test]
    fn routes_that_would_not_come_back_are_named() {
        let device = (4, &[3, 0, 0, 0][..]);
        assert_eq!(entry(&[device]).fixed_by(), None);
        assert!(entry(&[device, (30, &[1, 0, 0, 0])]).fixed_by().is_some());
        assert!(entry(&[(9, &[0; 16])]).fixed_by().is_some());
        let mut left = [0; 32];
        left[8] = 1;
        assert!(entry(&[device, (12, &left)]).fixed_by().is_some());
    }
}
