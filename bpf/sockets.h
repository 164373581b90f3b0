/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Shared by the filters in front of AF_XDP sockets: the sockets by queue, the counters, and the
 * redirection.
 */
#ifndef WIREPATH_SOCKETS_H
#define WIREPATH_SOCKETS_H

#include "ipv6.h"

struct counts {
	__u64 redirected;
	__u64 passed;
	__u64 map_missed;
	__u64 untagged; /* of the redirected ones: came without the tag of the probe's VLAN */
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

static __always_inline int is_vlan(__be16 type)
{
	return type == bpf_htons(TYPE_VLAN) || type == bpf_htons(TYPE_QINQ);
}

/* Returns the payload behind the Ethernet header and at most one VLAN tag, and its type (network
* order); 0 if the frame ends before.
*/
static __always_inline void *ethernet_payload(void *at, void *end, __be16 *type)
{
	struct ethernet *eth = at;

	at = eth + 1;
	if (at > end)
		return 0;
	*type = eth->type;
	if (is_vlan(*type)) {
		struct vlan *vlan = at;

		at = vlan + 1;
		if (at > end)
			return 0;
		*type = vlan->type;
	}
	return at;
}

/* Redirects a matching frame to the socket of its queue; passes any other to the stack. */
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
	/* Returns XDP_PASS if the queue has no socket. */
	action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
	if (action == XDP_REDIRECT)
		counted->redirected++;
	else
		counted->map_missed++;
	return action;
}

#endif
