//! The kernel's reasons to drop a packet in plain English, each with a remedy, and the counters that grow with it.

/// Reasons that mean the same.
#[derive(Debug)]
pub(super) struct Known {
    /// Names of `enum skb_drop_reason` without their prefix.
    reasons: &'static [&'static str],
    /// One clause without a full stop.
    pub(super) sentence: &'static str,
    pub(super) remedy: &'static str,
    pub(super) undo: &'static str,
    /// Counters of the namespace that count the same packets, as `nstat` names them, and others that no event shows.
    pub(super) counters: &'static [&'static str],
}

/// The entry of a reason; `None` for one of a newer kernel.
pub(super) fn of(reason: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.has(reason))
}

/// The reason that a function stands for where the kernel gives none, as older ones do; else the reason itself.
///
/// Source: the calls of `kfree_skb` in these functions of Linux 5.10 to 6.18.
pub(super) fn meaning<'a>(reason: &'a str, function: &str) -> &'a str {
    if reason != "NOT_SPECIFIED" {
        return reason;
    }
    match function.split('.').next().unwrap_or_default() {
        "neigh_invalidate" | "arp_error_report" | "ndisc_error_report" => "NEIGH_FAILED",
        "__neigh_event_send" => "NEIGH_QUEUEFULL",
        "nf_hook_slow" | "nft_do_chain" | "nf_hook_slow_list" => "NETFILTER_DROP",
        "enqueue_to_backlog" => "CPU_BACKLOG",
        "tun_net_xmit" => "FULL_RING",
        "ip6_mc_input" | "ip6_protocol_deliver_rcu" => "OTHERHOST",
        "__dev_xmit_skb" => "QDISC_DROP",
        "tcp_conn_request" | "tcp_v4_syn_recv_sock" | "tcp_v6_syn_recv_sock" => {
            "TCP_LISTEN_OVERFLOW"
        }
        _ => reason,
    }
}

/// All entries that have counters.
pub(super) fn counted() -> impl Iterator<Item = &'static Known> {
    KNOWN.iter().filter(|known| !known.counters.is_empty())
}

impl Known {
    pub(super) fn has(&self, reason: &str) -> bool {
        self.reasons.contains(&reason)
    }

    /// The first reason, which names the entry.
    pub(super) fn reason(&self) -> &'static str {
        self.reasons.first().copied().unwrap_or_default()
    }

    /// Nothing that a program wants is lost.
    pub(super) fn is_harmless(&self) -> bool {
        let is_copy = self.has("TCP_OLD_DATA") || self.has("PACKET_SOCK_ERROR");
        is_copy || self.sentence.contains("harmless")
    }
}

const NONE: &str = "none: it changes nothing";

const fn known(
    reasons: &'static [&'static str],
    sentence: &'static str,
    remedy: &'static str,
    undo: &'static str,
    counters: &'static [&'static str],
) -> Known {
    Known { reasons, sentence, remedy, undo, counters }
}

/// Source: include/net/dropreason-core.h of Linux 6.18, and the calls that give each reason.
const KNOWN: &[Known] = &[
    known(
        &["NO_SOCKET"],
        "no program listens on that port and address",
        "ss -lntup shows the listeners; start the program, or bind it to that address",
        NONE,
        &["UdpNoPorts", "Udp6NoPorts"],
    ),
    known(
        &["SOCKET_RCVBUFF"],
        "the socket's receive buffer is full: the program reads too slowly, or needs a larger SO_RCVBUF",
        "a larger SO_RCVBUF, up to net.core.rmem_max; a faster reader",
        "the previous sizes",
        &["UdpRcvbufErrors", "Udp6RcvbufErrors", "TcpExtTCPRcvQDrop"],
    ),
    known(
        &["SOCKET_BACKLOG"],
        "the socket was busy and its backlog full: the program reads too slowly",
        "a faster reader; a larger receive buffer",
        "the previous size",
        &["TcpExtTCPBacklogDrop"],
    ),
    known(
        &["PROTO_MEM"],
        "the memory that all sockets of the protocol may take is used up",
        "ss -m finds the sockets that hold it; sysctl net.ipv4.tcp_mem and udp_mem are the limits",
        "the previous values",
        &["UdpMemErrors", "Udp6MemErrors", "TcpExtTCPAbortOnMemory"],
    ),
    known(
        &["TCP_LISTEN_OVERFLOW"],
        "the accept queue of a server is full",
        "a larger backlog of the program and sysctl net.core.somaxconn; a program that accepts faster",
        "the previous sizes",
        &["TcpExtListenOverflows"],
    ),
    known(
        &["IP_RPFILTER"],
        "rp_filter: the route to the packet's source leads to another interface",
        "ip route get SOURCE; add the route, or set net.ipv4.conf.INTERFACE.rp_filter=2",
        "delete the route; the previous rp_filter",
        &["TcpExtIPReversePathFilter"],
    ),
    known(
        &["NETFILTER_DROP"],
        "a rule of the firewall drops it",
        "nft -a list ruleset; iptables-save -c",
        NONE,
        &[],
    ),
    known(
        &["QDISC_DROP", "QDISC_OVERLIMIT"],
        "the send queue of an interface is full: a shaper, or a link that is too slow",
        "tc -s -d qdisc show; remove a shaper that is left over, or let its queue be longer",
        "the previous tree of tc qdisc",
        &[],
    ),
    known(
        &["QDISC_CONGESTED", "DUALPI2_STEP_DROP"],
        "a queueing discipline drops early, to tell TCP that the link is full",
        "none if the link is full; a rate that fits the link otherwise: tc -s -d qdisc show",
        NONE,
        &[],
    ),
    known(
        &["FQ_FLOW_LIMIT"],
        "one flow has more packets in the queue of fq than its flow_limit",
        "tc qdisc change dev INTERFACE root fq flow_limit 1000; a sender that paces",
        "tc qdisc change dev INTERFACE root fq flow_limit 100",
        &[],
    ),
    known(
        &["FQ_BAND_LIMIT", "FQ_HORIZON_LIMIT", "CAKE_FLOOD"],
        "the fair queue of an interface is full, or the packet was to leave too far in the future",
        "tc -s -d qdisc show shows the limit that grows",
        NONE,
        &[],
    ),
    known(
        &["CPU_BACKLOG"],
        "the backlog of a CPU is full",
        "sysctl -w net.core.netdev_max_backlog=10000, or spread the load over CPUs (RPS, more queues)",
        "sysctl -w net.core.netdev_max_backlog=1000",
        &["softnet dropped"],
    ),
    known(
        &["UDP_CSUM", "TCP_CSUM", "IP_CSUM", "ICMP_CSUM", "SKB_CSUM"],
        "a wrong checksum: damaged, or left to a device that did not compute it",
        "ethtool -K INTERFACE tx-checksum-ip-generic off at the sender and at tunnels between",
        "ethtool -K INTERFACE tx-checksum-ip-generic on",
        &[
            "UdpInCsumErrors",
            "Udp6InCsumErrors",
            "TcpInCsumErrors",
            "IcmpInCsumErrors",
            "IpExtInCsumErrors",
        ],
    ),
    known(
        &["NEIGH_FAILED", "NEIGH_QUEUEFULL", "NEIGH_DEAD", "NEIGH_HH_FILLFAIL"],
        "the next hop does not answer address resolution",
        "ip neigh; is the host up, in the same network, and not behind a firewall that drops ARP?",
        NONE,
        &[],
    ),
    known(
        &["NEIGH_CREATEFAIL"],
        "the neighbour table is full",
        "sysctl -w net.ipv4.neigh.default.gc_thresh3=8192, and thresh2 and thresh1 in proportion",
        "the previous values",
        &["arp_cache table_fulls", "ndisc_cache table_fulls"],
    ),
    known(
        &["IP_INNOROUTES", "IP_OUTNOROUTES"],
        "no route to the destination",
        "ip route get DESTINATION; ip rule",
        NONE,
        &["IpExtInNoRoutes", "IpOutNoRoutes", "Ip6InNoRoutes", "Ip6OutNoRoutes"],
    ),
    known(
        &["FULL_RING"],
        "the queue to a program or a virtual machine behind a TUN or TAP device is full: it reads too slowly",
        "ip link set dev TAP txqueuelen 10000; more queues or a faster reader",
        "ip link set dev TAP txqueuelen 1000",
        &[],
    ),
    known(
        &["SOCKET_FILTER"],
        "a filter of the socket refused it",
        "the program attached the filter (SO_ATTACH_FILTER); ss -0 -b shows those of packet sockets",
        NONE,
        &[],
    ),
    known(
        &["XFRM_POLICY"],
        "an IPsec policy refused it",
        "ip xfrm policy and ip xfrm state against /proc/net/xfrm_stat, which says which check failed",
        NONE,
        &[
            "XfrmInNoPols",
            "XfrmInTmplMismatch",
            "XfrmInNoStates",
            "XfrmOutNoStates",
            "XfrmInPolBlock",
        ],
    ),
    known(
        &["PKT_TOO_BIG"],
        "larger than the MTU of the next link, and not to be fragmented",
        "a smaller MTU at the sender, or a clamp of TCP's segment size in forward: nft ... tcp option maxseg size set rt mtu",
        "the previous MTU; delete the rule",
        &["IpFragFails", "Ip6FragFails", "Ip6InTooBigErrors"],
    ),
    known(
        &["PKT_TOO_SMALL", "HDR_TRUNC", "IP_INHDR", "IPV6_BAD_EXTHDR", "DEV_HDR"],
        "a header is cut off or invalid: damaged, or made by a faulty sender",
        "tcpdump -vv at the interface shows the sender",
        NONE,
        &["IpInHdrErrors", "Ip6InHdrErrors", "IpInTruncatedPkts"],
    ),
    known(
        &["TC_INGRESS", "TC_EGRESS", "TC_COOKIE_ERROR", "TC_CHAIN_NOTFOUND", "TC_RECLASSIFY_LOOP"],
        "a filter of tc, or a BPF program there",
        "tc -s filter show dev INTERFACE ingress, or egress; bpftool net",
        NONE,
        &[],
    ),
    known(
        &["XDP"],
        "an XDP program in generic mode drops it",
        "ip link show shows the program's number; bpftool prog show id N; ip link set dev INTERFACE xdp off",
        "load the program again",
        &[],
    ),
    known(
        &["BPF_CGROUP_EGRESS"],
        "a BPF program of a control group drops what its processes send",
        "bpftool cgroup tree shows the programs of each group",
        NONE,
        &[],
    ),
    known(
        &["UNHANDLED_PROTO", "IP_NOPROTO", "INVALID_PROTO", "OTHERHOST"],
        "no program or protocol of this host takes it, or it is for another host: harmless",
        "none needed: rx_dropped of the interface counts such frames too",
        NONE,
        &["IpInUnknownProtos"],
    ),
    known(
        &[
            "IP_INADDRERRORS",
            "IP_INVALID_SOURCE",
            "IP_LOCAL_SOURCE",
            "IP_LOCALNET",
            "IP_INVALID_DEST",
        ],
        "an address that may not come in there: its own, of loopback, or a broadcast",
        "ip address and ip route at both ends; net.ipv4.conf.INTERFACE.accept_local for an address of this host",
        NONE,
        &["IpInAddrErrors", "Ip6InAddrErrors"],
    ),
    known(
        &["UNICAST_IN_L2_MULTICAST"],
        "a packet to one host in a frame to many: a sender's forged or wrong neighbour entry",
        "ip neigh at the sender",
        NONE,
        &[],
    ),
    known(
        &["IPV6DISABLED"],
        "IPv6 is off at the interface",
        "sysctl -w net.ipv6.conf.INTERFACE.disable_ipv6=0",
        "the same with 1",
        &[],
    ),
    known(
        &[
            "IPV6_NDISC_FRAG",
            "IPV6_NDISC_HOP_LIMIT",
            "IPV6_NDISC_BAD_CODE",
            "IPV6_NDISC_BAD_OPTIONS",
            "IPV6_NDISC_NS_OTHERHOST",
        ],
        "an IPv6 neighbour message that is invalid or for another host",
        "tcpdump -vv icmp6 shows the sender",
        NONE,
        &["Icmp6InErrors"],
    ),
    known(
        &["DUP_FRAG", "FRAG_REASM_TIMEOUT", "FRAG_TOO_FAR"],
        "a datagram in fragments was not completed: one was lost, or the reassembly memory is full",
        "send datagrams that fit the MTU; sysctl net.ipv4.ipfrag_high_thresh is the memory, nstat IpReasmFails counts",
        "the previous value",
        &["IpReasmFails", "Ip6ReasmFails"],
    ),
    known(
        &["TCP_OLD_DATA", "TCP_OLD_SEQUENCE", "TCP_OLD_ACK", "TCP_TOO_OLD_ACK", "TCP_OFOMERGE"],
        "TCP has the data already: a segment was sent twice, after loss or delay",
        "look for the loss: ss -ti retrans at the sender, and the other rows here",
        NONE,
        &[],
    ),
    known(
        &["TCP_OVERWINDOW", "TCP_ZEROWINDOW"],
        "the receive window of the connection is full: the program reads too slowly",
        "a faster reader; a larger third value of net.ipv4.tcp_rmem",
        "the previous value",
        &["TcpExtTCPZeroWindowDrop"],
    ),
    known(
        &["TCP_OFO_QUEUE_PRUNE", "TCP_OFO_DROP"],
        "data that came out of order was thrown away to save memory",
        "a larger third value of net.ipv4.tcp_rmem; look for the loss or reordering behind it",
        "the previous value",
        &["TcpExtOfoPruned", "TcpExtTCPOFODrop"],
    ),
    known(
        &[
            "TCP_INVALID_SEQUENCE",
            "TCP_INVALID_END_SEQUENCE",
            "TCP_INVALID_ACK_SEQUENCE",
            "TCP_ACK_UNSENT_DATA",
            "TCP_INVALID_SYN",
            "TCP_FLAGS",
        ],
        "a segment does not fit its connection: a device between changes sequence numbers, or an old connection",
        "capture at both ends and compare the sequence numbers; conntrack -L for a stale entry",
        NONE,
        &[],
    ),
    known(
        &["TCP_RFC7323_PAWS", "TCP_RFC7323_PAWS_ACK", "TCP_RFC7323_TW_PAWS", "TCP_RFC7323_TSECR"],
        "time stamps of TCP went backwards: hosts behind one address, or a late segment",
        "sysctl -w net.ipv4.tcp_timestamps=0 at the hosts behind the address translation, or 1 for random offsets",
        "the previous value",
        &["TcpExtPAWSEstab", "TcpExtPAWSActive", "TcpExtPAWSTimewait"],
    ),
    known(
        &[
            "TCP_RESET",
            "TCP_CLOSE",
            "TCP_ABORT_ON_DATA",
            "SOCKET_CLOSE",
            "QUEUE_PURGE",
            "UNIX_DISCONNECT",
        ],
        "the connection or socket was closed, and what it held is gone: harmless at the end of a program",
        "none, if the program was to end; else look for its log, and for RST in a capture",
        NONE,
        &[],
    ),
    known(
        &[
            "TCP_MD5NOTFOUND",
            "TCP_MD5UNEXPECTED",
            "TCP_MD5FAILURE",
            "TCP_AONOTFOUND",
            "TCP_AOUNEXPECTED",
            "TCP_AOKEYNOTFOUND",
            "TCP_AOFAILURE",
            "TCP_AUTH_HDR",
        ],
        "the signature of TCP (MD5 or AO) is missing or wrong: the ends have other keys",
        "the same key at both ends of the session",
        "the previous key",
        &["TcpExtTCPMD5NotFound", "TcpExtTCPMD5Unexpected", "TcpExtTCPMD5Failure"],
    ),
    known(
        &["TCP_MINTTL"],
        "its time to live is below the socket's IP_MINTTL: a router more than expected",
        "the program's TTL security setting, such as a routing daemon's ebgp-multihop",
        "the previous setting",
        &["TcpExtTCPMinTTLDrop"],
    ),
    known(
        &["TCP_FASTOPEN"],
        "TCP Fast Open refused it",
        "sysctl net.ipv4.tcp_fastopen at both ends",
        "the previous value",
        &[],
    ),
    known(
        &["SECURITY_HOOK"],
        "a security module (SELinux, AppArmor, BPF) refuses it",
        "ausearch -m avc, or dmesg",
        NONE,
        &[],
    ),
    known(
        &["NOMEM", "PFMEMALLOC", "SKB_UCOPY_FAULT", "SKB_GSO_SEG"],
        "the kernel had no memory for it, or could not cut it into segments",
        "free memory; vm.min_free_kbytes; dmesg",
        NONE,
        &["TcpExtPFMemallocDrop"],
    ),
    known(
        &["DEV_READY", "NO_TX_TARGET", "RECURSION_LIMIT", "TUNNEL_TXINFO"],
        "the interface is down, has no one to send to, or leads back to itself",
        "ip -d link show and bridge fdb show dev INTERFACE",
        NONE,
        &[],
    ),
    known(
        &["TAP_FILTER", "TAP_TXFILTER"],
        "a filter of the TAP device refuses it",
        "the program behind the device set it (TUNSETTXFILTER, TUNATTACHFILTER)",
        NONE,
        &[],
    ),
    known(
        &[
            "BRIDGE_INGRESS_STP_STATE",
            "ARP_PVLAN_DISABLE",
            "MAC_INVALID_SOURCE",
            "MAC_IEEE_MAC_CONTROL",
        ],
        "the bridge does not forward it: the port is blocked, or the address is not to be forwarded",
        "bridge -d link show; bridge fdb show",
        NONE,
        &[],
    ),
    known(
        &["LOCAL_MAC"],
        "its sender has the same MAC address as the device that received it, as on cloned machines: it is taken for its own",
        "ip -d link show: give one of the two devices another MAC (ip link set IF address MAC)",
        NONE,
        &[],
    ),
    known(
        &["VXLAN_INVALID_HDR", "VXLAN_VNI_NOT_FOUND", "VXLAN_ENTRY_EXISTS", "IP_TUNNEL_ECN"],
        "a tunnel does not take it: no device for its network number (VNI), or an invalid header",
        "ip -d link show type vxlan: id and local at both ends",
        NONE,
        &[],
    ),
    known(
        &["PACKET_SOCK_ERROR"],
        "a packet socket could not take its copy: the capture's ring is full",
        "a larger ring (tcpdump -B 65536) or a narrower filter; the packet itself goes on",
        "the previous size",
        &[],
    ),
    known(
        &["PSP_INPUT", "PSP_OUTPUT"],
        "the encryption of PSP does not fit the connection",
        "the program's keys at both ends",
        NONE,
        &[],
    ),
    known(
        &[
            "UNIX_SKIP_OOB",
            "CAN_RX_INVALID_FRAME",
            "CANFD_RX_INVALID_FRAME",
            "CANXL_RX_INVALID_FRAME",
        ],
        "a message of a local or CAN socket that the reader does not take",
        "none needed for packets of a network",
        NONE,
        &[],
    ),
    known(
        &["SKB_RX_HEADROOM"],
        "a received packet leaves too little room in front of its data for the header that belongs there",
        "give the driver's receive buffers more headroom (an XDP program may have used it), or receive without that header",
        NONE,
        &[],
    ),
    known(
        &["NOT_SPECIFIED"],
        "the kernel gives no reason: the function tells the place",
        "a newer kernel gives reasons to more functions; search the function's name in its source",
        NONE,
        &[],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that are no reason, or of subsystems that have reasons of their own.
    const OTHERS: [&str; 6] =
        ["SKB_NOT_DROPPED_YET", "SKB_CONSUMED", "MAX", "SUBSYS_MASK", "SUBSYS_CORE", "SUBSYS_NUM"];

    #[test]
    fn every_reason_of_the_running_kernel_has_a_sentence() {
        let names = sys::bpf::explain_drops::drop_reasons();
        let all = names.values().filter(|name| !OTHERS.contains(&name.as_str()));
        let missing: Vec<&String> =
            all.filter(|name| !name.starts_with("SUBSYS_") && of(name).is_none()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn no_reason_has_two_sentences_and_none_is_empty() {
        let mut names = std::collections::BTreeSet::new();
        for known in KNOWN {
            assert!(known.reasons.iter().all(|name| names.insert(*name)), "{known:?}");
            assert!(!known.sentence.ends_with('.') && !known.remedy.is_empty(), "{known:?}");
        }
        assert!(of("SOMETHING_NEW").is_none());
    }
}
