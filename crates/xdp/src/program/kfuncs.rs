//! Functions of the kernel that an XDP program calls, by their numbers in the kernel's types.
//!
//! Source: kernel documentation, bpf/btf.rst.

use std::io;

/// Types of the running kernel.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
/// Name, information, and size or type.
const COMMON_BYTES: usize = 12;
const KIND_FUNC: u32 = 12;

/// Numbers of the types of functions of the running kernel; `None` for one that it does not have.
///
/// Errors: the kernel does not show its types (CONFIG_DEBUG_INFO_BTF).
pub(super) fn numbers<const N: usize>(names: [&str; N]) -> io::Result<[Option<u32>; N]> {
    let types = std::fs::read(KERNEL_TYPES)?;
    numbers_in(&types, names)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the kernel's types are cut off"))
}

fn numbers_in<const N: usize>(btf: &[u8], names: [&str; N]) -> Option<[Option<u32>; N]> {
    let magic = btf.first_chunk::<2>()?;
    if u16::from_ne_bytes(*magic) != MAGIC {
        return None;
    }
    let header_bytes = word(btf, 4)? as usize;
    let section = |at| {
        let from = header_bytes.checked_add(word(btf, at)? as usize)?;
        btf.get(from..from.checked_add(word(btf, at + 4)? as usize)?)
    };
    let (types, strings) = (section(8)?, section(16)?);
    let mut found = [None; N];
    let (mut at, mut number) = (0, 1);
    while at < types.len() {
        let information = word(types, at + 4)?;
        let (kind, count) = (information >> 24 & 0x1f, information as usize & 0xffff);
        if kind == KIND_FUNC {
            let name = strings.get(word(types, at)? as usize..)?;
            if let Some(index) = names.iter().position(|wanted| is_named(name, wanted)) {
                found[index].get_or_insert(number);
            }
        }
        at += COMMON_BYTES + detail_bytes(kind, count);
        number += 1;
    }
    Some(found)
}

/// - `name`: the strings from the name on, which a zero byte ends.
fn is_named(name: &[u8], wanted: &str) -> bool {
    name.strip_prefix(wanted.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
}

/// Bytes behind the fields that every type has.
fn detail_bytes(kind: u32, count: usize) -> usize {
    match kind {
        // Integer, variable, tag of a declaration.
        1 | 14 | 17 => 4,
        // Array.
        3 => 12,
        // Struct, union, section of data, enumeration of 64 bits.
        4 | 5 | 15 | 19 => 12 * count,
        // Enumeration, prototype of a function.
        6 | 13 => 8 * count,
        _ => 0,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An integer, a struct of two members, and two functions.
    fn types() -> Vec<u8> {
        let strings = b"\0alpha\0beta\0";
        let types: [u32; 22] = [
            0,
            1 << 24,
            4,
            32, // int
            0,
            4 << 24 | 2,
            8,
            0,
            1,
            0,
            0,
            1,
            32, // struct
            1,
            12 << 24,
            1, // alpha
            7,
            12 << 24,
            1, // beta
            1,
            12 << 24,
            1, // alpha again
        ];
        let mut btf = Vec::from(MAGIC.to_ne_bytes());
        btf.extend([1, 0]);
        for n in [24, 0, types.len() as u32 * 4, types.len() as u32 * 4, strings.len() as u32] {
            btf.extend(u32::to_ne_bytes(n));
        }
        btf.extend(types.iter().flat_map(|n| n.to_ne_bytes()));
        btf.extend(strings);
        btf
    }

    #[test]
    fn a_function_has_the_number_of_its_place_among_all_types() {
        let found = numbers_in(&types(), ["beta", "alpha", "alph", "gamma"]).unwrap();
        assert_eq!(found, [Some(4), Some(3), None, None]);
    }

    proptest! {
        #[test]
        fn broken_types_are_no_fault(cut in 0_usize..140, at in 0_usize..140, value in any::<u8>()) {
            let mut btf = types();
            btf.truncate(cut);
            if let Some(byte) = btf.get_mut(at) {
                *byte = value;
            }
            let _ = numbers_in(&btf, ["alpha"]);
        }
    }
}
