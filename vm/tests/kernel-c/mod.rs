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

/// Builds all images into `folder`.
fn build(folder: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|above| above.join("vm/tests/kernel-c/build.sh"))
        .find(|script| script.is_file())
        .expect("the script is in this repository");
    let built = Command::new("sh").arg(script).arg(folder).output().expect("sh starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}
