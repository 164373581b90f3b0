//! Machines that releases are made for.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::apt::Apt;
use crate::entries;

/// A machine, by the names that each tool has for it.
#[derive(Debug, PartialEq)]
pub(crate) struct Target {
    /// As Rust calls it.
    pub(crate) triple: &'static str,
    /// As GNU's tools and Debian's folders of libraries call it.
    pub(crate) gnu: &'static str,
    /// As Debian and container images call it.
    pub(crate) debian: &'static str,
    /// As rpm, qemu and `std::env::consts::ARCH` call it.
    pub(crate) machine: &'static str,
}

pub(crate) const TARGETS: [Target; 2] = [
    Target {
        triple: "x86_64-unknown-linux-gnu",
        gnu: "x86_64-linux-gnu",
        debian: "amd64",
        machine: "x86_64",
    },
    Target {
        triple: "aarch64-unknown-linux-gnu",
        gnu: "aarch64-linux-gnu",
        debian: "arm64",
        machine: "aarch64",
    },
];

/// Packages with the libraries that libbpf links to; those of the C library come with the compiler.
const LIBRARIES: [&str; 4] = ["libelf1", "libelf-dev", "zlib1g", "zlib1g-dev"];

impl Target {
    /// Parses what follows the command: nothing for this machine, or `--target TRIPLE`.
    pub(crate) fn parse(arguments: &[&str]) -> Result<&'static Target> {
        let known = TARGETS.each_ref().map(|target| target.triple).join(" or ");
        match arguments {
            [] => TARGETS
                .iter()
                .find(|target| target.is_native())
                .with_context(|| format!("no releases for this machine; give --target {known}")),
            ["--target", triple] => TARGETS
                .iter()
                .find(|target| target.triple == *triple)
                .with_context(|| format!("unknown target {triple}; known: {known}")),
            other => bail!("unexpected {}; expected nothing or --target {known}", other.join(" ")),
        }
    }

    pub(crate) fn is_native(&self) -> bool {
        self.machine == std::env::consts::ARCH
    }

    /// A tool of GNU's for this machine, such as `strip`.
    pub(crate) fn tool(&self, name: &str) -> Command {
        Command::new(if self.is_native() { name.into() } else { format!("{}-{name}", self.gnu) })
    }

    /// Runs a program of this machine: under qemu's user mode if it is another than this one.
    ///
    /// - `sysroot`: that of [`Target::sysroot`].
    pub(crate) fn command(&self, program: &Path, sysroot: &Path) -> Command {
        if self.is_native() {
            return Command::new(program);
        }
        let mut command = Command::new(format!("qemu-{}", self.machine));
        command
            .arg("-L")
            .arg(format!("/usr/{}", self.gnu))
            .arg("-E")
            .arg(format!("LD_LIBRARY_PATH={}", libraries(sysroot, self).display()))
            .arg(program);
        command
    }

    /// Folders with shared libraries of this machine.
    pub(crate) fn library_folders(&self, sysroot: &Path) -> Vec<PathBuf> {
        if self.is_native() {
            return vec![Path::new("/usr/lib").join(self.gnu)];
        }
        vec![libraries(sysroot, self), format!("/usr/{}/lib", self.gnu).into()]
    }

    /// Fetches the libraries of another machine into `folder`, once, from Debian's packages.
    ///
    /// Returns the folder in which they are unpacked. Nothing is installed.
    pub(crate) fn sysroot(&self, folder: &Path) -> Result<PathBuf> {
        let sysroot = folder.join("sysroot");
        if self.is_native() {
            return Ok(sysroot);
        }
        self.check_tools()?;
        if libraries(&sysroot, self).join("libz.so").exists() {
            return Ok(sysroot);
        }
        let apt = Apt::new(folder.join("apt"), self.debian, &[&release_of_debian()?])?;
        apt.update()?;
        LIBRARIES.iter().try_for_each(|package| apt.unpack(package, &sysroot))?;
        self.merge(&sysroot).context("sorting the libraries of another machine")?;
        Ok(sysroot)
    }

    /// Folder of [`Self::sysroot`] with the libraries; there is none for a native build.
    pub(crate) fn fetched(&self, sysroot: &Path) -> PathBuf {
        libraries(sysroot, self)
    }

    /// Moves libraries from `/lib` to `/usr/lib`, where their links, which are absolute, are made anew.
    fn merge(&self, sysroot: &Path) -> Result<()> {
        let (from, to) = (sysroot.join("lib").join(self.gnu), libraries(sysroot, self));
        for file in if from.exists() { entries(&from)? } else { Vec::new() } {
            fs::rename(&file, to.join(file.file_name().context("a library's name")?))?;
        }
        let link = to.join("libz.so");
        fs::remove_file(&link)?;
        symlink("libz.so.1", &link).map_err(Into::into)
    }

    fn check_tools(&self) -> Result<()> {
        let (gcc, qemu) = (format!("{}-gcc", self.gnu), format!("qemu-{}", self.machine));
        for (tool, package) in [(&gcc, format!("gcc-{}", self.gnu)), (&qemu, "qemu-user".into())] {
            if Command::new(tool).arg("--version").output().is_err() {
                bail!("{tool} is missing; install Debian's package {package}");
            }
        }
        let header = format!("/usr/{}/include/stdlib.h", self.gnu);
        if !Path::new(&header).exists() {
            bail!("{header} is missing; install Debian's package libc6-dev-{}-cross", self.debian);
        }
        Ok(())
    }

    /// Settings of a build for this machine, beside those of a native one.
    ///
    /// - `flags`: those of every C compiler.
    pub(crate) fn build_settings(&self, sysroot: &Path, flags: &str) -> Vec<(String, String)> {
        if self.is_native() {
            return Vec::new();
        }
        let name = self.triple.replace('-', "_");
        let include = sysroot.join("usr/include");
        let include = format!("-I{} -I{}", include.display(), include.join(self.gnu).display());
        vec![
            (format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), format!("{}-gcc", self.gnu)),
            (format!("CFLAGS_{name}"), format!("{flags} {include}")),
            (
                format!("LIBBPF_SYS_LIBRARY_PATH_{name}"),
                libraries(sysroot, self).display().to_string(),
            ),
        ]
    }
}

fn libraries(sysroot: &Path, target: &Target) -> PathBuf {
    sysroot.join("usr/lib").join(target.gnu)
}

/// Name of the release of Debian that runs here: the compiler's C library is of that release.
fn release_of_debian() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("reading /etc/os-release")?;
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.map(str::to_owned).context("/etc/os-release has no VERSION_CODENAME: not Debian?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_this_machine_unless_one_is_given() {
        assert!(Target::parse(&[]).unwrap().is_native());
        let arm = Target::parse(&["--target", "aarch64-unknown-linux-gnu"]).unwrap();
        assert_eq!((arm.debian, arm.machine), ("arm64", "aarch64"));
        let error = Target::parse(&["--target", "riscv64gc-unknown-linux-gnu"]).unwrap_err();
        assert!(error.to_string().contains("known: x86_64-unknown-linux-gnu or aarch64"));
        assert!(Target::parse(&["--debug"]).is_err());
    }

    #[test]
    fn libraries_of_both_folders_are_merged_and_linked() {
        let (target, root) = (&TARGETS[1], tempfile::tempdir().unwrap());
        let (lib, usr) = (root.path().join("lib").join(target.gnu), libraries(root.path(), target));
        fs::create_dir_all(&lib).unwrap();
        fs::create_dir_all(&usr).unwrap();
        fs::write(lib.join("libz.so.1.2"), "zlib").unwrap();
        symlink("libz.so.1.2", lib.join("libz.so.1")).unwrap();
        symlink("/lib/none/libz.so.1.2", usr.join("libz.so")).unwrap();
        target.merge(root.path()).unwrap();
        assert_eq!(fs::read_to_string(usr.join("libz.so")).unwrap(), "zlib");
    }

    #[test]
    fn other_machine_has_its_own_compiler_flags_and_libraries() {
        let other = TARGETS.iter().find(|target| !target.is_native()).unwrap();
        let settings = other.build_settings(Path::new("/s"), "-g");
        let value = |start: &str| {
            let found = settings.iter().find(|(name, _)| name.starts_with(start));
            found.map(|(_, value)| value.as_str()).unwrap()
        };
        assert_eq!(value("CARGO_TARGET_"), format!("{}-gcc", other.gnu));
        assert!(value("CFLAGS_").starts_with("-g -I/s/usr/include -I"));
        assert_eq!(value("LIBBPF_SYS"), format!("/s/usr/lib/{}", other.gnu));
        let native = Target::parse(&[]).unwrap();
        assert!(native.build_settings(Path::new("/s"), "-g").is_empty());
    }
}
