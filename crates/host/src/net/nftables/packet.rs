//! A packet as rules see it.

/// Part of the stack whose chains a packet meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    Ip,
    Bridge,
    Arp,
    /// Chains of single interfaces.
    Device,
}

/// Point of the stack where chains are entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookPoint {
    pub layer: Layer,
    /// Such as `input`.
    pub hook: &'static str,
}

impl HookPoint {
    /// True if a chain of that family belongs to this layer.
    pub(super) fn has(self, family: &str, packet: &RulePacket) -> bool {
        match self.layer {
            Layer::Ip if family == "inet" => true,
            Layer::Ip => family == if packet.is_ipv6() { "ip6" } else { "ip" },
            Layer::Bridge => family == "bridge",
            Layer::Arp => family == "arp",
            Layer::Device => family == "netdev" || family == "inet",
        }
    }
}

/// Interface: index and name; index 0 and no name for none.
pub type RuleInterface = (u32, String);

/// Headers of a packet, and its state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RulePacket {
    /// Ethernet header.
    pub link: Option<[u8; 14]>,
    /// Bytes from the network header.
    pub network: Vec<u8>,
    /// Type of the Ethernet frame.
    pub ethertype: u16,
    /// `None` if unknown.
    pub input: Option<RuleInterface>,
    pub output: Option<RuleInterface>,
    pub mark: Option<u32>,
    pub length_bytes: Option<u32>,
    /// `skb->pkt_type`.
    pub packet_type: Option<u8>,
    /// Bits of `ct state`; `None` if unknown.
    pub connection_state: Option<u32>,
}

const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
const IPV6_HEADER_BYTES: usize = 40;

/// Where the transport header is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    At(usize),
    /// A later fragment has none.
    Absent,
    Unknown,
}

impl RulePacket {
    pub(super) fn is_ipv6(&self) -> bool {
        self.ethertype == TYPE_IPV6
    }

    /// IP protocol; `None` if it is unknown.
    pub fn protocol(&self) -> Option<u8> {
        match self.ethertype {
            TYPE_IPV4 => self.network.get(9).copied(),
            // Extension headers are not followed.
            TYPE_IPV6 => {
                self.network.get(6).copied().filter(|next| !matches!(next, 0 | 43 | 44 | 51 | 60))
            }
            _ => None,
        }
    }

    pub(super) fn transport(&self) -> Transport {
        match (self.ethertype, self.network.first(), self.network.get(6..8)) {
            (TYPE_IPV4, Some(_), Some(fragment))
                if u16::from_be_bytes([fragment[0], fragment[1]]) & 0x1fff != 0 =>
            {
                Transport::Absent
            }
            (TYPE_IPV4, Some(first), _) => Transport::At(usize::from(first & 15) * 4),
            (TYPE_IPV6, ..) if self.protocol().is_some() => Transport::At(IPV6_HEADER_BYTES),
            _ => Transport::Unknown,
        }
    }

    /// Source and destination port, host byte order.
    pub fn ports(&self) -> Option<(u16, u16)> {
        let Transport::At(at) = self.transport() else { return None };
        let bytes = self.network.get(at..at + 4)?;
        let is_port = matches!(self.protocol(), Some(6 | 17));
        is_port.then(|| {
            (u16::from_be_bytes([bytes[0], bytes[1]]), u16::from_be_bytes([bytes[2], bytes[3]]))
        })
    }

    /// Value of `enum nft_meta_keys`; `None` if it is unknown.
    pub(super) fn meta(&self, key: u32) -> Option<Vec<u8>> {
        let index = |interface: &Option<RuleInterface>| {
            interface.as_ref().map(|(index, _)| index.to_ne_bytes().to_vec())
        };
        let name = |interface: &Option<RuleInterface>| {
            interface.as_ref().map(|(_, name)| name_bytes(name).to_vec())
        };
        match key {
            0 => self.length_bytes.map(|length| length.to_ne_bytes().to_vec()),
            1 => Some(self.ethertype.to_be_bytes().to_vec()),
            3 => self.mark.map(|mark| mark.to_ne_bytes().to_vec()),
            4 => index(&self.input),
            5 => index(&self.output),
            6 => name(&self.input),
            7 => name(&self.output),
            15 => Some(vec![self.family_number()?]),
            16 => self.protocol().map(|protocol| vec![protocol]),
            19 => self.packet_type.map(|kind| vec![kind]),
            _ => None,
        }
    }

    /// Source: linux/netfilter.h, NFPROTO_*.
    fn family_number(&self) -> Option<u8> {
        match self.ethertype {
            TYPE_IPV4 => Some(2),
            TYPE_IPV6 => Some(10),
            _ => None,
        }
    }
}

const NAME_BYTES: usize = 16;

/// An interface's name, filled with zeroes.
fn name_bytes(name: &str) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    bytes.iter_mut().zip(name.bytes().take(NAME_BYTES - 1)).for_each(|(to, byte)| *to = byte);
    bytes
}
