/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Redirects the datagrams of market-data groups to the AF_XDP socket of their queue, each with its
 * arrival time in front, and passes all others to the stack.
 *
 * The kernel does not stamp frames that bypass the stack. CLOCK_TAI differs from the clock of its
 * stamps, CLOCK_REALTIME, by whole seconds (bpf_ktime_get_tai_ns: Linux 6.1).
 */
#include "sockets.h"

#define GROUPS_MAX 2

struct config {
	__be32 addresses[GROUPS_MAX];
	__be32 sources[GROUPS_MAX]; /* 0 for any sender */
	__u16 ports[GROUPS_MAX]; /* host order */
	__u32 group_count;
};

const volatile struct config config = {};

/* Redirected datagrams of each group. Per CPU, as `counts`. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GROUPS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} by_group SEC(".maps");

/* Index of the group of a frame; GROUPS_MAX if it is of none. */
static __always_inline __u32 group_of(void *at, void *end)
{
	struct ipv4 *ip;
	struct udp *udp;
	__be16 type;
	__u32 bytes, i;

	at = ethernet_payload(at, end, &type);
	if (!at || type != bpf_htons(TYPE_IPV4))
		return GROUPS_MAX;
	ip = at;
	if ((void *)(ip + 1) > end)
		return GROUPS_MAX;
	bytes = ipv4_header_bytes(ip);
	if (!bytes || ip->protocol != PROTOCOL_UDP || ip->fragment & bpf_htons(FRAGMENT_MASK))
		return GROUPS_MAX;
	udp = at + bytes;
	if ((void *)(udp + 1) > end)
		return GROUPS_MAX;
#pragma unroll
	for (i = 0; i < GROUPS_MAX; i++) {
		if (i < config.group_count && config.addresses[i] == ip->destination &&
		    udp->destination == bpf_htons(config.ports[i]) &&
		    (!config.sources[i] || config.sources[i] == ip->source))
			return i;
	}
	return GROUPS_MAX;
}

/* Without room in front of the frame there is no stamp; the reader clears each, so none is stale. */
static __always_inline void stamp(struct xdp_md *ctx)
{
	__u64 *at;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*at)))
		return;
	at = (void *)(long)ctx->data_meta;
	if ((void *)(at + 1) > (void *)(long)ctx->data)
		return;
	*at = bpf_ktime_get_tai_ns();
}

SEC("xdp")
int feed(struct xdp_md *ctx)
{
	__u32 group = group_of((void *)(long)ctx->data, (void *)(long)ctx->data_end);
	__u64 *counted;
	int action;

	if (group >= GROUPS_MAX)
		return give(ctx, 0);
	stamp(ctx);
	action = give(ctx, 1);
	counted = bpf_map_lookup_elem(&by_group, &group);
	if (counted && action == XDP_REDIRECT)
		(*counted)++;
	return action;
}

/* GPL-compatible name for the kernel's check; see the licence line above. */
char LICENSE[] SEC("license") = "GPL";
