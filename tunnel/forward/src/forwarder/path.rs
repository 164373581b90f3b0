//! Sizes of the packets that were sent, against which a router's report of one that is too big is checked.

use super::{Forwarder, Table};

impl Forwarder<'_> {
    /// Largest packet sent into each tunnel since the last call, in bytes of the outer IP packet; 0 for none.
    pub fn take_sent_bytes_max(&self) -> Vec<u32> {
        let table = self.table();
        let Table { rules, fast, .. } = &*table;
        let by_tunnel = rules.encaps.iter().enumerate().map(|(index, encap)| {
            let by_programs = fast.as_ref().map_or(0, |fast| fast.take_sent_bytes_max(index));
            by_programs.max(encap.take_sent_bytes_max())
        });
        by_tunnel.collect()
    }

    /// Tunnels that may have sent a packet, with its length by its IP header.
    ///
    /// - `packet`: its first bytes, from the outer IP header on.
    pub fn possible_senders(&self, packet: &[u8]) -> Vec<(usize, u32)> {
        let rules = self.table().rules.clone();
        let by_tunnel = rules.encaps.iter().enumerate();
        by_tunnel.filter_map(|(index, it)| Some((index, it.quoted_bytes(packet)?))).collect()
    }
}
