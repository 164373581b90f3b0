//! `tune export`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use host::tune::{self, ExportedFile, Form, Omitted, Place, System};
use house::console;
use house::console::count;
use house::context::Context;
use house::next::{self, CommandLine};
use house::place::StateArgs;
use remote::Failure;
use report::screen::Screen;
use schemars::JsonSchema;
use serde::Serialize;

use super::apply;

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// The plan; `-` for standard input
    #[arg(value_name = "PLAN|-")]
    plan: PathBuf,
    /// Program that keeps the settings
    #[arg(long, value_enum)]
    to: Form,
    /// Folder that receives the files, as a tree below /
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Document of `tune export --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ExportDocument {
    schema: u32,
    /// Digest of the plan.
    plan: String,
    /// Files that were written.
    files: Vec<PathBuf>,
    /// Settings that the files do not contain.
    omitted: Vec<Omitted>,
    /// Commands that make the files take effect.
    next: Vec<String>,
}

pub(super) fn run(context: &Context, state: &StateArgs, args: &ExportArgs) -> Result<(), Failure> {
    let plan = apply::read(&args.plan)?;
    let place = match args.to {
        Form::Unit => Place { netns: plan.netns.clone(), root: state.root.clone() },
        _ => Place { netns: None, root: state.root.clone() },
    };
    let exported = tune::export(&plan, &System::open(&place)?, args.to)?;
    if exported.files.is_empty() {
        let omitted = count(exported.omitted.len(), "setting");
        return Err(Failure::Unsupported(format!(
            "{} cannot express any of the plan: {omitted} left out; try --to unit",
            args.to
        )));
    }
    let files = write(&args.out, &exported.files)?;
    if context.json {
        let (schema, plan) = (house::context::DOCUMENT, plan.digest());
        let (omitted, next) = (exported.omitted, exported.next);
        return console::json(&ExportDocument { schema, plan, files, omitted, next });
    }
    let mut screen = Screen::plain();
    for file in &files {
        screen.line(format!("wrote {}", file.display()));
    }
    if !exported.omitted.is_empty() {
        screen.line("left out:");
    }
    for Omitted { knob, target, value, why } in &exported.omitted {
        screen.line(format!("  {knob} {target} = {value}: {why}"));
    }
    screen.line("once the files are in place:");
    for command in &exported.next {
        screen.line(format!("  {command}"));
    }
    screen.line("`wirepath tune verify PLAN` then compares the host with the plan");
    console::text(&screen.finish())?;
    if files.iter().any(|file| file.starts_with(args.out.join("etc"))) {
        let folder = args.out.join("etc").display().to_string();
        next::say(context, &CommandLine::root_program("cp -r").value(&folder).words("/"));
    }
    Ok(())
}

/// Writes all files, or none: existing files, dangling links among them, are refused first.
fn write(folder: &Path, files: &[ExportedFile]) -> Result<Vec<PathBuf>, Failure> {
    let paths: Vec<_> = files.iter().map(|file| folder.join(&file.path)).collect();
    if let Some(existing) = paths.iter().find(|path| path.symlink_metadata().is_ok()) {
        let (existing, folder) = (existing.display(), folder.display());
        return Err(Failure::Usage(format!(
            "{existing} exists already; remove it, or name another folder than {folder}"
        )));
    }
    for (path, file) in paths.iter().zip(files) {
        make_folders(folder, &file.path)?;
        console::replace_file(path, file.text.as_str())?;
    }
    Ok(paths)
}

/// Makes the folders of a file below the one that was named. In a shared folder another user may have put links there.
fn make_folders(folder: &Path, file: &Path) -> Result<(), Failure> {
    let mut parent = folder.to_owned();
    for part in file.parent().into_iter().flat_map(Path::components) {
        parent.push(part);
        if parent.is_symlink() {
            return Err(Failure::Usage(format!(
                "{} is a symbolic link; remove it, or name another folder than {}",
                parent.display(),
                folder.display()
            )));
        }
    }
    let parent = folder.join(file.parent().unwrap_or(Path::new("")));
    fs::create_dir_all(&parent).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::PermissionDenied => "; name a folder of yours with -o",
            _ => "",
        };
        Failure::failed(format!("cannot create {}: {error}{hint}", parent.display()))
    })
}
