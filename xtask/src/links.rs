//! Links of Markdown pages: whether what they lead to is there. Nothing is fetched.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::{fs, str};

use anyhow::{Context, Result, bail};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Checks every link of every page; lists all that lead nowhere before it fails.
pub(crate) fn check(root: &Path) -> Result<()> {
    let files = files(root)?;
    let mut pages = BTreeMap::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "md")) {
        let text = fs::read_to_string(root.join(file))
            .with_context(|| format!("reading {}", file.display()))?;
        pages.insert(file.clone(), Page::read(&text));
    }
    let faults = faults(&pages, &files);
    for fault in &faults {
        println!("{fault}");
    }
    if !faults.is_empty() {
        bail!("{} link(s) lead nowhere", faults.len());
    }
    let count: usize = pages.values().map(|page| page.links.len()).sum();
    println!("links: all {count} of {} pages lead somewhere", pages.len());
    Ok(())
}

/// What git knows, or would if it was told, from the root.
fn files(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("git did not start")?;
    if !output.status.success() {
        bail!("git ls-files failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let names = str::from_utf8(&output.stdout).context("a file's name is no UTF-8")?;
    let there = |file: &PathBuf| root.join(file).is_file();
    Ok(names.split_terminator('\0').map(PathBuf::from).filter(there).collect())
}

/// A Markdown page: where its links go, each with its line, and what can be linked to in it.
#[derive(Default)]
struct Page {
    links: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
}

impl Page {
    fn read(text: &str) -> Page {
        let mut page = Page::default();
        let mut heading = None;
        for (event, place) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    let line = text[..place.start].matches('\n').count() + 1;
                    page.links.push((line, dest_url.into_string()));
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.name(&heading.take().unwrap_or_default()),
                Event::Text(words) | Event::Code(words) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&words);
                    }
                }
                _ => {}
            }
        }
        page
    }

    /// Adds a heading's anchor; one that is there already gets a number, as on GitHub.
    fn name(&mut self, heading: &str) {
        let anchor = anchor(heading);
        let numbered = (1..).map(|n| format!("{anchor}-{n}"));
        let mut names = std::iter::once(anchor.clone()).chain(numbered);
        self.anchors.extend(names.find(|name| !self.anchors.contains(name)));
    }
}

/// As GitHub makes them: lower case, spaces as hyphens, without other punctuation.
fn anchor(heading: &str) -> String {
    let keep = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heading.trim().to_lowercase().chars().filter(keep).collect::<String>().replace(' ', "-")
}

fn faults(pages: &BTreeMap<PathBuf, Page>, files: &BTreeSet<PathBuf>) -> Vec<String> {
    let mut faults = Vec::new();
    for (file, page) in pages {
        for (line, link) in &page.links {
            if let Some(why) = fault(file, link, pages, files) {
                faults.push(format!("{}:{line}: {link}: {why}", file.display()));
            }
        }
    }
    faults
}

/// Why a link of the page `from` leads nowhere.
fn fault(
    from: &Path,
    link: &str,
    pages: &BTreeMap<PathBuf, Page>,
    files: &BTreeSet<PathBuf>,
) -> Option<&'static str> {
    if link.contains(':') {
        return (!is_address(link)).then_some("is no whole https:// or http:// address");
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(p, a)| (p, Some(a)));
    let to = if path.is_empty() { Some(from.to_path_buf()) } else { resolve(from, path) };
    let Some(to) = to else { return Some("leads out of the repository") };
    if !files.contains(&to) && !files.iter().any(|file| file.starts_with(&to)) {
        return Some("is not there");
    }
    let (anchor, page) = (anchor?, pages.get(&to));
    match page {
        Some(page) if page.anchors.contains(anchor) => None,
        Some(_) => Some("there is no such heading"),
        None => Some("only Markdown pages have headings to lead to"),
    }
}

/// An address with a scheme of the web, a host, and nothing that would have to be escaped.
fn is_address(link: &str) -> bool {
    let rest = link.strip_prefix("https://").or_else(|| link.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
    !host.is_empty()
        && host.chars().all(is_host)
        && link.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '<' | '>' | '"'))
}

/// `path` as seen from the page `from`, from the root; `None` when that is outside.
fn resolve(from: &Path, path: &str) -> Option<PathBuf> {
    let mut to = from.parent()?.to_path_buf();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => to.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !to.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Faults of a page `docs/page.md` beside `docs/other.md` and `crates/a/src/lib.rs`.
    fn of(text: &str) -> Vec<String> {
        let other = "# Top\n\n## A `tool` & its use\n\n## Twice\n\n## Twice\n";
        let pages: BTreeMap<PathBuf, Page> = [("docs/page.md", text), ("docs/other.md", other)]
            .map(|(name, text)| (name.into(), Page::read(text)))
            .into();
        let files = pages.keys().cloned().chain(["crates/a/src/lib.rs".into()]).collect();
        faults(&pages, &files)
    }

    #[test]
    fn links_that_lead_somewhere_are_let_through() {
        let good = "# Here\n[a](other.md) [b](other.md#twice-1) [c](#here) [d](../crates/a)\n\
            [e](other.md#a-tool--its-use) ![f](../crates/a/src/lib.rs) <https://a.example/b?c#d>\n\
            [g]\n\n[g]: ./other.md#top\n";
        assert_eq!(of(good), [""; 0]);
    }

    #[test]
    fn each_way_to_lead_nowhere_is_told_with_its_line() {
        let bad = "# Here\n\n[a](gone.md)\n[b](other.md#thrice)\n[c](#there)\n[d](../../x)\n[e](/etc)\n\
            [f](https:/a.example)\n[g](../crates/a/src/lib.rs#L3)\n\n| t |\n|---|\n| [h](other.md#twice-2) |\n";
        let faults = of(bad);
        let lines: Vec<_> = faults.iter().map(|f| f.split(':').nth(1).unwrap()).collect();
        assert_eq!(lines, ["3", "4", "5", "6", "7", "8", "9", "13"], "{faults:#?}");
    }

    #[test]
    fn code_is_not_taken_for_links() {
        assert_eq!(of("`[a](gone.md)`\n\n```\n[b](gone.md)\n```\n"), [""; 0]);
    }
}
