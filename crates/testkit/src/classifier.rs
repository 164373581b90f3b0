//! BPF programs of one function, compiled for `tc` and `ip link`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Sets the hash of each frame to 1, for `tc filter add … bpf da obj FILE sec classifier`.
///
/// Source: bpf-helpers(7), bpf_set_hash, number 48.
pub const CONSTANT_HASH: &str = "static long (*set_hash)(void *, unsigned) = (void *)48;
__attribute__((section(\"classifier\"), used)) int hash(void *frame) { set_hash(frame, 1); return -1; }
char terms[] __attribute__((section(\"license\"), used)) = \"GPL\";
";

/// Passes each frame, for `ip link set … xdp obj FILE sec xdp`.
pub const XDP_PASS: &str =
    "__attribute__((section(\"xdp\"), used)) int pass(void *frame) { return 2; }
char terms[] __attribute__((section(\"license\"), used)) = \"GPL\";
";

/// Compiles a program with clang into a folder; returns its object file.
pub fn bpf_object(folder: &Path, source: &str) -> PathBuf {
    let (from, to) = (folder.join("program.c"), folder.join("program.o"));
    std::fs::write(&from, source).expect("a file");
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-O2", "-g", "-c"]).arg(&from).arg("-o").arg(&to);
    let output = clang.output().expect("clang runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    to
}
