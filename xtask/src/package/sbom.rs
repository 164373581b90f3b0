//! The list of a program's parts, as CycloneDX.
//!
//! Source: CycloneDX 1.6, JSON reference.

use serde_json::{Value, json};

use super::crates::Crate;
use super::system::SystemLibrary;

/// A released program.
pub(super) struct Program<'a> {
    pub(super) version: &'a str,
    pub(super) file: &'a str,
    /// SHA-256 of the file.
    pub(super) checksum: &'a str,
    /// Time of the commit as RFC 3339.
    pub(super) time: &'a str,
    /// Version of Rust, whose standard library is linked in.
    pub(super) rust: &'a str,
}

/// Part that a crate brings as C sources: crate, name, supplier's package, and version.
pub(super) struct Vendored {
    pub(super) name: &'static str,
    pub(super) url: &'static str,
    pub(super) licence: &'static str,
    pub(super) version: String,
}

/// Returns the document; it has no serial number, so that equal programs have equal documents.
pub(super) fn document(
    program: &Program<'_>,
    crates: &[Crate],
    vendored: &[Vendored],
    system: &[SystemLibrary],
) -> Value {
    let mut components: Vec<Value> = crates.iter().map(component_of_crate).collect();
    components.extend(vendored.iter().map(component_of_vendored));
    components.extend(system.iter().map(component_of_system));
    components.push(json!({
        "type": "library", "bom-ref": "rust-std", "name": "std", "version": program.rust,
        "licenses": [{ "expression": "MIT OR Apache-2.0" }],
        "purl": format!("pkg:generic/rust@{}", program.rust),
    }));
    let refs: Vec<Value> = components.iter().map(|one| one["bom-ref"].clone()).collect();
    let mut uses = vec![json!({ "ref": "wirepath", "dependsOn": refs })];
    uses.extend(crates.iter().map(|one| {
        let uses: Vec<String> = one.uses.iter().map(|key| purl_of_key(key)).collect();
        json!({ "ref": purl(one), "dependsOn": uses })
    }));
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": program.time,
            "component": {
                "type": "application", "bom-ref": "wirepath", "name": "wirepath", "version": program.version,
                "licenses": [{ "expression": "Apache-2.0" }],
                "hashes": [{ "alg": "SHA-256", "content": program.checksum }],
                "properties": [{ "name": "wirepath:file", "value": program.file }],
            },
        },
        "components": components,
        "dependencies": uses,
    })
}

fn component_of_crate(one: &Crate) -> Value {
    let mut component = json!({
        "type": "library", "bom-ref": purl(one), "name": one.name, "version": one.version, "purl": purl(one),
        // Old crates write `MIT/Apache-2.0`.
        "licenses": [{ "expression": one.licence.replace('/', " OR ") }],
    });
    if let Some(checksum) = &one.checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    if one.source.starts_with("https://") {
        component["externalReferences"] = json!([{ "type": "vcs", "url": one.source }]);
    }
    component
}

fn component_of_vendored(one: &Vendored) -> Value {
    json!({
        "type": "library", "bom-ref": one.name, "name": one.name, "version": one.version,
        "licenses": [{ "expression": one.licence }],
        "externalReferences": [{ "type": "website", "url": one.url }],
    })
}

fn component_of_system(one: &SystemLibrary) -> Value {
    let purl = format!("pkg:deb/debian/{}@{}", one.package, one.version.replace('+', "%2B"));
    json!({
        "type": "library", "bom-ref": purl, "name": one.name, "version": one.version, "purl": purl,
        "licenses": [{ "license": { "name": format!("terms of Debian's {}", one.package) } }],
    })
}

fn purl(one: &Crate) -> String {
    purl_of_key(&one.key())
}

/// Package URL of a crate's `name version`. Source: package-url, types, `cargo`.
fn purl_of_key(key: &str) -> String {
    format!("pkg:cargo/{}", key.replace(' ', "@").replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, uses: &[&str]) -> Crate {
        Crate {
            name: name.into(),
            version: "1.0.0+v2".into(),
            licence: "MIT/Apache-2.0".into(),
            source: "https://example.org/a".into(),
            folder: "/a".into(),
            checksum: Some("00ff".into()),
            uses: uses.iter().map(|key| (*key).to_owned()).collect(),
        }
    }

    #[test]
    fn every_reference_is_that_of_a_component() {
        let program =
            Program { version: "0.1.0", file: "w", checksum: "aa", time: "t", rust: "1.95.0" };
        let crates = [library("a", &["b 1.0.0+v2"]), library("b", &[])];
        let system = [SystemLibrary {
            name: "zlib",
            package: "zlib1g-dev".into(),
            version: "1:1.2+x".into(),
            terms: String::new(),
        }];
        let vendored = [Vendored {
            name: "sqlite",
            url: "https://sqlite.org",
            licence: "blessing",
            version: "3".into(),
        }];
        let document = document(&program, &crates, &vendored, &system);
        let components = document["components"].as_array().unwrap();
        let names: Vec<&str> = components.iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["a", "b", "sqlite", "zlib", "std"]);
        let known: Vec<&Value> = components.iter().map(|one| &one["bom-ref"]).collect();
        for used in document["dependencies"].as_array().unwrap() {
            assert!(used["ref"] == "wirepath" || known.contains(&&used["ref"]), "{used}");
            for part in used["dependsOn"].as_array().unwrap() {
                assert!(known.contains(&part), "{part}");
            }
        }
        assert_eq!(components[0]["purl"], "pkg:cargo/a@1.0.0%2Bv2");
        assert_eq!(components[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(components[3]["purl"], "pkg:deb/debian/zlib1g-dev@1:1.2%2Bx");
    }
}
