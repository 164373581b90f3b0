/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Counts the system calls of one process: by thread, number, first argument where that may be a
 * descriptor, and error. Both programs run at each system call of the machine, and leave those of
 * other processes after one comparison.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "process.h"

#define THREADS_MAX 4096
#define SUMS_MAX 16384
/* A larger first argument is an address or a flag. */
#define DESCRIPTORS 65536
#define NO_DESCRIPTOR 0xffffffff
#define ERRNO_MAX 4095

/* Registers at the entry of a call, of either architecture. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct pt_regs___x86 {
	unsigned long di;
};

struct pt_regs___arm64 {
	__u64 orig_x0;
};
#pragma clang attribute pop

struct call {
	__u32 thread;
	__u32 number;
	__u32 descriptor;
	__u32 error; /* errno; 0: success */
};

struct call_sum {
	__u64 count;
	__u64 result; /* bytes or messages of those that succeeded */
	__u64 ns; /* from entry to exit */
};

/* Unused: let the type information of this file have the types. */
struct call call_layout = {};
struct call_sum sum_layout = {};

struct entry {
	__u64 at_ns;
	__u32 number;
	__u32 descriptor;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, THREADS_MAX);
	__type(key, __u32);
	__type(value, struct entry);
} entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SUMS_MAX);
	__type(key, struct call);
	__type(value, struct call_sum);
} sums SEC(".maps");

static __always_inline __u32 first_argument(void *regs)
{
	__u64 value = DESCRIPTORS;

	if (bpf_core_field_exists(((struct pt_regs___x86 *)regs)->di))
		value = BPF_CORE_READ((struct pt_regs___x86 *)regs, di);
	else if (bpf_core_field_exists(((struct pt_regs___arm64 *)regs)->orig_x0))
		value = BPF_CORE_READ((struct pt_regs___arm64 *)regs, orig_x0);
	return value < DESCRIPTORS ? (__u32)value : NO_DESCRIPTOR;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(call_begins, void *regs, long number)
{
	__u32 thread = own_thread();
	struct entry entry = {};

	if (!thread)
		return 0;
	entry.at_ns = bpf_ktime_get_ns();
	entry.number = number;
	entry.descriptor = first_argument(regs);
	bpf_map_update_elem(&entries, &thread, &entry, BPF_ANY);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(call_ends, void *regs, long result)
{
	__u32 thread = own_thread();
	struct call_sum *sum, none = {};
	struct entry *entry;
	struct call key = {};

	if (!thread)
		return 0;
	entry = bpf_map_lookup_elem(&entries, &thread);
	/* It began before the programs did. */
	if (!entry || !entry->at_ns)
		return 0;
	key.thread = thread;
	key.number = entry->number;
	key.descriptor = entry->descriptor;
	if (result < 0 && result >= -ERRNO_MAX)
		key.error = -result;
	sum = value_of(&sums, &key, &none);
	if (sum) {
		/* No other thread has this key. */
		sum->count++;
		sum->result += key.error ? 0 : result;
		sum->ns += bpf_ktime_get_ns() - entry->at_ns;
	}
	entry->at_ns = 0;
	return 0;
}

/* GPL-compatible name for the kernel's check; see the licence line above. */
char LICENSE[] SEC("license") = "GPL";
