//! docs/causes.md is the library of causes as a page: `UPDATE=1` writes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use wirepath_host::causes::{Cause, GROUPS, causes};

const INTRODUCTION: &str = "\
# Causes: why packets are lost, late, slow, reordered or refused

All causes that `wirepath doctor`, `explain`, `feed listen` and `prove` know, written from the library by
`UPDATE=1 cargo test -p wirepath-host --test causes_page`. Search it by symptom, by counter (as `nstat` prints it) or by drop reason (as
`wirepath explain` prints it): [counters](#by-counter), [drop reasons](#by-drop-reason).

*High*: packets or connections are being lost or refused now. *Medium*: a measured cost. *Low*: lost in the past, or a setting that could cost.
Which of them were planted and named: [evidence/causes.md](evidence/causes.md).
";

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n## Contents\n\n");
    for (group, causes) in GROUPS.iter().filter(|(_, causes)| !causes.is_empty()) {
        let links: Vec<String> =
            causes.iter().map(|cause| format!("[{0}](#{0})", cause.id)).collect();
        let _ = writeln!(page, "- **{group}**: {}", links.join(", "));
    }
    for (group, causes) in GROUPS.iter().filter(|(_, causes)| !causes.is_empty()) {
        let _ = writeln!(page, "\n## {group}");
        for cause in *causes {
            page.push_str(&section(cause));
        }
    }
    let mut counters: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for cause in causes() {
        cause.counters.iter().for_each(|name| counters.entry(name).or_default().push(cause.id));
        cause.reasons.iter().for_each(|name| reasons.entry(name).or_default().push(cause.id));
    }
    page.push_str(&index("By counter", "counter", &counters));
    page.push_str(&index("By drop reason", "`SKB_DROP_REASON_…`", &reasons));
    page
}

fn section(cause: &Cause) -> String {
    let mut text = format!("\n### {}\n\n**{}.**\n\n", cause.id, capitalised(cause.title));
    let rows = [
        ("Symptom", cause.symptom),
        ("Evidence", cause.evidence),
        ("Remedy", cause.remedy),
        ("Undo", cause.undo),
    ];
    for (label, row) in rows {
        let _ = writeln!(text, "- {label}: {row}");
    }
    let _ = writeln!(text, "- Sources: {}", cause.references.join("; "));
    text
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

fn index(title: &str, column: &str, rows: &BTreeMap<&str, Vec<&str>>) -> String {
    let mut text = format!("\n## {title}\n\n| {column} | causes |\n|---|---|\n");
    for (name, ids) in rows {
        let links: Vec<String> = ids.iter().map(|id| format!("[{id}](#{id})")).collect();
        let _ = writeln!(text, "| `{name}` | {} |", links.join(", "));
    }
    text
}

#[test]
fn page_of_causes_is_that_of_the_library() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/causes.md");
    let page = page();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(written == page, "docs/causes.md is not that of the library: run with UPDATE=1");
}
