//! Results for people and programs: text, JSON, CSV, HTML, and the store.
//!
//! Everything here works from [`model::Outcome`] alone and prints nothing itself.

mod compared;
pub mod csv;
pub mod export;
pub mod fuzzing;
pub mod html;
#[cfg(test)]
#[path = "../../../fuzz/inputs.rs"]
mod inputs;
pub mod json;
mod steps;
pub mod store;
pub mod text;
mod units;
mod words;

/// The reference of the JSON form, `docs/results.md`.
pub const RESULTS_REFERENCE: &str = include_str!("../../../docs/results.md");
