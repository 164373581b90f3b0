/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Counts the exits of the virtual CPUs of one process, what the guest accessed, and the interrupts
 * that it was given: by thread. The programs run at events of all virtual machines, and leave
 * those of others after one comparison.
 *
 * Offsets of the records come from BTF: they differ between kernels.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "process.h"

#define THREADS_MAX 4096
#define COUNTS_MAX 8192

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct trace_event_raw_kvm_exit {
	unsigned int exit_reason;
	unsigned int isa;
};

/* On arm64. */
struct trace_event_raw_kvm_exit___arm64 {
	unsigned int esr_ec;
};

struct trace_event_raw_kvm_userspace_exit {
	__u32 reason;
	int errno;
};

struct trace_event_raw_kvm_pio {
	unsigned int rw;
	unsigned int port;
	unsigned int count;
};

struct trace_event_raw_kvm_mmio {
	__u32 type;
	__u64 gpa;
};

struct trace_event_raw_kvm_fast_mmio {
	__u64 gpa;
};

struct trace_event_raw_kvm_inj_virq {
	unsigned int vector;
};

struct trace_event_raw_kvm_vcpu_wakeup {
	__u64 ns;
	_Bool waited;
};

struct trace_event_raw_kvm_set_irq {
	unsigned int gsi;
	int level;
};

struct trace_event_raw_kvm_msi_set_irq {
	__u64 data;
};
#pragma clang attribute pop

/* As numbered in sys::bpf::kvm::KvmEvent. */
enum kind {
	EXIT,
	TO_PROCESS,
	PORT_READ,
	PORT_WRITE,
	MEMORY_READ,
	MEMORY_WRITE,
	DOORBELL,
	INJECTED,
	HALTED,
	POLLED,
	LINE,
	MESSAGE,
};

struct kvm_key {
	__u64 detail; /* reason, port, address, vector, line: as the kind has it */
	__u32 thread;
	__u32 kind;
};

struct kvm_sum {
	__u64 count;
	__u64 ns; /* of exits: until the guest ran again; of halts: until the wake-up */
};

/* The time of one exit. */
struct kvm_span {
	__u64 begin_ns; /* CLOCK_MONOTONIC */
	__u64 end_ns;
	__u64 reason;
	__u32 thread;
	__u32 pad;
};

struct kvm_lost {
	__u64 events; /* found the table full */
	__u64 spans; /* found the ring buffer full */
};

/* Unused: let the type information of this file have the types. */
struct kvm_key key_layout = {};
struct kvm_sum sum_layout = {};
struct kvm_span span_layout = {};
struct kvm_lost lost_layout = {};

struct left {
	__u64 at_ns;
	__u64 reason;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, COUNTS_MAX);
	__type(key, struct kvm_key);
	__type(value, struct kvm_sum);
} sums SEC(".maps");

/* Threads whose guest has exited. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, THREADS_MAX);
	__type(key, __u32);
	__type(value, struct left);
} left SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} spans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kvm_lost);
} lost SEC(".maps");

static __always_inline void add(__u32 thread, __u32 kind, __u64 detail, __u64 count, __u64 ns)
{
	struct kvm_key key = { .detail = detail, .thread = thread, .kind = kind };
	struct kvm_sum *sum, none = {};
	struct kvm_lost *missed;
	__u32 first = 0;

	sum = value_of(&sums, &key, &none);
	if (!sum) {
		missed = bpf_map_lookup_elem(&lost, &first);
		if (missed)
			__sync_fetch_and_add(&missed->events, 1);
		return;
	}
	/* No other thread has this key. */
	sum->count += count;
	sum->ns += ns;
}

static __always_inline __u64 reason_of(struct trace_event_raw_kvm_exit *record)
{
	struct trace_event_raw_kvm_exit___arm64 *arm64 = (void *)record;

	/* By a helper: the compiler joins two direct reads into one at a variable offset. */
	if (bpf_core_field_exists(record->exit_reason))
		return BPF_CORE_READ(record, exit_reason) | (__u64)BPF_CORE_READ(record, isa) << 32;
	if (bpf_core_field_exists(arm64->esr_ec))
		return BPF_CORE_READ(arm64, esr_ec);
	return 0;
}

SEC("tracepoint")
int exits(struct trace_event_raw_kvm_exit *record)
{
	__u32 thread = own_thread();
	struct left gone = {};

	if (!thread)
		return 0;
	gone.at_ns = bpf_ktime_get_ns();
	gone.reason = reason_of(record);
	add(thread, EXIT, gone.reason, 1, 0);
	bpf_map_update_elem(&left, &thread, &gone, BPF_ANY);
	return 0;
}

SEC("tracepoint")
int entries(void *record)
{
	__u32 thread = own_thread();
	struct kvm_lost *missed;
	struct kvm_span *span;
	struct left *gone;
	__u32 first = 0;
	__u64 now_ns;

	if (!thread)
		return 0;
	gone = bpf_map_lookup_elem(&left, &thread);
	/* It exited before the programs were attached. */
	if (!gone || !gone->at_ns)
		return 0;
	now_ns = bpf_ktime_get_ns();
	add(thread, EXIT, gone->reason, 0, now_ns - gone->at_ns);
	if (config.spans) {
		span = bpf_ringbuf_reserve(&spans, sizeof(*span), 0);
		if (span) {
			span->begin_ns = gone->at_ns;
			span->end_ns = now_ns;
			span->reason = gone->reason;
			span->thread = thread;
			span->pad = 0;
			bpf_ringbuf_submit(span, BPF_RB_NO_WAKEUP);
		} else {
			missed = bpf_map_lookup_elem(&lost, &first);
			if (missed)
				__sync_fetch_and_add(&missed->spans, 1);
		}
	}
	gone->at_ns = 0;
	return 0;
}

SEC("tracepoint")
int exits_to_process(struct trace_event_raw_kvm_userspace_exit *record)
{
	__u32 thread = own_thread();

	/* With an error, such as that of a signal, the reason is an old one. */
	if (thread)
		add(thread, TO_PROCESS, record->errno < 0 ? (__u64)(__s64)record->errno : record->reason, 1, 0);
	return 0;
}

SEC("tracepoint")
int ports(struct trace_event_raw_kvm_pio *record)
{
	__u32 thread = own_thread();

	if (thread)
		add(thread, record->rw ? PORT_WRITE : PORT_READ, record->port, record->count, 0);
	return 0;
}

/* Source: the kernel's include/trace/events/kvm.h, KVM_TRACE_MMIO_READ and _WRITE. A read that the process
 * answers is recorded twice: unsatisfied, then satisfied. */
#define MMIO_READ 1
#define MMIO_WRITE 2

SEC("tracepoint")
int memory(struct trace_event_raw_kvm_mmio *record)
{
	__u32 thread = own_thread();

	if (!thread)
		return 0;
	if (record->type == MMIO_READ)
		add(thread, MEMORY_READ, record->gpa, 1, 0);
	else if (record->type == MMIO_WRITE)
		add(thread, MEMORY_WRITE, record->gpa, 1, 0);
	return 0;
}

/* A write that went to an eventfd without being decoded. */
SEC("tracepoint")
int doorbells(struct trace_event_raw_kvm_fast_mmio *record)
{
	__u32 thread = own_thread();

	if (thread)
		add(thread, DOORBELL, record->gpa, 1, 0);
	return 0;
}

SEC("tracepoint")
int injections(struct trace_event_raw_kvm_inj_virq *record)
{
	__u32 thread = own_thread();

	if (thread)
		add(thread, INJECTED, record->vector, 1, 0);
	return 0;
}

SEC("tracepoint")
int wake_ups(struct trace_event_raw_kvm_vcpu_wakeup *record)
{
	__u32 thread = own_thread();

	if (thread)
		add(thread, record->waited ? HALTED : POLLED, 0, 1, record->ns);
	return 0;
}

SEC("tracepoint")
int lines(struct trace_event_raw_kvm_set_irq *record)
{
	__u32 thread = own_thread();

	if (thread && record->level)
		add(thread, LINE, record->gsi, 1, 0);
	return 0;
}

SEC("tracepoint")
int messages(struct trace_event_raw_kvm_msi_set_irq *record)
{
	__u32 thread = own_thread();

	/* The vector. */
	if (thread)
		add(thread, MESSAGE, record->data & 0xff, 1, 0);
	return 0;
}

/* GPL-compatible name for the kernel's check; see the licence line above. */
char LICENSE[] SEC("license") = "GPL";
