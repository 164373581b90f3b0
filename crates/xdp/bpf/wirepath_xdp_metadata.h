/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Writes metadata in front of a frame, for RxMetadata::take of crate wirepath-xdp. For XDP programs in C of your own:
 * bound to the device (BPF_F_XDP_DEV_BOUND_ONLY with its ifindex) and attached in native mode.
 *
 * Include linux/bpf.h and bpf/bpf_helpers.h first. Source: kernel documentation, networking/xdp-rx-metadata.rst.
 */
#ifndef WIREPATH_XDP_METADATA_H
#define WIREPATH_XDP_METADATA_H

#define WIREPATH_XDP_STAMP 1
#define WIREPATH_XDP_HASH 2
#define WIREPATH_XDP_VLAN 4

struct wirepath_xdp_metadata {
	__u64 stamp_ns;
	__u32 hash;
	__u32 hash_type;
	__be16 vlan_protocol;
	__u16 vlan_tag;
	__u32 fields; /* bits of WIREPATH_XDP_... that the driver gave */
	__u64 key;    /* MetadataKey::word(): next to the frame */
};

enum xdp_rss_hash_type;

extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, __u64 *timestamp) __ksym __weak;
extern int bpf_xdp_metadata_rx_hash(const struct xdp_md *ctx, __u32 *hash,
				    enum xdp_rss_hash_type *rss_type) __ksym __weak;
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *vlan_proto,
					__u16 *vlan_tci) __ksym __weak;

/* Without room in front of the frame there is no metadata. */
static __always_inline void wirepath_xdp_write_metadata(struct xdp_md *ctx,
							struct wirepath_xdp_metadata *found,
							__u64 key)
{
	struct wirepath_xdp_metadata *at;

	found->key = key;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*at)))
		return;
	at = (void *)(long)ctx->data_meta;
	if ((void *)(at + 1) > (void *)(long)ctx->data)
		return;
	*at = *found;
}

/* Writes what the driver offers. */
static __always_inline void wirepath_xdp_put_metadata(struct xdp_md *ctx, __u64 key)
{
	struct wirepath_xdp_metadata found = {};

	if (bpf_ksym_exists(bpf_xdp_metadata_rx_timestamp) &&
	    !bpf_xdp_metadata_rx_timestamp(ctx, &found.stamp_ns))
		found.fields |= WIREPATH_XDP_STAMP;
	if (bpf_ksym_exists(bpf_xdp_metadata_rx_hash) &&
	    !bpf_xdp_metadata_rx_hash(ctx, &found.hash, (void *)&found.hash_type))
		found.fields |= WIREPATH_XDP_HASH;
	if (bpf_ksym_exists(bpf_xdp_metadata_rx_vlan_tag) &&
	    !bpf_xdp_metadata_rx_vlan_tag(ctx, &found.vlan_protocol, &found.vlan_tag))
		found.fields |= WIREPATH_XDP_VLAN;
	wirepath_xdp_write_metadata(ctx, &found, key);
}

#endif
