//! Builds the guests of `vm/firmware/` and `vm/firmware-x86/` and copies the images to the CLI's search folder, and the driver
//! as a static library beside them.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::release;

/// An image: its workspace, package and binary in it, target, and the file's name in
/// `target/firmware`.
struct Image {
    workspace: &'static str,
    package: &'static str,
    binary: &'static str,
    target: &'static str,
    file: &'static str,
}

const IMAGES: &[Image] = &[
    Image {
        workspace: "vm/firmware",
        package: "wirepath-guest-app",
        binary: "wirepath-guest",
        target: "aarch64-unknown-none",
        file: "wirepath-guest-virt.elf",
    },
    Image {
        workspace: "vm/firmware",
        package: "wirepath-guest-reference",
        binary: "wirepath-guest-reference",
        target: "aarch64-unknown-none",
        file: "wirepath-guest-reference.elf",
    },
    Image {
        workspace: "vm/firmware",
        package: "wirepath-guest-stacks",
        binary: "wirepath-guest-smoltcp",
        target: "aarch64-unknown-none",
        file: "wirepath-guest-smoltcp.elf",
    },
    Image {
        workspace: "vm/firmware",
        package: "wirepath-guest-stacks",
        binary: "wirepath-guest-embassy",
        target: "aarch64-unknown-none",
        file: "wirepath-guest-embassy.elf",
    },
    Image {
        workspace: "vm/firmware-x86",
        package: "wirepath-nettest",
        binary: "nettest",
        target: "x86_64-unknown-none",
        file: "wirepath-vmnic-nettest.elf",
    },
];

/// Arms of the firmware whose code is sized alone: the baseline, the source's switches one by one, and its four together.
const SIZED_ARMS: &[&str] = &[
    "",
    "quiet",
    "async-tx",
    "async-tx,lazy-reap",
    "rx-task",
    "icmp-in-irq",
    "quiet,async-tx,lazy-reap",
    "quiet,async-tx,lazy-reap,rx-task",
];
/// Of the firmware's build: the only arm whose code it keeps.
const ONLY_ARM: &str = "WIREPATH_GUEST_ONLY";

/// The driver for C: folder of its workspace, target without floating-point registers, which kernels keep out of, and file.
const LIBRARY_WORKSPACE: &str = "vm/firmware";
const LIBRARY_TARGET: &str = "aarch64-unknown-none-softfloat";
const LIBRARY: &str = "libwirepath_virtio.a";
/// The same as cargo names it: the driver itself is the crate `wirepath_virtio`.
const BUILT_LIBRARY: &str = "libwirepath_virtio_c.a";
const HEADER: &str = "vm/firmware/capi/include/wirepath_virtio.h";

/// Builds every image in release mode and copies it; prints sizes. Then the library and its header.
pub(crate) fn build(root: &Path) -> Result<()> {
    let out = root.join("target/firmware");
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    for image in IMAGES {
        release::add_target(root, image.target)?;
        let built = build_image(root, image, None)?;
        let to = out.join(image.file);
        fs::copy(&built, &to).with_context(|| format!("copying {}", built.display()))?;
        let bytes = fs::read(&to).with_context(|| format!("reading {}", to.display()))?;
        let [text, data, bss] = sizes(&bytes)?;
        println!("{}: text {text}, data {data}, bss {bss} bytes", to.display());
    }
    release::add_target(root, LIBRARY_TARGET)?;
    let header = Path::new(HEADER).file_name().context("a file has a name")?;
    let built = [(build_library(root)?, LIBRARY.as_ref()), (root.join(HEADER), header)];
    for (from, name) in built {
        let to = out.join(name);
        fs::copy(&from, &to).with_context(|| format!("copying {}", from.display()))?;
        println!("{}", to.display());
    }
    Ok(())
}

/// Builds the firmware with the code of one arm alone, arm by arm, and prints its size beside the baseline's. Copies nothing.
pub(crate) fn print_sizes(root: &Path) -> Result<()> {
    let image = &IMAGES[0];
    release::add_target(root, image.target)?;
    let mut baseline = None;
    println!("{:34}  {:>18}  {:>7}", "switches", "code and constants", "");
    for arm in SIZED_ARMS.iter().copied().map(Some).chain([None]) {
        let built = build_image(root, image, arm)?;
        let bytes = fs::read(&built).with_context(|| format!("reading {}", built.display()))?;
        let [text, ..] = sizes(&bytes)?;
        let name = match arm {
            Some("") => "none: the baseline",
            Some(names) => names,
            None => "all arms in one image",
        };
        let change = (text as f64 / *baseline.get_or_insert(text) as f64 - 1.0) * 100.0;
        println!("{name:34}  {text:>16} B  {change:>+6.1} %");
    }
    Ok(())
}

/// Names of the images in `target/firmware`.
pub(crate) fn files() -> impl Iterator<Item = &'static str> {
    IMAGES.iter().map(|image| image.file)
}

/// Folder, target and packages of each workspace with images.
pub(crate) fn workspaces() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let mut found: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for image in IMAGES {
        match found.iter_mut().find(|(workspace, ..)| *workspace == image.workspace) {
            Some((_, _, packages)) if packages.contains(&image.package) => {}
            Some((_, _, packages)) => packages.push(image.package),
            None => found.push((image.workspace, image.target, vec![image.package])),
        }
    }
    found
}

/// Set where this program is cargo's wrapper of the compiler.
pub(crate) const AS_COMPILER: &str = "WIREPATH_XTASK_COMPILES";

/// Runs the compiler for cargo. Symbols of a crate of ours, and the order of its functions, follow from the crate's name
/// alone: cargo would have them follow from its folder, because some are outside of the workspace that is built.
pub(crate) fn compile() -> Result<()> {
    let mut arguments = env::args_os().skip(1);
    let compiler = arguments.next().context("cargo names no compiler")?;
    let is_ours = env::var("CARGO_PKG_NAME").is_ok_and(|name| name.starts_with("wirepath-"));
    let arguments = arguments.map(|argument| {
        if is_ours && argument.to_string_lossy().starts_with("metadata=") {
            "metadata=wirepath".into()
        } else {
            argument
        }
    });
    Err(Command::new(compiler).args(arguments).exec()).context("starting the compiler")
}

/// Builds an image; returns the executable. It is the same in every folder.
///
/// - `only_arm`: switches of the only arm whose code it keeps; `None` for all arms.
fn build_image(root: &Path, image: &Image, only_arm: Option<&str>) -> Result<PathBuf> {
    let mut command = cargo(root, image.workspace, "build", image.target)?;
    match only_arm {
        Some(switches) => command.env(ONLY_ARM, switches),
        None => command.env_remove(ONLY_ARM),
    };
    command.args(["--package", image.package, "--bin", image.binary]);
    executable(&messages(command)?, image.binary)
        .with_context(|| format!("cargo names no executable of {}", image.binary))
}

/// Builds the driver for C; returns the static library.
fn build_library(root: &Path) -> Result<PathBuf> {
    let mut command = cargo(root, LIBRARY_WORKSPACE, "rustc", LIBRARY_TARGET)?;
    command.args(["--package", "wirepath-guest-capi", "--lib", "--crate-type", "staticlib"]);
    command.args(["--features", "panic-handler"]);
    library(&messages(command)?).context("cargo names no static library")
}

/// A release build of cargo in a workspace, without the packages.
fn cargo(root: &Path, workspace: &str, verb: &str, target: &str) -> Result<Command> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Beside the flags of the workspace, which those of the environment would replace.
    let flags = format!("target.{target}.rustflags={:?}", release::path_flags(root)?);
    command
        .args(["--config", &flags])
        .current_dir(root.join(workspace))
        // A workspace brings its own: where its image is linked to depends on them.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTC_WRAPPER", env::current_exe().context("the path of this program")?)
        .env(AS_COMPILER, "1")
        .args([verb, "--release", "--locked", "--message-format", "json-render-diagnostics"])
        .args(["--target", target])
        .stderr(std::process::Stdio::inherit());
    Ok(command)
}

/// Runs cargo; returns its messages.
fn messages(mut command: Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?} did not start"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The executable of a binary, from cargo's messages, one JSON document a line.
fn executable(messages: &str, binary: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == binary)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// The static library, from cargo's messages.
fn library(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| message["filenames"].as_array().cloned())
        .flatten()
        .filter_map(|file| file.as_str().map(PathBuf::from))
        .find(|file| file.file_name().is_some_and(|name| name == BUILT_LIBRARY))
}

/// Bytes of code and constants, of initialised data, and of memory that starts as zero.
///
/// Source: ELF-64 object file format, section headers; the split is that of `size`.
fn sizes(elf: &[u8]) -> Result<[u64; 3]> {
    const WRITE: u64 = 1;
    const ALLOCATE: u64 = 2;
    const NO_BITS: u32 = 8;
    if elf.get(..5) != Some(b"\x7fELF\x02") {
        bail!("the image is not a valid 64-bit ELF file");
    }
    let word = |at: usize, len: usize| -> Result<u64> {
        let bytes = elf.get(at..at + len).context("the ELF file ends early")?;
        Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    let (table, entry, count) = (word(0x28, 8)?, word(0x3a, 2)?, word(0x3c, 2)?);
    let mut sizes = [0; 3];
    for number in 0..count {
        let at = usize::try_from(table + number * entry).context("the section table's place")?;
        let (kind, flags, bytes) = (word(at + 4, 4)? as u32, word(at + 8, 8)?, word(at + 0x20, 8)?);
        if flags & ALLOCATE == 0 {
            continue;
        }
        let slot = match (kind, flags & WRITE) {
            (NO_BITS, _) => 2,
            (_, WRITE) => 1,
            _ => 0,
        };
        sizes[slot] += bytes;
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_is_found_among_cargos_messages() {
        let messages = "not json\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"lib\"},\"executable\":null}\n\
            {\"target\":{\"name\":\"wirepath-guest\"},\"executable\":\"/t/wirepath-guest\"}\n";
        assert_eq!(executable(messages, "wirepath-guest"), Some("/t/wirepath-guest".into()));
        assert_eq!(executable(messages, "another"), None);
    }

    #[test]
    fn library_is_found_among_the_files_of_cargos_messages() {
        let messages = "not json\n\
            {\"filenames\":[\"/t/libvirtio.rlib\"]}\n\
            {\"filenames\":[\"/t/other.a\",\"/t/libwirepath_virtio_c.a\"]}\n";
        assert_eq!(library(messages), Some("/t/libwirepath_virtio_c.a".into()));
        assert_eq!(library("{}"), None);
    }

    #[test]
    fn sections_are_added_up_by_what_they_hold() {
        let mut elf = vec![0; 64 + 4 * 64];
        elf[..5].copy_from_slice(b"\x7fELF\x02");
        elf[0x28] = 64;
        elf[0x3a] = 64;
        elf[0x3c] = 4;
        for (number, (kind, flags, bytes)) in
            [(1, 6, 100), (1, 3, 10), (8, 3, 7), (1, 0, 55)].into_iter().enumerate()
        {
            let at = 64 + number * 64;
            (elf[at + 4], elf[at + 8], elf[at + 0x20]) = (kind, flags, bytes);
        }
        assert_eq!(sizes(&elf).expect("it is whole"), [100, 10, 7]);
        assert!(sizes(&elf[..200]).is_err());
        assert!(sizes(b"MZ").is_err());
    }
}
