//! Instructions of BPF, and the two programs of this crate.
//!
//! Source: kernel documentation, bpf/standardization/instruction-set.rst.

use crate::metadata::{MetadataKey, RX_METADATA_BYTES, field, place};

/// Registers: result, arguments, and those that a call keeps.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const R5: u8 = 5;
const CTX: u8 = 6;
const FIELDS: u8 = 7;
const STACK: u8 = 10;

/// Places in `struct xdp_md`.
const MD_DATA: i16 = 0;
const MD_DATA_META: i16 = 8;
const MD_RX_QUEUE: i16 = 16;

/// Helpers by number.
const BPF_REDIRECT_MAP: i32 = 51;
const BPF_XDP_ADJUST_META: i32 = 54;

const XDP_PASS: i32 = 2;

/// An argument is a descriptor of a map; a call is of a function of the kernel.
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_KFUNC_CALL: u8 = 2;

const LOAD_IMMEDIATE_64: u8 = 0x18;
const LOAD_32: u8 = 0x61;
const LOAD_64: u8 = 0x79;
const STORE_32: u8 = 0x63;
const STORE_64: u8 = 0x7b;
const STORE_IMMEDIATE_64: u8 = 0x7a;
const ADD_IMMEDIATE: u8 = 0x07;
const OR_IMMEDIATE: u8 = 0x47;
const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const JUMP_IF_GREATER: u8 = 0x2d;
const JUMP_IF_NOT_EQUAL: u8 = 0x55;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// struct bpf_insn.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    code: u8,
    /// Destination in the lower half.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    // The kernel's bit field begins at the other end on a big-endian machine.
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    Instruction { code, registers, offset, immediate }
}

/// Loads a number of 64 bits, which takes two instructions.
fn load_immediate(to: u8, kind: u8, value: u64) -> [Instruction; 2] {
    [
        instruction(LOAD_IMMEDIATE_64, to, kind, 0, value as u32 as i32),
        instruction(0, 0, 0, 0, (value >> 32) as i32),
    ]
}

/// Redirects each frame to the socket of its queue; passes it to the stack if the queue has none.
pub(super) fn redirect(sockets: i32) -> Vec<Instruction> {
    let mut program = vec![instruction(MOVE, CTX, R1, 0, 0)];
    push_redirect(&mut program, sockets);
    program
}

fn push_redirect(program: &mut Vec<Instruction>, sockets: i32) {
    program.extend(load_immediate(R1, PSEUDO_MAP_FD, sockets as u64));
    program.extend([
        instruction(LOAD_32, R2, CTX, MD_RX_QUEUE, 0),
        instruction(MOVE_IMMEDIATE, R3, 0, 0, XDP_PASS),
        instruction(CALL, 0, 0, 0, BPF_REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ]);
}

/// Numbers of the kernel's functions that read hints; `None` for one that this kernel does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Hints {
    pub(super) stamp: Option<u32>,
    pub(super) hash: Option<u32>,
    pub(super) vlan: Option<u32>,
}

/// Offset of a part of the metadata, which the stack ends with.
fn stack_offset(place: usize) -> i16 {
    place as i16 - RX_METADATA_BYTES as i16
}

/// As [`redirect`], with metadata in front of each frame that has room for it.
pub(super) fn redirect_with_metadata(
    sockets: i32,
    hints: Hints,
    key: MetadataKey,
) -> Vec<Instruction> {
    const BYTES: i32 = RX_METADATA_BYTES as i32;
    let mut program =
        vec![instruction(MOVE, CTX, R1, 0, 0), instruction(MOVE_IMMEDIATE, FIELDS, 0, 0, 0)];
    for word in (0..RX_METADATA_BYTES).step_by(8) {
        program.push(instruction(STORE_IMMEDIATE_64, STACK, 0, stack_offset(word), 0));
    }
    for (function, bit, places) in [
        (hints.stamp, field::STAMP, &[place::STAMP][..]),
        (hints.hash, field::HASH, &[place::HASH, place::HASH_TYPE]),
        (hints.vlan, field::VLAN, &[place::VLAN_PROTOCOL, place::VLAN_TAG]),
    ] {
        let Some(function) = function else { continue };
        program.push(instruction(MOVE, R1, CTX, 0, 0));
        for (argument, place) in (R2..).zip(places) {
            program.push(instruction(MOVE, argument, STACK, 0, 0));
            program.push(instruction(ADD_IMMEDIATE, argument, 0, 0, stack_offset(*place).into()));
        }
        program.push(instruction(CALL, 0, PSEUDO_KFUNC_CALL, 0, function as i32));
        // An error: the driver has no such hint, or none of this frame.
        program.push(instruction(JUMP_IF_NOT_EQUAL, R0, 0, 1, 0));
        program.push(instruction(OR_IMMEDIATE, FIELDS, 0, 0, bit as i32));
    }
    program.push(instruction(STORE_32, STACK, FIELDS, stack_offset(place::FIELDS), 0));
    program.extend(load_immediate(R1, 0, key.word()));
    program.push(instruction(STORE_64, STACK, R1, stack_offset(place::KEY), 0));
    let mut put = vec![
        instruction(LOAD_32, R2, CTX, MD_DATA_META, 0),
        instruction(LOAD_32, R3, CTX, MD_DATA, 0),
        instruction(MOVE, R4, R2, 0, 0),
        instruction(ADD_IMMEDIATE, R4, 0, 0, BYTES),
    ];
    let mut copy = Vec::new();
    for word in (0..RX_METADATA_BYTES).step_by(8) {
        copy.push(instruction(LOAD_64, R5, STACK, stack_offset(word), 0));
        copy.push(instruction(STORE_64, R2, R5, word as i16, 0));
    }
    put.push(instruction(JUMP_IF_GREATER, R4, R3, copy.len() as i16, 0));
    put.extend(copy);
    program.extend([
        instruction(MOVE, R1, CTX, 0, 0),
        instruction(MOVE_IMMEDIATE, R2, 0, 0, -BYTES),
        instruction(CALL, 0, 0, 0, BPF_XDP_ADJUST_META),
        instruction(JUMP_IF_NOT_EQUAL, R0, 0, put.len() as i16, 0),
    ]);
    program.extend(put);
    push_redirect(&mut program, sockets);
    program
}
