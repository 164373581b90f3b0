/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Interface of a frame, and the namespace that is observed. */
#pragma once

#include "stack.h"

struct place {
	__u32 netns;
	__u32 ifindex;
};

struct config {
	__u32 netns; /* inode number; 0: all */
	__u32 pad;
};

const volatile struct config config = {};

/* Set when all programs are attached, so that their counts are of the same time. */
__u32 is_counting = 0;

/* False for a frame that is not counted: of no interface, or of one in another namespace. */
static __always_inline int place_of(struct net_device *dev, struct place *place)
{
	/* In sockets the stack keeps something else in its place: reading that is harmless. */
	if (!dev || !is_counting)
		return 0;
	place->netns = dev->nd_net.net->ns.inum;
	place->ifindex = dev->ifindex;
	return place->netns && (!config.netns || config.netns == place->netns);
}
