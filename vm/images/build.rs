//! Writes the list of images to embed: all of the folder `WIREPATH_EMBEDDED_IMAGES`, none if it is not set.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

const VARIABLE: &str = "WIREPATH_EMBEDDED_IMAGES";

fn main() {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let folder = env::var_os(VARIABLE).map(PathBuf::from);
    let images = match folder.as_deref().map(images).transpose() {
        Ok(images) => images.unwrap_or_default(),
        Err(why) => {
            println!("cargo::error=cannot read the images in {VARIABLE}: {why}");
            return;
        }
    };
    if folder.is_some() && images.is_empty() {
        println!("cargo::error={VARIABLE} has no *.elf; build them: cargo xtask firmware");
    }
    let mut list = String::from("const IMAGES: &[(&str, &[u8])] = &[\n");
    for image in images {
        println!("cargo::rerun-if-changed={}", image.display());
        let name = image.file_name().unwrap_or_default();
        let _ = writeln!(list, "    ({name:?}, include_bytes!({image:?})),");
    }
    list += "];\n";
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("images.rs"), list).expect("a file in OUT_DIR");
}

/// Images in a folder, sorted.
fn images(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut images = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "elf") {
            images.push(path);
        }
    }
    images.sort();
    Ok(images)
}
