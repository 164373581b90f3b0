//! Debian's packages, by an apt with a state of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{entries, run};

/// Packages of which a kernel's package is composed since Linux 7.
const PARTS: &[&str] = &["linux-base-", "linux-binary-", "linux-modules-"];
/// Where Debian's package of keys puts them.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const MIRROR_VARIABLE: &str = "WIREPATH_DEBIAN_MIRROR";

/// apt with folders of its own, for another architecture.
pub(crate) struct Apt {
    folder: PathBuf,
    configuration: PathBuf,
}

impl Apt {
    /// - `folder`: its own; made when it is not there.
    /// - `suites`: such as a release and its backports; packages of the last are preferred.
    pub(crate) fn new(folder: PathBuf, architecture: &str, suites: &[&str]) -> Result<Apt> {
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
        let mirror = mirror()?;
        let line = |suite| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n");
        let preferred = suites.last().context("no suite of Debian")?;
        let text = configuration(&folder, architecture, preferred);
        write("etc/sources.list", suites.iter().map(line).collect())?;
        let configuration = write("apt.conf", text)?;
        Ok(Apt { folder, configuration })
    }

    pub(crate) fn update(&self) -> Result<()> {
        self.run("apt-get", &["update", "-qq"]).map(drop)
    }

    /// Downloads a package and unpacks it into a folder.
    pub(crate) fn unpack(&self, package: &str, into: &Path) -> Result<()> {
        let file = self.download(package)?;
        run(Command::new("dpkg").arg("-x").arg(&file).arg(into))
    }

    /// Package of the kernel that a metapackage depends on, and the packages that hold it and its modules:
    /// since Linux 7 the kernel's own package is empty.
    pub(crate) fn kernel(&self, package: &str) -> Result<(String, Vec<String>)> {
        let text = self.run("apt-cache", &["depends", package])?;
        let kernel = dependencies(&text, &["linux-image-"]).into_iter().next();
        self.parts(kernel.with_context(|| format!("{package} depends on no kernel"))?)
    }

    /// As [`Apt::kernel`], for the oldest kernel that is not older than `least`. Versions disappear from
    /// backports in the course of time, so none can be named.
    pub(crate) fn kernel_from(&self, least: (u32, u32)) -> Result<(String, Vec<String>)> {
        let text = self.run("apt-cache", &["pkgnames", "linux-image-"])?;
        let kernel = oldest_from(&text, least).map(str::to_owned);
        let (major, minor) = least;
        self.parts(kernel.with_context(|| format!("no kernel from {major}.{minor} on is offered"))?)
    }

    fn parts(&self, kernel: String) -> Result<(String, Vec<String>)> {
        let parts = dependencies(&self.run("apt-cache", &["depends", &kernel])?, PARTS);
        let parts = if parts.is_empty() { vec![kernel.clone()] } else { parts };
        Ok((kernel, parts))
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

fn configuration(folder: &Path, architecture: &str, preferred: &str) -> String {
    let folder = folder.display();
    format!(
        "Dir::State \"{folder}/state\";\n\
         Dir::State::status \"{folder}/status\";\n\
         Dir::Cache \"{folder}/cache\";\n\
         Dir::Etc::sourcelist \"{folder}/etc/sources.list\";\n\
         Dir::Etc::sourceparts \"{folder}/etc/parts\";\n\
         APT::Architecture \"{architecture}\";\n\
         APT::Architectures {{ \"{architecture}\"; }};\n\
         APT::Default-Release \"{preferred}\";\n\
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

/// Packages in the output of `apt-cache depends` that begin so and go on with a version.
fn dependencies(text: &str, prefixes: &[&str]) -> Vec<String> {
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names
        .filter(|name| {
            let rest = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix));
            rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
        .map(str::to_owned)
        .collect()
}

/// The oldest of the kernels in the output of `apt-cache pkgnames` from a version on; those for clouds, for
/// real time and unsigned ones are not meant.
fn oldest_from(names: &str, least: (u32, u32)) -> Option<&str> {
    let version = |name: &str| -> Option<Vec<u32>> {
        let text = name.strip_prefix("linux-image-")?.strip_suffix("-amd64")?;
        let (text, _) = text.split_once("+deb")?;
        // `6.16.12+deb13-cloud-amd64` has a flavour.
        let is_plain = name.trim_end_matches("-amd64").rsplit_once("+deb")?.1;
        is_plain.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
        text.split('.').map(|number| number.parse().ok()).collect()
    };
    let known = names.lines().filter_map(|name| Some((version(name)?, name)));
    known.filter(|(version, _)| *version >= vec![least.0, least.1]).min().map(|(_, name)| name)
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
        let found = dependencies(text, &["linux-image-"]);
        assert_eq!(found, ["linux-image-6.12.1+deb13-cloud-arm64"]);
        assert!(dependencies("linux-image-cloud-arm64\n", &["linux-image-"]).is_empty());
        let split = "linux-image-7.3.4\n  Depends: linux-base\n  Depends: linux-binary-7.3.4\n  \
                     Depends: linux-modules-7.3.4\n";
        let found = dependencies(split, PARTS);
        assert_eq!(found, ["linux-binary-7.3.4", "linux-modules-7.3.4"]);
    }

    #[test]
    fn oldest_kernel_from_a_version_on_is_chosen_without_flavours() {
        let names = "linux-image-6.17.13+deb13-amd64\nlinux-image-6.16.12+deb13-cloud-amd64\n\
                     linux-image-6.16.12+deb13-amd64\nlinux-image-6.12.107+deb13-amd64\n\
                     linux-image-6.16.3+deb13-rt-amd64\nlinux-image-amd64\nlinux-image-7.3.4+deb13-amd64";
        assert_eq!(oldest_from(names, (6, 16)), Some("linux-image-6.16.12+deb13-amd64"));
        assert_eq!(oldest_from(names, (6, 18)), Some("linux-image-7.3.4+deb13-amd64"));
        assert_eq!(oldest_from(names, (8, 0)), None);
    }

    #[test]
    fn apt_keeps_to_its_own_folders_and_architecture() {
        let text = configuration(Path::new("/x"), "arm64", "trixie");
        for setting in ["Dir::State ", "Dir::State::status", "Dir::Cache", "Dir::Etc::source"] {
            assert!(text.lines().any(|line| line.starts_with(setting) && line.contains("\"/x/")));
        }
        assert!(text.contains("APT::Architectures { \"arm64\"; };"));
    }
}
