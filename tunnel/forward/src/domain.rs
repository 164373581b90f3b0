//! Broadcast domains: each VNI or GRE key with the VLAN of the port that its tunnels carry.
//!
//! A tunnel without a VLAN carries the untagged frames of the port, or all of its frames if no tunnel
//! has a VLAN. Tags of the port end at the tunnel, whose VNI or key takes their place (RFC 7348,
//! section 6.1).

use wire::ethernet;

use crate::encap::PacketPlace;
use crate::inner::word;

/// Highest VLAN identifier. Source: IEEE 802.1Q, table 9-2 (4095 is reserved).
pub const VLAN_MAX: u16 = 4094;
/// Networks of [`crate::fdb::Fdb`]: 0 for untagged frames, else the VLAN.
const NETWORK_COUNT: usize = VLAN_MAX as usize + 1;

const ID_BITS: u16 = 0xfff;
const MACS_BYTES: usize = ethernet::TYPE_OFFSET;

/// VLAN of a frame, as far as it decides on the domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    /// None, or a tag that has only a priority.
    Untagged,
    /// A customer's VLAN, 1 to 4095.
    Vlan(u16),
    /// A provider's tag.
    Provider,
}

impl Tag {
    /// Outermost tag of a frame.
    #[inline]
    pub(crate) fn outermost(frame: &[u8]) -> Tag {
        match word(frame, ethernet::TYPE_OFFSET) {
            Some(ethernet::TYPE_VLAN) => {
                match word(frame, ethernet::TYPE_OFFSET + 2).unwrap_or(0) & ID_BITS {
                    0 => Tag::Untagged,
                    id => Tag::Vlan(id),
                }
            }
            Some(ethernet::TYPE_PROVIDER_VLAN) => Tag::Provider,
            _ => Tag::Untagged,
        }
    }
}

/// Tunnels of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Members {
    None,
    One(u16),
    Several,
}

/// Networks of all tunnels.
#[derive(Debug, Clone)]
pub(crate) struct Domains {
    /// By tunnel.
    networks: Box<[u16]>,
    /// By network; only network 0 if no tunnel has a VLAN.
    members: Box<[Members]>,
}

impl Domains {
    /// - `vlans`: by tunnel; missing ones are `None`.
    pub(crate) fn new(tunnel_count: usize, vlans: &[Option<u16>]) -> Domains {
        let networks: Box<[u16]> = (0..tunnel_count)
            .map(|tunnel| vlans.get(tunnel).copied().flatten().unwrap_or(0).min(VLAN_MAX))
            .collect();
        let is_tagged = networks.iter().any(|network| *network != 0);
        let mut members = vec![Members::None; if is_tagged { NETWORK_COUNT } else { 1 }];
        for (tunnel, network) in (0_u16..).zip(&networks) {
            let found = &mut members[usize::from(*network)];
            *found = match found {
                Members::None => Members::One(tunnel),
                _ => Members::Several,
            };
        }
        Domains { networks, members: members.into_boxed_slice() }
    }

    /// True if tags decide on the network.
    pub(crate) fn has_vlans(&self) -> bool {
        self.members.len() > 1
    }

    /// Network of a frame from the port; `None` if no tunnel carries it.
    #[inline]
    pub(crate) fn network(&self, tag: Tag) -> Option<u16> {
        let network = match tag {
            _ if !self.has_vlans() => 0,
            Tag::Untagged => 0,
            Tag::Vlan(id) => id,
            Tag::Provider => return None,
        };
        (self.members(network) != Members::None).then_some(network)
    }

    /// Tunnels of a network.
    #[inline]
    pub(crate) fn members(&self, network: u16) -> Members {
        self.members.get(usize::from(network)).copied().unwrap_or(Members::None)
    }

    /// Number of tunnels of a network: copies of a flooded frame.
    pub(crate) fn tunnel_count(&self, network: u16) -> u16 {
        match self.members(network) {
            Members::None => 0,
            Members::One(_) => 1,
            // At most 4096 tunnels.
            Members::Several => self.networks.iter().filter(|of| **of == network).count() as u16,
        }
    }

    /// Network whose frames a tunnel carries; 0 for the untagged ones.
    #[inline]
    pub(crate) fn tunnel_network(&self, tunnel: usize) -> u16 {
        self.networks.get(tunnel).copied().unwrap_or(0)
    }
}

/// Removes the outermost tag: moves the addresses over it.
#[inline]
pub(crate) fn untag(bytes: &mut [u8], place: PacketPlace) -> Option<PacketPlace> {
    let PacketPlace { at, len } = place;
    let untagged = len.checked_sub(ethernet::VLAN_BYTES)?;
    let to = at + ethernet::VLAN_BYTES;
    bytes.get(at..to + MACS_BYTES)?;
    bytes.copy_within(at..at + MACS_BYTES, to);
    Some(PacketPlace { at: to, len: untagged })
}

/// Adds a tag: moves the addresses in front of it. `None` without room in front of the frame.
#[inline]
pub(crate) fn tag(bytes: &mut [u8], place: PacketPlace, vlan: u16) -> Option<PacketPlace> {
    let PacketPlace { at, len } = place;
    let to = at.checked_sub(ethernet::VLAN_BYTES)?;
    bytes.get(at..at + MACS_BYTES)?;
    bytes.copy_within(at..at + MACS_BYTES, to);
    let header = bytes.get_mut(to + MACS_BYTES..)?.first_chunk_mut::<4>()?;
    let [high, low] = vlan.to_be_bytes();
    let [type_high, type_low] = ethernet::TYPE_VLAN.to_be_bytes();
    *header = [type_high, type_low, high, low];
    Some(PacketPlace { at: to, len: len + ethernet::VLAN_BYTES })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(tags: &[[u8; 4]]) -> Vec<u8> {
        [&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12][..], &tags.concat(), &[8, 0, 0x45]].concat()
    }

    #[test]
    fn without_vlans_every_frame_is_of_one_network() {
        let domains = Domains::new(2, &[]);
        assert!(!domains.has_vlans());
        for tag in [Tag::Untagged, Tag::Vlan(7), Tag::Provider] {
            assert_eq!(domains.network(tag), Some(0));
        }
        assert_eq!(domains.members(0), Members::Several);
        assert_eq!(Domains::new(1, &[None]).members(0), Members::One(0));
    }

    #[test]
    fn tag_selects_the_network_and_a_vlan_without_a_tunnel_has_none() {
        let domains = Domains::new(4, &[Some(10), None, Some(20), Some(20)]);
        assert_eq!(domains.network(Tag::Untagged), Some(0));
        assert_eq!(domains.network(Tag::Vlan(10)), Some(10));
        for tag in [Tag::Vlan(30), Tag::Vlan(4095), Tag::Provider] {
            assert_eq!(domains.network(tag), None);
        }
        let members = [0, 10, 20, 30].map(|network| domains.members(network));
        let expected = [Members::One(1), Members::One(0), Members::Several, Members::None];
        assert_eq!(members, expected);
        assert_eq!([0, 10, 20, 30].map(|network| domains.tunnel_count(network)), [1, 1, 2, 0]);
        assert_eq!([0, 1, 2, 3, 9].map(|n| domains.tunnel_network(n)), [10, 0, 20, 20, 0]);
        assert_eq!(Domains::new(1, &[Some(10)]).network(Tag::Untagged), None);
    }

    #[test]
    fn outermost_tag_decides() {
        assert_eq!(Tag::outermost(&frame(&[])), Tag::Untagged);
        assert_eq!(Tag::outermost(&frame(&[[0x81, 0, 0xe0, 7]])), Tag::Vlan(7));
        assert_eq!(
            Tag::outermost(&frame(&[[0x81, 0, 0xe0, 0]])),
            Tag::Untagged,
            "a priority alone"
        );
        assert_eq!(Tag::outermost(&frame(&[[0x88, 0xa8, 0, 7], [0x81, 0, 0, 8]])), Tag::Provider);
        assert_eq!(Tag::outermost(&frame(&[[0x81, 0, 0, 7], [0x81, 0, 0, 8]])), Tag::Vlan(7));
        assert_eq!(Tag::outermost(&[0; 13]), Tag::Untagged);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn removed_tag_is_the_one_that_was_added(
            inner in prop::collection::vec(any::<u8>(), 14..80), room in 0_usize..9, vlan in 1..=VLAN_MAX,
        ) {
            let mut bytes = vec![0xcc; room];
            bytes.extend(&inner);
            let place = PacketPlace { at: room, len: inner.len() };
            let Some(tagged) = tag(&mut bytes, place, vlan) else {
                prop_assert!(room < 4);
                return Ok(());
            };
            prop_assert_eq!(tagged, PacketPlace { at: room - 4, len: inner.len() + 4 });
            prop_assert_eq!(Tag::outermost(&bytes[tagged.at..]), Tag::Vlan(vlan));
            prop_assert_eq!(untag(&mut bytes, tagged), Some(place));
            prop_assert_eq!(&bytes[room..], &inner[..]);
        }

        #[test]
        fn any_place_is_refused_or_in_bounds(
            mut bytes in prop::collection::vec(any::<u8>(), 0..40), at in 0_usize..40, len in 0_usize..40,
        ) {
            let before = bytes.len();
            for place in [untag(&mut bytes, PacketPlace { at, len }), tag(&mut bytes, PacketPlace { at, len }, 1)] {
                prop_assert!(place.is_none_or(|place| place.at <= before));
            }
        }
    }
}
