/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Forwards frames as fastpath.bpf.c does, at tcx: for a port whose frames come from sockets of this machine.
 *
 * Such frames may be super-frames with unfinished checksums, which stay what they are: the kernel segments
 * and sums them behind us, if a device needs it. The slow path reads and writes two TAP devices of its
 * own. They have no offloads, so the kernel hands it whole, finished frames.
 */
#define CONTEXT struct __sk_buff

#include "fastpath.h"

#define TC_REDIRECT 7

#define DROP TC_DROP
#define TO_HOST TC_NEXT
#define BROKEN TC_DROP
#define REDIRECTED TC_REDIRECT

#define CREDIT_MIN 1
#define WRITES_TAGS 0
#define CARRIES_ALL 0

/* Marks frames that we gave to a TAP device; all others that the host sends there are dropped. */
#define GIVEN_MARK 0x57500001

/* Headers of a tunnel and of the packet in it: what a program may read. */
#define READ_BYTES 192
/* Leaves room for the headers in the length of an IP packet. */
#define SUPER_BYTES_MAX 65400
/* Of a further segment: Ethernet, IPv4 and TCP with a time stamp. */
#define SEGMENT_HEADERS_BYTES 66

#define TCP_OFFSET 12

/* Of linux/bpf.h since Linux 6.3. */
#define DECAP_L3_IPV4 (1ULL << 7)
#define DECAP_L3_IPV6 (1ULL << 8)

#define ENOTSUPP 524

static __always_inline int to_slow_path(CONTEXT *ctx, enum direction direction)
{
	ctx->mark = GIVEN_MARK;
	return bpf_redirect(config.slow_ifindexes[direction], 0);
}

static __always_inline int send(enum target target)
{
	return bpf_redirect(target == PORT ? config.port_ifindex : config.underlay_ifindex, 0);
}

static __always_inline __u32 whole_bytes(CONTEXT *ctx)
{
	return ctx->len;
}

static __always_inline int is_super(CONTEXT *ctx)
{
	return ctx->gso_size != 0;
}

/* Frames that a super-frame becomes. A sender outside of this kernel may not tell. */
static __always_inline __u32 frame_count(CONTEXT *ctx)
{
	if (!ctx->gso_size)
		return 1;
	return ctx->gso_segs ? ctx->gso_segs : ctx->len / ctx->gso_size + 1;
}

/* Bytes on a wire, with the headers of each segment. */
static __always_inline __u32 wire_bytes(CONTEXT *ctx)
{
	return ctx->len + (frame_count(ctx) - 1) * SEGMENT_HEADERS_BYTES;
}

static __always_inline int is_readable(CONTEXT *ctx, __u32 whole_bytes, __u32 readable_bytes)
{
	return 1;
}

static __always_inline int has_device_tag(CONTEXT *ctx)
{
	return ctx->vlan_present;
}

/* A tag or a device's sum over the frame would stay with the outer packet. */
static __always_inline int is_tagged_or_summed(CONTEXT *ctx)
{
	return ctx->vlan_present || bpf_csum_update(ctx, 0) != -ENOTSUPP;
}

/* Bytes of a segment of a super-frame. More than any limit if it is not of TCP. */
static __always_inline __u32 segment_bytes(CONTEXT *ctx, void *start, void *end,
					   const struct inner *inner)
{
	__u8 *tcp = start + ETHERNET_BYTES + (inner->is_v4 ? IPV4_BYTES : IPV6_BYTES);

	if (inner->protocol != PROTOCOL_TCP || ctx->len > SUPER_BYTES_MAX ||
	    (void *)(tcp + TCP_OFFSET + 1) > end)
		return ~0U;
	return (void *)tcp - start + (tcp[TCP_OFFSET] >> 4) * 4 + ctx->gso_size;
}

/* Makes room behind the Ethernet header, and tells the kernel where the inner packet is. */
static __always_inline int grow(CONTEXT *ctx, __u32 tag_bytes, int headers_bytes)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 |
		      BPF_F_ADJ_ROOM_ENCAP_L2(ETHERNET_BYTES) | BPF_F_ADJ_ROOM_ENCAP_L2_ETH;

	flags |= headers_bytes == VXLAN_BYTES ? BPF_F_ADJ_ROOM_ENCAP_L4_UDP :
						BPF_F_ADJ_ROOM_ENCAP_L4_GRE;
	return bpf_skb_adjust_room(ctx, headers_bytes, BPF_ADJ_ROOM_MAC, flags);
}

static __always_inline int write_ethernet(CONTEXT *ctx, const struct macs *macs, __be16 type, int at)
{
	struct ethernet *eth = (void *)(long)ctx->data + at;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return 0;
	if (!write_macs(ctx, macs, at))
		return 0;
	eth->type = type;
	return 1;
}

static __always_inline int write_inner(CONTEXT *ctx, const struct macs *macs, __be16 type,
				       __u32 tag_bytes, int headers_bytes)
{
	return write_ethernet(ctx, macs, type, headers_bytes);
}

static __always_inline int shrink(CONTEXT *ctx, __u32 bytes, int is_v4)
{
	return bpf_skb_adjust_room(ctx, -(__s32)bytes, BPF_ADJ_ROOM_MAC,
				   BPF_F_ADJ_ROOM_FIXED_GSO |
					   (is_v4 ? DECAP_L3_IPV4 : DECAP_L3_IPV6));
}

static __always_inline int write_opened(CONTEXT *ctx, const struct macs *macs, __be16 type)
{
	return write_ethernet(ctx, macs, type, 0);
}

/* Not verified, as RFC 7348 section 5 allows: in a frame of this machine it may be unfinished. */
static __always_inline int is_sum_right(CONTEXT *ctx, const struct ipv4 *ip, __u32 udp_bytes)
{
	return 1;
}

#include "fastpath_ways.h"

/* Makes the headers readable and writable. What fails is shorter than its own headers say. */
static __always_inline void pull(CONTEXT *ctx)
{
	bpf_skb_pull_data(ctx, ctx->len < READ_BYTES ? ctx->len : READ_BYTES);
}

SEC("tcx/ingress")
int into(struct __sk_buff *ctx)
{
	pull(ctx);
	return forward_into(ctx);
}

SEC("tcx/ingress")
int out_of(struct __sk_buff *ctx)
{
	pull(ctx);
	return forward_out_of(ctx);
}

/* At the TAP devices: frames that the slow path sends. */
SEC("tcx/ingress")
int returned(struct __sk_buff *ctx)
{
	return send(ctx->ifindex == config.slow_ifindexes[INTO] ? PORT : UNDERLAY);
}

/* At the TAP devices: keeps frames of the host's own away from the slow path. */
SEC("tcx/egress")
int guarded(struct __sk_buff *ctx)
{
	return ctx->mark == GIVEN_MARK ? TC_NEXT : TC_DROP;
}

/* GPL-compatible name for the kernel's check; see the licence line above. */
char LICENSE[] SEC("license") = "GPL";
