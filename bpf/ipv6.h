/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The IPv6 header; its offsets are fixed by RFC 8200. */
#ifndef WIREPATH_IPV6_H
#define WIREPATH_IPV6_H

#include "frame.h"

#define TYPE_IPV6 0x86dd

struct ipv6 {
	__be32 first; /* version, traffic class, flow label */
	__be16 payload_bytes;
	__u8 next;
	__u8 hops;
	__be32 source[4];
	__be32 destination[4];
};

#endif
