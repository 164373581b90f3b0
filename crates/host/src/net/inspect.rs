//! Inspection for checks: relations of interfaces, firewall chains, socket buffers.

use std::collections::{BTreeMap, BTreeSet};

use netlink_bindings::inet_diag::{self, ReqV2};
use netlink_bindings::nftables::{self, Nfgenmsg};
use netlink_bindings::rt_link::{self, Ifinfomsg};

use super::error::{NetError, ask};

/// Relations of an interface to others, beyond [`super::Link`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detail {
    pub index: u32,
    /// Bridge or bond that it is a port of.
    pub master: Option<u32>,
    /// Headroom that it requests for frames; `None` if the kernel does not report it (before Linux
    /// 6.15).
    pub headroom_bytes: Option<u16>,
    /// Interface that a VXLAN device is bound to, 0 for none; `None` for other devices.
    pub vxlan_bound_to: Option<u32>,
}

/// Details of all interfaces of this namespace, by index.
pub fn details() -> Result<BTreeMap<u32, Detail>, NetError> {
    ask("listing interfaces", |socket| {
        let request = rt_link::Request::new().op_getlink_dump(&Ifinfomsg::new());
        let mut replies = socket.request(&request)?;
        let mut details = BTreeMap::new();
        while let Some((header, attributes)) = replies.recv().transpose()? {
            let linkinfo = attributes.get_linkinfo().ok();
            let is_vxlan = linkinfo
                .as_ref()
                .is_some_and(|info| info.get_kind().is_ok_and(|kind| kind == c"vxlan"));
            let bound_to = linkinfo.filter(|_| is_vxlan).map(|info| vxlan_link(info.get_buf()));
            let index = header.ifi_index as u32;
            let detail = Detail {
                index,
                master: attributes.get_master().ok().filter(|master| *master != 0),
                headroom_bytes: attributes.get_headroom().ok(),
                vxlan_bound_to: bound_to,
            };
            details.insert(index, detail);
        }
        Ok(details)
    })
}

/// Returns the interface of a VXLAN device from its IFLA_LINKINFO; 0 for none.
///
/// Source: linux/if_link.h, IFLA_INFO_DATA and IFLA_VXLAN_LINK.
fn vxlan_link(linkinfo: &[u8]) -> u32 {
    const IFLA_INFO_DATA: u16 = 2;
    const IFLA_VXLAN_LINK: u16 = 3;
    let data = attribute(linkinfo, IFLA_INFO_DATA).unwrap_or_default();
    let link = attribute(data, IFLA_VXLAN_LINK).unwrap_or_default();
    link.try_into().map_or(0, u32::from_ne_bytes)
}

/// Returns the payload of the first attribute of that type.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Family: `ip`, `inet`, `bridge`, `netdev` and so on.
    pub family: &'static str,
    pub table: String,
    pub name: String,
    /// Hook; `None` for a chain that is only jumped to.
    pub hook: Option<&'static str>,
    pub rule_count: usize,
    /// Kinds of expressions that its rules use, such as `ct`.
    pub expressions: BTreeSet<String>,
}

/// Returns every chain of this namespace, with or without rules.
///
/// Needs CAP_NET_ADMIN.
pub fn chains() -> Result<Vec<Chain>, NetError> {
    let mut chains = ask("listing the chains of nftables", |socket| {
        let request = nftables::Request::new().op_getchain_dump(&Nfgenmsg::new());
        let mut replies = socket.request(&request)?;
        let mut chains = Vec::new();
        while let Some((header, attributes)) = replies.recv().transpose()? {
            let family = family(header.nfgen_family);
            let hook = attributes.get_hook().ok().and_then(|hook| hook.get_num().ok());
            chains.push(Chain {
                family,
                table: attributes.get_table()?.to_string_lossy().into_owned(),
                name: attributes.get_name()?.to_string_lossy().into_owned(),
                hook: hook.map(|number| hook_name(family, number)),
                rule_count: 0,
                expressions: BTreeSet::new(),
            });
        }
        Ok(chains)
    })?;
    ask("listing the rules of nftables", |socket| {
        let request = nftables::Request::new().op_getrule_dump(&Nfgenmsg::new());
        let mut replies = socket.request(&request)?;
        while let Some((header, attributes)) = replies.recv().transpose()? {
            let (table, name) = (attributes.get_table()?, attributes.get_chain()?);
            let (table, name) = (table.to_string_lossy(), name.to_string_lossy());
            let own = chains.iter_mut().find(|chain| {
                chain.family == family(header.nfgen_family)
                    && chain.table == table
                    && chain.name == name
            });
            let Some(chain) = own else { continue };
            chain.rule_count += 1;
            let expressions = attributes.get_expressions().into_iter().flat_map(|e| e.get_elem());
            for expression in expressions {
                if let Ok(name) = expression.get_name() {
                    chain.expressions.insert(name.to_string_lossy().into_owned());
                }
            }
        }
        Ok(())
    })?;
    Ok(chains)
}

/// Source: linux/netfilter.h, NFPROTO_*.
fn family(number: u8) -> &'static str {
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
fn hook_name(family: &str, number: u32) -> &'static str {
    match (family, number) {
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpSocket {
    pub port: u16,
    /// Inode number, which identifies its owners.
    pub inode: u32,
    /// Receive buffer in bytes as the kernel counts: twice the requested size.
    pub receive_buffer_bytes: u32,
    /// Datagrams dropped since it was opened.
    pub drop_count: u32,
}

/// UDP sockets of this namespace, of both IP versions.
///
/// Source: sock_diag(7); linux/sock_diag.h, SK_MEMINFO_*.
pub fn udp_sockets() -> Result<Vec<UdpSocket>, NetError> {
    let mut sockets = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        sockets.extend(udp_sockets_of(family as u8)?);
    }
    Ok(sockets)
}

fn udp_sockets_of(family: u8) -> Result<Vec<UdpSocket>, NetError> {
    const INET_DIAG_SKMEMINFO: u8 = 7;
    // Source: linux/sock_diag.h.
    const SK_MEMINFO_RCVBUF: usize = 1;
    const SK_MEMINFO_DROPS: usize = 8;
    ask("listing UDP sockets", |socket| {
        let header = ReqV2 {
            family,
            protocol: libc::IPPROTO_UDP as u8,
            ext: 1 << (INET_DIAG_SKMEMINFO - 1),
            states: u32::MAX,
            ..ReqV2::new()
        };
        let request = inet_diag::Request::new().op_udp_diag_dump(&header);
        let mut replies = socket.request(&request)?;
        let mut sockets = Vec::new();
        while let Some((header, attributes)) = replies.recv().transpose()? {
            let memory = attributes.get_skmeminfo().unwrap_or_default();
            let field = |number: usize| {
                let bytes = memory.get(number * 4..number * 4 + 4)?;
                bytes.try_into().ok().map(u32::from_ne_bytes)
            };
            sockets.push(UdpSocket {
                port: u16::from_be(header.sockid._sport_be),
                inode: header.inode,
                receive_buffer_bytes: field(SK_MEMINFO_RCVBUF).unwrap_or(0),
                drop_count: field(SK_MEMINFO_DROPS).unwrap_or(0),
            });
        }
        Ok(sockets)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
