//! Links of Markdown pages: checks that their targets exist, without fetching any.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::tracked_files;

/// Checks every link of every page; prints all broken ones before it fails.
pub(crate) fn check(root: &Path) -> Result<()> {
    let files = tracked_files(root)?;
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
        bail!("{} broken link(s)", faults.len());
    }
    let count: usize = pages.values().map(|page| page.links.len()).sum();
    println!("links: all {count} of {} pages are valid", pages.len());
    Ok(())
}

/// Links of a Markdown page, each with its line, and anchors of its headings.
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

    /// Adds a heading's anchor; a duplicate gets a number, as on GitHub.
    fn name(&mut self, heading: &str) {
        let anchor = anchor(heading);
        let numbered = (1..).map(|n| format!("{anchor}-{n}"));
        let mut names = std::iter::once(anchor.clone()).chain(numbered);
        self.anchors.extend(names.find(|name| !self.anchors.contains(name)));
    }
}

/// Anchor as on GitHub: lower case, spaces as hyphens, without other punctuation.
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

/// Returns the fault of a link on page `from`; `None` if it is valid.
fn fault(
    from: &Path,
    link: &str,
    pages: &BTreeMap<PathBuf, Page>,
    files: &BTreeSet<PathBuf>,
) -> Option<&'static str> {
    if link.contains(':') {
        return (!is_address(link)).then_some("not a complete https:// or http:// address");
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(p, a)| (p, Some(a)));
    let to = if path.is_empty() { Some(from.to_path_buf()) } else { resolve(from, path) };
    let Some(to) = to else { return Some("outside the repository") };
    if !files.contains(&to) && !files.iter().any(|file| file.starts_with(&to)) {
        return Some("no such file");
    }
    let (anchor, page) = (anchor?, pages.get(&to));
    match page {
        Some(page) if page.anchors.contains(anchor) => None,
        Some(_) => Some("no such heading"),
        None => Some("only Markdown pages have headings"),
    }
}

/// True for an http or https address with a host and without characters that need escaping.
fn is_address(link: &str) -> bool {
    let rest = link.strip_prefix("https://").or_else(|| link.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    !host.is_empty()
        && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':'))
        && link.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '<' | '>' | '"'))
}

/// Resolves `path` relative to page `from`; `None` if it is outside the repository.
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
    fn found_faults(text: &str) -> Vec<String> {
        let other = "# Top\n\n## A `tool` & its use\n\n## Twice\n\n## Twice\n";
        let pages: BTreeMap<PathBuf, Page> = [("docs/page.md", text), ("docs/other.md", other)]
            .map(|(name, text)| (name.into(), Page::read(text)))
            .into();
        let files = pages.keys().cloned().chain(["crates/a/src/lib.rs".into()]).collect();
        faults(&pages, &files)
    }

    #[test]
    fn valid_links_pass() {
        let good = "# Here\n[a](other.md) [b](other.md#twice-1) [c](#here) [d](../crates/a)\n\
            [e](other.md#a-tool--its-use) ![f](../crates/a/src/lib.rs) <https://a.example/b?c#d>\n\
            [g]\n\n[g]: ./other.md#top\n";
        assert_eq!(found_faults(good), [""; 0]);
    }

    #[test]
    fn each_broken_link_is_reported_with_its_line() {
        let bad = "# Here\n\n[a](gone.md)\n[b](other.md#thrice)\n[c](#there)\n[d](../../x)\n[e](/etc)\n\
            [f](https:/a.example)\n[g](../crates/a/src/lib.rs#L3)\n\n| t |\n|---|\n| [h](other.md#twice-2) |\n";
        let faults = found_faults(bad);
        let lines: Vec<_> = faults.iter().map(|f| f.split(':').nth(1).unwrap()).collect();
        assert_eq!(lines, ["3", "4", "5", "6", "7", "8", "9", "13"], "{faults:#?}");
    }

    #[test]
    fn links_in_code_are_ignored() {
        assert_eq!(found_faults("`[a](gone.md)`\n\n```\n[b](gone.md)\n```\n"), [""; 0]);
    }
}
