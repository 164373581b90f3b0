//! Packets that were dropped, by kind and place, with a sample of each kind.

use std::collections::BTreeMap;

use libbpf_rs::btf::types::{Enum, FuncProto, Ptr, Typedef};
use libbpf_rs::btf::{Btf, BtfKind};
use libbpf_rs::{MapCore, MapHandle, ReferencesType};
use zerocopy::FromBytes;

use super::error::BpfError;
use super::explain::types;
use super::samples::{chain, lookup};

/// Dropped packets of one kind, in one place, and the first one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drops {
    /// Number in the running kernel's `enum skb_drop_reason`.
    pub reason: u32,
    /// Address of the dropping code.
    pub location: u64,
    /// Inode number of the network namespace; 0 if unknown.
    pub netns: u32,
    /// Interface that had the packet, or to which its route leads; 0 if there was none.
    pub ifindex: u32,
    /// IP protocol; 0 for other packets.
    pub protocol: u8,
    /// Destination port; 0 for none, and if there were too many ports for a row each.
    pub port: u16,
    pub count: u64,
    pub sample: DropSample,
}

/// A dropped packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DropSample {
    /// Inode of the socket that refused it; 0 if none did, or the kernel does not pass it (before Linux 6.11).
    pub socket_inode: u64,
    /// Interface that received it; 0 if it was made here.
    pub iif: u32,
    /// Interface of its route; 0 before it had one.
    pub oif: u32,
    pub mark: u32,
    pub length_bytes: u32,
    /// Type of its Ethernet frame.
    pub ethertype: u16,
    /// `skb->pkt_type`.
    pub packet_type: u8,
    /// State of its connection as netfilter tracks it: `enum ip_conntrack_info`, with 8 added if it is of none; `None`
    /// if the kernel tracks none.
    pub connection: Option<u8>,
    /// Ethernet header.
    pub link: Option<[u8; 14]>,
    /// Its first bytes from the network header.
    pub network: Vec<u8>,
    /// Offset of the transport header in `network`, if the kernel set one.
    pub transport: Option<u16>,
    /// Call chain of the drop, innermost first.
    pub chain: Vec<u64>,
}

/// Source: `NO_HEADER` and `CONNECTION_UNKNOWN` in explain.bpf.c.
const NO_HEADER: u16 = 0xffff;
const CONNECTION_UNKNOWN: u8 = 0xff;

/// Reads a table of drops.
pub(super) fn read(table: &MapHandle, stacks: &MapHandle) -> Result<Vec<Drops>, BpfError> {
    let mut all = Vec::new();
    for key in table.keys() {
        let Some(value) = lookup(table, &key)? else { continue };
        let (Ok(key), Ok(row)) =
            (types::drop::read_from_bytes(&key), types::dropped::read_from_bytes(&value))
        else {
            continue;
        };
        let bytes_count = usize::from(row.bytes_count).min(row.bytes.len());
        let chain =
            if row.stack < 0 { Vec::new() } else { chain(stacks, &row.stack.to_ne_bytes()) };
        all.push(Drops {
            reason: key.reason,
            location: key.location,
            netns: key.netns,
            ifindex: key.ifindex,
            protocol: key.protocol,
            port: key.port,
            count: row.count,
            sample: DropSample {
                socket_inode: row.inode,
                iif: row.iif,
                oif: row.oif,
                mark: row.mark,
                length_bytes: row.length,
                ethertype: row.ethertype,
                packet_type: row.kind,
                connection: Some(row.connection).filter(|state| *state != CONNECTION_UNKNOWN),
                link: (row.has_link != 0).then_some(row.link),
                network: row.bytes[..bytes_count].to_vec(),
                transport: Some(row.transport).filter(|offset| *offset != NO_HEADER),
                chain,
            },
        });
    }
    Ok(all)
}

/// True if the tracepoint of drops passes the socket that refused the packet, as Linux 6.11 does.
pub(super) fn is_refuser_passed() -> bool {
    /// The tracepoint's own argument, the packet, the location, the reason and the socket.
    const ARGUMENTS: usize = 5;
    let Ok(btf) = Btf::from_vmlinux() else { return false };
    let Some(traced) = btf.type_by_name::<Typedef<'_>>("btf_trace_kfree_skb") else { return false };
    let pointer = traced.referenced_type();
    let Ok(pointer) = Ptr::try_from(pointer) else { return false };
    let called = pointer.referenced_type();
    called.kind() == BtfKind::FuncProto
        && FuncProto::try_from(called).is_ok_and(|called| called.iter().count() == ARGUMENTS)
}

/// Names of the running kernel's drop reasons, by number, without their common prefix; empty if
/// the kernel does not list them.
///
/// Source: `enum skb_drop_reason` of the kernel's type information.
pub fn drop_reasons() -> BTreeMap<u32, String> {
    let Ok(btf) = Btf::from_vmlinux() else { return BTreeMap::new() };
    let Some(reasons) = btf.type_by_name::<Enum<'_>>("skb_drop_reason") else {
        return BTreeMap::new();
    };
    let named = reasons.iter().filter_map(|member| {
        let name = member.name?.to_str()?;
        let name = name.strip_prefix("SKB_DROP_REASON_").unwrap_or(name);
        Some((u32::try_from(member.value).ok()?, name.to_owned()))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernel_names_its_reasons() {
        let reasons = drop_reasons();
        assert!(
            reasons.is_empty() || reasons.values().any(|name| name == "NO_SOCKET"),
            "{reasons:?}"
        );
    }
}
