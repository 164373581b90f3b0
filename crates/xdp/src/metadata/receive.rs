//! Metadata in front of a received frame, written by an XDP program from the hints of the driver.
//!
//! A sender may have chosen the bytes that lie there otherwise: a program may have cut off an outer header, and
//! frames are used again. Therefore the metadata ends with a random key that only program and reader know, and
//! reading takes it away.
//!
//! Source: kernel documentation, networking/xdp-rx-metadata.rst; layout: `bpf/wirepath_xdp_metadata.h`.

use std::io;

/// Bytes in front of the frame: 32 is the most that all kernels take.
pub(crate) const RX_METADATA_BYTES: usize = 32;
/// Version of the layout, in the lowest byte of the key.
const LAYOUT_VERSION: u64 = 1;

/// Places of the fields; the key is the last word, next to the frame.
pub(crate) mod place {
    pub(crate) const STAMP: usize = 0;
    pub(crate) const HASH: usize = 8;
    pub(crate) const HASH_TYPE: usize = 12;
    pub(crate) const VLAN_PROTOCOL: usize = 16;
    pub(crate) const VLAN_TAG: usize = 18;
    pub(crate) const FIELDS: usize = 20;
    pub(crate) const KEY: usize = 24;
}

/// Bits of the fields that the driver gave.
pub(crate) mod field {
    pub(crate) const STAMP: u32 = 1;
    pub(crate) const HASH: u32 = 2;
    pub(crate) const VLAN: u32 = 4;
}

/// Word that marks metadata as that of one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataKey(u64);

impl MetadataKey {
    /// A key that no sender of frames can know.
    ///
    /// Errors: the kernel has no random numbers yet.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0_u8; 8];
        // SAFETY: pointer and length describe `bytes`.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        if got != bytes.len() as isize {
            return Err(io::Error::last_os_error());
        }
        Ok(MetadataKey::from_word(u64::from_ne_bytes(bytes)))
    }

    /// The key of a program that was loaded with this word; its lowest byte is set to the layout's version.
    pub fn from_word(word: u64) -> Self {
        MetadataKey(word & !0xff | LAYOUT_VERSION)
    }

    /// The word that the program writes.
    pub fn word(self) -> u64 {
        self.0
    }
}

/// Hash over the addresses and ports of a frame, as the device computed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxHash {
    /// The hash.
    pub value: u32,
    /// Parts of the headers that it covers: `enum xdp_rss_hash_type` of include/net/xdp.h.
    pub kind: u32,
}

/// VLAN tag that the device took off a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanTag {
    /// Protocol of the tag: 0x8100, or 0x88a8 for that of a provider.
    pub protocol: u16,
    /// Priority and VLAN.
    pub tag: u16,
}

/// Metadata of a received frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RxMetadata {
    /// Time of arrival by the device's clock, ns; the driver converts it to CLOCK_TAI or not. `None` if the
    /// driver has no stamps, or none of this frame.
    pub stamp_ns: Option<u64>,
    /// `None` if the driver has none, or the frame is not of a kind that it hashes.
    pub hash: Option<RxHash>,
    /// `None` if the driver leaves tags in frames, or the frame has none.
    pub vlan: Option<VlanTag>,
}

impl RxMetadata {
    /// Takes the metadata from the end of the bytes in front of a frame, and erases its key there, so that a
    /// later frame in this place cannot pass it off as its own.
    ///
    /// `None` if the program with this key wrote none.
    pub fn take(front: &mut [u8], key: MetadataKey) -> Option<Self> {
        let bytes = front.last_chunk_mut::<RX_METADATA_BYTES>()?;
        if u64::from_ne_bytes(at(bytes, place::KEY)) != key.word() {
            return None;
        }
        bytes[place::KEY..].fill(0);
        let fields = u32::from_ne_bytes(at(bytes, place::FIELDS));
        let stamp_ns = u64::from_ne_bytes(at(bytes, place::STAMP));
        let hash = RxHash {
            value: u32::from_ne_bytes(at(bytes, place::HASH)),
            kind: u32::from_ne_bytes(at(bytes, place::HASH_TYPE)),
        };
        let vlan = VlanTag {
            // As in the frame.
            protocol: u16::from_be_bytes(at(bytes, place::VLAN_PROTOCOL)),
            tag: u16::from_ne_bytes(at(bytes, place::VLAN_TAG)),
        };
        Some(RxMetadata {
            // veth answers with the stamp of a buffer that has none: 0.
            stamp_ns: (fields & field::STAMP != 0 && stamp_ns != 0).then_some(stamp_ns),
            hash: (fields & field::HASH != 0).then_some(hash),
            vlan: (fields & field::VLAN != 0).then_some(vlan),
        })
    }
}

/// Some of the bytes.
fn at<const N: usize>(bytes: &[u8; RX_METADATA_BYTES], place: usize) -> [u8; N] {
    std::array::from_fn(|n| bytes[place + n])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: MetadataKey = MetadataKey(0x1122_3344_5566_7701);

    /// As a program writes it.
    fn written(fields: u32) -> [u8; RX_METADATA_BYTES] {
        let mut bytes = [0; RX_METADATA_BYTES];
        bytes[..8].copy_from_slice(&77_u64.to_ne_bytes());
        bytes[8..12].copy_from_slice(&0xabcd_u32.to_ne_bytes());
        bytes[12..16].copy_from_slice(&9_u32.to_ne_bytes());
        bytes[16..18].copy_from_slice(&0x8100_u16.to_be_bytes());
        bytes[18..20].copy_from_slice(&0x6007_u16.to_ne_bytes());
        bytes[20..24].copy_from_slice(&fields.to_ne_bytes());
        bytes[24..].copy_from_slice(&KEY.word().to_ne_bytes());
        bytes
    }

    #[test]
    fn each_field_is_there_if_its_bit_is_set_and_metadata_is_taken_once() {
        let whole = RxMetadata {
            stamp_ns: Some(77),
            hash: Some(RxHash { value: 0xabcd, kind: 9 }),
            vlan: Some(VlanTag { protocol: 0x8100, tag: 0x6007 }),
        };
        let mut front = [&[0xff; 200][..], &written(7)].concat();
        assert_eq!(RxMetadata::take(&mut front, KEY), Some(whole));
        assert_eq!(RxMetadata::take(&mut front, KEY), None, "a later frame has none of its own");
        for (bit, left) in [
            (field::STAMP, RxMetadata { hash: None, vlan: None, ..whole }),
            (field::HASH, RxMetadata { stamp_ns: None, vlan: None, ..whole }),
            (field::VLAN, RxMetadata { stamp_ns: None, hash: None, ..whole }),
            (0, RxMetadata::default()),
        ] {
            assert_eq!(RxMetadata::take(&mut written(bit), KEY), Some(left));
        }
        let mut without_stamp = written(7);
        without_stamp[..8].fill(0);
        let taken = RxMetadata::take(&mut without_stamp, KEY).unwrap();
        assert_eq!(taken, RxMetadata { stamp_ns: None, ..whole });
    }

    #[test]
    fn another_key_or_too_few_bytes_give_none() {
        let other = MetadataKey::from_word(KEY.word() ^ 1 << 40);
        assert_eq!(RxMetadata::take(&mut written(7), other), None);
        assert_eq!(RxMetadata::take(&mut written(7)[1..], KEY), None);
        assert_eq!(RxMetadata::take(&mut [], KEY), None);
        assert_eq!(MetadataKey::from_word(u64::MAX).word(), 0xffff_ffff_ffff_ff01);
        assert_ne!(MetadataKey::random().unwrap(), MetadataKey::random().unwrap());
    }

    proptest! {
        /// Bytes of a hostile sender, with and without the right length.
        #[test]
        fn no_bytes_pass_for_metadata_without_the_key(
            mut front in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let before = front.clone();
            let has_key = front.ends_with(&KEY.word().to_ne_bytes());
            prop_assert_eq!(RxMetadata::take(&mut front, KEY).is_some(), has_key);
            prop_assert!(has_key || front == before, "bytes that are not metadata stay as they are");
        }

        /// With the key, each value of the other bytes is read without a fault.
        #[test]
        fn all_values_behind_the_key_are_read(bytes in any::<[u8; 24]>()) {
            let mut front = [&bytes[..], &KEY.word().to_ne_bytes()].concat();
            let taken = RxMetadata::take(&mut front, KEY).unwrap();
            let fields = u32::from_ne_bytes(bytes[20..].try_into().unwrap());
            prop_assert_eq!(taken.hash.is_some(), fields & field::HASH != 0);
            prop_assert_eq!(taken.vlan.is_some(), fields & field::VLAN != 0);
        }
    }
}
