//! Two states of a git repository, each built in a folder of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use host::text::chain;
use house::{console, signals};
use lab::program::{Program, ProgramSpec};
use model::PathError;
use remote::Failure;
use sys::child::as_the_user;

use super::failed;

/// Reference that stands for the working tree with its changes to tracked files.
const WORKING_TREE: &str = ".";
const BUILD_TIMEOUT: Duration = Duration::from_secs(3600);

/// Folders of the builds, which are removed at the end.
pub(super) struct Builds {
    folder: PathBuf,
    clones: [PathBuf; 2],
}

impl Drop for Builds {
    fn drop(&mut self) {
        // A rest of it stays in the folder for temporary files.
        let _removed = std::fs::remove_dir_all(&self.folder);
    }
}

impl Builds {
    /// The program of each build, started in its folder.
    pub(super) fn commands(&self, run: &str) -> [String; 2] {
        self.clones
            .each_ref()
            .map(|clone| format!("cd {} && {run}", report::quoted(&clone.display().to_string())))
    }
}

/// Checks out two references of the repository around the working directory, and builds each.
///
/// The repository itself is read only: the checkouts are clones that share its objects.
///
/// Errors: not a repository, an unknown reference, or a build that fails.
pub(super) fn build(command: &str, references: [(&str, &String); 2]) -> Result<Builds, Failure> {
    let repository = PathBuf::from(git(Path::new("."), &["rev-parse", "--show-toplevel"])?);
    let commits = [commit(&repository, references[0].1)?, commit(&repository, references[1].1)?];
    if commits[0] == commits[1] {
        return Err(Failure::Usage(format!(
            "{} and {} are the same commit, {:.12}",
            references[0].1, references[1].1, commits[0]
        )));
    }
    let folder = std::env::temp_dir().join(format!("wirepath-builds-{}", std::process::id()));
    let clones = [folder.join(references[0].0), folder.join(references[1].0)];
    std::fs::create_dir(&folder).map_err(|error| {
        Failure::failed(format!("cannot make the folder {}: {}", folder.display(), chain(&error)))
    })?;
    let builds = Builds { folder, clones };
    for ((clone, commit), (_, reference)) in builds.clones.iter().zip(&commits).zip(references) {
        console::say(&format!("building {reference} ({commit:.12}): {command}"));
        check_out(&repository, commit, clone)?;
        build_in(clone, command, reference)?;
    }
    Ok(builds)
}

fn commit(repository: &Path, reference: &str) -> Result<String, Failure> {
    if reference == WORKING_TREE {
        // A commit of the changes that no branch has; empty without any.
        let changes = git(repository, &["stash", "create"])?;
        if !changes.is_empty() {
            return Ok(changes);
        }
        return git(repository, &["rev-parse", "--verify", "HEAD^{commit}"]);
    }
    let commit = format!("{reference}^{{commit}}");
    git(repository, &["rev-parse", "--verify", "--quiet", "--end-of-options", &commit]).map_err(
        |_| {
            Failure::Usage(format!(
                "{reference:?} is not a commit, tag or branch of {}",
                repository.display()
            ))
        },
    )
}

fn check_out(repository: &Path, commit: &str, clone: &Path) -> Result<(), Failure> {
    let (from, to) = (repository.display().to_string(), clone.display().to_string());
    git(repository, &["clone", "--quiet", "--shared", "--no-checkout", &from, &to])?;
    git(clone, &["checkout", "--quiet", "--detach", commit])?;
    git(clone, &["submodule", "--quiet", "update", "--init", "--recursive"]).map(drop)
}

/// Runs git and returns its output without the line break at its end.
fn git(folder: &Path, words: &[&str]) -> Result<String, Failure> {
    let output = as_the_user(&mut Command::new("git"))
        .arg("-C")
        .arg(folder)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::Unsupported(format!("--build needs git: {}", chain(&error))))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Usage(format!("git {}: {}", words.join(" "), said.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// Runs a build, which ends with this process.
fn build_in(folder: &Path, command: &str, reference: &str) -> Result<(), Failure> {
    let (env, netns, cpus, name) = (Vec::new(), None, &[][..], "build");
    let built = Program::start(&ProgramSpec { command, env, netns, cpus, folder, name })
        .and_then(|build| build.wait(BUILD_TIMEOUT, signals::stop_flag()))
        .map_err(|error| failed(&PathError::part(error)))?;
    if built.status.success() {
        return Ok(());
    }
    let (status, lines) = (built.status, built.last_lines());
    Err(Failure::failed(format!("the build of {reference} failed ({status}); {lines}")))
}
