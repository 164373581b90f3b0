/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The probe's filter, bound to a device, with the hints of its driver in front of each frame. */
#include "probe.h"

SEC("xdp")
int probe_hinted(struct xdp_md *ctx)
{
	enum tag tag = tag_of_frame(ctx);
	int is_given = is_probe(ctx, tag);

	if (is_given)
		wirepath_xdp_put_metadata(ctx, config.metadata_key);
	return give_frame(ctx, tag, is_given);
}

/* GPL-compatible name for the kernel's check; see the licence line above. */
char LICENSE[] SEC("license") = "GPL";
