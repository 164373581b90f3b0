/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Kernel structs with the members that tracing programs read; offsets come from BTF. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct rtnl_link_ops {
	const char *kind;
};

struct net_device {
	int ifindex;
	unsigned int flags;
	const struct rtnl_link_ops *rtnl_link_ops; /* NULL for a card and for loopback */
	possible_net_t nd_net;
};

struct dst_entry {
	struct net_device *dev;
};

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	unsigned char *head;
	unsigned int tail; /* from `head`, as the headers */
	unsigned int len;
	int skb_iif;
	__u32 mark;
	__u64 tstamp;
	unsigned long _skb_refdst; /* a dst_entry; its lowest bit is a flag */
	unsigned long _nfct;	   /* a connection; its lowest three bits are its state */
	__u8 cloned : 1;
	__u8 pkt_type : 3;
	__u8 mono_delivery_time : 1; /* Linux 5.18 to 6.9: `tstamp` is CLOCK_MONOTONIC */
	__u8 tstamp_type : 2;	     /* since: 1 for CLOCK_MONOTONIC */
	char cb[48];
	__be16 protocol;
	__u16 mac_header; /* 0xffff: none */
	__u16 network_header;
	__u16 transport_header;
};

/* In `cb`. */
struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
	__u32 ack_seq;
};

struct sk_buff_head {
	struct sk_buff *prev;
	__u32 qlen;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct inode {
	unsigned long i_ino;
};

/* A socket of a process, and its inode. */
struct socket_alloc {
	struct inode vfs_inode;
};

struct socket;

struct sock_common {
	__u16 skc_num; /* local port, host byte order */
	__be16 skc_dport;
	__u16 skc_family;
	unsigned char skc_state;
	possible_net_t skc_net;
};

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	__u16 sk_type;
	__u16 sk_protocol;
	__u8 sk_shutdown;
	int sk_err;
	struct socket *sk_socket;
	struct sock_cgroup_data sk_cgrp_data;
};

struct udp_sock {
	struct sk_buff_head reader_queue;
};

struct tcp_sock {
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 write_seq; /* behind the last byte that the program sent */
	__u32 snd_una;	 /* first byte that is not acknowledged */
};

struct tcp_congestion_ops {
	char name[16];
};

struct inet_connection_sock {
	const struct tcp_congestion_ops *icsk_ca_ops;
};

struct task_struct {
	int pid;
	int tgid;
};
#pragma clang attribute pop

#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define TCP_LISTEN 10
#define IFF_LOOPBACK 8
/* Depth of nested cgroups. */
#define LEVELS_MAX 16

/* Datagrams in a UDP socket; the reader takes them in batches into a queue of its own. */
static __always_inline __u32 datagrams_queued(struct sock *sk)
{
	return sk->sk_receive_queue.qlen + BPF_CORE_READ((struct udp_sock *)sk, reader_queue.qlen);
}

/* True if a process of this cgroup, or of one below it, created the socket. */
static __always_inline int is_of_cgroup(struct sock *sk, __u64 cgroup_id)
{
	struct cgroup *cgroup = sk->sk_cgrp_data.cgroup;
	struct cgroup_subsys_state *parent;

	for (int level = 0; level < LEVELS_MAX; level++) {
		if (!cgroup)
			return 0;
		if (cgroup->kn->id == cgroup_id)
			return 1;
		parent = cgroup->self.parent;
		if (!parent)
			return 0;
		cgroup = parent->cgroup;
	}
	return 0;
}

/* True for a segment with data, or the end of a stream; false for an acknowledgement alone. */
static __always_inline int tcp_carries(struct sk_buff *skb)
{
	struct tcp_skb_cb numbers = {};

	bpf_core_read(&numbers.seq, sizeof(numbers.seq), &((struct tcp_skb_cb *)skb->cb)->seq);
	bpf_core_read(&numbers.end_seq, sizeof(numbers.end_seq),
		      &((struct tcp_skb_cb *)skb->cb)->end_seq);
	return numbers.seq != numbers.end_seq;
}
