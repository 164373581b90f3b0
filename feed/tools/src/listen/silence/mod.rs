//! Notes about silent lines: where the datagrams of the group end, and what to do.
//!
//! While a line is silent, a tap counts the multicast datagrams that reach its interface. Those of the group that
//! the socket does not get were dropped by this host; the counters of the kernel tell where.

mod counters;
mod sightings;

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::thread;

use io::multicast::Group;
use sys::packet_tap::MulticastTap;

use self::counters::{HostCounters, rp_filter};
use self::sightings::Sightings;

/// Packets taken from a tap at once.
const TAKEN_MAX: usize = 512;
const SECOND_NS: u64 = 1_000_000_000;

/// Observation of all lines.
#[derive(Debug)]
pub(super) struct SilenceWatch {
    lines: Vec<LineWatch>,
    limit_ns: u64,
    /// Counters when the run was opened.
    opened: HostCounters,
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
    before: HostCounters,
}

impl SilenceWatch {
    /// - `limit_ns`: silence after which there is a note.
    /// - `has_taps`: the groups are received by sockets.
    pub(super) fn open(groups: &[Group], limit_ns: u64, has_taps: bool) -> Self {
        let opened = HostCounters::now();
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
                before: opened.clone(),
            }
        });
        SilenceWatch { lines: lines.collect(), limit_ns, opened }
    }

    /// Looks at what arrives for a line while it is silent. Call it several times a second.
    ///
    /// - `heard`: its datagrams so far.
    /// - `has_ended`: the feed is over, and silence is right.
    pub(super) fn look(&mut self, line: usize, silent_ns: u64, heard: u64, has_ended: bool) {
        let limit_ns = self.limit_ns;
        let line = &mut self.lines[line];
        let is_silent = heard == 0 || silent_ns >= limit_ns / 2;
        if silent_ns < limit_ns || heard > 0 && has_ended {
            line.noted = Noted::None;
        }
        let is_needed = is_silent && line.noted != Noted::Done && !has_ended;
        match (is_needed, line.is_watching) {
            (true, false) => line.begin(heard),
            (false, true) => line.end(),
            _ => {}
        }
        line.take();
    }

    /// A note about the silence of a line, once for each silence that is long enough; and once more if datagrams of the
    /// group come to the interface of a line that never got any. Call it once a second.
    pub(super) fn note(
        &mut self,
        line: usize,
        silent_ns: u64,
        heard: u64,
        has_ended: bool,
    ) -> Option<String> {
        self.look(line, silent_ns, heard, has_ended);
        let line = &mut self.lines[line];
        if silent_ns < self.limit_ns || line.noted == Noted::Done || heard > 0 && has_ended {
            return None;
        }
        let has_seen = line.has_seen_own();
        if line.noted == Noted::NothingSeen {
            // The second check compares a whole second of datagrams with the counters.
            if !has_seen {
                line.before = HostCounters::now();
            }
            if !has_seen || !std::mem::replace(&mut line.is_suspect, true) {
                return None;
            }
        }
        line.noted = if has_seen || heard > 0 || line.tap.is_none() {
            Noted::Done
        } else {
            Noted::NothingSeen
        };
        let is_watched = line.tap.is_some() && line.is_watching;
        let evidence = Evidence {
            group: &line.group,
            seen: is_watched.then_some(&line.seen),
            grown: HostCounters::now().since(&line.before),
            heard,
        };
        let note = evidence.explain(silent_ns / SECOND_NS);
        if line.noted == Noted::Done {
            line.end();
        }
        Some(note)
    }

    /// True if the kernel dropped datagrams for their checksum since the run was opened, and none for a full buffer.
    pub(super) fn drops_are_of_checksums(&self) -> bool {
        let grown = HostCounters::now().since(&self.opened);
        grown.bad_checksum > 0 && grown.full_buffer == 0
    }
}

impl LineWatch {
    fn begin(&mut self, heard: u64) {
        self.is_watching = true;
        self.is_suspect = false;
        self.seen = Sightings::default();
        if heard > 0 {
            self.before = HostCounters::now();
        }
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
struct Evidence<'a> {
    group: &'a Group,
    /// `None` if nothing could be seen.
    seen: Option<&'a Sightings>,
    grown: HostCounters,
    heard: u64,
}

impl Evidence<'_> {
    /// Best explanation of the silence, with a remedy.
    fn explain(&self, seconds: u64) -> String {
        let Group { address, ifname, ifindex, .. } = self.group;
        let mut begin = format!("nothing from {address} on {ifname} for {seconds} s");
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
        let cause = self.own_datagrams_text().or_else(|| self.counters_text());
        if let Some(cause) = cause {
            return format!("{begin}{cause}");
        }
        if self.heard > 0 {
            return format!(
                "{begin}: the sender has stopped, or a switch dropped the membership (IGMP snooping \
                 without a querier)"
            );
        }
        format!("{begin}{}", self.other_packets_text())
    }

    /// Cause of the loss of datagrams of the group that reached the interface.
    fn own_datagrams_text(&self) -> Option<String> {
        let (seen, group) = (self.seen?, self.group);
        let own = seen.own_count(group);
        let torn = seen.torn_count(group);
        if own == 0 && torn > 0 {
            return Some(format!(
                ": {torn} of its datagrams or more reach {} with fragments missing, so the kernel cannot put \
                 them together; a firewall or switch on the way drops fragments, or this host does by a rule; \
                 send datagrams that fit into a frame",
                group.ifname
            ));
        }
        let at_least = if own == 0 { return None } else { own };
        let cause = self.drop_cause(seen, own);
        Some(format!(
            ", although {at_least} of its datagrams or more reached {}: {cause}",
            group.ifname
        ))
    }

    /// Most likely cause for which this host drops datagrams of the group.
    fn drop_cause(&self, seen: &Sightings, own: u64) -> String {
        let Group { address, ifname, .. } = self.group;
        let explains = |count: u64| count.saturating_mul(2) >= own;
        let grown = &self.grown;
        if explains(seen.for_other_host) {
            return "their frames have the hardware address of another host, so they are dropped; check the \
                    sender, or the port of the switch that mirrors them"
                .to_owned();
        }
        if let Some((sender, _)) = seen.senders.iter().find(|(sender, _)| is_own_address(*sender)) {
            return format!(
                "their sender's address {sender} is also one of this host, so the kernel drops them; give one of \
                 the two another address"
            );
        }
        if explains(grown.reverse_path) {
            return reverse_path(ifname, grown.reverse_path);
        }
        if explains(grown.bad_checksum) {
            return bad_checksum(grown.bad_checksum);
        }
        if explains(grown.bad_header) {
            return format!(
                "the kernel dropped {} packets for their IPv4 header (Ip InHdrErrors); check the sender",
                grown.bad_header
            );
        }
        if explains(grown.not_reassembled) {
            return format!(
                "the kernel could not put {} fragmented datagrams together (Ip ReasmFails); raise its room \
                 (sysctl -w net.ipv4.ipfrag_high_thresh=16777216)",
                grown.not_reassembled
            );
        }
        let routed = grown.routed_multicast;
        if explains(routed) {
            format!(
                "dropped by this host behind routing (IpExt InMcastPkts +{routed}), most likely by a firewall \
                 rule at its input; see nft list ruleset or iptables -S INPUT, and accept UDP port {} to {}",
                address.port(),
                address.ip()
            )
        } else {
            format!(
                "dropped by this host before routing (IpExt InMcastPkts +{routed}), most likely by a rule at \
                 prerouting or ingress; see nft list ruleset, iptables -t raw -S and tc filter show dev \
                 {ifname} ingress"
            )
        }
    }

    /// Drops that the kernel has counted, of this group or another.
    fn counters_text(&self) -> Option<String> {
        let Group { ifname, .. } = self.group;
        if self.grown.reverse_path > 0 && rp_filter(ifname) > 0 {
            return Some(format!(": {}", reverse_path(ifname, self.grown.reverse_path)));
        }
        let is_unseen = self.seen.is_none();
        (is_unseen && self.grown.bad_checksum > 0)
            .then(|| format!(": {}", bad_checksum(self.grown.bad_checksum)))
    }

    /// Explanation by the other arrivals.
    fn other_packets_text(&self) -> String {
        const SNOOPING: &str =
            "that the switch forwards the group (IGMP snooping without a querier)";
        let Group { address, ifname, source, .. } = self.group;
        let packets = self.grown.packets(ifname);
        let from = source.map_or(String::new(), |source| format!(", the --source {source}"));
        let Some(seen) = self.seen else {
            return match packets {
                0 => self.no_packet_text(),
                packets => format!(
                    ", but {packets} packets arrived, of which nothing is known without CAP_NET_RAW: check group \
                     and port{from}, the rules of this host (nft list ruleset), and {SNOOPING}"
                ),
            };
        };
        if let Some((sender, count)) = seen.excluded_sender(self.group) {
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
            (0, None) => self.no_packet_text(),
            (packets, None) => {
                format!(", but {packets} other packets: check group and port{from}, and {SNOOPING}")
            }
            (packets, Some((other, _))) => format!(
                ", but {} other packets, such as those to {other}: check group and port{from}, and {SNOOPING}",
                packets.max(1)
            ),
        }
    }

    fn no_packet_text(&self) -> String {
        match self.grown.busiest_other(&self.group.ifname) {
            Some((other, multicast)) => format!(
                ", and no other packets; {other} received {multicast} multicast frames in that time: check \
                 the interface (-i {other})"
            ),
            None => ", and no other packets: check the interface, and that the switch forwards the group \
                     (IGMP snooping without a querier)"
                .to_owned(),
        }
    }
}

/// True for an address of this host: a socket can be bound to it.
fn is_own_address(address: Ipv4Addr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

fn reverse_path(ifname: &str, dropped: u64) -> String {
    format!(
        "the kernel dropped {dropped} packets because the route to their sender is not through the receiving \
         interface (rp_filter {}); add a route to the sender through {ifname}, or sysctl -w \
         net.ipv4.conf.{ifname}.rp_filter=0 net.ipv4.conf.all.rp_filter=0",
        rp_filter(ifname)
    )
}

fn bad_checksum(dropped: u64) -> String {
    format!(
        "the kernel dropped {dropped} datagrams for a wrong UDP checksum (Udp InCsumErrors); the sender left \
         it unfinished (there: ethtool -K INTERFACE tx off), or a device on the way changed them"
    )
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV4;

    use super::*;

    fn cause(seen: Sightings, grown: HostCounters) -> String {
        let group = Group {
            address: SocketAddrV4::new([239, 1, 1, 1].into(), 10_000),
            source: None,
            ifindex: 1,
            ifname: "eth1".into(),
        };
        let evidence = Evidence { group: &group, seen: Some(&seen), grown, heard: 0 };
        evidence.own_datagrams_text().unwrap_or_else(|| evidence.other_packets_text())
    }

    fn own(count: u64) -> Sightings {
        let sender = Ipv4Addr::new(192, 0, 2, 9);
        Sightings { senders: vec![(sender, count)], ..Sightings::default() }
    }

    #[test]
    fn the_counter_that_grows_with_the_group_names_the_cause() {
        let none = HostCounters::default;
        let said = cause(own(100), HostCounters { routed_multicast: 100, ..none() });
        assert!(
            said.contains("100 of its datagrams") && said.contains("rule at its input"),
            "{said}"
        );
        let said = cause(own(100), none());
        assert!(said.contains("rule at prerouting or ingress"), "{said}");
        let said = cause(own(100), HostCounters { bad_checksum: 90, ..none() });
        assert!(said.contains("wrong UDP checksum"), "{said}");
        // A counter that grows by other traffic does not explain it.
        let said = cause(own(100), HostCounters { bad_checksum: 2, ..none() });
        assert!(said.contains("rule at prerouting"), "{said}");
        let said = cause(own(100), HostCounters { reverse_path: 80, ..none() });
        assert!(said.contains("rp_filter"), "{said}");
        let strangers = Sightings { for_other_host: 100, ..own(100) };
        let said = cause(strangers, HostCounters { routed_multicast: 0, ..none() });
        assert!(said.contains("hardware address of another host"), "{said}");
    }

    #[test]
    fn other_arrivals_are_named_if_nothing_of_the_group_arrives() {
        let ports = Sightings { other_ports: vec![(7, 3), (10_001, 40)], ..Sightings::default() };
        let said = cause(ports, HostCounters::default());
        assert!(said.contains("give 239.1.1.1:10001"), "{said}");
        let other = SocketAddrV4::new([239, 9, 9, 9].into(), 1);
        let groups = Sightings { other_groups: vec![(other, 40)], ..Sightings::default() };
        let said = cause(groups, HostCounters::default());
        assert!(said.contains("such as those to 239.9.9.9:1"), "{said}");
        let said = cause(Sightings::default(), HostCounters::default());
        assert!(said.contains("no other packets"), "{said}");
    }
}
