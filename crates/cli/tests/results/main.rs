//! Results after a run: kept, compared, served, shared and documented. On the simulated path.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/served.rs"]
mod served;

mod against;
mod best;
mod ci;
mod docs_examples;
mod grafana;
mod history;
mod serve;
mod sharing;

/// A run that ends by itself soon, as JSON. The same seed each time: unchanged runs are equal, and
/// no test depends on a false alarm's 5 %.
const QUICK_JSON: [&str; 11] = [
    "prove",
    "fake",
    "--arms",
    "fast,harmful",
    "--max-blocks",
    "8",
    "--trial",
    "5ms",
    "--seed",
    "1",
    "--json",
];
/// The same run as text.
const QUICK: &[&str] = QUICK_JSON.split_last().unwrap().1;
