/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Gives the probe's frames to the AF_XDP socket of their queue, and everything
 * else to the stack.
 *
 * One section for all loads: the loader sets BPF_F_XDP_HAS_FRAGS where jumbo
 * frames are asked for; headers always lie in the first buffer.
 */
#include "frame.h"

/* Mirrors sys::bpf::filter::Config. */
struct config {
	__u16 udp_port; /* host order; 0 redirects no UDP */
	__u8 arp_icmp;
	__u8 reserved;
};

/* Mirrors sys::bpf::FilterCounts. */
struct counts {
	__u64 redirected;
	__u64 passed;
	__u64 map_missed;
};

const volatile struct config config = {};

/* By queue index; the loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* Per CPU: XDP runs with softirqs off, so plain additions are exact. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

static __always_inline int is_ours(void *at, void *end)
{
	struct ethernet *eth = at;
	struct ipv4 *ip;
	struct udp *udp;
	__be16 type;
	__u32 bytes;

	at = eth + 1;
	if (at > end)
		return 0;
	type = eth->type;
	if (type == bpf_htons(TYPE_VLAN) || type == bpf_htons(TYPE_QINQ)) {
		struct vlan *vlan = at;

		at = vlan + 1;
		if (at > end)
			return 0;
		type = vlan->type;
	}
	if (type == bpf_htons(TYPE_ARP))
		return config.arp_icmp;
	if (type != bpf_htons(TYPE_IPV4))
		return 0;

	ip = at;
	if ((void *)(ip + 1) > end)
		return 0;
	if (ip->fragment & bpf_htons(FRAGMENT_MASK))
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
	struct counts *counted;
	__u32 zero = 0;
	int action;

	counted = bpf_map_lookup_elem(&counts, &zero);
	if (!counted)
		return XDP_PASS;
	if (!is_ours(start, end)) {
		counted->passed++;
		return XDP_PASS;
	}
	/* Looks the slot up: XDP_PASS comes back when no socket sits there. */
	action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
	if (action == XDP_REDIRECT)
		counted->redirected++;
	else
		counted->map_missed++;
	return action;
}

/* GPL-compatible name for the kernel's check; see the licence line above. */
char LICENSE[] SEC("license") = "GPL";
