//! Tables of `docs/evidence`: measured again by the built program, and written in place of the earlier ones.

mod blocks;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{entries, release};
use blocks::Block;

/// Folder of the pages, below the root of the workspace.
const PAGES: &str = "docs/evidence";

/// Measures every marked table of a page again, then replaces all of them at once.
///
/// Errors: a marker is malformed, the program is not built, or one of its runs failed; the page is then as it was.
pub(crate) fn rewrite(root: &Path, name: &str) -> Result<()> {
    rewrite_by(&release::target_folder(root), root, name)
}

/// As `rewrite`, by a program in a target folder of cargo.
fn rewrite_by(target: &Path, root: &Path, name: &str) -> Result<()> {
    let page = Page::read(root, name)?;
    if page.blocks.is_empty() {
        bail!("{} has no marked table; {}", page.name, blocks::FORM);
    }
    let program = program(target)?;
    let mut tables = Vec::new();
    for (index, block) in page.blocks.iter().enumerate() {
        println!("table {} of {}: {}", index + 1, page.blocks.len(), block.command());
        let table = measured(&program, block)
            .with_context(|| format!("{}:{}: {}", page.name, block.line, block.command()))?;
        tables.push(table);
    }
    page.replace(&tables)?;
    println!("wrote {}; look at the difference before the commit", page.name);
    Ok(())
}

/// Prints the commands of a page, each with its line.
pub(crate) fn list(root: &Path, name: &str) -> Result<()> {
    let page = Page::read(root, name)?;
    for block in &page.blocks {
        println!("{}:{}: {}", page.name, block.line, block.command());
    }
    Ok(())
}

/// Prints the commands of all pages.
pub(crate) fn list_all(root: &Path) -> Result<()> {
    names(root)?.iter().try_for_each(|name| list(root, name))
}

/// Names of the pages, without their extension, in order.
fn names(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for file in entries(&root.join(PAGES))? {
        let name = file.file_stem().and_then(|name| name.to_str());
        if file.extension().is_some_and(|extension| extension == "md") {
            names.extend(name.map(str::to_string));
        }
    }
    names.sort();
    Ok(names)
}

/// A page of evidence as it was read.
struct Page {
    /// Path below the root of the workspace, as errors name it.
    name: String,
    file: PathBuf,
    text: String,
    blocks: Vec<Block>,
}

impl Page {
    fn read(root: &Path, name: &str) -> Result<Page> {
        let names = names(root)?;
        if !names.iter().any(|known| known == name) {
            bail!("{PAGES} has no page {name:?}; it has {}", names.join(", "));
        }
        let file = root.join(PAGES).join(format!("{name}.md"));
        let name = format!("{PAGES}/{name}.md");
        let text = fs::read_to_string(&file).with_context(|| format!("reading {name}"))?;
        let blocks = blocks::parse(&name, &text)?;
        Ok(Page { name, file, text, blocks })
    }

    /// Writes the page with new tables, one for each block, by a rename.
    ///
    /// Errors: the page was edited since it was read.
    fn replace(&self, tables: &[String]) -> Result<()> {
        let now =
            fs::read_to_string(&self.file).with_context(|| format!("reading {}", self.name))?;
        if now != self.text {
            bail!("{} was edited during the runs and is left as it is; run again", self.name);
        }
        let new = self.file.with_extension("md.new");
        fs::write(&new, blocks::replaced(&self.text, &self.blocks, tables))
            .with_context(|| format!("writing {}", new.display()))?;
        fs::rename(&new, &self.file).with_context(|| format!("replacing {}", self.name))
    }
}

/// The program to measure with: that of a release, else that of `./run`.
fn program(target: &Path) -> Result<PathBuf> {
    let built = ["release", "quick"].map(|profile| target.join(profile).join("wirepath"));
    built.into_iter().find(|file| file.is_file()).with_context(|| {
        let target = target.display();
        format!(
            "no program in {target}/release or {target}/quick; build it: \
            cargo build --release -p wirepath"
        )
    })
}

/// Runs a block's command with `--json`; returns its result as a table.
fn measured(program: &Path, block: &Block) -> Result<String> {
    let output = Command::new(program)
        .args(&block.words)
        .arg("--json")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!("failed with {}; its message is above, and the page is as it was", output.status);
    }
    table::render(&output.stdout)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const PAGE: &str =
        "# Page\n\n<!-- evidence: prove probe --time 1s -->\nold\n<!-- end -->\n\nAfter.\n";

    /// A workspace with one page, and a program that runs this shell script.
    fn workspace(script: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join(PAGES)).unwrap();
        fs::write(root.path().join(PAGES).join("probe.md"), PAGE).unwrap();
        let folder = root.path().join("target/quick");
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("wirepath");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        root
    }

    fn rewrite_page(root: &tempfile::TempDir, name: &str) -> Result<()> {
        rewrite_by(&root.path().join("target"), root.path(), name)
    }

    fn page(root: &Path) -> String {
        fs::read_to_string(root.join(PAGES).join("probe.md")).unwrap()
    }

    fn sample() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/report/tests/goldens/ping.json")
    }

    #[test]
    fn a_table_is_measured_by_the_words_of_its_marker() {
        let arguments = "test \"$*\" = 'prove probe --time 1s --json' || exit 2";
        let root = workspace(&format!("{arguments}\ncat '{}'", sample().display()));
        rewrite_page(&root, "probe").unwrap();
        let page = page(root.path());
        assert!(!page.contains("old") && page.contains("\n| +spin | 4.05 µs, "), "{page}");
        assert!(
            page.starts_with("# Page\n\n<!-- evidence: prove probe --time 1s -->\n|"),
            "{page}"
        );
        assert!(page.ends_with("\n<!-- end -->\n\nAfter.\n"), "{page}");
    }

    #[test]
    fn a_run_that_fails_leaves_the_page_as_it_was() {
        for script in ["exit 3", "echo '{\"schema\": 2}'", "kill -9 $$"] {
            let root = workspace(script);
            let error = format!("{:#}", rewrite_page(&root, "probe").unwrap_err());
            assert!(error.starts_with("docs/evidence/probe.md:3: wirepath prove probe"), "{error}");
            assert_eq!(page(root.path()), PAGE);
            assert_eq!(entries(&root.path().join(PAGES)).unwrap().len(), 1);
        }
    }

    #[test]
    fn an_edit_during_the_run_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("page.md");
        let blocks = blocks::parse("page.md", PAGE).unwrap();
        let page = Page { name: "page.md".into(), file, text: PAGE.into(), blocks };
        fs::write(&page.file, "edited").unwrap();
        let error = page.replace(&["new\n".into()]).unwrap_err().to_string();
        assert!(error.contains("was edited"), "{error}");
        assert_eq!(fs::read_to_string(&page.file).unwrap(), "edited");
    }

    #[test]
    fn errors_name_what_there_is() {
        let root = workspace("exit 0");
        for name in ["tunel", "../probe", ""] {
            let error = rewrite_page(&root, name).unwrap_err().to_string();
            assert!(error.ends_with("it has probe"), "{error}");
        }
        fs::remove_dir_all(root.path().join("target")).unwrap();
        let error = rewrite_page(&root, "probe").unwrap_err().to_string();
        assert!(error.ends_with("cargo build --release -p wirepath"), "{error}");
    }
}
