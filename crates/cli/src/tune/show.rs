//! What is applied, and what there is to apply.

use std::fmt::Write;

use host::tune::{self, Phase};
use serde_json::json;

use super::{PlaceArgs, StateArgs, notice};
use crate::args::Cli;
use crate::console;
use crate::end::Failure;

pub(super) fn status(cli: &Cli, state: &StateArgs) -> Result<(), Failure> {
    let store = state.store();
    let Some(journal) = store.read()? else {
        if cli.json {
            let doc = json!({ "schema": model::SCHEMA, "phase": "nothing-applied" });
            return console::text(&format!("{doc:#}"));
        }
        return console::text("nothing is applied");
    };
    notice(state);
    let settings = tune::settings(&journal, state.root.as_deref())?;
    let header = &journal.header;
    let (phase, words) = match journal.phase {
        Phase::Unchanged => ("unchanged", "begun, and nothing changed yet".to_owned()),
        Phase::Applying => ("applying", "in the midst of its steps".to_owned()),
        Phase::Applied(None) => ("applied", "applied".to_owned()),
        Phase::Applied(Some(by_ms)) => {
            let left_ms = by_ms.saturating_sub(tune::boot_clock_ms());
            ("waiting", format!("applied; {} s left to confirm", left_ms.div_ceil(1000)))
        }
        Phase::Confirmed => ("confirmed", "applied and confirmed".to_owned()),
        Phase::RollingBack => ("rolling-back", "being given back".to_owned()),
    };
    if cli.json {
        let doc = json!({
            "schema": model::SCHEMA, "phase": phase, "profile": header.profile,
            "interface": header.interface, "netns": header.netns, "pid": header.pid,
            "applied_unix_s": header.unix_s, "settings": settings,
        });
        return console::text(&format!("{doc:#}"));
    }
    let interface = header.interface.as_deref().unwrap_or("the machine");
    let mut text = format!("{} for {interface}: {words}\n", header.profile);
    for setting in &settings {
        let now = setting.now.as_ref().map_or("?", |now| now.as_str());
        let agrees = tune::find(&setting.knob)
            .is_some_and(|knob| knob.format().agrees(setting.wanted.as_str(), now));
        let note = match (agrees, setting.was_begun) {
            (true, _) => String::new(),
            (false, true) => format!("  (set to {}, changed since)", setting.wanted),
            (false, false) => format!("  (not reached; would be {})", setting.wanted),
        };
        let target = setting.target.to_string();
        let _ =
            writeln!(text, "  {:<22} {target:<24} {} -> {now}{note}", setting.knob, setting.before);
    }
    text.push_str("`wirepath tune rollback` gives it back");
    console::text(&text)
}

pub(super) fn knobs(cli: &Cli, state: &StateArgs, place: &PlaceArgs) -> Result<(), Failure> {
    let system = place.open(state)?;
    let mut text = String::new();
    let mut docs = Vec::new();
    for knob in tune::all() {
        let _ = writeln!(text, "{:<22} {}", knob.id(), knob.about().what);
        let format = knob.format().describe();
        let mut rows = Vec::new();
        let targets = tune::targets(knob, &system, place.interface.as_deref()).unwrap_or_default();
        for target in targets {
            let now = knob.read(&system, &target);
            let settable = now.is_ok().then(|| knob.probe(&system, &target));
            let why = match (&now, &settable) {
                (Err(error), _) | (_, Some(Err(error))) => Some(host::text::chain(error)),
                _ => None,
            };
            let value = now.ok();
            let shown = value.as_ref().map_or("-", |value| value.as_str());
            let note = why.as_ref().map_or(String::new(), |why| format!("  ({why})"));
            let _ = writeln!(text, "{:<22}   {target}: {shown}{note}", "");
            rows.push(json!({ "target": target, "value": value, "cannot_set": why }));
        }
        docs.push(json!({
            "knob": knob.id(), "what": knob.about().what, "scope": knob.scope(), "values": format,
            "disturbs_others": knob.disturbs(), "targets": rows,
        }));
    }
    if cli.json {
        let doc = json!({ "schema": model::SCHEMA, "knobs": docs });
        return console::text(&format!("{doc:#}"));
    }
    console::text(&text)
}
