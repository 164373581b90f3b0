//! Congestion marks through a tunnel.
//!
//! Source: RFC 6040, normal mode.

/// Congestion mark: the lower two bits of the class of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not support congestion marks.
    NotEct = 0,
    /// Supported; the second of the two code points.
    Ect1 = 1,
    /// Supported.
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// The mark in a class of service (IPv4) or traffic class (IPv6).
    pub fn of_service(service: u8) -> Ecn {
        match service & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// `service` with its mark replaced by this one.
    pub fn in_service(self, service: u8) -> u8 {
        service & !3 | self as u8
    }
}

/// Result of [`decapsulate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Combined {
    /// Mark of the forwarded packet.
    pub ecn: Ecn,
    /// True for a combination that no correct sender and tunnel produce; worth counting.
    pub is_odd: bool,
}

/// Mark of a packet that leaves a tunnel; `None` to drop it.
///
/// Source: RFC 6040, section 4.2, figure 4.
pub fn decapsulate(inner: Ecn, outer: Ecn) -> Option<Combined> {
    use Ecn::{Ce, Ect0, Ect1, NotEct};
    let (ecn, is_odd) = match (inner, outer) {
        (NotEct, NotEct) => (NotEct, false),
        (NotEct, Ect0 | Ect1) => (NotEct, true),
        // The transport can only be notified of this congestion by a drop.
        (NotEct, Ce) => return None,
        (Ect0, NotEct | Ect0) => (Ect0, false),
        (Ect0, Ect1) => (Ect1, false),
        (Ect1, NotEct | Ect1) => (Ect1, false),
        (Ect1, Ect0) => (Ect1, true),
        (Ect0 | Ect1, Ce) => (Ce, false),
        (Ce, NotEct | Ect0 | Ce) => (Ce, false),
        (Ce, Ect1) => (Ce, true),
    };
    Some(Combined { ecn, is_odd })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ecn::{Ce, Ect0, Ect1, NotEct};

    const ALL: [Ecn; 4] = [NotEct, Ect0, Ect1, Ce];

    #[test]
    fn marks_are_the_lower_two_bits() {
        for (bits, ecn) in [(0, NotEct), (1, Ect1), (2, Ect0), (3, Ce)] {
            assert_eq!(Ecn::of_service(0xb8 | bits), ecn);
            assert_eq!(ecn.in_service(0xbb), 0xb8 | bits);
        }
    }

    #[test]
    fn table_of_the_rfc_holds() {
        // Rows: inner NotEct, Ect0, Ect1, Ce; columns: outer in the same order.
        let table = [
            [Some(NotEct), Some(NotEct), Some(NotEct), None],
            [Some(Ect0), Some(Ect0), Some(Ect1), Some(Ce)],
            [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)],
            [Some(Ce), Some(Ce), Some(Ce), Some(Ce)],
        ];
        for (inner, row) in ALL.into_iter().zip(table) {
            for (outer, expected) in ALL.into_iter().zip(row) {
                let found = decapsulate(inner, outer).map(|combined| combined.ecn);
                assert_eq!(found, expected, "inner {inner:?}, outer {outer:?}");
            }
        }
    }

    #[test]
    fn mark_made_in_the_tunnel_reaches_a_transport_that_knows_it() {
        for inner in [Ect0, Ect1, Ce] {
            assert_eq!(decapsulate(inner, Ce), Some(Combined { ecn: Ce, is_odd: false }));
        }
        // A mark sent in normal mode is restored.
        for ecn in ALL {
            let unmarked = if ecn == Ce { Ect0 } else { ecn };
            assert_eq!(decapsulate(ecn, unmarked).map(|combined| combined.ecn), Some(ecn));
        }
    }
}
