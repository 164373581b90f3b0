/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Timer samples of the CPUs, by kernel call chain: sys::bpf::samples reads them. */
#pragma once

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 8192);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 127 * sizeof(__u64));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __s32);
	__type(value, __u64);
} samples SEC(".maps");

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	__s32 stack = bpf_get_stackid(ctx, &stacks, 0);
	__u64 one = 1, *count;

	/* In user space or with a full table: still a sample. */
	if (stack < 0)
		stack = -1;
	count = bpf_map_lookup_elem(&samples, &stack);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&samples, &stack, &one, BPF_NOEXIST);
	return 0;
}
