//! Shared libraries that a program is loaded with, copied into an image beside it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::copy;
use crate::release::Release;

/// First letters of a library's name, and Debian's package with its terms.
const TERMS: [(&str, &str); 6] = [
    ("ld-linux", "libc6"),
    ("libc.so.", "libc6"),
    ("libm.so.", "libc6"),
    ("libgcc_s.so.", "libgcc-s1"),
    ("libelf.so.", "libelf1"),
    ("libz.so.", "zlib1g"),
];

/// Copies the loader, all libraries and their terms into `into`, the root of an image.
pub(super) fn install(release: &Release, into: &Path) -> Result<()> {
    let (loader, _) = parse(&dynamic_section(&release.program)?);
    let loader = loader.context("the program names no loader: is it linked statically?")?;
    let folders = release.target.library_folders(&release.sysroot);
    let name = loader.rsplit('/').next().unwrap_or(loader.as_str());
    copy(&find(name, &folders)?, &into.join(loader.trim_start_matches('/')))?;
    copy_terms(name, into)?;
    // The loader of Debian looks here.
    let folder = into.join("lib").join(release.target.gnu);
    for (name, file) in closure(&release.program, &folders)? {
        copy(&file, &folder.join(&name))?;
        copy_terms(&name, into)?;
    }
    Ok(())
}

/// True if a program needs no loader and no library.
pub(super) fn is_static(program: &Path) -> Result<bool> {
    let (loader, needed) = parse(&dynamic_section(program)?);
    Ok(loader.is_none() && needed.is_empty())
}

/// Name and file of every library that a program needs, and that those need.
fn closure(program: &Path, folders: &[PathBuf]) -> Result<BTreeSet<(String, PathBuf)>> {
    let mut found = BTreeSet::new();
    let mut open = vec![program.to_path_buf()];
    while let Some(file) = open.pop() {
        for name in parse(&dynamic_section(&file)?).1 {
            let library = find(&name, folders)?;
            if found.insert((name, library.clone())) {
                open.push(library);
            }
        }
    }
    Ok(found)
}

fn find(name: &str, folders: &[PathBuf]) -> Result<PathBuf> {
    let found = folders.iter().map(|folder| folder.join(name)).find(|file| file.exists());
    found.with_context(|| {
        let folders: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
        format!("{name} is not in {}: images are made on Debian", folders.join(" or "))
    })
}

fn copy_terms(library: &str, into: &Path) -> Result<()> {
    let package = TERMS.iter().find(|(start, _)| library.starts_with(start));
    let (_, package) = package.with_context(|| {
        format!("the terms of {library} are unknown; add its package to package/libraries.rs")
    })?;
    let terms = Path::new("usr/share/doc").join(package).join("copyright");
    copy(&Path::new("/").join(&terms), &into.join(&terms))
}

/// Headers and dynamic section of an ELF file of any machine, as `readelf` prints them.
fn dynamic_section(file: &Path) -> Result<String> {
    let output = Command::new("readelf")
        .args(["--wide", "--program-headers", "--dynamic"])
        .arg(file)
        .env("LC_ALL", "C")
        .output()
        .context("cannot start readelf; install Debian's package binutils")?;
    if !output.status.success() {
        bail!("readelf {}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn bracketed(line: &str, mark: &str) -> Option<String> {
    let value = line.split_once(mark)?.1.split_once(']')?.0;
    Some(value.trim_start_matches('[').trim().to_owned())
}

/// Path of the loader, if one is named, and names of the libraries.
fn parse(text: &str) -> (Option<String>, Vec<String>) {
    let loader = text.lines().find_map(|line| bracketed(line, "[Requesting program interpreter:"));
    let needed = text.lines().filter(|line| line.contains("(NEEDED)"));
    (loader, needed.filter_map(|line| bracketed(line, "Shared library: ")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loader_and_libraries_are_parsed_from_readelf() {
        let text = "\
  INTERP         0x000318 0x0000000000000318 0x000318 0x00001c 0x00001c R   0x1
      [Requesting program interpreter: /lib64/ld-linux-x86-64.so.2]
 0x0000000000000001 (NEEDED)             Shared library: [libelf.so.1]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x000000000000000e (SONAME)             Library soname: [other.so]
";
        let (loader, needed) = parse(text);
        assert_eq!(loader.as_deref(), Some("/lib64/ld-linux-x86-64.so.2"));
        assert_eq!(needed, ["libelf.so.1", "libc.so.6"]);
        assert_eq!(parse(""), (None, vec![]));
    }

    #[test]
    fn library_that_is_not_found_is_named() {
        let error = find("libnone.so.9", &["/nowhere".into()]).unwrap_err().to_string();
        assert!(error.contains("libnone.so.9 is not in /nowhere"), "{error}");
        let error = copy_terms("libnone.so.9", Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("the terms of libnone.so.9 are unknown"), "{error}");
    }
}
