//! `wirepath paths`.

use std::fmt::Write;
use std::time::Duration;

use model::{Arm, Support};
use paths::{Load, Path};
use report::text::Style;
use serde::Serialize;

use crate::args::Cli;
use crate::console;
use crate::end::Failure;

#[derive(Serialize)]
struct PathDoc {
    name: &'static str,
    what: &'static str,
    /// Whether the baseline can run.
    support: Support,
    loads: Vec<LoadDoc>,
    switches: Vec<SwitchDoc>,
}

#[derive(Serialize)]
struct LoadDoc {
    name: &'static str,
    what: &'static str,
    judged: &'static [&'static str],
    peers: &'static [&'static str],
}

#[derive(Serialize)]
struct SwitchDoc {
    #[serde(flatten)]
    switch: model::Switch,
    support: Support,
}

/// A switch alone may make no sense; with what it needs it does.
fn support_of(path: &dyn Path, switches: &[model::Switch], n: usize, load: &Load) -> Support {
    let alone = Arm::of([switches[n].id]);
    match path.support(&alone, load) {
        Support::Refused { .. } => {
            let all = switches[..=n].iter().map(|s| s.id);
            let needed = all.filter(|id| switches[n].needs.contains(id) || *id == switches[n].id);
            path.support(&Arm::of(needed), load)
        }
        support => support,
    }
}

fn describe(path: &dyn Path) -> PathDoc {
    let load = Load {
        kind: path.loads()[0].name.to_owned(),
        size_bytes: 64,
        rate_pps: 10_000,
        trial: Duration::from_millis(200),
        far: None,
        secret: None,
    };
    let switches = path.switches();
    PathDoc {
        name: path.name(),
        what: path.what(),
        support: path.support(&Arm::baseline(), &load),
        loads: path
            .loads()
            .iter()
            .map(|l| LoadDoc { name: l.name, what: l.what, judged: l.judged, peers: l.peers })
            .collect(),
        switches: (0..switches.len())
            .map(|n| SwitchDoc {
                switch: switches[n],
                support: support_of(path, switches, n, &load),
            })
            .collect(),
    }
}

fn words(support: &Support) -> String {
    match support {
        Support::Yes => "yes".to_owned(),
        Support::Unsupported { what, needs } => format!("no: {what}; needs {needs}"),
        Support::Refused { why } => format!("no: {why}"),
    }
}

pub(crate) fn run(cli: &Cli) -> Result<(), Failure> {
    let docs: Vec<PathDoc> = paths::all().iter().map(|p| describe(p.as_ref())).collect();
    if cli.json {
        let json = serde_json::json!({ "schema": model::SCHEMA, "paths": docs });
        return console::text(&format!("{json:#}"));
    }
    console::text(&text(docs))
}

/// Where the column begins that tells of a load or switch.
const COLUMN: usize = 18;

fn text(docs: Vec<PathDoc>) -> String {
    // Colours would mark all that is in the second column alike.
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
            let why = words(&doc.support);
            let _ = write!(out, "\n{}", report::text::entry("not possible here:", &why, 0, style));
        }
        out.push_str("\nswitches, in the order of the ladder\n");
        for SwitchDoc { switch, support } in doc.switches {
            out.push_str(&entry(&format!("  {}", switch.id), switch.effect));
            if !switch.needs.is_empty() {
                out.push_str(&entry("", &format!("needs {}", switch.needs)));
            }
            // Where nothing can run, that was said above, once.
            if doc.support.is_yes() {
                out.push_str(&entry("", &format!("here: {}", words(&support))));
            }
        }
    }
    out
}
