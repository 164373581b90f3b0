//! The public results schema as JSON (`docs/reference/results.md`).

use std::borrow::Cow;

use model::{Floor, Outcome, SCHEMA};
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    #[error("not a JSON document")]
    Syntax(#[source] serde_json::Error),
    #[error("not a Wirepath result: the field `schema` is missing or not a whole number")]
    NoSchema,
    #[error(
        "results schema {found}, but this Wirepath reads 1 to {known}; use the Wirepath that wrote it"
    )]
    Schema {
        found: u64,
        /// Newest version this build reads.
        known: u32,
    },
    #[error("document {number} of the list cannot be read")]
    Listed {
        /// From 1.
        number: usize,
        #[source]
        source: Box<JsonError>,
    },
    #[error("a result of {count} arms; at most {ARMS_MAX} are read")]
    TooManyArms { count: usize },
    #[error("not a valid result of schema {SCHEMA} (docs/results.md)")]
    Shape(#[source] serde_json::Error),
}

/// Returns an indented JSON document, described in `docs/reference/results.md`.
pub fn to_json(outcome: &Outcome) -> String {
    serde_json::to_string_pretty(finite(outcome).as_ref())
        .expect("only string keys, and nothing that fails to serialise")
}

/// The outcome without floors that are not finite, which bound nothing. Other figures that are not
/// finite become `null` in JSON.
pub fn finite(outcome: &Outcome) -> Cow<'_, Outcome> {
    if outcome.floor.values().all(is_finite) {
        return Cow::Borrowed(outcome);
    }
    let mut bounded = outcome.clone();
    bounded.floor.retain(|_, floor| is_finite(floor));
    Cow::Owned(bounded)
}

fn is_finite(floor: &Floor) -> bool {
    floor.low.is_finite() && floor.high.is_finite()
}

/// Returns a comparison as an indented JSON document, described in `docs/reference/results.md`.
pub fn comparison_to_json(comparison: &model::RunComparison) -> String {
    serde_json::to_string_pretty(comparison)
        .expect("only string keys, and nothing that fails to serialise")
}

/// Formats a watched history.
pub fn watch_to_json(watch: &model::Watch) -> String {
    serde_json::to_string_pretty(watch)
        .expect("only string keys, and nothing that fails to serialise")
}

/// Arms of an outcome that is read: many times those of any experiment. Pages compare each with others.
const ARMS_MAX: usize = 1000;

/// Reads the output of [`to_json`], which may be a stranger's.
pub fn from_json(text: &str) -> Result<Outcome, JsonError> {
    #[derive(Deserialize)]
    struct Head {
        schema: u64,
    }
    // Into types at once: a `Value` takes many times the memory of its text.
    match serde_json::from_str(text) {
        Ok(Head { schema }) => check_schema(Some(schema))?,
        Err(error) if error.is_data() => return Err(JsonError::NoSchema),
        Err(error) => return Err(JsonError::Syntax(error)),
    }
    checked(serde_json::from_str(text).map_err(JsonError::Shape)?)
}

/// Reads one document, the list of `history export`, or the `runs` of a series.
pub fn all_from_json(text: &str) -> Result<Vec<Outcome>, JsonError> {
    let mut document: Value = serde_json::from_str(text).map_err(JsonError::Syntax)?;
    let is_series = document.get("schema").is_none();
    let listed = match document.get_mut("runs") {
        Some(runs) if is_series => runs.take(),
        _ => document,
    };
    let Value::Array(list) = listed else { return Ok(vec![from_value(listed)?]) };
    let numbered = list.into_iter().enumerate();
    numbered
        .map(|(place, document)| {
            from_value(document)
                .map_err(|source| JsonError::Listed { number: place + 1, source: Box::new(source) })
        })
        .collect()
}

fn from_value(document: Value) -> Result<Outcome, JsonError> {
    // The version comes first: a document of another version also fails in its fields, and that
    // message would be misleading.
    check_schema(document.get("schema").and_then(Value::as_u64))?;
    checked(serde_json::from_value(document).map_err(JsonError::Shape)?)
}

fn check_schema(found: Option<u64>) -> Result<(), JsonError> {
    let found = found.ok_or(JsonError::NoSchema)?;
    if (1..=u64::from(SCHEMA)).contains(&found) {
        return Ok(());
    }
    Err(JsonError::Schema { found, known: SCHEMA })
}

fn checked(outcome: Outcome) -> Result<Outcome, JsonError> {
    check(&outcome)?;
    Ok(outcome)
}

/// Checks an outcome that is part of another document.
///
/// Errors: it is of another version, or too large.
pub(crate) fn check(outcome: &Outcome) -> Result<(), JsonError> {
    check_schema(Some(outcome.schema.into()))?;
    let count = outcome.arms.len();
    if count <= ARMS_MAX { Ok(()) } else { Err(JsonError::TooManyArms { count }) }
}
