//! Chores of the workspace: `cargo xtask edges | links | goldens | reference | unsafe [--check] |
//! man [DIR] | firmware | linux-guest | release | deb`.
#![expect(clippy::print_stdout, reason = "a command line tool answers on stdout")]

mod deb;
mod edges;
mod firmware;
mod links;
mod linux_guest;
mod notices;
mod release;
mod source;
mod unsafe_table;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

const USAGE: &str = "\
usage: cargo xtask edges        check that crates and paths depend on each other as agreed
       cargo xtask links        check that links of Markdown pages lead somewhere; fetches nothing
       cargo xtask goldens      rewrite the golden files from what the tests produce now
       cargo xtask reference    rewrite docs/commands.md and docs/results.schema.json from the code
       cargo xtask unsafe [--check]   write, or check, the table of unsafe code in docs/unsafe.md
       cargo xtask man [DIR]    write the man pages to DIR (out/man if not given)
       cargo xtask firmware     build the images of both guests into target/firmware
       cargo xtask linux-guest  build the Linux guests of paths and tests from Debian's packages
       cargo xtask release      build the program so that it does not depend on where it is built
       cargo xtask deb          build the Debian package into out/";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask lies in the workspace's folder")?;
    match words[..] {
        ["edges"] => edges(root),
        ["links"] => links::check(root),
        ["reference"] => reference(root),
        ["goldens"] => goldens(root),
        ["firmware"] => firmware::build(root),
        ["linux-guest"] => linux_guest::build(root),
        ["unsafe"] => unsafe_table::run(root, false),
        ["unsafe", "--check"] => unsafe_table::run(root, true),
        ["release"] => release::build(root, &release::target(root)).map(drop),
        ["deb"] => deb::build(root),
        ["man"] => man(root, &root.join("out/man")),
        ["man", folder] => man(root, &PathBuf::from(folder)),
        _ => bail!("{USAGE}"),
    }
}

/// Checks dependencies and sources; lists every violation before it fails.
fn edges(root: &Path) -> Result<()> {
    let output = cargo(root)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("cargo metadata did not start")?;
    if !output.status.success() {
        bail!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata = serde_json::from_slice(&output.stdout).context("cargo metadata is no JSON")?;
    let mut violations = edges::of_crates(&metadata)?;
    violations.extend(source::violations(root)?);
    for violation in &violations {
        println!("{violation}");
    }
    if !violations.is_empty() {
        bail!("{} violation(s); CONTRIBUTING.md says where things go", violations.len());
    }
    println!("edges: crates and paths depend on each other as agreed");
    Ok(())
}

/// Runs the tests with `UPDATE=1` and shows which files that changed.
fn goldens(root: &Path) -> Result<()> {
    run(cargo(root).args(["test", "--workspace", "--quiet"]).env("UPDATE", "1"))?;
    println!("changed files, to be read before they are committed:");
    run(Command::new("git").current_dir(root).args(["status", "--short", "--", "*golden*"]))
}

/// Has the tests that compare these pages with the code write them.
fn reference(root: &Path) -> Result<()> {
    let of = |package: &'static str, target: [&'static str; 2], test: &'static str| {
        run(cargo(root)
            .args(["test", "--quiet", "--package", package])
            .args(target)
            .args([test])
            .env("UPDATE", "1"))
    };
    of("wirepath", ["--bin", "wirepath"], "commands_of_the_reference_are_those_of_the_program")?;
    of("wirepath-report", ["--test", "schema"], "schema_is_that_of_the_types")?;
    println!("docs/commands.md and docs/results.schema.json are what the code says");
    Ok(())
}

/// Has the program itself write its man pages: it knows its commands.
fn man(root: &Path, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    run(cargo(root).args(["run", "--quiet", "--package", "wirepath", "--", "man"]).arg(folder))?;
    println!("man pages are in {}", folder.display());
    Ok(())
}

/// The cargo that runs us.
fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?} did not start"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}
