//! `wirepath paths`.

use std::fmt::Write;
use std::time::Duration;

use clap::Args;
use model::{Arm, Load, LoadKind, Path, Support};
use remote::Failure;
use report::text::Style;
use schemars::JsonSchema;
use serde::Serialize;

use crate::context::Context;
use crate::{console, lookup};

/// Document of `paths --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Document {
    schema: u32,
    paths: Vec<PathDoc>,
}

#[derive(Serialize, JsonSchema)]
struct PathDoc {
    name: &'static str,
    what: &'static str,
    /// Support for the baseline.
    support: Support,
    loads: Vec<LoadDoc>,
    switches: Vec<SwitchDoc>,
}

#[derive(Serialize, JsonSchema)]
struct LoadDoc {
    name: &'static str,
    what: &'static str,
    judged: &'static [&'static str],
    peers: &'static [&'static str],
}

#[derive(Serialize, JsonSchema)]
struct SwitchDoc {
    #[serde(flatten)]
    switch: model::SwitchSpec,
    support: Support,
}

/// Support for a switch: alone, or with the switches that it needs.
fn support_of(path: &dyn Path, switches: &[model::SwitchSpec], n: usize, load: &Load) -> Support {
    let alone = Arm::with([&switches[n]]);
    match path.support(&alone, load) {
        Support::Refused { .. } => {
            let own = &switches[n];
            let is_needed = |s: &&model::SwitchSpec| own.needs.contains(s.id) || s.id == own.id;
            path.support(&Arm::with(switches[..=n].iter().filter(is_needed)), load)
        }
        support => support,
    }
}

fn describe(path: &dyn Path) -> PathDoc {
    let load = |kind: &LoadKind| Load {
        kind: kind.name.to_owned(),
        size_bytes: 64,
        rate_pps: 10_000,
        trial: Duration::from_millis(200),
        ipv6: false,
        vlan_tag: None,
        far: None,
    };
    let loads: Vec<Load> = path.loads().iter().map(load).collect();
    let switches = path.switches();
    // Under the first load that has the switch: some are of TCP alone.
    let support = |n: usize| {
        let mut answers = loads.iter().map(|load| support_of(path, switches, n, load));
        let first = answers.next().unwrap_or(Support::Yes);
        let is_refused = |answer: &Support| matches!(answer, Support::Refused { .. });
        if is_refused(&first) { answers.find(|a| !is_refused(a)).unwrap_or(first) } else { first }
    };
    PathDoc {
        name: path.name(),
        what: path.what(),
        support: path.support(&Arm::baseline(), &loads[0]),
        loads: path
            .loads()
            .iter()
            .map(|l| LoadDoc { name: l.name, what: l.what, judged: l.judged, peers: l.peers })
            .collect(),
        switches: (0..switches.len())
            .map(|n| SwitchDoc { switch: switches[n], support: support(n) })
            .collect(),
    }
}

fn answer(support: &Support) -> String {
    match support {
        Support::Yes => "yes".to_owned(),
        Support::Unsupported { what, needs } => format!("no: {what}; needs {needs}"),
        Support::Refused { why } => format!("no: {why}"),
    }
}

#[derive(Debug, Args)]
pub(crate) struct PathsArgs {
    /// Path to show; all unless given
    #[arg(value_parser = lookup::PATH)]
    path: Option<String>,
}

pub(crate) fn run(context: &Context, args: &PathsArgs) -> Result<(), Failure> {
    let paths = match &args.path {
        Some(name) => vec![lookup::find_path(name)?],
        None => lookup::all(),
    };
    let docs: Vec<PathDoc> = paths.iter().map(|path| describe(path.as_ref())).collect();
    if context.json {
        return console::json(&Document { schema: model::SCHEMA, paths: docs });
    }
    console::text(&text(docs))
}

/// Column at which the description of a load or switch begins.
const COLUMN: usize = 18;

fn text(docs: Vec<PathDoc>) -> String {
    // No colour: it would mark the whole second column.
    let style = Style { color: false, ..console::style() };
    let entry = |name: &str, text: &str| report::text::entry(name, text, COLUMN, style);
    let mut out = String::new();
    for doc in docs {
        let _ =
            write!(out, "{}", report::text::entry(&format!("{}:", doc.name), doc.what, 0, style));
        out.push_str("\nloads\n");
        for load in doc.loads {
            let peers = match load.peers {
                [] => String::new(),
                peers => format!("; peers: {}", peers.join(", ")),
            };
            out.push_str(&entry(&format!("  {}", load.name), load.what));
            out.push_str(&entry("", &format!("judged by {}{peers}", load.judged.join(", "))));
        }
        if !doc.support.is_yes() {
            let why = answer(&doc.support);
            let _ = write!(out, "\n{}", report::text::entry("not possible here:", &why, 0, style));
        }
        out.push_str("\nswitches, in the order of the ladder\n");
        for SwitchDoc { switch, support } in doc.switches {
            out.push_str(&entry(&format!("  {}", switch.id), switch.effect));
            if !switch.needs.is_empty() {
                out.push_str(&entry("", &format!("needs {}", switch.needs)));
            }
            // If the path cannot run at all, the reason was printed above.
            if doc.support.is_yes() {
                out.push_str(&entry("", &format!("here: {}", answer(&support))));
            }
        }
    }
    out
}
