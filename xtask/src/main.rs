//! Maintenance commands of the workspace; see `USAGE`.
#![expect(clippy::print_stdout, reason = "a command line tool prints to stdout")]

mod apt;
mod budget;
mod causes;
mod edges;
mod evidence;
mod firmware;
mod links;
mod linux_guest;
mod package;
mod public;
mod release;
mod sources;
mod target;
mod tidy;
mod words;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use target::Target;

const USAGE: &str = "\
usage: cargo xtask edges        check the dependencies between the crates of the workspace
       cargo xtask links        check the links of Markdown pages, without fetching any
       cargo xtask words        check the wording of comments and documents
       cargo xtask tidy         count habits of code against .ci/tidy.tsv; --write lowers it, --list [PREFIX] lists them
       cargo xtask budget       compare the product lines of each package with its ceiling; --write lowers ceilings
       cargo xtask goldens      rewrite the golden files from the current output of the tests
       cargo xtask man [DIR]    write the man pages to DIR (out/man if not given)
       cargo xtask firmware     build the images of both guests into target/firmware; --sizes compares the code of arms
       cargo xtask linux-guest  build the Linux guests of paths and tests from Debian packages
       cargo xtask evidence PAGE  measure the tables of docs/evidence/PAGE.md again; --list [PAGE] prints their commands
       cargo xtask causes       plant every cause, as root, and write docs/evidence/causes.md
       cargo xtask kernels      boot the program on Debian's kernels and write docs/reference/kernels.md
       cargo xtask crates       package the public crates in out/crates, use each from an empty project, rehearse the upload;
                                --offline leaves the rehearsal out
       cargo xtask release      build the program as one static file, reproducibly, with checksums and its parts in out/
       cargo xtask deb          build it as a Debian package in out/
       cargo xtask rpm          build it as an RPM package in out/
       cargo xtask image        build it as a container image in out/
       cargo xtask dist         complete the folder of `release` for upload: these packages, sources, install script, Homebrew, Nix and
                                AUR files, checksums; --build builds program and packages first, --sign KEY signs the checksums,
                                --url URL is where the files will be
release takes --profile quick, for tests: not optimised; release, rpm and image take --target aarch64-unknown-linux-gnu: the same for arm64, built on x86-64 Debian";

fn main() -> Result<()> {
    if std::env::var_os(firmware::AS_COMPILER).is_some() {
        return firmware::compile();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let folder = std::env::current_dir().context("cannot read the current folder")?;
    let root = workspace_root(&folder)?;
    match words[..] {
        ["edges"] => edges(root),
        ["links"] => links::check(root),
        ["words"] => words::check(root),
        ["tidy"] => tidy::check(root),
        ["tidy", "--write"] => tidy::write(root),
        ["tidy", "--list"] => tidy::print_findings(root, ""),
        ["tidy", "--list", prefix] => tidy::print_findings(root, prefix),
        ["budget"] => budget::check(root),
        ["budget", "--write"] => budget::write(root),
        ["goldens"] => goldens(root),
        ["firmware"] => firmware::build(root),
        ["firmware", "--sizes"] => firmware::print_sizes(root),
        ["linux-guest"] => linux_guest::build(root),
        ["evidence", "--list"] => evidence::list_all(root),
        ["evidence", "--list", page] => evidence::list(root, page),
        ["evidence", page] => evidence::rewrite(root, page),
        ["kernels"] => kernels(root),
        ["causes"] => causes::write_table(root),
        ["crates", ref rest @ ..] => public::build(root, rest),
        ["release", ref rest @ ..] => package::binary(root, rest),
        ["deb"] => package::deb(root),
        ["rpm", ref target @ ..] => package::rpm(root, Target::parse(target)?),
        ["image", ref target @ ..] => package::image(root, Target::parse(target)?),
        ["dist", ref rest @ ..] => package::dist(root, rest),
        ["man"] => man(root, &root.join("out/man")),
        ["man", folder] => man(root, &PathBuf::from(folder)),
        _ => bail!("{USAGE}"),
    }
}

/// Nearest folder above `folder`, or itself, that contains this program's sources.
fn workspace_root(folder: &Path) -> Result<&Path> {
    let mut folders = folder.ancestors();
    folders
        .find(|folder| folder.join("xtask/Cargo.toml").is_file())
        .with_context(|| format!("{} is not in a checkout of Wirepath", folder.display()))
}

/// Output of `cargo metadata`.
fn metadata(root: &Path, arguments: &[&str]) -> Result<Value> {
    let output = cargo(root)
        .args(["metadata", "--format-version", "1"])
        .args(arguments)
        .output()
        .context("cannot start cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("invalid cargo metadata")
}

/// Checks the dependencies between crates; prints every violation before it fails.
fn edges(root: &Path) -> Result<()> {
    let violations = edges::violations(&metadata(root, &["--no-deps"])?)?;
    for violation in &violations {
        println!("{violation}");
    }
    if !violations.is_empty() {
        bail!("{} violation(s); see CONTRIBUTING.md", violations.len());
    }
    println!("edges: all dependencies between crates are allowed");
    Ok(())
}

/// Returns the files that git tracks, and new ones that it does not ignore, relative to `root`.
fn tracked_files(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("cannot start git")?;
    if !output.status.success() {
        bail!("git ls-files failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let names = str::from_utf8(&output.stdout).context("a file name is not UTF-8")?;
    Ok(names
        .split_terminator('\0')
        .map(PathBuf::from)
        .filter(|file| root.join(file).is_file())
        .collect())
}

/// Runs the tests with `UPDATE=1` and lists the files that changed.
fn goldens(root: &Path) -> Result<()> {
    run(cargo(root).args(["test", "--workspace", "--quiet"]).env("UPDATE", "1"))?;
    println!("changed files; review them before the commit:");
    run(Command::new("git").current_dir(root).args(["status", "--short", "--", "*golden*"]))
}

/// Boots each kernel of the table with the program, and writes docs/reference/kernels.md.
fn kernels(root: &Path) -> Result<()> {
    linux_guest::build_table(root)?;
    run(cargo(root)
        .args([
            "test",
            "--package",
            "wirepath",
            "--test",
            "kernels",
            "--",
            "--ignored",
            "--nocapture",
            "--skip",
            "study_",
        ])
        .env("UPDATE", "1"))
}

/// Runs the program to write its own man pages.
fn man(root: &Path, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    run(cargo(root).args(["run", "--quiet", "--package", "wirepath", "--", "man"]).arg(folder))?;
    println!("man pages are in {}", folder.display());
    Ok(())
}

/// The cargo that started this program.
fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Removes a file, if it is there.
fn remove_file(file: &Path) -> Result<()> {
    if file.exists() {
        fs::remove_file(file).with_context(|| format!("removing {}", file.display()))?;
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}

/// Entries of a folder, in no order.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = || format!("reading {}", folder.display());
    let entries = fs::read_dir(folder).with_context(failed)?;
    entries.map(|entry| Ok(entry.with_context(failed)?.path())).collect()
}

/// Removes a folder with its contents, if it is there.
fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    Ok(())
}
