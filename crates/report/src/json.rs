//! The public results schema as JSON (`docs/results.md`).

use model::{Outcome, SCHEMA};

/// Why a document could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// Not JSON at all.
    #[error("not a JSON document")]
    Syntax(#[source] serde_json::Error),
    /// No `schema` field.
    #[error("not a Wirepath result: it has no whole number in the field `schema`")]
    NoSchema,
    /// Written by another version.
    #[error("results schema {found}, this Wirepath reads {known}; use the Wirepath that wrote it")]
    Schema {
        /// Version in the document.
        found: u64,
        /// Version this build reads.
        known: u32,
    },
    /// The right version, but a field is missing or of another kind.
    #[error("schema {SCHEMA}, but not as documented in docs/results.md")]
    Shape(#[source] serde_json::Error),
}

/// One indented JSON document, as documented in `docs/results.md`.
///
/// Figures that are not finite become `null`; a floor that is not finite is left
/// out, as it bounds nothing.
pub fn to_json(outcome: &Outcome) -> String {
    let finite =
        |outcome: &Outcome| outcome.floor.values().all(|f| f.low.is_finite() && f.high.is_finite());
    let document = if finite(outcome) {
        serde_json::to_string_pretty(outcome)
    } else {
        let mut bounded = outcome.clone();
        bounded.floor.retain(|_, f| f.low.is_finite() && f.high.is_finite());
        serde_json::to_string_pretty(&bounded)
    };
    document.expect("only string keys, and nothing that fails to serialise")
}

/// A comparison of two runs as one indented JSON document, as documented in `docs/history.md`.
pub fn comparison_to_json(comparison: &model::RunComparison) -> String {
    serde_json::to_string_pretty(comparison)
        .expect("only string keys, and nothing that fails to serialise")
}

/// [`to_json`] with the comparison as one more field, `comparison`, if there is one.
pub fn with_comparison(outcome: &Outcome, comparison: Option<&model::RunComparison>) -> String {
    let document = to_json(outcome);
    let Some(comparison) = comparison else { return document };
    let inner = comparison_to_json(comparison).replace('\n', "\n  ");
    let end = document.trim_end().strip_suffix('}').unwrap_or(&document).trim_end();
    format!("{end},\n  \"comparison\": {inner}\n}}")
}

/// The outcome that [`to_json`] wrote.
pub fn from_json(text: &str) -> Result<Outcome, JsonError> {
    // The version first: a document of another version fails in its fields, too,
    // and that message would send the reader the wrong way.
    let document: serde_json::Value = serde_json::from_str(text).map_err(JsonError::Syntax)?;
    let found = document.get("schema").and_then(serde_json::Value::as_u64);
    let found = found.ok_or(JsonError::NoSchema)?;
    if found != u64::from(SCHEMA) {
        return Err(JsonError::Schema { found, known: SCHEMA });
    }
    serde_json::from_value(document).map_err(JsonError::Shape)
}
