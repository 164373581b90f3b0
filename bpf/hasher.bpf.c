/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Sends each frame that an interface receives out of another, with a hash, as a driver sets it.
 * Receive packet steering at the other end of a wire chooses the CPU by it.
 */
#include "frame.h"

struct config {
	__u32 target_ifindex;
	__u32 constant; /* hash of every frame; 0: that of the frame's flow */
};

const volatile struct config config = {};

SEC("tcx/ingress")
int hasher(struct __sk_buff *skb)
{
	if (config.constant)
		bpf_set_hash(skb, config.constant);
	else
		bpf_get_hash_recalc(skb);
	return bpf_redirect(config.target_ifindex, 0);
}

char LICENSE[] SEC("license") = "GPL";
