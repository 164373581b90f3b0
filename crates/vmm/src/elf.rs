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
    let short = |what| ImageError::Short { what, len_bytes: image.len() };
    let bytes = |at: u64, len: u64, what| {
        let start = usize::try_from(at).map_err(|_| short(what))?;
        let len = usize::try_from(len).map_err(|_| short(what))?;
        let end = start.checked_add(len).ok_or(short(what))?;
        image.get(start..end).ok_or(short(what))
    };
    let number = |at: u64, len: u64, what| {
        let mut word = [0; 8];
        word[..len as usize].copy_from_slice(bytes(at, len, what)?);
        Ok(u64::from_le_bytes(word))
    };
    let header = "header";
    if bytes(0, 6, header)? != b"\x7fELF\x02\x01" {
        return Err(ImageError::Kind { what: "identification" });
    }
    if number(16, 2, header)? != 2 || number(18, 2, header)? != 62 {
        return Err(ImageError::Kind { what: "type or machine" });
    }
    let (entry, table) = (number(24, 8, header)?, number(32, 8, header)?);
    let (size, count) = (number(54, 2, header)?, number(56, 2, header)?);
    for i in 0..count {
        let what = "program headers";
        let at = table.checked_add(i * size).ok_or(short(what))?;
        let field =
            |offset: u64, len| number(at.checked_add(offset).ok_or(short(what))?, len, what);
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
        ram.write(place, bytes(offset, in_file, "segments")?).map_err(|_| wrong)?;
    }
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(place: u64, in_file: u64, in_memory: u64) -> Vec<u8> {
        let mut image = vec![0; 0x80];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut put = |at: usize, value: u64, len: usize| {
            image[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        };
        put(16, 2, 2);
        put(18, 62, 2);
        put(24, place + 4, 8);
        put(32, 0x40, 8);
        put(54, 56, 2);
        put(56, 1, 2);
        put(0x40, 1, 4);
        put(0x48, 0x78, 8);
        put(0x58, place, 8);
        put(0x60, in_file, 8);
        put(0x68, in_memory, 8);
        put(0x78, 0x1122_3344, 8);
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
