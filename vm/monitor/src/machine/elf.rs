//! Loads the guest's image: a static 64-bit ELF file at fixed addresses.

use host::kvm::GuestRam;

/// Why an image cannot be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Not a static 64-bit x86 ELF executable.
    #[error("the guest image is not a static ELF executable for x86-64 ({what})")]
    Kind { what: &'static str },
    /// Ends within a header or a segment.
    #[error("the guest image ends at byte {len_bytes}, within its {what}")]
    Short {
        what: &'static str,
        /// Length of the file.
        len_bytes: usize,
    },
    /// A segment does not fit.
    #[error("the guest image wants {len_bytes} bytes at {at:#x}, which are not its to use")]
    Place {
        /// First address.
        at: u64,
        /// Length in memory.
        len_bytes: u64,
    },
}

/// Copies all segments into memory at or above `floor`; returns the entry point.
pub(super) fn load(ram: &GuestRam, image: &[u8], floor: u64) -> Result<u64, ImageError> {
    let header = "header";
    if bytes(image, 0, 6, header)? != b"\x7fELF\x02\x01" {
        return Err(ImageError::Kind { what: "identification" });
    }
    if number(image, 16, 2, header)? != 2 || number(image, 18, 2, header)? != 62 {
        return Err(ImageError::Kind { what: "type or machine" });
    }
    let (entry, table) = (number(image, 24, 8, header)?, number(image, 32, 8, header)?);
    let (size, count) = (number(image, 54, 2, header)?, number(image, 56, 2, header)?);
    for i in 0..count {
        let what = "program headers";
        // Saturates beyond any file, where nothing is found.
        let at = table.saturating_add(i * size);
        let field = |offset: u64, len| number(image, at.saturating_add(offset), len, what);
        const LOAD: u64 = 1;
        if field(0, 4)? != LOAD {
            continue;
        }
        let (offset, place) = (field(8, 8)?, field(24, 8)?);
        let (in_file, in_memory) = (field(32, 8)?, field(40, 8)?);
        let wrong = ImageError::Place { at: place, len_bytes: in_memory };
        let end = place.checked_add(in_memory.max(in_file)).ok_or(wrong)?;
        if place < floor || end > ram.len_bytes() as u64 {
            return Err(wrong);
        }
        // Memory is zero where the file has nothing.
        ram.write(place, bytes(image, offset, in_file, "segments")?).map_err(|_| wrong)?;
    }
    Ok(entry)
}

/// Bytes of a part of the image, which `what` names.
fn bytes<'a>(
    image: &'a [u8],
    at: u64,
    len: u64,
    what: &'static str,
) -> Result<&'a [u8], ImageError> {
    let range = at
        .checked_add(len)
        .and_then(|end| Some(usize::try_from(at).ok()?..usize::try_from(end).ok()?));
    let found = range.and_then(|range| image.get(range));
    found.ok_or(ImageError::Short { what, len_bytes: image.len() })
}

/// A number of `len` bytes, eight at most.
fn number(image: &[u8], at: u64, len: u64, what: &'static str) -> Result<u64, ImageError> {
    let mut word = [0; 8];
    word[..len as usize].copy_from_slice(bytes(image, at, len, what)?);
    Ok(u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(place: u64, in_file: u64, in_memory: u64) -> Vec<u8> {
        let mut image = vec![0; 0x80];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        for (at, value, len) in [
            (16, 2, 2),
            (18, 62, 2),
            (24, place + 4, 8),
            (32, 0x40, 8),
            (54, 56, 2),
            (56, 1, 2),
            (0x40, 1, 4),
            (0x48, 0x78, 8),
            (0x58, place, 8),
            (0x60, in_file, 8),
            (0x68, in_memory, 8),
            (0x78, 0x1122_3344, 8),
        ] {
            image[at..at + len].copy_from_slice(&u64::to_le_bytes(value)[..len]);
        }
        image
    }

    #[test]
    fn segments_are_copied_and_bounds_hold() {
        let ram = GuestRam::new(0x8000).unwrap();
        assert_eq!(load(&ram, &image(0x2000, 8, 0x1000), 0x1000), Ok(0x2004));
        assert_eq!(ram.load_u64(0x2000), Ok(0x1122_3344));
        for (place, in_file, in_memory) in
            [(0x800, 8, 8), (0x7000, 8, 0x1001), (u64::MAX - 4, 8, 8), (0x2000, 8, u64::MAX)]
        {
            let found = load(&ram, &image(place, in_file, in_memory), 0x1000);
            assert!(matches!(found, Err(ImageError::Place { .. })), "{place:#x}");
        }
        assert!(matches!(
            load(&ram, &image(0x2000, 9, 9), 0x1000),
            Err(ImageError::Short { what: "segments", .. })
        ));
        let whole = image(0x2000, 8, 8);
        for len in 0..whole.len() {
            assert!(load(&ram, &whole[..len], 0x1000).is_err());
        }
    }

    #[test]
    fn other_files_are_refused() {
        let ram = GuestRam::new(0x1000).unwrap();
        for (at, value) in [(4, 1), (16, 3), (18, 3)] {
            let mut image = image(0x800, 0, 0);
            image[at] = value;
            assert!(matches!(load(&ram, &image, 0), Err(ImageError::Kind { .. })));
        }
    }
}
