//! Modules of a kernel's package, each behind those that it needs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::entries;

/// The modules of one kernel.
pub(super) struct Modules {
    folder: PathBuf,
    files: BTreeMap<String, PathBuf>,
    built_in: Vec<String>,
}

impl Modules {
    /// - `folder`: `lib/modules/VERSION` of the unpacked package.
    pub(super) fn of(folder: PathBuf) -> Result<Modules> {
        let mut files = BTreeMap::new();
        list(&folder, &mut files)?;
        let built_in = fs::read_to_string(folder.join("modules.builtin"))
            .with_context(|| format!("{} does not say what is built in", folder.display()))?;
        let built_in = built_in.lines().filter_map(|line| Some(name(Path::new(line))?.0));
        Ok(Modules { folder, files, built_in: built_in.collect() })
    }

    /// The modules of these names and all that they need, in the order in which they are to be
    /// loaded, with their contents. What is built into the kernel is left out.
    pub(super) fn with_needs(&self, names: &[&str]) -> Result<Vec<(String, Vec<u8>)>> {
        let mut loaded = Vec::new();
        for name in names {
            self.load(name, &mut loaded)?;
        }
        Ok(loaded)
    }

    fn load(&self, name: &str, loaded: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
        if loaded.iter().any(|(known, _)| known == name)
            || self.built_in.iter().any(|known| known == name)
        {
            return Ok(());
        }
        let file = self.files.get(name).with_context(|| {
            format!("the kernel of {} has no module {name}", self.folder.display())
        })?;
        let bytes = contents(file)?;
        for need in needs(&bytes) {
            self.load(&need, loaded)?;
        }
        loaded.push((name.to_owned(), bytes));
        Ok(())
    }
}

/// Names of the modules that a module says it needs.
///
/// Source: the kernel's scripts/mod/modpost.c, add_depends: a text of `.modinfo`, ended by a zero.
fn needs(module: &[u8]) -> Vec<String> {
    const TAG: &[u8] = b"\0depends=";
    let Some(at) = module.windows(TAG.len()).position(|window| window == TAG) else {
        return Vec::new();
    };
    let text = module[at + TAG.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    text.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

fn list(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for path in entries(folder)? {
        if path.is_dir() {
            list(&path, files)?;
        } else if let Some((name, _)) = name(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

/// A module's name, as the kernel spells it, and how its file is compressed.
fn name(path: &Path) -> Option<(String, String)> {
    let (name, packing) = path.file_name()?.to_str()?.split_once(".ko")?;
    Some((name.replace('-', "_"), packing.to_owned()))
}

fn contents(file: &Path) -> Result<Vec<u8>> {
    if name(file).is_none_or(|(_, packing)| packing != ".xz") {
        return super::read(file);
    }
    let output = Command::new("xz").arg("-dc").arg(file).output();
    let output = output.context("xz (package xz-utils) did not start")?;
    if !output.status.success() {
        bail!("xz: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(depends: &str) -> Vec<u8> {
        format!("ELF\0license=GPL\0depends={depends}\0name=x\0").into_bytes()
    }

    #[test]
    fn needs_are_read_from_the_module_itself() {
        assert_eq!(needs(&module("net_failover,9p-net")), ["net_failover", "9p_net"]);
        assert!(needs(&module("")).is_empty());
        assert!(needs(b"no such text").is_empty());
    }

    #[test]
    fn every_module_comes_behind_those_that_it_needs_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let net = folder.path().join("kernel/net");
        fs::create_dir_all(&net).unwrap();
        for (file, depends) in [("a", "b,c,deep"), ("b-x", ""), ("b", "c"), ("c", "b-x")] {
            fs::write(net.join(format!("{file}.ko")), module(depends)).unwrap();
        }
        fs::write(folder.path().join("modules.builtin"), "kernel/lib/deep.ko\n").unwrap();
        let modules = Modules::of(folder.path().to_owned()).unwrap();
        let names = |wanted: &[&str]| -> Vec<String> {
            modules.with_needs(wanted).unwrap().into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(&["a", "c", "deep"]), ["b_x", "c", "b", "a"]);
        assert!(modules.with_needs(&["none"]).is_err());
    }
}
