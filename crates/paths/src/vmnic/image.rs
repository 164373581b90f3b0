//! The guest's image: where it is looked for.

use std::path::{Path, PathBuf};

/// Names another image.
const VARIABLE: &str = "WIREPATH_VMNIC_IMAGE";
/// Its name, beside the executable or among the firmware.
const FILE: &str = "wirepath-vmnic-nettest.elf";
/// Where a package puts it, from the executable's folder.
const PACKAGED: &str = "../share/wirepath/wirepath-vmnic-nettest.elf";

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum MissingImage {
    /// Nowhere to be found.
    #[error(
        "the guest's image {FILE} is neither beside the executable nor in target/firmware: build \
         it by `cargo xtask firmware`, or name one in {VARIABLE}"
    )]
    NotFound,
    /// Found, but not readable.
    #[error("the guest's image {} cannot be read", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

/// Reads the image: the one named by `WIREPATH_VMNIC_IMAGE`, else one beside the executable, else
/// a package's, else what `cargo xtask firmware` has built.
pub fn load() -> Result<Vec<u8>, MissingImage> {
    let path = match std::env::var_os(VARIABLE) {
        Some(named) => PathBuf::from(named),
        None => find(std::env::current_exe().ok().as_deref()).ok_or(MissingImage::NotFound)?,
    };
    std::fs::read(&path).map_err(|source| MissingImage::Read { path, source })
}

fn find(executable: Option<&Path>) -> Option<PathBuf> {
    let folders = executable.into_iter().flat_map(|path| path.ancestors().skip(1));
    // Beside it, or where a package puts it; or it was built by cargo, and lies a few folders below
    // `target`.
    let beside =
        folders.clone().take(1).flat_map(|folder| [folder.join(FILE), folder.join(PACKAGED)]);
    let built = folders.take(4).map(|folder| folder.join("firmware").join(FILE));
    let here = std::iter::once(Path::new("target/firmware").join(FILE));
    beside.chain(built).chain(here).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_beside_the_executable_comes_before_a_built_one() {
        let target = tempfile::tempdir().unwrap();
        let release = target.path().join("release");
        let firmware = target.path().join("firmware");
        std::fs::create_dir_all(&release).unwrap();
        std::fs::create_dir_all(&firmware).unwrap();
        let executable = release.join("wirepath");
        std::fs::write(firmware.join(FILE), "built").unwrap();
        assert_eq!(find(Some(&executable)), Some(firmware.join(FILE)));
        let share = target.path().join("share/wirepath");
        std::fs::create_dir_all(&share).unwrap();
        std::fs::write(share.join(FILE), "packaged").unwrap();
        assert_eq!(find(Some(&executable)), Some(release.join(PACKAGED)));
        std::fs::write(release.join(FILE), "beside").unwrap();
        assert_eq!(find(Some(&executable)), Some(release.join(FILE)));
    }
}
