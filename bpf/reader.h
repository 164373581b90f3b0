/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * For task iterators that print the reader's network namespace. The including file defines the
 * used members of `struct net`, with preserve_access_index.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

struct net;

/* Kernel structs with the members that are read; offsets come from BTF. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
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

/* Network namespace of the current task if it is the reader, else NULL. */
static __always_inline struct net *net_of_reader(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct nsproxy *nsproxy;

	if (!task || task->pid != (int)bpf_get_current_pid_tgid())
		return NULL;
	nsproxy = task->nsproxy;
	return nsproxy ? nsproxy->net_ns : NULL;
}
