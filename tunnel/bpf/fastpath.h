/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Maps of the forwarding programs, through which the slow path controls them, and the parts that do not
 * depend on the hook, which is XDP or tcx. The hook defines CONTEXT, the type of its context, before.
 */
#ifndef WIREPATH_FASTPATH_H
#define WIREPATH_FASTPATH_H

#include "frame.h"

#define TYPE_IPV6 0x86dd
#define TYPE_BRIDGED 0x6558
#define PROTOCOL_TCP 6
#define PROTOCOL_DCCP 33
#define PROTOCOL_GRE 47
#define PROTOCOL_ICMP6 58
#define PROTOCOL_SCTP 132
#define PROTOCOL_UDPLITE 136

#define ETHERNET_BYTES 14
#define IPV4_BYTES 20
#define IPV6_BYTES 40
#define VXLAN_BYTES 50 /* Ethernet, IPv4, UDP, VXLAN */
#define GRE_BYTES 38 /* Ethernet, IPv4, GRE */
#define GRE_KEY_BYTES 42

#define TCP_FLAGS 13
#define TCP_SYN 2
#define TCP_CHECKSUM 16
#define UDP_CHECKSUM 6
#define SCTP_CHECKSUM 8

#define FIRST_V4 0x45
#define DONT_FRAGMENT 0x4000

#define ECN_BITS 3
#define TTL_BITS 0xff00
#define DONT_FRAGMENT_BIT (1 << 16)

#define GRE_CHECKSUM 0x8000
#define GRE_KEY 0x2000
#define GRE_SEQUENCE 0x1000
#define GRE_REFUSED 0x4fff /* routing, reserved bits, version */

#define TUNNELS_MAX 1024
#define NETWORKS 4096
#define TAG_BYTES 4
#define LOCAL 0xffffffff

/* Results of the ECN table. */
#define ECN_DROP 0x80
#define ECN_ODD 0x40

/* How long a station waits for the slow path to be empty before its frames are dropped instead, and
 * before it is opened in any case. */
#define WAIT_NS 10000000ULL
#define WAIT_NS_MAX 200000000ULL

enum direction { INTO, OUT_OF };
/* Kept in step with FAST_COUNTS of tunnel/bpf/src/fastpath/mod.rs. */
enum count {
	INTO_SENT,
	OUT_OF_SENT,
	INTO_SLOW,
	OUT_OF_SLOW,
	TO_STACK,
	POLICED,
	CONGESTION,
	ODD_ECN,
	SEAM_DROPPED,
	SEAM_FORCED,
	INTO_REFUSED,
	OUT_OF_REFUSED,
	SLOW_OFF,
	SLOW_GROUP,
	SLOW_SOURCE,
	SLOW_DESTINATION,
	SLOW_WAITING,
	SLOW_SHAPE,
	SLOW_SIZE,
	SLOW_NESTED,
	SLOW_CHECKSUM,
	SLOW_TUNNEL,
	INTO_SUPER,
	OUT_OF_SUPER,
	UNWRITABLE,
	COUNTS,
};

struct config {
	__u64 net_cookie;
	__u32 port_ifindex;
	__u32 underlay_ifindex;
	__u32 slow_ifindexes[2]; /* TAP devices of the slow path by direction; tcx only */
	__u32 inner_bytes_max;
	__u16 vxlan_port; /* host order */
	__u16 opens_super; /* super-frames out of tunnels are not left to the slow path; tcx only */
	__u8 ecn[16]; /* outer << 2 | inner: mark, ECN_DROP, ECN_ODD */
	/* By direction: senders may leave checksums to a device that is not there; XDP only. */
	__u8 unfinished[2];
	__u8 reserved[2];
	__u32 crc[8][256]; /* of wire::flow */
};

/* Written by both sides; user space maps it. */
struct control {
	__u64 given[2]; /* frames given to the slow path */
	__u64 finished[2]; /* of these, frames that have left or were dropped */
	__u64 ageing_ns;
	__u64 refresh_ns;
	__u64 rate_bits_per_s; /* of the policer; 0 for none */
	__u64 credit_max; /* bits times 10^9 */
	__u64 full_ns; /* in which an empty bucket fills */
	__u64 filled_ns;
	__s64 credit;
	__u32 is_on[2];
	__s32 refused[2]; /* error of a target that takes no frames */
	__u32 learns;
	__u32 has_vlans; /* tags of the port decide on the network of a frame */
	__u32 changes; /* of stations, tunnels and rules */
	__u32 sole[NETWORKS]; /* the only tunnel of a network, plus one */
	__u32 networks[TUNNELS_MAX]; /* VLAN of the port that a tunnel carries; 0: untagged frames */
	__u32 active[TUNNELS_MAX]; /* which of the two headers of a tunnel is valid */
	__u32 sent_bytes_max[TUNNELS_MAX]; /* largest outer packet since user space last read it */
};

/* Outer headers of a tunnel: never changed while it is the active one. */
struct header {
	__u64 ends; /* both addresses, as in the packet */
	__u32 fixed; /* class of service, time to live << 8, "don't fragment" << 16 */
	__u32 inherited; /* bits taken from the inner packet instead */
	__u32 ip_sum; /* of the constant part of the IP header */
	__u32 inner_bytes_max;
	__u32 len_bytes; /* 0: the slow path writes them */
	__u16 vxlan_port;
	__u16 reserved;
	__u8 bytes[56];
};

struct ends {
	__be32 remote;
	__be32 local;
	__u32 id; /* VNI or key */
	__u32 kind;
};

struct segment {
	__u8 local[16];
	__u32 id;
	__u32 kind;
};

enum kind { VXLAN = 1, GRETAP, GRETAP_KEY };

struct station {
	__u64 seen_ns;
	__u64 waits_ns[2]; /* since when the direction waits; 0 if open */
	__u32 place; /* a tunnel, or LOCAL */
	__u32 is_static;
};

struct ipv6 {
	__be32 first; /* version, traffic class, flow label */
	__be16 payload_bytes;
	__u8 next;
	__u8 hops;
	__u8 source[16];
	__u8 destination[16];
};

const volatile struct config config = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control_map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * TUNNELS_MAX);
	__type(key, __u32);
	__type(value, struct header);
} headers SEC(".maps");

/* Tunnels of ours that can be opened here, to their number. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TUNNELS_MAX);
	__type(key, struct ends);
	__type(value, __u32);
} tunnels SEC(".maps");

/* Local ends of ours: packets to them never go to the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct segment);
	__type(value, __u32);
} segments SEC(".maps");

/* MAC address and, in the upper 16 bits, network. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct station);
} stations SEC(".maps");

struct counts {
	__u64 frames[COUNTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

/*
 * What this CPU found for its last frame. It holds for the next one without lookups if that is of the same stations,
 * tunnel or flow, the slow path has changed nothing since, and, where stations age, the clock has not ticked. A CPU
 * that reorders its reads may see a change of a station one tick late.
 */
struct recent {
	struct {
		__u64 from_key;
		__u64 to_key;
		__u64 tick_ns;
		__u32 changes;
		__u32 tunnel;
	} into;
	struct {
		struct ends ends;
		__u64 from_key;
		__u64 tick_ns;
		__u32 changes;
		__u32 tunnel;
	} out_of;
	struct {
		__u64 ends;
		__u64 rest;
		__u32 hash;
	} flow;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct recent);
} recents SEC(".maps");

static __always_inline __u64 station_key(const __u8 *mac)
{
	return *(const __u32 *)mac | (__u64) * (const __u16 *)(mac + 4) << 32;
}

static __always_inline __u64 in_network(__u64 key, __u32 network)
{
	return key | (__u64)network << 48;
}

static __always_inline int is_group(__u64 key)
{
	return key & 1;
}

/* 01:80:c2:00:00:00 to 0f, which no bridge forwards (IEEE 802.1Q, table 8-1). */
static __always_inline int is_reserved(__u64 key)
{
	return (key & 0xf0ffffffffffULL) == 0x000000c28001ULL;
}

/* A count that is no reason for the slow path. */
#define FOUND INTO_SENT

enum open { OPEN, WAITS, HELD };

/*
 * Tells if frames of a station may be forwarded here. Not before the slow path has sent all that it
 * was given, or they would overtake. A slow path that is never empty, because it is given more than
 * it can take, is given nothing more of this station for a while.
 */
static __always_inline enum open is_open(struct station *station, struct control *control,
					 struct counts *counted, enum direction direction,
					 __u64 now_ns)
{
	__u64 since_ns = station->waits_ns[direction], waited_ns;

	if (!since_ns)
		return OPEN;
	if (*(volatile __u64 *)&control->finished[direction] !=
	    *(volatile __u64 *)&control->given[direction]) {
		waited_ns = now_ns > since_ns ? now_ns - since_ns : 0;
		if (waited_ns < WAIT_NS)
			return WAITS;
		if (waited_ns < WAIT_NS_MAX)
			return HELD;
		counted->frames[SEAM_FORCED]++;
	}
	station->waits_ns[direction] = 0;
	return OPEN;
}

/*
 * The time of the last timer tick, at most 10 ms ago: enough for ageing and waiting, without a read of the clock
 * for each frame. The slow path's times may be later.
 */
static __always_inline __u64 tick_ns(void)
{
	return bpf_ktime_get_coarse_ns();
}

static __always_inline void refresh(struct station *station, struct control *control, __u64 now_ns)
{
	/* A write a frame would bounce the cache line between CPUs. */
	if (now_ns > station->seen_ns && now_ns - station->seen_ns > control->refresh_ns)
		station->seen_ns = now_ns;
}

/*
 * Token bucket without a lock: a frame takes its price first and returns it if there was not enough.
 * One CPU wins each refill. Returns 0 if the frame is over the limit. Only if there is a rate.
 *
 * - `least`: credit that a frame needs. Less than its price lets it borrow the rest: a super-frame may
 *   cost more than the bucket holds.
 */
static __always_inline int is_within_rate(struct control *control, __u32 bytes, __s64 least)
{
	__s64 price = (__s64)bytes * 8 * 1000000000LL;
	__u64 now_ns = bpf_ktime_get_ns(), last_ns, elapsed_ns, full_ns;
	__s64 had;

	last_ns = *(volatile __u64 *)&control->filled_ns;
	had = *(volatile __s64 *)&control->credit;
	elapsed_ns = now_ns > last_ns ? now_ns - last_ns : 0;
	if (least > price)
		least = price;
	full_ns = control->full_ns;
	if (had < 0)
		full_ns += (__u64)-had / control->rate_bits_per_s;
	/* A sixteenth of the burst is the error of the bound on it. */
	if ((had < least || elapsed_ns * 16 > control->full_ns) && elapsed_ns &&
	    __sync_val_compare_and_swap(&control->filled_ns, last_ns, now_ns) == last_ns) {
		__s64 room = (__s64)control->credit_max - had;
		__s64 gained = elapsed_ns >= full_ns ?
				       room :
				       (__s64)(elapsed_ns * control->rate_bits_per_s);

		if (gained > room)
			gained = room;
		if (gained > 0)
			__sync_fetch_and_add(&control->credit, gained);
	}
	had = __sync_fetch_and_add(&control->credit, -price);
	if (had >= least)
		return 1;
	__sync_fetch_and_add(&control->credit, price);
	return 0;
}

/* Notes the size of a packet: a report that it is too big is believed only if one of that size was sent. */
static __always_inline void note_sent(struct control *control, __u32 tunnel, __u32 bytes)
{
	__u32 *most = &control->sent_bytes_max[tunnel & (TUNNELS_MAX - 1)];

	/* Written only while packets grow: a write a frame would bounce the cache line between CPUs. */
	if (bytes > *(volatile __u32 *)most)
		*(volatile __u32 *)most = bytes;
}

static __always_inline __u32 crc_word(__u32 crc, __u64 word)
{
	word ^= crc;
	return config.crc[7][word & 0xff] ^ config.crc[6][word >> 8 & 0xff] ^
	       config.crc[5][word >> 16 & 0xff] ^ config.crc[4][word >> 24 & 0xff] ^
	       config.crc[3][word >> 32 & 0xff] ^ config.crc[2][word >> 40 & 0xff] ^
	       config.crc[1][word >> 48 & 0xff] ^ config.crc[0][word >> 56];
}

static __always_inline int has_ports(__u8 protocol)
{
	return protocol == PROTOCOL_UDP || protocol == PROTOCOL_TCP || protocol == PROTOCOL_DCCP ||
	       protocol == PROTOCOL_SCTP || protocol == PROTOCOL_UDPLITE;
}

/* A SYN announces a segment size, which the slow path limits. One that is cut counts as one. */
static __always_inline int is_syn(const void *tcp, void *end)
{
	return tcp + TCP_FLAGS + 1 > end || *(const __u8 *)(tcp + TCP_FLAGS) & TCP_SYN;
}

/* An inner packet. */
struct inner {
	__u32 bits; /* class of service, time to live << 8, "don't fragment" << 16 */
	__u32 hash; /* of its flow; of IPv6 only */
	__u32 protocol; /* 0 for a fragment */
	__be16 port; /* destination */
	__u16 is_v4;
	__u64 ends; /* IPv4 only */
	__u64 rest; /* of its flow, ports and protocol; IPv4 only */
};

/*
 * Reads a plain IPv4 or IPv6 packet: no tags, options or extension headers, and no SYN of TCP.
 *
 * - `bytes`: of the whole frame, of which `start` to `end` can be read.
 *
 * Returns 0 for all others.
 */
static __always_inline int read_inner(void *start, void *end, __u32 bytes, struct inner *inner)
{
	struct ethernet *eth = start;
	__be32 ports = 0;
	__u32 crc;

	if ((void *)(eth + 1) > end)
		return 0;
	if (eth->type == bpf_htons(TYPE_IPV4)) {
		struct ipv4 *ip = (void *)(eth + 1);
		__u32 total_bytes;

		if ((void *)(ip + 1) > end || ip->version_words != FIRST_V4)
			return 0;
		total_bytes = bpf_ntohs(ip->total_bytes);
		if (total_bytes < IPV4_BYTES || total_bytes > bytes - ETHERNET_BYTES)
			return 0;
		inner->is_v4 = 1;
		inner->ends = *(__u64 *)&ip->source;
		inner->bits = ip->service | ip->ttl << 8 |
			      (ip->fragment & bpf_htons(DONT_FRAGMENT) ? DONT_FRAGMENT_BIT : 0);
		inner->protocol = ip->protocol;
		if (ip->fragment & bpf_htons(FRAGMENT_MASK)) {
			inner->protocol = 0;
		} else if (has_ports(ip->protocol)) {
			if ((void *)(ip + 1) + 4 > end)
				return 0;
			ports = *(__be32 *)(ip + 1);
			if (ip->protocol == PROTOCOL_TCP && is_syn(ip + 1, end))
				return 0;
		}
		inner->rest = ports | (__u64)ip->protocol << 56;
	} else if (eth->type == bpf_htons(TYPE_IPV6)) {
		struct ipv6 *ip = (void *)(eth + 1);
		__u32 first;

		if ((void *)(ip + 1) > end)
			return 0;
		first = bpf_ntohl(ip->first);
		if (first >> 28 != 6 || bytes < ETHERNET_BYTES + IPV6_BYTES ||
		    bpf_ntohs(ip->payload_bytes) > bytes - ETHERNET_BYTES - IPV6_BYTES)
			return 0;
		if (!has_ports(ip->next) && ip->next != PROTOCOL_ICMP6)
			return 0;
		inner->is_v4 = 0;
		inner->ends = 0;
		inner->bits = (first >> 20 & 0xff) | ip->hops << 8 | DONT_FRAGMENT_BIT;
		inner->protocol = ip->next;
		if (has_ports(ip->next)) {
			if ((void *)(ip + 1) + 4 > end)
				return 0;
			ports = *(__be32 *)(ip + 1);
			if (ip->next == PROTOCOL_TCP && is_syn(ip + 1, end))
				return 0;
		}
		crc = crc_word(~0U, *(__u64 *)&ip->source[0]);
		crc = crc_word(crc, *(__u64 *)&ip->source[8]);
		crc = crc_word(crc, *(__u64 *)&ip->destination[0]);
		crc = crc_word(crc, *(__u64 *)&ip->destination[8]);
		inner->hash = ~crc_word(crc, ports | (__u64)ip->next << 56);
	} else {
		return 0;
	}
	inner->port = ports >> 16;
	return 1;
}

static __always_inline __u16 folded(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/*
 * Tells if the checksum of a packet that read_inner() has read may be unfinished: it is the sum of the pseudo
 * header alone, or 0 for SCTP.
 */
static __always_inline int is_unfinished(void *start, void *end, const struct inner *inner)
{
	void *upper;
	__u32 *words, upper_bytes, field;
	__u64 sum = 0;

	if (inner->is_v4) {
		struct ipv4 *ip = start + ETHERNET_BYTES;

		if ((void *)(ip + 1) > end)
			return 0;
		words = (__u32 *)&ip->source;
		for (int word = 0; word < 2; word++)
			sum += words[word];
		upper_bytes = bpf_ntohs(ip->total_bytes) - IPV4_BYTES;
		upper = ip + 1;
	} else {
		struct ipv6 *ip = start + ETHERNET_BYTES;

		if ((void *)(ip + 1) > end)
			return 0;
		words = (__u32 *)ip->source;
		for (int word = 0; word < 8; word++)
			sum += words[word];
		upper_bytes = bpf_ntohs(ip->payload_bytes);
		upper = ip + 1;
	}
	switch (inner->protocol) {
	case PROTOCOL_TCP:
		field = TCP_CHECKSUM;
		break;
	case PROTOCOL_UDP:
		field = UDP_CHECKSUM;
		break;
	case PROTOCOL_SCTP:
		if (upper + SCTP_CHECKSUM + 4 > end)
			return 0;
		return !*(__u32 *)(upper + SCTP_CHECKSUM);
	default:
		return 0;
	}
	if (upper + TCP_CHECKSUM + 2 > end) {
		if (field == TCP_CHECKSUM || upper + UDP_CHECKSUM + 2 > end)
			return 0;
	}
	sum += bpf_htons(upper_bytes);
	sum += bpf_htons(inner->protocol);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	if (field == TCP_CHECKSUM)
		return *(__u16 *)(upper + TCP_CHECKSUM) == folded(sum);
	return *(__u16 *)(upper + UDP_CHECKSUM) == folded(sum);
}

/* Hash of a packet's flow, that of wire::flow. */
static __always_inline __u32 flow_hash(const struct inner *inner, struct recent *recent)
{
	/* With a bit that no flow has: nothing equals the zeros before the first one. */
	__u64 rest = inner->rest | 1ULL << 48;

	if (!inner->is_v4)
		return inner->hash;
	if (recent->flow.ends != inner->ends || recent->flow.rest != rest) {
		recent->flow.ends = inner->ends;
		recent->flow.rest = rest;
		recent->flow.hash = ~crc_word(crc_word(~0U, inner->ends), inner->rest);
	}
	return recent->flow.hash;
}

/* Copies `len` bytes of headers, a constant, in words. */
static __always_inline void copy(void *to, const void *from, int len)
{
	int at = 0;

	for (; at + 8 <= len; at += 8)
		*(__u64 *)(to + at) = *(const __u64 *)(from + at);
	for (; at + 2 <= len; at += 2)
		*(__u16 *)(to + at) = *(const __u16 *)(from + at);
}

/* Both addresses of a frame, kept while a tag between them and the rest goes or comes. */
struct macs {
	__u64 first;
	__u32 last;
};

static __always_inline struct macs read_macs(const struct ethernet *eth)
{
	struct macs macs = { *(const __u64 *)eth, *(const __u32 *)((const void *)eth + 8) };

	return macs;
}

/* Writes them `at` bytes into the frame; returns 0 if there is no frame. */
static __always_inline int write_macs(CONTEXT *ctx, const struct macs *macs, int at)
{
	void *to = (void *)(long)ctx->data + at;

	if (to + ETHERNET_BYTES > (void *)(long)ctx->data_end)
		return 0;
	*(__u64 *)to = macs->first;
	*(__u32 *)(to + 8) = macs->last;
	return 1;
}

enum target { PORT, UNDERLAY };

#endif
