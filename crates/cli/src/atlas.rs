//! `wirepath atlas`: a static site of the worth of switches and knobs, from files of `history export --share`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use fleet::signed_file::{self, SignedFileError};
use house::console;
use house::context::Context;
use remote::Failure;
use report::atlas::{Atlas, AtlasEntry, Contribution, Vocabulary, check};
use report::html::{ATLAS_INDEX, atlas_site};
use report::page::AtlasSite;
use schemars::JsonSchema;
use serde::Serialize;

use crate::lookup;

/// Most files of a folder that are read.
const FILES_MAX: usize = 10_000;

#[derive(Debug, Args)]
pub(crate) struct AtlasArgs {
    /// Folder of contributions (FILE.json of `history export --share`)
    #[arg(required_unless_present = "check", requires = "out")]
    folder: Option<PathBuf>,
    /// Folder for the site; made if it does not exist
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Only check these files: signature, schema, plausible figures, no names; ends with 4 if one is refused
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["folder", "out"])]
    check: Vec<PathBuf>,
    /// Accept files with names of hosts, paths and commands, as for an atlas of one's own machines
    #[arg(long)]
    with_names: bool,
}

/// Document of `atlas --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AtlasDocument {
    schema: u32,
    contributions: Vec<ContributionDocument>,
    /// Files of the site; empty with `--check`.
    wrote: Vec<String>,
}

/// One file.
#[derive(Debug, Serialize, JsonSchema)]
struct ContributionDocument {
    file: String,
    /// Public key that signed it; `null` without a valid signature.
    signer: Option<String>,
    runs: usize,
    /// Reasons why it is refused; empty if it is accepted.
    problems: Vec<String>,
}

/// A file as it was found.
struct Checked {
    file: PathBuf,
    signer: Option<String>,
    contribution: Option<Contribution>,
    problems: Vec<String>,
}

pub(crate) fn run(context: &Context, args: &AtlasArgs) -> Result<(), Failure> {
    let words = vocabulary();
    match (&args.folder, &args.out) {
        (Some(folder), Some(out)) => site(context, args, folder, out, &words),
        _ => check_files(context, args, &words),
    }
}

/// Names of paths, switches and knobs of this program.
pub(crate) fn vocabulary() -> Vocabulary {
    let mut words = Vocabulary::default();
    for path in lookup::all().into_iter().chain(lookup::built_in("fake")) {
        words.paths.insert(path.name().to_owned());
        words.loads.extend(path.loads().iter().map(|load| load.name.to_owned()));
        words.switches.extend(path.switches().iter().map(|switch| switch.id.to_owned()));
    }
    words.paths.insert("command".to_owned());
    words.switches.extend(host::tune::all().iter().map(|knob| knob.id().to_owned()));
    words
}

fn check_files(context: &Context, args: &AtlasArgs, words: &Vocabulary) -> Result<(), Failure> {
    let mut files = Vec::new();
    for file in &args.check {
        files.push(read(file, words, args.with_names)?);
    }
    if context.json {
        console::json(&document(&files, Vec::new()))?;
    } else {
        files.iter().try_for_each(|file| console::text(&file.text()))?;
    }
    let refused = files.iter().filter(|file| !file.problems.is_empty()).count();
    if refused == 0 {
        return Ok(());
    }
    Err(Failure::Threshold(format!("{refused} of {} refused", console::count(files.len(), "file"))))
}

fn site(
    context: &Context,
    args: &AtlasArgs,
    folder: &Path,
    out: &Path,
    words: &Vocabulary,
) -> Result<(), Failure> {
    let mut files = Vec::new();
    for file in contributions(folder)? {
        files.push(read(&file, words, args.with_names)?);
    }
    let left_out: Vec<(String, String)> = files
        .iter()
        .filter(|file| !file.problems.is_empty())
        .map(|file| (file.name(), file.problems.join("; ")))
        .collect();
    for (file, why) in &left_out {
        console::say(&format!("left out: {file}: {why}"));
    }
    if left_out.len() == files.len() {
        let folder = folder.display();
        return Err(Failure::Usage(format!("no contribution of {folder} can be used")));
    }
    let written = write_site(&files, &left_out, out)?;
    if context.json {
        return console::json(&document(&files, written));
    }
    let (pages, used) = (written.len(), files.len() - left_out.len());
    console::text(&format!(
        "{} of {} in {}; begin with {}",
        console::count(pages, "page"),
        console::count(used, "contribution"),
        out.display(),
        out.join(ATLAS_INDEX).display(),
    ))
}

/// Files of a folder, by name. Links are not followed.
fn contributions(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable =
        |error| Failure::Usage(format!("cannot read the folder {}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let is_file = entry.file_type().map_err(unreadable)?.is_file();
        if is_file && entry.path().extension().is_some_and(|end| end == "json") {
            files.push(entry.path());
        }
        if files.len() > FILES_MAX {
            return Err(Failure::Usage(format!("more than {FILES_MAX} files")));
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(Failure::Usage(format!(
            "{} has no file whose name ends in .json; write one by `wirepath history export last --share --out FILE.json`",
            folder.display()
        )));
    }
    Ok(files)
}

/// Reads and checks a file. Errors: it cannot be read; whatever it holds is a problem and no error.
fn read(file: &Path, words: &Vocabulary, are_names_allowed: bool) -> Result<Checked, Failure> {
    let mut found =
        Checked { file: file.to_owned(), signer: None, contribution: None, problems: Vec::new() };
    let max = signed_file::FILE_MAX as u64;
    let length = fs::metadata(file).map(|of| of.len());
    let length =
        length.map_err(|e| Failure::Usage(format!("cannot read {}: {e}", file.display())))?;
    if length > max {
        let problem = SignedFileError::TooLong { found: length as usize };
        found.problems.push(problem.to_string());
        return Ok(found);
    }
    let bytes = host::user_file::read(file, max)
        .map_err(|e| Failure::Usage(format!("cannot read {}: {e}", file.display())))?;
    match signed_file::open_file(&bytes) {
        Err(error) => found.problems.push(host::text::chain(&error)),
        Ok(signed) => {
            found.signer = Some(signed.signer);
            match Contribution::from_json(&signed.text) {
                Err(error) => found.problems.push(host::text::chain(&error)),
                Ok(contribution) => {
                    let problems = check(&contribution, words, are_names_allowed);
                    found.problems.extend(problems.iter().map(ToString::to_string));
                    found.contribution = Some(contribution);
                }
            }
        }
    }
    Ok(found)
}

impl Checked {
    fn name(&self) -> String {
        self.file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    fn run_count(&self) -> usize {
        self.contribution.as_ref().map_or(0, |of| of.runs.len())
    }

    fn text(&self) -> String {
        if self.problems.is_empty() {
            let runs = console::count(self.run_count(), "run");
            let signer = self.signer.as_deref().unwrap_or_default();
            return format!("{}: accepted: {runs}, signed by {signer}", self.file.display());
        }
        let mut text = format!("{}: refused", self.file.display());
        for problem in &self.problems {
            text += &format!("\n  {problem}");
        }
        text
    }
}

fn document(files: &[Checked], wrote: Vec<String>) -> AtlasDocument {
    let contributions = files.iter().map(|file| ContributionDocument {
        file: file.file.display().to_string(),
        signer: file.signer.clone(),
        runs: file.run_count(),
        problems: file.problems.clone(),
    });
    AtlasDocument {
        schema: house::context::DOCUMENT,
        contributions: contributions.collect(),
        wrote,
    }
}

fn write_site(
    files: &[Checked],
    left_out: &[(String, String)],
    out: &Path,
) -> Result<Vec<String>, Failure> {
    let mut signers = BTreeSet::new();
    let mut entries = Vec::new();
    for file in files.iter().filter(|file| file.problems.is_empty()) {
        let (Some(signer), Some(contribution)) = (&file.signer, &file.contribution) else {
            continue;
        };
        signers.insert(signer);
        entries.extend(contribution.runs.iter().map(|run| AtlasEntry::new(signer, run.clone())));
    }
    let site = AtlasSite::new(&Atlas::new(entries), signers.len(), left_out);
    fs::create_dir_all(out)
        .map_err(|e| Failure::failed(format!("cannot make the folder {}: {e}", out.display())))?;
    let mut written = Vec::new();
    for (name, page) in atlas_site(&site) {
        let file = out.join(&name);
        console::replace_file(&file, page)?;
        written.push(file.display().to_string());
    }
    Ok(written)
}
