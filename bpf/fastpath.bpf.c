/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Forwards frames between a port and VXLAN or GRETAP tunnels over IPv4 without leaving the driver.
 *
 * `into` runs at the port, `out_of` at the interface of the tunnels. Each forwards the frames whose
 * treatment is known: unicast from a learnt station to a learnt one. All others of ours go to the
 * AF_XDP socket of their queue, the slow path, which learns, ages, floods and counts, and fills the
 * maps. Tunnels that are not ours go to the host's stack.
 *
 * Order: a station is entered as waiting. Its frames take the slow path until everything that the
 * slow path was ever given has left; then the program opens it. See is_open().
 */
#include "frame.h"
#include <bpf/bpf_tracing.h>

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
enum target { PORT, UNDERLAY };

/* Kept in step with FAST_COUNTS of crates/sys/src/bpf/fastpath/mod.rs. */
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
	COUNTS,
};

struct config {
	__u64 net_cookie;
	__u32 port_ifindex;
	__u32 underlay_ifindex;
	__u32 inner_bytes_max;
	__u16 vxlan_port; /* host order */
	__u16 reserved;
	__u8 ecn[16]; /* outer << 2 | inner: mark, ECN_DROP, ECN_ODD */
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
	__u32 sole[NETWORKS]; /* the only tunnel of a network, plus one */
	__u32 networks[TUNNELS_MAX]; /* VLAN of the port that a tunnel carries; 0: untagged frames */
	__u32 active[TUNNELS_MAX]; /* which of the two headers of a tunnel is valid */
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

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} port_sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} underlay_sockets SEC(".maps");

struct counts {
	__u64 frames[COUNTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

/* A packet, for the sum over it. */
#define SUMMED_BYTES_MAX 4096

struct summed {
	__u32 words[SUMMED_BYTES_MAX / 4];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct summed);
} summed SEC(".maps");

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

static __always_inline int slow(struct xdp_md *ctx, struct control *control, struct counts *counted,
				enum direction direction, enum count why)
{
	void *sockets = direction == INTO ? (void *)&port_sockets : (void *)&underlay_sockets;
	int action;

	counted->frames[why]++;
	action = bpf_redirect_map(sockets, ctx->rx_queue_index, XDP_PASS);
	if (action == XDP_REDIRECT) {
		/* Read by user space, and by other queues. */
		__sync_fetch_and_add(&control->given[direction], 1);
		counted->frames[direction == INTO ? INTO_SLOW : OUT_OF_SLOW]++;
	}
	return action;
}

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

static __always_inline void refresh(struct station *station, struct control *control, __u64 now_ns)
{
	/* A write a frame would bounce the cache line between CPUs. */
	if (now_ns - station->seen_ns > control->refresh_ns)
		station->seen_ns = now_ns;
}

/*
 * Token bucket without a lock: a frame takes its price first and returns it if there was not enough.
 * One CPU wins each refill. Returns 0 if the frame is over the limit.
 */
static __always_inline int is_within_rate(struct control *control, __u32 bytes, __u64 now_ns)
{
	__s64 price = (__s64)bytes * 8 * 1000000000LL;
	__u64 last_ns, elapsed_ns;
	__s64 had;

	if (!control->rate_bits_per_s)
		return 1;
	last_ns = *(volatile __u64 *)&control->filled_ns;
	had = *(volatile __s64 *)&control->credit;
	elapsed_ns = now_ns > last_ns ? now_ns - last_ns : 0;
	/* A sixteenth of the burst is the error of the bound on it. */
	if ((had < price || elapsed_ns * 16 > control->full_ns) && elapsed_ns &&
	    __sync_val_compare_and_swap(&control->filled_ns, last_ns, now_ns) == last_ns) {
		__s64 room = (__s64)control->credit_max - had;
		__s64 gained = elapsed_ns >= control->full_ns ?
				       (__s64)control->credit_max :
				       (__s64)(elapsed_ns * control->rate_bits_per_s);

		if (gained > room)
			gained = room;
		if (gained > 0)
			__sync_fetch_and_add(&control->credit, gained);
	}
	had = __sync_fetch_and_add(&control->credit, -price);
	if (had >= price)
		return 1;
	__sync_fetch_and_add(&control->credit, price);
	return 0;
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
	__u32 hash; /* of its flow */
	__u32 protocol; /* 0 for a fragment */
	__be16 port; /* destination */
	__u16 is_v4;
	__u64 ends; /* IPv4 only */
};

/*
 * Reads a plain IPv4 or IPv6 packet: no tags, options or extension headers, and no SYN of TCP.
 *
 * Returns 0 for all others. The hash is that of wire::flow.
 */
static __always_inline int read_inner(void *start, void *end, struct inner *inner)
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
		if (total_bytes < IPV4_BYTES || total_bytes > end - (void *)ip)
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
		crc = crc_word(crc_word(~0U, inner->ends), ports | (__u64)ip->protocol << 56);
	} else if (eth->type == bpf_htons(TYPE_IPV6)) {
		struct ipv6 *ip = (void *)(eth + 1);
		__u32 first;

		if ((void *)(ip + 1) > end)
			return 0;
		first = bpf_ntohl(ip->first);
		if (first >> 28 != 6 || bpf_ntohs(ip->payload_bytes) > end - (void *)(ip + 1))
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
		crc = crc_word(crc, ports | (__u64)ip->next << 56);
	} else {
		return 0;
	}
	inner->port = ports >> 16;
	inner->hash = ~crc;
	return 1;
}

static __always_inline __u16 folded(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
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

/* Writes the outer headers into the room that was made for them. */
static __always_inline int write_headers(struct xdp_md *ctx, const struct header *header,
					 const struct inner *inner, __u32 len, int headers_bytes)
{
	__u32 bits = (header->fixed & ~header->inherited) | (inner->bits & header->inherited);
	void *at = (void *)(long)ctx->data;
	__u16 total_bytes = len + headers_bytes - ETHERNET_BYTES;
	__u16 id = 0, flags = DONT_FRAGMENT;
	struct ipv4 *ip;

	if (at + headers_bytes > (void *)(long)ctx->data_end)
		return 0;
	if (!(bits & TTL_BITS))
		bits |= 1 << 8;
	if (!(bits & DONT_FRAGMENT_BIT)) {
		id = bpf_get_prandom_u32();
		flags = 0;
	}
	copy(at, header->bytes, headers_bytes);
	ip = at + ETHERNET_BYTES;
	ip->service = bits;
	ip->total_bytes = bpf_htons(total_bytes);
	ip->id = bpf_htons(id);
	ip->fragment = bpf_htons(flags);
	ip->ttl = bits >> 8;
	ip->checksum = bpf_htons(~folded(header->ip_sum + (bits & 0xff) + total_bytes + id + flags +
					 (bits & TTL_BITS)));
	if (headers_bytes == VXLAN_BYTES) {
		struct udp *udp = at + ETHERNET_BYTES + IPV4_BYTES;

		udp->source = bpf_htons(0xc000 | inner->hash >> 18);
		udp->destination = bpf_htons(header->vxlan_port);
		udp->len_bytes = bpf_htons(total_bytes - IPV4_BYTES);
		udp->checksum = 0;
	}
	return 1;
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
static __always_inline int write_macs(struct xdp_md *ctx, const struct macs *macs, int at)
{
	void *to = (void *)(long)ctx->data + at;

	if (to + ETHERNET_BYTES > (void *)(long)ctx->data_end)
		return 0;
	*(__u64 *)to = macs->first;
	*(__u32 *)(to + 8) = macs->last;
	return 1;
}

/* Over the tag, if there is one. */
#define ENCAPSULATE(headers_bytes)                                                   \
	do {                                                                         \
		if (bpf_xdp_adjust_head(ctx, (int)tag_bytes - (headers_bytes)))      \
			return slow(ctx, control, counted, INTO, SLOW_SIZE);         \
		if (tag_bytes && !write_macs(ctx, &macs, headers_bytes))             \
			return XDP_ABORTED;                                          \
		if (!write_headers(ctx, header, &inner, len, headers_bytes))         \
			return XDP_ABORTED;                                          \
	} while (0)

SEC("xdp")
int into(struct xdp_md *ctx)
{
	void *start = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct station *to, *from;
	struct ethernet *eth = start;
	struct macs macs;
	struct inner inner;
	struct control *control;
	struct counts *counted;
	struct header *header;
	__u64 now_ns, to_key, from_key;
	enum open is_ready = OPEN, is_ready_from;
	__u32 zero = 0, len, tunnel, slot, network = 0, tag_bytes = 0;
	int is_known = 1;

	control = bpf_map_lookup_elem(&control_map, &zero);
	counted = bpf_map_lookup_elem(&counts, &zero);
	if (!control || !counted)
		return XDP_PASS;
	now_ns = bpf_ktime_get_ns();
	len = bpf_xdp_get_buff_len(ctx);
	/* Frames of the slow path too: one bucket for both. */
	if (!is_within_rate(control, len, now_ns)) {
		counted->frames[POLICED]++;
		return XDP_DROP;
	}
	if (!control->is_on[INTO])
		return slow(ctx, control, counted, INTO, SLOW_OFF);
	if ((void *)(eth + 1) > end)
		return slow(ctx, control, counted, INTO, SLOW_SHAPE);
	if (control->has_vlans && eth->type == bpf_htons(TYPE_VLAN)) {
		struct vlan *vlan = (void *)(eth + 1);

		if ((void *)(vlan + 1) > end)
			return slow(ctx, control, counted, INTO, SLOW_SHAPE);
		network = bpf_ntohs(vlan->tag) & (NETWORKS - 1);
		if (!network)
			return slow(ctx, control, counted, INTO, SLOW_SHAPE);
		tag_bytes = TAG_BYTES;
	}
	macs = read_macs(eth);
	to_key = in_network(station_key(eth->destination), network);
	from_key = in_network(station_key(eth->source), network);
	if (is_group(to_key))
		return slow(ctx, control, counted, INTO, SLOW_GROUP);
	if (control->learns) {
		from = bpf_map_lookup_elem(&stations, &from_key);
		if (!from || from->place != LOCAL)
			return slow(ctx, control, counted, INTO, SLOW_SOURCE);
		refresh(from, control, now_ns);
		is_ready = is_open(from, control, counted, INTO, now_ns);
	}
	to = bpf_map_lookup_elem(&stations, &to_key);
	if (to && !to->is_static && now_ns > to->seen_ns &&
	    now_ns - to->seen_ns > control->ageing_ns)
		to = 0;
	if (to) {
		tunnel = to->place;
		/* With one tunnel there was nothing to learn: earlier frames took the same way. */
		if (tunnel + 1 != control->sole[network & (NETWORKS - 1)]) {
			is_ready_from = is_open(to, control, counted, INTO, now_ns);
			if (is_ready == OPEN)
				is_ready = is_ready_from;
		}
	} else {
		tunnel = control->sole[network & (NETWORKS - 1)] - 1;
		is_known = tunnel != LOCAL;
	}
	if (!is_known || tunnel >= TUNNELS_MAX)
		return slow(ctx, control, counted, INTO, SLOW_DESTINATION);
	slot = 2 * tunnel + (*(volatile __u32 *)&control->active[tunnel] & 1);
	header = bpf_map_lookup_elem(&headers, &slot);
	if (!header || !header->len_bytes)
		return slow(ctx, control, counted, INTO, SLOW_TUNNEL);
	if (len != end - start)
		return slow(ctx, control, counted, INTO, SLOW_SIZE);
	len -= tag_bytes;
	if (len > header->inner_bytes_max)
		return slow(ctx, control, counted, INTO, SLOW_SIZE);
	if (!read_inner(start + tag_bytes, end, &inner))
		return slow(ctx, control, counted, INTO, SLOW_SHAPE);
	/* A packet between the tunnel's own ends may be a loop. */
	if (inner.is_v4 && inner.ends == header->ends)
		return slow(ctx, control, counted, INTO, SLOW_NESTED);
	if (is_ready == WAITS)
		return slow(ctx, control, counted, INTO, SLOW_WAITING);
	if (is_ready == HELD) {
		counted->frames[SEAM_DROPPED]++;
		return XDP_DROP;
	}
	switch (header->len_bytes) {
	case VXLAN_BYTES:
		ENCAPSULATE(VXLAN_BYTES);
		break;
	case GRE_BYTES:
		ENCAPSULATE(GRE_BYTES);
		break;
	case GRE_KEY_BYTES:
		ENCAPSULATE(GRE_KEY_BYTES);
		break;
	default:
		return slow(ctx, control, counted, INTO, SLOW_TUNNEL);
	}
	counted->frames[INTO_SENT]++;
	return bpf_redirect_map(&targets, UNDERLAY, XDP_DROP);
}

/* Tells if the UDP checksum of a whole IPv4 packet is right. */
static __always_inline int is_sum_right(struct xdp_md *ctx, const struct ipv4 *ip, __u32 udp_bytes)
{
	struct summed *copied;
	__u32 zero = 0, whole_bytes;
	__s64 sum;

	copied = bpf_map_lookup_elem(&summed, &zero);
	/* The verifier is to see the bounds of this register and of no copy of it. */
	asm volatile("" : "+r"(udp_bytes));
	if (!copied || udp_bytes < sizeof(struct udp) || udp_bytes > SUMMED_BYTES_MAX - 4)
		return 0;
	/* The sum takes whole words: the rest of the last one is 0. */
	copied->words[udp_bytes / 4] = 0;
	if (bpf_xdp_load_bytes(ctx, ETHERNET_BYTES + IPV4_BYTES, copied->words, udp_bytes))
		return 0;
	whole_bytes = (udp_bytes + 3) & ~3U;
	sum = bpf_csum_diff(0, 0, copied->words, whole_bytes, 0);
	if (sum < 0)
		return 0;
	sum += (__u32)ip->source;
	sum += (__u32)ip->destination;
	sum += bpf_htons(PROTOCOL_UDP);
	sum += bpf_htons(udp_bytes);
	sum = (sum & 0xffffffff) + ((__u64)sum >> 32);
	sum = (sum & 0xffffffff) + ((__u64)sum >> 32);
	sum = (sum & 0xffff) + ((__u64)sum >> 16);
	sum = (sum & 0xffff) + ((__u64)sum >> 16);
	return sum == 0xffff;
}

/* Carrier of a packet, and where its frame begins. */
struct carried {
	struct ends ends;
	__u32 headers_bytes; /* 0 if only the slow path opens it */
	__u32 is_summed;
};

/* Reads UDP or GRE at `at`. Returns 0 if it carries no Ethernet frame of a tunnel. */
static __always_inline int read_carrier(void *at, void *end, __u8 protocol, struct carried *carried)
{
	if (protocol == PROTOCOL_UDP) {
		struct udp *udp = at;
		__be32 *vxlan = (void *)(udp + 1);

		if ((void *)(vxlan + 2) > end || udp->destination != bpf_htons(config.vxlan_port))
			return 0;
		carried->ends.kind = VXLAN;
		carried->ends.id = bpf_ntohl(vxlan[1]) >> 8;
		carried->is_summed = udp->checksum != 0;
		carried->headers_bytes = VXLAN_BYTES;
		if (!(vxlan[0] & bpf_htonl(0x08000000)))
			carried->headers_bytes = 0;
		return 1;
	}
	if (protocol == PROTOCOL_GRE) {
		__be16 *gre = at;
		__be32 *key = (void *)(gre + 2);
		__u16 flags;

		if ((void *)(gre + 2) > end || gre[1] != bpf_htons(TYPE_BRIDGED))
			return 0;
		flags = bpf_ntohs(gre[0]);
		carried->ends.kind = GRETAP;
		carried->headers_bytes = GRE_BYTES;
		if (flags & GRE_KEY) {
			if (flags & GRE_CHECKSUM)
				key++;
			if ((void *)(key + 1) > end)
				return 0;
			carried->ends.kind = GRETAP_KEY;
			carried->ends.id = bpf_ntohl(*key);
			carried->headers_bytes = GRE_KEY_BYTES;
		}
		if (flags & (GRE_CHECKSUM | GRE_SEQUENCE | GRE_REFUSED))
			carried->headers_bytes = 0;
		return 1;
	}
	return 0;
}

/* Gives a packet to the slow path if it is to one of our ends, else to the host's stack. */
static __always_inline int slow_or_stack(struct xdp_md *ctx, struct control *control,
					 struct counts *counted, struct segment *segment,
					 enum count why)
{
	if (bpf_map_lookup_elem(&segments, segment))
		return slow(ctx, control, counted, OUT_OF, why);
	counted->frames[TO_STACK]++;
	return XDP_PASS;
}

static __always_inline int to_stack(struct counts *counted)
{
	counted->frames[TO_STACK]++;
	return XDP_PASS;
}

/* Writes a tag behind the addresses, into the room that was left for it. */
static __always_inline int write_tag(struct xdp_md *ctx, const struct macs *macs, __u32 network)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	struct vlan *vlan = (void *)(eth + 1);

	if (!write_macs(ctx, macs, 0) || (void *)(vlan + 1) > (void *)(long)ctx->data_end)
		return 0;
	eth->type = bpf_htons(TYPE_VLAN);
	vlan->tag = bpf_htons(network);
	return 1;
}

SEC("xdp")
int out_of(struct xdp_md *ctx)
{
	void *start = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *eth = start;
	struct carried carried = {};
	struct segment segment = {};
	struct inner inner;
	struct station *from;
	struct control *control;
	struct counts *counted;
	struct ipv4 *ip;
	void *frame, *at = eth + 1;
	__u64 now_ns, key;
	__u32 zero = 0, bytes, *tunnel, outer_ecn, inner_len, network = 0;
	struct macs macs;
	__be16 type;
	enum open is_ready;
	int is_tagged = 0;

	control = bpf_map_lookup_elem(&control_map, &zero);
	counted = bpf_map_lookup_elem(&counts, &zero);
	if (!control || !counted)
		return XDP_PASS;
	if (at > end)
		return to_stack(counted);
	type = eth->type;
	if (type == bpf_htons(TYPE_VLAN) || type == bpf_htons(TYPE_QINQ)) {
		struct vlan *vlan = at;

		at = vlan + 1;
		if (at > end)
			return to_stack(counted);
		type = vlan->type;
		is_tagged = 1;
	}
	if (type == bpf_htons(TYPE_IPV6)) {
		struct ipv6 *v6 = at;

		if ((void *)(v6 + 1) > end ||
		    !read_carrier(v6 + 1, end, v6->next, &carried))
			return to_stack(counted);
		__builtin_memcpy(segment.local, v6->destination, 16);
		segment.id = carried.ends.id;
		segment.kind = carried.ends.kind;
		return slow_or_stack(ctx, control, counted, &segment, SLOW_SHAPE);
	}
	if (type != bpf_htons(TYPE_IPV4))
		return to_stack(counted);
	ip = at;
	if ((void *)(ip + 1) > end || ip->fragment & bpf_htons(FRAGMENT_MASK))
		return to_stack(counted);
	bytes = ipv4_header_bytes(ip);
	if (!bytes || !read_carrier(at + bytes, end, ip->protocol, &carried))
		return to_stack(counted);
	segment.local[10] = 0xff;
	segment.local[11] = 0xff;
	*(__be32 *)&segment.local[12] = ip->destination;
	segment.id = carried.ends.id;
	segment.kind = carried.ends.kind;
	carried.ends.remote = ip->source;
	carried.ends.local = ip->destination;
	tunnel = bpf_map_lookup_elem(&tunnels, &carried.ends);
	if (!tunnel)
		return slow_or_stack(ctx, control, counted, &segment, SLOW_TUNNEL);
	/* Ours from here on. */
	if (!control->is_on[OUT_OF])
		return slow(ctx, control, counted, OUT_OF, SLOW_OFF);
	if (is_tagged || bytes != IPV4_BYTES || !carried.headers_bytes)
		return slow(ctx, control, counted, OUT_OF, SLOW_SHAPE);
	ip = (void *)(eth + 1);
	frame = start + carried.headers_bytes;
	if ((void *)(ip + 1) > end || bpf_ntohs(ip->total_bytes) != end - (void *)ip ||
	    bpf_xdp_get_buff_len(ctx) != end - start)
		return slow(ctx, control, counted, OUT_OF, SLOW_SHAPE);
	bytes = end - start;
	inner_len = bytes - carried.headers_bytes;
	if (*tunnel < TUNNELS_MAX)
		network = control->networks[*tunnel & (TUNNELS_MAX - 1)];
	if (inner_len < ETHERNET_BYTES ||
	    inner_len + (network ? TAG_BYTES : 0) > config.inner_bytes_max || bytes > 0xffff)
		return slow(ctx, control, counted, OUT_OF, SLOW_SIZE);
	{
		__u32 sum = 0;

		for (int word = 0; word < IPV4_BYTES / 2; word++)
			sum += ((__u16 *)ip)[word];
		if (folded(sum) != 0xffff)
			return slow(ctx, control, counted, OUT_OF, SLOW_CHECKSUM);
	}
	if (carried.ends.kind == VXLAN) {
		struct udp *udp = (void *)(ip + 1);
		__u32 udp_bytes = bytes - ETHERNET_BYTES - IPV4_BYTES;

		if ((void *)(udp + 1) > end || bpf_ntohs(udp->len_bytes) != udp_bytes)
			return slow(ctx, control, counted, OUT_OF, SLOW_SHAPE);
		if (carried.is_summed && !is_sum_right(ctx, ip, udp_bytes))
			return slow(ctx, control, counted, OUT_OF, SLOW_CHECKSUM);
	}
	outer_ecn = ip->service & ECN_BITS;
	switch (carried.headers_bytes) {
	case VXLAN_BYTES:
		frame = start + VXLAN_BYTES;
		break;
	case GRE_BYTES:
		frame = start + GRE_BYTES;
		break;
	default:
		frame = start + GRE_KEY_BYTES;
		break;
	}
	eth = frame;
	if ((void *)(eth + 1) > end)
		return slow(ctx, control, counted, OUT_OF, SLOW_SIZE);
	key = station_key(eth->destination);
	if (is_reserved(key))
		return slow(ctx, control, counted, OUT_OF, SLOW_GROUP);
	macs = read_macs(eth);
	if (control->learns) {
		now_ns = bpf_ktime_get_ns();
		key = in_network(station_key(eth->source), network);
		from = bpf_map_lookup_elem(&stations, &key);
		if (!from || from->place != *tunnel)
			return slow(ctx, control, counted, OUT_OF, SLOW_SOURCE);
		refresh(from, control, now_ns);
		is_ready = is_open(from, control, counted, OUT_OF, now_ns);
		if (is_ready == WAITS)
			return slow(ctx, control, counted, OUT_OF, SLOW_WAITING);
		if (is_ready == HELD) {
			counted->frames[SEAM_DROPPED]++;
			return XDP_DROP;
		}
	}
	if (!read_inner(frame, end, &inner)) {
		/* Nothing to mark and nothing nested in other than IP. */
		if (eth->type == bpf_htons(TYPE_IPV4) || eth->type == bpf_htons(TYPE_IPV6) ||
		    eth->type == bpf_htons(TYPE_VLAN) || eth->type == bpf_htons(TYPE_QINQ))
			return slow(ctx, control, counted, OUT_OF, SLOW_SHAPE);
	} else {
		__u32 mark = inner.bits & ECN_BITS, result;

		if (inner.protocol == PROTOCOL_GRE ||
		    (inner.protocol == PROTOCOL_UDP &&
		     inner.port == bpf_htons(config.vxlan_port)))
			return slow(ctx, control, counted, OUT_OF, SLOW_NESTED);
		result = config.ecn[(outer_ecn << 2 | mark) & 15];
		if (result & ECN_DROP) {
			counted->frames[CONGESTION]++;
			return XDP_DROP;
		}
		if (result & ECN_ODD)
			counted->frames[ODD_ECN]++;
		if ((result & ECN_BITS) != mark) {
			__be16 *word = (void *)(eth + 1);

			if (inner.is_v4) {
				struct ipv4 *packet = (void *)(eth + 1);
				__u16 old, new;

				if ((void *)(packet + 1) > end)
					return XDP_ABORTED;
				old = *word;
				packet->service = (packet->service & ~ECN_BITS) |
						  (result & ECN_BITS);
				new = *word;
				/* RFC 1624, equation 3. */
				packet->checksum = ~folded((__u16)~packet->checksum + (__u16)~old +
							   new);
			} else if ((void *)(word + 1) <= end) {
				*word = (*word & ~bpf_htons(ECN_BITS << 4)) |
					bpf_htons((result & ECN_BITS) << 4);
			}
		}
	}
	switch (carried.headers_bytes) {
	case VXLAN_BYTES:
		bytes = VXLAN_BYTES;
		break;
	case GRE_BYTES:
		bytes = GRE_BYTES;
		break;
	default:
		bytes = GRE_KEY_BYTES;
		break;
	}
	if (network)
		bytes -= TAG_BYTES;
	if (bpf_xdp_adjust_head(ctx, bytes))
		return slow(ctx, control, counted, OUT_OF, SLOW_SIZE);
	if (network && !write_tag(ctx, &macs, network))
		return XDP_ABORTED;
	counted->frames[OUT_OF_SENT]++;
	return bpf_redirect_map(&targets, PORT, XDP_DROP);
}

struct net {
	__u64 net_cookie;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} __attribute__((preserve_access_index));

#define ENXIO 6
#define EOPNOTSUPP 95

/* Counts frames that a target refused. One that takes none at all leaves its direction to the slow
 * path. */
static __always_inline void refused(int direction, __u64 frames, int err)
{
	struct control *control;
	struct counts *counted;
	__u32 zero = 0;

	control = bpf_map_lookup_elem(&control_map, &zero);
	counted = bpf_map_lookup_elem(&counts, &zero);
	if (!control || !counted)
		return;
	counted->frames[direction == INTO ? INTO_REFUSED : OUT_OF_REFUSED] += frames;
	if (err == -ENXIO || err == -EOPNOTSUPP) {
		control->refused[direction] = -err;
		control->is_on[direction] = 0;
	}
}

struct bpf_prog;

/* A target that says that it takes no redirected frames: a veth whose other end does not poll. */
SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(redirect_err, const struct net_device *from, const struct bpf_prog *program,
	     const void *target, int err, int map_type)
{
	if (map_type != BPF_MAP_TYPE_DEVMAP || from->nd_net.net->net_cookie != config.net_cookie)
		return 0;
	if (from->ifindex == config.port_ifindex)
		refused(INTO, 1, err);
	else if (from->ifindex == config.underlay_ifindex)
		refused(OUT_OF, 1, err);
	return 0;
}

/* Frames that a target refused after they were queued for it, such as for a full ring. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(xmit, const struct net_device *from, const struct net_device *to, int sent, int drops,
	     int err)
{
	int is_into = to->ifindex == config.underlay_ifindex &&
		      from->ifindex == config.port_ifindex;

	if (!drops || to->nd_net.net->net_cookie != config.net_cookie)
		return 0;
	if (!is_into && (to->ifindex != config.port_ifindex ||
			 from->ifindex != config.underlay_ifindex))
		return 0;
	refused(is_into ? INTO : OUT_OF, drops, err);
	return 0;
}

/* GPL-compatible name for the kernel's check; see the licence line above. */
char LICENSE[] SEC("license") = "GPL";
