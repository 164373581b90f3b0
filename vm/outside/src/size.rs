//! Size of an image.
//!
//! Source: the ELF specification; size(1), Berkeley format.

use std::io;
use std::path::Path;

/// Largest image that is read.
const IMAGE_BYTES_MAX: u64 = 256 << 20;

const ALLOCATED: u64 = 2;
const WRITABLE: u64 = 1;
const NO_BITS: u64 = 8;

/// Bytes in memory by kind of section, as `size` prints them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImageSize {
    /// Code and constants.
    pub text_bytes: u64,
    /// Variables with an initial value.
    pub data_bytes: u64,
    /// Variables that are zero.
    pub bss_bytes: u64,
}

impl ImageSize {
    /// Reads the sections of an ELF image, of 32 or 64 bits and either byte order.
    ///
    /// # Errors
    /// The file cannot be read, is no ELF file, or has no sections (it was stripped of them).
    pub fn read(image: &Path) -> io::Result<ImageSize> {
        Self::parse(&host::user_file::read(image, IMAGE_BYTES_MAX)?)
    }

    fn parse(image: &[u8]) -> io::Result<ImageSize> {
        let elf = Elf::new(image)?;
        let (table, entry_bytes, count) = if elf.is_wide {
            (elf.number(0x28, 8)?, elf.number(0x3a, 2)?, elf.number(0x3c, 2)?)
        } else {
            (elf.number(0x20, 4)?, elf.number(0x2e, 2)?, elf.number(0x30, 2)?)
        };
        if count == 0 {
            return Err(invalid("the image has no sections; give the file that the linker wrote"));
        }
        let mut size = ImageSize::default();
        for section in 0..count {
            let at = section
                .checked_mul(entry_bytes)
                .and_then(|offset| offset.checked_add(table))
                .ok_or_else(|| invalid("the image's table of sections is out of range"))?;
            let kind = elf.field(at, 4, 4)?;
            let (flags, bytes) = if elf.is_wide {
                (elf.field(at, 8, 8)?, elf.field(at, 32, 8)?)
            } else {
                (elf.field(at, 8, 4)?, elf.field(at, 20, 4)?)
            };
            if flags & ALLOCATED == 0 {
                continue;
            }
            let sum = match (kind, flags & WRITABLE) {
                (NO_BITS, _) => &mut size.bss_bytes,
                (_, 0) => &mut size.text_bytes,
                _ => &mut size.data_bytes,
            };
            *sum = sum.saturating_add(bytes);
        }
        Ok(size)
    }
}

struct Elf<'a> {
    bytes: &'a [u8],
    is_wide: bool,
    is_big_endian: bool,
}

impl<'a> Elf<'a> {
    fn new(bytes: &'a [u8]) -> io::Result<Self> {
        if !bytes.starts_with(b"\x7fELF") {
            return Err(invalid("it is not an ELF file"));
        }
        match (bytes.get(4), bytes.get(5)) {
            (Some(class @ 1..=2), Some(order @ 1..=2)) => {
                Ok(Elf { bytes, is_wide: *class == 2, is_big_endian: *order == 2 })
            }
            _ => Err(invalid("it is an ELF file of an unknown class or byte order")),
        }
    }

    fn field(&self, at: u64, offset: u64, len: usize) -> io::Result<u64> {
        self.number(at.saturating_add(offset), len)
    }

    /// A number of `len` bytes, eight at most.
    fn number(&self, at: u64, len: usize) -> io::Result<u64> {
        let part = usize::try_from(at)
            .ok()
            .and_then(|at| self.bytes.get(at..at.checked_add(len)?))
            .ok_or_else(|| {
                invalid(&format!("the image ends before byte {at}, which its headers name"))
            })?;
        let mut word = [0; 8];
        word[..len].copy_from_slice(part);
        if self.is_big_endian {
            word[..len].reverse();
        }
        Ok(u64::from_le_bytes(word))
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn size_of_this_program_is_that_of_its_sections() {
        let size = ImageSize::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(size.text_bytes > 100_000 && size.data_bytes > 0 && size.bss_bytes > 0, "{size:?}");
        let Ok(output) =
            std::process::Command::new("size").arg(std::env::current_exe().unwrap()).output()
        else {
            return testkit::skip("cc", "size(1) is not installed");
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        let [text, data, bss] = [0, 1, 2].map(|at: usize| words[at].parse().unwrap());
        assert_eq!(size, ImageSize { text_bytes: text, data_bytes: data, bss_bytes: bss });
    }

    fn said(image: &[u8]) -> String {
        ImageSize::parse(image).unwrap_err().to_string()
    }

    #[test]
    fn files_that_are_no_images_are_refused_with_the_reason() {
        assert_eq!(said(b"MZ"), "it is not an ELF file");
        assert!(said(b"\x7fELF").contains("unknown class"));
        assert!(said(b"\x7fELF\x02\x01").contains("ends before byte 40"));
        let mut header = [0; 0x40];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert!(said(&header).contains("no sections"));
        header[0x28..0x30].fill(0xff);
        header[0x3a..0x3e].fill(0xff);
        assert!(said(&header).contains("ends before byte") || said(&header).contains("range"));
        assert!(ImageSize::read(Path::new("/")).is_err());
    }

    proptest! {
        #[test]
        fn no_header_makes_it_fail_otherwise(mut bytes: Vec<u8>, class in 0u8..4, order in 0u8..4) {
            bytes.splice(..0, [0x7f, b'E', b'L', b'F', class, order]);
            let _ = ImageSize::parse(&bytes);
        }
    }
}
