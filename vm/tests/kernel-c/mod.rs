//! Images of the small C kernel in this folder, for tests of drivers and virtual machines.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// An image by its name in `build.sh`, built once by each test program.
///
/// - Returns `None`, with a skip, if the compiler is not installed.
///
/// # Panics
/// If the build fails, or makes no image of this name.
#[track_caller]
pub(crate) fn image(name: &str) -> Option<PathBuf> {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    if !testkit::is_installed("aarch64-linux-gnu-gcc") {
        return None;
    }
    let folder = FOLDER.get_or_init(|| {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel-c").join(env!("CARGO_CRATE_NAME"));
        build(&folder);
        folder
    });
    let image = folder.join(name).with_extension("elf");
    assert!(image.is_file(), "{} is not built", image.display());
    Some(image)
}

/// An image of the driver for C. As [`image`]; `None`, with a skip, also if the library is not built.
#[track_caller]
#[allow(dead_code, reason = "not all test programs use the library")]
pub(crate) fn library_image(name: &str) -> Option<PathBuf> {
    if !library().is_file() {
        testkit::skip("aarch64", "no libwirepath_virtio.a; run `cargo xtask firmware`");
        return None;
    }
    image(name)
}

/// The project's root.
fn root() -> PathBuf {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let root = above.into_iter().find(|folder| folder.join("vm/tests/kernel-c").is_dir());
    root.expect("this file is in the repository").to_owned()
}

fn library() -> PathBuf {
    root().join("target/firmware/libwirepath_virtio.a")
}

/// Builds all images into `folder`.
fn build(folder: &Path) {
    let mut command = Command::new("sh");
    command.arg(root().join("vm/tests/kernel-c/build.sh")).arg(folder);
    if let (true, Some(folder)) = (library().is_file(), library().parent()) {
        command.arg(folder);
    }
    let built = command.output().expect("sh starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}
