/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* One XDP program for each verb. It counts the frames that it handles and does nothing else with
 * them: the floor of the cost of each step.
 */
#include "frame.h"

struct counts {
	__u64 frames;
};

struct config {
	__u32 cpu; /* of the CPU map */
};

const volatile struct config config = {};

#define HANDLED 0 /* by the program of the verb */
#define ON_CPU 1 /* by verb_on_cpu, behind the CPU map */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} target SEC(".maps");

/* Its size, that of the highest CPU number plus one, is set when it is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} cpus SEC(".maps");

static __always_inline void count(__u32 place)
{
	struct counts *counted = bpf_map_lookup_elem(&counts, &place);

	if (counted)
		counted->frames++;
}

SEC("xdp")
int verb_drop(struct xdp_md *ctx)
{
	count(HANDLED);
	return XDP_DROP;
}

SEC("xdp")
int verb_pass(struct xdp_md *ctx)
{
	count(HANDLED);
	return XDP_PASS;
}

SEC("xdp")
int verb_tx(struct xdp_md *ctx)
{
	count(HANDLED);
	return XDP_TX;
}

SEC("xdp")
int verb_devmap(struct xdp_md *ctx)
{
	count(HANDLED);
	return bpf_redirect_map(&target, 0, XDP_ABORTED);
}

SEC("xdp")
int verb_cpumap(struct xdp_md *ctx)
{
	count(HANDLED);
	return bpf_redirect_map(&cpus, config.cpu, XDP_ABORTED);
}

/* Runs on the CPU that the map led to. */
SEC("xdp/cpumap")
int verb_on_cpu(struct xdp_md *ctx)
{
	count(ON_CPU);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "GPL";
