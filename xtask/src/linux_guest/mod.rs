//! Builds the Linux guests: that which path `guest` is compared with, Debian's arm64 kernel and an
//! initramfs that answers; and the same kernel at the other end of path `tunnel`'s gretap.
//!
//! Packages come by apt with a state of its own: neither the machine's list of packages nor its
//! architectures change, and nothing is installed.

mod cpio;
mod tunnel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use cpio::Archive;

/// Debian release whose kernel is 6.12.
const SUITE: &str = "trixie";
const KERNEL: &str = "linux-image-cloud-arm64";
const SHELL: &str = "busybox-static";
/// Modules in the order in which they are loaded: each needs those before it.
const MODULES: [&str; 4] = ["failover", "net_failover", "virtio_net", "virtio_mmio"];
/// Where Debian's package of keys puts them.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const MIRROR_VARIABLE: &str = "WIREPATH_DEBIAN_MIRROR";

/// What runs first. The kernel hands over standard input and output on the console.
const INIT: &str = r#"#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
for module in MODULES; do
    $b insmod /modules/$module.ko || echo "wirepath-linux: no $module"
done
for word in $($b cat /proc/cmdline); do
    case $word in wirepath.ip=*) ip=${word#wirepath.ip=} ;; esac
done
$b ifconfig eth0 "$ip" netmask 255.255.255.0 up || {
    echo "wirepath-linux: no eth0"
    $b poweroff -f
}
echo "wirepath-linux ready ip=$ip kernel=$($b uname -r)"
while :; do $b sleep 86400; done
"#;

/// Fetches the packages and writes `Image` and `initramfs.cpio` to `target/firmware/linux`.
pub(crate) fn build(root: &Path) -> Result<()> {
    let cache = root.join("target/linux-guest");
    let out = root.join("target/firmware/linux");
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let apt = Apt::new(&cache)?;
    apt.update()?;
    let kernel = dependency(&apt.run("apt-cache", &["depends", KERNEL])?)
        .with_context(|| format!("{KERNEL} depends on no kernel"))?;
    let unpacked = cache.join("unpacked");
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked)
            .with_context(|| format!("removing {}", unpacked.display()))?;
    }
    for package in [kernel.as_str(), SHELL] {
        let file = apt.download(package)?;
        run(Command::new("dpkg").arg("-x").arg(&file).arg(&unpacked))?;
    }
    let version = kernel.strip_prefix("linux-image-").context("a kernel's name")?;
    let image = out.join("Image");
    fs::copy(unpacked.join("boot").join(format!("vmlinuz-{version}")), &image)
        .with_context(|| format!("copying the kernel {version}"))?;
    println!("{}: Linux {version}", image.display());
    let init = INIT.replace("MODULES", &MODULES.join(" "));
    let plain = initramfs(&unpacked, version, &MODULES, &init)?;
    for package in tunnel::PACKAGES {
        let file = apt.download(package)?;
        run(Command::new("dpkg").arg("-x").arg(&file).arg(&unpacked))?;
    }
    let mut gretap = initramfs(&unpacked, version, &tunnel::modules(), &tunnel::init())?;
    tunnel::add_programs(&unpacked, &mut gretap)?;
    for (name, archive) in [("initramfs.cpio", plain), ("tunnel.cpio", gretap)] {
        let (file, bytes) = (out.join(name), archive.finish());
        fs::write(&file, &bytes).with_context(|| format!("writing {}", file.display()))?;
        println!("{}: {} bytes", file.display(), bytes.len());
    }
    Ok(())
}

/// Shell and modules; `init` runs first.
fn initramfs(unpacked: &Path, version: &str, modules: &[&str], init: &str) -> Result<Archive> {
    let mut archive = Archive::default();
    for folder in ["bin", "dev", "modules", "proc", "sys"] {
        archive.folder(folder);
    }
    archive.console("dev/console");
    let shell = first(unpacked, &["usr/bin/busybox", "bin/busybox"])?;
    archive.file("bin/busybox", 0o755, &read(&shell)?);
    let at = format!("lib/modules/{version}");
    let folder = first(unpacked, &[&format!("usr/{at}"), &at])?;
    for name in modules {
        let file = find(&folder, &format!("{name}.ko.xz"))?
            .with_context(|| format!("kernel {version} has no module {name}"))?;
        let output = Command::new("xz").arg("-dc").arg(&file).output();
        let output = output.context("xz (package xz-utils) did not start")?;
        if !output.status.success() {
            bail!("xz: {}", String::from_utf8_lossy(&output.stderr));
        }
        archive.file(&format!("modules/{name}.ko"), 0o644, &output.stdout);
    }
    archive.file("init", 0o755, init.as_bytes());
    Ok(archive)
}

/// apt with folders of its own, for another architecture.
struct Apt {
    folder: PathBuf,
    configuration: PathBuf,
}

impl Apt {
    fn new(cache: &Path) -> Result<Apt> {
        if !Path::new(KEYRING).exists() {
            bail!("{KEYRING} is missing; install the package debian-archive-keyring");
        }
        let folder = cache.join("apt");
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
        let configuration = write("apt.conf", configuration(&folder))?;
        Ok(Apt { folder, configuration })
    }

    fn update(&self) -> Result<()> {
        self.run("apt-get", &["update", "-qq"]).map(drop)
    }

    /// Downloads a package; returns its file.
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

fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "Dir::State \"{folder}/state\";\n\
         Dir::State::status \"{folder}/status\";\n\
         Dir::Cache \"{folder}/cache\";\n\
         Dir::Etc::sourcelist \"{folder}/etc/sources.list\";\n\
         Dir::Etc::sourceparts \"{folder}/etc/parts\";\n\
         APT::Architecture \"arm64\";\n\
         APT::Architectures {{ \"arm64\"; }};\n\
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

/// The kernel that a package of `apt-cache depends` stands for.
fn dependency(text: &str) -> Option<String> {
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.map(str::to_owned).find(|name| name.starts_with("linux-image-6."))
}

fn first(folder: &Path, names: &[&str]) -> Result<PathBuf> {
    let found = names.iter().map(|name| folder.join(name)).find(|path| path.exists());
    found.with_context(|| format!("the packages hold none of {}", names.join(", ")))
}

/// A file by name, anywhere below a folder.
fn find(folder: &Path, name: &str) -> Result<Option<PathBuf>> {
    for path in entries(folder)? {
        if path.is_dir() {
            if let Some(found) = find(&path, name)? {
                return Ok(Some(found));
            }
        } else if path.file_name().is_some_and(|file| file == name) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = || format!("reading {}", folder.display());
    let entries = fs::read_dir(folder).with_context(failed)?;
    entries.map(|entry| Ok(entry.with_context(failed)?.path())).collect()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("reading {}", path.display()))
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?} did not start"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
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
        let text = configuration(Path::new("/x"));
        for setting in ["Dir::State ", "Dir::State::status", "Dir::Cache", "Dir::Etc::source"] {
            assert!(text.lines().any(|line| line.starts_with(setting) && line.contains("\"/x/")));
        }
        assert!(text.contains("APT::Architectures { \"arm64\"; };"));
    }

    #[test]
    fn init_loads_every_module_before_it_says_that_it_is_ready() {
        let init = INIT.replace("MODULES", &MODULES.join(" "));
        let loaded = init.find("failover net_failover virtio_net virtio_mmio").expect("it loads");
        assert!(loaded < init.find("wirepath-linux ready ").expect("it says so"));
    }
}
