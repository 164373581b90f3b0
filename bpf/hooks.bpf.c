/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Lists the functions that netfilter calls in the reader's network namespace, in
 * their order: one line a hook, "family hook function".
 *
 * A task iterator that runs only for the reading task. It follows typed pointers
 * only and so needs nothing but BTF: it works without nfnetlink_hook and where
 * kprobes are refused.
 */
#include "reader.h"

#define FAMILY_IPV4 2
#define FAMILY_BRIDGE 7
#define FAMILY_IPV6 10
#define HOOK_COUNT 5
/* Functions of each hook; further ones are printed as "more". */
#define ENTRY_COUNT 12

/* The kernel's, as far as they are read; offsets come from its BTF. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct nf_hook_entry {
	void *hook;
	void *priv;
};

struct nf_hook_entries {
	__u16 num_hook_entries;
	struct nf_hook_entry hooks[];
};

struct netns_nf {
	struct nf_hook_entries *hooks_ipv4[HOOK_COUNT];
	struct nf_hook_entries *hooks_ipv6[HOOK_COUNT];
	struct nf_hook_entries *hooks_bridge[HOOK_COUNT];
};

struct net {
	struct netns_nf nf;
};
#pragma clang attribute pop

/* Unrolled: the verifier wants constant offsets behind a typed pointer. */
#define LIST(family, entries_of)                                                      \
	_Pragma("unroll") for (int hook = 0; hook < HOOK_COUNT; hook++)               \
	{                                                                             \
		struct nf_hook_entries *entries = entries_of[hook];                   \
		int count = entries ? entries->num_hook_entries : 0;                  \
                                                                                      \
		_Pragma("unroll") for (int n = 0; n < ENTRY_COUNT; n++)               \
		{                                                                     \
			if (n < count)                                                \
				BPF_SEQ_PRINTF(seq, "%d %d %ps\n", family, hook,      \
					       entries->hooks[n].hook);               \
		}                                                                     \
		if (count > ENTRY_COUNT)                                              \
			BPF_SEQ_PRINTF(seq, "%d %d more\n", family, hook);            \
	}

SEC("iter/task")
int hooks(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct net *net = net_of_reader(ctx);

	if (!net)
		return 0;
	LIST(FAMILY_IPV4, net->nf.hooks_ipv4);
	LIST(FAMILY_IPV6, net->nf.hooks_ipv6);
	if (bpf_core_field_exists(net->nf.hooks_bridge))
		LIST(FAMILY_BRIDGE, net->nf.hooks_bridge);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
