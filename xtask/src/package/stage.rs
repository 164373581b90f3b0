//! Files of a package that are generated: man pages, completions, images and notices.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{copy, crates, empty, notices};
use crate::release::Release;
use crate::{firmware, run};

/// Shells, with the file name that each expects.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "wirepath"), ("zsh", "_wirepath"), ("fish", "wirepath.fish")];

/// Writes the files to `staged` beside the program, where `cargo deb` expects them.
pub(super) fn prepare(root: &Path, release: &Release) -> Result<()> {
    firmware::build(root)?;
    let stage = release.folder().join("staged");
    empty(&stage)?;
    for folder in ["man", "completions"] {
        let folder = stage.join(folder);
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    run(release.command().arg("man").arg(stage.join("man")))?;
    // Without file names and times, for reproducible output.
    run(Command::new("gzip").args(["--best", "--no-name", "--recursive"]).arg(stage.join("man")))?;
    for (shell, file) in COMPLETIONS {
        let file = stage.join("completions").join(file);
        let to = fs::File::create(&file).with_context(|| format!("creating {}", file.display()))?;
        run(release.command().args(["completions", shell]).stdout(to))?;
    }
    for image in firmware::files() {
        copy(&root.join("target/firmware").join(image), &stage.join("firmware").join(image))?;
    }
    let notices = notices::text(&crates::third_party(root, release.target.triple)?)?;
    fs::write(stage.join("THIRD-PARTY"), notices).context("writing the third-party notices")
}
