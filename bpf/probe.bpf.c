/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The probe's filter, which stamps frames by the kernel's clock if it has a key for metadata. */
#include "probe.h"

/* CLOCK_TAI, as for a feed: Linux 6.1. */
static __always_inline void put_stamp(struct xdp_md *ctx)
{
	struct wirepath_xdp_metadata found = {};

	found.stamp_ns = bpf_ktime_get_tai_ns();
	found.fields = WIREPATH_XDP_STAMP;
	wirepath_xdp_write_metadata(ctx, &found, config.metadata_key);
}

SEC("xdp")
int probe(struct xdp_md *ctx)
{
	enum tag tag = tag_of_frame(ctx);
	int is_given = is_probe(ctx, tag);

	if (is_given && config.metadata_key)
		put_stamp(ctx);
	return give_frame(ctx, tag, is_given);
}

/* GPL-compatible name for the kernel's check; see the licence line above. */
char LICENSE[] SEC("license") = "GPL";
