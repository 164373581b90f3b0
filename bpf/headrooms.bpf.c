/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Lists the headroom that each interface of the reader's network namespace needs:
 * one line per interface, "index bytes".
 *
 * A task iterator that runs only for the reading task. For kernels that do not
 * report headroom by netlink (IFLA_HEADROOM was added in Linux 6.15).
 */
#include "reader.h"

/* Maximum number of listed interfaces. */
#define DEVICE_COUNT 512

/* The kernel's, as far as they are read; offsets come from its BTF. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct list_head {
	struct list_head *next;
};

struct net {
	struct list_head dev_base_head;
};

struct net_device {
	int ifindex;
	unsigned short needed_headroom;
	struct list_head dev_list;
};
#pragma clang attribute pop

SEC("iter/task")
int headrooms(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct net *net = net_of_reader(ctx);
	struct net_device *none = NULL;
	struct list_head *head, *at;
	__u64 offset = __builtin_preserve_field_info(none->dev_list, BPF_FIELD_BYTE_OFFSET);

	if (!net)
		return 0;
	/* A list has no type to follow: it is read as memory, from its head on. Linux 6.12
	 * refuses to compute with a typed pointer as the loop does. */
	head = &net->dev_base_head;
	if (bpf_core_read(&at, sizeof(at), &head->next))
		return 0;
	for (int n = 0; n < DEVICE_COUNT && at != head; n++) {
		struct net_device *device = (void *)at - offset;
		unsigned short bytes = 0;
		int index = 0;

		bpf_core_read(&index, sizeof(index), &device->ifindex);
		bpf_core_read(&bytes, sizeof(bytes), &device->needed_headroom);
		if (bpf_core_read(&at, sizeof(at), &at->next))
			break;
		BPF_SEQ_PRINTF(seq, "%d %d\n", index, bytes);
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
