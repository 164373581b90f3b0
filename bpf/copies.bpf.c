/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Counts copies and clones of frames by the call chain that made them, and runs of
 * netfilter's hooks. Functions are traced, which locked-down kernels refuse.
 */
#include "place.h"

/* Header reads are shorter, and no copies of frames. */
#define BITS_BYTES_MIN 128
#define FAMILIES 16
#define HOOKS 8

/* The order is that of sys::bpf::observer. */
enum function {
	EXPAND_HEAD,
	COPY,
	COPY_EXPAND,
	COPY_HEAD,
	PULL_TAIL,
	COPY_BITS,
	CLONE,
};

struct copier {
	struct place place;
	__u32 function;
	__s32 chain; /* in `chains`; negative: not known */
};

struct copied {
	__u64 count;
	__u64 bytes;
	__u64 shared; /* of frames whose data another buffer has too: those are copied whatever room they have */
};

/* Per CPU. */
struct hook_runs {
	__u64 runs;
	__u64 functions;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
/* Beside the fields of stack.h. */
struct sk_buff___size {
	unsigned int len;
	unsigned int data_len;
	unsigned int tail; /* offset from `head` on machines of 64 bits */
};

struct nf_hook_state {
	__u8 hook;
	__u8 pf;
	struct net *net;
};

struct nf_hook_entries {
	__u16 num_hook_entries;
};
#pragma clang attribute pop

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 4096);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 32 * sizeof(__u64));
} chains SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct copier);
	__type(value, struct copied);
} copies SEC(".maps");

/* By family * HOOKS + hook. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FAMILIES * HOOKS);
	__type(key, __u32);
	__type(value, struct hook_runs);
} hooks SEC(".maps");

static __always_inline int add(void *ctx, struct sk_buff *skb, __u32 function, __u32 bytes)
{
	struct copier key = { .function = function };
	__u64 shared = BPF_CORE_READ_BITFIELD(skb, cloned);
	struct copied first = { .count = 1, .bytes = bytes, .shared = shared }, *found;

	if (!place_of(skb->dev, &key.place))
		return 0;
	key.chain = bpf_get_stackid(ctx, &chains, 0);
	if (key.chain < 0)
		key.chain = -1;
	found = bpf_map_lookup_elem(&copies, &key);
	if (found) {
		__sync_fetch_and_add(&found->count, 1);
		__sync_fetch_and_add(&found->bytes, bytes);
		__sync_fetch_and_add(&found->shared, shared);
	} else {
		bpf_map_update_elem(&copies, &key, &first, BPF_NOEXIST);
	}
	return 0;
}

#define SIZE(skb) ((struct sk_buff___size *)(skb))

/* All from the buffer's start to the end of the data is copied. */
SEC("fentry/pskb_expand_head")
int BPF_PROG(expand_head, struct sk_buff *skb)
{
	return add(ctx, skb, EXPAND_HEAD, SIZE(skb)->tail);
}

SEC("fentry/skb_copy")
int BPF_PROG(copy, struct sk_buff *skb)
{
	return add(ctx, skb, COPY, SIZE(skb)->len);
}

SEC("fentry/skb_copy_expand")
int BPF_PROG(copy_expand, struct sk_buff *skb)
{
	return add(ctx, skb, COPY_EXPAND, SIZE(skb)->len);
}

SEC("fentry/__pskb_copy_fclone")
int BPF_PROG(copy_head, struct sk_buff *skb)
{
	return add(ctx, skb, COPY_HEAD, SIZE(skb)->len - SIZE(skb)->data_len);
}

/* Also linearises. */
SEC("fentry/__pskb_pull_tail")
int BPF_PROG(pull_tail, struct sk_buff *skb, int delta)
{
	return add(ctx, skb, PULL_TAIL, delta);
}

SEC("fentry/skb_copy_bits")
int BPF_PROG(copy_bits, struct sk_buff *skb, int offset, void *to, int len)
{
	return len < BITS_BYTES_MIN ? 0 : add(ctx, skb, COPY_BITS, len);
}

SEC("fentry/skb_clone")
int BPF_PROG(clone, struct sk_buff *skb)
{
	return add(ctx, skb, CLONE, 0);
}

SEC("fentry/nf_hook_slow")
int BPF_PROG(hook, struct sk_buff *skb, struct nf_hook_state *state, struct nf_hook_entries *entries)
{
	__u32 at = state->pf * HOOKS + state->hook;
	struct hook_runs *here;

	if (!is_counting || (config.netns && state->net->ns.inum != config.netns))
		return 0;
	here = bpf_map_lookup_elem(&hooks, &at);
	if (here) {
		here->runs++;
		here->functions += entries->num_hook_entries;
	}
	return 0;
}

/* Measures the cost of counting runs. */
SEC("fentry/skb_clone")
int BPF_PROG(empty)
{
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
