/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Forwards every frame that enters one interface out of another, and drops,
 * duplicates or swaps chosen UDP datagrams on the way.
 *
 * A swap is real: a datagram's bytes are kept and it is dropped; the next
 * datagram goes out first, as a clone, and is then overwritten with the kept
 * bytes and sent too. Frames leave on the other interface's egress, where no
 * filter sits, so nothing is filtered twice.
 */
#include "ipv6.h"
#include <bpf/bpf_core_read.h>

#define KEPT_BYTES_MAX 2048

/* A fault hits datagram n, counted from 0, when n % every == phase; 0: never. */
struct fault {
	__u32 every;
	__u32 phase;
};

struct config {
	struct fault drop;
	struct fault duplicate;
	struct fault reorder;
	__u32 udp_port; /* host order, either end; 0 takes every port */
};

struct counts {
	__u64 seen;
	__u64 dropped;
	__u64 duplicated;
	__u64 reordered;
	__u64 reorder_skipped;
	__u64 gso_passed;
	__u64 failed;
	__u64 held; /* 0 or 1 */
};

/* Properties that a frame must share with the held bytes to carry them. */
struct shape {
	__u32 udp_offset_bytes;
	__u32 vlan_tag;
};

enum slot_state { EMPTY, WRITING, FULL, READING };

struct slot {
	__u32 state; /* changed atomically: senders run on several CPUs */
	__u32 len_bytes;
	__u32 checksum_partial;
	struct shape shape;
	__u8 bytes[KEPT_BYTES_MAX];
};

const volatile struct config config = {};

/* Output interface; written before the program is attached. */
__u32 to_ifindex = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct sk_buff {
	__u8 ip_summed : 2;
} __attribute__((preserve_access_index));

/* Of enum skb checksum states: the sum is left to the hardware. */
#define CHECKSUM_PARTIAL 3

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

#define COUNT(field) __sync_fetch_and_add(&counted->field, 1)

static __always_inline int hits(const volatile struct fault *fault, __u64 n)
{
	return fault->every && n % fault->every == fault->phase;
}

static __always_inline int is_partial(struct __sk_buff *skb)
{
	struct sk_buff *kernel = bpf_cast_to_kern_ctx(skb);

	return BPF_CORE_READ_BITFIELD(kernel, ip_summed) == CHECKSUM_PARTIAL;
}

/* The tag that travels beside the frame, apart from 0 when there is none. */
static __always_inline __u32 vlan_tag(struct __sk_buff *skb)
{
	return skb->vlan_present ? skb->vlan_tci | 0x10000 : 0;
}

/* Offset of the UDP header of a whole datagram of the port; 0 for other frames. */
static __always_inline __u32 udp_offset(struct __sk_buff *skb)
{
	__u32 at = sizeof(struct ethernet);
	struct ethernet eth;
	struct vlan vlan;
	struct ipv4 ip;
	struct ipv6 v6;
	struct udp udp;
	__be16 type;
	__u32 bytes;

	/* By copy: AF_PACKET and AF_XDP leave headers outside the linear part. */
	if (bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)))
		return 0;
	type = eth.type;
	if (type == bpf_htons(TYPE_VLAN) || type == bpf_htons(TYPE_QINQ)) {
		if (bpf_skb_load_bytes(skb, at, &vlan, sizeof(vlan)))
			return 0;
		at += sizeof(vlan);
		type = vlan.type;
	}
	if (type == bpf_htons(TYPE_IPV6)) {
		if (bpf_skb_load_bytes(skb, at, &v6, sizeof(v6)) || v6.next != PROTOCOL_UDP)
			return 0;
		bytes = sizeof(v6);
	} else {
		if (type != bpf_htons(TYPE_IPV4) || bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
			return 0;
		bytes = ipv4_header_bytes(&ip);
		if (ip.protocol != PROTOCOL_UDP || ip.fragment & bpf_htons(FRAGMENT_MASK))
			return 0;
	}
	if (!bytes)
		return 0;
	at += bytes;
	if (bpf_skb_load_bytes(skb, at, &udp, sizeof(udp)))
		return 0;
	if (config.udp_port && udp.source != bpf_htons(config.udp_port) &&
	    udp.destination != bpf_htons(config.udp_port))
		return 0;
	return at;
}

/* Holds the frame's bytes; returns 1 on success. */
static __always_inline int keep(struct __sk_buff *skb, struct slot *slot, struct counts *counted,
				__u32 udp_at)
{
	__u32 len = skb->len;

	if (len == 0 || len > KEPT_BYTES_MAX)
		return 0;
	if (__sync_val_compare_and_swap(&slot->state, EMPTY, WRITING) != EMPTY)
		return 0;
	if (bpf_skb_load_bytes(skb, 0, slot->bytes, len)) {
		__sync_lock_test_and_set(&slot->state, EMPTY);
		return 0;
	}
	slot->len_bytes = len;
	slot->checksum_partial = is_partial(skb);
	slot->shape.udp_offset_bytes = udp_at;
	slot->shape.vlan_tag = vlan_tag(skb);
	__sync_lock_test_and_set(&slot->state, FULL);
	counted->held = 1;
	return 1;
}

static __always_inline __u32 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/*
 * The UDP checksum that the kept bytes must have in a frame whose checksum is
 * in another state than theirs was. Where hardware completes it: the sum of
 * the pseudo header. Where it must be right already: 0, for "none"
 * (RFC 768), because theirs was never completed.
 */
static __always_inline void fit_checksum(struct __sk_buff *skb, const struct slot *slot, int partial)
{
	__u32 udp_at = slot->shape.udp_offset_bytes;
	__be16 checksum = 0;
	struct udp udp;

	if (!!slot->checksum_partial == partial)
		return;
	if (partial) {
		struct ipv4 ip;
		__u32 ip_at;

		/* The UDP header follows the IP header, whose length is in its first byte. */
		ip_at = slot->bytes[12] == 0x81 || slot->bytes[12] == 0x88 ? 18 : 14;
		if (bpf_skb_load_bytes(skb, ip_at, &ip, sizeof(ip)) ||
		    bpf_skb_load_bytes(skb, udp_at, &udp, sizeof(udp)))
			return;
		checksum = fold((ip.source & 0xffff) + (ip.source >> 16) +
				(ip.destination & 0xffff) + (ip.destination >> 16) +
				bpf_htons(PROTOCOL_UDP) + udp.len_bytes);
	}
	bpf_skb_store_bytes(skb, udp_at + offsetof(struct udp, checksum), &checksum,
			    sizeof(checksum), 0);
}

/*
 * Sends this datagram, then replaces it with the kept one. Returns the verdict
 * on the frame: forwarded, as either of the two.
 */
static __always_inline int swap(struct __sk_buff *skb, struct slot *slot, struct counts *counted,
				__u32 udp_at)
{
	int forward = bpf_redirect(to_ifindex, 0);
	int partial = is_partial(skb);
	__u32 len;

	if (slot->shape.udp_offset_bytes != udp_at || slot->shape.vlan_tag != vlan_tag(skb))
		return forward;
	if (__sync_val_compare_and_swap(&slot->state, FULL, READING) != FULL)
		return forward;
	len = slot->len_bytes;
	if (len == 0 || len > KEPT_BYTES_MAX || bpf_clone_redirect(skb, to_ifindex, 0)) {
		__sync_lock_test_and_set(&slot->state, FULL);
		return forward;
	}
	counted->held = 0;
	if (bpf_skb_change_tail(skb, len, 0) || bpf_skb_store_bytes(skb, 0, slot->bytes, len, 0)) {
		/* This datagram has gone; the kept one is lost. */
		COUNT(failed);
		forward = TC_DROP;
	} else {
		fit_checksum(skb, slot, partial);
		COUNT(reordered);
	}
	__sync_lock_test_and_set(&slot->state, EMPTY);
	return forward;
}

SEC("tcx/ingress")
int faults(struct __sk_buff *skb)
{
	struct counts *counted;
	struct slot *slot;
	__u32 zero = 0;
	__u32 udp_at;
	__u64 n;

	counted = bpf_map_lookup_elem(&counts, &zero);
	slot = bpf_map_lookup_elem(&slots, &zero);
	if (!counted || !slot)
		return TC_DROP;
	udp_at = udp_offset(skb);
	if (!udp_at)
		return bpf_redirect(to_ifindex, 0);
	if (skb->gso_size) {
		/* Several datagrams in one: no single one can be hit. */
		COUNT(gso_passed);
		return bpf_redirect(to_ifindex, 0);
	}

	n = COUNT(seen);
	if (hits(&config.drop, n)) {
		COUNT(dropped);
		return TC_DROP;
	}
	if (slot->state == EMPTY && hits(&config.reorder, n)) {
		if (keep(skb, slot, counted, udp_at))
			return TC_DROP;
		COUNT(reorder_skipped);
	}
	if (hits(&config.duplicate, n) && !bpf_clone_redirect(skb, to_ifindex, 0))
		COUNT(duplicated);
	if (slot->state == FULL)
		return swap(skb, slot, counted, udp_at);
	return bpf_redirect(to_ifindex, 0);
}

char LICENSE[] SEC("license") = "GPL";
