/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Requests of one TCP service: the time from the arrival of a request to the first send of its
 * answer, and to the acknowledgement of all of it; and requests that wait.
 *
 * A request is data that arrives while no request is open. It ends with the first byte that is
 * sent after it. Bytes sent are known by the connection's `write_seq`, so a send that returns
 * after the next request arrived is not taken for the answer of that one.
 */
#include "stack.h"

#define PORTS_MAX 16
/* As numbered in sys::bpf::service. */
#define TO_FIRST_SEND 0
#define TO_LAST_ACK 1
#define TIMES 2
/* 64 bins to a power of two, up to 2^36 ns. */
#define BINS 2048
#define BIN_BITS 6
#define NS_MAX ((1ULL << 36) - 1)
/* What is open longer is no request that will be answered: data that asks for nothing. */
#define STALE_NS 60000000000ULL
#define LATE_NS 500000000ULL
#define ACTIVE_NS 10000000000ULL

#define TCP_ESTABLISHED 1
#define TCP_FIN_WAIT1 4
#define TCP_FIN_WAIT2 5
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8
#define TCP_LAST_ACK 9
#define TCP_CLOSING 11
#define ECONNRESET 104
#define EPIPE 32

struct service_port {
	__u32 netns;
	__u32 port;
};

struct config {
	__u32 ports_count;
	__u32 pad;
	struct service_port ports[PORTS_MAX];
};

const volatile struct config config = {};

/* As numbered in sys::bpf::service. */
#define ANY 0
#define BY_CONGESTION_CONTROL 1
#define BY_AGE 2

/* The connections whose requests are counted in `wanted`. Written while the programs run. */
struct service_wanted {
	__u64 slow_limit_ns; /* requests slower than this are counted; 0: none */
	__u64 opened_after_ns;
	__u32 kind;
	__u32 pad;
	char congestion_control[16];
};

struct service_wanted wanted SEC(".data") = { .kind = 0 };

/* Result of the last run of `waiting`. */
struct service_waiting {
	__u64 oldest_ns;
	__u32 late_count;   /* connections that wait longer than LATE_NS */
	__u32 active_count; /* those with a request in the last ACTIVE_NS, or waiting */
	__u32 open_count;   /* those with a request that is not answered */
	__u32 unacknowledged_count;
};

struct service_waiting waited = {};

struct service_totals {
	__u64 answered;
	__u64 slow;
	__u64 wanted;	    /* of `answered`: on connections as in `struct service_wanted` */
	__u64 refused;	    /* closed by the service without an answer, or given up by the kernel */
	__u64 abandoned;    /* closed by the client before the answer */
	__u64 stale;	    /* answered after more than STALE_NS, and not timed */
	__u64 acknowledged; /* answers that were acknowledged whole */
	__u64 overtaken;    /* answers that were followed by the next before that */
	__u64 unasked;	    /* sends without a request */
	__u64 resent;	    /* segments */
	__u64 untracked;    /* no memory for the connection's state */
};

struct service_times {
	__u64 sum_ns;
	__u32 bins[BINS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct service_totals);
} totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TIMES);
	__type(key, __u32);
	__type(value, struct service_times);
} times SEC(".maps");

struct connection {
	struct bpf_spin_lock lock;
	__u32 asked_seq; /* `write_seq` when the open request arrived */
	__u64 asked_ns;	 /* its arrival; 0: none is open */
	/* The request whose answer is being sent: */
	__u64 answered_ns; /* its arrival; 0: none */
	__u64 last_ack_ns; /* time that was added for it; 0: none yet */
	__u32 acked_seq;   /* `write_seq` at which all was acknowledged */
	__u32 written_seq; /* `write_seq` seen last */
	__u32 una;	   /* acknowledgement seen last */
	__u32 pad;
	__u64 progress_ns; /* when it grew, or when something was sent after all was acknowledged */
	__u64 active_ns;   /* last request */
	__u64 opened_ns;   /* 0: before tracing */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} connections SEC(".maps");

/* Result of a step under the lock, added to the sums behind it. */
struct step {
	__u64 first_ns;	    /* time to the first send; 0: none */
	__u64 last_ns;	    /* time to the last acknowledgement; 0: none */
	__u64 undone_ns;    /* an earlier such time of the same answer */
	__u32 is_overtaken;
};

static __always_inline int is_of_service(struct sock *sk)
{
	__u32 i;

	for (i = 0; i < PORTS_MAX; i++) {
		if (i >= config.ports_count)
			break;
		if (sk->__sk_common.skc_num == config.ports[i].port &&
		    sk->__sk_common.skc_net.net->ns.inum == config.ports[i].netns)
			return 1;
	}
	return 0;
}

static __always_inline __u32 bin_of(__u64 ns)
{
	__u32 power = 0;
	__u64 value = ns > NS_MAX ? NS_MAX : ns;

	if (value < 1 << (BIN_BITS + 1))
		return value;
	ns = value;
	if (ns >> 32) { power += 32; ns >>= 32; }
	if (ns >> 16) { power += 16; ns >>= 16; }
	if (ns >> 8) { power += 8; ns >>= 8; }
	if (ns >> 4) { power += 4; ns >>= 4; }
	if (ns >> 2) { power += 2; ns >>= 2; }
	if (ns >> 1) power += 1;
	return ((power - BIN_BITS + 1) << BIN_BITS) +
	       ((value >> (power - BIN_BITS)) & ((1 << BIN_BITS) - 1));
}

/* A program may interrupt another one of the same CPU, so additions are atomic. */
static __always_inline void add_time(__u32 which, __u64 ns, int sign)
{
	struct service_times *all = bpf_map_lookup_elem(&times, &which);
	__u32 bin = bin_of(ns) & (BINS - 1);

	if (!all)
		return;
	__sync_fetch_and_add(&all->sum_ns, sign > 0 ? ns : -ns);
	__sync_fetch_and_add(&all->bins[bin], sign);
}

static __always_inline struct service_totals *totals_of_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&totals, &zero);
}

#define COUNT(member)                                                \
	do {                                                         \
		struct service_totals *all = totals_of_cpu();        \
		if (all)                                             \
			__sync_fetch_and_add(&all->member, 1);       \
	} while (0)

static __always_inline int is_wanted(struct sock *sk, struct connection *connection)
{
	char name[16] = {};

	if (wanted.kind == BY_AGE)
		return connection->opened_ns && connection->opened_ns >= wanted.opened_after_ns;
	if (wanted.kind != BY_CONGESTION_CONTROL)
		return 0;
	bpf_probe_read_kernel_str(
		name, sizeof(name),
		BPF_CORE_READ((struct inet_connection_sock *)sk, icsk_ca_ops, name));
	for (int i = 0; i < 16; i++) {
		if (name[i] != wanted.congestion_control[i])
			return 0;
		if (!name[i])
			break;
	}
	return 1;
}

static __always_inline void add_step(struct sock *sk, struct connection *connection,
				     struct step *step)
{
	if (step->first_ns > STALE_NS) {
		COUNT(stale);
	} else if (step->first_ns) {
		COUNT(answered);
		add_time(TO_FIRST_SEND, step->first_ns, 1);
		if (wanted.slow_limit_ns && step->first_ns > wanted.slow_limit_ns)
			COUNT(slow);
		if (wanted.kind && is_wanted(sk, connection))
			COUNT(wanted);
	}
	if (step->is_overtaken)
		COUNT(overtaken);
	if (step->undone_ns)
		add_time(TO_LAST_ACK, step->undone_ns, -1);
	else if (step->last_ns && step->last_ns <= STALE_NS)
		COUNT(acknowledged);
	if (step->last_ns && step->last_ns <= STALE_NS)
		add_time(TO_LAST_ACK, step->last_ns, 1);
}

/* Under the lock: the answer of the open request has begun. */
static __always_inline void begin_answer(struct connection *connection, __u64 now,
					 struct step *step)
{
	step->first_ns = now - connection->asked_ns;
	step->is_overtaken = connection->answered_ns && !connection->last_ack_ns;
	connection->answered_ns = connection->asked_ns;
	connection->last_ack_ns = 0;
	connection->asked_ns = 0;
}

/* Under the lock: all that was sent so far is acknowledged. More may follow: then this time is taken back. */
static __always_inline void end_answer(struct connection *connection, __u32 end, __u64 now,
				       struct step *step)
{
	__u64 ns = now - connection->answered_ns;

	if (connection->acked_seq == end && connection->last_ack_ns)
		return;
	step->undone_ns = connection->last_ack_ns <= STALE_NS ? connection->last_ack_ns : 0;
	step->last_ns = ns;
	connection->last_ack_ns = ns;
	connection->acked_seq = end;
}

/* 1 for the last segment of a stream, whose end takes a number too. */
static __always_inline __u32 has_end(struct sk_buff *skb)
{
	__u8 flags = 0;

	bpf_probe_read_kernel(&flags, 1, skb->head + skb->transport_header + 13);
	return flags & 1;
}

/* A segment of an established connection, before TCP takes its acknowledgement and its data. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(segment, struct sock *sk, struct sk_buff *skb)
{
	struct connection *connection;
	struct tcp_skb_cb numbers = {};
	struct step step = {};
	struct tcp_sock *tcp;
	__u32 written, end;
	int is_new;
	__u64 now;

	if (!is_of_service(sk))
		return 0;
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return 0;
	bpf_core_read(&numbers.seq, sizeof(__u32), &((struct tcp_skb_cb *)skb->cb)->seq);
	bpf_core_read(&numbers.end_seq, sizeof(__u32), &((struct tcp_skb_cb *)skb->cb)->end_seq);
	bpf_core_read(&numbers.ack_seq, sizeof(__u32), &((struct tcp_skb_cb *)skb->cb)->ack_seq);
	is_new = numbers.seq != numbers.end_seq &&
		 (__s32)(numbers.end_seq - has_end(skb) - tcp->rcv_nxt) > 0;
	connection = bpf_sk_storage_get(&connections, sk, 0,
					is_new ? BPF_SK_STORAGE_GET_F_CREATE : 0);
	if (!connection) {
		if (is_new)
			COUNT(untracked);
		return 0;
	}
	now = bpf_ktime_get_ns();
	bpf_spin_lock(&connection->lock);
	written = tcp->write_seq;
	if (connection->asked_ns && written != connection->asked_seq)
		begin_answer(connection, now, &step);
	if (connection->answered_ns) {
		end = connection->asked_ns ? connection->asked_seq : written;
		if ((__s32)(numbers.ack_seq - tcp->snd_una) > 0) {
			connection->una = numbers.ack_seq;
			connection->progress_ns = now;
		}
		if ((__s32)(numbers.ack_seq - end) >= 0)
			end_answer(connection, end, now, &step);
	}
	if (is_new) {
		connection->active_ns = now;
		if (!connection->asked_ns) {
			connection->asked_ns = now;
			connection->asked_seq = written;
		}
	}
	connection->written_seq = written;
	bpf_spin_unlock(&connection->lock);
	add_step(sk, connection, &step);
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(sent, struct sock *sk, int bytes, int flags)
{
	struct connection *connection;
	struct step step = {};
	struct tcp_sock *tcp;
	__u32 written, una;
	int is_asked;
	__u64 now;

	if (bytes <= 0 || sk->sk_protocol != PROTOCOL_TCP || !is_of_service(sk))
		return 0;
	connection = bpf_sk_storage_get(&connections, sk, 0, 0);
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!connection || !tcp)
		return 0;
	now = bpf_ktime_get_ns();
	bpf_spin_lock(&connection->lock);
	written = tcp->write_seq;
	una = tcp->snd_una;
	if (connection->asked_ns && written != connection->asked_seq)
		begin_answer(connection, now, &step);
	is_asked = connection->answered_ns || connection->asked_ns;
	if (connection->written_seq != written && (__s32)(una - connection->written_seq) >= 0)
		connection->progress_ns = now;
	connection->written_seq = written;
	/* Over loopback the acknowledgement may come before the send returns. */
	if (connection->answered_ns && !connection->asked_ns && una == written)
		end_answer(connection, written, now, &step);
	bpf_spin_unlock(&connection->lock);
	if (!is_asked)
		COUNT(unasked);
	add_step(sk, connection, &step);
	return 0;
}

/* A connection that is closed has no port any more, but its state here. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(changed, struct sock *sk, int before, int after)
{
	int is_refused = 0, is_abandoned = 0, is_acked, error;
	struct connection *connection;
	struct step step = {};
	struct tcp_sock *tcp;
	__u32 written;
	__u64 now;

	if (sk->sk_protocol != PROTOCOL_TCP)
		return 0;
	if (after == TCP_ESTABLISHED) {
		if (!is_of_service(sk))
			return 0;
		connection = bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
		if (connection)
			connection->opened_ns = bpf_ktime_get_ns();
		return 0;
	}
	connection = bpf_sk_storage_get(&connections, sk, 0, 0);
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!connection || !tcp)
		return 0;
	error = sk->sk_err;
	now = bpf_ktime_get_ns();
	is_acked = (before == TCP_FIN_WAIT1 && after == TCP_FIN_WAIT2) ||
		   ((before == TCP_LAST_ACK || before == TCP_CLOSING) && !error);
	bpf_spin_lock(&connection->lock);
	written = tcp->write_seq;
	if (after == TCP_FIN_WAIT1 || after == TCP_LAST_ACK || after == TCP_CLOSE) {
		if (connection->asked_ns && written == connection->asked_seq) {
			is_abandoned = before == TCP_CLOSE_WAIT || error == ECONNRESET ||
				       error == EPIPE;
			is_refused = !is_abandoned;
		}
		connection->asked_ns = 0;
	}
	/* The end of the stream is acknowledged, and it has a number of its own. */
	if (is_acked && connection->answered_ns &&
	    !(connection->last_ack_ns && connection->acked_seq == written - 1))
		end_answer(connection, written, now, &step);
	bpf_spin_unlock(&connection->lock);
	if (is_refused)
		COUNT(refused);
	if (is_abandoned)
		COUNT(abandoned);
	add_step(sk, connection, &step);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(resent, struct sock *sk)
{
	if (is_of_service(sk))
		COUNT(resent);
	return 0;
}

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct bpf_iter_meta;
struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
	__u32 uid;
};
#pragma clang attribute pop

/*
 * Each TCP socket of the loader's namespace, when it asks: how long a connection of the service
 * waits. Some kernels permit no iterator over a map.
 */
SEC("iter/tcp")
int waiting(struct bpf_iter__tcp *ctx)
{
	struct sock_common *sk = ctx->sk_common;
	struct connection *connection;
	__u32 written, una, state;
	__u64 now, ns, begun_ns, longest = 0;
	struct tcp_sock *tcp;

	if (!sk)
		return 0;
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return 0;
	connection = bpf_sk_storage_get(&connections, tcp, 0, 0);
	if (!connection)
		return 0;
	now = bpf_ktime_get_ns();
	state = sk->skc_state;
	if (state == TCP_CLOSE)
		return 0;
	written = tcp->write_seq;
	una = tcp->snd_una;
	if (connection->asked_ns && written == connection->asked_seq) {
		ns = now - connection->asked_ns;
		if ((__s64)ns > 0 && ns <= STALE_NS) {
			waited.open_count++;
			longest = ns;
		}
	}
	if (connection->answered_ns && una != written && state != TCP_FIN_WAIT2) {
		/* Acknowledgements of a connection that is being closed are seen here alone. */
		if (connection->una != una) {
			connection->una = una;
			connection->progress_ns = now;
		}
		begun_ns = connection->progress_ns;
		if (begun_ns < connection->answered_ns)
			begun_ns = connection->answered_ns;
		ns = now - begun_ns;
		if ((__s64)ns > 0 && ns <= STALE_NS) {
			waited.unacknowledged_count++;
			if (ns > longest)
				longest = ns;
		}
	}
	if (longest || now - connection->active_ns <= ACTIVE_NS)
		waited.active_count++;
	if (longest > LATE_NS)
		waited.late_count++;
	if (longest > waited.oldest_ns)
		waited.oldest_ns = longest;
	return 0;
}

/* Empty program: measures the cost of counting runs. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(empty)
{
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
