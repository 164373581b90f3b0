//! Compiles a folder of BPF programs, for the build script of the crate that embeds them
//! (`sys::bpf::embedded!`), and writes the structs that it shares with them as Rust, from their BTF.
#![expect(clippy::print_stdout, reason = "a build script talks to Cargo by its output")]

mod btf;

use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};

use btf::{Btf, BtfError};

/// BPF programs of a crate two folders below the root of the workspace.
#[derive(Debug, Clone, Copy)]
pub struct BpfSources<'a> {
    /// Folder of the `*.bpf.c` files, from the root of the workspace.
    pub folder: &'a str,
    /// Folders of headers that are not beside them, from the root of the workspace.
    pub header_folders: &'a [&'a str],
    /// Structs that the crate shares with programs: constants, global variables, keys and values of maps.
    pub shared: &'a [&'a str],
}

impl BpfSources<'_> {
    /// Writes `NAME.bpf.o` and `NAME.types.rs` of each `NAME.bpf.c` to `OUT_DIR`. A failure becomes an error of
    /// the build.
    pub fn build(&self) {
        if let Err(why) = self.try_build() {
            for line in why.lines() {
                println!("cargo::error={line}");
            }
        }
    }

    fn try_build(&self) -> Result<(), String> {
        let package = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
        let root =
            package.ancestors().nth(2).ok_or("the package is not two folders below a root")?;
        println!("cargo::rerun-if-env-changed=CLANG");
        let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
        check_clang(&clang)?;
        let arguments = self.arguments(root)?;
        for folder in self.header_folders {
            files(&root.join(folder))?;
        }
        for source in files(&root.join(self.folder))? {
            if source.to_string_lossy().ends_with(".bpf.c") {
                self.compile(&clang, &arguments, &source)?;
            }
        }
        Ok(())
    }

    fn arguments(&self, root: &Path) -> Result<Vec<String>, String> {
        // -g: the types of BTF. -mcpu=v3: atomics that return the old value, and 32-bit arithmetic (kernel 5.12 and
        // newer). No stack protector: there is none in BPF, and some distributions turn it on.
        let mut arguments: Vec<String> =
            ["-target", "bpf", "-g", "-O2", "-mcpu=v3", "-fno-stack-protector", "-Wall", "-Werror"]
                .map(str::to_owned)
                .into();
        let headers = self.header_folders.iter();
        arguments.extend(headers.map(|folder| format!("-I{}", root.join(folder).display())));
        // Of libbpf, where its crate has unpacked them: no libbpf-dev needed.
        let libbpf = variable("DEP_BPF_INCLUDE")
            .map_err(|_| "libbpf-sys must be a dependency of the crate that embeds BPF programs")?;
        arguments.push(format!("-I{libbpf}"));
        // <linux/bpf.h> includes <asm/types.h>, which multi-architecture distributions keep where clang
        // does not look for the target `bpf`; the second folder is that of a cross compiler.
        let arch = variable("CARGO_CFG_TARGET_ARCH")?;
        let folders =
            [format!("/usr/include/{arch}-linux-gnu"), format!("/usr/{arch}-linux-gnu/include")];
        if let Some(folder) = folders.iter().find(|folder| Path::new(folder).is_dir()) {
            arguments.push(format!("-I{folder}"));
        }
        arguments.push(format!("-D__TARGET_ARCH_{}", kernel_name(&arch)));
        // The same sources produce the same bytes in every folder.
        arguments.push(format!("-ffile-prefix-map={}/=", root.display()));
        arguments.push(format!("-ffile-prefix-map={libbpf}/="));
        arguments.push("-fdebug-compilation-dir=.".into());
        Ok(arguments)
    }

    fn compile(&self, clang: &str, arguments: &[String], source: &Path) -> Result<(), String> {
        let out = PathBuf::from(variable("OUT_DIR")?);
        let name = source.file_name().unwrap_or_default().to_string_lossy().replace(".bpf.c", "");
        let object = out.join(format!("{name}.bpf.o"));
        let compiled = Command::new(clang)
            .args(arguments)
            .arg("-c")
            .arg(source)
            .arg("-o")
            .arg(&object)
            .output();
        let compiled = compiled.map_err(|why| format!("`{clang}` cannot be run: {why}"))?;
        if !compiled.status.success() {
            return Err(format!(
                "{} does not compile; if a header is missing, install the package `linux-libc-dev`\n{}",
                source.display(),
                String::from_utf8_lossy(&compiled.stderr)
            ));
        }
        let bytes =
            fs::read(&object).map_err(|why| format!("cannot read {}: {why}", object.display()))?;
        let types = shared_types(&bytes, self.shared)
            .map_err(|why| format!("types of {}: {why}", source.display()))?;
        let file = out.join(format!("{name}.types.rs"));
        fs::write(&file, types).map_err(|why| format!("cannot write {}: {why}", file.display()))
    }
}

/// An architecture as the kernel's headers call it, from Rust's name.
///
/// Source: libbpf, bpf_tracing.h.
fn kernel_name(arch: &str) -> &str {
    match arch {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        "powerpc64" => "powerpc",
        "s390x" => "s390",
        "riscv64" => "riscv",
        "loongarch64" => "loongarch",
        other => other,
    }
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

/// Returns the C files of a folder, sorted. A change of one runs the build script again.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let listed = fs::read_dir(folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let entries = listed.map_err(|why| format!("cannot list {}: {why}", folder.display()))?;
    let mut files = Vec::new();
    for path in entries.iter().map(DirEntry::path) {
        if path.extension().is_some_and(|extension| extension == "c" || extension == "h") {
            println!("cargo::rerun-if-changed={}", path.display());
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Definitions of the shared structs that an object has, with conversions from and to bytes.
fn shared_types(object: &[u8], shared: &[&str]) -> Result<String, BtfError> {
    let btf = Btf::read(object)?;
    let mut types = String::new();
    for name in shared {
        let Some(definition) = btf.definition(name)? else { continue };
        types += "#[allow(non_camel_case_types, dead_code, reason = \"as in the BPF program\")]\n";
        types += "#[derive(Debug, Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, \
                  zerocopy::Immutable)]\n#[repr(C)]\n";
        types += &definition;
        types += "\n";
    }
    Ok(types)
}
