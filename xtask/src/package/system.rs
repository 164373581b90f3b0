//! Libraries of this system that a static program contains.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::output;
use crate::release::Release;

/// Archives that the linker takes, and the name of each project.
const ARCHIVES: [(&str, &str); 4] =
    [("libc.a", "glibc"), ("libgcc_eh.a", "gcc"), ("libelf.a", "elfutils"), ("libz.a", "zlib")];

/// A library, from a package of Debian.
pub(super) struct SystemLibrary {
    /// Of the project.
    pub(super) name: &'static str,
    pub(super) package: String,
    pub(super) version: String,
    /// Text of its terms.
    pub(super) terms: String,
}

/// Every library of the system that a static program contains.
///
/// Errors: an archive is of no package of Debian.
pub(super) fn libraries(release: &Release) -> Result<Vec<SystemLibrary>> {
    ARCHIVES.iter().map(|(archive, name)| library(release, archive, name)).collect()
}

fn library(release: &Release, archive: &str, name: &'static str) -> Result<SystemLibrary> {
    // Fetched for another machine: its package is not installed here.
    let fetched = release.target.fetched(&release.sysroot).join(archive);
    if fetched.exists() {
        let package = match name {
            "elfutils" => "libelf-dev",
            _ => "zlib1g-dev",
        };
        let folder = release.sysroot.join("usr/share/doc").join(package);
        return described(name, package.into(), &folder);
    }
    let printed = output(release.target.tool("gcc").arg(format!("-print-file-name={archive}")))?;
    let file = fs::canonicalize(&printed)
        .with_context(|| format!("{archive} is not installed; install its package"))?;
    let package = owner(&file)?;
    let folder = Path::new("/usr/share/doc").join(&package);
    described(name, package, &folder)
}

/// Debian's package that has a file.
fn owner(file: &Path) -> Result<String> {
    // Packages name libraries by /lib too, which is a link to /usr/lib.
    let short = file.strip_prefix("/usr").map(|rest| Path::new("/").join(rest));
    for path in [Ok(file.to_path_buf()), short].into_iter().flatten() {
        let found = output(Command::new("dpkg-query").arg("--search").arg(&path));
        if let Some(package) = found.ok().as_deref().and_then(package_of_line) {
            return Ok(package.to_owned());
        }
    }
    bail!("{} is of no package: releases are made on Debian", file.display())
}

/// The package in `libelf-dev:amd64: /usr/lib/…`.
fn package_of_line(line: &str) -> Option<&str> {
    let (packages, _) = line.lines().next()?.rsplit_once(": ")?;
    packages.split([',', ':']).next()
}

/// - `folder`: the package's folder of documents.
fn described(name: &'static str, package: String, folder: &Path) -> Result<SystemLibrary> {
    let terms: PathBuf = folder.join("copyright");
    let terms =
        fs::read_to_string(&terms).with_context(|| format!("reading {}", terms.display()))?;
    let log = folder.join("changelog.Debian.gz");
    let version =
        match output(Command::new("dpkg-query").args(["--show", "-f", "${Version}\n", &package])) {
            Ok(versions) if folder.starts_with("/usr") => {
                versions.lines().next().unwrap_or("").to_owned()
            }
            _ => version_of_changelog(&output(Command::new("gzip").arg("-dc").arg(&log))?)
                .with_context(|| format!("{} names no version", log.display()))?
                .to_owned(),
        };
    Ok(SystemLibrary { name, package, version, terms })
}

/// The version in `elfutils (0.188-2.1) bookworm; urgency=medium`, the first line.
fn version_of_changelog(text: &str) -> Option<&str> {
    text.lines().next()?.split_once('(')?.1.split_once(')').map(|(version, _)| version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_and_version_are_parsed() {
        assert_eq!(package_of_line("libelf-dev:amd64: /usr/lib/x/libelf.a"), Some("libelf-dev"));
        assert_eq!(package_of_line("libc6-dev, other: /usr/lib/libc.a"), Some("libc6-dev"));
        assert_eq!(package_of_line("libgcc-12-dev: /usr/lib/a"), Some("libgcc-12-dev"));
        assert_eq!(package_of_line("no path found"), None);
        let log = "elfutils (0.188-2.1) bookworm; urgency=medium\n\n  * (a) change\n";
        assert_eq!(version_of_changelog(log), Some("0.188-2.1"));
        assert_eq!(version_of_changelog(""), None);
    }
}
