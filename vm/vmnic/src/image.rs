//! Search for the guest's image.

use std::path::{Path, PathBuf};

use guest_pages::MARK;
use host::text::chain;
use model::Support;
use wire::image::is_marked;

/// Overrides the search.
const VARIABLE: &str = "WIREPATH_VMNIC_IMAGE";
const FILE: &str = "wirepath-vmnic-nettest.elf";
/// Location in a package, relative to the executable's folder.
const PACKAGED: &str = "../share/wirepath/wirepath-vmnic-nettest.elf";

/// For users of a program without the source.
const REMEDY: &str = "Wirepath's packages of this version (deb, RPM, container image) have it in \
                      /usr/share/wirepath: install one, copy the file to ../share/wirepath of this program's folder, \
                      or set WIREPATH_VMNIC_IMAGE to it";

/// Reason why the image is missing.
#[derive(Debug, thiserror::Error)]
pub enum MissingImage {
    #[error("the guest's image {FILE} is missing; {REMEDY}")]
    NotFound,
    #[error("the guest's image {} is of another version than this program; {REMEDY}", path.display())]
    OtherVersion { path: PathBuf },
    #[error("cannot read the guest's image {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// Support for guests, as far as the image goes.
pub(crate) fn support() -> Support {
    match load() {
        Ok(_) => Support::Yes,
        Err(MissingImage::NotFound) => {
            Support::unsupported(format!("a guest without {FILE}"), REMEDY)
        }
        Err(MissingImage::OtherVersion { path }) => {
            Support::unsupported(format!("a guest of another version ({})", path.display()), REMEDY)
        }
        Err(error) => Support::unsupported(chain(&error), REMEDY),
    }
}

/// Reads the image: the one named by `WIREPATH_VMNIC_IMAGE`, else the one inside the program, else one beside the
/// executable, else a package's, else what `cargo xtask firmware` has built. It must be of this program's version.
pub fn load() -> Result<Vec<u8>, MissingImage> {
    let named = std::env::var_os(VARIABLE);
    if named.is_none()
        && let Some(image) = guest_images::embedded(FILE)
    {
        return Ok(image.to_vec());
    }
    let path = match named {
        Some(named) => PathBuf::from(named),
        None => find(std::env::current_exe().ok().as_deref()).ok_or(MissingImage::NotFound)?,
    };
    read(path)
}

/// Firmware has some hundred kB.
const IMAGE_BYTES_MAX: u64 = 64 << 20;

fn read(path: PathBuf) -> Result<Vec<u8>, MissingImage> {
    match host::user_file::read(&path, IMAGE_BYTES_MAX) {
        Ok(image) if is_marked(&image, &MARK) => Ok(image),
        Ok(_) => Err(MissingImage::OtherVersion { path }),
        Err(source) => Err(MissingImage::Read { path, source }),
    }
}

fn find(executable: Option<&Path>) -> Option<PathBuf> {
    let folders = executable.into_iter().flat_map(|path| path.ancestors().skip(1));
    // Beside the executable, in a package, or for a cargo build some folders above, in `target`.
    let beside =
        folders.clone().take(1).flat_map(|folder| [folder.join(FILE), folder.join(PACKAGED)]);
    let built = folders.take(4).map(|folder| folder.join("firmware").join(FILE));
    // Never in the current folder: root may be in one that others write.
    beside.chain(built).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_of_another_version_is_refused_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        std::fs::write(&path, wire::image::mark(&[b"an older interface"])).unwrap();
        let error = read(path.clone()).unwrap_err().to_string();
        let remedy = error.contains("/usr/share/wirepath") && error.contains(VARIABLE);
        assert!(error.contains("of another version than this program; ") && remedy, "{error}");
        std::fs::write(&path, MARK).unwrap();
        assert_eq!(read(path).unwrap(), MARK);
    }

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
