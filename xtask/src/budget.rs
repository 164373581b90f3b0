//! Product lines of each package beside its ceiling, which only a change of the ledger raises.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::{sources, tracked_files};

/// Ceilings: package, lines, and for a raise the user that it is for.
const LEDGER: &str = ".ci/budget.tsv";

/// Languages of the product. Shell counts where it is a file of its own.
const EXTENSIONS: [&str; 9] = ["rs", "c", "h", "S", "ld", "py", "lua", "sh", "sql"];

/// The ceiling of one package.
#[derive(Debug, PartialEq)]
struct Ceiling {
    line_count: usize,
    reason: String,
}

/// Prints the product lines of each package. Errors if one has more than its ceiling.
pub(crate) fn check(root: &Path) -> Result<()> {
    let ceilings = read_ledger(root)?;
    let counts = line_counts(root)?;
    let mut over = Vec::new();
    println!("{:<26} {:>8} {:>8}", "package", "lines", "ceiling");
    for (package, &count) in &counts {
        let ceiling = ceilings.get(package).map_or(0, |ceiling| ceiling.line_count);
        println!("{package:<26} {count:>8} {ceiling:>8}");
        if count > ceiling {
            over.push(package.as_str());
        }
    }
    println!("{:<26} {:>8}", "total", counts.values().sum::<usize>());
    if !over.is_empty() {
        bail!(
            "more product lines than allowed in {}; delete some, or raise the ceiling in {LEDGER} \
             and name the user that needs the lines in its third column",
            over.join(", ")
        );
    }
    Ok(())
}

/// Lowers each ceiling to the present number of lines; without a ledger, makes one.
pub(crate) fn write(root: &Path) -> Result<()> {
    let counts = line_counts(root)?;
    let ceilings = if root.join(LEDGER).exists() { read_ledger(root)? } else { new(&counts) };
    fs::write(root.join(LEDGER), lowered(&counts, &ceilings))
        .with_context(|| format!("writing {LEDGER}"))
}

/// Ceilings at the present lines.
fn new(counts: &BTreeMap<String, usize>) -> BTreeMap<String, Ceiling> {
    let ceilings = counts.iter().map(|(package, &line_count)| {
        (package.clone(), Ceiling { line_count, reason: String::new() })
    });
    ceilings.collect()
}

fn lowered(counts: &BTreeMap<String, usize>, ceilings: &BTreeMap<String, Ceiling>) -> String {
    let mut text = String::new();
    for (package, &count) in counts {
        let ceiling = ceilings.get(package);
        let allowed = ceiling.map_or(0, |ceiling| ceiling.line_count);
        let reason = ceiling.map_or("", |ceiling| &ceiling.reason);
        let line = format!("{package}\t{}\t{reason}", count.min(allowed));
        writeln!(text, "{}", line.trim_end()).expect("a string can always grow");
    }
    text
}

/// Product lines by package.
fn line_counts(root: &Path) -> Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    for source in sources::read(root, &tracked_files(root)?, &EXTENSIONS)? {
        *counts.entry(source.package.clone()).or_default() += source.product_line_count();
    }
    counts.retain(|_, count| *count > 0);
    Ok(counts)
}

fn read_ledger(root: &Path) -> Result<BTreeMap<String, Ceiling>> {
    let text = fs::read_to_string(root.join(LEDGER)).with_context(|| {
        format!("cannot read {LEDGER}; cargo xtask budget --write makes a new one")
    })?;
    parse_ledger(&text)
}

fn parse_ledger(text: &str) -> Result<BTreeMap<String, Ceiling>> {
    let mut ceilings = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let mut columns = line.split('\t');
        let package = columns.next().unwrap_or_default();
        let line_count =
            columns.next().and_then(|count| count.parse().ok()).with_context(|| {
                format!("{LEDGER}:{}: {line:?} is not \"package<TAB>lines<TAB>reason\"", index + 1)
            })?;
        let reason = columns.next().unwrap_or_default().to_owned();
        ceilings.insert(package.to_owned(), Ceiling { line_count, reason });
    }
    Ok(ceilings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(lines: &[(&str, usize)]) -> BTreeMap<String, usize> {
        lines.iter().map(|&(package, count)| (package.to_owned(), count)).collect()
    }

    #[test]
    fn ceilings_fall_but_never_rise_by_themselves() {
        let ledger = parse_ledger("a\t10\tfor feed users\nb\t10\ngone\t5\n").unwrap();
        let text = lowered(&counts(&[("a", 4), ("b", 12), ("new", 3)]), &ledger);
        assert_eq!(text, "a\t4\tfor feed users\nb\t10\nnew\t0\n");
    }

    #[test]
    fn a_new_ledger_allows_the_present_lines() {
        let counts = counts(&[("a", 4), ("b", 12)]);
        assert_eq!(lowered(&counts, &new(&counts)), "a\t4\nb\t12\n");
        assert_eq!(lowered(&counts, &BTreeMap::new()), "a\t0\nb\t0\n", "an empty ledger");
    }

    #[test]
    fn a_line_without_a_number_is_refused_with_its_place() {
        let error = parse_ledger("a\t1\nb\tmany\n").unwrap_err().to_string();
        assert!(error.starts_with(".ci/budget.tsv:2: "), "{error}");
    }
}
