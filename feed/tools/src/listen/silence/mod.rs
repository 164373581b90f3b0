//! Notes about silent lines: where the datagrams of the group end, and what to do.
//!
//! While a line is silent, a tap counts the multicast datagrams that reach its interface. Those of the group that
//! the socket does not get were dropped by this host; the library of causes tells why.

mod asker;
mod sightings;

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::thread;

use host::causes::{Finding, GroupArrivals, GroupQuestion};
use host::net::nftables::Ruleset;
use io::multicast::Group;
use sys::packet_tap::MulticastTap;

use self::asker::{Asker, Grown, said};
use self::sightings::Sightings;

/// Packets taken from a tap at once.
const TAKEN_MAX: usize = 512;
const SECOND_NS: u64 = 1_000_000_000;

/// Observation of all lines.
#[derive(Debug)]
pub(super) struct SilenceWatch {
    lines: Vec<LineWatch>,
    limit_ns: u64,
    /// `None` if no thread could be started.
    asker: Option<Asker>,
}

/// Note about the present silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Noted {
    None,
    /// Nothing of the group had reached the interface: it may come later, and be dropped here.
    NothingSeen,
    Done,
}

#[derive(Debug)]
struct LineWatch {
    group: Group,
    /// `None` without CAP_NET_RAW, and with AF_XDP, which takes datagrams before the tap.
    tap: Option<Arc<MulticastTap>>,
    is_watching: bool,
    noted: Noted,
    /// Datagrams of the group were seen at the last check already.
    is_suspect: bool,
    seen: Sightings,
}

impl SilenceWatch {
    /// - `limit_ns`: silence after which there is a note.
    /// - `has_taps`: the groups are received by sockets.
    pub(super) fn open(groups: &[Group], limit_ns: u64, has_taps: bool) -> Self {
        let asker = Asker::start();
        let lines = groups.iter().map(|group| {
            let own = *group.address.ip();
            let other = groups.iter().map(|other| *other.address.ip()).find(|other| *other != own);
            let tap = if has_taps { MulticastTap::open(other).ok() } else { None };
            LineWatch {
                group: group.clone(),
                tap: tap.map(Arc::new),
                is_watching: false,
                noted: Noted::None,
                is_suspect: false,
                seen: Sightings::default(),
            }
        });
        SilenceWatch { lines: lines.collect(), limit_ns, asker }
    }

    /// Looks at what arrives for a line while it is silent. Call it several times a second.
    ///
    /// - `heard`: its datagrams so far.
    /// - `has_ended`: the feed is over, and silence is right.
    pub(super) fn look(&mut self, at: usize, silent_ns: u64, heard: u64, has_ended: bool) {
        let limit_ns = self.limit_ns;
        let line = &mut self.lines[at];
        let is_silent = heard == 0 || silent_ns >= limit_ns / 2;
        if silent_ns < limit_ns || heard > 0 && has_ended {
            line.noted = Noted::None;
        }
        let is_needed = is_silent && line.noted != Noted::Done && !has_ended;
        match (is_needed, line.is_watching) {
            (true, false) => {
                line.begin();
                if let Some(asker) = self.asker.as_ref().filter(|_| heard > 0) {
                    asker.begin(at);
                }
            }
            (false, true) => line.end(),
            _ => {}
        }
        line.take();
    }

    /// Asks why a line is silent, once for each silence that is long enough; and once more if datagrams of the
    /// group come to the interface of a line that never got any. Call it once a second.
    pub(super) fn note(&mut self, at: usize, silent_ns: u64, heard: u64, has_ended: bool) {
        self.look(at, silent_ns, heard, has_ended);
        let Some(asker) = &mut self.asker else { return };
        let line = &mut self.lines[at];
        if silent_ns < self.limit_ns || line.noted == Noted::Done || heard > 0 && has_ended {
            return;
        }
        let has_seen = line.has_seen_own();
        if line.noted == Noted::NothingSeen {
            if !has_seen {
                return;
            }
            // The second check compares a whole second of datagrams with the counters.
            if !std::mem::replace(&mut line.is_suspect, true) {
                line.seen = Sightings::default();
                return asker.begin(at);
            }
        }
        line.noted = if has_seen || heard > 0 || line.tap.is_none() {
            Noted::Done
        } else {
            Noted::NothingSeen
        };
        let is_watched = line.tap.is_some() && line.is_watching;
        let silence = Silence {
            group: line.group.clone(),
            seen: is_watched.then(|| line.seen.clone()),
            heard,
            seconds: silent_ns / SECOND_NS,
        };
        asker.explain(at, silence);
        if line.noted == Noted::Done {
            line.end();
        }
    }

    /// Asks why sockets of this run dropped datagrams.
    pub(super) fn ask_about_drops(&mut self) {
        if let Some(asker) = &mut self.asker {
            asker.drops();
        }
    }

    /// Notes that answer what was asked.
    ///
    /// - `is_last`: waits for the others.
    pub(super) fn answers(&mut self, is_last: bool) -> Vec<String> {
        self.asker.as_mut().map_or_else(Vec::new, |asker| asker.answers(is_last))
    }
}

impl LineWatch {
    fn begin(&mut self) {
        self.is_watching = true;
        self.is_suspect = false;
        self.seen = Sightings::default();
        if let Some(tap) = &self.tap {
            // Packets from before the last rest.
            tap.take(TAKEN_MAX, &mut |_| {});
            if tap.watch(self.group.ifindex).is_err() {
                self.tap = None;
            }
        }
    }

    /// Ends the watch on another thread, because the kernel takes milliseconds and the line may be receiving again.
    fn end(&mut self) {
        if !std::mem::replace(&mut self.is_watching, false) {
            return;
        }
        let (Some(tap), ifindex) = (self.tap.clone(), self.group.ifindex) else { return };
        if thread::Builder::new().name("tap".into()).spawn(move || drop(tap.rest(ifindex))).is_err()
        {
            // No thread to be had: the tap is closed.
            self.tap = None;
        }
    }

    fn has_seen_own(&self) -> bool {
        self.seen.own_count(&self.group) + self.seen.torn_count(&self.group) > 0
    }

    fn take(&mut self) {
        if let (Some(tap), true) = (&self.tap, self.is_watching) {
            let (seen, group) = (&mut self.seen, &self.group);
            tap.take(TAKEN_MAX, &mut |packet| seen.add(packet, group));
        }
    }
}

/// Observations during the silence of a line.
struct Silence {
    group: Group,
    /// `None` if nothing could be seen.
    seen: Option<Sightings>,
    heard: u64,
    seconds: u64,
}

impl Silence {
    /// The question to the library of causes; `None` if the interface itself is the cause.
    fn question(&self, rules: &Arc<Ruleset>) -> Option<GroupQuestion> {
        let Group { address, ifname, ifindex, .. } = &self.group;
        host::net::link(*ifindex)
            .ok()
            .filter(|link| link.is_up && (link.has_carrier || link.is_loopback))?;
        Some(GroupQuestion {
            group: (*address).into(),
            interface: ifname.clone(),
            has_heard: self.heard > 0,
            seen: self.seen.as_ref().map(|seen| GroupArrivals {
                whole: seen.own_count(&self.group),
                torn: seen.torn_count(&self.group),
                for_other_host: seen.for_other_host,
                own_address: seen
                    .senders
                    .iter()
                    .map(|(sender, _)| *sender)
                    .find(|ip| is_own_address(*ip))
                    .map(Into::into),
            }),
            rules: Arc::clone(rules),
        })
    }

    /// Best explanation of the silence, with a remedy.
    ///
    /// - `found`: the answer to [`Self::question`].
    fn text(&self, found: Option<&Finding>, grown: &Grown<'_>) -> String {
        let Group { address, ifname, ifindex, .. } = &self.group;
        let mut begin = format!("nothing from {address} on {ifname} for {} s", self.seconds);
        match host::net::link(*ifindex) {
            Err(_) => return format!("{begin}: {ifname} was removed"),
            Ok(link) if !link.is_up => {
                return format!("{begin}: {ifname} is down; ip link set {ifname} up");
            }
            Ok(link) if !link.has_carrier && !link.is_loopback => {
                return format!("{begin}: {ifname} has no carrier; check the cable or the peer");
            }
            Ok(_) => {}
        }
        if self.heard > 0 {
            begin = format!("{begin}, after {} datagrams", self.heard);
        }
        let own = self.seen.as_ref().map_or(0, |seen| seen.own_count(&self.group));
        if own > 0 {
            begin = format!("{begin}, although {own} of its datagrams or more reached {ifname}");
        }
        match found {
            Some(found) => format!("{begin}: {}", said(found)),
            None if self.heard > 0 => format!(
                "{begin}: the sender has stopped, or a switch dropped the membership (IGMP snooping without a querier)"
            ),
            None => format!("{begin}{}", self.other_packets_text(grown)),
        }
    }

    /// Explanation by the other arrivals.
    fn other_packets_text(&self, grown: &Grown<'_>) -> String {
        const SNOOPING: &str =
            "that the switch forwards the group (IGMP snooping without a querier)";
        let Group { address, ifname, source, .. } = &self.group;
        let packets = grown.packets(ifname);
        let from = source.map_or(String::new(), |source| format!(", the --source {source}"));
        let Some(seen) = &self.seen else {
            return match packets {
                0 => NO_PACKET.to_owned(),
                packets => format!(
                    ", but {packets} packets arrived, of which nothing is known without CAP_NET_RAW: check group \
                     and port{from}, the rules of this host (nft list ruleset), and {SNOOPING}"
                ),
            };
        };
        if let Some((sender, count)) = seen.excluded_sender(&self.group) {
            return format!(
                ", but {count} of its datagrams or more came from {sender}: the --source {} excludes that \
                 sender",
                source.map_or(String::new(), |source| source.to_string())
            );
        }
        if let Some((port, count)) = seen.other_ports.iter().max_by_key(|(_, count)| count) {
            return format!(
                ", but {count} datagrams or more came to port {port} of the group: give {}:{port}",
                address.ip()
            );
        }
        let others = seen.other_groups.iter().max_by_key(|(_, count)| count);
        match (packets, others) {
            (0, None) => NO_PACKET.to_owned(),
            (packets, None) => {
                format!(", but {packets} other packets: check group and port{from}, and {SNOOPING}")
            }
            (packets, Some((other, _))) => format!(
                ", but {} other packets, such as those to {other}: check group and port{from}, and {SNOOPING}",
                packets.max(1)
            ),
        }
    }
}

const NO_PACKET: &str = ", and no other packets: check the interface, and that the switch forwards the group (IGMP snooping \
                         without a querier)";

/// True for an address of this host: a socket can be bound to it.
fn is_own_address(address: Ipv4Addr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV4;

    use host::causes::Sample;
    use host::tune::{Place, System};

    use super::*;

    /// The explanation of a silence in which an interface received nothing that was counted.
    fn cause(seen: Sightings) -> String {
        let group = Group {
            address: SocketAddrV4::new([239, 1, 1, 1].into(), 10_000),
            source: None,
            ifindex: 1,
            ifname: "eth1".into(),
        };
        let sample = Sample::take(&System::open(&Place::default()).unwrap()).unwrap();
        let silence = Silence { group, seen: Some(seen), heard: 0, seconds: 2 };
        silence.other_packets_text(&Grown { before: &sample, after: &sample })
    }

    #[test]
    fn other_arrivals_are_named_if_nothing_of_the_group_arrives() {
        let ports = Sightings { other_ports: vec![(7, 3), (10_001, 40)], ..Sightings::default() };
        let said = cause(ports);
        assert!(said.contains("give 239.1.1.1:10001"), "{said}");
        let other = SocketAddrV4::new([239, 9, 9, 9].into(), 1);
        let groups = Sightings { other_groups: vec![(other, 40)], ..Sightings::default() };
        let said = cause(groups);
        assert!(said.contains("such as those to 239.9.9.9:1"), "{said}");
        let said = cause(Sightings::default());
        assert!(said.contains("no other packets"), "{said}");
    }
}
