//! Compiles `bpf/*.bpf.c`, which `src/bpf` embeds.

fn main() {
    let shared = [
        "config",
        "fault",
        "scope",
        "counts",
        "delays",
        "run",
        "stage",
        "here",
        "drop",
        "interval",
        "slice",
        "call",
        "call_sum",
        "frames",
        "distinct",
        "place",
        "softirq",
        "copier",
        "copied",
        "hook_runs",
        "dropped",
        "kvm_key",
        "kvm_sum",
        "kvm_span",
        "kvm_lost",
        "service_port",
        "service_times",
        "service_totals",
        "service_wanted",
        "service_waiting",
    ];
    bpf_build::BpfSources { folder: "bpf", header_folders: &["crates/xdp/bpf"], shared: &shared }
        .build();
}
