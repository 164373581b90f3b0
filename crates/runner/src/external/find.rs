//! Programs of paths in PATH, and their descriptions.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use model::{LoadKind, Shape, SwitchSpec};
use remote::path::{LoadDescription, PathDescription, SwitchDescription, is_path_name};

/// Begin of the file name of a path's program.
const PREFIX: &str = "wirepath-";
/// Most names that are listed.
const NAMES_MAX: usize = 100;

/// Folders in which programs are searched: never the current one, whatever PATH has.
fn folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).filter(|folder| folder.is_absolute()).collect()
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// The program `wirepath-NAME` in PATH. It is not started.
///
/// - `name`: may be anything; a program has no name with a slash, for example.
pub fn external_program(name: &str) -> Option<PathBuf> {
    if !is_path_name(name) {
        return None;
    }
    let files = folders().into_iter().map(|folder| folder.join(format!("{PREFIX}{name}")));
    files.into_iter().find(|file| is_program(file))
}

/// Names of all paths with a program in PATH. No program is started, so one of them may be something else.
pub fn external_names() -> Vec<String> {
    let mut names = BTreeSet::new();
    for folder in folders() {
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for file in files.filter(|file| is_program(&file.path())) {
            let name = file.file_name();
            let name = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            names.extend(name.filter(|name| is_path_name(name)).map(str::to_owned));
        }
    }
    names.into_iter().take(NAMES_MAX).collect()
}

/// A description whose texts live as long as the process.
#[derive(Debug)]
pub(super) struct PathTexts {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) switches: &'static [SwitchSpec],
    pub(super) loads: &'static [LoadKind],
    pub(super) shapes: BTreeMap<String, Shape>,
    pub(super) has_far_end: bool,
}

/// The texts of a program's first description in this process.
///
/// They are never freed: descriptions of switches and loads are of static texts everywhere, and a description is
/// limited to 64 KiB and kept once for each program.
pub(super) fn kept_texts(file: &Path, description: PathDescription) -> &'static PathTexts {
    static KEPT: Mutex<BTreeMap<PathBuf, (PathDescription, &'static PathTexts)>> =
        Mutex::new(BTreeMap::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    match kept.get(file) {
        Some((known, texts)) if *known == description => texts,
        _ => {
            let texts: &'static PathTexts = Box::leak(Box::new(texts(description.clone())));
            kept.insert(file.to_owned(), (description, texts));
            texts
        }
    }
}

fn texts(description: PathDescription) -> PathTexts {
    let PathDescription {
        contract: _,
        name,
        mut what,
        switches,
        loads,
        metrics,
        needs,
        has_far_end,
    } = description;
    if !needs.is_empty() {
        what = format!("{what} (needs {})", needs.join(", "));
    }
    let switches: Vec<SwitchSpec> = switches.into_iter().map(switch_spec).collect();
    let loads: Vec<LoadKind> = loads.into_iter().map(load_kind).collect();
    PathTexts {
        name: name.leak(),
        what: what.leak(),
        switches: switches.leak(),
        loads: loads.leak(),
        shapes: metrics,
        has_far_end,
    }
}

fn switch_spec(switch: SwitchDescription) -> SwitchSpec {
    let SwitchDescription { id, effect, scope, needs, source } = switch;
    SwitchSpec {
        id: id.leak(),
        effect: effect.leak(),
        by: "",
        scope,
        needs: needs.leak(),
        source: source.leak(),
    }
}

fn load_kind(load: LoadDescription) -> LoadKind {
    let LoadDescription { name, what, judged, size_bytes, rate_pps, trial_ns, peers: _ } = load;
    let judged: Vec<&'static str> = judged.into_iter().map(|name| &*name.leak()).collect();
    LoadKind {
        name: name.leak(),
        what: what.leak(),
        judged: judged.leak(),
        size_bytes,
        rate_pps,
        trial: Duration::from_nanos(trial_ns),
        // Trials of other programs are not of the contract.
        peers: &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_searched() {
        for bad in ["", "../x", "a/b", "a b", "A", "-x", "echo\n", "."] {
            assert_eq!(external_program(bad), None, "{bad}");
        }
    }
}
