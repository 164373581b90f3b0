//! Crates that others may use: packaged, used from an empty project, and their upload rehearsed.
//!
//! A crate is public if its manifest says `publish = true`. Its first example is the first block of its README.md in Rust,
//! a whole program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{cargo, metadata, release, remove, run};

/// Workspaces with public crates.
const WORKSPACES: [&str; 2] = [".", "vm/firmware"];

/// Fields of a manifest without which a registry's page or docs.rs would be empty.
const FIELDS: [&str; 6] =
    ["description", "license", "repository", "documentation", "readme", "rust_version"];

/// A crate that others may use.
#[derive(Debug, PartialEq)]
struct PublicCrate {
    name: String,
    version: String,
    folder: PathBuf,
    /// Features that its first example needs: those that docs.rs builds it with, if they are listed.
    features: Vec<String>,
}

/// Packages all public crates, and builds and runs the first example of each by its package alone.
///
/// - `arguments`: `--offline` uses no registry, and leaves the rehearsal of the upload out, which needs its index.
pub(crate) fn build(root: &Path, arguments: &[&str]) -> Result<()> {
    let is_offline = match arguments {
        [] => false,
        ["--offline"] => true,
        _ => bail!("cargo xtask crates takes no argument but --offline"),
    };
    let work = release::target_folder(root).join("crates");
    let out = root.join("out/crates");
    remove(&out)?;
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let mut all = Vec::new();
    for workspace in WORKSPACES.map(|folder| root.join(folder)) {
        let crates = public_crates(&metadata(&workspace, &["--no-deps", "--locked"])?)?;
        // The tree of a change that is not committed yet can be tried, too; the real upload refuses it.
        let mut package = cargo_for(&workspace, "package", &crates, &work);
        run(package.args(is_offline.then_some("--offline")))?;
        if !is_offline {
            let mut rehearsal = cargo_for(&workspace, "publish", &crates, &work);
            run(rehearsal.args(["--dry-run", "--no-verify"]))?;
        }
        all.extend(crates);
    }
    for one in &all {
        let file = format!("{}-{}.crate", one.name, one.version);
        let built = work.join("package").join(&file);
        fs::copy(&built, out.join(&file))
            .with_context(|| format!("copying {}", built.display()))?;
    }
    use_each(&all, &out, &work, is_offline)?;
    for one in &all {
        println!("{} {}: its first example runs by its package", one.name, one.version);
    }
    println!("the packages are in {}", out.display());
    Ok(())
}

/// A command of cargo on crates of one workspace.
fn cargo_for(workspace: &Path, verb: &str, crates: &[PublicCrate], target: &Path) -> Command {
    let mut command = cargo(workspace);
    command.args([verb, "--quiet", "--locked", "--allow-dirty", "--target-dir"]).arg(target);
    for one in crates {
        command.args(["--package", &one.name]);
    }
    command
}

/// Public crates of a workspace.
///
/// Errors: a field that users need is missing.
fn public_crates(metadata: &Value) -> Result<Vec<PublicCrate>> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    // `publish = true` is no list of registries; `false` is an empty one.
    let public: Vec<&Value> = packages.iter().filter(|one| one["publish"].is_null()).collect();
    if public.is_empty() {
        bail!("no crate is public: none says publish = true");
    }
    public.into_iter().map(public_crate).collect()
}

fn public_crate(package: &Value) -> Result<PublicCrate> {
    let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
    let name = text("name");
    let texts = FIELDS.into_iter().filter(|field| text(field).is_empty());
    let lists = ["keywords", "categories"]
        .into_iter()
        .filter(|field| package[*field].as_array().is_none_or(Vec::is_empty));
    let docs = &package["metadata"]["docs"]["rs"];
    let no_docs = docs.is_null().then_some("package.metadata.docs.rs");
    let missing: Vec<&str> = texts.chain(lists).chain(no_docs).collect();
    if !missing.is_empty() {
        bail!("the manifest of {name} has no {}", missing.join(", "));
    }
    let features = docs["features"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(PublicCrate {
        version: text("version"),
        folder: Path::new(&text("manifest_path")).parent().context("no folder")?.to_owned(),
        features: features.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect(),
        name,
    })
}

/// Builds and runs the first example of each crate in a project outside of the tree that has nothing but the packages.
fn use_each(crates: &[PublicCrate], packages: &Path, work: &Path, is_offline: bool) -> Result<()> {
    let project = std::env::temp_dir().join(format!("wirepath-crates-{}", std::process::id()));
    let used = use_each_in(&project, crates, packages, work, is_offline);
    remove(&project)?;
    used
}

fn use_each_in(
    project: &Path,
    crates: &[PublicCrate],
    packages: &Path,
    work: &Path,
    is_offline: bool,
) -> Result<()> {
    let programs = project.join("src/bin");
    fs::create_dir_all(&programs).with_context(|| format!("creating {}", programs.display()))?;
    fs::write(project.join("Cargo.toml"), manifest(crates)).context("writing Cargo.toml")?;
    let mut runnable = Vec::new();
    for one in crates {
        let file = packages.join(format!("{}-{}.crate", one.name, one.version));
        run(Command::new("tar").arg("-xzf").arg(file).arg("-C").arg(project))?;
        let page = one.folder.join("README.md");
        let text =
            fs::read_to_string(&page).with_context(|| format!("reading {}", page.display()))?;
        let example = first_example(&text)
            .with_context(|| format!("{} has no example: a block ```rust", page.display()))?;
        let file = programs.join(format!("{}.rs", one.name));
        fs::write(file, example.program).context("writing an example")?;
        runnable.extend(example.runs.then_some(&one.name));
    }
    // Kept from run to run, unlike the project.
    let target = work.join("user");
    let in_project = |verb: &str| {
        let mut command = cargo(project);
        command.args([verb, "--quiet"]).args(is_offline.then_some("--offline"));
        command.env("CARGO_TARGET_DIR", &target);
        command
    };
    run(&mut in_project("build"))?;
    runnable.into_iter().try_for_each(|name| run(in_project("run").args(["--bin", name])))
}

/// Manifest of the project: each package is found by its unpacked folder in place of the registry.
fn manifest(crates: &[PublicCrate]) -> String {
    let mut text = "[package]\nname = \"first\"\nedition = \"2024\"\n\n[workspace]\n\n".to_owned();
    text += "[dependencies]\n";
    for PublicCrate { name, version, features, .. } in crates {
        text += &format!("{name} = {{ version = \"={version}\", features = {features:?} }}\n");
    }
    text += "\n[patch.crates-io]\n";
    for PublicCrate { name, version, .. } in crates {
        text += &format!("{name} = {{ path = \"{name}-{version}\" }}\n");
    }
    text
}

/// First example of a page.
#[derive(Debug, PartialEq)]
struct Example {
    program: String,
    /// False for one that needs a machine of its own: `no_run`.
    runs: bool,
}

fn first_example(page: &str) -> Option<Example> {
    let (_, rest) = page.split_once("```rust")?;
    let (words, rest) = rest.split_once('\n')?;
    let (program, _) = rest.split_once("\n```")?;
    Some(Example { program: format!("{program}\n"), runs: !words.contains("no_run") })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package() -> Value {
        json!({
            "name": "wirepath-example", "version": "1.2.3", "manifest_path": "/src/example/Cargo.toml",
            "publish": null, "description": "d", "license": "l", "repository": "r",
            "documentation": "o", "readme": "README.md", "rust_version": "1.95",
            "keywords": ["k"], "categories": ["c"],
            "metadata": {"docs": {"rs": {"features": ["fake"]}}},
        })
    }

    #[test]
    fn public_crates_are_those_that_any_registry_may_have() {
        let mut private = package();
        private["publish"] = json!([]);
        let found = public_crates(&json!({"packages": [private, package()]})).unwrap();
        let expected = PublicCrate {
            name: "wirepath-example".into(),
            version: "1.2.3".into(),
            folder: "/src/example".into(),
            features: vec!["fake".into()],
        };
        assert_eq!(found, [expected]);
        assert!(public_crates(&json!({"packages": []})).is_err());
    }

    #[test]
    fn missing_field_is_named() {
        for field in ["documentation", "readme", "keywords", "categories", "metadata"] {
            let mut without = package();
            without[field] = Value::Null;
            let error = public_crates(&json!({"packages": [without]})).unwrap_err().to_string();
            let named = field.replace("metadata", "package.metadata.docs.rs");
            assert_eq!(error, format!("the manifest of wirepath-example has no {named}"));
        }
    }

    #[test]
    fn first_example_is_the_first_block_in_rust() {
        let page =
            "# Name\n```text\nno\n```\n\n```rust\nfn main() {\n}\n```\n```rust\nother\n```\n";
        let example = Example { program: "fn main() {\n}\n".into(), runs: true };
        assert_eq!(first_example(page), Some(example));
        let built = first_example("```rust,no_run\nfn main() {}\n```").unwrap();
        assert!(!built.runs && built.program == "fn main() {}\n");
        assert_eq!(first_example("# Name\n"), None);
    }

    #[test]
    fn project_uses_the_packages_with_the_features_of_their_examples() {
        let crates = public_crates(&json!({"packages": [package()]})).unwrap();
        let text = manifest(&crates);
        assert!(
            text.contains("\nwirepath-example = { version = \"=1.2.3\", features = [\"fake\"] }\n")
        );
        assert!(text.ends_with("\nwirepath-example = { path = \"wirepath-example-1.2.3\" }\n"));
    }
}
