/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Both directions, the same for XDP and tcx. The hook defines its context, its actions and how it reads,
 * grows and shrinks a frame, and then includes this file.
 */
#ifndef WIREPATH_FASTPATH_WAYS_H
#define WIREPATH_FASTPATH_WAYS_H

#include "fastpath.h"

/* Drops a frame that could not be rewritten. */
static __always_inline int unwritable(struct counts *counted)
{
	counted->frames[UNWRITABLE]++;
	return BROKEN;
}

/* Gives a frame to the slow path. */
static __always_inline int slow(CONTEXT *ctx, struct control *control, struct counts *counted,
				enum direction direction, enum count why)
{
	int action;

	counted->frames[why]++;
	action = to_slow_path(ctx, direction);
	if (action == REDIRECTED) {
		/* Read by user space, and by other queues. */
		__sync_fetch_and_add(&control->given[direction], frame_count(ctx));
		counted->frames[direction == INTO ? INTO_SLOW : OUT_OF_SLOW]++;
	}
	return action;
}

/* Writes the outer headers into the room that was made for them. */
static __always_inline int write_headers(CONTEXT *ctx, const struct header *header,
					 const struct inner *inner, struct recent *recent, __u32 len,
					 int headers_bytes)
{
	__u32 bits = (header->fixed & ~header->inherited) | (inner->bits & header->inherited);
	void *at = (void *)(long)ctx->data;
	__u16 total_bytes = len + headers_bytes - ETHERNET_BYTES;
	__u16 id = 0, flags = DONT_FRAGMENT;
	struct ipv4 *ip;

	if (at + headers_bytes > (void *)(long)ctx->data_end)
		return 0;
	if (!(bits & TTL_BITS))
		bits |= 1 << 8;
	if (!(bits & DONT_FRAGMENT_BIT)) {
		id = bpf_get_prandom_u32();
		flags = 0;
	}
	copy(at, header->bytes, headers_bytes);
	ip = at + ETHERNET_BYTES;
	ip->service = bits;
	ip->total_bytes = bpf_htons(total_bytes);
	ip->id = bpf_htons(id);
	ip->fragment = bpf_htons(flags);
	ip->ttl = bits >> 8;
	ip->checksum = bpf_htons(~folded(header->ip_sum + (bits & 0xff) + total_bytes + id + flags +
					 (bits & TTL_BITS)));
	if (headers_bytes == VXLAN_BYTES) {
		struct udp *udp = at + ETHERNET_BYTES + IPV4_BYTES;

		udp->source = bpf_htons(0xc000 | flow_hash(inner, recent) >> 18);
		udp->destination = bpf_htons(header->vxlan_port);
		udp->len_bytes = bpf_htons(total_bytes - IPV4_BYTES);
		udp->checksum = 0;
	}
	return 1;
}

#define ENCAPSULATE(headers_bytes)                                                   \
	do {                                                                         \
		if (grow(ctx, tag_bytes, headers_bytes))                             \
			return slow(ctx, control, counted, INTO, SLOW_SIZE);         \
		if (!write_inner(ctx, &macs, type, tag_bytes, headers_bytes) ||      \
		    !write_headers(ctx, header, &inner, recent, len, headers_bytes)) \
			return unwritable(counted);                                  \
	} while (0)

/*
 * Looks up the source of a frame, and tells if it is open. Returns 0 if it is not known at `place`, a tunnel or
 * LOCAL.
 */
static __always_inline int find_source(struct control *control, struct counts *counted,
				       enum direction direction, __u64 key, __u32 place,
				       __u64 now_ns, enum open *is_ready)
{
	struct station *from = bpf_map_lookup_elem(&stations, &key);

	if (!from || from->place != place)
		return 0;
	refresh(from, control, now_ns);
	*is_ready = is_open(from, control, counted, direction, now_ns);
	return 1;
}

/* Tunnel of a frame of the port, and if its stations are open. */
struct found {
	__u32 tunnel;
	enum open is_ready;
};

/* Returns FOUND, or why only the slow path knows the tunnel. */
static __always_inline enum count find_tunnel(struct control *control, struct counts *counted,
					      struct recent *recent, __u64 from_key, __u64 to_key,
					      __u64 now_ns, struct found *found)
{
	__u32 changes = *(volatile __u32 *)&control->changes, sole;
	struct station *to;
	enum open is_ready;

	found->is_ready = OPEN;
	if (recent->into.from_key == from_key && recent->into.to_key == to_key &&
	    recent->into.tick_ns == now_ns && recent->into.changes == changes) {
		found->tunnel = recent->into.tunnel;
		return FOUND;
	}
	if (control->learns &&
	    !find_source(control, counted, INTO, from_key, LOCAL, now_ns, &found->is_ready))
		return SLOW_SOURCE;
	sole = control->sole[to_key >> 48 & (NETWORKS - 1)];
	to = bpf_map_lookup_elem(&stations, &to_key);
	if (to && !to->is_static && now_ns > to->seen_ns &&
	    now_ns - to->seen_ns > control->ageing_ns)
		to = 0;
	if (to) {
		found->tunnel = to->place;
		/* With one tunnel there was nothing to learn: earlier frames took the same way. */
		if (found->tunnel + 1 != sole) {
			is_ready = is_open(to, control, counted, INTO, now_ns);
			if (found->is_ready == OPEN)
				found->is_ready = is_ready;
		}
	} else {
		found->tunnel = sole - 1;
	}
	/* No tunnel, or the port again. */
	if (found->tunnel >= TUNNELS_MAX)
		return SLOW_DESTINATION;
	if (found->is_ready == OPEN) {
		recent->into.from_key = from_key;
		recent->into.to_key = to_key;
		recent->into.tick_ns = now_ns;
		recent->into.changes = changes;
		recent->into.tunnel = found->tunnel;
	}
	return FOUND;
}

static __always_inline int forward_into(CONTEXT *ctx)
{
	void *start = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *eth = start;
	struct macs macs;
	struct inner inner;
	struct control *control;
	struct counts *counted;
	struct header *header;
	struct recent *recent;
	struct found found;
	__u64 now_ns, to_key, from_key;
	__u32 zero = 0, len, slot, segment, network = 0, tag_bytes = 0;
	enum count why;
	__be16 type;

	control = bpf_map_lookup_elem(&control_map, &zero);
	counted = bpf_map_lookup_elem(&counts, &zero);
	recent = bpf_map_lookup_elem(&recents, &zero);
	if (!control || !counted || !recent)
		return TO_HOST;
	now_ns = tick_ns();
	len = whole_bytes(ctx);
	/* Frames of the slow path too: one bucket for both. */
	if (control->rate_bits_per_s && !is_within_rate(control, wire_bytes(ctx), CREDIT_MIN)) {
		counted->frames[POLICED]++;
		return DROP;
	}
	if (!control->is_on[INTO])
		return slow(ctx, control, counted, INTO, SLOW_OFF);
	if ((void *)(eth + 1) > end)
		return slow(ctx, control, counted, INTO, SLOW_SHAPE);
	if (WRITES_TAGS && control->has_vlans && eth->type == bpf_htons(TYPE_VLAN)) {
		struct vlan *vlan = (void *)(eth + 1);

		if ((void *)(vlan + 1) > end)
			return slow(ctx, control, counted, INTO, SLOW_SHAPE);
		network = bpf_ntohs(vlan->tag) & (NETWORKS - 1);
		if (!network)
			return slow(ctx, control, counted, INTO, SLOW_SHAPE);
		tag_bytes = TAG_BYTES;
	}
	if (is_tagged_or_summed(ctx))
		return slow(ctx, control, counted, INTO, SLOW_SHAPE);
	macs = read_macs(eth);
	type = eth->type;
	to_key = in_network(station_key(eth->destination), network);
	from_key = in_network(station_key(eth->source), network);
	if (is_group(to_key))
		return slow(ctx, control, counted, INTO, SLOW_GROUP);
	why = find_tunnel(control, counted, recent, from_key, to_key, now_ns, &found);
	if (why != FOUND)
		return slow(ctx, control, counted, INTO, why);
	/* Never: the verifier does not know the bound of one that was remembered. */
	if (found.tunnel >= TUNNELS_MAX)
		return unwritable(counted);
	slot = 2 * found.tunnel + (*(volatile __u32 *)&control->active[found.tunnel] & 1);
	header = bpf_map_lookup_elem(&headers, &slot);
	if (!header || !header->len_bytes)
		return slow(ctx, control, counted, INTO, SLOW_TUNNEL);
	if (!is_readable(ctx, len, end - start))
		return slow(ctx, control, counted, INTO, SLOW_SIZE);
	len -= tag_bytes;
	if (!is_super(ctx) && len > header->inner_bytes_max)
		return slow(ctx, control, counted, INTO, SLOW_SIZE);
	if (!read_inner(start + tag_bytes, end, len, &inner))
		return slow(ctx, control, counted, INTO, SLOW_SHAPE);
	segment = is_super(ctx) ? segment_bytes(ctx, start, end, &inner) : len;
	if (is_super(ctx) && segment > header->inner_bytes_max)
		return slow(ctx, control, counted, INTO, SLOW_SIZE);
	if (config.unfinished[INTO] && is_unfinished(start + tag_bytes, end, &inner))
		return slow(ctx, control, counted, INTO, SLOW_CHECKSUM);
	/* A packet between the tunnel's own ends may be a loop. */
	if (inner.is_v4 && inner.ends == header->ends)
		return slow(ctx, control, counted, INTO, SLOW_NESTED);
	if (found.is_ready == WAITS)
		return slow(ctx, control, counted, INTO, SLOW_WAITING);
	if (found.is_ready == HELD) {
		counted->frames[SEAM_DROPPED]++;
		return DROP;
	}
	note_sent(control, found.tunnel, segment + header->len_bytes - ETHERNET_BYTES);
	switch (header->len_bytes) {
	case VXLAN_BYTES:
		ENCAPSULATE(VXLAN_BYTES);
		break;
	case GRE_BYTES:
		ENCAPSULATE(GRE_BYTES);
		break;
	case GRE_KEY_BYTES:
		ENCAPSULATE(GRE_KEY_BYTES);
		break;
	default:
		return slow(ctx, control, counted, INTO, SLOW_TUNNEL);
	}
	counted->frames[INTO_SENT]++;
	if (is_super(ctx))
		counted->frames[INTO_SUPER]++;
	return send(UNDERLAY);
}

/* Carrier of a packet, and where its frame begins. */
struct carried {
	struct ends ends;
	__u32 headers_bytes; /* 0 if only the slow path opens it */
	__u32 is_summed;
};

/* Reads UDP or GRE at `at`. Returns 0 if it carries no Ethernet frame of a tunnel. */
static __always_inline int read_carrier(void *at, void *end, __u8 protocol, struct carried *carried)
{
	if (protocol == PROTOCOL_UDP) {
		struct udp *udp = at;
		__be32 *vxlan = (void *)(udp + 1);

		if ((void *)(vxlan + 2) > end || udp->destination != bpf_htons(config.vxlan_port))
			return 0;
		carried->ends.kind = VXLAN;
		carried->ends.id = bpf_ntohl(vxlan[1]) >> 8;
		carried->is_summed = udp->checksum != 0;
		carried->headers_bytes = VXLAN_BYTES;
		if (!(vxlan[0] & bpf_htonl(0x08000000)))
			carried->headers_bytes = 0;
		return 1;
	}
	if (protocol == PROTOCOL_GRE) {
		__be16 *gre = at;
		__be32 *key = (void *)(gre + 2);
		__u16 flags;

		if ((void *)(gre + 2) > end || gre[1] != bpf_htons(TYPE_BRIDGED))
			return 0;
		flags = bpf_ntohs(gre[0]);
		carried->ends.kind = GRETAP;
		carried->headers_bytes = GRE_BYTES;
		if (flags & GRE_KEY) {
			if (flags & GRE_CHECKSUM)
				key++;
			if ((void *)(key + 1) > end)
				return 0;
			carried->ends.kind = GRETAP_KEY;
			carried->ends.id = bpf_ntohl(*key);
			carried->headers_bytes = GRE_KEY_BYTES;
		}
		if (flags & (GRE_CHECKSUM | GRE_SEQUENCE | GRE_REFUSED))
			carried->headers_bytes = 0;
		return 1;
	}
	return 0;
}

/* Finds the tunnel of a packet's ends, into `recent`. Returns 0 if it has none of ours. */
static __always_inline int find_ends(struct control *control, struct recent *recent,
				     const struct ends *ends)
{
	const __u64 *words = (const void *)ends, *last = (void *)&recent->out_of.ends;
	__u32 changes = *(volatile __u32 *)&control->changes, *tunnel;

	if (words[0] == last[0] && words[1] == last[1] && recent->out_of.changes == changes)
		return 1;
	tunnel = bpf_map_lookup_elem(&tunnels, ends);
	if (!tunnel)
		return 0;
	recent->out_of.ends = *ends;
	recent->out_of.changes = changes;
	recent->out_of.tunnel = *tunnel;
	recent->out_of.tick_ns = 0;
	return 1;
}

/* Gives a packet to the slow path if it is to one of our ends, else to the host's stack. */
static __always_inline int slow_or_stack(CONTEXT *ctx, struct control *control,
					 struct counts *counted, struct segment *segment,
					 enum count why)
{
	if (bpf_map_lookup_elem(&segments, segment))
		return slow(ctx, control, counted, OUT_OF, why);
	counted->frames[TO_STACK]++;
	return TO_HOST;
}

static __always_inline int to_stack(struct counts *counted)
{
	counted->frames[TO_STACK]++;
	return TO_HOST;
}

/* Writes a tag behind the addresses, into the room that was left for it. */
static __always_inline int write_tag(CONTEXT *ctx, const struct macs *macs, __u32 network)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	struct vlan *vlan = (void *)(eth + 1);

	if (!write_macs(ctx, macs, 0) || (void *)(vlan + 1) > (void *)(long)ctx->data_end)
		return 0;
	eth->type = bpf_htons(TYPE_VLAN);
	vlan->tag = bpf_htons(network);
	return 1;
}

static __always_inline int forward_out_of(CONTEXT *ctx)
{
	void *start = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *eth = start;
	struct carried carried = {};
	struct segment segment = {};
	struct inner inner;
	struct control *control;
	struct counts *counted;
	struct recent *recent;
	struct ipv4 *ip;
	void *frame, *at = eth + 1;
	__u64 now_ns, key;
	__u32 zero = 0, bytes, outer_ecn, inner_len, network = 0, whole = whole_bytes(ctx);
	struct macs macs;
	__be16 type;
	enum open is_ready;
	int is_tagged = has_device_tag(ctx);

	control = bpf_map_lookup_elem(&control_map, &zero);
	counted = bpf_map_lookup_elem(&counts, &zero);
	recent = bpf_map_lookup_elem(&recents, &zero);
	if (!control || !counted || !recent)
		return TO_HOST;
	if (at > end)
		return to_stack(counted);
	type = eth->type;
	if (type == bpf_htons(TYPE_VLAN) || type == bpf_htons(TYPE_QINQ)) {
		struct vlan *vlan = at;

		at = vlan + 1;
		if (at > end)
			return to_stack(counted);
		type = vlan->type;
		is_tagged = 1;
	}
	if (type == bpf_htons(TYPE_IPV6)) {
		struct ipv6 *v6 = at;

		if ((void *)(v6 + 1) > end ||
		    !read_carrier(v6 + 1, end, v6->next, &carried))
			return to_stack(counted);
		__builtin_memcpy(segment.local, v6->destination, 16);
		segment.id = carried.ends.id;
		segment.kind = carried.ends.kind;
		return slow_or_stack(ctx, control, counted, &segment, SLOW_SHAPE);
	}
	if (type != bpf_htons(TYPE_IPV4))
		return to_stack(counted);
	ip = at;
	if ((void *)(ip + 1) > end || ip->fragment & bpf_htons(FRAGMENT_MASK))
		return to_stack(counted);
	bytes = ipv4_header_bytes(ip);
	if (!bytes || !read_carrier(at + bytes, end, ip->protocol, &carried))
		return to_stack(counted);
	segment.local[10] = 0xff;
	segment.local[11] = 0xff;
	*(__be32 *)&segment.local[12] = ip->destination;
	segment.id = carried.ends.id;
	segment.kind = carried.ends.kind;
	carried.ends.remote = ip->source;
	carried.ends.local = ip->destination;
	if (!find_ends(control, recent, &carried.ends))
		return slow_or_stack(ctx, control, counted, &segment, SLOW_TUNNEL);
	/* Ours from here on. */
	if (!control->is_on[OUT_OF])
		return slow(ctx, control, counted, OUT_OF, SLOW_OFF);
	if (is_tagged || bytes != IPV4_BYTES || !carried.headers_bytes)
		return slow(ctx, control, counted, OUT_OF, SLOW_SHAPE);
	ip = (void *)(eth + 1);
	frame = start + carried.headers_bytes;
	if ((void *)(ip + 1) > end || bpf_ntohs(ip->total_bytes) != whole - ETHERNET_BYTES ||
	    !is_readable(ctx, whole, end - start))
		return slow(ctx, control, counted, OUT_OF, SLOW_SHAPE);
	bytes = whole;
	inner_len = bytes - carried.headers_bytes;
	network = control->networks[recent->out_of.tunnel & (TUNNELS_MAX - 1)];
	if ((network && !WRITES_TAGS) || (is_super(ctx) && !config.opens_super))
		return slow(ctx, control, counted, OUT_OF, SLOW_SHAPE);
	if (bytes < carried.headers_bytes + ETHERNET_BYTES || bytes > 0xffff ||
	    (!is_super(ctx) && inner_len + (network ? TAG_BYTES : 0) > config.inner_bytes_max))
		return slow(ctx, control, counted, OUT_OF, SLOW_SIZE);
	{
		__u32 sum = 0;

		for (int word = 0; word < IPV4_BYTES / 2; word++)
			sum += ((__u16 *)ip)[word];
		if (folded(sum) != 0xffff)
			return slow(ctx, control, counted, OUT_OF, SLOW_CHECKSUM);
	}
	if (carried.ends.kind == VXLAN) {
		struct udp *udp = (void *)(ip + 1);
		__u32 udp_bytes = bytes - ETHERNET_BYTES - IPV4_BYTES;

		if ((void *)(udp + 1) > end || bpf_ntohs(udp->len_bytes) != udp_bytes)
			return slow(ctx, control, counted, OUT_OF, SLOW_SHAPE);
		if (carried.is_summed && !is_sum_right(ctx, ip, udp_bytes))
			return slow(ctx, control, counted, OUT_OF, SLOW_CHECKSUM);
	}
	outer_ecn = ip->service & ECN_BITS;
	switch (carried.headers_bytes) {
	case VXLAN_BYTES:
		frame = start + VXLAN_BYTES;
		break;
	case GRE_BYTES:
		frame = start + GRE_BYTES;
		break;
	default:
		frame = start + GRE_KEY_BYTES;
		break;
	}
	eth = frame;
	if ((void *)(eth + 1) > end)
		return slow(ctx, control, counted, OUT_OF, SLOW_SIZE);
	key = station_key(eth->destination);
	if (is_reserved(key))
		return slow(ctx, control, counted, OUT_OF, SLOW_GROUP);
	macs = read_macs(eth);
	if (control->learns) {
		now_ns = tick_ns();
		key = in_network(station_key(eth->source), network);
		if (recent->out_of.from_key != key || recent->out_of.tick_ns != now_ns) {
			if (!find_source(control, counted, OUT_OF, key, recent->out_of.tunnel,
					 now_ns, &is_ready))
				return slow(ctx, control, counted, OUT_OF, SLOW_SOURCE);
			if (is_ready == WAITS)
				return slow(ctx, control, counted, OUT_OF, SLOW_WAITING);
			if (is_ready == HELD) {
				counted->frames[SEAM_DROPPED]++;
				return DROP;
			}
			recent->out_of.from_key = key;
			recent->out_of.tick_ns = now_ns;
		}
	}
	type = eth->type;
	inner.is_v4 = 0;
	if (!read_inner(frame, end, inner_len, &inner)) {
		if (!CARRIES_ALL)
			return slow(ctx, control, counted, OUT_OF, SLOW_SHAPE);
		/* Nothing to mark and nothing nested in other than IP. */
		if (eth->type == bpf_htons(TYPE_IPV4) || eth->type == bpf_htons(TYPE_IPV6) ||
		    eth->type == bpf_htons(TYPE_VLAN) || eth->type == bpf_htons(TYPE_QINQ))
			return slow(ctx, control, counted, OUT_OF, SLOW_SHAPE);
	} else {
		__u32 mark = inner.bits & ECN_BITS, result;

		if (inner.protocol == PROTOCOL_GRE ||
		    (inner.protocol == PROTOCOL_UDP &&
		     inner.port == bpf_htons(config.vxlan_port)))
			return slow(ctx, control, counted, OUT_OF, SLOW_NESTED);
		if (is_super(ctx) && segment_bytes(ctx, frame, end, &inner) > config.inner_bytes_max)
			return slow(ctx, control, counted, OUT_OF, SLOW_SIZE);
		if (config.unfinished[OUT_OF] && is_unfinished(frame, end, &inner))
			return slow(ctx, control, counted, OUT_OF, SLOW_CHECKSUM);
		result = config.ecn[(outer_ecn << 2 | mark) & 15];
		if (result & ECN_DROP) {
			counted->frames[CONGESTION]++;
			return DROP;
		}
		if (result & ECN_ODD)
			counted->frames[ODD_ECN]++;
		if ((result & ECN_BITS) != mark) {
			__be16 *word = (void *)(eth + 1);

			if (inner.is_v4) {
				struct ipv4 *packet = (void *)(eth + 1);
				__u16 old, new;

				if ((void *)(packet + 1) > end)
					return unwritable(counted);
				old = *word;
				packet->service = (packet->service & ~ECN_BITS) |
						  (result & ECN_BITS);
				new = *word;
				/* RFC 1624, equation 3. */
				packet->checksum = ~folded((__u16)~packet->checksum + (__u16)~old +
							   new);
			} else if ((void *)(word + 1) <= end) {
				*word = (*word & ~bpf_htons(ECN_BITS << 4)) |
					bpf_htons((result & ECN_BITS) << 4);
			}
		}
	}
	switch (carried.headers_bytes) {
	case VXLAN_BYTES:
		bytes = VXLAN_BYTES;
		break;
	case GRE_BYTES:
		bytes = GRE_BYTES;
		break;
	default:
		bytes = GRE_KEY_BYTES;
		break;
	}
	if (network)
		bytes -= TAG_BYTES;
	if (shrink(ctx, bytes, inner.is_v4))
		return slow(ctx, control, counted, OUT_OF, SLOW_SIZE);
	if (!write_opened(ctx, &macs, type))
		return unwritable(counted);
	if (network && !write_tag(ctx, &macs, network))
		return unwritable(counted);
	counted->frames[OUT_OF_SENT]++;
	if (is_super(ctx))
		counted->frames[OUT_OF_SUPER]++;
	return send(PORT);
}

#endif
