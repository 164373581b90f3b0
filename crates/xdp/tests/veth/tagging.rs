//! A program that gives each frame that an interface sends a VLAN tag beside its bytes, as a VLAN device does.

use std::os::fd::{AsFd, OwnedFd};

use crate::bpf::{Program, attach, load};
use crate::instructions::Instruction;

const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_TCX_EGRESS: u32 = 47;

fn instruction(code: u64, to: u64, immediate: u64) -> Instruction {
    Instruction(code | to << 8 | immediate << 32)
}

/// Attaches it until the result drops; in the interface's namespace.
pub(crate) fn tag_all_sent(ifindex: u32, tag: u16) -> [OwnedFd; 2] {
    let protocol = u64::from(0x8100_u16.to_be());
    let instructions = [
        // r2 = protocol, r3 = tag; bpf_skb_vlan_push (18).
        instruction(0xb7, 2, protocol),
        instruction(0xb7, 3, tag.into()),
        instruction(0x85, 0, 18),
        // r0 = TCX_NEXT (-1); exit.
        instruction(0xb7, 0, 0xffff_ffff),
        instruction(0x95, 0, 0),
    ];
    let program = Program {
        instructions: &instructions,
        kind: BPF_PROG_TYPE_SCHED_CLS,
        attach_type: BPF_TCX_EGRESS,
        flags: 0,
        ifindex: 0,
    };
    let program = load(&program).expect("the verifier takes it");
    let link = attach(program.as_fd(), ifindex, BPF_TCX_EGRESS, 0).expect("Linux 6.6");
    [link, program]
}
