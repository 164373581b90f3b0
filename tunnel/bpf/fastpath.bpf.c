/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Forwards frames between a port and VXLAN or GRETAP tunnels over IPv4 without leaving the driver.
 *
 * `into` runs at the port, `out_of` at the interface of the tunnels. Each forwards the frames whose
 * treatment is known: unicast from a learnt station to a learnt one. All others of ours go to the
 * AF_XDP socket of their queue, the slow path, which learns, ages, floods and counts, and fills the
 * maps. Tunnels that are not ours go to the host's stack.
 *
 * Order: a station is entered as waiting. Its frames take the slow path until everything that the
 * slow path was ever given has left; then the program opens it. See is_open().
 */
#define CONTEXT struct xdp_md

#include "fastpath.h"
#include <bpf/bpf_tracing.h>

#define DROP XDP_DROP
#define TO_HOST XDP_PASS
#define BROKEN XDP_ABORTED
#define REDIRECTED XDP_REDIRECT

#define CREDIT_MIN ((__s64)1 << 62) /* the price of the frame */
#define WRITES_TAGS 1
#define CARRIES_ALL 1

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} port_sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} underlay_sockets SEC(".maps");

/* A packet, for the sum over it. */
#define SUMMED_BYTES_MAX 4096

struct summed {
	__u32 words[SUMMED_BYTES_MAX / 4];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct summed);
} summed SEC(".maps");

static __always_inline int to_slow_path(CONTEXT *ctx, enum direction direction)
{
	void *sockets = direction == INTO ? (void *)&port_sockets : (void *)&underlay_sockets;

	return bpf_redirect_map(sockets, ctx->rx_queue_index, XDP_PASS);
}

static __always_inline int send(enum target target)
{
	return bpf_redirect_map(&targets, target, XDP_DROP);
}

static __always_inline __u32 whole_bytes(CONTEXT *ctx)
{
	return bpf_xdp_get_buff_len(ctx);
}

static __always_inline __u32 wire_bytes(CONTEXT *ctx)
{
	return bpf_xdp_get_buff_len(ctx);
}

static __always_inline __u32 frame_count(CONTEXT *ctx)
{
	return 1;
}

/* Not if it has several buffers. */
static __always_inline int is_readable(CONTEXT *ctx, __u32 whole_bytes, __u32 readable_bytes)
{
	return whole_bytes == readable_bytes;
}

/* Tags are in the frame, and no frame is larger than a packet. */
static __always_inline int has_device_tag(CONTEXT *ctx)
{
	return 0;
}

static __always_inline int is_tagged_or_summed(CONTEXT *ctx)
{
	return 0;
}

static __always_inline int is_super(CONTEXT *ctx)
{
	return 0;
}

static __always_inline __u32 segment_bytes(CONTEXT *ctx, void *start, void *end,
					   const struct inner *inner)
{
	return 0;
}

/* Makes room for headers, over the tag if there is one. */
static __always_inline int grow(CONTEXT *ctx, __u32 tag_bytes, int headers_bytes)
{
	return bpf_xdp_adjust_head(ctx, (int)tag_bytes - headers_bytes);
}

/* The inner frame is in its place, but for the addresses in front of a tag. */
static __always_inline int write_inner(CONTEXT *ctx, const struct macs *macs, __be16 type,
				       __u32 tag_bytes, int headers_bytes)
{
	return !tag_bytes || write_macs(ctx, macs, headers_bytes);
}

static __always_inline int shrink(CONTEXT *ctx, __u32 bytes, int is_v4)
{
	return bpf_xdp_adjust_head(ctx, bytes);
}

static __always_inline int write_opened(CONTEXT *ctx, const struct macs *macs, __be16 type)
{
	return 1;
}

/* Tells if the UDP checksum of a whole IPv4 packet is right. */
static __always_inline int is_sum_right(CONTEXT *ctx, const struct ipv4 *ip, __u32 udp_bytes)
{
	struct summed *copied;
	__u32 zero = 0, whole_bytes;
	__s64 sum;

	copied = bpf_map_lookup_elem(&summed, &zero);
	/* The verifier is to see the bounds of this register and of no copy of it. */
	asm volatile("" : "+r"(udp_bytes));
	if (!copied || udp_bytes < sizeof(struct udp) || udp_bytes > SUMMED_BYTES_MAX - 4)
		return 0;
	/* The sum takes whole words: the rest of the last one is 0. */
	copied->words[udp_bytes / 4] = 0;
	if (bpf_xdp_load_bytes(ctx, ETHERNET_BYTES + IPV4_BYTES, copied->words, udp_bytes))
		return 0;
	whole_bytes = (udp_bytes + 3) & ~3U;
	sum = bpf_csum_diff(0, 0, copied->words, whole_bytes, 0);
	if (sum < 0)
		return 0;
	sum += (__u32)ip->source;
	sum += (__u32)ip->destination;
	sum += bpf_htons(PROTOCOL_UDP);
	sum += bpf_htons(udp_bytes);
	sum = (sum & 0xffffffff) + ((__u64)sum >> 32);
	sum = (sum & 0xffffffff) + ((__u64)sum >> 32);
	sum = (sum & 0xffff) + ((__u64)sum >> 16);
	sum = (sum & 0xffff) + ((__u64)sum >> 16);
	return sum == 0xffff;
}

#include "fastpath_ways.h"

SEC("xdp")
int into(struct xdp_md *ctx)
{
	return forward_into(ctx);
}

SEC("xdp")
int out_of(struct xdp_md *ctx)
{
	return forward_out_of(ctx);
}

struct net {
	__u64 net_cookie;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} __attribute__((preserve_access_index));

#define ENXIO 6
#define EOPNOTSUPP 95

/* Counts frames that a target refused. One that takes none at all leaves its direction to the slow
 * path. */
static __always_inline void refused(int direction, __u64 frames, int err)
{
	struct control *control;
	struct counts *counted;
	__u32 zero = 0;

	control = bpf_map_lookup_elem(&control_map, &zero);
	counted = bpf_map_lookup_elem(&counts, &zero);
	if (!control || !counted)
		return;
	counted->frames[direction == INTO ? INTO_REFUSED : OUT_OF_REFUSED] += frames;
	if (err == -ENXIO || err == -EOPNOTSUPP) {
		control->refused[direction] = -err;
		control->is_on[direction] = 0;
	}
}

struct bpf_prog;

/* A target that says that it takes no redirected frames: a veth whose other end does not poll. */
SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(redirect_err, const struct net_device *from, const struct bpf_prog *program,
	     const void *target, int err, int map_type)
{
	if (map_type != BPF_MAP_TYPE_DEVMAP || from->nd_net.net->net_cookie != config.net_cookie)
		return 0;
	if (from->ifindex == config.port_ifindex)
		refused(INTO, 1, err);
	else if (from->ifindex == config.underlay_ifindex)
		refused(OUT_OF, 1, err);
	return 0;
}

/* Frames that a target refused after they were queued for it, such as for a full ring. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(xmit, const struct net_device *from, const struct net_device *to, int sent, int drops,
	     int err)
{
	int is_into = to->ifindex == config.underlay_ifindex &&
		      from->ifindex == config.port_ifindex;

	if (!drops || to->nd_net.net->net_cookie != config.net_cookie)
		return 0;
	if (!is_into && (to->ifindex != config.port_ifindex ||
			 from->ifindex != config.underlay_ifindex))
		return 0;
	refused(is_into ? INTO : OUT_OF, drops, err);
	return 0;
}

/* GPL-compatible name for the kernel's check; see the licence line above. */
char LICENSE[] SEC("license") = "GPL";
