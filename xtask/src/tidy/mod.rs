//! Habits of code that the compiler and clippy do not see, counted by package against a ledger.
//!
//! The numbers of the ledger only fall: more findings fail, and fewer fail until the ledger says so.

mod circles;
mod names;
mod places;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::sources::{self, Source};
use crate::tracked_files;

/// Allowed findings: rule, package, number. A rule and package without a line may have none.
const LEDGER: &str = ".ci/tidy.tsv";

/// Package of a finding that belongs to no package by itself.
const WHOLE_TREE: &str = "-";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    NamedClosure,
    PrepositionClosure,
    NestedClosure,
    BoolMatch,
    OfFunction,
    BareTiming,
    StringError,
    IsNo,
    EchoComment,
    ImportCircle,
    NameCollision,
    MissingPlace,
}

const RULES: [Rule; 12] = [
    Rule::NamedClosure,
    Rule::PrepositionClosure,
    Rule::NestedClosure,
    Rule::BoolMatch,
    Rule::OfFunction,
    Rule::BareTiming,
    Rule::StringError,
    Rule::IsNo,
    Rule::EchoComment,
    Rule::ImportCircle,
    Rule::NameCollision,
    Rule::MissingPlace,
];

impl Rule {
    fn name(self) -> &'static str {
        match self {
            Rule::NamedClosure => "named-closure",
            Rule::PrepositionClosure => "preposition-closure",
            Rule::NestedClosure => "nested-closure",
            Rule::BoolMatch => "bool-match",
            Rule::OfFunction => "of-function",
            Rule::BareTiming => "bare-timing",
            Rule::StringError => "string-error",
            Rule::IsNo => "is-no",
            Rule::EchoComment => "echo-comment",
            Rule::ImportCircle => "import-circle",
            Rule::NameCollision => "name-collision",
            Rule::MissingPlace => "missing-place",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Rule::NamedClosure => "inline it, or make it a function that is named for its result",
            Rule::PrepositionClosure => "name it for its result",
            Rule::NestedClosure => "a closure with a name contains no other; make it a function",
            Rule::BoolMatch => "use if and else",
            Rule::OfFunction => "name it for its result by a noun",
            Rule::BareTiming => "end the name with INTERVAL, TIMEOUT, LIMIT or another noun",
            Rule::StringError => "return an error type",
            Rule::IsNo => "write \"is not a valid …\" and the remedy",
            Rule::EchoComment => "delete a comment that repeats the name, or say more",
            Rule::ImportCircle => "move the shared item to a file of its own",
            Rule::NameCollision => "put a noun in front that says which one it is",
            Rule::MissingPlace => "no tracked file or folder has this name",
        }
    }
}

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    rule: Rule,
    package: String,
    file: PathBuf,
    line: usize,
    /// The name or text that was found.
    text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, rule) = (self.file.display(), self.rule);
        write!(f, "{file}:{}: {}: {}: {}", self.line, rule.name(), self.text, rule.advice())
    }
}

/// Numbers of findings by rule and package.
type Counts = BTreeMap<(String, String), usize>;

/// Prints the counts, and fails with each finding of a rule and package that has more than allowed.
pub(crate) fn check(root: &Path) -> Result<()> {
    let findings = findings(root)?;
    print_table(&findings);
    let allowed = read_ledger(root)?;
    let counts = counts(&findings);
    let over = differing(&counts, &allowed, |count, limit| count > limit);
    for finding in findings.iter().filter(|finding| over.contains(&ledger_key(finding))) {
        println!("{finding}");
    }
    if !over.is_empty() {
        bail!("more findings than {LEDGER} allows: {}", list(&over, &counts, &allowed));
    }
    let under = differing(&counts, &allowed, |count, limit| count < limit);
    if !under.is_empty() {
        bail!(
            "fewer findings than {LEDGER} allows: {}; lower the ledger: cargo xtask tidy --write",
            list(&under, &counts, &allowed)
        );
    }
    Ok(())
}

/// Prints each finding in a file whose name begins with `prefix`.
pub(crate) fn print_findings(root: &Path, prefix: &str) -> Result<()> {
    for finding in findings(root)? {
        if finding.file.to_string_lossy().starts_with(prefix) {
            println!("{finding}");
        }
    }
    Ok(())
}

/// Lowers each number of the ledger to the present one; without a ledger, makes one. A missing place is never allowed.
pub(crate) fn write(root: &Path) -> Result<()> {
    let mut findings = findings(root)?;
    findings.retain(|finding| finding.rule != Rule::MissingPlace);
    let counts = counts(&findings);
    let allowed = if root.join(LEDGER).exists() { read_ledger(root)? } else { counts.clone() };
    fs::write(root.join(LEDGER), lowered(&counts, &allowed))
        .with_context(|| format!("writing {LEDGER}"))
}

fn lowered(counts: &Counts, allowed: &Counts) -> String {
    let mut text = String::new();
    for (key, limit) in allowed {
        let count = number(counts, key).min(*limit);
        if count > 0 {
            text.push_str(&format!("{}\t{}\t{count}\n", key.0, key.1));
        }
    }
    text
}

fn findings(root: &Path) -> Result<Vec<Finding>> {
    let files = tracked_files(root)?;
    let mut findings = find_in_sources(&sources::read(root, &files, &["rs"])?)?;
    findings.extend(places::missing(root, &files)?);
    findings.sort();
    Ok(findings)
}

fn find_in_sources(sources: &[Source]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut types = names::Types::default();
    let mut crates = circles::Sources::new();
    for source in sources {
        let file = source.file.display();
        let stream = source.text.parse().map_err(|e| anyhow::anyhow!("{file}: {e}"))?;
        findings.extend(tokens::find(source, &stream));
        types.add(source, &stream);
        crates.insert(&source.file, (source, stream));
    }
    findings.extend(types.collisions());
    findings.extend(circles::find(&crates));
    Ok(findings)
}

fn ledger_key(finding: &Finding) -> (String, String) {
    (finding.rule.name().to_owned(), finding.package.clone())
}

fn counts(findings: &[Finding]) -> Counts {
    let mut counts = Counts::new();
    for finding in findings {
        *counts.entry(ledger_key(finding)).or_default() += 1;
    }
    counts
}

fn number(counts: &Counts, key: &(String, String)) -> usize {
    counts.get(key).copied().unwrap_or_default()
}

/// Rules and packages whose number of findings `differs` from the allowed one.
fn differing(
    counts: &Counts,
    allowed: &Counts,
    differs: impl Fn(usize, usize) -> bool,
) -> BTreeSet<(String, String)> {
    let keys = counts.keys().chain(allowed.keys());
    keys.filter(|key| differs(number(counts, key), number(allowed, key))).cloned().collect()
}

fn list(keys: &BTreeSet<(String, String)>, counts: &Counts, allowed: &Counts) -> String {
    let entries = keys.iter().map(|key| {
        format!("{} in {}: {}, not {}", key.0, key.1, number(counts, key), number(allowed, key))
    });
    entries.collect::<Vec<_>>().join("; ")
}

fn print_table(findings: &[Finding]) {
    let mut rows: BTreeMap<&str, BTreeMap<Rule, usize>> = BTreeMap::new();
    let mut total: BTreeMap<Rule, usize> = BTreeMap::new();
    for finding in findings {
        *rows.entry(&finding.package).or_default().entry(finding.rule).or_default() += 1;
        *total.entry(finding.rule).or_default() += 1;
    }
    let names = RULES.map(|rule| rule.name().split_once('-').unwrap_or_default());
    println!("{:<20}{}", "", names.map(|(first, _)| format!("{first:>12}")).concat());
    println!("{:<20}{}", "", names.map(|(_, second)| format!("{second:>12}")).concat());
    for (package, row) in rows.into_iter().chain([("total", total)]) {
        let cells = RULES.map(|rule| row.get(&rule).map_or(String::new(), usize::to_string));
        println!("{package:<20}{}", cells.map(|cell| format!("{cell:>12}")).concat());
    }
}

fn read_ledger(root: &Path) -> Result<Counts> {
    let text = fs::read_to_string(root.join(LEDGER)).with_context(|| {
        format!("cannot read {LEDGER}; cargo xtask tidy --write makes a new one")
    })?;
    parse_ledger(&text)
}

fn parse_ledger(text: &str) -> Result<Counts> {
    let mut allowed = Counts::new();
    for (index, line) in text.lines().enumerate() {
        let [rule, package, count] = line.split('\t').collect::<Vec<_>>()[..] else {
            bail!("{LEDGER}:{}: {line:?} is not \"rule<TAB>package<TAB>number\"", index + 1);
        };
        if !RULES.iter().any(|known| known.name() == rule) {
            bail!("{LEDGER}:{}: {rule:?} is not the name of a rule", index + 1);
        }
        let count = count
            .parse()
            .with_context(|| format!("{LEDGER}:{}: {count:?} is not a number", index + 1))?;
        allowed.insert((rule.to_owned(), package.to_owned()), count);
    }
    Ok(allowed)
}

#[cfg(test)]
mod tests;
