/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Redirects frames to the AF_XDP socket of their queue: all frames on the plain side, frames of the
 * configured tunnels on the tunnel side. Passes all others to the stack: transit traffic, other
 * addresses, other tunnels.
 */
#include "sockets.h"

#define TYPE_BRIDGED 0x6558
#define PROTOCOL_GRE 47

#define CARRIER_VXLAN 1
#define CARRIER_GRE 2
#define CARRIER_GRE_WITH_KEY 3

#define VXLAN_HAS_VNI 0x08
#define GRE_VERSION 0x0007
#define GRE_CHECKSUM 0x8000
#define GRE_KEY 0x2000

struct config {
	__u16 vxlan_port; /* host order */
	__u8 all;
	__u8 reserved;
};

/* Local end of a tunnel, as its frames name it. */
struct tunnel_id {
	__be32 local[4]; /* IPv4 as ::ffff:a.b.c.d */
	__u32 carrier;
	__u32 id; /* VNI or key, host order; 0 for GRE without a key */
};

/* Those of the configuration; the loader sets the size and the elements. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct tunnel_id);
	__type(value, __u32);
} tunnels SEC(".maps");

struct vxlan {
	__u8 flags;
	__u8 reserved[3];
	__be32 vni; /* upper 24 bits */
};

struct gre {
	__be16 flags;
	__be16 type;
};

const volatile struct config config = {};

static __always_inline int read_vxlan(void *at, void *end, struct tunnel_id *id)
{
	struct udp *udp = at;
	struct vxlan *vxlan = (void *)(udp + 1);

	if ((void *)(vxlan + 1) > end)
		return 0;
	if (udp->destination != bpf_htons(config.vxlan_port) || !(vxlan->flags & VXLAN_HAS_VNI))
		return 0;
	id->carrier = CARRIER_VXLAN;
	id->id = bpf_ntohl(vxlan->vni) >> 8;
	return 1;
}

static __always_inline int read_gre(void *at, void *end, struct tunnel_id *id)
{
	struct gre *gre = at;
	__be32 *key;
	__u16 flags;

	at = gre + 1;
	if (at > end)
		return 0;
	flags = bpf_ntohs(gre->flags);
	if ((flags & GRE_VERSION) || gre->type != bpf_htons(TYPE_BRIDGED))
		return 0;
	id->carrier = CARRIER_GRE;
	if (!(flags & GRE_KEY))
		return 1;
	if (flags & GRE_CHECKSUM)
		at += 4;
	key = at;
	if ((void *)(key + 1) > end)
		return 0;
	id->carrier = CARRIER_GRE_WITH_KEY;
	id->id = bpf_ntohl(*key);
	return 1;
}

static __always_inline int is_tunnel(void *at, void *end)
{
	struct tunnel_id id = {};
	__be16 type;
	__u8 protocol;

	at = ethernet_payload(at, end, &type);
	if (!at)
		return 0;
	if (type == bpf_htons(TYPE_IPV4)) {
		struct ipv4 *ip = at;
		__u32 bytes;

		if ((void *)(ip + 1) > end)
			return 0;
		if (ip->fragment & bpf_htons(FRAGMENT_MASK))
			return 0;
		bytes = ipv4_header_bytes(ip);
		if (!bytes)
			return 0;
		protocol = ip->protocol;
		id.local[2] = bpf_htonl(0xffff);
		id.local[3] = ip->destination;
		at += bytes;
	} else if (type == bpf_htons(TYPE_IPV6)) {
		struct ipv6 *ip = at;

		if ((void *)(ip + 1) > end)
			return 0;
		protocol = ip->next;
		__builtin_memcpy(id.local, ip->destination, sizeof(id.local));
		at = ip + 1;
	} else {
		return 0;
	}
	if (protocol == PROTOCOL_UDP) {
		if (!read_vxlan(at, end, &id))
			return 0;
	} else if (protocol != PROTOCOL_GRE || !read_gre(at, end, &id)) {
		return 0;
	}
	return bpf_map_lookup_elem(&tunnels, &id) != 0;
}

SEC("xdp")
int tunnel(struct xdp_md *ctx)
{
	void *start = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;

	return give(ctx, config.all || is_tunnel(start, end));
}

/* GPL-compatible name for the kernel's check; see the licence line above. */
char LICENSE[] SEC("license") = "GPL";
