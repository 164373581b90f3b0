/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Lists what headroom the interfaces of the reader's network namespace ask for: one
 * line each, "index bytes".
 *
 * An iterator over tasks, of which it takes the one that reads. For kernels that do
 * not tell by netlink (IFLA_HEADROOM came with Linux 6.15).
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* More than that are not listed. */
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

struct nsproxy {
	struct net *net_ns;
};

struct task_struct {
	int pid;
	struct nsproxy *nsproxy;
};

struct bpf_iter_meta {
	struct seq_file *seq;
};
#pragma clang attribute pop

/* A context, whose layout is fixed. */
struct bpf_iter__task {
	__bpf_md_ptr(struct bpf_iter_meta *, meta);
	__bpf_md_ptr(struct task_struct *, task);
};

SEC("iter/task")
int headrooms(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct seq_file *seq = ctx->meta->seq;
	struct net_device *none = NULL;
	struct list_head *head, *at;
	__u64 offset = __builtin_preserve_field_info(none->dev_list, BPF_FIELD_BYTE_OFFSET);
	struct nsproxy *nsproxy;
	struct net *net;

	if (!task || task->pid != (int)bpf_get_current_pid_tgid())
		return 0;
	nsproxy = task->nsproxy;
	if (!nsproxy)
		return 0;
	net = nsproxy->net_ns;
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
