//! `wirepath schema`: JSON Schema of the documents that `--json` prints.

use house::console;
use house::document::{NamedSchema, read, written};
use house::findings::DoctorDocument;
use remote::Failure;

use crate::{explain, fleet, history, houses, load, paths_list, probe, proven, serve, tune};

/// One line a command.
const DOCUMENTS: &[NamedSchema] = &[
    #[cfg(feature = "fleet")]
    ("atlas", written::<crate::atlas::AtlasDocument>),
    ("doctor", written::<DoctorDocument<'_>>),
    ("explain", written::<explain::ExplainDocument>),
    ("fleet mesh", written::<fleet::mesh::MeshDocument>),
    ("fleet prove", written::<model::pool::PooledOutcome>),
    ("fleet rollout", written::<fleet::rollout::RolloutDocument>),
    ("fleet status", written::<fleet::status::StatusDocument>),
    ("history check", written::<history::check::CheckDocument<'_>>),
    ("history compare", written::<model::RunComparison>),
    ("history export", written::<Vec<model::Outcome>>),
    ("history import", written::<history::import::ImportDocument>),
    ("history list", written::<history::ListDocument>),
    ("history prune", written::<history::prune::PruneDocument>),
    ("history show", written::<model::Outcome>),
    ("history watch", written::<model::Watch>),
    ("load run", written::<load::LoadDocument>),
    ("paths", written::<paths_list::PathsDocument>),
    ("probe echo", written::<probe::ProbeDocument<'_>>),
    ("probe generate", written::<probe::GenerateDocument>),
    ("probe measure", written::<probe::MeasureDocument<'_>>),
    ("probe ping", written::<probe::ProbeDocument<'_>>),
    ("probe receive", written::<probe::ProbeDocument<'_>>),
    ("probe send", written::<probe::ProbeDocument<'_>>),
    ("prove", written::<proven::ProveDocument<'_>>),
    ("prove command", written::<proven::ProveDocument<'_>>),
    ("report", written::<model::Outcome>),
    ("serve", written::<serve::ServeDocument>),
    ("tune apply", written::<tune::apply::ApplyDocument>),
    ("tune confirm", written::<tune::apply::ApplyDocument>),
    ("tune export", written::<tune::export::ExportDocument>),
    ("tune knobs", written::<tune::show::KnobsDocument>),
    ("tune plan", written::<host::tune::Plan>),
    ("tune prove", written::<proven::ProveDocument<'_>>),
    ("tune rollback", written::<tune::apply::ApplyDocument>),
    ("tune status", written::<tune::show::StatusDocument>),
    ("tune verify", written::<tune::verify::VerifyDocument>),
];

/// Files that commands read, and documents of `--runs` and `--late`: a command's name and `file`, `runs` or `late`, and
/// the schema.
const OTHERS: &[NamedSchema] = &[
    ("explain late", written::<explain::LateDocument>),
    ("explain watch", written::<explain::WatchDocument>),
    ("prove command file", read::<model::Programs>),
    ("prove command runs", written::<proven::SeriesDocument<'_>>),
    ("prove runs", written::<proven::SeriesDocument<'_>>),
    ("tune prove live", written::<report::live::LiveProof>),
    ("tune prove runs", written::<proven::SeriesDocument<'_>>),
];

/// Documents of the core's commands and of the houses', by their commands.
fn documents() -> Vec<NamedSchema> {
    let houses = houses::all().iter().flat_map(|house| house.documents());
    let mut documents: Vec<NamedSchema> = DOCUMENTS.iter().chain(houses).copied().collect();
    documents.sort_unstable_by_key(|(name, _)| *name);
    documents
}

/// Prints the schema of a command's document, or the commands that have one.
pub(crate) fn run(command: &[String]) -> Result<(), Failure> {
    let wanted = command.join(" ");
    let documents = documents();
    let mut all = documents.iter().chain(OTHERS);
    if wanted.is_empty() {
        let names: Vec<&str> = all.map(|(name, _)| *name).collect();
        return console::text(&names.join("\n"));
    }
    match all.find(|(name, _)| *name == wanted) {
        Some((_, schema)) => console::json(&schema()),
        None => {
            let names = documents.iter().chain(OTHERS).map(|(name, _)| *name);
            let hint = model::did_you_mean(&wanted, names);
            Err(Failure::Usage(format!(
                "no schema for '{wanted}'{hint}`wirepath schema` lists the commands that have one"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_belongs_to_a_command_and_describes_an_object_or_a_list() {
        for (name, schema) in documents() {
            let mut command = &crate::line::command_line();
            // A file of a path is of `prove`.
            let words = if name.ends_with(" file") { "prove" } else { name };
            for word in words.split(' ') {
                command = command.find_subcommand(word).unwrap_or_else(|| panic!("{name}"));
            }
            let schema = schema().to_value();
            assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema", "{name}");
            assert!(schema["type"] == "object" || schema["type"] == "array", "{name}: {schema:#}");
        }
    }
}
