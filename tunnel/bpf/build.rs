//! Compiles `*.bpf.c` of this folder, with the headers of `bpf/`.

fn main() {
    let shared = ["config", "counts", "control", "header", "ends", "segment", "station"];
    bpf_build::BpfSources { folder: "tunnel/bpf", header_folders: &["bpf"], shared: &shared }
        .build();
}
