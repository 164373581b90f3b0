//! MTUs that differ between the ends, behind a switch: each end's packets fit its own link, and larger ones than the
//! smaller MTU never arrive.

use model::{Measurement, Trap};

/// The packets of a run, and the MTUs of its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mtus {
    pub near_bytes: u32,
    /// `None` if the far end is of a version that does not report it.
    pub far_bytes: Option<u32>,
    /// IP packet of one datagram.
    pub packet_bytes: u32,
}

impl Mtus {
    /// - `payload_bytes`: of UDP.
    pub fn new(near_bytes: u32, far_bytes: Option<u32>, payload_bytes: usize, ipv6: bool) -> Self {
        let headers_bytes = if ipv6 { 48 } else { 28 };
        let packet_bytes = u32::try_from(payload_bytes).unwrap_or(u32::MAX);
        let packet_bytes = packet_bytes.saturating_add(headers_bytes);
        Mtus { near_bytes, far_bytes, packet_bytes }
    }

    /// Warning of a difference that explains lost datagrams; `None` if none was lost, or it does not.
    pub fn trap(&self, m: &Measurement) -> Option<Trap> {
        let far_bytes = self.far_bytes.filter(|far_bytes| *far_bytes != self.near_bytes)?;
        let smaller_bytes = far_bytes.min(self.near_bytes);
        let has_lost = m.deliveries.values().any(|delivery| delivery.lost_count() > 0);
        (has_lost && self.packet_bytes > smaller_bytes).then(|| Trap {
            what: format!(
                "datagrams were lost, and the ends' MTUs differ: {} bytes here, {far_bytes} at the far end; a packet \
                 of this run has {}",
                self.near_bytes, self.packet_bytes
            ),
            advice: format!(
                "set one MTU at both ends and on all switches between them (ip link set IF mtu N), or give a \
                 smaller --size: packets of at most {smaller_bytes} bytes"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use model::Delivery;

    use super::*;

    /// Of 9 datagrams.
    fn received(received_count: u64) -> Measurement {
        let mut m = Measurement::default();
        let delivery = Delivery { sent_count: 9, received_count, ..Delivery::default() };
        m.deliveries.insert("forward".into(), delivery);
        m
    }

    #[test]
    fn different_mtus_are_named_when_a_larger_packet_was_lost() {
        for (near, far) in [(9000, 1500), (1500, 9000)] {
            let what = Mtus::new(near, Some(far), 4000, false).trap(&received(0)).unwrap().what;
            assert!(what.contains(&format!("{near} bytes here, {far} at the far end")), "{what}");
        }
        for (far, payload, count) in
            [(Some(9000), 4000, 0), (Some(1500), 4000, 9), (Some(1500), 1472, 0), (None, 4000, 0)]
        {
            let trap = Mtus::new(9000, far, payload, false).trap(&received(count));
            assert_eq!(trap, None, "{far:?} {payload} {count}");
        }
        assert!(Mtus::new(9000, Some(1500), 1472, true).trap(&received(0)).is_some());
    }
}
