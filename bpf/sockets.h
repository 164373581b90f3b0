/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What the filters in front of AF_XDP sockets share: the sockets by queue, what
 * is counted, and the way to a socket.
 */
#ifndef WIREPATH_SOCKETS_H
#define WIREPATH_SOCKETS_H

#include "frame.h"

/* Mirrors sys::bpf::FilterCounts. */
struct counts {
	__u64 redirected;
	__u64 passed;
	__u64 map_missed;
};

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

/* What lies behind the Ethernet header and at most one VLAN tag, and its type
 * (network order); 0 when the frame ends before.
 */
static __always_inline void *ethernet_payload(void *at, void *end, __be16 *type)
{
	struct ethernet *eth = at;

	at = eth + 1;
	if (at > end)
		return 0;
	*type = eth->type;
	if (*type == bpf_htons(TYPE_VLAN) || *type == bpf_htons(TYPE_QINQ)) {
		struct vlan *vlan = at;

		at = vlan + 1;
		if (at > end)
			return 0;
		*type = vlan->type;
	}
	return at;
}

/* Gives a frame that is ours to the socket of its queue, any other to the stack. */
static __always_inline int give(struct xdp_md *ctx, int is_ours)
{
	struct counts *counted;
	__u32 zero = 0;
	int action;

	counted = bpf_map_lookup_elem(&counts, &zero);
	if (!counted)
		return XDP_PASS;
	if (!is_ours) {
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

#endif
