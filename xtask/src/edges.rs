//! Dependencies between the crates of the workspace.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Crates of the workspace, without the prefix `wirepath-`, each with those that it may depend on.
///
/// Only normal dependencies are checked: tests may use any crate.
const ALLOWED: &[(&str, &str)] = &[
    ("model", ""),
    ("wire", ""),
    ("market", "wire"),
    ("bpf-build", ""),
    ("sys", ""),
    ("io", "sys wire"),
    ("host", "sys"),
    ("lab", "model sys io host"),
    ("remote", "model sys io host lab"),
    ("testkit", "model sys io host lab"),
    ("tunnel-bpf", "sys"),
    ("forward", "model sys wire io host report tunnel-bpf"),
    ("vmm", "sys wire io host"),
    ("marketdata", "model sys wire market io host report"),
    ("report", "model"),
    ("fleet", "model remote"),
    ("probe", PATH),
    ("feed", "model sys wire market io host lab remote report marketdata"),
    ("tunnel", "model sys wire market io host lab report forward"),
    ("vmnic", "model sys wire market io host lab report vmm"),
    ("guest", PATH),
    ("command", PATH),
    ("runner", "model sys host lab remote report command probe"),
    (
        "wirepath",
        "model wire market sys io host lab remote runner forward vmm marketdata probe feed tunnel vmnic guest \
         command report fleet",
    ),
    ("xtask", ""),
];

const PATH: &str = "model sys wire market io host lab remote report";

/// Asynchronous crates, which `fleet` alone may use: no such code runs in a measuring process.
const ASYNCHRONOUS: &[&str] = &[
    "async-nats",
    "async-std",
    "futures-util",
    "postgres",
    "smol",
    "tokio",
    "tokio-postgres",
    "tokio-postgres-rustls",
];

/// Returns the dependencies that are not allowed, each as a sentence.
///
/// - `metadata`: output of `cargo metadata --no-deps`.
///
/// Errors: metadata of another shape, so that a change of the format does not pass.
pub(crate) fn violations(metadata: &Value) -> Result<Vec<String>> {
    let packages = array(metadata, "packages")?;
    if packages.is_empty() {
        bail!("cargo metadata lists no packages");
    }
    let ours = packages.iter().map(name).collect::<Result<Vec<_>>>()?;
    let mut violations = Vec::new();
    for (package, name_of_crate) in packages.iter().zip(&ours) {
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| known == name_of_crate) else {
            violations.push(format!(
                "crate {name_of_crate}: not listed in xtask/src/edges.rs; add it there with the \
                 crates it may depend on"
            ));
            continue;
        };
        for dependency in array(package, "dependencies")? {
            let to = name(dependency)?;
            let is_normal = dependency.get("kind").is_none_or(Value::is_null);
            if is_normal && ASYNCHRONOUS.contains(&to) && *name_of_crate != "fleet" {
                violations.push(format!(
                    "crate {name_of_crate}: depends on {to}; asynchronous code is allowed in fleet alone"
                ));
            }
            let is_allowed = !ours.contains(&to) || allowed.split(' ').any(|known| known == to);
            if is_normal && !is_allowed {
                violations.push(format!(
                    "crate {name_of_crate}: depends on {to}; allowed: {}",
                    if allowed.is_empty() { "none" } else { allowed }
                ));
            }
        }
    }
    Ok(violations)
}

fn array<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value[key].as_array().with_context(|| format!("cargo metadata has no list {key:?}"))
}

/// Name of a package or dependency, without the prefix.
fn name(value: &Value) -> Result<&str> {
    let name = value["name"].as_str().context("cargo metadata has no text \"name\"")?;
    Ok(name.strip_prefix("wirepath-").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Value {
        let dependencies: Vec<Value> =
            dependencies.iter().map(|(name, kind)| json!({ "name": name, "kind": kind })).collect();
        json!({ "name": name, "dependencies": dependencies })
    }

    fn violations(packages: &[Value]) -> Vec<String> {
        super::violations(&json!({ "packages": packages })).expect("well-formed metadata")
    }

    #[test]
    fn allowed_dependencies_pass() {
        let sys = package("wirepath-sys", &[("libc", None)]);
        let wire = package("wirepath-wire", &[]);
        let io = package("wirepath-io", &[("wirepath-sys", None), ("wirepath-wire", None)]);
        assert_eq!(violations(&[sys, wire, io]), [""; 0]);
    }

    #[test]
    fn forbidden_dependency_is_named_with_the_allowed_ones() {
        let sys = package("wirepath-sys", &[("wirepath-io", None)]);
        let io = package("wirepath-io", &[]);
        let report = package("wirepath-report", &[("wirepath-sys", None)]);
        assert_eq!(
            violations(&[sys, io, report]),
            [
                "crate sys: depends on io; allowed: none",
                "crate report: depends on sys; allowed: model",
            ]
        );
    }

    #[test]
    fn tests_may_depend_on_any_crate() {
        let sys = package("wirepath-sys", &[("wirepath-io", Some("dev"))]);
        assert_eq!(violations(&[sys, package("wirepath-io", &[])]), [""; 0]);
    }

    #[test]
    fn asynchronous_code_is_in_fleet_alone() {
        let fleet = package("wirepath-fleet", &[("tokio", None)]);
        let lab = package("wirepath-lab", &[("tokio", None), ("postgres", Some("dev"))]);
        assert_eq!(
            violations(&[fleet, lab]),
            ["crate lab: depends on tokio; asynchronous code is allowed in fleet alone"]
        );
    }

    #[test]
    fn unlisted_crate_is_a_violation() {
        let found = violations(&[package("wirepath-extra", &[])]);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("extra: not listed"), "{found:?}");
    }

    /// Crates without code that runs for each packet: profile `quick` need not optimise them.
    const NO_PACKETS: &[&str] = &[
        "model",
        "host",
        "lab",
        "remote",
        "testkit",
        "report",
        "fleet",
        "command",
        "wirepath",
        "runner",
        "xtask",
        "bpf-build",
    ];

    #[test]
    fn profile_quick_optimises_every_crate_that_moves_packets() {
        let manifest = include_str!("../../Cargo.toml");
        for (name, _) in super::ALLOWED {
            let line = format!("[profile.quick.package.wirepath-{name}]\nopt-level = 3\n");
            assert_ne!(manifest.contains(&line), NO_PACKETS.contains(name), "{name}");
        }
    }

    #[test]
    fn metadata_of_another_shape_is_an_error() {
        assert!(super::violations(&json!({})).is_err());
        assert!(super::violations(&json!({ "packages": [] })).is_err());
        assert!(super::violations(&json!({ "packages": [{ "name": "xtask" }] })).is_err());
    }
}
