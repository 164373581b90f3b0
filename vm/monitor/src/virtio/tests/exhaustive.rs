//! Every table of four descriptors, out of all flags and all next numbers, against an independent reading
//! of the rules.

use crate::bus::{GuestMemory, PlainMemory};
use crate::virtio::DriverFault;
use crate::virtio::chain::{Chain, Direction, Rules, Segment};

const SIZE: u16 = 4;
const TABLE_AT: u32 = 0x100;
/// Numbers of the next descriptor: all that are in the table, and the first behind it.
const NEXTS: u16 = SIZE + 1;
/// Forms of a descriptor: three flags, and its next.
const FORMS: u32 = 8 * NEXTS as u32;

/// Flags and next of a descriptor.
type Form = (u16, u16);

fn form(n: u32) -> Form {
    ((n % 8) as u16, (n / 8) as u16)
}

/// Descriptor `index`: even ones describe the first two of the table, if they are a table, and odd ones have a length
/// that no table has.
fn descriptor(index: u16, (flags, next): Form) -> [u8; 16] {
    let len_bytes = if index.is_multiple_of(2) { 32u32 } else { 24 };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&u64::from(TABLE_AT).to_le_bytes());
    bytes[8..12].copy_from_slice(&len_bytes.to_le_bytes());
    bytes[12..14].copy_from_slice(&flags.to_le_bytes());
    bytes[14..].copy_from_slice(&next.to_le_bytes());
    bytes
}

/// True if a buffer may follow one with the form `last`.
fn is_right(written: bool, last: Option<Form>, rules: Rules) -> bool {
    match rules.direction {
        Direction::Read => !written,
        Direction::Written => written,
        Direction::Both => written || last.is_none_or(|(flags, _)| flags & 2 == 0),
    }
}

/// Descriptors whose buffers form the chain, or `None` if a rule is broken.
fn expected(forms: &[Form; SIZE as usize], rules: Rules) -> Option<Vec<u16>> {
    let (mut at, mut len, mut is_indirect, mut chain) = (0, SIZE, false, Vec::new());
    while at < len && chain.len() < usize::from(SIZE) {
        let (flags, next) = forms[usize::from(at)];
        let [has_next, written, is_table] = [1, 2, 4].map(|bit| flags & bit != 0);
        match is_table {
            true if rules.tables && !is_indirect && !has_next && at % 2 == 0 => {
                (at, len, is_indirect) = (0, 2, true);
            }
            false if is_right(written, chain.last().map(|&at| forms[usize::from(at)]), rules) => {
                chain.push(at);
                if !has_next {
                    return Some(chain);
                }
                at = next;
            }
            _ => return None,
        }
    }
    None
}

#[test]
fn every_table_of_four_descriptors_is_read_by_the_rules_and_to_an_end() {
    let memory = PlainMemory::new(0x200);
    let mut chain = Chain::default();
    let (mut whole, mut broken) = (0u64, 0u64);
    for n in 0..FORMS.pow(u32::from(SIZE)) {
        let forms: [Form; 4] = std::array::from_fn(|i| form(n / FORMS.pow(i as u32) % FORMS));
        for (index, form) in (0..SIZE).zip(forms) {
            let at = TABLE_AT + 16 * u32::from(index);
            memory.write(at, &descriptor(index, form)).expect("in memory");
        }
        let kinds = [(true, Direction::Read), (false, Direction::Written), (true, Direction::Both)];
        for (tables, direction) in kinds {
            let rules = Rules { queue: 0, size: SIZE, tables, direction };
            let read = chain.read(&memory, TABLE_AT, 0, rules);
            let Some(expected) = expected(&forms, rules) else {
                broken += 1;
                assert!(read.is_err(), "{forms:?} {rules:?}");
                assert!(!matches!(read, Err(DriverFault::Memory(_))), "{forms:?} {rules:?}");
                continue;
            };
            whole += 1;
            assert_eq!(read, Ok(()), "{forms:?} {rules:?}");
            let lens = expected.iter().map(|at| if at % 2 == 0 { 32 } else { 24 });
            let segments = lens.map(|len_bytes| Segment { at: TABLE_AT, len_bytes });
            assert!(chain.segments.iter().copied().eq(segments), "{forms:?} {rules:?}");
            let read_count =
                expected.iter().filter(|at| forms[usize::from(**at)].0 & 2 == 0).count();
            assert_eq!(chain.read_count, read_count, "{forms:?} {rules:?}");
        }
    }
    assert!(whole > 500_000 && broken > 500_000, "{whole} {broken}");
}
