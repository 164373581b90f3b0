/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Counts frames and drops them: the cheapest receiver there is. */
#include "frame.h"

/* Mirrors sys::bpf::drop::config. */
struct config {
	__u32 sequence_offset_bytes;
	__u32 check_sequence;
};

/* Mirrors sys::bpf::DropCounts. */
struct counts {
	__u64 frames;
	__u64 bytes;
	__u64 sequence_breaks;
};

const volatile struct config config = {};

/* Of the one queue whose sequence is checked, whichever CPU polls it. */
__u32 next_sequence = 0;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

SEC("xdp")
int drop(struct xdp_md *ctx)
{
	void *start = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct counts *counted;
	__u32 zero = 0;

	counted = bpf_map_lookup_elem(&counts, &zero);
	if (!counted)
		return XDP_DROP;
	counted->frames++;
	/* Fragments included. */
	counted->bytes += bpf_xdp_get_buff_len(ctx);
	if (config.check_sequence) {
		__be32 *sequence = start + config.sequence_offset_bytes;

		if ((void *)(sequence + 1) > end) {
			counted->sequence_breaks++;
		} else {
			__u32 seen = bpf_ntohl(*sequence);

			if (seen != next_sequence)
				counted->sequence_breaks++;
			next_sequence = seen + 1;
		}
	}
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "GPL";
