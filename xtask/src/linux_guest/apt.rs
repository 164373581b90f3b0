//! Debian's packages, by an apt with a state of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{entries, run};

/// Debian release whose kernel is 6.12.
const SUITE: &str = "trixie";
/// Where Debian's package of keys puts them.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const MIRROR_VARIABLE: &str = "WIREPATH_DEBIAN_MIRROR";

/// apt with folders of its own, for another architecture.
pub(super) struct Apt {
    folder: PathBuf,
    configuration: PathBuf,
}

impl Apt {
    /// - `folder`: its own; made when it is not there.
    pub(super) fn new(folder: PathBuf, architecture: &str) -> Result<Apt> {
        if !Path::new(KEYRING).exists() {
            bail!("{KEYRING} is missing; install the package debian-archive-keyring");
        }
        for part in ["state/lists/partial", "cache/archives/partial", "etc/parts", "packages"] {
            let part = folder.join(part);
            fs::create_dir_all(&part).with_context(|| format!("creating {}", part.display()))?;
        }
        let write = |name: &str, text: String| -> Result<PathBuf> {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
            Ok(path)
        };
        write("status", String::new())?;
        write(
            "etc/sources.list",
            format!("deb [signed-by={KEYRING}] {} {SUITE} main\n", mirror()?),
        )?;
        let configuration = write("apt.conf", configuration(&folder, architecture))?;
        Ok(Apt { folder, configuration })
    }

    pub(super) fn update(&self) -> Result<()> {
        self.run("apt-get", &["update", "-qq"]).map(drop)
    }

    /// Downloads a package and unpacks it into a folder.
    pub(super) fn unpack(&self, package: &str, into: &Path) -> Result<()> {
        let file = self.download(package)?;
        run(Command::new("dpkg").arg("-x").arg(&file).arg(into))
    }

    /// Resolves a metapackage to its kernel package.
    pub(super) fn kernel(&self, package: &str) -> Result<String> {
        dependency(&self.run("apt-cache", &["depends", package])?)
            .with_context(|| format!("{package} depends on no kernel"))
    }

    fn download(&self, package: &str) -> Result<PathBuf> {
        self.run("apt-get", &["download", "-qq", package])?;
        let packages = self.folder.join("packages");
        let prefix = format!("{package}_");
        let mut files: Vec<PathBuf> = entries(&packages)?;
        files.retain(|file| {
            file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
        });
        // Of several versions, the one that has just come.
        files.sort_by_key(|file| fs::metadata(file).and_then(|file| file.modified()).ok());
        files.pop().with_context(|| format!("apt-get download left no file of {package}"))
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command
            .env("APT_CONFIG", &self.configuration)
            .env("LC_ALL", "C")
            .current_dir(self.folder.join("packages"))
            .args(arguments);
        let output = command.output().with_context(|| format!("{program} did not start"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{program} {}: {}\n{said}", arguments.join(" "), output.status);
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn configuration(folder: &Path, architecture: &str) -> String {
    let folder = folder.display();
    format!(
        "Dir::State \"{folder}/state\";\n\
         Dir::State::status \"{folder}/status\";\n\
         Dir::Cache \"{folder}/cache\";\n\
         Dir::Etc::sourcelist \"{folder}/etc/sources.list\";\n\
         Dir::Etc::sourceparts \"{folder}/etc/parts\";\n\
         APT::Architecture \"{architecture}\";\n\
         APT::Architectures {{ \"{architecture}\"; }};\n\
         APT::Sandbox::User \"root\";\n\
         Acquire::Languages \"none\";\n"
    )
}

/// The Debian mirror that this machine uses, unless another is named.
fn mirror() -> Result<String> {
    if let Ok(named) = std::env::var(MIRROR_VARIABLE) {
        return Ok(named);
    }
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(RELEASE) $(REPO_URI)"])
        .output()
        .context("apt-get did not start: the Linux guest is made of Debian's packages")?;
    let text = String::from_utf8_lossy(&output.stdout);
    debian_mirror(&text).map(str::to_owned).with_context(|| {
        format!("this machine's apt has no Debian mirror; name one in {MIRROR_VARIABLE}")
    })
}

/// The first mirror of Debian's own archive; updates and security have others.
fn debian_mirror(targets: &str) -> Option<&str> {
    targets.lines().find_map(|line| {
        let mut words = line.split(' ');
        let ("Debian", "main", release, uri) =
            (words.next()?, words.next()?, words.next()?, words.next()?)
        else {
            return None;
        };
        (!release.contains('-')).then_some(uri)
    })
}

/// Kernel package in the output of `apt-cache depends`.
fn dependency(text: &str) -> Option<String> {
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.map(str::to_owned).find(|name| name.starts_with("linux-image-6."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_is_that_of_the_archive_itself() {
        let targets = "Other main stable https://example.org/other\n\
                       Debian main bookworm-security http://example.org/security/\n\
                       Debian contrib bookworm http://example.org/contrib/\n\
                       Debian main bookworm http://example.org/debian/\n";
        assert_eq!(debian_mirror(targets), Some("http://example.org/debian/"));
        assert_eq!(debian_mirror("Ubuntu main noble http://example.org/ubuntu/\n"), None);
    }

    #[test]
    fn kernel_is_what_the_metapackage_stands_for() {
        let text = "linux-image-cloud-arm64\n  Depends: linux-image-6.12.1+deb13-cloud-arm64\n";
        assert_eq!(dependency(text).as_deref(), Some("linux-image-6.12.1+deb13-cloud-arm64"));
        assert_eq!(dependency("linux-image-cloud-arm64\n"), None);
    }

    #[test]
    fn apt_keeps_to_its_own_folders_and_architecture() {
        let text = configuration(Path::new("/x"), "arm64");
        for setting in ["Dir::State ", "Dir::State::status", "Dir::Cache", "Dir::Etc::source"] {
            assert!(text.lines().any(|line| line.starts_with(setting) && line.contains("\"/x/")));
        }
        assert!(text.contains("APT::Architectures { \"arm64\"; };"));
    }
}
