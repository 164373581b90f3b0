//! The Debian package: stages man pages, completions and images, and runs `cargo deb`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{cargo, firmware, notices, release, run};

/// Shells, with the file name that each expects.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "wirepath"), ("zsh", "_wirepath"), ("fish", "wirepath.fish")];

/// Builds the package into `out/`.
pub(crate) fn build(root: &Path) -> Result<()> {
    check_tool(root)?;
    let target = release::target(root);
    firmware::build(root)?;
    let program = release::build(root, &target)?;

    // `cargo deb` looks here for assets whose path begins with `target/release`.
    let stage = target.join("release/staged");
    if stage.exists() {
        fs::remove_dir_all(&stage).with_context(|| format!("emptying {}", stage.display()))?;
    }
    for folder in ["man", "completions", "firmware"] {
        let folder = stage.join(folder);
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    run(Command::new(&program).arg("man").arg(stage.join("man")))?;
    // Without file names and times, for reproducible output.
    run(Command::new("gzip").args(["--best", "--no-name", "--recursive"]).arg(stage.join("man")))?;
    for (shell, file) in COMPLETIONS {
        let file = stage.join("completions").join(file);
        let to = fs::File::create(&file).with_context(|| format!("creating {}", file.display()))?;
        run(Command::new(&program).args(["completions", shell]).stdout(to))?;
    }
    for image in firmware::files() {
        let from = root.join("target/firmware").join(image);
        fs::copy(&from, stage.join("firmware").join(image))
            .with_context(|| format!("copying {}", from.display()))?;
    }
    let notices = notices::text(root)?;
    fs::write(stage.join("THIRD-PARTY"), notices).context("writing the third-party notices")?;

    let out = root.join("out");
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    run(cargo(root)
        .args(["deb", "--package", "wirepath", "--no-build", "--strip", "--locked", "--output"])
        .arg(&out)
        .env("CARGO_TARGET_DIR", &target)
        .env("SOURCE_DATE_EPOCH", release::date(root)?.to_string()))
}

fn check_tool(root: &Path) -> Result<()> {
    let tool = cargo(root).args(["deb", "--version"]).stderr(Stdio::null()).output();
    if !tool.is_ok_and(|output| output.status.success()) {
        bail!("cargo-deb is missing; install it: cargo install --locked cargo-deb@3.8.0");
    }
    Ok(())
}
