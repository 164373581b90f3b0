//! Architecture of an image.

use std::path::Path;

use model::PathError;

use crate::error::invalid;

/// Bytes of an image that are looked at.
const HEAD_BYTES: usize = 0x206;
/// Source: ELF-64 object file format, version 1.5, e_machine; EM_AARCH64 and EM_X86_64.
const ELF_MACHINE_OFFSET: usize = 18;
const ELF: (usize, &[u8]) = (0, b"\x7fELF");
const ELF_AARCH64: u16 = 183;
const ELF_X86_64: u16 = 62;
/// Magic number of Linux's arm64 `Image`. Source: kernel documentation, arch/arm64/booting.rst.
const ARM64_IMAGE: (usize, &[u8]) = (0x38, b"ARM\x64");
/// Magic number of Linux's bzImage. Source: kernel documentation, arch/x86/boot.rst.
const BZIMAGE: (usize, &[u8]) = (0x202, b"HdrS");

/// Architecture that an image is for, as far as an emulator is known for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Architecture {
    Aarch64,
    X86_64,
}

impl Architecture {
    pub(crate) fn emulator(self) -> &'static str {
        match self {
            Architecture::Aarch64 => "qemu-system-aarch64",
            Architecture::X86_64 => "qemu-system-x86_64",
        }
    }

    pub(crate) fn from_emulator(emulator: &str) -> Option<Self> {
        let all = [Architecture::Aarch64, Architecture::X86_64];
        all.into_iter().find(|one| emulator.ends_with(one.emulator()))
    }
}

/// Reads the architecture of an image. Errors: it cannot be read, or has none that is known.
pub(crate) fn read_architecture(image: &Path) -> Result<Architecture, PathError> {
    let mut head = Vec::new();
    let read = std::fs::File::open(image).and_then(|file| {
        use std::io::Read;
        file.take(HEAD_BYTES as u64).read_to_end(&mut head)
    });
    read.map_err(|why| {
        invalid(
            format!("image {}: {why}", image.display()),
            "correct its name, which is relative to the folder of the experiment's file",
        )
    })?;
    parse_architecture(&head).ok_or_else(|| {
        invalid(
            format!(
                "image {} is not an ELF file for aarch64 or x86-64, nor a kernel of Linux for one of them",
                image.display()
            ),
            "name its emulator: emulator = \"qemu-system-…\", or write the whole command: command = \"…\"",
        )
    })
}

fn parse_architecture(head: &[u8]) -> Option<Architecture> {
    if has_magic(head, ELF) {
        let machine = head.get(ELF_MACHINE_OFFSET..)?.first_chunk::<2>()?;
        return match u16::from_le_bytes(*machine) {
            ELF_AARCH64 => Some(Architecture::Aarch64),
            ELF_X86_64 => Some(Architecture::X86_64),
            _ => None,
        };
    }
    if has_magic(head, ARM64_IMAGE) {
        return Some(Architecture::Aarch64);
    }
    has_magic(head, BZIMAGE).then_some(Architecture::X86_64)
}

fn has_magic(head: &[u8], (at, magic): (usize, &[u8])) -> bool {
    head.get(at..at + magic.len()) == Some(magic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(parts: &[(usize, &[u8])]) -> Vec<u8> {
        let mut head = vec![0; HEAD_BYTES];
        for (at, bytes) in parts {
            head[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        head
    }

    #[test]
    fn elf_files_and_kernels_of_linux_have_an_architecture_and_others_none() {
        for (parts, expected) in [
            (&[ELF, (18, &[183, 0])][..], Some(Architecture::Aarch64)),
            (&[ELF, (18, &[62, 0])], Some(Architecture::X86_64)),
            (&[ELF, (18, &[243, 0])], None),
            (&[ARM64_IMAGE], Some(Architecture::Aarch64)),
            (&[BZIMAGE], Some(Architecture::X86_64)),
            (&[], None),
        ] {
            assert_eq!(parse_architecture(&head(parts)), expected, "{parts:?}");
        }
        assert_eq!(parse_architecture(b"\x7fELF"), None);
        assert_eq!(parse_architecture(b""), None);
    }

    #[test]
    fn missing_image_and_one_of_another_kind_are_named_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let text = read_architecture(&folder.path().join("no.elf")).unwrap_err().to_string();
        assert!(text.contains("no.elf") && text.contains("relative to the folder"), "{text}");
        let script = folder.path().join("x.sh");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        let text = read_architecture(&script).unwrap_err().to_string();
        assert!(text.contains("x.sh is not an ELF") && text.contains("emulator ="), "{text}");
    }
}
