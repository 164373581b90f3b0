//! `wirepath schema`: JSON Schema of the documents that `--json` prints.

use remote::Failure;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

use crate::{
    console, doctor, explain, feed, fleet, guest, history, paths_list, probe, proven, serve, tune,
    vmnic,
};

/// A command's name after `wirepath`, and the schema of its document.
type Document = (&'static str, fn() -> Schema);

/// One line a command.
const DOCUMENTS: &[Document] = &[
    ("doctor", of::<doctor::Document<'_>>),
    ("explain", of::<explain::Document>),
    ("feed listen", of::<marketdata::listen::Document<'_>>),
    ("feed noise", of::<feed::noise::Document>),
    ("feed record", of::<marketdata::record::Document>),
    ("feed replay", of::<marketdata::replay::Document<'_>>),
    ("feed report", of::<marketdata::listen::Document<'_>>),
    ("fleet mesh", of::<fleet::mesh::Document>),
    ("fleet prove", of::<model::pool::PooledOutcome>),
    ("fleet rollout", of::<fleet::rollout::Document>),
    ("fleet status", of::<fleet::status::Document>),
    ("guest run", of::<guest::run::Document<'_>>),
    ("guest selftest", of::<guest::selftest::Document>),
    ("history check", of::<history::check::Document<'_>>),
    ("history compare", of::<model::RunComparison>),
    ("history export", of::<Vec<model::Outcome>>),
    ("history import", of::<history::import::Document>),
    ("history list", of::<history::ListDocument>),
    ("history prune", of::<history::prune::Document>),
    ("history show", of::<model::Outcome>),
    ("history watch", of::<model::Watch>),
    ("paths", of::<paths_list::Document>),
    ("probe echo", of::<probe::Document<'_>>),
    ("probe generate", of::<probe::GenerateDocument>),
    ("probe measure", of::<probe::MeasureDocument<'_>>),
    ("probe ping", of::<probe::Document<'_>>),
    ("probe receive", of::<probe::Document<'_>>),
    ("probe send", of::<probe::Document<'_>>),
    ("prove", of::<proven::ProveDocument<'_>>),
    ("prove command", of::<proven::ProveDocument<'_>>),
    ("report", of::<model::Outcome>),
    ("serve", of::<serve::Document>),
    ("tune apply", of::<tune::apply::Document>),
    ("tune confirm", of::<tune::apply::Document>),
    ("tune export", of::<tune::export::Document>),
    ("tune knobs", of::<tune::show::KnobsDocument>),
    ("tune plan", of::<host::tune::Plan>),
    ("tune prove", of::<proven::ProveDocument<'_>>),
    ("tune rollback", of::<tune::apply::Document>),
    ("tune status", of::<tune::show::StatusDocument>),
    ("tune verify", of::<tune::verify::Document>),
    ("tunnel check", of::<doctor::Document<'_>>),
    ("vmnic bench streams", of::<vmnic::StreamsDocument>),
    ("vmnic run", of::<vmnic::Document>),
];

/// Files that commands read, and documents of `--runs`: a command's name and `file` or `runs`, and the schema.
const OTHERS: &[Document] = &[
    ("prove command file", read::<model::Programs>),
    ("prove command runs", of::<proven::SeriesDocument<'_>>),
    ("prove runs", of::<proven::SeriesDocument<'_>>),
    ("tune prove runs", of::<proven::SeriesDocument<'_>>),
];

/// Schema of what is read: fields with a default are not required.
fn read<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>()
}

/// Schema of what is written: fields that may be `null` but are never left out are required.
fn of<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

/// Prints the schema of a command's document, or the commands that have one.
pub(crate) fn run(command: &[String]) -> Result<(), Failure> {
    let wanted = command.join(" ");
    let all = || DOCUMENTS.iter().chain(OTHERS);
    let names = || all().map(|(name, _)| *name);
    if wanted.is_empty() {
        return console::text(&names().collect::<Vec<_>>().join("\n"));
    }
    match all().find(|(name, _)| *name == wanted) {
        Some((_, schema)) => console::json(&schema()),
        None => Err(Failure::Usage(format!(
            "no schema for {wanted}; `wirepath schema` lists the commands that have one"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_schema_belongs_to_a_command_and_describes_an_object_or_a_list() {
        for (name, schema) in DOCUMENTS {
            let mut command = &crate::args::Cli::command();
            for word in name.split(' ') {
                command = command.find_subcommand(word).unwrap_or_else(|| panic!("{name}"));
            }
            let schema = schema().to_value();
            assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema", "{name}");
            assert!(schema["type"] == "object" || schema["type"] == "array", "{name}: {schema:#}");
        }
        assert!(DOCUMENTS.is_sorted_by_key(|(name, _)| *name));
    }
}
