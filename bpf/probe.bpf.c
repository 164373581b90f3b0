/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Redirects the probe's frames to the AF_XDP socket of their queue and passes all others to the
 * stack.
 *
 * One section for all loads: the loader sets BPF_F_XDP_HAS_FRAGS where jumbo
 * frames are asked for; headers always lie in the first buffer.
 */
#include "sockets.h"

#define ADDRESSES_MAX 16

struct config {
	__be32 addresses[ADDRESSES_MAX]; /* destinations */
	__u16 udp_port; /* host order; 0 redirects no UDP */
	__u8 address_count;
	__u8 arp_icmp;
};

const volatile struct config config = {};

/* Transit traffic and traffic to the host's other addresses are the stack's. */
static __always_inline int is_own(__be32 destination)
{
	int i;

#pragma unroll
	for (i = 0; i < ADDRESSES_MAX; i++) {
		if (i >= config.address_count)
			return 0;
		if (config.addresses[i] == destination)
			return 1;
	}
	return 0;
}

static __always_inline int is_ours(void *at, void *end)
{
	struct ipv4 *ip;
	struct udp *udp;
	__be16 type;
	__u32 bytes;

	at = ethernet_payload(at, end, &type);
	if (!at)
		return 0;
	if (type == bpf_htons(TYPE_ARP))
		return config.arp_icmp;
	if (type != bpf_htons(TYPE_IPV4))
		return 0;

	ip = at;
	if ((void *)(ip + 1) > end)
		return 0;
	if (ip->fragment & bpf_htons(FRAGMENT_MASK))
		return 0;
	if (!is_own(ip->destination))
		return 0;
	if (ip->protocol == PROTOCOL_ICMP)
		return config.arp_icmp;
	if (ip->protocol != PROTOCOL_UDP)
		return 0;
	bytes = ipv4_header_bytes(ip);
	if (!bytes)
		return 0;

	udp = at + bytes;
	if ((void *)(udp + 1) > end)
		return 0;
	return config.udp_port && udp->destination == bpf_htons(config.udp_port);
}

SEC("xdp")
int probe(struct xdp_md *ctx)
{
	void *start = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;

	return give(ctx, is_ours(start, end));
}

/* GPL-compatible name for the kernel's check; see the licence line above. */
char LICENSE[] SEC("license") = "GPL";
