/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Redirects frames to the AF_XDP socket of their queue: all frames on the plain side, tunnel frames
 * on the tunnel side. Passes all others to the stack.
 */
#include "sockets.h"

#define TYPE_IPV6 0x86dd
#define PROTOCOL_GRE 47

struct config {
	__u16 vxlan_port; /* host order; 0 redirects no UDP */
	__u8 all;
	__u8 gre;
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

static __always_inline int is_tunnel(void *at, void *end)
{
	struct udp *udp;
	__be16 type;
	__u8 protocol;

	at = ethernet_payload(at, end, &type);
	if (!at)
		return 0;
	if (type == bpf_htons(TYPE_IPV4)) {
		struct ipv4 *ip = at;
		__u32 bytes;

		if ((void *)(ip + 1) > end)
			return 0;
		if (ip->fragment & bpf_htons(FRAGMENT_MASK))
			return 0;
		bytes = ipv4_header_bytes(ip);
		if (!bytes)
			return 0;
		protocol = ip->protocol;
		at += bytes;
	} else if (type == bpf_htons(TYPE_IPV6)) {
		struct ipv6 *ip = at;

		if ((void *)(ip + 1) > end)
			return 0;
		protocol = ip->next;
		at = ip + 1;
	} else {
		return 0;
	}
	if (protocol == PROTOCOL_GRE)
		return config.gre;
	if (protocol != PROTOCOL_UDP)
		return 0;
	udp = at;
	if ((void *)(udp + 1) > end)
		return 0;
	return config.vxlan_port && udp->destination == bpf_htons(config.vxlan_port);
}

SEC("xdp")
int tunnel(struct xdp_md *ctx)
{
	void *start = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;

	return give(ctx, config.all || is_tunnel(start, end));
}

/* GPL-compatible name for the kernel's check; see the licence line above. */
char LICENSE[] SEC("license") = "GPL";
