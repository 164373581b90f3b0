/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Redirects the probe's frames to the AF_XDP socket of their queue and passes all others to the
 * stack.
 *
 * One section for all loads: the loader sets BPF_F_XDP_HAS_FRAGS where jumbo
 * frames are asked for; headers always lie in the first buffer.
 */
#ifndef WIREPATH_PROBE_H
#define WIREPATH_PROBE_H

#include "sockets.h"
#include "wirepath_xdp_metadata.h"

#define ADDRESSES_MAX 16

struct config {
	__be32 addresses[ADDRESSES_MAX][4]; /* destinations; IPv4 as ::ffff:a.b.c.d */
	__u16 udp_port; /* host order; 0 redirects no UDP */
	__u8 address_count;
	__u8 arp_icmp;
	__u16 vlan_tag; /* host order: priority and VLAN; 0 takes frames with any tag, or none */
	__u16 reserved;
	__u64 metadata_key; /* redirected frames get metadata with this key; 0: none */
};

const volatile struct config config = {};

/* Transit traffic and traffic to the host's other addresses are the stack's. */
static __always_inline int is_own(__be32 a, __be32 b, __be32 c, __be32 d)
{
	int i;

#pragma unroll
	for (i = 0; i < ADDRESSES_MAX; i++) {
		const volatile __be32 *own = config.addresses[i];

		if (i >= config.address_count)
			return 0;
		if (own[3] == d && own[2] == c && own[1] == b && own[0] == a)
			return 1;
	}
	return 0;
}

static __always_inline int is_own_port(struct udp *udp, void *end)
{
	if ((void *)(udp + 1) > end)
		return 0;
	return config.udp_port && udp->destination == bpf_htons(config.udp_port);
}

/* Fragments and packets with extension headers are the stack's, and so is ICMPv6, which resolves
 * neighbours.
 */
static __always_inline int is_ours_v6(struct ipv6 *ip, void *end)
{
	__be32 *to = ip->destination;

	if ((void *)(ip + 1) > end)
		return 0;
	if (bpf_ntohl(ip->first) >> 28 != 6)
		return 0;
	if (ip->next != PROTOCOL_UDP || !is_own(to[0], to[1], to[2], to[3]))
		return 0;
	return is_own_port((void *)(ip + 1), end);
}

static __always_inline int is_ours(void *at, void *end)
{
	struct ipv4 *ip;
	__be16 type;
	__u32 bytes;

	at = ethernet_payload(at, end, &type);
	if (!at)
		return 0;
	if (type == bpf_htons(TYPE_ARP))
		return config.arp_icmp;
	if (type == bpf_htons(TYPE_IPV6))
		return is_ours_v6(at, end);
	if (type != bpf_htons(TYPE_IPV4))
		return 0;

	ip = at;
	if ((void *)(ip + 1) > end)
		return 0;
	if (ip->fragment & bpf_htons(FRAGMENT_MASK))
		return 0;
	if (!is_own(0, 0, bpf_htonl(0xffff), ip->destination))
		return 0;
	if (ip->protocol == PROTOCOL_ICMP)
		return config.arp_icmp;
	if (ip->protocol != PROTOCOL_UDP)
		return 0;
	bytes = ipv4_header_bytes(ip);
	return bytes ? is_own_port(at + bytes, end) : 0;
}

enum tag { TAG_NONE, TAG_OURS, TAG_OTHER };

static __always_inline enum tag tag_of(struct ethernet *eth, void *end)
{
	struct vlan *vlan = (void *)(eth + 1);

	if ((void *)(vlan + 1) > end || !is_vlan(eth->type))
		return TAG_NONE;
	return (bpf_ntohs(vlan->tag) ^ config.vlan_tag) & VLAN_MASK ? TAG_OTHER : TAG_OURS;
}

/* Puts the tag in that a device took off (rx-vlan-offload), so that an echo leaves with it. A frame without room
 * for it stays as it is.
 */
static __always_inline void put_tag(struct xdp_md *ctx)
{
	struct ethernet *eth, macs;
	struct counts *counted;
	struct vlan *vlan;
	__u32 zero = 0;
	void *end;

	counted = bpf_map_lookup_elem(&counts, &zero);
	if (counted)
		counted->untagged++;
	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*vlan)))
		return;
	eth = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	vlan = (void *)(eth + 1);
	if ((void *)(vlan + 1) > end)
		return;
	__builtin_memcpy(&macs, (void *)eth + sizeof(*vlan), sizeof(macs));
	macs.type = bpf_htons(TYPE_VLAN);
	*eth = macs;
	/* The type behind the tag is where it was. */
	vlan->tag = bpf_htons(config.vlan_tag);
}

/* - tag: of the frame before. */
static __always_inline int give_frame(struct xdp_md *ctx, enum tag tag, int is_given)
{
	int action = give(ctx, is_given);

	if (action == XDP_REDIRECT && tag == TAG_NONE)
		put_tag(ctx);
	return action;
}

static __always_inline enum tag tag_of_frame(struct xdp_md *ctx)
{
	if (!config.vlan_tag)
		return TAG_OURS;
	return tag_of((void *)(long)ctx->data, (void *)(long)ctx->data_end);
}

static __always_inline int is_probe(struct xdp_md *ctx, enum tag tag)
{
	void *start = (void *)(long)ctx->data;

	return tag != TAG_OTHER && is_ours(start, (void *)(long)ctx->data_end);
}

#endif
