/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Passes every frame. Its presence is the point: a veth takes redirected
 * frames only when its peer polls (NAPI), which an XDP program switches on.
 */
#include "frame.h"

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
