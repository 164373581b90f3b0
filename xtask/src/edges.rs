//! Which crate may depend on which.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Our crates by package name, each with those of ours that it may depend on.
///
/// Only normal dependencies are held to it: tests may use what they like.
const ALLOWED: &[(&str, &[&str])] = &[
    ("wirepath-model", &[]),
    ("wirepath-wire", &[]),
    ("wirepath-sys", &[]),
    ("wirepath-io", &["wirepath-sys", "wirepath-wire"]),
    ("wirepath-host", &["wirepath-sys"]),
    ("wirepath-paths", &["wirepath-model", "wirepath-wire", "wirepath-io", "wirepath-host"]),
    ("wirepath-report", &["wirepath-model"]),
    (
        "wirepath",
        &[
            "wirepath-model",
            "wirepath-wire",
            "wirepath-sys",
            "wirepath-io",
            "wirepath-host",
            "wirepath-paths",
            "wirepath-report",
        ],
    ),
    ("xtask", &[]),
];

/// Dependencies that go the wrong way, each as a sentence.
///
/// - `metadata`: what `cargo metadata --no-deps` says.
/// - Fails when it is not of the shape expected, so that a change of format is no silent pass.
pub(crate) fn of_crates(metadata: &Value) -> Result<Vec<String>> {
    let packages = array(metadata, "packages")?;
    if packages.is_empty() {
        bail!("cargo metadata lists no packages");
    }
    let ours = packages.iter().map(|package| text(package, "name")).collect::<Result<Vec<_>>>()?;
    let mut violations = Vec::new();
    for (package, name) in packages.iter().zip(&ours) {
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| known == name) else {
            violations.push(format!(
                "crate {name}: not listed in xtask/src/edges.rs; add it there with the crates \
                 it may depend on"
            ));
            continue;
        };
        for dependency in array(package, "dependencies")? {
            let to = text(dependency, "name")?;
            let normal = dependency.get("kind").is_none_or(Value::is_null);
            if normal && ours.contains(&to) && !allowed.contains(&to) {
                let allowed = match allowed {
                    [] => "none of ours".to_owned(),
                    some => some.join(", "),
                };
                violations.push(format!("crate {name}: depends on {to}; allowed there: {allowed}"));
            }
        }
    }
    Ok(violations)
}

fn array<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value[key].as_array().with_context(|| format!("cargo metadata has no list {key:?}"))
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key].as_str().with_context(|| format!("cargo metadata has no text {key:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Value {
        let dependencies: Vec<Value> =
            dependencies.iter().map(|(name, kind)| json!({ "name": name, "kind": kind })).collect();
        json!({ "name": name, "dependencies": dependencies })
    }

    fn violations(packages: &[Value]) -> Vec<String> {
        of_crates(&json!({ "packages": packages })).expect("it is well-formed")
    }

    #[test]
    fn agreed_edges_pass() {
        let sys = package("wirepath-sys", &[("libc", None)]);
        let wire = package("wirepath-wire", &[]);
        let io = package("wirepath-io", &[("wirepath-sys", None), ("wirepath-wire", None)]);
        assert_eq!(violations(&[sys, wire, io]), [""; 0]);
    }

    #[test]
    fn edge_against_the_grain_is_named_with_what_is_allowed() {
        let sys = package("wirepath-sys", &[("wirepath-io", None)]);
        let io = package("wirepath-io", &[]);
        let report = package("wirepath-report", &[("wirepath-sys", None)]);
        assert_eq!(
            violations(&[sys, io, report]),
            [
                "crate wirepath-sys: depends on wirepath-io; allowed there: none of ours",
                "crate wirepath-report: depends on wirepath-sys; allowed there: wirepath-model",
            ]
        );
    }

    #[test]
    fn tests_may_depend_on_what_they_like() {
        let sys = package("wirepath-sys", &[("wirepath-io", Some("dev"))]);
        assert_eq!(violations(&[sys, package("wirepath-io", &[])]), [""; 0]);
    }

    #[test]
    fn crate_nobody_listed_is_a_violation() {
        let found = violations(&[package("wirepath-extra", &[])]);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("wirepath-extra: not listed"), "{found:?}");
    }

    #[test]
    fn metadata_of_another_shape_is_an_error_and_no_pass() {
        assert!(of_crates(&json!({})).is_err());
        assert!(of_crates(&json!({ "packages": [] })).is_err());
        assert!(of_crates(&json!({ "packages": [{ "name": "xtask" }] })).is_err());
    }
}
