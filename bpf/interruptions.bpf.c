/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Reports the intervals in which one thread did not run although it could: interrupts and softirqs of
 * its CPU, other tasks, wake-ups, page faults. Each goes into a ring buffer when it ends; those that
 * find it full are counted, and the next one that finds room carries the count.
 *
 * Intervals on a CPU nest; an outer one includes the inner ones.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define COMM_BYTES 16
#define NAME_BYTES 32

/* Offsets come from BTF. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct task_struct {
	int pid;
	unsigned int __state;
	char comm[COMM_BYTES];
};

struct irqaction {
	const char *name;
};

struct timerqueue_node {
	__s64 expires;
};

struct hrtimer {
	struct timerqueue_node node;
};

struct __call_single_node {
	unsigned int u_flags;
};

struct __call_single_data {
	struct __call_single_node node;
	void *func;
};
#pragma clang attribute pop

/* As numbered in sys::bpf::interruptions::Kind. */
enum kind {
	INTERRUPT,
	LOCAL_TIMER,
	FUNCTION_CALL, /* from another CPU, as are the two below */
	RESCHEDULE,
	IRQ_WORK,
	SOFTIRQ,
	/* Another task ran while the thread was ready. */
	PREEMPTED,
	/* The thread was ready, and the CPU idle. */
	SUSPENDED,
	/* From the wake-up until it ran, on a CPU that was idle. */
	WAKE_UP,
	PAGE_FAULT,
	KINDS,
};

struct interval {
	__u64 begin_ns; /* CLOCK_MONOTONIC */
	__u64 end_ns;
	/* For which the timer was set, or at which another CPU made the call; 0: unknown. */
	__u64 due_ns;
	/* From which the thread ran or was ready in it: its last wake-up, or the end if it sleeps; 0: all the time. */
	__u64 awake_ns;
	__u64 lost_count; /* intervals that found the ring buffer full, so far */
	__u32 kind;
	__u32 number; /* of the interrupt or softirq, or the thread's id of the task */
	char name[NAME_BYTES]; /* of the interrupt, the task, or the function that is called */
};

/* Unused: lets the type information of this file have the type. */
struct interval layout = {};

/* The thread, as the kernel numbers it outside of every namespace; 0: none yet. */
__u32 thread = 0;
/* The CPU on which it runs, or ran last. */
__u32 cpu = 0;

/* Intervals of the thread that have begun; 0: none. */
__u64 fault_ns = 0;
__u64 ready_ns = 0;
/* It went to sleep; 0: it is awake. */
__u64 slept_ns = 0;
__u64 woken_ns = 0;
__u64 lost = 0;
__u32 was_preempted = 0;
__u32 taker = 0;
char taker_name[COMM_BYTES] = {};
/* The first call that waits for an interrupt of its CPU. */
__u64 called_ns = 0;
char called_name[NAME_BYTES] = {};

struct begun {
	__u64 at_ns[KINDS];
	__u64 due_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct begun);
} begun SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} intervals SEC(".maps");

static __always_inline int is_its_cpu(void)
{
	return thread && bpf_get_smp_processor_id() == cpu;
}

static __always_inline struct interval *report(__u32 kind, __u64 begin_ns, __u32 number)
{
	struct interval *interval = bpf_ringbuf_reserve(&intervals, sizeof(*interval), 0);

	if (!interval) {
		__sync_fetch_and_add(&lost, 1);
		return NULL;
	}
	__builtin_memset(interval, 0, sizeof(*interval));
	interval->begin_ns = begin_ns;
	interval->end_ns = bpf_ktime_get_ns();
	interval->awake_ns = slept_ns ? interval->end_ns : woken_ns;
	interval->lost_count = lost;
	interval->kind = kind;
	interval->number = number;
	return interval;
}

/* Where the intervals of this CPU begin; NULL if the thread is elsewhere. */
static __always_inline struct begun *begun_here(void)
{
	__u32 zero = 0;

	return is_its_cpu() ? bpf_map_lookup_elem(&begun, &zero) : NULL;
}

static __always_inline void begin(__u32 kind)
{
	struct begun *here = begun_here();

	if (here)
		here->at_ns[kind] = bpf_ktime_get_ns();
}

/* Time at which it began, which is forgotten; 0 if that was not seen. */
static __always_inline __u64 end(__u32 kind)
{
	struct begun *here;
	__u32 zero = 0;
	__u64 at_ns;

	here = bpf_map_lookup_elem(&begun, &zero);
	if (!here)
		return 0;
	at_ns = here->at_ns[kind];
	here->at_ns[kind] = 0;
	return is_its_cpu() ? at_ns : 0;
}

static __always_inline void end_plain(__u32 kind, __u32 number)
{
	__u64 begin_ns = end(kind);
	struct interval *interval;

	if (!begin_ns)
		return;
	interval = report(kind, begin_ns, number);
	if (interval)
		bpf_ringbuf_submit(interval, BPF_RB_NO_WAKEUP);
}

/* As `begin`, of an interrupt that was due before its handler; 0: unknown. */
static __always_inline void begin_due(__u32 kind, __u64 due_ns)
{
	struct begun *here = begun_here();

	if (!here)
		return;
	here->due_ns = due_ns;
	here->at_ns[kind] = bpf_ktime_get_ns();
}

static __always_inline struct interval *end_due(__u32 kind, __u32 number)
{
	__u64 begin_ns = end(kind);
	struct begun *here = begun_here();
	struct interval *interval;

	if (!begin_ns || !here)
		return NULL;
	interval = report(kind, begin_ns, number);
	if (interval)
		interval->due_ns = here->due_ns;
	return interval;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(interrupt_begins, int number, struct irqaction *action)
{
	begin(INTERRUPT);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(interrupt_ends, int number, struct irqaction *action, int handled)
{
	__u64 begin_ns = end(INTERRUPT);
	struct interval *interval;

	if (!begin_ns)
		return 0;
	interval = report(INTERRUPT, begin_ns, number);
	if (!interval)
		return 0;
	bpf_probe_read_kernel_str(interval->name, sizeof(interval->name), action->name);
	bpf_ringbuf_submit(interval, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_begins, unsigned int number)
{
	begin(SOFTIRQ);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_ends, unsigned int number)
{
	end_plain(SOFTIRQ, number);
	return 0;
}

SEC("tp_btf/local_timer_entry")
int BPF_PROG(local_timer_begins, int number)
{
	begin_due(LOCAL_TIMER, 0);
	return 0;
}

/*
 * The clock was set for the first timer that expires in the interrupt.
 *
 * - `now`: of the timer's own clock, read when the interrupt began.
 */
SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(timer_expires, struct hrtimer *timer, __s64 *now)
{
	struct begun *here = begun_here();
	__s64 now_ns, late_ns;

	if (!here || !here->at_ns[LOCAL_TIMER] || here->due_ns)
		return 0;
	if (!bpf_core_field_exists(timer->node.expires))
		return 0;
	if (bpf_probe_read_kernel(&now_ns, sizeof(now_ns), now))
		return 0;
	late_ns = now_ns - timer->node.expires;
	here->due_ns = here->at_ns[LOCAL_TIMER] - (late_ns > 0 ? late_ns : 0);
	return 0;
}

SEC("tp_btf/local_timer_exit")
int BPF_PROG(local_timer_ends, int number)
{
	struct interval *interval = end_due(LOCAL_TIMER, number);

	if (interval)
		bpf_ringbuf_submit(interval, BPF_RB_NO_WAKEUP);
	return 0;
}

/* As in the kernel: the type of a call is that of a task's wake-up, which has no function. */
#define CALL_TYPES 0xf0
#define CALL_WAKES 0x30
/* An idle CPU may take a call without an interrupt, which is not seen. */
#define CALL_NS_MAX 1000000

/* A CPU wants a function to run on another one, by an interrupt unless one is on its way. */
SEC("tp_btf/csd_queue_cpu")
int BPF_PROG(called, unsigned int target, unsigned long site, void *function,
	     struct __call_single_data *call)
{
	__u64 address, now = bpf_ktime_get_ns();

	if (!thread || target != cpu || (called_ns && now - called_ns < CALL_NS_MAX))
		return 0;
	called_name[0] = 0;
	if ((call->node.u_flags & CALL_TYPES) != CALL_WAKES) {
		address = (__u64)call->func;
		bpf_snprintf(called_name, sizeof(called_name), "%ps", &address, sizeof(address));
	}
	called_ns = now;
	return 0;
}

static __always_inline void call_begins(void)
{
	__u64 due_ns = called_ns;

	if (!is_its_cpu())
		return;
	called_ns = 0;
	begin_due(FUNCTION_CALL, due_ns);
}

static __always_inline void call_ends(__u32 number)
{
	struct interval *interval = end_due(FUNCTION_CALL, number);

	if (!interval)
		return;
	if (interval->due_ns)
		__builtin_memcpy(interval->name, called_name, sizeof(interval->name));
	bpf_ringbuf_submit(interval, BPF_RB_NO_WAKEUP);
}

/* Programs at the entry and the exit of a handler. */
#define VECTOR(name, begins, ends)                                                                \
	SEC("tp_btf/" #name "_entry")                                                             \
	int BPF_PROG(name##_begins, int number)                                                   \
	{                                                                                         \
		begins;                                                                           \
		return 0;                                                                         \
	}                                                                                         \
	SEC("tp_btf/" #name "_exit")                                                              \
	int BPF_PROG(name##_ends, int number)                                                     \
	{                                                                                         \
		ends;                                                                             \
		return 0;                                                                         \
	}

VECTOR(call_function, call_begins(), call_ends(number))
VECTOR(call_function_single, call_begins(), call_ends(number))
VECTOR(reschedule, begin(RESCHEDULE), end_plain(RESCHEDULE, number))
VECTOR(irq_work, begin(IRQ_WORK), end_plain(IRQ_WORK, number))

static __always_inline void leaves(int preempt, struct task_struct *last, struct task_struct *next)
{
	/* Ready if it was preempted, or yields; the state of a sleeper is not 0. */
	was_preempted = preempt || !last->__state;
	ready_ns = was_preempted ? bpf_ktime_get_ns() : 0;
	slept_ns = was_preempted ? 0 : bpf_ktime_get_ns();
	taker = next->pid;
	bpf_probe_read_kernel_str(taker_name, sizeof(taker_name), next->comm);
}

/*
 * - `last`: the task that ran until now.
 */
static __always_inline void arrives(struct task_struct *last)
{
	__u64 begin_ns = ready_ns;
	struct interval *interval;
	__u32 kind;

	cpu = bpf_get_smp_processor_id();
	ready_ns = 0;
	slept_ns = 0;
	if (!begin_ns)
		return;
	if (was_preempted)
		kind = taker ? PREEMPTED : SUSPENDED;
	else
		kind = last->pid ? PREEMPTED : WAKE_UP;
	interval = report(kind, begin_ns, was_preempted ? taker : last->pid);
	if (!interval)
		return;
	if (was_preempted)
		__builtin_memcpy(interval->name, taker_name, sizeof(taker_name));
	else
		bpf_probe_read_kernel_str(interval->name, COMM_BYTES, last->comm);
	bpf_ringbuf_submit(interval, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, int preempt, struct task_struct *last, struct task_struct *next)
{
	if (!thread)
		return 0;
	if (last->pid == (int)thread)
		leaves(preempt, last, next);
	else if (next->pid == (int)thread)
		arrives(last);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(woken, struct task_struct *task)
{
	if (thread && task->pid == (int)thread && !ready_ns) {
		was_preempted = 0;
		ready_ns = bpf_ktime_get_ns();
		if (slept_ns)
			woken_ns = ready_ns;
		slept_ns = 0;
	}
	return 0;
}

/* Its context switches, as a software event of the thread: the first one tells its number. */
SEC("perf_event")
int leaves_cpu(void *ctx)
{
	/* If it was preempted, its return follows soon. */
	if (!thread)
		slept_ns = bpf_ktime_get_ns();
	thread = (__u32)bpf_get_current_pid_tgid();
	cpu = bpf_get_smp_processor_id();
	return 0;
}

/* It runs: a timer, for a thread that is alone on its CPU and never leaves it. */
SEC("perf_event")
int runs(void *ctx)
{
	thread = (__u32)bpf_get_current_pid_tgid();
	cpu = bpf_get_smp_processor_id();
	slept_ns = 0;
	return 0;
}

/* Its page faults: the kernel counts a fault first, and its kind when it has ended. */
SEC("perf_event")
int fault_begins(void *ctx)
{
	fault_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("perf_event")
int fault_ends(void *ctx)
{
	__u64 begin_ns = fault_ns;
	struct interval *interval;

	fault_ns = 0;
	if (!begin_ns)
		return 0;
	interval = report(PAGE_FAULT, begin_ns, 0);
	if (interval)
		bpf_ringbuf_submit(interval, BPF_RB_NO_WAKEUP);
	return 0;
}

/* GPL-compatible name for the kernel's check; see the licence line above. */
char LICENSE[] SEC("license") = "GPL";
