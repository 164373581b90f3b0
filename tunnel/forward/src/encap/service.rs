//! Service fields of the outer IP header: constant, or copied from the inner packet.

use crate::inner::Service;
use crate::spec::{Field, Outer};

/// Bits of the congestion mark in a class of service.
const ECN_BITS: u32 = 3;
/// Class of service, time to live and "don't fragment" in one word: bits 0 to 7, 8 to 15, and 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bits(pub(super) u32);

const SERVICE_BITS: u32 = 0xff;
pub(super) const TTL_BITS: u32 = 0xff00;
pub(super) const DONT_FRAGMENT_BIT: u32 = 1 << 16;

impl Bits {
    #[inline]
    pub(super) fn new(service: Service) -> Bits {
        let Service { service, ttl, dont_fragment } = service;
        Bits(u32::from(service) | u32::from(ttl) << 8 | u32::from(dont_fragment) << 16)
    }

    #[inline]
    pub(super) fn service(self) -> u8 {
        self.0 as u8
    }

    #[inline]
    pub(super) fn ttl(self) -> u8 {
        (self.0 >> 8) as u8
    }
}

/// Service fields of the outer IP header, and a mask of those copied from the inner one.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServiceRule {
    /// Values if the inner frame is not IP.
    pub(super) fixed: Bits,
    /// Mask of the inner packet's bits: at least those of the congestion mark, which is copied
    /// (RFC 6040, section 4.1, normal mode).
    pub(super) inherited: u32,
}

impl ServiceRule {
    pub(super) fn new(outer: &Outer) -> ServiceRule {
        let (Field::Fixed(ttl) | Field::Inherit(ttl)) = outer.ttl;
        let (Field::Fixed(dscp) | Field::Inherit(dscp)) = outer.dscp;
        let (Field::Fixed(dont_fragment) | Field::Inherit(dont_fragment)) = outer.dont_fragment;
        let inherited = [
            (true, ECN_BITS),
            (matches!(outer.dscp, Field::Inherit(_)), SERVICE_BITS),
            (matches!(outer.ttl, Field::Inherit(_)), TTL_BITS),
            (matches!(outer.dont_fragment, Field::Inherit(_)), DONT_FRAGMENT_BIT),
        ];
        ServiceRule {
            fixed: Bits::new(Service { service: dscp << 2, ttl, dont_fragment }),
            inherited: inherited
                .into_iter()
                .fold(0, |all, (is, bits)| all | (bits * u32::from(is))),
        }
    }

    #[inline]
    pub(super) fn apply(&self, inner: Service) -> Bits {
        let bits = self.fixed.0 & !self.inherited | Bits::new(inner).0 & self.inherited;
        // `check` has ensured that a fixed one is not 0.
        Bits(if bits & TTL_BITS == 0 { bits | 1 << 8 } else { bits })
    }
}
