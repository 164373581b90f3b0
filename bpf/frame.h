/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Frame headers, as far as these programs read them.
 *
 * Own declarations of the packet headers, because their offsets are fixed by
 * RFC 791, RFC 768 and IEEE 802.1Q, and so that <linux/bpf.h> is the only
 * kernel header needed to build.
 */
#ifndef WIREPATH_FRAME_H
#define WIREPATH_FRAME_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TYPE_IPV4 0x0800
#define TYPE_ARP 0x0806
#define TYPE_VLAN 0x8100
#define TYPE_QINQ 0x88a8

/* TCX_NEXT and TCX_DROP, which older <linux/bpf.h> do not have. */
#define TC_NEXT (-1)
#define TC_DROP 2

/* VLAN in a tag, beside its priority. */
#define VLAN_MASK 0x0fff

#define PROTOCOL_ICMP 1
#define PROTOCOL_UDP 17

/* More fragments, or an offset: either way not a whole datagram. */
#define FRAGMENT_MASK 0x3fff

struct ethernet {
	__u8 destination[6];
	__u8 source[6];
	__be16 type;
};

struct vlan {
	__be16 tag;
	__be16 type;
};

struct ipv4 {
	__u8 version_words; /* version << 4 | header length in 32-bit words */
	__u8 service;
	__be16 total_bytes;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__be16 checksum;
	__be32 source;
	__be32 destination;
};

struct udp {
	__be16 source;
	__be16 destination;
	__be16 len_bytes;
	__be16 checksum;
};

/* Header length in bytes, or 0 when this is no IPv4 header. */
static __always_inline __u32 ipv4_header_bytes(const struct ipv4 *ip)
{
	__u32 bytes = (ip->version_words & 0x0f) * 4;

	return (ip->version_words >> 4) == 4 && bytes >= sizeof(*ip) ? bytes : 0;
}

#endif
