/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* One process whose threads are counted. */
#pragma once

struct config {
	/* As the kernel numbers it outside of every namespace; 0: the event below tells. */
	__u32 process;
	/* Keep single intervals, too, where a file has them. */
	__u32 spans;
};

const volatile struct config config = {};

__u32 recognised = 0;

/* The calling thread; 0 if it is of another process. */
static __always_inline __u32 own_thread(void)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 process = config.process ? config.process : recognised;

	return process && id >> 32 == process ? (__u32)id : 0;
}

/* The value of a key, which begins as none; NULL if the table is full. */
static __always_inline void *value_of(void *map, const void *key, const void *none)
{
	void *value = bpf_map_lookup_elem(map, key);

	if (value)
		return value;
	bpf_map_update_elem(map, key, none, BPF_NOEXIST);
	return bpf_map_lookup_elem(map, key);
}

/* A context switch of one of its threads. */
SEC("perf_event")
int switches(void *ctx)
{
	recognised = bpf_get_current_pid_tgid() >> 32;
	return 0;
}
