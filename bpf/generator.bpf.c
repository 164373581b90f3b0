/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Makes frames: run by BPF_PROG_TEST_RUN with live frames, once per frame.
 *
 * The kernel recycles frames from a page pool without refilling them, so the
 * sequence number is written on every pass, and so are flow and length if
 * they change. Redirecting through a devmap instead of by interface index lets
 * the driver take them 16 at a time.
 */
#include "frame.h"
#include <bpf/bpf_tracing.h>

#define LENGTHS_MAX 16

struct config {
	__u32 sequence_offset_bytes;
	__u32 target_ifindex;
	__u32 stamp_offset_bytes; /* 0: frames carry no time */
	__u32 flow_offset_bytes; /* of the flow's number, one byte; 0: one flow */
	__u32 flow_count;
	__u32 port; /* UDP source port of flow 0, host order */
	__u32 length_count; /* 0: all frames have the template's length */
	__u32 pid_namespace_device; /* namespace that numbers run.thread */
	__u32 pid_namespace_inode;
	__u32 into_loopback; /* as socket buffers that loopback receives, in place of the target */
	__u16 lengths[LENGTHS_MAX]; /* taken in turn, at most the template's */
};

/* Flows and lengths need these headers. */
struct headers {
	struct ethernet ethernet;
	struct ipv4 ip;
	struct udp udp;
} __attribute__((packed));

struct run {
	__u64 attempted;
	__u64 sent;
	__s64 last_error;
	__u64 thread; /* that is in a run now, else 0 */
	__u64 first_ns; /* first frame of this run made; 0 before */
	__u64 last_ns; /* last bulk of this run handed over */
	__u64 gap_ps; /* from frame to frame; 0 for full speed */
	__u64 begun; /* attempted before this run */
};

/* Index of loopback in every namespace. */
#define LOOPBACK_IFINDEX 1

/* Most clock reads while a frame is not due yet: about 0.1 s. */
#define WAIT_LOOKS (1 << 22)

const volatile struct config config = {};

/* One run at a time, on one CPU at a time: plain additions are exact. */
struct run run = {};

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} target SEC(".maps");

static long is_due(__u32 look, void *due_ns)
{
	return bpf_ktime_get_ns() >= *(__u64 *)due_ns;
}

/* The sum without the old length and with the new one: RFC 1624, equation 3. */
static __always_inline void set_lengths(struct headers *headers, __u16 frame_bytes)
{
	__be16 total = bpf_htons(frame_bytes - sizeof(headers->ethernet));
	__u32 sum = (__u16)~headers->ip.checksum;

	sum += (__u16)~headers->ip.total_bytes;
	sum += total;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	headers->ip.checksum = ~sum;
	headers->ip.total_bytes = total;
	headers->udp.len_bytes =
		bpf_htons(frame_bytes - sizeof(headers->ethernet) - sizeof(headers->ip));
}

/* Length and flow of the next frame. The kernel restores the template's length for the next pass. */
static __always_inline int shape(struct xdp_md *ctx)
{
	struct headers *headers;
	__u8 *flow;
	__u16 frame_bytes = 0;
	void *end;

	if (config.length_count) {
		__u32 at = run.attempted % config.length_count & (LENGTHS_MAX - 1);

		frame_bytes = config.lengths[at];
		if (bpf_xdp_adjust_tail(ctx, (int)frame_bytes - (int)bpf_xdp_get_buff_len(ctx)))
			return -1;
	}
	headers = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if ((void *)(headers + 1) > end)
		return -1;
	if (frame_bytes)
		set_lengths(headers, frame_bytes);
	if (config.flow_offset_bytes) {
		flow = (void *)headers + config.flow_offset_bytes;
		if ((void *)(flow + 1) > end)
			return -1;
		*flow = run.attempted % config.flow_count;
		headers->udp.source = bpf_htons(config.port + *flow);
	}
	return 0;
}

SEC("xdp")
int generator(struct xdp_md *ctx)
{
	if (!run.first_ns)
		run.first_ns = bpf_ktime_get_ns();
	/* A late frame is sent at once: the rate holds on average. */
	if (run.gap_ps) {
		__u64 due_ns = run.first_ns + (run.attempted - run.begun) * run.gap_ps / 1000;

		if (bpf_ktime_get_ns() < due_ns)
			bpf_loop(WAIT_LOOKS, is_due, &due_ns, 0);
	}
	if ((config.length_count || config.flow_offset_bytes) && shape(ctx))
		return XDP_ABORTED;

	void *end = (void *)(long)ctx->data_end;
	__be32 *sequence = (void *)(long)ctx->data + config.sequence_offset_bytes;

	if ((void *)(sequence + 1) > end)
		return XDP_ABORTED;
	if (config.stamp_offset_bytes) {
		__be64 *stamp = (void *)(long)ctx->data + config.stamp_offset_bytes;

		if ((void *)(stamp + 1) > end)
			return XDP_ABORTED;
		*stamp = bpf_cpu_to_be64(bpf_ktime_get_ns());
	}
	*sequence = bpf_htonl((__u32)run.attempted);
	run.attempted++;
	if (config.into_loopback) {
		run.sent++;
		run.last_ns = bpf_ktime_get_ns();
		return XDP_PASS;
	}
	return bpf_redirect_map(&target, 0, 0);
}

struct net_device {
	int ifindex;
} __attribute__((preserve_access_index));

/*
 * Result of each bulk at the target. bpf_redirect_map() does not return it, so this is the only
 * way to separate frames sent from frames refused.
 */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(generator_xmit, const struct net_device *from, const struct net_device *to, int sent,
	     int drops, int err)
{
	struct bpf_pidns_info current = {};

	/*
	 * The thread too: an index repeats in every namespace. And the origin, which the kernel takes
	 * to be loopback: on a veth the thread also runs programs that redirect frames further on.
	 */
	if (to->ifindex != config.target_ifindex || from->ifindex != LOOPBACK_IFINDEX)
		return 0;
	/* By its number in its own namespace: in a container the kernel's own number is another. */
	if (bpf_get_ns_current_pid_tgid(config.pid_namespace_device, config.pid_namespace_inode, &current,
					sizeof(current)) ||
	    current.pid != run.thread)
		return 0;
	run.last_ns = bpf_ktime_get_ns();
	if (sent > 0)
		run.sent += sent;
	if (err)
		run.last_error = err;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
