//! Compiles `bpf/*.bpf.c` into object files that `src/bpf` embeds, and writes the structs that they
//! share with it as Rust, from their BTF.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};

fn main() {
    if let Err(why) = build() {
        for line in why.lines() {
            println!("cargo::error={line}");
        }
    }
}

fn build() -> Result<(), String> {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("../../bpf");
    let out = PathBuf::from(variable("OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", root.display());
    println!("cargo::rerun-if-env-changed=CLANG");

    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    check_clang(&clang)?;
    for source in sources(&root)? {
        compile(&clang, &source, &out)?;
    }
    Ok(())
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("{name} is not set: run this through cargo"))
}

fn check_clang(clang: &str) -> Result<(), String> {
    let found = Command::new(clang).arg("--version").stdout(Stdio::null()).status();
    match found {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{clang} --version` failed ({status})")),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Err(format!(
            "`{clang}` was not found; the BPF programs need it. Install the package `clang` \
             (version 14 or newer), or set CLANG to its path"
        )),
        Err(why) => Err(format!("`{clang}` cannot be run: {why}")),
    }
}

fn sources(root: &Path) -> Result<Vec<PathBuf>, String> {
    let entries =
        fs::read_dir(root).map_err(|why| format!("cannot list {}: {why}", root.display()))?;
    let mut sources = Vec::new();
    for entry in entries {
        let path = entry.map_err(|why| format!("cannot list {}: {why}", root.display()))?.path();
        println!("cargo::rerun-if-changed={}", path.display());
        if path.to_string_lossy().ends_with(".bpf.c") {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}

fn compile(clang: &str, source: &Path, out: &Path) -> Result<(), String> {
    let name = source.file_name().unwrap_or_default().to_string_lossy().replace(".bpf.c", "");
    let object = out.join(format!("{name}.bpf.o"));
    let skeleton = out.join(format!("{name}.skel.rs"));
    // -mcpu=v3: atomics that return the old value, and 32-bit arithmetic (kernel 5.12 and newer).
    let mut arguments = vec!["-mcpu=v3".to_owned(), "-Wall".into(), "-Werror".into()];
    // <linux/bpf.h> includes <asm/types.h>, which multi-architecture distributions keep where clang
    // does not look for the target `bpf`; the second folder is that of a cross compiler.
    let arch = variable("CARGO_CFG_TARGET_ARCH")?;
    let folders =
        [format!("/usr/include/{arch}-linux-gnu"), format!("/usr/{arch}-linux-gnu/include")];
    if let Some(folder) = folders.iter().find(|folder| Path::new(folder).is_dir()) {
        arguments.push(format!("-I{folder}"));
    }
    // The same sources produce the same bytes in every folder.
    let folder = source.parent().unwrap_or(Path::new("."));
    arguments.push(format!("-ffile-prefix-map={}=bpf", folder.display()));
    arguments.push("-fdebug-compilation-dir=.".into());
    libbpf_cargo::SkeletonBuilder::new()
        .source(source)
        .obj(&object)
        .clang(clang)
        .clang_args(arguments)
        .reference_obj(true)
        // The skeleton is not read by people: a toolchain without rustfmt is enough.
        .rustfmt("no-rustfmt")
        .build_and_generate(&skeleton)
        .map_err(|why| {
            format!(
                "{} does not compile; if a header is missing, install the package \
                 `linux-libc-dev`\n{why:?}",
                source.display()
            )
        })?;
    let types = out.join(format!("{name}.types.rs"));
    fs::read_to_string(&skeleton)
        .and_then(|skeleton| fs::write(&types, shared_types(&skeleton)))
        .map_err(|why| format!("cannot write {}: {why}", types.display()))
}

/// Structs that programs share with `src/bpf`: constants, global variables, keys and values of maps.
const SHARED: [&str; 16] = [
    "config", "fault", "scope", "counts", "delays", "run", "stage", "here", "drop", "control",
    "header", "ends", "segment", "station", "interval", "slice",
];

/// Definitions of the shared structs in a skeleton, with conversions from and to bytes.
fn shared_types(skeleton: &str) -> String {
    let mut types = String::new();
    for name in SHARED {
        let Some(at) = skeleton.find(&format!("pub struct {name} {{")) else { continue };
        let end = skeleton[at..].find('}').map_or(skeleton.len(), |len| at + len + 1);
        types += "#[allow(non_camel_case_types, dead_code, reason = \"as in the BPF program\")]\n";
        types += "#[derive(Debug, Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, \
                  zerocopy::Immutable)]\n#[repr(C)]\n";
        types += &skeleton[at..end].replace("pub ", "pub(in crate::bpf) ");
        types += "\n";
    }
    types
}
