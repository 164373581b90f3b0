//! Relations of interfaces, and names of netfilter's numbers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_bindings::rt_link::{self, Ifinfomsg};

use super::error::{NetError, ask};

/// Relations of an interface to others, beyond [`super::Link`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkDetail {
    pub index: u32,
    /// Bridge or bond that it is a port of.
    pub master: Option<u32>,
    /// Headroom that it requests for frames; `None` if the kernel does not report it (before Linux
    /// 6.15).
    pub headroom_bytes: Option<u16>,
    /// Interface that a VXLAN device is bound to, 0 for none; `None` for other devices.
    pub vxlan_bound_to: Option<u32>,
    /// Far end of a tunnel; `None` for other devices, and for a tunnel without one or with a group.
    pub tunnel_remote: Option<IpAddr>,
}

/// Details of all interfaces of this namespace, by index.
pub fn details() -> Result<BTreeMap<u32, LinkDetail>, NetError> {
    ask("listing interfaces", |socket| {
        let request = rt_link::Request::new().op_getlink_dump(&Ifinfomsg::new());
        let mut replies = socket.request(&request)?;
        let mut details = BTreeMap::new();
        while let Some((header, attributes)) = replies.recv().transpose()? {
            let linkinfo = attributes.get_linkinfo().ok();
            let kind = linkinfo.as_ref().and_then(|info| info.get_kind().ok()?.to_str().ok());
            let tunnel = linkinfo.as_ref().map(|info| info.get_buf()).zip(kind);
            let is_vxlan = kind == Some("vxlan");
            let bound_to =
                linkinfo.as_ref().filter(|_| is_vxlan).map(|info| vxlan_link(info.get_buf()));
            let index = header.ifi_index as u32;
            let detail = LinkDetail {
                index,
                master: attributes.get_master().ok().filter(|master| *master != 0),
                headroom_bytes: attributes.get_headroom().ok(),
                vxlan_bound_to: bound_to,
                tunnel_remote: tunnel.and_then(|(linkinfo, kind)| remote(linkinfo, kind)),
            };
            details.insert(index, detail);
        }
        Ok(details)
    })
}

const IFLA_INFO_DATA: u16 = 2;

/// Returns the far end of a tunnel from its IFLA_LINKINFO; `None` for a group.
///
/// Source: linux/if_link.h, IFLA_VXLAN_GROUP and IFLA_GENEVE_REMOTE, with the same for IPv6; linux/if_tunnel.h,
/// IFLA_GRE_REMOTE and IFLA_IPTUN_REMOTE.
fn remote(linkinfo: &[u8], kind: &str) -> Option<IpAddr> {
    let attributes: &[u16] = match kind {
        "vxlan" => &[2, 16],
        "geneve" => &[2, 7],
        "gre" | "gretap" | "ip6gre" | "ip6gretap" => &[7],
        "ipip" | "sit" => &[3],
        _ => return None,
    };
    let data = attribute(linkinfo, IFLA_INFO_DATA)?;
    let address = attributes.iter().find_map(|wanted| attribute(data, *wanted))?;
    let address = match address.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(address).ok()?)),
        _ => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?)),
    };
    (!address.is_unspecified() && !address.is_multicast()).then_some(address)
}

/// Returns the interface of a VXLAN device from its IFLA_LINKINFO; 0 for none.
///
/// Source: linux/if_link.h, IFLA_INFO_DATA and IFLA_VXLAN_LINK.
fn vxlan_link(linkinfo: &[u8]) -> u32 {
    const IFLA_VXLAN_LINK: u16 = 3;
    let data = attribute(linkinfo, IFLA_INFO_DATA).unwrap_or_default();
    let link = attribute(data, IFLA_VXLAN_LINK).unwrap_or_default();
    link.try_into().map_or(0, u32::from_ne_bytes)
}

/// Returns the payload of the first attribute of that type.
pub(super) fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    const HEADER_BYTES: usize = 4;
    // The upper two bits are flags: nested, network byte order.
    const TYPE: u16 = 0x3fff;
    while let Some((header, _)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & TYPE;
        let payload = bytes.get(HEADER_BYTES..length)?;
        if kind == wanted {
            return Some(payload);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
    None
}

/// Source: linux/netfilter.h, NFPROTO_*.
pub(super) fn family(number: u8) -> &'static str {
    match number {
        1 => "inet",
        2 => "ip",
        3 => "arp",
        5 => "netdev",
        7 => "bridge",
        10 => "ip6",
        _ => "other",
    }
}

/// Source: linux/netfilter.h, nf_inet_hooks and nf_dev_hooks.
pub(super) fn hook_name(family: &str, number: u32) -> &'static str {
    match (family, number) {
        ("arp", 0) => "input",
        ("arp", 1) => "output",
        ("netdev", 0) | (_, 5) => "ingress",
        ("netdev", 1) => "egress",
        (_, 0) => "prerouting",
        (_, 1) => "input",
        (_, 2) => "forward",
        (_, 3) => "output",
        (_, 4) => "postrouting",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_s_far_end_is_read_by_its_kind_and_a_group_is_none() {
        let response = |wanted: u8, address: &[u8]| {
            let header = [(4 + address.len()) as u8, 0, wanted, 0];
            let inner = [&header[..], address].concat();
            [&[(4 + inner.len()) as u8, 0, 2, 0x80][..], &inner].concat()
        };
        let v4 = [10, 0, 0, 2];
        for (kind, wanted) in [("vxlan", 2), ("geneve", 2), ("gretap", 7), ("ipip", 3)] {
            assert_eq!(remote(&response(wanted, &v4), kind), Some(IpAddr::from(v4)), "{kind}");
            assert_eq!(remote(&response(9, &v4), kind), None, "{kind}");
        }
        let v6 = Ipv6Addr::LOCALHOST.octets();
        assert_eq!(remote(&response(16, &v6), "vxlan"), Some(IpAddr::from(v6)));
        assert_eq!(remote(&response(2, &[239, 1, 1, 1]), "vxlan"), None);
        assert_eq!(remote(&response(7, &[0; 4]), "gretap"), None);
        assert_eq!(remote(&response(7, &[1, 2, 3]), "gretap"), None);
        assert_eq!(remote(&response(2, &v4), "veth"), None);
    }

    #[test]
    fn attribute_is_found_and_malformed_list_does_not_panic() {
        let list = [6, 0, 1, 0, 9, 9, 0, 0, 8, 0, 2, 0x80, 1, 2, 3, 4];
        assert_eq!(attribute(&list, 1), Some(&[9, 9][..]));
        assert_eq!(attribute(&list, 2), Some(&[1, 2, 3, 4][..]));
        assert_eq!(attribute(&list, 3), None);
        for length in 0..list.len() {
            let _not_found_or_found = attribute(&list[..length], 2);
        }
        assert_eq!(attribute(&[0, 0, 1, 0], 1), None);
        assert_eq!(attribute(&[2, 0, 1, 0], 1), None);
    }
}
