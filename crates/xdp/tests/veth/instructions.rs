//! Instructions of the tests' own program.

/// struct bpf_insn, as a number of 64 bits.
#[repr(transparent)]
pub(crate) struct Instruction(pub(crate) u64);
