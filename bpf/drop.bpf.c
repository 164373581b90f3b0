/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Counts frames and drops them: the cheapest receiver. */
#include "frame.h"

/* Longest beginning of a frame that is compared, in words. */
#define HEAD_WORDS 8

struct config {
	/* Two versions of the bytes that frames begin with, and the bits of them that count. */
	__u64 heads[2][HEAD_WORDS];
	__u64 head_mask[HEAD_WORDS];
	__u32 check_heads;
	__u32 sequence_offset_bytes;
	__u32 check_sequence;
	/* Required value of the four bytes before the number; 0 for any. */
	__be32 tag;
	__u32 stamp_offset_bytes; /* 0: frames carry no time */
	__u32 flow_offset_bytes; /* of the flow's number, one byte; 0: one flow */
};

struct counts {
	__u64 frames;
	__u64 bytes;
	__u64 sequence_breaks;
	__u64 reordered;
	__u64 duplicated;
	__u64 strays;
	__u64 flows;
	__u64 malformed;
};

const volatile struct config config = {};

/* Of the one checked queue, on any CPU: the number after the last seen, and the number after the
* highest seen of each flow (NextExp of RFC 4737). Flows share the numbers.
*/
__u32 next_sequence = 0;
__u32 next_expected[256] = {};

/* Recent numbers, each plus one at its index: separates a late frame from a duplicate. A frame
* later than this table counts as late.
*/
#define SEEN_COUNT (1 << 16)
__u32 lately_seen[SEEN_COUNT] = {};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

/* Histogram of delays, 16 buckets for each power of two; read by
 * sys::bpf::DelayCounts.
 */
#define DELAY_BUCKETS 704

struct delays {
	__u64 frames[DELAY_BUCKETS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct delays);
} delays SEC(".maps");

static __always_inline void count_delay(__u64 delay_ns)
{
	struct delays *counted;
	__u32 zero = 0, power = 0, bucket;
	__u64 rest = delay_ns >> 4;

	/* Length of `rest` in bits; BPF has no instruction for it. */
	for (__u32 half = 32; half; half /= 2) {
		if (rest >> half) {
			rest >>= half;
			power += half;
		}
	}
	power += rest;
	/* One bucket for each value below 32 ns. */
	bucket = power ? power * 16 + (__u32)((delay_ns >> (power - 1)) & 15) : (__u32)delay_ns;
	counted = bpf_map_lookup_elem(&delays, &zero);
	if (counted && bucket < DELAY_BUCKETS)
		counted->frames[bucket]++;
}

static __always_inline __u8 flow_of(void *start, void *end)
{
	__u8 *flow = start + config.flow_offset_bytes;

	return config.flow_offset_bytes && (void *)(flow + 1) <= end ? *flow : 0;
}

static __always_inline int begins_with(const __u64 *frame, int version)
{
	__u64 other = 0;

	for (int word = 0; word < HEAD_WORDS; word++)
		other |= (frame[word] ^ config.heads[version][word]) & config.head_mask[word];
	return !other;
}

static __always_inline void count(void *start, void *end, __u64 bytes)
{
	struct counts *counted;
	__u32 zero = 0;

	counted = bpf_map_lookup_elem(&counts, &zero);
	if (!counted)
		return;
	if (config.check_sequence && config.tag) {
		__be32 *tag = start + config.sequence_offset_bytes - sizeof(*tag);

		if ((void *)tag < start || (void *)(tag + 1) > end || *tag != config.tag) {
			counted->strays++;
			return;
		}
	}
	counted->frames++;
	counted->bytes += bytes;
	if (config.check_heads &&
	    (start + HEAD_WORDS * sizeof(__u64) > end ||
	     (!begins_with(start, 0) && !begins_with(start, 1))))
		counted->malformed++;
	if (config.stamp_offset_bytes) {
		__be64 *stamp = start + config.stamp_offset_bytes;

		if ((void *)(stamp + 1) <= end) {
			__u64 now_ns = bpf_ktime_get_ns(), then_ns = bpf_be64_to_cpu(*stamp);

			count_delay(now_ns > then_ns ? now_ns - then_ns : 0);
		}
	}
	if (config.check_sequence) {
		__be32 *sequence = start + config.sequence_offset_bytes;

		if ((void *)(sequence + 1) > end) {
			counted->sequence_breaks++;
		} else {
			__u32 seen = bpf_ntohl(*sequence);

			__u32 *place = &lately_seen[seen & (SEEN_COUNT - 1)];
			__u32 *expected = &next_expected[flow_of(start, end)];

			if (!*expected)
				counted->flows++;
			if (seen != next_sequence)
				counted->sequence_breaks++;
			next_sequence = seen + 1;
			if (*place == seen + 1)
				counted->duplicated++;
			else if ((__s32)(seen - *expected) < 0)
				counted->reordered++;
			else
				*expected = seen + 1;
			*place = seen + 1;
		}
	}
}

SEC("xdp")
int drop(struct xdp_md *ctx)
{
	/* Fragments included. */
	count((void *)(long)ctx->data, (void *)(long)ctx->data_end, bpf_xdp_get_buff_len(ctx));
	return XDP_DROP;
}

/* The same for socket buffers: the numbers are in the linear part. */
SEC("tcx/ingress")
int drop_skb(struct __sk_buff *skb)
{
	count((void *)(long)skb->data, (void *)(long)skb->data_end, skb->len);
	return TC_DROP;
}

char LICENSE[] SEC("license") = "GPL";
