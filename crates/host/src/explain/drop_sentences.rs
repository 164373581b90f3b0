//! Plain sentences for the commonest of the kernel's reasons to drop a packet.

/// The reason in plain English, with where to look; `None` for a rare one.
///
/// - `reason`: name of `enum skb_drop_reason` without its prefix.
///
/// Source: include/net/dropreason-core.h.
pub(super) fn sentence(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "NO_SOCKET" => "no program listens on that port and address (`ss -lntu`)",
        "SOCKET_RCVBUFF" => {
            "the socket's receive buffer is full: the program reads too slowly, or needs a larger SO_RCVBUF"
        }
        "SOCKET_BACKLOG" => {
            "the socket was busy and its backlog full: the program reads too slowly"
        }
        "TCP_LISTEN_OVERFLOW" => {
            "the accept queue of a server is full: raise its backlog and net.core.somaxconn"
        }
        "IP_RPFILTER" => {
            "rp_filter: the route to the packet's source leads to another interface (`ip route get SOURCE`)"
        }
        "NETFILTER_DROP" => "a rule of the firewall (`nft list ruleset`, `iptables-save`)",
        "QDISC_DROP" | "QDISC_OVERLIMIT" => {
            "the send queue of an interface is full: a shaper, or a link too slow (`tc -s qdisc`)"
        }
        "CPU_BACKLOG" => {
            "the backlog of a CPU is full: raise net.core.netdev_max_backlog, or spread the load over CPUs"
        }
        "UDP_CSUM" | "TCP_CSUM" | "IP_CSUM" | "ICMP_CSUM" | "SKB_CSUM" => {
            "a wrong checksum: damaged, or left to a device that did not compute it"
        }
        "NEIGH_FAILED" | "NEIGH_QUEUEFULL" | "NEIGH_CREATEFAIL" => {
            "the next hop does not answer address resolution (`ip neigh`)"
        }
        "IP_INNOROUTES" | "IP_OUTNOROUTES" => "no route to the destination (`ip route get`)",
        "FULL_RING" => {
            "the queue to a program or a virtual machine behind a TUN/TAP device is full"
        }
        "SOCKET_FILTER" => "a filter of the socket refused it",
        "XFRM_POLICY" => "an IPsec policy refused it (`ip xfrm policy`)",
        "PKT_TOO_BIG" => "larger than the MTU of the next link, and not to be fragmented",
        "TC_INGRESS" | "TC_EGRESS" => {
            "a filter of tc (`tc filter show dev IF ingress` or `egress`)"
        }
        "XDP" => "an XDP program in generic mode",
        "UNHANDLED_PROTO" => "no program or protocol of this host takes its type: harmless",
        "OTHERHOST" => "the frame is for another host: harmless",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_with_a_sentence_exist_in_the_running_kernel() {
        let known = sys::bpf::explain::drop_reasons();
        // Those of the newest kernels may be missing in an older one, those of the first may not.
        for reason in ["NO_SOCKET", "SOCKET_RCVBUFF", "NETFILTER_DROP", "UDP_CSUM"] {
            assert!(sentence(reason).is_some());
            assert!(known.is_empty() || known.values().any(|name| name == reason), "{reason}");
        }
        assert_eq!(sentence("NOT_SPECIFIED"), None);
    }
}
