//! Flow hashes: spread flows over queues and workers and, through a tunnel's outer header, over
//! links and routers.
//!
//! [`tuple()`] finds addresses, protocol and ports after up to two VLAN tags;
//! [`Tuple::crc32c`] hashes them fast, [`Tuple::toeplitz`] as NICs do.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::{ethernet, ipv4, ipv6};

/// Protocols whose header starts with two ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
/// Largest number of VLAN tags parsed.
const TAGS_MAX: usize = 2;
/// Lowest port of an outer header; it and all above are the dynamic ports.
///
/// Source: RFC 7348, section 5; RFC 6335, section 6.
pub const SOURCE_PORT_MIN: u16 = 49152;

/// Ports of sender and receiver. Both are 0 for a protocol without ports and for fragments: only
/// the first fragment has ports, and all must have the same hash.
pub type Ports = (u16, u16);

/// Key of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tuple {
    /// IPv4.
    V4 {
        /// Sender.
        src: Ipv4Addr,
        /// Receiver.
        dst: Ipv4Addr,
        /// Number of the protocol above IP.
        protocol: u8,
        /// Of sender and receiver; zeros for a packet without any.
        ports: Ports,
    },
    /// IPv6.
    V6 {
        /// Sender.
        src: Ipv6Addr,
        /// Receiver.
        dst: Ipv6Addr,
        /// Upper layer.
        protocol: u8,
        /// Of sender and receiver; zeros for a packet without any.
        ports: Ports,
    },
    /// Any other protocol, and IP with an invalid header.
    Ethernet {
        /// Sender.
        src: [u8; 6],
        /// Receiver.
        dst: [u8; 6],
        /// EtherType after the tags.
        ethertype: u16,
    },
}

/// Flow of any Ethernet frame. Missing bytes count as 0.
#[inline]
pub fn tuple(frame: &[u8]) -> Tuple {
    let mut type_at = ethernet::TYPE_OFFSET;
    let mut ethertype = word(frame, type_at);
    for _ in 0..TAGS_MAX {
        if !matches!(ethertype, ethernet::TYPE_VLAN | ethernet::TYPE_PROVIDER_VLAN) {
            break;
        }
        type_at += ethernet::VLAN_BYTES;
        ethertype = word(frame, type_at);
    }
    let packet = frame.get(type_at + 2..).unwrap_or(&[]);
    let ip = match ethertype {
        ethernet::TYPE_IPV4 => v4(packet),
        ethernet::TYPE_IPV6 => v6(packet),
        _ => None,
    };
    ip.unwrap_or_else(|| Tuple::Ethernet {
        src: array(frame, ethernet::SRC_OFFSET),
        dst: array(frame, ethernet::DST_OFFSET),
        ethertype,
    })
}

#[inline]
fn v4(packet: &[u8]) -> Option<Tuple> {
    let header = ipv4::Header::parse(packet, packet.len()).ok()?;
    let protocol = header.protocol();
    let ports =
        if header.is_fragment() { (0, 0) } else { ports(packet, header.header_bytes(), protocol) };
    Some(Tuple::V4 { src: header.src(), dst: header.dst(), protocol, ports })
}

fn v6(packet: &[u8]) -> Option<Tuple> {
    let header = ipv6::Header::parse(packet, packet.len()).ok()?;
    let upper = ipv6::upper(packet, &header);
    let ports = if upper.is_opaque { (0, 0) } else { ports(packet, upper.at, upper.protocol) };
    Some(Tuple::V6 { src: header.src(), dst: header.dst(), protocol: upper.protocol, ports })
}

fn ports(packet: &[u8], at: usize, protocol: u8) -> Ports {
    if WITH_PORTS.contains(&protocol) { (word(packet, at), word(packet, at + 2)) } else { (0, 0) }
}

#[inline]
fn address_part(address: u128, at: u32) -> u32 {
    (address >> (96 - 32 * at)) as u32
}

#[inline]
fn address_word(mac: [u8; 6], rest: u16) -> u64 {
    let [a, b, c, d, e, f] = mac;
    let [high, low] = rest.to_be_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, high, low])
}

#[inline]
fn ports_and_protocol(protocol: u8, (src, dst): Ports) -> u64 {
    u64::from(src) << 48 | u64::from(dst) << 32 | u64::from(protocol)
}

impl Tuple {
    /// CRC-32C of the tuple: addresses, ports, protocol.
    #[inline]
    pub fn crc32c(&self) -> u32 {
        match *self {
            Tuple::V4 { src, dst, protocol, ports } => {
                let addresses = u64::from(src.to_bits()) << 32 | u64::from(dst.to_bits());
                !crc_word(crc_word(!0, addresses), ports_and_protocol(protocol, ports))
            }
            Tuple::V6 { src, dst, protocol, ports } => {
                let (src, dst) = (src.to_bits(), dst.to_bits());
                let words = [(src >> 64) as u64, src as u64, (dst >> 64) as u64, dst as u64];
                !crc_word(words.into_iter().fold(!0, crc_word), ports_and_protocol(protocol, ports))
            }
            Tuple::Ethernet { src, dst, ethertype } => {
                !crc_word(crc_word(!0, address_word(src, ethertype)), address_word(dst, 0))
            }
        }
    }

    /// RSS hash that a NIC with this key computes: over addresses and ports, over addresses alone
    /// if there are no ports, 0 if the packet is not IP.
    ///
    /// Source: Microsoft, "RSS hashing functions".
    pub fn toeplitz(&self, toeplitz: &Toeplitz) -> u32 {
        let ports_word = |(src, dst): Ports| u32::from(src) << 16 | u32::from(dst);
        let (hash, at, ports) = match *self {
            Tuple::V4 { src, dst, ports, .. } => {
                let words = [src.to_bits(), dst.to_bits()];
                (toeplitz.words(0, &words), 2, ports)
            }
            Tuple::V6 { src, dst, ports, .. } => {
                let (src, dst) = (src.to_bits(), dst.to_bits());
                let words: [u32; 8] = core::array::from_fn(|at| match at {
                    0..4 => address_part(src, at as u32),
                    _ => address_part(dst, at as u32 - 4),
                });
                (toeplitz.words(0, &words), 8, ports)
            }
            Tuple::Ethernet { .. } => return 0,
        };
        match ports {
            (0, 0) => hash,
            ports => hash ^ toeplitz.words(at, &[ports_word(ports)]),
        }
    }
}

/// Source port of an outer UDP header: a dynamic port, from the hash of the inner flow.
pub fn source_port(hash: u32) -> u16 {
    // The upper 14 bits; `SOURCE_PORT_MIN` supplies the other two.
    SOURCE_PORT_MIN | (hash >> 18) as u16
}

/// Flow label of an outer IPv6 header, 1 to 0xfffff: 0 means none.
///
/// Source: RFC 6438, section 3.
pub fn flow_label(hash: u32) -> u32 {
    match hash >> 12 {
        0 => 1,
        label => label,
    }
}

/// CRC-32C (Castagnoli), reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Entry `[n][b]`: effect of byte `b` on the CRC if `n` more bytes follow it.
static CRC_TABLES: [[u32; 256]; 8] = make_crc_tables();

/// Tables of CRC-32C for eight bytes at a time, for programs that hash by themselves. Entry
/// `[n][b]`: effect of byte `b` if `n` more bytes follow it.
pub fn crc_tables() -> &'static [[u32; 256]; 8] {
    &CRC_TABLES
}

const fn make_crc_tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[table - 1][byte];
            tables[table][byte] = crc >> 8 ^ tables[0][crc as usize & 0xff];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The CRC register after eight more bytes, the first in the word's upper byte.
#[inline]
fn crc_word(crc: u32, word: u64) -> u32 {
    let bytes = (word.swap_bytes() ^ u64::from(crc)).to_le_bytes();
    let mut next = 0;
    for (byte, table) in bytes.iter().zip(CRC_TABLES.iter().rev()) {
        next ^= table[usize::from(*byte)];
    }
    next
}

/// CRC-32C of bytes.
///
/// Source: RFC 3720, appendix B.4 (test vectors).
pub fn crc32c(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let crc = words.iter().fold(!0, |crc, word| crc_word(crc, u64::from_be_bytes(*word)));
    !rest
        .iter()
        .fold(crc, |crc: u32, byte| crc >> 8 ^ CRC_TABLES[0][usize::from(crc as u8 ^ *byte)])
}

/// Default key of most NICs and drivers.
///
/// Source: Microsoft, "Verifying the RSS hash calculation".
pub const TOEPLITZ_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// Largest input of a 40-byte key, in words.
const TOEPLITZ_WORDS: usize = 9;

/// Tables of a key: the effect of each half byte of input on the hash. 4.6 KB.
#[derive(Debug, Clone)]
pub struct Toeplitz {
    halves: [[u32; 16]; TOEPLITZ_WORDS * 8],
}

impl Toeplitz {
    /// Prepares a key.
    pub fn new(key: &[u8; 40]) -> Toeplitz {
        let bit = |at: usize| key[at / 8] >> (7 - at % 8) & 1;
        // The 32 bits of the key from `at` on: the effect of a set input bit at `at`.
        let window =
            |at: usize| (at..at + 32).fold(0, |window, at| window << 1 | u32::from(bit(at)));
        let mut halves = [[0; 16]; TOEPLITZ_WORDS * 8];
        for (half, table) in halves.iter_mut().enumerate() {
            for (value, entry) in table.iter_mut().enumerate() {
                *entry = (0..4)
                    .filter(|bit| value & (8 >> bit) != 0)
                    .fold(0, |hash, bit| hash ^ window(half * 4 + bit));
            }
        }
        Toeplitz { halves }
    }

    /// Hash of words at input position `at`.
    fn words(&self, at: usize, words: &[u32]) -> u32 {
        let tables = self.halves.chunks_exact(8).skip(at);
        words.iter().zip(tables).fold(0, |hash, (word, tables)| {
            (0..8).fold(hash, |hash, half| {
                hash ^ tables[half][(word >> (28 - 4 * half) & 15) as usize]
            })
        })
    }
}

/// The word at `at`; 0 if out of range.
fn word(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..) {
        Some([high, low, ..]) => u16::from_be_bytes([*high, *low]),
        _ => 0,
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn v4_tuple(src: &str, src_port: u16, dst: &str, dst_port: u16) -> Tuple {
        Tuple::V4 {
            src: src.parse().expect("it is an address"),
            dst: dst.parse().expect("it is an address"),
            protocol: 6,
            ports: (src_port, dst_port),
        }
    }

    fn v6_tuple(src: &str, src_port: u16, dst: &str, dst_port: u16) -> Tuple {
        Tuple::V6 {
            src: src.parse().expect("it is an address"),
            dst: dst.parse().expect("it is an address"),
            protocol: 6,
            ports: (src_port, dst_port),
        }
    }

    /// 10.0.0.1:1000 to 10.0.0.2:2000 over UDP, with tags of these types.
    fn frame(tags: &[u16]) -> Vec<u8> {
        let mut frame = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1].to_vec();
        for tag in tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0x20, 0x07]);
        }
        frame.extend([0x08, 0x00, 0x45, 0, 0, 30, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x03, 0xe8, 0x07, 0xd0, 0, 10, 0, 0, 1, 2]);
        frame
    }

    const FRAME_TUPLE: Tuple = Tuple::V4 {
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: Ipv4Addr::new(10, 0, 0, 2),
        protocol: 17,
        ports: (1000, 2000),
    };

    #[test]
    fn vectors_of_the_crc_hold() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
        assert_eq!(crc32c(&[]), 0);
    }

    #[test]
    fn vectors_of_the_nic_hash_hold() {
        let toeplitz = Toeplitz::new(&TOEPLITZ_KEY);
        let vectors = [
            (v4_tuple("66.9.149.187", 2794, "161.142.100.80", 1766), 0x51cc_c178),
            (v4_tuple("66.9.149.187", 0, "161.142.100.80", 0), 0x323e_8fc2),
            (v4_tuple("199.92.111.2", 14230, "65.69.140.83", 4739), 0xc626_b0ea),
            (v4_tuple("199.92.111.2", 0, "65.69.140.83", 0), 0xd718_262a),
            (v6_tuple("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766), 0x4020_7d3d),
            (v6_tuple("3ffe:2501:200:1fff::7", 0, "3ffe:2501:200:3::1", 0), 0x2cc1_8cd5),
        ];
        for (tuple, hash) in vectors {
            assert_eq!(tuple.toeplitz(&toeplitz), hash, "{tuple:?}");
        }
    }

    #[test]
    fn tuple_is_found_after_up_to_two_tags() {
        for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100]] {
            assert_eq!(tuple(&frame(tags)), FRAME_TUPLE, "{tags:x?}");
        }
        let three = tuple(&frame(&[0x88a8, 0x8100, 0x8100]));
        assert!(matches!(three, Tuple::Ethernet { ethertype: 0x8100, .. }), "{three:?}");
    }

    #[test]
    fn fragments_of_a_datagram_are_one_flow() {
        let mut first = frame(&[]);
        first[20] = 0x20;
        let mut second = frame(&[]);
        second[21] = 0x01;
        assert_eq!(tuple(&first), tuple(&second));
        assert!(matches!(tuple(&first), Tuple::V4 { ports: (0, 0), protocol: 17, .. }));
    }

    #[test]
    fn protocol_without_ports_has_none() {
        let mut icmp = frame(&[]);
        icmp[23] = 1;
        assert!(matches!(tuple(&icmp), Tuple::V4 { ports: (0, 0), protocol: 1, .. }));
    }

    #[test]
    fn ports_of_version_6_are_found_behind_extension_headers() {
        let mut frame = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd].to_vec();
        let src: Ipv6Addr = "fd00::1".parse().expect("it is an address");
        let dst: Ipv6Addr = "fd00::2".parse().expect("it is an address");
        let repr = ipv6::Repr {
            src,
            dst,
            next: 0,
            hops: 64,
            service: 0,
            flow_label: 5,
            payload_bytes: 12,
        };
        let mut header = [0; 40];
        repr.write(&mut header).expect("it fits");
        frame.extend(header);
        frame.extend([17, 0, 1, 4, 0, 0, 0, 0, 0x03, 0xe8, 0x07, 0xd0]);
        assert_eq!(tuple(&frame), Tuple::V6 { src, dst, protocol: 17, ports: (1000, 2000) });
    }

    #[test]
    fn anything_else_is_a_flow_by_its_addresses() {
        let arp = Tuple::Ethernet { src: [1; 6], dst: [0xff; 6], ethertype: 0x0806 };
        let frame = [&[0xff; 6][..], &[1; 6], &[0x08, 0x06, 0, 1]].concat();
        assert_eq!(tuple(&frame), arp);
        let broken = [&[0xff; 6][..], &[1; 6], &[0x08, 0x00, 0x65]].concat();
        assert!(matches!(tuple(&broken), Tuple::Ethernet { ethertype: 0x0800, .. }));
        assert!(matches!(tuple(&[]), Tuple::Ethernet { ethertype: 0, .. }));
    }

    #[test]
    fn outer_numbers_are_in_their_ranges() {
        assert_eq!((source_port(0), source_port(u32::MAX)), (49152, 65535));
        assert_eq!((flow_label(0), flow_label(u32::MAX)), (1, 0xf_ffff));
    }

    #[test]
    fn flows_that_differ_a_little_are_spread_evenly() {
        // 4096 flows that differ in the source port alone, over 16 workers by the upper bits.
        let mut counts = [0; 16];
        for port in 0..4096 {
            let tuple = v4_tuple("10.0.0.1", port, "10.0.0.2", 80);
            counts[(tuple.crc32c() >> 28) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (128..=512).contains(count)), "{counts:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn crc_by_words_is_the_crc_by_bits(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let plain = !bytes.iter().fold(!0, |crc: u32, byte| {
                (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                    crc >> 1 ^ if crc & 1 != 0 { POLYNOMIAL } else { 0 }
                })
            });
            prop_assert_eq!(crc32c(&bytes), plain);
        }

        #[test]
        fn hash_of_a_tuple_is_that_of_its_bytes(src: [u8; 4], dst: [u8; 4], ports: Ports) {
            let tuple = Tuple::V4 { src: src.into(), dst: dst.into(), protocol: 17, ports };
            let bytes = [
                &src[..], &dst, &ports.0.to_be_bytes(), &ports.1.to_be_bytes(), &[0, 0, 0, 17],
            ].concat();
            prop_assert_eq!(tuple.crc32c(), crc32c(&bytes));
        }

        #[test]
        fn hostile_frames_have_a_flow_of_their_own_bytes(
            mut bytes in prop::collection::vec(any::<u8>(), 0..120),
            tag_count in 0..3usize,
            start in prop::sample::select(&[[0x08, 0x00, 0x45], [0x86, 0xdd, 0x60], [0x88, 0xb5, 0]]),
        ) {
            let type_at = ethernet::TYPE_OFFSET + tag_count * ethernet::VLAN_BYTES;
            let types = (0..tag_count).flat_map(|_| [0x81, 0x00, 0, 7]).chain(start);
            for (to, from) in bytes.iter_mut().skip(ethernet::TYPE_OFFSET).zip(types) {
                *to = from;
            }
            let mut padded = bytes.clone();
            padded.resize(200, 0);
            let packet = &padded[type_at + 2..];
            let are_ports = |ports: Ports| {
                let word = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
                ports == (0, 0) || bytes.windows(4).any(|window| window == word)
            };
            let flow = tuple(&bytes);
            match flow {
                Tuple::V4 { src, dst, protocol, ports } => {
                    prop_assert_eq!(&packet[12..20], [src.octets(), dst.octets()].concat());
                    prop_assert!(bytes.len() >= type_at + 22 && packet[9] == protocol && are_ports(ports));
                }
                Tuple::V6 { src, dst, ports, .. } => {
                    prop_assert_eq!(&packet[8..40], [src.octets(), dst.octets()].concat());
                    prop_assert!(bytes.len() >= type_at + 42 && are_ports(ports));
                }
                Tuple::Ethernet { src, dst, ethertype } => {
                    // A field that is cut off counts as 0.
                    let field = |at: usize, len| {
                        bytes.get(at..at + len).map_or_else(|| std::vec![0; len], <[u8]>::to_vec)
                    };
                    prop_assert_eq!([dst, src].concat(), [field(0, 6), field(6, 6)].concat());
                    prop_assert_eq!(ethertype.to_be_bytes().to_vec(), field(type_at, 2));
                }
            }
            flow.crc32c();
        }
    }
}
