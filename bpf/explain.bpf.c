/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Follows socket buffers through the stack: histograms of the time between each
 * pair of consecutive points, drops by reason, the delay until a woken reader
 * runs, and timer samples of the stacks of the CPUs.
 *
 * Buffers are found by address, in a table with one slot per address: an array
 * lookup costs almost nothing, and a hash would double the cost. A buffer that
 * evicts another from its slot ends the trace of the other, and is counted.
 *
 * An address does not identify a buffer: many are freed without a tracepoint (by TCP
 * and GRO), and the next one has the same address. So a buffer at a point is joined
 * to the one in its slot only if its own fields prove that it passed the point there:
 * see `origin`.
 *
 * Of one service (`config.service`) the packets are known only at the socket. Until
 * then their times wait in the slot; the buffers of others are forgotten uncounted.
 */
#include "stack.h"
#include "ipv6.h"
#include "samples.h"

/* As numbered in sys::bpf::explain::Point. */
enum point {
	NOWHERE,
	QUEUED,
	TO_DRIVER,
	TO_TUNNEL, /* as TO_DRIVER, of a tunnel's device, which wraps the packet then */
	IN_BACKLOG,
	IN_GRO,
	RECEIVED,
	FROM_TUNNEL, /* as RECEIVED, of a packet that a tunnel's device unwraps then */
	IN_TCP, /* with its connection */
	READY,
	READ,
	CONSUMED,
	DROPPED,
	POINTS = 16,
};

#define SCOPES_MAX 16
#define SLOTS_BITS 12
#define WOKEN_BITS 12
#define BUCKETS 256
/* A reader that is woken is woken right after the socket is ready. */
#define WAKING_NS_MAX 20000

struct scope {
	__u32 netns;
	__u32 ifindex; /* 0: any */
};

/* As numbered in sys::bpf::explain. */
#define BY_PORT 1
#define BY_CGROUP 2
#define BY_INODE 3

struct config {
	__u32 timed_one_in; /* one packet in this many is timed; all are counted */
	__u32 scopes_count; /* 0: everything */
	struct scope scopes[SCOPES_MAX];
	__u32 service; /* 0: packets of all sockets; else by which property of the socket */
	__u32 port;
	__u64 cgroup_id;
	__u32 slices; /* report each time on its own too */
	__u32 has_refuser; /* kfree_skb passes the socket that refused a packet: Linux 6.11 */
};

struct slot {
	__u64 skb;
	__u64 at_ns; /* 0: not timed */
	__u32 point;
	__u32 window;
	/* Of one service: */
	__u64 entry_ns; /* at the point where a driver gave it to the stack */
	__u32 entry; /* that point, or NOWHERE */
	__u32 is_wire; /* at TO_DRIVER: the device may give it to another interface */
	/* Of the buffer at that point: */
	__u64 dev;
	__u64 head;
	__u32 life; /* number of the buffer among those that had this slot */
	__u32 pad;
} __attribute__((aligned(64))); /* the CPUs hand it from one to another */

/* Where a packet was, and of which flow. */
struct place {
	__u32 netns;
	__u32 ifindex;
	__u32 pid; /* of the thread group that read it; 0: not read */
	__u16 from_port; /* 0: none */
	__u16 to_port;
	__u32 protocol;
};

struct stage {
	__u64 count;
	__u64 timed;
	__u64 sum_ns;
	__u64 max_ns;
	struct place longest; /* of the packet that took `max_ns` */
	__u32 buckets[BUCKETS];
};

/*
 * Datagrams queued in a socket. Reading does not reveal a datagram's address, but
 * they are read in order of arrival, so one at a time is timed by its number.
 */
struct waiting {
	/* Written by both sides, but only with a timed one. */
	__u32 window;
	__u32 is_stream;
	__u32 unseen; /* arrived before tracing */
	__u32 timed; /* its number, from 1; 0: none */
	__u64 at_ns;
	__u64 pads[5];
	/* Cache lines of the CPU that receives, and of the one that reads. */
	__u32 announced;
	__u32 pads_announced[15];
	__u32 read;
	__u32 pad_read;
};

struct here {
	__u64 skb; /* received last on this CPU */
	__u64 sk; /* the connection that takes it; 0: unknown */
	/* The same of a segment that waited until a program let go of its connection. */
	__u64 late_skb;
	__u64 late_sk;
	__u32 life;
	__u32 late_life;
	__u64 ready_ns;
	__u64 unfinished; /* another buffer took the slot */
	__u32 random;
	__u32 pad;
	/* Datagrams, put into sockets and read. */
	__u64 put;
	__u64 taken;
	__u64 slices_lost; /* found the ring full */
	__u64 drops_lost; /* found no room for their row */
	/* Packets of one service that reached its socket, by the point where a driver gave them. */
	__u64 arrived[POINTS];
};

/* A reader that was woken for a timed packet, and has not run. */
struct woken {
	__u64 ready_ns;
	__u32 pid; /* 0: none */
	__u32 pad;
};

/* The time of one packet in one stage. Stages of a packet follow each other without a gap. */
struct slice {
	__u64 begin_ns;
	__u64 end_ns;
	__u32 stage; /* as in `stages` */
	__u32 cpu; /* where it ended */
};

/* Unused: lets the type information of this file have the type. */
struct slice layout SEC(".data.layout") = {};

/* Dropped packets of one kind, in one place. */
struct drop {
	__u64 location;
	__u32 reason;
	__u32 netns; /* 0: unknown */
	__u32 ifindex; /* 0: unknown */
	__u16 port; /* destination; 0: none, or of a row for all ports */
	__u8 protocol; /* of IP; 0: none */
	__u8 pad;
};

#define LINK_BYTES 14
#define SAMPLE_BYTES 84
#define CONNECTION_UNKNOWN 0xff
#define NO_HEADER 0xffff

/* Their number, and the first one of them. */
struct dropped {
	__u64 count;
	__u64 inode; /* of the socket that refused it; 0: none, or unknown */
	__u32 iif; /* interface that received it; 0: made here */
	__u32 oif; /* interface of its route; 0: none */
	__u32 mark;
	__u32 length;
	__s32 stack; /* negative: none */
	__u16 ethertype;
	__u16 bytes_count; /* valid ones of `bytes` */
	__u16 transport; /* offset in `bytes`; NO_HEADER: unknown */
	__u8 kind; /* skb->pkt_type */
	__u8 connection; /* see `connection_of` */
	__u8 has_link;
	__u8 pad;
	__u8 link[LINK_BYTES];
	__u8 bytes[SAMPLE_BYTES]; /* from the network header */
};

const volatile struct config config = {};

/* Number of the window; packets of an earlier window are ignored. */
__u32 window = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << SLOTS_BITS);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

/* By from * POINTS + to; that of DROPPED to DROPPED is the wake-up. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, POINTS * POINTS);
	__type(key, __u32);
	__type(value, struct stage);
} stages SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct here);
} heres SEC(".maps");

/* Sized to a page unless slices are reported. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} slices SEC(".maps");

/* In the socket itself, and gone with it. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct waiting);
} sockets SEC(".maps");

/* Inodes of the sockets of a service. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u32);
} inodes SEC(".maps");

/* Local ports of a service, as protocol << 16 | port. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

/* A scan of ports fills it: see `drops_of_all_ports`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct drop);
	__type(value, struct dropped);
} drops SEC(".maps");

/* Drops that came when the other was full; their port is 0. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct drop);
	__type(value, struct dropped);
} drops_of_all_ports SEC(".maps");

/* By the last bits of the thread's number: every switch of a task looks here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << WOKEN_BITS);
	__type(key, __u32);
	__type(value, struct woken);
} woken SEC(".maps");

/* With an index of 0: any interface of the namespace. */
static __always_inline int is_in_scope(__u32 netns, __u32 ifindex)
{
	__u32 i;

	for (i = 0; i < SCOPES_MAX; i++) {
		if (i >= config.scopes_count)
			break;
		if (config.scopes[i].netns == netns &&
		    (!ifindex || !config.scopes[i].ifindex || config.scopes[i].ifindex == ifindex))
			return 1;
	}
	return 0;
}

static __always_inline int is_wanted(struct sk_buff *skb)
{
	struct net_device *dev;

	if (!config.scopes_count)
		return 1;
	/* Not where the stack keeps something else in its place: reading that is harmless. */
	dev = skb->dev;
	if (!dev)
		return 0;
	return is_in_scope(dev->nd_net.net->ns.inum, dev->ifindex);
}

/* Eight buckets to a power of two. */
static __always_inline __u32 bucket_of(__u64 ns)
{
	__u32 power = 0, value;

	if (ns < 8)
		return ns;
	value = ns >> 32 ? 0xffffffff : ns;
	if (value >> 16) power += 16;
	if (value >> (power + 8)) power += 8;
	if (value >> (power + 4)) power += 4;
	if (value >> (power + 2)) power += 2;
	if (value >> (power + 1)) power += 1;
	return (power - 2) * 8 + ((value >> (power - 3)) & 7);
}

static __always_inline struct here *here_of_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&heres, &zero);
}

static __always_inline void report(__u32 stage, __u64 begin_ns, __u64 end_ns)
{
	struct slice *slice = bpf_ringbuf_reserve(&slices, sizeof(*slice), 0);
	struct here *here;

	if (!slice) {
		here = here_of_cpu();
		if (here)
			__sync_fetch_and_add(&here->slices_lost, 1);
		return;
	}
	slice->begin_ns = begin_ns;
	slice->end_ns = end_ns;
	slice->stage = stage;
	slice->cpu = bpf_get_smp_processor_id();
	/* The reader polls. */
	bpf_ringbuf_submit(slice, BPF_RB_NO_WAKEUP);
}

/* Protocol and ports of a packet, by its own headers. */
struct way {
	__u16 from_port; /* 0: none, or of a later fragment */
	__u16 to_port;
	__u8 protocol; /* 0: not IP */
};

static __always_inline struct way way_of(struct sk_buff *skb)
{
	unsigned char *at = skb->head + skb->network_header;
	__u16 type = bpf_ntohs(skb->protocol);
	__u32 header_bytes = 40;
	unsigned char ip[40];
	struct way way = {};
	__be16 ports[2];

	if ((type != TYPE_IPV4 && type != TYPE_IPV6) || bpf_probe_read_kernel(ip, sizeof(ip), at))
		return way;
	if (type == TYPE_IPV4) {
		header_bytes = (ip[0] & 15) * 4;
		way.protocol = ip[9];
		if (ip[6] & 0x1f || ip[7])
			return way;
	} else {
		/* Extension headers are rare, and not followed. */
		way.protocol = ip[6];
	}
	if (way.protocol != PROTOCOL_TCP && way.protocol != PROTOCOL_UDP)
		return way;
	if (bpf_probe_read_kernel(ports, sizeof(ports), at + header_bytes))
		return way;
	way.from_port = bpf_ntohs(ports[0]);
	way.to_port = bpf_ntohs(ports[1]);
	return way;
}

/* The interface that has the packet; before it has one, that of its route. NULL if there is none. */
static __always_inline struct net_device *device_of(struct sk_buff *skb)
{
	struct dst_entry *route;

	if (skb->dev)
		return skb->dev;
	route = (struct dst_entry *)(skb->_skb_refdst & ~1UL);
	return route ? BPF_CORE_READ(route, dev) : NULL;
}

static __always_inline void name_place(struct place *place, struct sk_buff *skb)
{
	struct net_device *dev = device_of(skb);
	struct way way = way_of(skb);

	place->netns = BPF_CORE_READ(dev, nd_net.net, ns.inum);
	place->ifindex = BPF_CORE_READ(dev, ifindex);
	place->pid = 0;
	place->from_port = way.from_port;
	place->to_port = way.to_port;
	place->protocol = way.protocol;
}

/* Adds a time to a stage. Returns 1 if it is the longest. */
static __always_inline int add_time(struct stage *stage, __u32 at, __u64 from_ns, __u64 now)
{
	__u64 ns = now - from_ns;
	int is_longest = ns > stage->max_ns;

	stage->timed++;
	stage->sum_ns += ns;
	if (is_longest)
		stage->max_ns = ns;
	stage->buckets[bucket_of(ns) & (BUCKETS - 1)]++;
	if (config.slices)
		report(at, from_ns, now);
	return is_longest;
}

/*
 * Counts a packet, and adds the time since `from_ns` unless that is 0. Returns the time, or 0
 * if there was none to add.
 *
 * - `skb`: the packet; NULL if it is not at hand. `longest`: set to the place to fill in then.
 */
static __always_inline __u64 add_of(__u32 from, __u32 to, __u64 from_ns, struct sk_buff *skb,
				    struct place **longest)
{
	__u32 at = from * POINTS + to;
	struct stage *stage = bpf_map_lookup_elem(&stages, &at);
	__u64 now;

	if (!stage)
		return 0;
	stage->count++;
	if (!from_ns)
		return 0;
	now = bpf_ktime_get_ns();
	if (!add_time(stage, at, from_ns, now))
		return now;
	if (skb)
		name_place(&stage->longest, skb);
	else if (longest)
		*longest = &stage->longest;
	return now;
}

static __always_inline __u64 add(__u32 from, __u32 to, __u64 from_ns)
{
	return add_of(from, to, from_ns, NULL, NULL);
}

/* Adds the time of a packet that is counted in `arrived`. */
static __always_inline void add_counted(__u32 from, __u32 to, __u64 from_ns, __u64 now)
{
	__u32 at = from * POINTS + to;
	struct stage *stage = bpf_map_lookup_elem(&stages, &at);

	if (stage)
		add_time(stage, at, from_ns, now);
}

/* True for one packet in `timed_one_in`. By chance: a count would follow a load that repeats. */
static __always_inline int is_timed(struct here *here)
{
	here->random = here->random * 1664525 + 1013904223;
	return (__u64)here->random * config.timed_one_in >> 32 == 0;
}

static __always_inline struct slot *slot_of(void *skb)
{
	/* Fibonacci hashing of what a pointer may be cut to; buffers lie 256 bytes apart. */
	__u32 at = ((__u32)(__u64)skb >> 8) * 0x9e3779b1u >> (32 - SLOTS_BITS);

	return bpf_map_lookup_elem(&slots, &at);
}

/* An interface that gives what it sends to another one of this machine, or to one below. */
static __always_inline int is_wire(struct net_device *dev)
{
	return dev && (dev->rtnl_link_ops || dev->flags & IFF_LOOPBACK);
}

/* The first seven characters of a device's kind, as `ip -d link` shows it. */
#define KIND(a, b, c, d, e, f, g)                                                              \
	((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 | (__u64)(e) << 32 | \
	 (__u64)(f) << 40 | (__u64)(g) << 48)

/* As above; 0 for a card. By address, as the device may be gone. */
static __always_inline __u64 kind_of(__u64 dev)
{
	const char *kind = BPF_CORE_READ((struct net_device *)dev, rtnl_link_ops, kind);
	__u64 text = 0;

	bpf_probe_read_kernel_str(&text, sizeof(text), kind);
	return text;
}

static __always_inline int is_tunnel(__u64 kind)
{
	return kind == KIND('v', 'x', 'l', 'a', 'n', 0, 0) ||
	       kind == KIND('g', 'e', 'n', 'e', 'v', 'e', 0) ||
	       kind == KIND('g', 'r', 'e', 't', 'a', 'p', 0) ||
	       kind == KIND('g', 'r', 'e', 0, 0, 0, 0) ||
	       kind == KIND('i', 'p', '6', 'g', 'r', 'e', 't') ||
	       kind == KIND('i', 'p', '6', 'g', 'r', 'e', 0) ||
	       kind == KIND('e', 'r', 's', 'p', 'a', 'n', 0) ||
	       kind == KIND('i', 'p', '6', 'e', 'r', 's', 'p') ||
	       kind == KIND('i', 'p', 'i', 'p', 0, 0, 0) ||
	       kind == KIND('s', 'i', 't', 0, 0, 0, 0) ||
	       kind == KIND('i', 'p', '6', 't', 'n', 'l', 0) ||
	       kind == KIND('w', 'i', 'r', 'e', 'g', 'u', 'a') ||
	       kind == KIND('x', 'f', 'r', 'm', 0, 0, 0) ||
	       kind == KIND('v', 't', 'i', 0, 0, 0, 0) ||
	       kind == KIND('v', 't', 'i', '6', 0, 0, 0) ||
	       kind == KIND('g', 't', 'p', 0, 0, 0, 0) ||
	       kind == KIND('b', 'a', 'r', 'e', 'u', 'd', 'p') ||
	       kind == KIND('o', 'v', 'p', 'n', 0, 0, 0);
}

/* What these send never comes to a queue of the same interface's host: a pair, or a program. */
static __always_inline int is_end(__u64 kind)
{
	return kind == KIND('v', 'e', 't', 'h', 0, 0, 0) ||
	       kind == KIND('n', 'e', 't', 'k', 'i', 't', 0) || kind == KIND('t', 'u', 'n', 0, 0, 0, 0);
}

/*
 * A clone has the fields of its original and an address of its own. One whose data moved
 * (pskb_expand_head) is no longer marked as cloned.
 */
static __always_inline int is_clone_of_another(struct slot *slot, struct sk_buff *skb)
{
	return slot->head != (__u64)skb->head && BPF_CORE_READ_BITFIELD(skb, cloned);
}

/*
 * The point that this buffer passed last, as the slot of its address has it; NOWHERE if the slot
 * is of an earlier buffer, whose end was not seen.
 *
 * - The kernel sets `skb_iif` when an interface receives a buffer. It is 0 in a new one, and in
 *   one that a tunnel or a pair of interfaces passes on. So the first point of a buffer that was
 *   made or received just now is never taken for a later one.
 * - Until then it belongs to one device (`dev`).
 */
static __always_inline __u32 origin(struct slot *slot, struct sk_buff *skb, __u32 point)
{
	struct net_device *dev = skb->dev;
	int is_there = slot->dev == (__u64)dev;
	__u32 from = slot->point;
	__u64 kind;

	if (is_clone_of_another(slot, skb))
		return NOWHERE;
	switch (point) {
	case QUEUED:
		/* Forwarded, by route or bridge. */
		if (from == RECEIVED)
			return skb->skb_iif ? RECEIVED : NOWHERE;
		/* By an interface on top of this one. */
		if (from != TO_DRIVER || is_there || !slot->is_wire)
			return NOWHERE;
		kind = kind_of(slot->dev);
		if (!kind || is_end(kind))
			return NOWHERE;
		return is_tunnel(kind) ? TO_TUNNEL : TO_DRIVER;
	case TO_DRIVER:
		return from == QUEUED && is_there ? QUEUED : NOWHERE;
	case IN_BACKLOG: /* over a virtual wire, or out of a tunnel */
	case IN_GRO:
		if (from == TO_DRIVER)
			return slot->is_wire && is_wire(dev) ? TO_DRIVER : NOWHERE;
		if (from != RECEIVED)
			return NOWHERE;
		/* IPsec has no device of its own. */
		if (is_there ? skb->skb_iif != 0 : is_tunnel(kind_of((__u64)dev)))
			return FROM_TUNNEL;
		return skb->skb_iif ? RECEIVED : NOWHERE;
	case RECEIVED:
		if (from == IN_BACKLOG || from == IN_GRO)
			return is_there ? from : NOWHERE;
		if (from == TO_DRIVER)
			return slot->is_wire && is_wire(dev) ? TO_DRIVER : NOWHERE;
		/* Again, by another interface on top. */
		return from == RECEIVED && !is_there && skb->skb_iif ? RECEIVED : NOWHERE;
	case IN_TCP:
		return from == RECEIVED && skb->skb_iif ? RECEIVED : NOWHERE;
	default: /* freed; memory of other sockets has no device */
		if (from == RECEIVED)
			return skb->skb_iif ? RECEIVED : NOWHERE;
		return is_there || (from == TO_DRIVER && slot->is_wire && dev) ? from : NOWHERE;
	}
}

static __always_inline int starts(__u32 point)
{
	return point == QUEUED || point == IN_BACKLOG || point == IN_GRO || point == RECEIVED;
}

/*
 * A driver gives a buffer to the stack, and its socket is not known yet: it begins anew, as the
 * end of the one that had its address may not have been seen. Returns 1 if it is traced.
 */
static __always_inline int enter(struct sk_buff *skb, __u32 point, struct here *here)
{
	struct slot *slot = slot_of(skb);
	__u32 from = NOWHERE;
	int is_known;

	if (!slot)
		return 0;
	is_known = slot->skb == (__u64)skb && slot->window == window;
	if (is_known && point == RECEIVED)
		from = origin(slot, skb, point);
	/* By another interface on top. */
	if (from == RECEIVED)
		return 1;
	if (from == IN_BACKLOG || from == IN_GRO) {
		slot->entry = from;
		slot->entry_ns = slot->at_ns;
		if (slot->at_ns)
			slot->at_ns = bpf_ktime_get_ns();
		slot->point = point;
		return 1;
	}
	if (!is_wanted(skb)) {
		if (is_known)
			slot->skb = 0;
		return 0;
	}
	slot->life++;
	slot->entry = NOWHERE;
	slot->entry_ns = 0;
	slot->skb = (__u64)skb;
	slot->at_ns = is_timed(here) ? bpf_ktime_get_ns() : 0;
	slot->point = point;
	slot->window = window;
	slot->dev = (__u64)skb->dev;
	slot->head = (__u64)skb->head;
	return 1;
}

/*
 * A shaper cuts a large TCP segment into buffers that are new to the trace. TCP writes into each
 * when it handed the segment over, or wanted it to leave, if that is later. 0 if this is none of
 * them.
 */
static __always_inline __u64 cut_at_ns(struct sk_buff *skb)
{
	__u64 ns = skb->tstamp;

	if (bpf_core_field_exists(skb->tstamp_type)) {
		if (BPF_CORE_READ_BITFIELD(skb, tstamp_type) != 1)
			return 0;
	} else if (bpf_core_field_exists(skb->mono_delivery_time)) {
		if (!BPF_CORE_READ_BITFIELD(skb, mono_delivery_time))
			return 0;
	} else {
		return 0;
	}
	return skb->sk && ns && ns < bpf_ktime_get_ns() ? ns : 0;
}

/* Returns 1 if the buffer is traced. */
static __always_inline int pass(struct sk_buff *skb, __u32 point, struct here *here)
{
	__u32 from = NOWHERE;
	struct slot *slot;
	__u64 now = 0, cut_ns;

	if (!here)
		return 0;
	if (config.service)
		return enter(skb, point, here);
	slot = slot_of(skb);
	if (!slot)
		return 0;
	if (slot->skb == (__u64)skb && slot->window == window) {
		from = origin(slot, skb, point);
		if (from == NOWHERE) {
			here->unfinished++;
			slot->skb = 0;
		}
	}
	if (from != NOWHERE) {
		now = add_of(from, point, slot->at_ns, skb, NULL);
	} else {
		cut_ns = point == TO_DRIVER ? cut_at_ns(skb) : 0;
		if (!(starts(point) || cut_ns) || !is_wanted(skb))
			return 0;
		if (slot->skb && slot->window == window)
			here->unfinished++;
		slot->life++;
		add(NOWHERE, point, 0);
		if (is_timed(here))
			now = cut_ns ? add_of(QUEUED, point, cut_ns, skb, NULL) : bpf_ktime_get_ns();
		else if (cut_ns)
			add(QUEUED, point, 0);
	}
	slot->skb = point == CONSUMED || point == DROPPED ? 0 : (__u64)skb;
	slot->at_ns = now;
	slot->point = point;
	slot->window = window;
	slot->dev = (__u64)skb->dev;
	slot->head = (__u64)skb->head;
	if (point == TO_DRIVER)
		slot->is_wire = is_wire(skb->dev);
	return 1;
}

/* Sending: not of one service, which is followed from the driver on. */
SEC("tp_btf/net_dev_queue")
int BPF_PROG(queued, struct sk_buff *skb)
{
	pass(skb, QUEUED, here_of_cpu());
	return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(to_driver, struct sk_buff *skb)
{
	pass(skb, TO_DRIVER, here_of_cpu());
	return 0;
}

SEC("tp_btf/netif_rx")
int BPF_PROG(in_backlog, struct sk_buff *skb)
{
	pass(skb, IN_BACKLOG, here_of_cpu());
	return 0;
}

SEC("tp_btf/napi_gro_receive_entry")
int BPF_PROG(in_gro, struct sk_buff *skb)
{
	pass(skb, IN_GRO, here_of_cpu());
	return 0;
}

SEC("tp_btf/napi_gro_frags_entry")
int BPF_PROG(in_gro_frags, struct sk_buff *skb)
{
	pass(skb, IN_GRO, here_of_cpu());
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(received, struct sk_buff *skb)
{
	struct here *here = here_of_cpu();
	struct slot *slot = slot_of(skb);

	if (!here || !slot)
		return 0;
	here->skb = pass(skb, RECEIVED, here) ? (__u64)skb : 0;
	here->life = slot->life;
	here->sk = 0;
	here->ready_ns = 0;
	return 0;
}

/*
 * A connection begins to handle a segment: this CPU's current one, or, where a program held the
 * connection, one that came before, in the context of that program. An acknowledgement without
 * data ends here: TCP frees it without a tracepoint.
 */
SEC("tp_btf/tcp_probe")
int BPF_PROG(segment, struct sock *sk, struct sk_buff *skb)
{
	struct slot *slot = slot_of(skb);
	struct here *here = here_of_cpu();
	int is_current, is_traced;

	if (!here || !slot)
		return 0;
	is_current = here->skb == (__u64)skb;
	is_traced = slot->skb == (__u64)skb && slot->window == window &&
		    origin(slot, skb, IN_TCP) != NOWHERE;
	if (is_traced && !tcp_carries(skb)) {
		if (!config.service)
			add(RECEIVED, IN_TCP, slot->at_ns);
		slot->skb = 0;
		is_traced = 0;
	}
	if (here->sk == (__u64)sk)
		here->sk = 0;
	if (here->late_sk == (__u64)sk)
		here->late_sk = 0;
	if (is_current) {
		here->sk = is_traced ? (__u64)sk : 0;
		if (!is_traced)
			here->skb = 0;
	} else if (is_traced) {
		here->late_skb = (__u64)skb;
		here->late_life = slot->life;
		here->late_sk = (__u64)sk;
	}
	return 0;
}

#define SOCK_STREAM 1

static __always_inline void begin(struct waiting *waiting, struct sock *sk)
{
	__u32 port = (__u32)sk->sk_protocol << 16 | sk->__sk_common.skc_num, one = 1;
	__u32 before;

	before = sk->sk_protocol == PROTOCOL_UDP ? datagrams_queued(sk) : sk->sk_receive_queue.qlen;
	waiting->is_stream = sk->sk_type == SOCK_STREAM;
	/* The one that is announced is among them. */
	waiting->unseen = before && !waiting->is_stream ? before - 1 : 0;
	waiting->announced = waiting->unseen;
	waiting->read = 0;
	waiting->timed = 0;
	waiting->window = window;
	if (config.service)
		bpf_map_update_elem(&ports, &port, &one, BPF_ANY);
}

#define AF_INET 2
#define AF_INET6 10

static __always_inline int is_of_service(struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;
	__u64 inode;

	if (family != AF_INET && family != AF_INET6)
		return 0;
	if (!is_in_scope(sk->__sk_common.skc_net.net->ns.inum, 0))
		return 0;
	if (config.service == BY_PORT)
		return sk->__sk_common.skc_num == config.port;
	if (config.service == BY_CGROUP)
		return is_of_cgroup(sk, config.cgroup_id);
	inode = BPF_CORE_READ((struct socket_alloc *)sk->sk_socket, vfs_inode.i_ino);
	return bpf_map_lookup_elem(&inodes, &inode) != NULL;
}

/*
 * The buffer that makes a socket ready, which the tracepoint does not pass: this CPU's current
 * one, if it is the newest in the socket's queue, or TCP gave it to this connection. A UDP reader
 * may have taken it already, and UDP handles no others. NULL if it is not traced.
 */
static __always_inline struct slot *current_slot(struct here *here, struct sock *sk)
{
	__u64 skb = here->skb, newest = 0;
	__u32 life = here->life;
	struct slot *slot;

	if (here->late_sk == (__u64)sk) {
		skb = here->late_skb;
		life = here->late_life;
		here->late_sk = 0;
	} else if (here->sk != (__u64)sk && sk->sk_protocol != PROTOCOL_UDP) {
		/* A number, not a pointer: the verifier allows no arithmetic with one. */
		bpf_core_read(&newest, sizeof(newest), &sk->sk_receive_queue.prev);
		if (newest != skb)
			return NULL;
	}
	if (!skb)
		return NULL;
	slot = slot_of((void *)skb);
	if (!slot || slot->skb != skb || slot->window != window || slot->point != RECEIVED ||
	    slot->life != life)
		return NULL;
	return slot;
}

/* Counts a packet of the service. Returns the time, or 0 if it is not timed. */
static __always_inline __u64 arrived(struct sock *sk, struct here *here)
{
	struct slot *slot = current_slot(here, sk);
	__u64 now = 0;
	__u32 entry;

	/* A part of a larger buffer. */
	if (!slot) {
		here->unfinished++;
		add(NOWHERE, READY, 0);
		return 0;
	}
	entry = slot->entry & (POINTS - 1);
	here->arrived[entry]++;
	if (slot->at_ns) {
		now = bpf_ktime_get_ns();
		if (entry != NOWHERE)
			add_counted(entry, RECEIVED, slot->entry_ns, slot->at_ns);
		add_counted(RECEIVED, READY, slot->at_ns, now);
	}
	slot->skb = 0;
	here->skb = 0;
	return now;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(ready, struct sock *sk)
{
	struct waiting *waiting;
	struct here *here;
	struct slot *slot;
	__u64 now;

	here = here_of_cpu();
	if (!here)
		return 0;
	waiting = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (config.service) {
		/* The last packet of a handshake makes the listener ready, and is no data. */
		if ((!waiting && !is_of_service(sk)) || sk->__sk_common.skc_state == TCP_LISTEN)
			return 0;
		now = arrived(sk, here);
	} else {
		slot = current_slot(here, sk);
		if (!slot)
			return 0;
		now = add(RECEIVED, READY, slot->at_ns);
		/* From here on the socket owns the buffer. */
		slot->skb = 0;
		here->skb = 0;
	}
	here->ready_ns = now;
	if (!waiting) {
		waiting = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
		if (!waiting)
			return 0;
	}
	if (waiting->window != window)
		begin(waiting, sk);
	waiting->announced++;
	if (!waiting->is_stream)
		here->put++;
	if (now && !waiting->timed) {
		waiting->at_ns = now;
		__sync_lock_test_and_set(&waiting->timed, waiting->announced);
	}
	return 0;
}

#define MSG_PEEK 2

static __always_inline void name_reader(struct place *place, struct sock *sk)
{
	place->netns = sk->__sk_common.skc_net.net->ns.inum;
	place->ifindex = 0;
	place->pid = bpf_get_current_pid_tgid() >> 32;
	place->from_port = bpf_ntohs(sk->__sk_common.skc_dport);
	place->to_port = sk->__sk_common.skc_num;
	place->protocol = sk->sk_protocol;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(read_length, struct sock *sk, int bytes, int flags)
{
	struct place *longest = NULL;
	struct waiting *waiting;
	struct here *here;
	__u64 at_ns = 0;
	__u32 number;

	if (bytes < 0 || flags & MSG_PEEK)
		return 0;
	waiting = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (!waiting || waiting->window != window)
		return 0;
	/* One read of a stream may take all announced data. */
	number = waiting->is_stream ? waiting->announced : waiting->read + 1;
	waiting->read = number;
	if (waiting->timed && (__s32)(number - waiting->timed) >= 0) {
		/* A later number means that it was read before it was announced. */
		if (waiting->is_stream || number == waiting->timed)
			at_ns = waiting->at_ns;
		waiting->timed = 0;
	}
	if (number <= waiting->unseen) {
		add(READ, READ, 0);
		return 0;
	}
	add_of(READY, READ, at_ns, NULL, &longest);
	if (longest)
		name_reader(longest, sk);
	here = here_of_cpu();
	if (here && !waiting->is_stream)
		here->taken++;
	return 0;
}

/* A buffer is freed. Its slot is another CPU's, often, and the next one at its address begins anew. */
static __always_inline void leave(struct sk_buff *skb)
{
	struct here *here = here_of_cpu();

	if (here && here->skb == (__u64)skb)
		here->skb = 0;
}

/* As above. True if it was received, and has not reached its socket. */
static __always_inline int drop_received(struct sk_buff *skb)
{
	struct slot *slot = slot_of(skb);

	leave(skb);
	if (!slot || slot->skb != (__u64)skb || slot->window != window)
		return 0;
	slot->skb = 0;
	return slot->point == RECEIVED && origin(slot, skb, DROPPED) != NOWHERE;
}

SEC("tp_btf/consume_skb")
int BPF_PROG(consumed, struct sk_buff *skb)
{
	if (config.service)
		leave(skb);
	else
		pass(skb, CONSUMED, here_of_cpu());
	return 0;
}

/*
 * State of the connection that netfilter tracks, `enum ip_conntrack_info`; 8 if the packet is of
 * none. CONNECTION_UNKNOWN if this kernel tracks no connections.
 */
static __always_inline __u8 connection_of(struct sk_buff *skb)
{
	unsigned long nfct;

	if (!bpf_core_field_exists(skb->_nfct))
		return CONNECTION_UNKNOWN;
	nfct = skb->_nfct;
	return nfct & ~7UL ? nfct & 7 : 8 | (nfct & 7);
}

/* Bytes and state of a packet, for the row of its kind. */
static __always_inline void take_sample(struct dropped *row, struct sk_buff *skb)
{
	__u32 network = skb->network_header, link = skb->mac_header, tail = skb->tail;
	struct dst_entry *route = (struct dst_entry *)(skb->_skb_refdst & ~1UL);

	row->iif = skb->skb_iif;
	row->oif = route ? BPF_CORE_READ(route, dev, ifindex) : 0;
	row->mark = skb->mark;
	row->length = skb->len;
	row->ethertype = bpf_ntohs(skb->protocol);
	row->kind = BPF_CORE_READ_BITFIELD(skb, pkt_type);
	row->connection = connection_of(skb);
	row->transport = skb->transport_header;
	row->transport = row->transport == NO_HEADER || row->transport < network ?
				 NO_HEADER :
				 row->transport - network;
	if (tail > network && !bpf_probe_read_kernel(row->bytes, SAMPLE_BYTES, skb->head + network))
		row->bytes_count = tail - network < SAMPLE_BYTES ? tail - network : SAMPLE_BYTES;
	/* A packet that was made here may have none yet, or that of its last journey. */
	if (link != NO_HEADER && link + LINK_BYTES == network)
		row->has_link = !bpf_probe_read_kernel(row->link, LINK_BYTES, skb->head + link);
}

/* Counts a drop in the row of its kind, or in one for all ports if there are too many kinds. */
static __always_inline void count_drop(void *ctx, struct sk_buff *skb, struct drop *key,
				       struct sock *refuser)
{
	struct dropped row = { .count = 1 }, *known;
	struct here *here;

	known = bpf_map_lookup_elem(&drops, key);
	if (!known) {
		row.stack = bpf_get_stackid(ctx, &stacks, 0);
		if (refuser)
			row.inode = BPF_CORE_READ((struct socket_alloc *)refuser->sk_socket,
						  vfs_inode.i_ino);
		take_sample(&row, skb);
		if (!bpf_map_update_elem(&drops, key, &row, BPF_NOEXIST))
			return;
		/* Another CPU made the row meanwhile, or the table is full. */
		known = bpf_map_lookup_elem(&drops, key);
	}
	if (!known) {
		key->port = 0;
		known = bpf_map_lookup_elem(&drops_of_all_ports, key);
	}
	if (known) {
		__sync_fetch_and_add(&known->count, 1);
		return;
	}
	if (!bpf_map_update_elem(&drops_of_all_ports, key, &row, BPF_NOEXIST))
		return;
	here = here_of_cpu();
	if (here)
		here->drops_lost++;
}

/* True for a packet to a port of the service. */
static __always_inline int is_to_service(struct way *way)
{
	__u32 key = (__u32)way->protocol << 16 | way->to_port;

	return bpf_map_lookup_elem(&ports, &key) != NULL;
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(dropped, struct sk_buff *skb, void *location, __u32 reason)
{
	struct drop key = { .location = (__u64)location, .reason = reason };
	struct net_device *dev = device_of(skb);
	struct sock *refuser = NULL;
	struct way way = {};

	key.netns = BPF_CORE_READ(dev, nd_net.net, ns.inum);
	key.ifindex = BPF_CORE_READ(dev, ifindex);
	/* Made here, and without a route. */
	if (!key.netns)
		key.netns = BPF_CORE_READ(skb, sk, __sk_common.skc_net.net, ns.inum);
	if (config.service) {
		if (!drop_received(skb))
			return 0;
		way = way_of(skb);
		if (!is_to_service(&way))
			return 0;
	} else {
		if (!pass(skb, DROPPED, here_of_cpu()) && config.scopes_count &&
		    !is_in_scope(key.netns, key.ifindex))
			return 0;
		way = way_of(skb);
	}
	key.protocol = way.protocol;
	key.port = way.to_port;
	/* Other kernels have no such argument, and know that it is not read. */
	if (config.has_refuser)
		refuser = (struct sock *)ctx[3];
	count_drop(ctx, skb, &key, refuser);
	return 0;
}

static __always_inline struct woken *woken_of(__u32 pid)
{
	__u32 at = pid & ((1 << WOKEN_BITS) - 1);

	return bpf_map_lookup_elem(&woken, &at);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(waking, struct task_struct *task)
{
	struct here *here = here_of_cpu();
	struct woken *reader;
	__u64 ready_ns;

	if (!here || !here->ready_ns)
		return 0;
	ready_ns = here->ready_ns;
	here->ready_ns = 0;
	if (bpf_ktime_get_ns() - ready_ns > WAKING_NS_MAX)
		return 0;
	reader = woken_of(task->pid);
	if (reader) {
		reader->ready_ns = ready_ns;
		reader->pid = task->pid;
	}
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, _Bool preempt, struct task_struct *before, struct task_struct *after)
{
	struct woken *leaver = woken_of(before->pid);
	__u32 pid = after->pid;
	struct woken *reader = woken_of(pid);

	/* It was woken before it slept. */
	if (leaver && leaver->pid == (__u32)before->pid)
		leaver->pid = 0;
	if (!pid || !reader || reader->pid != pid)
		return 0;
	reader->pid = 0;
	add(DROPPED, DROPPED, reader->ready_ns);
	return 0;
}

/* Empty program: measures the cost of counting runs. */
SEC("tp_btf/net_dev_queue")
int BPF_PROG(empty)
{
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
