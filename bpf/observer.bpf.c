/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Counts frames by interface and CPU, distinct flows against distinct flow hashes, the
 * time of NET_RX softirqs, and timer samples of the CPUs. Tracepoints only, so it also
 * runs where functions may not be traced; `copies.bpf.c` is for those that may.
 */
#include "stack.h"
#include "samples.h"
#include "place.h"

#include <bpf/bpf_endian.h>

#define NET_RX_SOFTIRQ 3
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
/* More fragments, or an offset: the ports are not there. */
#define FRAGMENT_BITS 0x3fff
#define SEEN_MAX 32768

/* A distinct value; the order of `what` is that of sys::bpf::observer. */
enum what {
	FLOW_RECEIVED,
	HASH_RECEIVED,
	FLOW_SENT,
	HASH_SENT,
};

struct distinct {
	struct place place;
	__u32 what;
	__u32 pad;
	__u64 value;
};

/* Per CPU. */
struct frames {
	__u64 received;
	__u64 received_hashed; /* TCP and UDP with a hash over the ports */
	__u64 sent;
	__u64 sent_hashed;
};

struct softirq {
	__u64 begin_ns;
	__u64 runs;
	__u64 ns;
	__u64 unlisted; /* distinct values for which the table had no room */
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
/* Beside the fields of stack.h. */
struct sk_buff___flow {
	unsigned int len;
	unsigned int data_len;
	__u32 hash;
	__u8 l4_hash : 1;
	__u8 sw_hash : 1;
	__be16 protocol;
	unsigned char *data;
};
#pragma clang attribute pop

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct place);
	__type(value, struct frames);
} frames SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SEEN_MAX);
	__type(key, struct distinct);
	__type(value, __u32);
} distincts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct softirq);
} softirqs SEC(".maps");

static __always_inline struct softirq *softirq_of_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&softirqs, &zero);
}

static __always_inline __u64 mixed(__u64 sum, __u64 value)
{
	sum = (sum ^ value) * 0x9e3779b97f4a7c15ULL;
	return sum ^ sum >> 29;
}

/* A digest of addresses, protocol and ports; 0 if the frame is no TCP or UDP, or in fragments. */
static __always_inline __u64 flow_of(struct sk_buff___flow *skb, const unsigned char *ip)
{
	unsigned int linear = skb->len - skb->data_len;
	__u16 type = bpf_ntohs(skb->protocol);
	__u64 sum = 0, words[4] = {};
	__u32 ports = 0, header;
	__u16 fragment = 0;
	__u8 protocol = 0, first = 0;

	if (linear < 28 || (type != ETH_P_IP && type != ETH_P_IPV6))
		return 0;
	if (bpf_probe_read_kernel(&first, sizeof(first), ip))
		return 0;
	if (type == ETH_P_IP) {
		header = (first & 15) * 4;
		bpf_probe_read_kernel(&fragment, sizeof(fragment), ip + 6);
		bpf_probe_read_kernel(&protocol, sizeof(protocol), ip + 9);
		bpf_probe_read_kernel(words, 8, ip + 12);
		if (fragment & bpf_htons(FRAGMENT_BITS))
			return 0;
	} else {
		header = 40;
		bpf_probe_read_kernel(&protocol, sizeof(protocol), ip + 6);
		bpf_probe_read_kernel(words, 32, ip + 8);
	}
	if (protocol != PROTOCOL_TCP && protocol != PROTOCOL_UDP)
		return 0;
	bpf_probe_read_kernel(&ports, sizeof(ports), ip + header);
	sum = mixed(mixed(mixed(mixed(1, words[0]), words[1]), words[2]), words[3]);
	return mixed(sum, (__u64)protocol << 32 | ports) | 1;
}

static __always_inline void add_distinct(const struct place *place, __u32 what, __u64 value)
{
	struct distinct key = { .place = *place, .what = what, .value = value };
	struct softirq *here;
	__u32 one = 1;

	if (bpf_map_lookup_elem(&distincts, &key))
		return;
	/* EEXIST is -17: another CPU was faster. */
	if (bpf_map_update_elem(&distincts, &key, &one, BPF_NOEXIST) != -7)
		return;
	here = softirq_of_cpu();
	if (here)
		here->unlisted++;
}

static __always_inline struct frames *frames_at(const struct place *place)
{
	struct frames *found = bpf_map_lookup_elem(&frames, place);
	struct frames none = {};

	if (found)
		return found;
	bpf_map_update_elem(&frames, place, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&frames, place);
}

/* True if the hash is one over the ports: others of a card are computed again before they are used. */
static __always_inline int is_hashed(struct sk_buff___flow *skb)
{
	return skb->hash && (BPF_CORE_READ_BITFIELD(skb, l4_hash) || BPF_CORE_READ_BITFIELD(skb, sw_hash));
}

static __always_inline int count(struct sk_buff *skb, const unsigned char *ip, int is_sent)
{
	struct sk_buff___flow *frame = (void *)skb;
	struct place place = {};
	struct frames *here;
	__u64 flow;
	int hashed;

	if (!place_of(skb->dev, &place))
		return 0;
	here = frames_at(&place);
	if (!here)
		return 0;
	flow = flow_of(frame, ip);
	hashed = flow && is_hashed(frame);
	if (is_sent) {
		here->sent++;
		here->sent_hashed += hashed;
	} else {
		here->received++;
		here->received_hashed += hashed;
	}
	if (flow)
		add_distinct(&place, is_sent ? FLOW_SENT : FLOW_RECEIVED, flow);
	if (hashed)
		add_distinct(&place, is_sent ? HASH_SENT : HASH_RECEIVED, frame->hash);
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(received, struct sk_buff *skb)
{
	/* The protocols begin at the data; the offset is not set yet. */
	return count(skb, ((struct sk_buff___flow *)skb)->data, 0);
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(sent, struct sk_buff *skb)
{
	return count(skb, skb->head + skb->network_header, 1);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_begins, unsigned int vector)
{
	struct softirq *here = vector == NET_RX_SOFTIRQ ? softirq_of_cpu() : NULL;

	if (here)
		here->begin_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_ends, unsigned int vector)
{
	struct softirq *here = vector == NET_RX_SOFTIRQ ? softirq_of_cpu() : NULL;

	/* One that began before the program was attached has no begin. */
	if (here && here->begin_ns) {
		here->runs++;
		here->ns += bpf_ktime_get_ns() - here->begin_ns;
		here->begin_ns = 0;
	}
	return 0;
}

/* Measures the cost of counting runs. */
SEC("tp_btf/netif_receive_skb")
int BPF_PROG(empty)
{
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
