//! The released program: one static file for a machine, with checksums, terms and the list of its parts.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::crates::{self, Crate};
use super::sbom::{self, Program, Vendored};
use super::system::{self, SystemLibrary};
use super::{copy, files, libraries, notices, out, output};
use crate::release::{Kind, Release};
use crate::target::Target;
use crate::{entries, firmware, release, run};

/// Builds the program and fills the folder `out/wirepath-VERSION`.
///
/// - `arguments`: `--target TRIPLE`; and `--profile quick`, for tests of this command.
pub(crate) fn build(root: &Path, arguments: &[&str]) -> Result<()> {
    let (kind, rest) = kind(arguments);
    let target = Target::parse(rest)?;
    firmware::build(root)?;
    let release = release::build(root, target, kind)?;
    if !libraries::is_static(&release.program)? {
        bail!("{} needs shared libraries: the linker found no archives", release.program.display());
    }
    let version = files::version(root)?;
    let folder = out(root)?.join(format!("wirepath-{version}"));
    pack(root, &release, &version, &folder)?;
    for line in fs::read_to_string(folder.join(SUMS)).context("reading the checksums")?.lines() {
        println!("{line}");
    }
    println!("the files are in {}", folder.display());
    Ok(())
}

fn kind<'a>(arguments: &'a [&'a str]) -> (Kind, &'a [&'a str]) {
    match arguments {
        ["--profile", "quick", rest @ ..] => (Kind::StaticQuick, rest),
        rest => (Kind::Static, rest),
    }
}

/// File with the checksums of the others in its folder.
pub(super) const SUMS: &str = "SHA256SUMS";

/// Fills a folder with the program of one machine and what belongs to it; files of other machines remain.
fn pack(root: &Path, release: &Release, version: &str, folder: &Path) -> Result<()> {
    let name = format!("wirepath-{version}-{}-linux", release.target.machine);
    let [file, terms_file, parts_file] =
        ["", ".third-party.txt", ".cdx.json"].map(|ending| folder.join(format!("{name}{ending}")));
    copy(&release.program, &file)?;
    // In one thread the result does not depend on the machine.
    run(Command::new("xz").args(["-9", "--threads=1", "--keep", "--force"]).arg(&file))
        .context("compressing by xz, of Debian's package xz-utils")?;
    let crates = crates::third_party(root, release.target.triple)?;
    let system = system::libraries(release)?;
    fs::write(terms_file, terms(&notices::text(&crates)?, &system))
        .context("writing the third-party notices")?;
    let program = Program {
        version,
        file: &name,
        checksum: &checksum(&file)?,
        time: &rfc3339(release.date)?,
        rust: &rust_version(root)?,
    };
    let document = sbom::document(&program, &crates, &vendored(&crates)?, &system);
    fs::write(parts_file, format!("{document:#}\n")).context("writing the list of parts")?;
    copy(&root.join("LICENSE"), &folder.join("LICENSE"))?;
    sum_up(folder)
}

/// The notices of crates, and the terms of the system's libraries.
fn terms(notices: &str, system: &[SystemLibrary]) -> String {
    let mut text = notices.to_owned();
    for library in system {
        let rule = "=".repeat(72);
        let (package, version) = (&library.package, &library.version);
        let terms = library.terms.trim_end();
        text += &format!(
            "\n{rule}\n{} of Debian's package {package} {version}\n\n{terms}\n",
            library.name
        );
    }
    text
}

/// C libraries whose sources crates bring.
fn vendored(crates: &[Crate]) -> Result<Vec<Vendored>> {
    let mut found = Vec::new();
    for one in crates {
        if one.name == "libbpf-sys" {
            // 1.7.0+v1.7.0: the second is libbpf's.
            let version = one.version.split_once('+').map_or(one.version.as_str(), |(_, own)| own);
            found.push(Vendored {
                name: "libbpf",
                url: "https://github.com/libbpf/libbpf",
                licence: "LGPL-2.1-only OR BSD-2-Clause",
                version: version.trim_start_matches('v').to_owned(),
            });
        }
        if one.name == "libsqlite3-sys" {
            let header = one.folder.join("sqlite3/sqlite3.h");
            let text = fs::read_to_string(&header)
                .with_context(|| format!("reading {}", header.display()))?;
            found.push(Vendored {
                name: "sqlite",
                url: "https://sqlite.org",
                licence: "blessing",
                version: sqlite_version(&text).context("sqlite3.h has no version")?.to_owned(),
            });
        }
    }
    Ok(found)
}

fn sqlite_version(header: &str) -> Option<&str> {
    let line = header.lines().find(|line| line.starts_with("#define SQLITE_VERSION "))?;
    line.split('"').nth(1)
}

/// Writes the checksums of all files of a folder. A signature of earlier ones is removed.
pub(super) fn sum_up(folder: &Path) -> Result<()> {
    let mut files: Vec<PathBuf> = entries(folder)?;
    crate::remove_file(&folder.join(format!("{SUMS}.sig")))?;
    files.retain(|file| file.file_name().is_some_and(|name| name != SUMS) && file.exists());
    files.sort();
    let mut sums = Vec::new();
    for file in &files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        // As `sha256sum` prints and checks them.
        writeln!(sums, "{}  {name}", checksum(file)?).context("no memory")?;
    }
    fs::write(folder.join(SUMS), sums).context("writing the checksums")
}

/// SHA-256 of a file, in hexadecimal.
pub(super) fn checksum(file: &Path) -> Result<String> {
    let line = output(Command::new("sha256sum").arg("--").arg(file))?;
    let sum = line.trim_start_matches('\\').split_whitespace().next();
    sum.map(str::to_owned).with_context(|| format!("sha256sum said nothing of {}", file.display()))
}

/// - `seconds`: since 1970.
fn rfc3339(seconds: u64) -> Result<String> {
    output(Command::new("date").args([
        "--utc",
        &format!("--date=@{seconds}"),
        "+%Y-%m-%dT%H:%M:%SZ",
    ]))
}

/// Version of the compiler, such as `1.95.0`.
fn rust_version(root: &Path) -> Result<String> {
    let line = output(Command::new("rustc").current_dir(root).arg("--version"))?;
    line.split(' ').nth(1).map(str::to_owned).context("rustc --version names no version")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// True if `sha256sum` finds every file as it was summed up.
    fn is_intact(folder: &Path) -> bool {
        let mut command = Command::new("sha256sum");
        command.args(["--check", "--quiet", SUMS]).current_dir(folder);
        command.output().unwrap().status.success()
    }

    /// Versions of the components of a name.
    fn versions<'a>(parts: &'a Value, name: &str) -> Vec<&'a str> {
        let all = parts["components"].as_array().unwrap().iter();
        let named = all.filter(|one| one["name"] == name);
        named.map(|one| one["version"].as_str().unwrap_or_default()).collect()
    }

    #[test]
    fn a_release_has_a_program_its_parts_and_their_checksums() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let (folder, target) = (tempfile::tempdir().unwrap(), Target::parse(&[]).unwrap());
        let release = Release {
            target,
            program: "/bin/true".into(),
            build: folder.path().into(),
            sysroot: folder.path().join("none"),
            date: 1_780_000_000,
        };
        let out = folder.path().join("out");
        pack(root, &release, "1.2.3", &out).unwrap();
        let name = format!("wirepath-1.2.3-{}-linux", target.machine);
        let mut names: Vec<String> = entries(&out)
            .unwrap()
            .iter()
            .map(|file| file.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        names.sort();
        let own = ["", ".cdx.json", ".third-party.txt", ".xz"].map(|end| format!("{name}{end}"));
        assert_eq!(names, [&["LICENSE".to_owned(), SUMS.to_owned()][..], &own].concat());
        assert!(is_intact(&out));
        assert_eq!(fs::read_to_string(out.join(SUMS)).unwrap().lines().count(), 5);

        let text = fs::read_to_string(out.join(format!("{name}.cdx.json"))).unwrap();
        let parts: Value = serde_json::from_str(&text).unwrap();
        let program = &parts["metadata"]["component"];
        assert_eq!(program["hashes"][0]["content"], checksum(Path::new("/bin/true")).unwrap());
        assert_eq!(parts["metadata"]["timestamp"], "2026-05-28T20:26:40Z");
        for linked in
            ["clap", "libbpf", "sqlite", "elfutils", "zlib", "glibc", "gcc", "std", "smoltcp"]
        {
            let versions = versions(&parts, linked);
            let is_known = !versions.is_empty() && versions.iter().all(|one| !one.is_empty());
            assert!(is_known, "{linked}: {versions:?}");
        }
        assert_eq!(versions(&parts, "proptest"), [""; 0], "of tests");
        let terms = fs::read_to_string(out.join(format!("{name}.third-party.txt"))).unwrap();
        assert!(terms.contains("elfutils of Debian's package libelf-dev "), "{terms}");

        // A changed file is found; a second machine's files are added.
        fs::write(out.join("LICENSE"), "other").unwrap();
        assert!(!is_intact(&out));
        fs::write(out.join("wirepath-1.2.3-other-linux"), "program").unwrap();
        sum_up(&out).unwrap();
        assert!(is_intact(&out));
    }

    #[test]
    fn a_program_with_a_loader_is_not_static() {
        let own = std::env::current_exe().unwrap();
        assert!(!libraries::is_static(&own).unwrap());
    }

    #[test]
    fn profile_comes_before_the_target() {
        assert_eq!(kind(&[]), (Kind::Static, &[][..]));
        assert_eq!(
            kind(&["--profile", "quick", "--target", "x"]),
            (Kind::StaticQuick, &["--target", "x"][..])
        );
        assert_eq!(kind(&["--profile", "other"]), (Kind::Static, &["--profile", "other"][..]));
        assert_eq!(sqlite_version("#define SQLITE_VERSION        \"3.50.4\"\n"), Some("3.50.4"));
    }
}
