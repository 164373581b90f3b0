//! Description of a path in its greeting, checked before anything of it is used.

use std::collections::{BTreeMap, BTreeSet};

use host::text::printable;
use model::{ARM_WORDS, Path, Shape, SwitchScope};
use serde::{Deserialize, Serialize};

use super::{PATH_CONTRACT, RuleError};

/// Longest greeting of a path, bytes.
pub const PATH_GREETING_BYTES_MAX: usize = 64 << 10;
const NAME_LEN_MAX: usize = 40;
const METRIC_LEN_MAX: usize = 80;
/// Longest text that is shown, characters.
const TEXT_LEN_MAX: usize = 400;
const SWITCHES_MAX: usize = 64;
const LOADS_MAX: usize = 16;
const JUDGED_MAX: usize = 16;
const METRICS_MAX: usize = 64;
const NEEDS_MAX: usize = 16;
const PEERS_MAX: usize = 16;
const TRIAL_NS_MAX: u64 = 3600 * 1_000_000_000;

/// A path as its program describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathDescription {
    /// [`PATH_CONTRACT`].
    pub contract: u32,
    pub name: String,
    /// The path in one sentence.
    pub what: String,
    /// In the order of the ladder.
    #[serde(default)]
    pub switches: Vec<SwitchDescription>,
    /// The first is the default.
    pub loads: Vec<LoadDescription>,
    /// Units and directions of metrics whose names state none.
    #[serde(default)]
    pub metrics: BTreeMap<String, Shape>,
    /// Requirements: root, a program, an interface.
    #[serde(default)]
    pub needs: Vec<String>,
    /// True if the program can also be the far end of a run between two hosts.
    #[serde(default)]
    pub has_far_end: bool,
}

/// A switch; see [`model::SwitchSpec`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchDescription {
    pub id: String,
    pub effect: String,
    #[serde(default = "scope_by_default")]
    pub scope: SwitchScope,
    #[serde(default)]
    pub needs: String,
    #[serde(default)]
    pub source: String,
}

fn scope_by_default() -> SwitchScope {
    SwitchScope::Process
}

/// A load; see [`model::LoadKind`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadDescription {
    pub name: String,
    pub what: String,
    /// Metrics of the verdict, most important first.
    pub judged: Vec<String>,
    #[serde(default)]
    pub size_bytes: usize,
    #[serde(default)]
    pub rate_pps: u64,
    /// Length of the measured part of a trial unless `--trial` gives one.
    #[serde(default = "trial_ns_by_default")]
    pub trial_ns: u64,
    #[serde(default)]
    pub peers: Vec<String>,
}

fn trial_ns_by_default() -> u64 {
    200_000_000
}

impl PathDescription {
    /// Description of a path of this program.
    pub fn describe(path: &dyn Path) -> Self {
        let switches = path.switches().iter().map(|switch| SwitchDescription {
            id: switch.id.to_owned(),
            effect: switch.effect.to_owned(),
            scope: switch.scope,
            needs: switch.needs.to_owned(),
            source: switch.source.to_owned(),
        });
        let loads = path.loads().iter().map(|load| LoadDescription {
            name: load.name.to_owned(),
            what: load.what.to_owned(),
            judged: load.judged.iter().map(|&name| name.to_owned()).collect(),
            size_bytes: load.size_bytes,
            rate_pps: load.rate_pps,
            trial_ns: load.trial.as_nanos().try_into().unwrap_or(u64::MAX),
            peers: load.peers.iter().map(|&name| name.to_owned()).collect(),
        });
        PathDescription {
            contract: PATH_CONTRACT,
            name: path.name().to_owned(),
            what: path.what().to_owned(),
            switches: switches.collect(),
            loads: loads.collect(),
            metrics: BTreeMap::new(),
            needs: Vec::new(),
            has_far_end: false,
        }
    }

    /// Reads the description in the greeting of a program that was started for the path `name`. Its texts are safe to
    /// print.
    ///
    /// Errors: it has another version of the contract, or breaks a rule of it.
    pub fn read(greeting: &str, name: &str) -> Result<Self, RuleError> {
        if greeting.len() > PATH_GREETING_BYTES_MAX {
            return Err(
                format!("its greeting is longer than {PATH_GREETING_BYTES_MAX} bytes").into()
            );
        }
        let mut greeting: serde_json::Value =
            serde_json::from_str(greeting).map_err(|error| error.to_string())?;
        let path = greeting.get_mut("path").map(serde_json::Value::take).unwrap_or_default();
        // Another version may have other fields.
        let Some(contract) = path["contract"].as_u64() else {
            let why = "its greeting describes no path: `path` with `contract`, `name`, `what` and `loads` is missing";
            return Err(why.to_owned().into());
        };
        if contract != u64::from(PATH_CONTRACT) {
            let why = format!(
                "it has version {contract} of the path contract, and this program version {PATH_CONTRACT}"
            );
            return Err(why.into());
        }
        let read: PathDescription = serde_json::from_value(path)
            .map_err(|error| printable(&format!("its description: {error}"), TEXT_LEN_MAX))?;
        read.check(name)?;
        Ok(read.printable())
    }

    fn check(&self, name: &str) -> Result<(), RuleError> {
        let PathDescription { contract: _, name: own, what: _, switches, loads, .. } = self;
        if own != name {
            let own = printable(own, NAME_LEN_MAX);
            return Err(format!("it describes path {own:?} in place of {name}").into());
        }
        check_count("switches", switches.len(), 0, SWITCHES_MAX)?;
        check_count("loads", loads.len(), 1, LOADS_MAX)?;
        check_count("metrics", self.metrics.len(), 0, METRICS_MAX)?;
        check_count("needs", self.needs.len(), 0, NEEDS_MAX)?;
        check_names("switch", switches.iter().map(|switch| &switch.id))?;
        check_names("load", loads.iter().map(|load| &load.name))?;
        if let Some(id) = switches.iter().map(|switch| switch.id.as_str()).find(is_reserved) {
            let why = format!("a switch cannot be named {id}: `--arms {id}` means something else");
            return Err(why.into());
        }
        for load in loads {
            check_count("judged metrics", load.judged.len(), 1, JUDGED_MAX)?;
            load.judged.iter().try_for_each(|name| check_metric(name))?;
            check_count("peers", load.peers.len(), 0, PEERS_MAX)?;
            check_names("peer", load.peers.iter())?;
            if !(1..=TRIAL_NS_MAX).contains(&load.trial_ns) {
                return Err(format!("load {} has trials of {} ns", load.name, load.trial_ns).into());
            }
        }
        self.metrics.keys().try_for_each(|name| check_metric(name))
    }

    fn printable(mut self) -> Self {
        let shapes = self.metrics.values_mut().map(|shape| &mut shape.unit);
        let switches = self
            .switches
            .iter_mut()
            .flat_map(|switch| [&mut switch.effect, &mut switch.needs, &mut switch.source]);
        let loads = self.loads.iter_mut().map(|load| &mut load.what);
        let texts = switches.chain(loads).chain(shapes).chain(&mut self.needs);
        for text in texts.chain([&mut self.what]) {
            *text = printable(text, TEXT_LEN_MAX);
        }
        self
    }
}

/// True for a word that `--arms` has for something else.
fn is_reserved(id: &&str) -> bool {
    *id == "baseline" || ARM_WORDS.contains(id)
}

fn check_count(what: &str, count: usize, least: usize, most: usize) -> Result<(), String> {
    if (least..=most).contains(&count) {
        return Ok(());
    }
    Err(format!("it has {count} {what}; {least} to {most} are allowed"))
}

/// Errors: a name is not valid, or there twice.
fn check_names<'a>(what: &str, names: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !is_path_name(name) {
            let name = printable(name, NAME_LEN_MAX);
            return Err(format!(
                "{name:?} is not a valid name of a {what}: use a-z, 0-9 and -, {NAME_LEN_MAX} at most"
            ));
        }
        if !seen.insert(name) {
            return Err(format!("it has two of {what} {name}"));
        }
    }
    Ok(())
}

/// True for a name of a path, a switch or a load: lower-case letters, digits and dashes, a letter first.
pub fn is_path_name(name: &str) -> bool {
    name.len() <= NAME_LEN_MAX
        && name.starts_with(|letter: char| letter.is_ascii_lowercase())
        && name.bytes().all(|letter| matches!(letter, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

/// Errors: it is not a valid name of a metric, a counter or a segment.
pub(super) fn check_metric(name: &str) -> Result<(), RuleError> {
    let is_valid = name.len() <= METRIC_LEN_MAX
        && name.starts_with(|letter: char| letter.is_ascii_lowercase())
        && name.bytes().all(|letter| matches!(letter, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    if is_valid {
        return Ok(());
    }
    let name = printable(name, METRIC_LEN_MAX);
    let why = format!(
        "{name:?} is not a valid name of a metric: use a-z, 0-9 and _, {METRIC_LEN_MAX} at most"
    );
    Err(why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(path: &str) -> String {
        format!(r#"{{"wirepath":"1","exchange":1,"service":"path","path":{path}}}"#)
    }

    fn refused(path: &str) -> String {
        PathDescription::read(&greeting(path), "echo").expect_err(path).to_string()
    }

    const LOADS: &str = r#""loads":[{"name":"ping","what":"b","judged":["rtt_ns_p50"]}]"#;

    /// The shortest description, with more fields.
    fn with(more: &str) -> String {
        format!(r#"{{"contract":1,"name":"echo","what":"a",{LOADS}{more}}}"#)
    }

    fn switch(id: &str) -> String {
        format!(r#","switches":[{{"id":"{id}","effect":""}}]"#)
    }

    #[test]
    fn shortest_description_has_defaults() {
        let read = PathDescription::read(&greeting(&with("")), "echo").unwrap();
        assert_eq!((read.switches.len(), read.has_far_end), (0, false));
        assert_eq!((read.loads[0].trial_ns, read.loads[0].rate_pps), (200_000_000, 0));
        let spin = r#","switches":[{"id":"spin","effect":"e\u001b[31m"}]"#;
        let read = PathDescription::read(&greeting(&with(spin)), "echo").unwrap();
        assert_eq!(read.switches[0].effect, "e[31m");
        assert_eq!(read.switches[0].scope, SwitchScope::Process);
    }

    #[test]
    fn a_greeting_of_another_shape_is_refused() {
        for greeting in ["[]", "7", "null", "\"path\"", "{}", r#"{"path":[1]}"#] {
            let said = PathDescription::read(greeting, "echo").expect_err(greeting).to_string();
            assert!(said.contains("describes no path"), "{greeting}: {said}");
        }
    }

    #[test]
    fn other_versions_are_refused_with_both_named_whatever_else_they_have() {
        let said = refused(r#"{"contract":7,"future":[]}"#);
        assert!(said.contains("version 7") && said.contains("version 1"), "{said}");
    }

    #[test]
    fn hostile_descriptions_are_refused_with_the_reason() {
        let many: Vec<String> =
            (0..65).map(|n| format!(r#"{{"id":"s{n}","effect":""}}"#)).collect();
        for (path, expected) in [
            ("7".to_owned(), "describes no path"),
            (r#"{"contract":1}"#.into(), "missing field"),
            (with(r#","more":1"#), "unknown field"),
            (with(&switch("../x")), "not a valid name of a switch"),
            (with(&switch("Spin")), "not a valid name of a switch"),
            (with(&switch("")), "not a valid name of a switch"),
            (with(&switch("ladder")), "means something else"),
            (with(&switch(&"x".repeat(41))), "not a valid name of a switch"),
            (with(&format!(r#","switches":[{}]"#, many.join(","))), "65 switches"),
            (with(r#","metrics":{"a b":{"unit":"ns","better":"lower"}}"#), "not a valid name"),
            (with("").replace("\"echo\"", "\"other\""), "in place of echo"),
            (with("").replace("rtt_ns_p50", "x;y"), "not a valid name of a metric"),
            (with("").replace(LOADS, "\"loads\":[]"), "0 loads"),
            (with("").replace("\"judged\"", "\"trial_ns\":0,\"judged\""), "trials of 0 ns"),
            (with(&format!(r#","needs":["{}"]"#, "x".repeat(70_000))), "longer than 65536"),
        ] {
            let said = refused(&path);
            assert!(said.contains(expected), "{expected}: {said}");
            assert!(!said.contains('\u{1b}') && said.len() < 1000, "{said}");
        }
        let twice = r#","switches":[{"id":"a","effect":""},{"id":"a","effect":""}]"#;
        assert!(refused(&with(twice)).contains("two of switch a"));
    }
}
