//! Images of guests inside the program. A release has them; another build has none, and looks for files.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use sys::memory_file;

include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// Images that programs started by this one open, by their names.
static OPEN: Mutex<BTreeMap<&str, OwnedFd>> = Mutex::new(BTreeMap::new());

/// Bytes of the image with this file name; `None` if the program was built without it.
pub fn embedded(name: &str) -> Option<&'static [u8]> {
    IMAGES.iter().find(|(known, _)| *known == name).map(|(_, bytes)| *bytes)
}

/// Path by which this process and those that it starts can read an embedded image; `None` if the program was built
/// without it.
///
/// Errors: the kernel has no memory for a file.
pub fn path(name: &'static str) -> io::Result<Option<PathBuf>> {
    embedded(name).map(|bytes| inherited_path(name, bytes)).transpose()
}

fn inherited_path(name: &'static str, bytes: &[u8]) -> io::Result<PathBuf> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let file = match open.remove(name) {
        Some(file) => file,
        None => memory_file::inherited(bytes)?,
    };
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    open.insert(name, file);
    Ok(path.into())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_started_program_reads_the_image_and_asking_again_makes_no_second_file() {
        let path = inherited_path("test.elf", b"an image").unwrap();
        assert_eq!(inherited_path("test.elf", b"an image").unwrap(), path);
        assert_eq!(std::fs::read(&path).unwrap(), b"an image");
        let child = Command::new("cat").arg(&path).output().unwrap();
        assert_eq!(child.stdout, b"an image");
    }

    #[test]
    fn an_unknown_image_is_none() {
        assert_eq!(embedded("no-such.elf"), None);
        assert_eq!(path("no-such.elf").unwrap(), None);
    }
}
