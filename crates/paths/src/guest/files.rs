//! Where the firmware's image and the Linux guest's files are.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::error::GuestError;

/// The emulator.
pub(super) const QEMU: &str = "qemu-system-aarch64";
/// How it is had.
pub(super) const INSTALL_QEMU: &str = "apt-get install qemu-system-arm";
/// File name of the firmware.
pub const IMAGE: &str = "wirepath-guest-virt.elf";
/// Folder where `cargo xtask` puts what it builds for machines, from the project's root.
const BUILT: &str = "target/firmware";
/// Folder of a package's images, from the program's.
const PACKAGED: &str = "../share/wirepath";
/// File name of the reference firmware.
const REFERENCE: &str = "wirepath-guest-reference.elf";
const IMAGE_VARIABLE: &str = "WIREPATH_GUEST_IMAGE";
const REFERENCE_VARIABLE: &str = "WIREPATH_GUEST_REFERENCE";
const LINUX_VARIABLE: &str = "WIREPATH_LINUX_GUEST";

/// The firmware: that of the environment variable `WIREPATH_GUEST_IMAGE`, or the one that lies
/// next to the program, or the one that `cargo xtask firmware` built.
pub fn image() -> Result<PathBuf, GuestError> {
    let named = env::var_os(IMAGE_VARIABLE);
    find(named, &folders(), IMAGE).ok_or_else(|| missing(IMAGE, IMAGE_VARIABLE, "firmware"))
}

/// The reference firmware, on others' driver and stack: that of `WIREPATH_GUEST_REFERENCE`, or as
/// [`image`] is found.
pub fn reference() -> Result<PathBuf, GuestError> {
    let named = env::var_os(REFERENCE_VARIABLE);
    let missing = || missing(REFERENCE, REFERENCE_VARIABLE, "firmware");
    find(named, &folders(), REFERENCE).ok_or_else(missing)
}

/// A Linux guest: a kernel and its first file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinuxFiles {
    /// The kernel, an uncompressed arm64 `Image`.
    pub kernel: PathBuf,
    /// The initramfs, a cpio archive.
    pub initramfs: PathBuf,
}

/// The Linux guest: in the folder that `WIREPATH_LINUX_GUEST` names, next to the program, or
/// where `cargo xtask linux-guest` put it.
pub fn linux() -> Result<LinuxFiles, GuestError> {
    let named = env::var_os(LINUX_VARIABLE);
    let found = |name: &str| {
        let named = named.as_ref().map(|folder| Path::new(folder).join(name).into_os_string());
        let name = Path::new("linux").join(name);
        let name = name.to_string_lossy();
        find(named, &folders(), &name).ok_or_else(|| missing(&name, LINUX_VARIABLE, "linux-guest"))
    };
    Ok(LinuxFiles { kernel: found("Image")?, initramfs: found("initramfs.cpio")? })
}

/// Whoever names a file means that one and no other.
fn find(named: Option<OsString>, folders: &[PathBuf], file: &str) -> Option<PathBuf> {
    let found = match named {
        Some(named) => vec![PathBuf::from(named)],
        None => folders.iter().map(|folder| folder.join(file)).collect(),
    };
    found.into_iter().find(|path| path.is_file())
}

/// Next to the program; where a package puts it; then `target/firmware` above the program or here,
/// and, for what cargo runs, at the project's root.
fn folders() -> Vec<PathBuf> {
    let program = env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent);
    let above = beside.into_iter().flat_map(Path::ancestors).skip(1).take(3);
    let mut folders: Vec<PathBuf> = beside.map(Path::to_path_buf).into_iter().collect();
    folders.extend(beside.map(|folder| folder.join(PACKAGED)));
    folders.extend(above.map(|folder| folder.join("firmware")));
    folders.push(PathBuf::from(BUILT));
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    folders.extend(package.map(|package| package.join("../..").join(BUILT)));
    folders
}

fn missing(file: &str, variable: &str, chore: &str) -> GuestError {
    let what = match env::var(variable) {
        Ok(named) => format!("{named} (named by {variable})"),
        Err(_) => file.to_owned(),
    };
    let remedy = format!("build it by `cargo xtask {chore}`, or name it in {variable}");
    GuestError::Missing { what, remedy }
}

/// Whether a program is in the search path.
pub(super) fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_is_taken_or_nothing_and_else_the_first_there_is() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("b");
        std::fs::create_dir(&here).unwrap();
        std::fs::write(here.join("x.elf"), "").unwrap();
        let folders = [folder.path().join("a"), here.clone()];
        assert_eq!(find(None, &folders, "x.elf"), Some(here.join("x.elf")));
        assert_eq!(find(None, &folders, "y.elf"), None);
        let named = |name: &str| Some(folder.path().join(name).into_os_string());
        assert_eq!(find(named("b/x.elf"), &[], "-"), Some(here.join("x.elf")));
        assert_eq!(find(named("b/y.elf"), &folders, "x.elf"), None, "no other in its place");
    }

    #[test]
    fn what_is_missing_comes_with_its_remedy() {
        let text = missing("image", "WIREPATH_NO_SUCH_VARIABLE", "firmware").to_string();
        assert!(text.contains("image is missing") && text.contains("`cargo xtask firmware`"));
    }
}
