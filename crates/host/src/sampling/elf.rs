//! Functions of an ELF file, by their place in it.
//!
//! The file is the user's own, and may be made up: each length is checked before it is read, and nothing in it makes a panic.
//!
//! Source: elf(5).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::demangle::demangled;

/// Most symbols of a file that are read.
const SYMBOLS_MAX: u64 = 1 << 20;
/// Most bytes of names that are read.
const NAMES_BYTES_MAX: u64 = 64 << 20;
const SECTIONS_MAX: u64 = 1 << 14;
const SEGMENTS_MAX: u64 = 1 << 10;

/// Sizes of the tables' entries in files of 64 bits.
const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;

const LOAD: u32 = 1;
const SYMBOL_TABLE: u32 = 2;
const DYNAMIC_SYMBOLS: u32 = 11;
/// STT_FUNC, STT_GNU_IFUNC.
const FUNCTIONS: [u8; 2] = [2, 10];
const LOCAL: u8 = 0;

#[derive(Debug, thiserror::Error)]
pub(super) enum ElfError {
    #[error("it cannot be read")]
    Read(#[from] io::Error),
    #[error("it is not an ELF file of 64 bits in this machine's byte order")]
    Kind,
    #[error("its {what} has {count} entries, more than {max}")]
    TooLarge { what: &'static str, count: u64, max: u64 },
}

/// Functions that a file names.
#[derive(Debug, Default)]
pub(super) struct ElfFunctions {
    segments: Vec<Segment>,
    /// In ascending order, one for each address.
    functions: Vec<Function>,
    /// Names, each ended by a 0.
    names: Vec<u8>,
}

/// Part of the file that is mapped.
#[derive(Debug)]
struct Segment {
    offset_bytes: u64,
    len_bytes: u64,
    address: u64,
}

#[derive(Debug, Clone, Copy)]
struct Function {
    start: u64,
    /// `start` if the file does not say how long it is.
    end: u64,
    /// Offset in the names.
    name: u32,
    is_local: bool,
}

impl ElfFunctions {
    /// Errors: it is not such a file, or its tables are too large.
    pub(super) fn read(file: &File) -> Result<ElfFunctions, ElfError> {
        let header = Bytes::read(file, 0, HEADER_BYTES)?;
        let data = if cfg!(target_endian = "little") { 1 } else { 2 };
        if header.0.get(..6) != Some(&[0x7f, b'E', b'L', b'F', 2, data]) {
            return Err(ElfError::Kind);
        }
        let [segments_at, sections_at] = [32, 40].map(|at| header.u64(at));
        let [segment_bytes, segment_count, section_bytes, section_count] =
            [54, 56, 58, 60].map(|at| u64::from(header.u16(at)));
        let is_usual =
            segment_bytes == SEGMENT_BYTES as u64 && section_bytes == SECTION_BYTES as u64;
        if !is_usual && section_count > 0 {
            return Err(ElfError::Kind);
        }
        let segments = table(file, segments_at, segment_count, SEGMENT_BYTES, "segments")?;
        let segments = segments.entries(SEGMENT_BYTES).filter(|of| of.u32(0) == LOAD);
        let segments = segments.map(|of| Segment {
            offset_bytes: of.u64(8),
            address: of.u64(16),
            len_bytes: of.u64(32),
        });
        let sections = table(file, sections_at, section_count, SECTION_BYTES, "sections")?;
        let mut elf = ElfFunctions { segments: segments.collect(), ..ElfFunctions::default() };
        // The whole table has those of the dynamic one, too.
        for kind in [SYMBOL_TABLE, DYNAMIC_SYMBOLS] {
            let found = sections.entries(SECTION_BYTES).find(|of| of.u32(4) == kind);
            let Some(symbols) = found else { continue };
            let names_at = usize::try_from(symbols.u32(40)).ok();
            let Some(names) = names_at.and_then(|at| sections.entries(SECTION_BYTES).nth(at))
            else {
                continue;
            };
            elf.read_symbols(file, &symbols, &names)?;
            if !elf.functions.is_empty() {
                break;
            }
        }
        Ok(elf)
    }

    fn read_symbols(
        &mut self,
        file: &File,
        symbols: &Bytes<'_>,
        names: &Bytes<'_>,
    ) -> Result<(), ElfError> {
        let (at, len_bytes) = (symbols.u64(24), symbols.u64(32));
        let symbols =
            table(file, at, len_bytes / SYMBOL_BYTES as u64, SYMBOL_BYTES, "table of symbols")?;
        let (at, len_bytes) = (names.u64(24), names.u64(32));
        self.names = table(file, at, len_bytes, 1, "table of names")?.0.into_owned();
        let functions = symbols.entries(SYMBOL_BYTES).filter_map(|of| {
            let (name, kind, section) = (of.u32(0), of.u8(4), of.u16(6));
            let (start, len_bytes) = (of.u64(8), of.u64(16));
            let is_here = FUNCTIONS.contains(&(kind & 0xf)) && section != 0 && start != 0;
            is_here.then(|| Function {
                start,
                end: start.saturating_add(len_bytes),
                name,
                is_local: kind >> 4 == LOCAL,
            })
        });
        let mut functions: Vec<Function> = functions.collect();
        let names = &self.names;
        // Of several names of a place the most public one: `write` rather than `__write`.
        functions.sort_by_cached_key(|of| {
            let name = name_at(names, of.name);
            let underscores = name.iter().take_while(|byte| **byte == b'_').count();
            let is_short = of.end == of.start;
            (of.start, is_short, of.is_local, underscores.min(255) as u8, name.len(), of.name)
        });
        functions.dedup_by_key(|of| of.start);
        self.functions = functions;
        Ok(())
    }

    /// Name of the function that has a byte of the file; `None` if the file names none there.
    pub(super) fn name(&self, offset_bytes: u64) -> Option<String> {
        let segment = self.segments.iter().find(|of| {
            offset_bytes.checked_sub(of.offset_bytes).is_some_and(|inner| inner < of.len_bytes)
        })?;
        let address = segment.address.checked_add(offset_bytes - segment.offset_bytes)?;
        let after = self.functions.partition_point(|of| of.start <= address);
        let of = self.functions.get(after.checked_sub(1)?)?;
        // One in assembly language may have no length: it ends where the next one begins.
        let is_in = of.end == of.start || address < of.end;
        is_in.then(|| demangled(name_at(&self.names, of.name))).filter(|name| !name.is_empty())
    }

    /// Bytes of memory.
    pub(super) fn len_bytes(&self) -> usize {
        self.names.len() + self.functions.len() * size_of::<Function>()
    }
}

fn name_at(names: &[u8], at: u32) -> &[u8] {
    let rest = names.get(at as usize..).unwrap_or_default();
    rest.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Reads a table of the file. Errors: it has too many entries, or the file ends before them.
fn table(
    file: &File,
    at: u64,
    count: u64,
    entry_bytes: usize,
    what: &'static str,
) -> Result<Bytes<'static>, ElfError> {
    let max = match what {
        "segments" => SEGMENTS_MAX,
        "sections" => SECTIONS_MAX,
        "table of names" => NAMES_BYTES_MAX,
        _ => SYMBOLS_MAX,
    };
    if count > max {
        return Err(ElfError::TooLarge { what, count, max });
    }
    Bytes::read(file, at, count as usize * entry_bytes)
}

/// Part of a file.
struct Bytes<'a>(std::borrow::Cow<'a, [u8]>);

impl Bytes<'_> {
    fn read(file: &File, at: u64, len_bytes: usize) -> Result<Bytes<'static>, ElfError> {
        // Before memory is taken for it: the header may promise more than there is.
        let end = at.checked_add(len_bytes as u64).ok_or(ElfError::Kind)?;
        if end > file.metadata()?.len() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut bytes = vec![0; len_bytes];
        file.read_exact_at(&mut bytes, at)?;
        Ok(Bytes(bytes.into()))
    }

    fn entries(&self, entry_bytes: usize) -> impl Iterator<Item = Bytes<'_>> {
        self.0.chunks_exact(entry_bytes).map(|entry| Bytes(entry.into()))
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }

    fn u8(&self, at: usize) -> u8 {
        u8::from_ne_bytes(self.array(at))
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.array(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    /// A file with these functions: address, length, kind and binding, name. Its code is mapped at 0x1000 from offset 0.
    pub(crate) fn elf_file(functions: &[(u64, u64, u8, &str)]) -> Vec<u8> {
        let mut names = vec![0];
        let mut symbols = vec![0; SYMBOL_BYTES];
        for (start, len_bytes, kind, name) in functions {
            symbols.extend((names.len() as u32).to_ne_bytes());
            symbols.extend([*kind, 0, 1, 0]);
            symbols.extend(start.to_ne_bytes());
            symbols.extend(len_bytes.to_ne_bytes());
            names.extend(name.bytes().chain([0]));
        }
        let symbols_at = (HEADER_BYTES + SEGMENT_BYTES) as u64;
        let names_at = symbols_at + symbols.len() as u64;
        let sections_at = names_at + names.len() as u64;
        let mut elf = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
        elf.resize(32, 0);
        elf.extend((HEADER_BYTES as u64).to_ne_bytes());
        elf.extend(sections_at.to_ne_bytes());
        elf.resize(54, 0);
        for count in [SEGMENT_BYTES, 1, SECTION_BYTES, 3, 0] {
            elf.extend((count as u16).to_ne_bytes());
        }
        elf.extend(LOAD.to_ne_bytes());
        elf.extend(5_u32.to_ne_bytes());
        for word in [0, 0x1000, 0x1000, 0x4000, 0x4000, 0x1000_u64] {
            elf.extend(word.to_ne_bytes());
        }
        elf.extend(&symbols);
        elf.extend(&names);
        elf.extend(section(0, 0, 0, 0));
        elf.extend(section(SYMBOL_TABLE, symbols_at, symbols.len(), 2));
        elf.extend(section(3, names_at, names.len(), 0));
        elf
    }

    fn section(kind: u32, at: u64, len_bytes: usize, link: u32) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(24, 0);
        bytes.extend(at.to_ne_bytes());
        bytes.extend((len_bytes as u64).to_ne_bytes());
        bytes.extend(link.to_ne_bytes());
        bytes.resize(SECTION_BYTES, 0);
        bytes
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<ElfFunctions, ElfError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        ElfFunctions::read(&file)
    }

    #[test]
    fn a_place_belongs_to_the_function_around_it() {
        let elf = elf_file(&[
            (0x1200, 0x10, 0x12, "second"),
            (0x1100, 0x20, 0x12, "first"),
            (0x1100, 0x20, 0x12, "__first"),
            (0x1300, 0, 0x12, "assembly"),
            (0x1400, 0x10, 0x11, "an_object"),
            (0x1500, 0x10, 0x02, "_ZN4main4burn17h0123456789abcdefE"),
        ]);
        let elf = read(&elf).unwrap();
        let names = [0x100, 0x11f, 0x120, 0x200, 0x3ff, 0x400, 0x505, 0x5_0000]
            .map(|offset| elf.name(offset));
        let expected = ["first", "first", "", "second", "assembly", "assembly", "main::burn", ""]
            .map(|name| Some(name.to_owned()).filter(|name| !name.is_empty()));
        assert_eq!(names, expected);
    }

    #[test]
    fn own_program_names_its_functions_and_others_are_refused() {
        let own = ElfFunctions::read(&File::open("/proc/self/exe").unwrap()).unwrap();
        assert!(own.functions.len() > 1000, "{}", own.functions.len());
        assert!(matches!(read(b"#!/bin/sh\n"), Err(ElfError::Read(_))));
        assert!(matches!(read(&[7; 4096]), Err(ElfError::Kind)));
        let mut greedy = elf_file(&[(0x1100, 1, 0x12, "f")]);
        // The length of the table of symbols.
        let at = greedy.len() - 2 * SECTION_BYTES + 32;
        greedy[at..at + 8].copy_from_slice(&(1_u64 << 40).to_ne_bytes());
        assert!(matches!(read(&greedy), Err(ElfError::TooLarge { .. })));
        greedy[at..at + 8].copy_from_slice(&(1_u64 << 20).to_ne_bytes());
        assert!(matches!(read(&greedy), Err(ElfError::Read(_))), "longer than the file");
    }

    const LIMIT: Duration = Duration::from_secs(2);

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

        #[test]
        fn no_file_makes_a_panic_or_takes_long(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
            cut in any::<prop::sample::Index>(),
            offset in any::<u64>(),
        ) {
            let begun = Instant::now();
            let mut bytes = elf_file(&[(0x1100, 0x20, 0x12, "_ZN1a1bE"), (0x1200, 9, 0x12, "_RNvC1a1b")]);
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes.truncate(bytes.len() - cut.index(bytes.len()) / 4);
            if let Ok(elf) = read(&bytes) {
                for offset in [offset, offset % 0x800, 0x105, 0x203] {
                    let name = elf.name(offset).unwrap_or_default();
                    prop_assert!(name.len() <= 4 * super::super::demangle::NAME_LEN_MAX);
                }
            }
            prop_assert!(begun.elapsed() < LIMIT);
        }
    }
}
