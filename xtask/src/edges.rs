//! Dependencies between the crates of the workspace.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Crates of the core, without the prefix `wirepath-`, each with those that it may depend on.
///
/// Only normal dependencies are checked: tests may use any crate.
const CORE: &[(&str, &str)] = &[
    ("stats", ""),
    ("model", "stats"),
    ("wire", ""),
    ("bpf-build", ""),
    ("xdp", ""),
    ("sys", "xdp"),
    ("io", "xdp sys wire"),
    ("host", "sys"),
    ("lab", "model sys io host"),
    ("remote", "model xdp sys io host lab"),
    ("testkit", "model sys io host lab"),
    ("report", "model"),
    ("fleet", "model remote"),
    ("probe", PATH),
    ("command", PATH),
    ("live", "model sys host"),
    ("runner", "model sys host lab remote report command probe"),
    ("house", "model sys io host lab remote report runner"),
    (
        "wirepath",
        "model wire sys io host lab remote runner probe command live report fleet house feed-house tunnel-house vm-house \
         market marketdata",
    ),
    ("xtask", ""),
];

/// Crates of the core that a path may use.
const PATH: &str = "model xdp sys wire io host lab remote report";

/// A house: its folder, crates of the core that any crate of it may use, and its crates, each with those of the house
/// that it may depend on. No house names a crate of another.
struct House {
    folder: &'static str,
    core: &'static str,
    crates: &'static [(&'static str, &'static str)],
}

const HOUSES: &[House] = &[
    House {
        folder: "feed",
        core: "model sys wire io host lab remote report house",
        crates: &[
            ("market", ""),
            ("marketdata", "market"),
            ("feed", "market marketdata"),
            ("feed-house", "marketdata feed"),
        ],
    },
    House {
        folder: "tunnel",
        core: "model xdp sys wire io host lab remote report house",
        crates: &[
            ("tunnel-bpf", ""),
            ("forward", "tunnel-bpf"),
            ("tunnel", "forward"),
            ("tunnel-house", "forward tunnel"),
        ],
    },
    House {
        folder: "vm",
        core: "model sys wire io host lab remote report runner house",
        crates: &[
            ("guest-pages", ""),
            ("guest-images", ""),
            ("vmm", "guest-pages"),
            ("vmnic", "vmm guest-pages guest-images"),
            ("guest", "guest-images"),
            ("outside", ""),
            ("vm-prove", "outside"),
            ("vm-house", "guest vmnic vm-prove"),
        ],
    },
];

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
        let Some(allowed) = allowed(name_of_crate) else {
            violations.push(format!(
                "crate {name_of_crate}: not listed in xtask/src/edges.rs; add it there with the \
                 crates it may depend on"
            ));
            continue;
        };
        if let Some(outside) = outside_of_its_house(package, name_of_crate) {
            violations.push(outside);
        }
        for dependency in array(package, "dependencies")? {
            let to = name(dependency)?;
            let is_normal = dependency.get("kind").is_none_or(Value::is_null);
            if is_normal && ASYNCHRONOUS.contains(&to) && *name_of_crate != "fleet" {
                violations.push(format!(
                    "crate {name_of_crate}: depends on {to}; asynchronous code is allowed in fleet alone"
                ));
            }
            if is_normal && ours.contains(&to) && !allowed.contains(&to) {
                let allowed = if allowed.is_empty() { "none" } else { &allowed.join(" ") };
                violations
                    .push(format!("crate {name_of_crate}: depends on {to}; allowed: {allowed}"));
            }
        }
    }
    Ok(violations)
}

/// Crates that a crate may depend on; `None` for one that is not listed.
fn allowed(name: &str) -> Option<Vec<&'static str>> {
    if let Some((_, allowed)) = CORE.iter().find(|(known, _)| *known == name) {
        return Some(allowed.split_whitespace().collect());
    }
    let (house, own) = find_house(name)?;
    Some(house.core.split_whitespace().chain(own.split_whitespace()).collect())
}

/// The house of a crate, and the crates of the house that it may depend on.
fn find_house(name: &str) -> Option<(&'static House, &'static str)> {
    HOUSES.iter().find_map(|house| {
        let (_, own) = house.crates.iter().find(|(known, _)| *known == name)?;
        Some((house, *own))
    })
}

/// A sentence about a crate whose folder is not that of its house; `None` for one at its place.
fn outside_of_its_house(package: &Value, name: &str) -> Option<String> {
    let manifest = package["manifest_path"].as_str()?;
    let folder = find_house(name).map_or("crates", |(house, _)| house.folder);
    let is_inside = name == "xtask" || manifest.contains(&format!("/{folder}/"));
    (!is_inside).then(|| format!("crate {name}: {manifest} is not in {folder}/"))
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
                "crate sys: depends on io; allowed: xdp",
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
        "stats",
        "model",
        "bpf-build",
        "host",
        "remote",
        "testkit",
        "report",
        "fleet",
        "command",
        "wirepath",
        "runner",
        "house",
        "feed-house",
        "tunnel-house",
        "vm-house",
        "guest-pages",
        "guest-images",
        "outside",
        "live",
        "xtask",
    ];

    #[test]
    fn profile_quick_optimises_every_crate_that_moves_packets() {
        let manifest = include_str!("../../Cargo.toml");
        let houses = super::HOUSES.iter().flat_map(|house| house.crates);
        for (name, _) in super::CORE.iter().chain(houses) {
            let line = format!("[profile.quick.package.wirepath-{name}]\nopt-level = 3\n");
            assert_ne!(manifest.contains(&line), NO_PACKETS.contains(name), "{name}");
        }
    }

    #[test]
    fn no_house_uses_another_and_none_is_used_by_the_core() {
        let found = violations(&[
            package("wirepath-forward", &[]),
            package("wirepath-feed", &[("wirepath-forward", None)]),
            package("wirepath-lab", &[("wirepath-forward", None)]),
        ]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("crate feed: depends on forward; allowed: model "),
            "{found:?}"
        );
        assert_eq!(found[1], "crate lab: depends on forward; allowed: model sys io host");
    }

    #[test]
    fn a_crate_of_a_house_is_in_its_folder() {
        let mut forward = package("wirepath-forward", &[]);
        forward["manifest_path"] = "/src/tunnel/forward/Cargo.toml".into();
        assert_eq!(violations(std::slice::from_ref(&forward)), [""; 0]);
        forward["manifest_path"] = "/src/crates/forward/Cargo.toml".into();
        let elsewhere = "crate forward: /src/crates/forward/Cargo.toml is not in tunnel/";
        assert_eq!(violations(&[forward]), [elsewhere]);
    }

    #[test]
    fn metadata_of_another_shape_is_an_error() {
        assert!(super::violations(&json!({})).is_err());
        assert!(super::violations(&json!({ "packages": [] })).is_err());
        assert!(super::violations(&json!({ "packages": [{ "name": "xtask" }] })).is_err());
    }
}
