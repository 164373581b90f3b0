//! Driver settings by ethtool netlink: offloads, channels, rings, coalescing, time stamping.
//!
//! Source: the kernel's Documentation/networking/ethtool-netlink.rst.

use std::collections::BTreeMap;

use netlink_bindings::ethtool::{self as wire, HeaderFlags, IterableBitset, PushHeader};
use netlink_bindings::traits::Pusher;
use sys::netns::Netns;
use sys::sysfs::Sysfs;

use super::error::{NetError, ask};
use super::link::{link, links};
use crate::text::printable;

/// Offloads that labs switch, by their names in `ethtool -k`.
#[derive(Debug)]
pub struct Feature;

impl Feature {
    /// Generic receive offload: arrivals of one flow are merged.
    pub const GRO: &str = "rx-gro";
    /// UDP segmentation offload (GSO of UDP datagrams down to the device).
    pub const UDP_SEGMENTATION: &str = "tx-udp-segmentation";
    /// TCP segmentation offload over IPv4.
    pub const TSO: &str = "tx-tcp-segmentation";
    /// Generic segmentation: late, by the kernel, just before the driver.
    pub const GSO: &str = "tx-generic-segmentation";
    /// Checksums left to the device.
    pub const TX_CHECKSUM: &str = "tx-checksum-ip-generic";
}

/// Queues of an interface: in use and maximum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Channels {
    /// Receive-only queues in use.
    pub rx: u32,
    /// Transmit-only queues in use.
    pub tx: u32,
    /// Pairs of a receive and a transmit queue in use.
    pub combined: u32,
    pub rx_max: u32,
    pub tx_max: u32,
    pub combined_max: u32,
}

impl Channels {
    pub fn rx_queues(&self) -> u32 {
        self.rx + self.combined
    }

    pub fn tx_queues(&self) -> u32 {
        self.tx + self.combined
    }
}

/// Descriptors in a ring of each queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rings {
    pub rx: u32,
    pub rx_max: u32,
    pub tx: u32,
    pub tx_max: u32,
}

/// Interrupt coalescing; `None` if the device does not have a setting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Coalesce {
    /// Maximum delay of a received packet, microseconds.
    pub rx_us: Option<u32>,
    /// Received packets that end the delay.
    pub rx_frames: Option<u32>,
    /// Maximum delay of a transmit completion, microseconds.
    pub tx_us: Option<u32>,
    /// Sent packets that end the delay.
    pub tx_frames: Option<u32>,
    /// The device adapts the receive delay itself.
    pub is_adaptive_rx: Option<bool>,
    /// The device adapts the transmit delay itself.
    pub is_adaptive_tx: Option<bool>,
}

/// Where time stamps can be taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timestamping {
    /// On sending, by the device.
    pub hardware_tx: bool,
    /// On arrival, by the device.
    pub hardware_rx: bool,
    /// On arrival of every packet, not of PTP alone, by the device.
    pub hardware_rx_all: bool,
    /// On sending, by the driver.
    pub software_tx: bool,
    /// On arrival, by the kernel.
    pub software_rx: bool,
    /// The device's clock is `/dev/ptpN` of this number.
    pub clock_index: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offload {
    pub is_on: bool,
    /// It can be switched.
    pub is_offered: bool,
}

/// Every offload of an interface that is on or can be switched, by name.
pub fn offloads(index: u32) -> Result<BTreeMap<String, Offload>, NetError> {
    ask(format!("reading the offloads of interface {index}"), |socket| {
        let mut request = wire::Request::new().op_features_get_do();
        request.header_mut().cmd = FEATURES_GET;
        name_device(request.encode().nested_header(), index);
        let mut reply = socket.request(&request)?;
        let reply = reply.recv_one()?;
        let mut offloads = BTreeMap::<String, Offload>::new();
        for name in set_bits(reply.get_hw()?) {
            offloads.entry(name).or_default().is_offered = true;
        }
        for name in set_bits(reply.get_active()?) {
            offloads.entry(name).or_default().is_on = true;
        }
        for name in reply.get_nochange().map(set_bits).unwrap_or_default() {
            offloads.entry(name).or_default().is_offered = false;
        }
        Ok(offloads)
    })
}

/// Switches offloads by name and verifies the result.
pub fn set_features(index: u32, wanted: &[(&str, bool)]) -> Result<(), NetError> {
    let before = offloads(index)?;
    // A feature that is off and not offered by the device is not listed.
    let is_on = |offloads: &BTreeMap<String, Offload>, name| {
        offloads.get(name).is_some_and(|offload| offload.is_on)
    };
    if wanted.iter().all(|&(name, on)| is_on(&before, name) == on) {
        return Ok(());
    }
    ask(format!("switching offloads of interface {index}"), |socket| {
        let mut request = wire::Request::new().op_features_set_do();
        request.header_mut().cmd = FEATURES_SET;
        let mut encoder =
            name_device(request.encode().nested_header(), index).nested_wanted().nested_bits();
        for (name, on) in wanted {
            let mut bit = encoder.nested_bit().push_name_bytes(name.as_bytes());
            if *on {
                bit = bit.push_value(());
            }
            encoder = bit.end_nested();
        }
        drop(encoder);
        socket.request(&request)?.recv_ack()
    })?;
    let after = offloads(index)?;
    match wanted.iter().find(|&&(name, on)| is_on(&after, name) != on) {
        None => Ok(()),
        Some((name, on)) => Err(NetError::NotTaken {
            interface: link(index)?.name,
            what: format!("{name} {}", if *on { "on" } else { "off" }),
        }),
    }
}

pub fn channels(index: u32) -> Result<Channels, NetError> {
    ask(format!("reading the channels of interface {index}"), |socket| {
        let mut request = wire::Request::new().op_channels_get_do();
        request.header_mut().cmd = CHANNELS_GET;
        name_device(request.encode().nested_header(), index);
        let mut reply = socket.request(&request)?;
        let reply = reply.recv_one()?;
        Ok(Channels {
            rx: reply.get_rx_count().unwrap_or(0),
            tx: reply.get_tx_count().unwrap_or(0),
            combined: reply.get_combined_count().unwrap_or(0),
            rx_max: reply.get_rx_max().unwrap_or(0),
            tx_max: reply.get_tx_max().unwrap_or(0),
            combined_max: reply.get_combined_max().unwrap_or(0),
        })
    })
}

/// Sets the numbers of queues of `wanted` that differ from the current ones.
pub fn set_channels(index: u32, wanted: &Channels) -> Result<(), NetError> {
    let now = channels(index)?;
    ask(format!("setting the channels of interface {index}"), |socket| {
        let mut request = wire::Request::new().op_channels_set_do();
        request.header_mut().cmd = CHANNELS_SET;
        let mut encoder = name_device(request.encode().nested_header(), index);
        // A count that the device does not support is refused even if it is zero.
        if wanted.rx != now.rx {
            encoder = encoder.push_rx_count(wanted.rx);
        }
        if wanted.tx != now.tx {
            encoder = encoder.push_tx_count(wanted.tx);
        }
        if wanted.combined != now.combined {
            encoder = encoder.push_combined_count(wanted.combined);
        }
        drop(encoder);
        socket.request(&request)?.recv_ack()
    })
}

pub fn rings(index: u32) -> Result<Rings, NetError> {
    ask(format!("reading the rings of interface {index}"), |socket| {
        let mut request = wire::Request::new().op_rings_get_do();
        request.header_mut().cmd = RINGS_GET;
        name_device(request.encode().nested_header(), index);
        let mut reply = socket.request(&request)?;
        let reply = reply.recv_one()?;
        Ok(Rings {
            rx: reply.get_rx().unwrap_or(0),
            rx_max: reply.get_rx_max().unwrap_or(0),
            tx: reply.get_tx().unwrap_or(0),
            tx_max: reply.get_tx_max().unwrap_or(0),
        })
    })
}

pub fn coalesce(index: u32) -> Result<Coalesce, NetError> {
    ask(format!("reading the coalescing of interface {index}"), |socket| {
        let mut request = wire::Request::new().op_coalesce_get_do();
        request.header_mut().cmd = COALESCE_GET;
        name_device(request.encode().nested_header(), index);
        let mut reply = socket.request(&request)?;
        let reply = reply.recv_one()?;
        Ok(Coalesce {
            rx_us: reply.get_rx_usecs().ok(),
            rx_frames: reply.get_rx_max_frames().ok(),
            tx_us: reply.get_tx_usecs().ok(),
            tx_frames: reply.get_tx_max_frames().ok(),
            is_adaptive_rx: reply.get_use_adaptive_rx().ok().map(|on| on != 0),
            is_adaptive_tx: reply.get_use_adaptive_tx().ok().map(|on| on != 0),
        })
    })
}

/// Sets the sizes of receive and transmit rings in descriptors; `None` keeps the current size.
pub fn set_rings(index: u32, rx: Option<u32>, tx: Option<u32>) -> Result<(), NetError> {
    ask(format!("setting the rings of interface {index}"), |socket| {
        let mut request = wire::Request::new().op_rings_set_do();
        request.header_mut().cmd = RINGS_SET;
        let mut encoder = name_device(request.encode().nested_header(), index);
        if let Some(descriptors) = rx {
            encoder = encoder.push_rx(descriptors);
        }
        if let Some(descriptors) = tx {
            encoder = encoder.push_tx(descriptors);
        }
        drop(encoder);
        socket.request(&request)?.recv_ack()
    })
}

pub fn set_coalesce(index: u32, wanted: &Coalesce) -> Result<(), NetError> {
    ask(format!("setting the coalescing of interface {index}"), |socket| {
        let mut request = wire::Request::new().op_coalesce_set_do();
        request.header_mut().cmd = COALESCE_SET;
        let mut encoder = name_device(request.encode().nested_header(), index);
        if let Some(us) = wanted.rx_us {
            encoder = encoder.push_rx_usecs(us);
        }
        if let Some(frames) = wanted.rx_frames {
            encoder = encoder.push_rx_max_frames(frames);
        }
        if let Some(is_on) = wanted.is_adaptive_rx {
            encoder = encoder.push_use_adaptive_rx(u8::from(is_on));
        }
        if let Some(us) = wanted.tx_us {
            encoder = encoder.push_tx_usecs(us);
        }
        if let Some(frames) = wanted.tx_frames {
            encoder = encoder.push_tx_max_frames(frames);
        }
        if let Some(is_on) = wanted.is_adaptive_tx {
            encoder = encoder.push_use_adaptive_tx(u8::from(is_on));
        }
        drop(encoder);
        socket.request(&request)?.recv_ack()
    })
}

/// Where time stamps can be taken.
pub fn timestamping(index: u32) -> Result<Timestamping, NetError> {
    ask(format!("reading the time stamping of interface {index}"), |socket| {
        let mut request = wire::Request::new().op_tsinfo_get_do();
        request.header_mut().cmd = TSINFO_GET;
        name_device(request.encode().nested_header(), index);
        let mut reply = socket.request(&request)?;
        let reply = reply.recv_one()?;
        let offered = reply.get_timestamping().map(set_bits).unwrap_or_default();
        let filters = reply.get_rx_filters().map(set_bits).unwrap_or_default();
        let has = |name: &str| offered.iter().any(|offer| offer == name);
        Ok(Timestamping {
            hardware_tx: has("hardware-transmit"),
            hardware_rx: has("hardware-receive"),
            hardware_rx_all: filters.iter().any(|filter| filter == "all"),
            software_tx: has("software-transmit"),
            software_rx: has("software-receive"),
            clock_index: reply.get_phc_index().ok(),
        })
    })
}

/// Flow control between a card and its switch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pause {
    /// Frames of the other side stop the card.
    pub is_on_rx: bool,
    /// The card stops the other side.
    pub is_on_tx: bool,
    /// Pause frames received and sent; `None` if the driver does not count them.
    pub rx_frames: Option<u64>,
    pub tx_frames: Option<u64>,
}

pub fn pause(index: u32) -> Result<Pause, NetError> {
    ask(format!("reading the flow control of interface {index}"), |socket| {
        let mut request = wire::Request::new().op_pause_get_do();
        request.header_mut().cmd = PAUSE_GET;
        let header = request.encode().nested_header().push_dev_index(index);
        drop(header.push_flags(HeaderFlags::Stats as u32).end_nested());
        let mut reply = socket.request(&request)?;
        let reply = reply.recv_one()?;
        let stats = reply.get_stats().ok();
        Ok(Pause {
            is_on_rx: reply.get_rx().is_ok_and(|on| on != 0),
            is_on_tx: reply.get_tx().is_ok_and(|on| on != 0),
            rx_frames: stats.as_ref().and_then(|stats| stats.get_rx_frames().ok()),
            tx_frames: stats.as_ref().and_then(|stats| stats.get_tx_frames().ok()),
        })
    })
}

/// Modes of a link by their names in `ethtool`, such as `1000baseT/Full`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkModes {
    pub is_negotiated: Option<bool>,
    pub supported: Vec<String>,
    pub advertised: Vec<String>,
    /// Modes that the other side advertises; empty if it is not known.
    pub peer: Vec<String>,
}

pub fn link_modes(index: u32) -> Result<LinkModes, NetError> {
    ask(format!("reading the modes of interface {index}"), |socket| {
        let mut request = wire::Request::new().op_linkmodes_get_do();
        request.header_mut().cmd = LINKMODES_GET;
        name_device(request.encode().nested_header(), index);
        let mut reply = socket.request(&request)?;
        let reply = reply.recv_one()?;
        Ok(LinkModes {
            is_negotiated: reply.get_autoneg().ok().map(|on| on != 0),
            supported: reply.get_ours().map(all_bits).unwrap_or_default(),
            advertised: reply.get_ours().map(set_bits).unwrap_or_default(),
            peer: reply.get_peer().map(set_bits).unwrap_or_default(),
        })
    })
}

/// Most interfaces whose drivers are asked, and most counters of all.
const CARDS_MAX: usize = 64;
const COUNTERS_MAX: usize = 50_000;

/// Counters of the drivers of the first 64 real cards, at most 50,000: interface, name as in `ethtool -S`, count;
/// with them flow control's as `pause rx_frames` and `pause tx_frames`.
///
/// A card without counters has none.
pub fn driver_counters() -> Result<Vec<(String, String, u64)>, NetError> {
    let cards = links()?.into_iter().filter(|link| link.kind.is_none() && !link.is_loopback);
    let mut counters = Vec::new();
    for card in cards.take(CARDS_MAX) {
        let own = sys::ethtool::statistics(card.index).unwrap_or_default();
        let pause = pause(card.index).unwrap_or_default();
        let frames = [("pause rx_frames", pause.rx_frames), ("pause tx_frames", pause.tx_frames)];
        let frames = frames.into_iter().filter_map(|(name, n)| Some((name.to_owned(), n?)));
        let all = frames.chain(own).take(COUNTERS_MAX - counters.len());
        counters.extend(all.map(|(name, count)| (card.name.clone(), printable(&name, 40), count)));
    }
    Ok(counters)
}

/// Returns the name of the device's driver, or the kind of a virtual interface.
pub fn driver(index: u32) -> Result<Option<String>, NetError> {
    let link = link(index)?;
    if link.kind.is_some() {
        return Ok(link.kind);
    }
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| NetError::Io {
        what: format!("reading the driver of {}", link.name),
        source: std::io::Error::other(error),
    };
    let sysfs = Netns::current()
        .map_err(|error| failed(error.into()))
        .and_then(|netns| Sysfs::of(&netns).map_err(|error| failed(error.into())))?;
    sysfs
        .link_name(format!("class/net/{}/device/driver", link.name))
        .map_err(|error| failed(error.into()))
}

// Request numbers of linux/ethtool_netlink_generated.h. Those of netlink-bindings 0.3.5 also count the
// kernel's notifications and are therefore too high.
const LINKMODES_GET: u8 = 4;
const FEATURES_GET: u8 = 11;
const FEATURES_SET: u8 = 12;
const RINGS_GET: u8 = 15;
const RINGS_SET: u8 = 16;
const CHANNELS_GET: u8 = 17;
const CHANNELS_SET: u8 = 18;
const COALESCE_GET: u8 = 19;
const COALESCE_SET: u8 = 20;
const PAUSE_GET: u8 = 21;
const TSINFO_GET: u8 = 25;

/// Writes the interface of a request, and asks for no reply beyond the acknowledgement if that is
/// optional.
fn name_device<P: Pusher>(header: PushHeader<P>, index: u32) -> P {
    header.push_dev_index(index).push_flags(HeaderFlags::OmitReply as u32).end_nested()
}

/// Names in a list of bits, or in a mask.
fn all_bits(set: IterableBitset<'_>) -> Vec<String> {
    let listed = set.get_bits().into_iter().flat_map(|bits| bits.get_bit());
    listed.filter_map(|bit| Some(bit.get_name().ok()?.to_string_lossy().into_owned())).collect()
}

/// Names in a list of bits, or those of a mask whose value is set.
fn set_bits(set: IterableBitset<'_>) -> Vec<String> {
    let is_list = set.get_nomask().is_ok();
    let listed = set.get_bits().into_iter().flat_map(|bits| bits.get_bit());
    listed
        .filter(|bit| is_list || bit.get_value().is_ok())
        .filter_map(|bit| Some(bit.get_name().ok()?.to_string_lossy().into_owned()))
        .collect()
}
