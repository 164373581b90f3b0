//! JSON Schemas of the documents that commands print and read.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

/// A command's words after `wirepath`, and the schema of its document.
pub type NamedSchema = (&'static str, fn() -> Schema);

/// Schema of what is read: fields with a default are not required.
pub fn read<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>()
}

/// Schema of what is written: fields that may be `null` but are never left out are required.
pub fn written<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}
