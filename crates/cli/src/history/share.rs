//! `wirepath history export --share`: runs for strangers, signed.

use std::path::PathBuf;

use fleet::keys::Seeds;
use fleet::signed_file;
use house::console;
use house::context::Context;
use model::Outcome;
use remote::Failure;
use report::atlas::{Contribution, check};
use report::store::SqliteStore;

use super::args::ExportArgs;
use super::export;
use crate::fleet::keys::read_secret;
use crate::{atlas, results};

/// Name of the contributor's key beside the results.
const KEY_FILE: &str = "share.keys";

/// Writes runs without names, unless these are asked for, with what the machine is; signed by the contributor's key.
pub(super) fn run(
    context: &Context,
    args: &ExportArgs,
    store: &SqliteStore,
    ids: &[String],
) -> Result<(), Failure> {
    let outcomes: Vec<Outcome> =
        ids.iter().map(|id| export::outcome(store, id)).collect::<Result<_, _>>()?;
    let words = atlas::vocabulary();
    let contribution = Contribution::new(&outcomes, (!args.with_names).then_some(&words));
    let sealed = signed_file::seal_file(&key(context, args)?, &contribution.to_json())?;
    for problem in check(&contribution, &words, args.with_names) {
        console::say(&format!("an atlas refuses this file: {problem}"));
    }
    let Some(file) = &args.out else { return console::bytes(&sealed) };
    console::write_file(file, sealed)?;
    contribution.runs.iter().for_each(say_machine);
    let file = file.display();
    console::say(&format!("next: wirepath atlas --check {file}"));
    Ok(())
}

/// Prints the facts of the machine that a reader of the file learns.
fn say_machine(run: &Outcome) {
    let machine = &run.machine;
    let platform = machine
        .hypervisor
        .as_deref()
        .map_or_else(|| "no hypervisor".to_owned(), |hypervisor| format!("under {hypervisor}"));
    console::say(&format!(
        "{}: {}, kernel {}, {}, {platform}",
        run.id, machine.cpu, machine.kernel, machine.nic
    ));
}

/// The key of `--key`, or that beside the results, which is made once.
fn key(context: &Context, args: &ExportArgs) -> Result<Seeds, Failure> {
    if let Some(file) = &args.key {
        return read_secret(file, Seeds::parse);
    }
    let file: PathBuf = results::database(context).file()?.with_file_name(KEY_FILE);
    if file.exists() {
        return read_secret(&file, Seeds::parse);
    }
    let seeds = Seeds::generate()?;
    seeds.write(&file)?;
    console::say(&format!("made the key {}; keep it: an atlas knows you by it", file.display()));
    Ok(seeds)
}
