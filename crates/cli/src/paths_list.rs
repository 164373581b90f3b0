//! `wirepath paths`.

use std::time::Duration;

use clap::Args;
use house::console;
use house::context::Context;
use model::{Arm, Load, LoadKind, Path, Support, SwitchSpec};
use remote::Failure;
use report::screen::{Screen, Style, Tone};
use schemars::JsonSchema;
use serde::Serialize;

use crate::lookup;

/// Document of `paths --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PathsDocument {
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
    switch: SwitchSpec,
    support: Support,
}

/// Support for a switch: alone, or with the switches that it needs.
fn load_support(path: &dyn Path, switches: &[SwitchSpec], n: usize, load: &Load) -> Support {
    let own = &switches[n];
    match path.support(&Arm::with([own]), load) {
        Support::Refused { .. } => {
            let needed = switches[..=n]
                .iter()
                .filter(|switch| own.needs.contains(switch.id) || switch.id == own.id);
            path.support(&Arm::with(needed), load)
        }
        support => support,
    }
}

fn describe(path: &dyn Path) -> PathDoc {
    let loads: Vec<Load> = path.loads().iter().map(small_load).collect();
    let switches = path.switches();
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
            .map(|n| SwitchDoc {
                switch: switches[n],
                support: first_support(path, switches, n, &loads),
            })
            .collect(),
    }
}

fn small_load(kind: &LoadKind) -> Load {
    Load {
        kind: kind.name.to_owned(),
        size_bytes: 64,
        rate_pps: 10_000,
        trial: Duration::from_millis(200),
        ipv6: false,
        vlan_tag: None,
        wire: None,
        far: None,
    }
}

/// Support under the first load that has the switch: some are of TCP alone.
fn first_support(path: &dyn Path, switches: &[SwitchSpec], n: usize, loads: &[Load]) -> Support {
    let mut refused = None;
    for load in loads {
        match load_support(path, switches, n, load) {
            answer @ Support::Refused { .. } => refused = refused.or(Some(answer)),
            answer => return answer,
        }
    }
    refused.unwrap_or(Support::Yes)
}

fn answer(support: &Support) -> String {
    support.reason().map_or("yes".to_owned(), |why| format!("no: {why}"))
}

#[derive(Debug, Args)]
pub(crate) struct PathsArgs {
    /// Path to show; all unless given
    #[arg(value_parser = lookup::PathName)]
    path: Option<String>,
}

pub(crate) fn run(context: &Context, args: &PathsArgs) -> Result<(), Failure> {
    let paths = match &args.path {
        Some(name) => vec![lookup::find_path(name)?],
        None => lookup::all(),
    };
    let docs: Vec<PathDoc> = paths.iter().map(|path| describe(path.as_ref())).collect();
    if context.json {
        return console::json(&PathsDocument { schema: model::SCHEMA, paths: docs });
    }
    console::text(&text(docs))?;
    let others = runner::external_names();
    if args.path.is_none() && !others.is_empty() {
        console::text(&format!(
            "\nprograms in PATH that may be paths, shown by `wirepath paths NAME`: {}",
            others.join(", ")
        ))?;
    }
    Ok(())
}

/// Column at which the description of a load or switch begins.
const COLUMN: usize = 18;

fn text(docs: Vec<PathDoc>) -> String {
    // No colour: it would mark the whole second column.
    let mut screen = Screen::new(Style { color: false, ..console::style() }).with_column(COLUMN);
    for doc in docs {
        screen.paragraph(&format!("{}: ", doc.name), doc.what, Tone::Plain);
        screen.blank();
        screen.line("loads");
        for load in doc.loads {
            let peers = match load.peers {
                [] => String::new(),
                peers => format!("; peers: {}", peers.join(", ")),
            };
            screen.entry(&format!("  {}", load.name), load.what);
            let judged = load.judged.join(", ");
            screen.entry("", format!("judged by {judged}{peers}"));
        }
        if !doc.support.is_yes() {
            screen.blank();
            screen.paragraph("not possible here: ", &answer(&doc.support), Tone::Plain);
        }
        screen.blank();
        screen.line("switches, in the order of the ladder");
        for SwitchDoc { switch, support } in doc.switches {
            screen.entry(&format!("  {}", switch.id), switch.effect);
            if !switch.needs.is_empty() {
                screen.entry("", format!("needs {}", switch.needs));
            }
            // If the path cannot run at all, the reason was printed above.
            if doc.support.is_yes() {
                screen.entry("", format!("here: {}", answer(&support)));
            }
        }
    }
    screen.finish()
}
