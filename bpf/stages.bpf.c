/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Two times of every packet that the sockets of some processes receive: from the
 * driver to the socket, and from the socket to the read.
 *
 * - A packet's arrival is kept in a table with one slot per address of a buffer.
 * - When the socket announces data, the packet moves into a queue in the storage of
 *   that socket, which disappears with it: by number for datagrams, by sequence
 *   number for a stream, so that it does not matter which buffer holds the bytes.
 * - The read that takes the packet adds both times to the histograms.
 *
 * A packet without one of the times is counted in `dropped`.
 */
#include "stack.h"

/* As numbered in sys::bpf::stages. */
#define BUCKETS 1056
/* In place of a bucket. */
#define UNKNOWN 0xffff

#define SLOTS_BITS 16
#define IN_DRIVER (1ULL << 63)
/* Queued in one socket; powers of two. */
#define DATAGRAMS_MAX 2048
#define SEGMENTS_MAX 64
/* Observations after which a difference of the numbers is not a race. */
#define OBSERVATIONS 8

#define RCV_SHUTDOWN 1
#define MSG_PEEK 2
#define MSG_ERRQUEUE 0x2000

struct config {
	__u64 cgroup_id; /* sockets of this cgroup and those below; 0: by process */
	__u32 netns;
	__u32 pad;
};

struct slot {
	__u64 skb;
	__u64 at_ns; /* with IN_DRIVER until it is with the protocols */
};

struct counts {
	__u64 packets;
	__u64 dropped;
	__u64 processes_missed;
	__u64 driver[BUCKETS];
	__u64 socket[BUCKETS];
};

/* Which sockets count, where processes are wanted: those that a wanted process has read. */
struct owner {
	__u32 is_wanted;
	__u32 lost; /* packets without a time before that was known */
};

/* Entries: nanoseconds (48 bits), then the bucket of the time since the driver (16). 0: none. */
struct datagrams {
	struct owner owner;
	__u32 announced;
	__u32 has_begun;
	__u32 behind_count;
	__u32 ahead_count;
	__u32 pads[10];
	/* Another CPU's cache line: the reader's. */
	__u32 read;
	__u32 pads_read[15];
	__u64 entries[DATAGRAMS_MAX];
};

struct segment {
	__u64 entry;
	__u32 end; /* sequence number after it */
	__u32 pad;
};

struct stream {
	__u64 driver_ns; /* of the segment that TCP handles now; 0: unknown */
	struct owner owner;
	__u32 announced;
	__u32 end; /* of the newest segment */
	__u32 read;
	__u32 pad;
	struct segment segments[SEGMENTS_MAX];
};

const volatile struct config config = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << SLOTS_BITS);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

/* Arrival of the buffer that this CPU gave to the protocols last. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lately SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct datagrams);
} udp_sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct stream);
} tcp_sockets SEC(".maps");

/* By thread group. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} processes SEC(".maps");

/* 32 buckets to a power of two. Global, so that the verifier checks it once and not for each caller. */
__noinline __u32 bucket_of(__u64 ns)
{
	__u64 rest = ns >> 5;
	__u32 power = 0, bucket;

	if (!rest)
		return ns;
	for (__u32 half = 32; half; half /= 2) {
		if (rest >> half) {
			rest >>= half;
			power += half;
		}
	}
	bucket = power * 32 + (__u32)(ns >> power);
	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

static __always_inline struct counts *counts_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counts, &zero);
}

/* Atomic: a softirq may interrupt a reader on the same CPU. */
static __always_inline void drop(__u32 number)
{
	struct counts *counted = counts_here();

	if (counted)
		__sync_fetch_and_add(&counted->dropped, number);
}

static __always_inline int is_owned(struct owner *owner)
{
	return config.cgroup_id || owner->is_wanted;
}

/* As above, for a reader: the first wanted one decides. */
static __always_inline int is_counted(struct owner *owner)
{
	__u32 tgid;

	if (is_owned(owner))
		return 1;
	tgid = bpf_get_current_pid_tgid() >> 32;
	if (!bpf_map_lookup_elem(&processes, &tgid))
		return 0;
	owner->is_wanted = 1;
	drop(__sync_lock_test_and_set(&owner->lost, 0));
	return 1;
}

/* A packet has no time. */
static __always_inline void lose(struct owner *owner)
{
	if (is_owned(owner))
		drop(1);
	else
		__sync_fetch_and_add(&owner->lost, 1);
}

/* Counts a packet that was read now, or, with `is_early`, before it was announced. Global: see above. */
__noinline int count(__u64 entry, int is_early)
{
	__u64 ns = is_early ? 0 : (bpf_ktime_get_ns() - (entry >> 16)) & 0xffffffffffffULL;
	__u32 driver = entry & 0xffff, socket = bucket_of(ns);
	struct counts *counted = counts_here();

	if (!counted)
		return 0;
	__sync_fetch_and_add(&counted->packets, 1);
	/* The compiler must not compute the address before the check. */
	barrier_var(driver);
	barrier_var(socket);
	if (driver < BUCKETS)
		__sync_fetch_and_add(&counted->driver[driver], 1);
	else
		__sync_fetch_and_add(&counted->dropped, 1);
	if (socket < BUCKETS)
		__sync_fetch_and_add(&counted->socket[socket], 1);
	return 0;
}

static __always_inline __u64 entry_of(__u64 driver_ns, __u64 now_ns)
{
	__u64 bucket = driver_ns ? bucket_of(now_ns - driver_ns) : UNKNOWN;

	return now_ns << 16 | bucket;
}

/* True in the namespace. */
static __always_inline int is_here(struct sk_buff *skb)
{
	struct net_device *dev = skb->dev;

	return dev && dev->nd_net.net->ns.inum == config.netns;
}

static __always_inline struct slot *slot_of(__u64 skb)
{
	/* Fibonacci hashing; buffers lie 256 bytes apart. */
	__u32 at = ((__u32)skb >> 8) * 0x9e3779b1u >> (32 - SLOTS_BITS);

	return bpf_map_lookup_elem(&slots, &at);
}

/* Returns the arrival of a buffer and forgets it; 0 if unknown. */
static __always_inline __u64 take_arrival(__u64 skb)
{
	struct slot *slot = slot_of(skb);

	if (!slot || slot->skb != skb)
		return 0;
	slot->skb = 0;
	return slot->at_ns & ~IN_DRIVER;
}

/* As above, of the newest buffer in a socket's queue. */
static __always_inline __u64 take_newest_arrival(struct sock *sk)
{
	__u64 newest = 0;

	/* A number, not a pointer: the verifier allows no arithmetic with one. */
	bpf_core_read(&newest, sizeof(newest), &sk->sk_receive_queue.prev);
	return take_arrival(newest);
}

/* From here on a buffer is with the stack. One that comes again came out of a tunnel. */
static __always_inline int arrive(struct sk_buff *skb)
{
	struct slot *slot;

	if (!is_here(skb))
		return 0;
	slot = slot_of((__u64)skb);
	if (slot) {
		slot->at_ns = bpf_ktime_get_ns() | IN_DRIVER;
		slot->skb = (__u64)skb;
	}
	return 0;
}

SEC("tp_btf/netif_rx")
int BPF_PROG(in_backlog, struct sk_buff *skb)
{
	return arrive(skb);
}

SEC("tp_btf/napi_gro_receive_entry")
int BPF_PROG(in_gro, struct sk_buff *skb)
{
	return arrive(skb);
}

SEC("tp_btf/napi_gro_frags_entry")
int BPF_PROG(in_gro_frags, struct sk_buff *skb)
{
	return arrive(skb);
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(received, struct sk_buff *skb)
{
	struct slot *slot;
	__u32 zero = 0;
	__u64 *last;

	if (!is_here(skb))
		return 0;
	slot = slot_of((__u64)skb);
	if (!slot)
		return 0;
	/* A driver without the points above, or an interface on top of another. */
	if (slot->skb == (__u64)skb && slot->at_ns & IN_DRIVER)
		slot->at_ns &= ~IN_DRIVER;
	else
		slot->at_ns = bpf_ktime_get_ns();
	slot->skb = (__u64)skb;
	last = bpf_map_lookup_elem(&lately, &zero);
	if (last)
		*last = slot->at_ns;
	return 0;
}

static __always_inline int is_wanted(struct sock *sk)
{
	if (sk->__sk_common.skc_net.net->ns.inum != config.netns)
		return 0;
	/* The reader decides. */
	if (!config.cgroup_id)
		return 1;
	return is_of_cgroup(sk, config.cgroup_id);
}

/*
 * Number and queue differ for good if a datagram left the queue unread (a wrong
 * checksum, an unmapped buffer): without a correction each later datagram would get
 * the time of another. Readers between the queue and the tracepoint make them
 * differ for a moment only.
 */
static __always_inline void correct(struct datagrams *waiting, __u32 number, __u32 queued)
{
	__s32 ahead = waiting->read - number;
	__u32 lost;

	if (ahead >= 0)
		waiting->behind_count = 0;
	else if (queued == 1)
		waiting->behind_count++;
	if (ahead <= 0 || !queued)
		waiting->ahead_count = 0;
	else
		waiting->ahead_count++;
	if (waiting->behind_count >= OBSERVATIONS) {
		waiting->behind_count = 0;
		lost = __sync_fetch_and_add(&waiting->read, 1);
		if (__sync_lock_test_and_set(&waiting->entries[lost & (DATAGRAMS_MAX - 1)], 0))
			lose(&waiting->owner);
	}
	if (waiting->ahead_count >= OBSERVATIONS) {
		waiting->ahead_count = 0;
		__sync_fetch_and_add(&waiting->announced, 1);
	}
}

static __always_inline void announce_datagram(struct sock *sk)
{
	struct datagrams *waiting = bpf_sk_storage_get(&udp_sockets, sk, 0, 0);
	__u32 number, queued, zero = 0;
	__u64 now_ns, driver_ns, *last, *place;

	if (!waiting) {
		if (!is_wanted(sk))
			return;
		waiting = bpf_sk_storage_get(&udp_sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
		if (!waiting) {
			drop(1);
			return;
		}
	}
	now_ns = bpf_ktime_get_ns();
	/* The tracepoint does not pass the buffer: it is the last one in the queue. */
	driver_ns = take_newest_arrival(sk);
	if (!driver_ns) {
		/*
		 * A part of a GSO packet, or read already: the arrival of this CPU's current
		 * buffer, which for a batch out of GRO is that of its last.
		 */
		last = bpf_map_lookup_elem(&lately, &zero);
		driver_ns = last ? *last : 0;
	}
	queued = datagrams_queued(sk);
	if (!waiting->has_begun) {
		waiting->has_begun = 1;
		/* Those in the queue before have no entry. One that was read already has a number. */
		if (queued > 1)
			__sync_fetch_and_add(&waiting->announced, queued - 1);
		else if (!queued)
			__sync_fetch_and_add(&waiting->read, 1);
	}
	number = __sync_fetch_and_add(&waiting->announced, 1);
	if ((__s32)(number - waiting->read) >= DATAGRAMS_MAX) {
		lose(&waiting->owner);
		return;
	}
	place = &waiting->entries[number & (DATAGRAMS_MAX - 1)];
	__sync_lock_test_and_set(place, entry_of(driver_ns, now_ns));
	/* Read before it was announced. Only one side finds the entry. */
	if ((__s32)(waiting->read - number) > 0 && __sync_lock_test_and_set(place, 0) &&
	    is_owned(&waiting->owner))
		count(entry_of(driver_ns, now_ns), 1);
	correct(waiting, number, queued);
}

static __always_inline void read_datagram(struct sock *sk)
{
	struct datagrams *waiting = bpf_sk_storage_get(&udp_sockets, sk, 0, 0);
	__u32 number;
	__u64 entry;
	int counted;

	if (!waiting)
		return;
	/* Before the number: see `announce_datagram`. */
	counted = is_counted(&waiting->owner);
	number = __sync_fetch_and_add(&waiting->read, 1);
	entry = __sync_lock_test_and_set(&waiting->entries[number & (DATAGRAMS_MAX - 1)], 0);
	if (entry && counted)
		count(entry, 0);
}

/* Before TCP handles a segment: names both socket and buffer. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(established, struct sock *sk, struct sk_buff *skb)
{
	struct stream *stream = bpf_sk_storage_get(&tcp_sockets, sk, 0, 0);
	struct tcp_sock *tcp;

	if (!stream) {
		if (!is_wanted(sk))
			return 0;
		tcp = bpf_skc_to_tcp_sock(sk);
		if (!tcp)
			return 0;
		stream = bpf_sk_storage_get(&tcp_sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
		if (!stream)
			return 0;
		stream->end = tcp->rcv_nxt;
	}
	/* Data outside of this tracepoint (half-closed) must not get the time of an acknowledgement. */
	stream->driver_ns = tcp_carries(skb) ? take_arrival((__u64)skb) : 0;
	return 0;
}

static __always_inline void announce_segment(struct sock *sk)
{
	struct stream *stream;
	struct segment *segment;
	struct tcp_sock *tcp;
	__u64 now_ns, driver_ns;
	__u32 end, since, number;

	/* A new connection. */
	if (sk->__sk_common.skc_state == TCP_LISTEN)
		return;
	stream = bpf_sk_storage_get(&tcp_sockets, sk, 0, 0);
	if (!stream && !is_wanted(sk))
		return;
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return;
	end = tcp->rcv_nxt;
	if (!stream) {
		/* The first segment came with the end of the handshake. */
		stream = bpf_sk_storage_get(&tcp_sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
		if (!stream) {
			drop(1);
			return;
		}
		stream->end = tcp->copied_seq;
	}
	now_ns = bpf_ktime_get_ns();
	driver_ns = stream->driver_ns;
	if (!driver_ns)
		driver_ns = take_newest_arrival(sk);
	stream->driver_ns = 0;
	since = end - stream->end;
	stream->end = end;
	/* Nothing new, or only the end of the stream. */
	if (!since || (since == 1 && sk->sk_shutdown & RCV_SHUTDOWN))
		return;
	number = stream->announced;
	segment = &stream->segments[number & (SEGMENTS_MAX - 1)];
	if (number - stream->read >= SEGMENTS_MAX) {
		/* The oldest was taken past the tracepoint (splice). */
		if ((__s32)(tcp->copied_seq - segment->end) < 0 ||
		    !__sync_lock_test_and_set(&segment->entry, 0)) {
			lose(&stream->owner);
			return;
		}
		lose(&stream->owner);
		stream->read++;
	}
	segment->end = end;
	__sync_lock_test_and_set(&segment->entry, entry_of(driver_ns, now_ns));
	__sync_fetch_and_add(&stream->announced, 1);
}

static __always_inline void read_stream(struct sock *sk, int bytes)
{
	struct stream *stream = bpf_sk_storage_get(&tcp_sockets, sk, 0, 0);
	struct segment *segment;
	struct tcp_sock *tcp;
	__u32 copied, number;
	__u64 entry;
	int counted;

	if (!stream)
		return;
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return;
	/* End of the stream: nothing was read. */
	counted = bytes && is_counted(&stream->owner);
	copied = tcp->copied_seq;
	for (int i = 0; i < SEGMENTS_MAX; i++) {
		number = stream->read;
		if (number == stream->announced)
			break;
		segment = &stream->segments[number & (SEGMENTS_MAX - 1)];
		if ((__s32)(copied - segment->end) < 0)
			break;
		entry = __sync_lock_test_and_set(&segment->entry, 0);
		stream->read = number + 1;
		if (entry && counted)
			count(entry, 0);
	}
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(ready, struct sock *sk)
{
	if (sk->sk_protocol == PROTOCOL_UDP)
		announce_datagram(sk);
	else if (sk->sk_protocol == PROTOCOL_TCP)
		announce_segment(sk);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(read_length, struct sock *sk, int bytes, int flags)
{
	if (bytes < 0 || flags & (MSG_PEEK | MSG_ERRQUEUE))
		return 0;
	if (sk->sk_protocol == PROTOCOL_UDP)
		read_datagram(sk);
	else if (sk->sk_protocol == PROTOCOL_TCP)
		read_stream(sk, bytes);
	return 0;
}

/* Children of wanted processes are wanted. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(forked, struct task_struct *parent, struct task_struct *child)
{
	__u32 of = parent->tgid, tgid = child->tgid, one = 1;
	struct counts *counted;

	if (of == tgid || !bpf_map_lookup_elem(&processes, &of))
		return 0;
	if (!bpf_map_update_elem(&processes, &tgid, &one, BPF_ANY))
		return 0;
	counted = counts_here();
	if (counted)
		__sync_fetch_and_add(&counted->processes_missed, 1);
	return 0;
}

/* Empty program: measures the cost of counting runs. */
SEC("tp_btf/netif_receive_skb")
int BPF_PROG(empty)
{
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
