/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Redirects every frame to the AF_XDP socket of its queue; passes those of a queue without one to the stack. */
#include "sockets.h"

SEC("xdp")
int all(struct xdp_md *ctx)
{
	return give(ctx, 1);
}

/* GPL-compatible name for the kernel's check; see the licence line above. */
char LICENSE[] SEC("license") = "GPL";
