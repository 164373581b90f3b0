//! Follows the MTU of the paths to the far ends: reads the reports of routers, and forgets them in time.

use std::net::{IpAddr, UdpSocket};

use report::metrics::Metrics;
use serde_json::{Value, json};
use sys::clock::monotonic_ns;
use wire::icmp::TooBig;
use wire::ipv4;

use super::Operator;
use super::next_hop::Links;
use crate::config::Config;
use crate::forwarder::Forwarder;
use crate::path_mtu::{self, Learnt, MtuJudgement, MtuReport, RecentSizes};

/// Time from one change to the next: each writes the headers of all tunnels.
const CHANGE_INTERVAL_NS: u64 = 100_000_000;
/// Reports read at once; others wait in the socket, which holds some hundreds.
const REPORTS_MAX: usize = 1024;
/// Longest report. Routers return at most 576 bytes of IPv4 (RFC 1812, section 4.3.2.3) and 1,280 of IPv6; the
/// checksum is over all of them.
const REPORT_BYTES: usize = 2048;

/// State of the paths as it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathLive {
    /// MTU in force of the path to each tunnel's far end, by its name.
    pub mtus: Vec<(String, u16)>,
    /// Reports that lowered an MTU.
    pub lowered_count: u64,
    /// Reports about packets that were not sent, or that would have fitted.
    pub refused_count: u64,
    /// MTUs that were forgotten, because no report renewed them for ten minutes.
    pub expired_count: u64,
}

/// Reader of the routers' reports.
#[derive(Debug)]
pub(super) struct PathWatch {
    /// `None` if it cannot be opened, which was reported.
    reports: Option<UdpSocket>,
    /// By tunnel.
    sizes: Vec<RecentSizes>,
    not_before_ns: u64,
    lowered_count: u64,
    refused_count: u64,
    expired_count: u64,
}

impl PathWatch {
    /// Opens a socket for the reports to the underlay's address. Call it in the interfaces' network namespace.
    pub(super) fn open(config: &Config, operator: &mut impl Operator) -> PathWatch {
        let opened = config.underlay.address.map(sys::icmp::open_too_big);
        let reports = match opened {
            Some(Ok(socket)) => Some(UdpSocket::from(socket)),
            Some(Err(error)) => {
                operator.note(&format!(
                    "the MTU of the paths is not learnt: cannot open a socket for ICMP to {}: {error}; give the \
                     address to an interface of this host, or set underlay.mtu to that of the narrowest link",
                    config.underlay.address.map_or_else(String::new, |address| address.to_string())
                ));
                None
            }
            None => None,
        };
        PathWatch {
            reports,
            sizes: Vec::new(),
            not_before_ns: 0,
            lowered_count: 0,
            refused_count: 0,
            expired_count: 0,
        }
    }

    /// Forgets sizes by tunnel, whose indexes may have changed.
    pub(super) fn reset(&mut self) {
        self.sizes.clear();
    }

    /// Reads reports, and forgets the MTUs that are due. Returns true if an MTU of `links` has changed.
    pub(super) fn follow(
        &mut self,
        config: &Config,
        links: &mut Links,
        forwarder: &Forwarder<'_>,
        operator: &mut impl Operator,
    ) -> bool {
        let now_ns = monotonic_ns();
        if now_ns < self.not_before_ns {
            return false;
        }
        let mut is_changed = false;
        // Before the reports are read: they are about packets sent before.
        let sizes = forwarder.take_sent_bytes_max();
        self.sizes.resize(sizes.len(), RecentSizes::default());
        self.sizes.iter_mut().zip(sizes).for_each(|(recent, bytes)| recent.note(bytes, now_ns));
        let mut bytes = [0; REPORT_BYTES];
        for _ in 0..REPORTS_MAX {
            let received = self.reports.as_ref().and_then(|it| it.recv_from(&mut bytes).ok());
            let Some((len, router)) = received else { break };
            let router = router.ip();
            let Some(report) = bytes.get(..len).and_then(|bytes| too_big(router, bytes)) else {
                continue;
            };
            is_changed |= self.judge(&report, router, (config, links), forwarder, operator, now_ns);
        }
        for note in forget_expired(config, links, now_ns) {
            is_changed = true;
            self.expired_count += 1;
            operator.note(&note);
        }
        if is_changed {
            self.not_before_ns = now_ns + CHANGE_INTERVAL_NS;
        }
        is_changed
    }

    /// Returns true if the report has lowered an MTU.
    fn judge(
        &mut self,
        too_big: &TooBig<'_>,
        router: IpAddr,
        (config, links): (&Config, &mut Links),
        forwarder: &Forwarder<'_>,
        operator: &mut impl Operator,
        now_ns: u64,
    ) -> bool {
        let senders = forwarder.possible_senders(too_big.quoted);
        let Some((tunnel, packet_bytes)) = senders.first().copied() else { return false };
        let Some(remote) = config.tunnels.get(tunnel).map(|it| it.tunnel.remote) else {
            return false;
        };
        // The network identifier may not be quoted: any of the tunnels to this far end.
        let sent = senders.iter().filter_map(|(at, _)| self.sizes.get(*at));
        let sent_bytes_max = sent.map(RecentSizes::bytes_max).max().unwrap_or(0);
        let Some(hop) = links.next_hops.get(tunnel) else { return false };
        let known_bytes = hop.mtu_bytes(config);
        let report = MtuReport { remote, mtu_bytes: too_big.mtu_bytes, packet_bytes };
        let mtu_bytes = match path_mtu::judge(&report, known_bytes, sent_bytes_max) {
            MtuJudgement::Lowered(mtu_bytes) => mtu_bytes,
            MtuJudgement::Renewed => known_bytes,
            MtuJudgement::Late => return false,
            MtuJudgement::Refused => {
                self.refused_count += 1;
                return false;
            }
        };
        // The path is that of the address: all tunnels to it.
        let learnt = Learnt { mtu_bytes, until_ns: now_ns + path_mtu::LIFE_NS };
        let tunnels = config.tunnels.iter().zip(&mut links.next_hops);
        for (_, hop) in tunnels.filter(|(other, _)| other.tunnel.remote == remote) {
            // A link of this host that is as narrow is no report's to forget.
            if hop.learnt.is_some() || mtu_bytes < hop.mtu_bytes(config) {
                hop.learnt = Some(learnt);
            }
        }
        if mtu_bytes == known_bytes {
            return false;
        }
        self.lowered_count += 1;
        operator.note(&format!(
            "tunnel {}: {router} reports that the path to {remote} carries packets of {mtu_bytes} bytes; senders \
             of larger ones are told",
            config.tunnels[tunnel].name
        ));
        true
    }

    /// State as it is shown.
    pub(super) fn live(&self, config: &Config, links: &Links) -> PathLive {
        let tunnels = config.tunnels.iter().zip(&links.next_hops);
        PathLive {
            mtus: tunnels
                .map(|(tunnel, hop)| (tunnel.name.clone(), hop.mtu_bytes(config)))
                .collect(),
            lowered_count: self.lowered_count,
            refused_count: self.refused_count,
            expired_count: self.expired_count,
        }
    }
}

/// Forgets the MTUs that no report has renewed in time. Returns a message for each.
fn forget_expired(config: &Config, links: &mut Links, now_ns: u64) -> Vec<String> {
    let mut notes = Vec::new();
    for (tunnel, hop) in config.tunnels.iter().zip(&mut links.next_hops) {
        if let Some(gone) = hop.learnt.take_if(|learnt| learnt.until_ns <= now_ns) {
            notes.push(format!(
                "tunnel {}: the path's MTU of {} bytes was last reported ten minutes ago; larger packets are \
                 tried again",
                tunnel.name, gone.mtu_bytes
            ));
        }
    }
    notes
}

/// The report in a message from a socket: with the IP header in front for IPv4.
fn too_big(router: IpAddr, bytes: &[u8]) -> Option<TooBig<'_>> {
    match router {
        IpAddr::V4(_) => {
            let header = ipv4::Header::parse(bytes, bytes.len()).ok()?;
            TooBig::parse_v4(bytes.get(header.header_bytes()..)?)
        }
        IpAddr::V6(_) => TooBig::parse_v6(bytes),
    }
}

/// An object with the MTU of each tunnel's path.
pub(super) fn json(live: &PathLive) -> Value {
    let mtus = live.mtus.iter().map(|(name, mtu_bytes)| (name.clone(), (*mtu_bytes).into()));
    json!({
        "mtu": Value::Object(mtus.collect()),
        "lowered": live.lowered_count,
        "refused": live.refused_count,
        "expired": live.expired_count,
    })
}

/// Adds the metrics by tunnel.
pub(super) fn add_metrics(metrics: &mut Metrics, live: &PathLive) {
    let help = "MTU in force of the path to a tunnel's far end.";
    let mut mtus = metrics.gauge("path_mtu_bytes", help);
    for (name, mtu_bytes) in &live.mtus {
        mtus.sample(&[("tunnel", name)], *mtu_bytes);
    }
    let help = "Reports of routers on the path by fate.";
    metrics
        .counter("path_mtu_reports_total", help)
        .sample(&[("fate", "lowered")], live.lowered_count)
        .sample(&[("fate", "refused")], live.refused_count);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use host::net;
    use host::netns::Netns;

    use super::*;
    use crate::run::next_hop::NextHop;

    /// Sends a message from a raw socket of a protocol to an address of this host.
    fn send(domain: i32, protocol: i32, to: IpAddr, message: &[u8]) {
        const SOCK_RAW: i32 = 3;
        let socket = sys::socket::open(domain, SOCK_RAW, protocol).expect("CAP_NET_RAW");
        let sent = UdpSocket::from(socket).send_to(message, (to, 0)).expect("a route");
        assert_eq!(sent, message.len());
    }

    #[test]
    fn reports_of_both_ip_versions_arrive_and_other_messages_do_not() {
        const LOOPBACK: u32 = 1;
        let netns = Netns::new().expect("root");
        let ran = netns.run(|| {
            net::set_up(LOOPBACK, true).expect("it is there");
            // As much as a router returns of a full packet.
            let quoted = [0x45; 548];
            let mut v4 = [&[3, 4, 0, 0, 0, 0, 5, 20][..], &quoted].concat();
            let sum = wire::checksum::checksum(&v4).to_be_bytes();
            v4[2..4].copy_from_slice(&sum);
            let v6 = [&[2, 0, 0, 0, 0, 0, 5, 20][..], &quoted].concat();
            let v4_echo = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
            let v6_echo = [128, 0, 0, 0, 0, 0, 0, 0];
            for (local, domain, protocol, echo, message) in [
                (IpAddr::from([127, 0, 0, 1]), 2, 1, v4_echo, v4),
                (IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]), 10, 58, v6_echo, v6),
            ] {
                let reports = sys::icmp::open_too_big(local).expect("CAP_NET_RAW");
                let reports = UdpSocket::from(reports);
                let mut bytes = [0; REPORT_BYTES];
                let error = reports.recv_from(&mut bytes).expect_err("nothing was sent");
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                send(domain, protocol, local, &echo);
                send(domain, protocol, local, &message);
                reports.set_nonblocking(false).expect("a socket");
                reports.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
                let (len, router) = reports.recv_from(&mut bytes).expect("the report, and no echo");
                let report = too_big(router.ip(), &bytes[..len]).expect("it is whole");
                assert_eq!(report, TooBig { mtu_bytes: 1300, quoted: &quoted });
                assert_eq!(router.ip(), local);
            }
        });
        ran.expect("the namespace is there");
    }

    fn hop(last: u8, learnt: Option<Learnt>) -> NextHop {
        NextHop { mac: [2, 0, 0, 0, 0, last], narrow: None, learnt }
    }

    #[test]
    fn mtu_that_is_not_reported_again_is_forgotten_and_another_next_hop_is_another_path() {
        let config = Config::parse(
            "[port]\ninterface = \"a\"\n[underlay]\ninterface = \"b\"\naddress = \"10.0.0.1\"\n\
             [[tunnel]]\nname = \"t\"\ncarrier = \"vxlan\"\nvni = 1\nremote = \"10.0.0.2\"\n",
        )
        .expect("it is valid");
        let learnt = Some(Learnt { mtu_bytes: 1300, until_ns: 1000 });
        let mut links = Links { own_mac: [0; 6], next_hops: vec![hop(1, learnt)] };
        assert_eq!(links.next_hops[0].mtu_bytes(&config), 1300);
        for (last, expected) in [(1, learnt), (2, None)] {
            let mut found = Links { own_mac: [0; 6], next_hops: vec![hop(last, None)] };
            found.keep_learnt(&config, &links, &config);
            assert_eq!(found.next_hops[0].learnt, expected);
        }
        assert_eq!(forget_expired(&config, &mut links, 999), [""; 0]);
        let notes = forget_expired(&config, &mut links, 1000);
        assert!(notes.len() == 1 && notes[0].starts_with("tunnel t: the path's MTU of 1300"));
        assert_eq!(links.next_hops[0].mtu_bytes(&config), 1500);
    }

    #[test]
    fn mtu_and_reports_are_shown_by_tunnel() {
        let live = PathLive {
            mtus: vec![("b".into(), 1300)],
            lowered_count: 1,
            refused_count: 2,
            expired_count: 3,
        };
        let shown = json(&live);
        assert_eq!((&shown["mtu"]["b"], &shown["refused"]), (&1300.into(), &2.into()));
        let mut metrics = Metrics::new("wirepath_tunnel");
        add_metrics(&mut metrics, &live);
        let metrics = metrics.text();
        for line in [
            "wirepath_tunnel_path_mtu_bytes{tunnel=\"b\"} 1300\n",
            "wirepath_tunnel_path_mtu_reports_total{fate=\"lowered\"} 1\n",
        ] {
            assert!(metrics.contains(line), "{metrics}");
        }
    }
}
