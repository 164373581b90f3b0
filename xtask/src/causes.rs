//! The table of causes: each is planted by a test, and its row is what the doctor said.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::release;

/// Page that is written, below the root of the workspace.
const PAGE: &str = "docs/evidence/causes.md";
/// Page that lists the library.
const LIBRARY: &str = "docs/causes.md";
/// Longest sentence of a row, characters.
const SENTENCE_LEN_MAX: usize = 160;

/// Fields of a row that a test writes, separated by tabs.
struct Row<'a> {
    planted: &'a str,
    reader: &'a str,
    severity: &'a str,
    twin: &'a str,
    sentence: &'a str,
}

impl<'a> Row<'a> {
    fn parse(line: &'a str) -> Option<(&'a str, Self)> {
        let mut fields = line.split('\t');
        let mut next = || fields.next();
        let cause = next()?;
        let row = Row {
            planted: next()?,
            reader: next()?,
            severity: next()?,
            twin: next()?,
            sentence: next()?,
        };
        Some((cause, row))
    }
}

/// Plants every cause in namespaces of its own, as root, and writes the table.
///
/// Errors: a cause was not named, or its twin was not silent.
pub(crate) fn write_table(root: &Path) -> Result<()> {
    let file = release::target_folder(root).join("causes.tsv");
    // The tests append to it.
    fs::write(&file, "").with_context(|| format!("cannot write {}", file.display()))?;
    let status = Command::new("cargo")
        .current_dir(root)
        .args(["test", "--package", "wirepath-host", "--test", "causes"])
        .env("WIREPATH_CAUSES_TABLE", &file)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("a planted cause was not named, or a twin was not silent; {PAGE} is as it was");
    }
    let text = fs::read_to_string(&file)?;
    let library = fs::read_to_string(root.join(LIBRARY))?;
    let page = page(&text, &library);
    fs::write(root.join(PAGE), &page)?;
    println!("{page}");
    Ok(())
}

fn page(rows: &str, library: &str) -> String {
    let mut by_cause: BTreeMap<&str, Vec<Row<'_>>> = BTreeMap::new();
    for (cause, row) in rows.lines().filter_map(Row::parse) {
        by_cause.entry(cause).or_default().push(row);
    }
    let ids: Vec<&str> = library.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let planted_count = ids.iter().filter(|id| by_cause.contains_key(*id)).count();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut page = format!(
        "# Evidence: causes that were planted\n\n\
         Each cause of [the library](../causes.md) was planted in network namespaces, with traffic, and the reader had to name it with its \
         evidence; the same scene without the fault had to be silent about it, and to raise no other alarm above *low*. Written by \
         `cargo xtask causes` on Linux {}: {planted_count} of {} causes. The others need a card, a kernel or a setting that namespaces \
         do not have: their checks are tested with constructed evidence, both ways.\n\n\
         | cause | planted | named by | severity | twin | as it was said |\n|---|---|---|---|---|---|\n",
        kernel.trim(),
        ids.len()
    );
    for id in ids {
        let Some(rows) = by_cause.get(id) else {
            let _ = writeln!(page, "| [{id}](../causes.md#{id}) | not here | – | – | – | |");
            continue;
        };
        for row in rows {
            let sentence: String = row.sentence.chars().take(SENTENCE_LEN_MAX).collect();
            let _ = writeln!(
                page,
                "| [{id}](../causes.md#{id}) | {} | {} | {} | {} | {} |",
                row.planted,
                row.reader,
                row.severity,
                row.twin,
                sentence.replace('|', "\\|")
            );
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_with_and_without_a_row_are_listed_in_the_order_of_the_library() {
        let rows = "b\tby hand\tdoctor\thigh\tsilent\ta | sentence\nbroken line\n";
        let page = page(rows, "## Group\n\n### a\n\n### b\n");
        assert!(page.contains("1 of 2 causes"), "{page}");
        let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("| [")).collect();
        assert!(lines[0].contains("not here"), "{page}");
        let said = "| by hand | doctor | high | silent | a \\| sentence |";
        assert!(lines[1].ends_with(said), "{page}");
    }
}
