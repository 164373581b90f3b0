//! `wirepath schema`: JSON Schema of the documents that `--json` prints.

use remote::Failure;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

use crate::{
    console, doctor, explain, feed, fleet, guest, history, paths_list, probe, proven, serve, tune,
    vmnic,
};

/// A command's name after `wirepath`, and the schema of its document.
type NamedSchema = (&'static str, fn() -> Schema);

/// One line a command.
const DOCUMENTS: &[NamedSchema] = &[
    ("doctor", written::<doctor::DoctorDocument<'_>>),
    ("explain", written::<explain::ExplainDocument>),
    ("feed listen", written::<marketdata::listen::ListenDocument<'_>>),
    ("feed noise", written::<feed::noise::NoiseDocument>),
    ("feed record", written::<marketdata::record::RecordDocument>),
    ("feed replay", written::<marketdata::replay::ReplayDocument<'_>>),
    ("feed report", written::<marketdata::listen::ListenDocument<'_>>),
    ("fleet mesh", written::<fleet::mesh::MeshDocument>),
    ("fleet prove", written::<model::pool::PooledOutcome>),
    ("fleet rollout", written::<fleet::rollout::RolloutDocument>),
    ("fleet status", written::<fleet::status::StatusDocument>),
    ("guest run", written::<guest::run::GuestRunDocument<'_>>),
    ("guest selftest", written::<guest::selftest::SelftestDocument>),
    ("history check", written::<history::check::CheckDocument<'_>>),
    ("history compare", written::<model::RunComparison>),
    ("history export", written::<Vec<model::Outcome>>),
    ("history import", written::<history::import::ImportDocument>),
    ("history list", written::<history::ListDocument>),
    ("history prune", written::<history::prune::PruneDocument>),
    ("history show", written::<model::Outcome>),
    ("history watch", written::<model::Watch>),
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
    ("tunnel check", written::<doctor::DoctorDocument<'_>>),
    ("vmnic bench streams", written::<vmnic::StreamsDocument>),
    ("vmnic run", written::<vmnic::VmnicRunDocument>),
];

/// Files that commands read, and documents of `--runs`: a command's name and `file` or `runs`, and the schema.
const OTHERS: &[NamedSchema] = &[
    ("prove command file", read::<model::Programs>),
    ("prove command runs", written::<proven::SeriesDocument<'_>>),
    ("prove runs", written::<proven::SeriesDocument<'_>>),
    ("tune prove runs", written::<proven::SeriesDocument<'_>>),
];

/// Schema of what is read: fields with a default are not required.
fn read<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>()
}

/// Schema of what is written: fields that may be `null` but are never left out are required.
fn written<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

/// Prints the schema of a command's document, or the commands that have one.
pub(crate) fn run(command: &[String]) -> Result<(), Failure> {
    let wanted = command.join(" ");
    let mut all = DOCUMENTS.iter().chain(OTHERS);
    if wanted.is_empty() {
        let names: Vec<&str> = all.map(|(name, _)| *name).collect();
        return console::text(&names.join("\n"));
    }
    match all.find(|(name, _)| *name == wanted) {
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
