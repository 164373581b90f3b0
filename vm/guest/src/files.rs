//! Locates the firmware's image and the Linux guest's files.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use wire::image::{MARK_BYTES, is_marked, mark};

use super::error::GuestError;

pub(super) const QEMU: &str = "qemu-system-aarch64";
/// File name of the firmware.
pub const IMAGE: &str = "wirepath-guest-virt.elf";
/// Output folder of `cargo xtask` for images, relative to the project's root.
const BUILT: &str = "target/firmware";
/// Folder of a package's images, relative to the program's.
const PACKAGED: &str = "../share/wirepath";
/// File name of the reference firmware.
const REFERENCE: &str = "wirepath-guest-reference.elf";
const IMAGE_VARIABLE: &str = "WIREPATH_GUEST_IMAGE";
const REFERENCE_VARIABLE: &str = "WIREPATH_GUEST_REFERENCE";
/// File name of the firmware with `smoltcp` on the driver.
const SMOLTCP: &str = "wirepath-guest-smoltcp.elf";
const SMOLTCP_VARIABLE: &str = "WIREPATH_GUEST_SMOLTCP";
const LINUX_VARIABLE: &str = "WIREPATH_LINUX_GUEST";

/// Finds the firmware: `WIREPATH_GUEST_IMAGE`, or the image inside the program, or the one next to it, or the one
/// built by `cargo xtask firmware`.
pub fn image() -> Result<PathBuf, GuestError> {
    checked_version(find_image(IMAGE, IMAGE_VARIABLE)?)
}

/// An image that is named by a variable, or inside the program, or in one of [`folders`].
fn find_image(file: &'static str, variable: &str) -> Result<PathBuf, GuestError> {
    let named = env::var_os(variable);
    if named.is_none() {
        let inside = guest_images::path(file);
        let doing = "opening the image inside the program";
        let inside = inside.map_err(|source| GuestError::Io { doing, source })?;
        if let Some(path) = inside {
            return Ok(path);
        }
    }
    find(named, &folders(), file).ok_or_else(|| missing(file, variable))
}

/// Firmware has some hundred kB.
const IMAGE_BYTES_MAX: u64 = 64 << 20;

/// Checks a firmware: one that was built with another interface might take switches without obeying them.
pub fn checked_version(image: PathBuf) -> Result<PathBuf, GuestError> {
    const MARK: [u8; MARK_BYTES] = mark(&telemetry::INTERFACE);
    let remedy = remedy(IMAGE, IMAGE_VARIABLE);
    match host::user_file::read(&image, IMAGE_BYTES_MAX) {
        Ok(bytes) if is_marked(&bytes, &MARK) => Ok(image),
        Ok(_) => Err(GuestError::OtherVersion { image, remedy }),
        Err(_) => {
            Err(GuestError::Missing { what: format!("a readable {}", image.display()), remedy })
        }
    }
}

/// Finds the reference firmware, with third-party driver and stack: `WIREPATH_GUEST_REFERENCE`, or the
/// same places as [`image`].
pub fn reference() -> Result<PathBuf, GuestError> {
    find_image(REFERENCE, REFERENCE_VARIABLE)
}

/// Finds the firmware with `smoltcp` on the driver: `WIREPATH_GUEST_SMOLTCP`, or the same places as
/// [`image`].
pub fn smoltcp() -> Result<PathBuf, GuestError> {
    find_image(SMOLTCP, SMOLTCP_VARIABLE)
}

/// Files of a Linux guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinuxFiles {
    /// An uncompressed arm64 `Image`.
    pub kernel: PathBuf,
    /// A cpio archive.
    pub initramfs: PathBuf,
}

/// Finds the Linux guest: in the folder `WIREPATH_LINUX_GUEST`, next to the program, or in the output of
/// `cargo xtask linux-guest`.
pub fn linux() -> Result<LinuxFiles, GuestError> {
    let named = env::var_os(LINUX_VARIABLE);
    let [kernel, initramfs] = ["Image", "initramfs.cpio"].map(|name| {
        let named = named.as_ref().map(|folder| Path::new(folder).join(name).into_os_string());
        let name = Path::new("linux").join(name);
        let name = name.to_string_lossy();
        find(named, &folders(), &name).ok_or_else(|| GuestError::Missing {
            what: wanted(&name, LINUX_VARIABLE),
            remedy: format!(
                "no package has a Linux guest: set {LINUX_VARIABLE} to a folder with Image, an uncompressed arm64 \
                 kernel, and initramfs.cpio"
            ),
        })
    });
    Ok(LinuxFiles { kernel: kernel?, initramfs: initramfs? })
}

/// A file named by the user is the only candidate.
fn find(named: Option<OsString>, folders: &[PathBuf], file: &str) -> Option<PathBuf> {
    let found = match named {
        Some(named) => vec![PathBuf::from(named)],
        None => folders.iter().map(|folder| folder.join(file)).collect(),
    };
    found.into_iter().find(|path| path.is_file())
}

/// Next to the program; a package's folder; `target/firmware` above the program, or at the project's root
/// for programs run by cargo. Never the current folder: root may be in one that others write.
fn folders() -> Vec<PathBuf> {
    let program = env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent);
    let above = beside.into_iter().flat_map(Path::ancestors).skip(1).take(3);
    let mut folders: Vec<PathBuf> = beside.map(Path::to_path_buf).into_iter().collect();
    folders.extend(beside.map(|folder| folder.join(PACKAGED)));
    folders.extend(above.map(|folder| folder.join("firmware")));
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    folders.extend(package.map(|package| package.join("../..").join(BUILT)));
    folders
}

fn missing(file: &str, variable: &str) -> GuestError {
    GuestError::Missing { what: wanted(file, variable), remedy: remedy(file, variable) }
}

/// The file as its user named it, or by its usual name.
fn wanted(file: &str, variable: &str) -> String {
    match env::var(variable) {
        Ok(named) => format!("{named} (named by {variable})"),
        Err(_) => file.to_owned(),
    }
}

/// For users of a program without the source: packages of its version have the firmware.
fn remedy(file: &str, variable: &str) -> String {
    format!(
        "Wirepath's packages of this version (deb, RPM, container image) have {file} in /usr/share/wirepath: install \
         one, copy the file to {PACKAGED} of this program's folder, or set {variable} to it"
    )
}

/// True if a program is in the search path.
pub(super) fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn named_file_is_the_only_candidate_and_otherwise_the_first_found_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("b");
        std::fs::create_dir(&here).unwrap();
        std::fs::write(here.join("x.elf"), "").unwrap();
        let folders = [folder.path().join("a"), here.clone()];
        assert_eq!(find(None, &folders, "x.elf"), Some(here.join("x.elf")));
        assert_eq!(find(None, &folders, "y.elf"), None);
        let [there, missing] =
            ["b/x.elf", "b/y.elf"].map(|name| Some(folder.path().join(name).into_os_string()));
        assert_eq!(find(there, &[], "-"), Some(here.join("x.elf")));
        assert_eq!(find(missing, &folders, "x.elf"), None, "no other in its place");
    }

    #[test]
    fn no_file_is_looked_for_in_the_current_folder() {
        let all = folders();
        assert!(all.len() >= 2 && all.iter().all(|folder| folder.is_absolute()), "{all:?}");
    }

    #[test]
    fn firmware_of_another_version_is_refused_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let (image, newer) = (folder.path().join("x.elf"), [b"counters".as_slice(), b"and more"]);
        fs::write(&image, mark(&newer)).unwrap();
        let text = checked_version(image.clone()).unwrap_err().to_string();
        assert!(
            text.contains("x.elf is of another version than this program; Wirepath's packages")
        );
        fs::write(&image, mark(&telemetry::INTERFACE)).unwrap();
        assert_eq!(checked_version(image.clone()).unwrap(), image);
    }

    #[test]
    fn missing_file_is_reported_with_a_remedy() {
        let text = missing("image", "WIREPATH_NO_SUCH_VARIABLE").to_string();
        assert!(
            text.contains("image is missing") && text.contains("/usr/share/wirepath"),
            "{text}"
        );
    }
}
