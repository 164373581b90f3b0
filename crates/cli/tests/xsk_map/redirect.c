/* Passes every IPv4 frame to the AF_XDP socket of its queue: a program of another tool. */
typedef unsigned int u32;
typedef unsigned long long u64;

struct xdp_md {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};

static long (*redirect_map)(void *, u64, u64) = (void *)51;

struct {
	int (*type)[17]; /* BPF_MAP_TYPE_XSKMAP */
	int (*max_entries)[2];
	u32 *key;
	u32 *value;
} others __attribute__((section(".maps"), used));

__attribute__((section("xdp"), used)) int other(struct xdp_md *ctx)
{
	unsigned char *at = (void *)(long)ctx->data;

	if (at + 14 > (unsigned char *)(long)ctx->data_end)
		return 2; /* XDP_PASS */
	if (at[12] != 0x08 || at[13] != 0x00)
		return 2;
	return redirect_map(&others, ctx->rx_queue_index, 2);
}

char LICENSE[] __attribute__((section("license"), used)) = "GPL";
