//! Circles of imports between the files of a crate.
//!
//! A path leads to the file that defines its item: re-exports and imports on the way are followed, so that a
//! `mod.rs` that only passes names on ties nothing. `mod` lines and tests are no imports. A module and its own
//! children may know each other: a circle that has the parent of all its other files is looked at without that
//! parent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::tokens::is_punct;
use super::{Finding, Rule};
use crate::sources::Source;

/// Largest number of files in a circle that is accepted.
const FILES_MAX: usize = 3;

/// Imports and re-exports that one path may pass.
const STEPS_MAX: usize = 16;

/// Tracked Rust files with their tokens.
pub(super) type Sources<'a> = BTreeMap<&'a Path, (&'a Source, TokenStream)>;

/// Returns each file that is in a circle of more than three.
pub(super) fn find(sources: &Sources<'_>) -> Vec<Finding> {
    let roots = sources.keys().filter(|file| {
        file.ends_with("src/lib.rs")
            || file.ends_with("src/main.rs")
            || file.file_name().is_some_and(|name| name == "main.rs")
                && file.components().any(|part| part.as_os_str() == "tests")
    });
    roots.flat_map(|root| Tree::read(root, sources).circles(sources)).collect()
}

/// Imports by file: the imported file, and the line of the first import.
type Arrows<'a> = BTreeMap<&'a Path, BTreeMap<&'a Path, usize>>;

/// A path as written: its segments, and the line of its first one.
struct Written {
    segments: Vec<String>,
    line: usize,
}

#[derive(Default)]
struct Module {
    file: PathBuf,
    /// Folder of the files of its children.
    folder: PathBuf,
    parent: usize,
    children: BTreeMap<String, usize>,
    /// Names that `use` brings in, private or public.
    imports: BTreeMap<String, Vec<String>>,
    /// Modules whose names `use …::*` brings in.
    globs: Vec<Vec<String>>,
    /// Names of the items that this module defines.
    items: BTreeSet<String>,
    paths: Vec<Written>,
}

/// Modules of one crate; the first is its root.
struct Tree<'a> {
    sources: &'a Sources<'a>,
    modules: Vec<Module>,
}

impl<'a> Tree<'a> {
    fn read(root: &Path, sources: &'a Sources<'a>) -> Self {
        let mut tree = Tree { sources, modules: Vec::new() };
        tree.add_file(root.to_owned(), root.parent().unwrap_or(root).to_owned(), 0);
        tree
    }

    fn add_file(&mut self, file: PathBuf, folder: PathBuf, parent: usize) -> usize {
        let id = self.modules.len();
        let tokens = self.sources.get(file.as_path()).map(|(source, stream)| {
            // A file of tests alone has no product line: all of it is read, as part of a test program.
            let line_count = source.product_line_count();
            stream
                .clone()
                .into_iter()
                .take_while(move |token| line_count == 0 || token.span().start().line <= line_count)
                .collect()
        });
        self.modules.push(Module { file, folder, parent, ..Module::default() });
        self.read_tokens(id, tokens.unwrap_or_default(), true);
        id
    }

    /// Reads the items of a module, or the tokens within one of them.
    fn read_tokens(&mut self, id: usize, tokens: Vec<TokenTree>, is_module: bool) {
        let mut index = 0;
        while index < tokens.len() {
            let next = tokens.get(index + 1);
            match (&tokens[index], next) {
                (TokenTree::Group(group), _) => {
                    self.read_tokens(id, group.stream().into_iter().collect(), false);
                }
                (TokenTree::Ident(word), Some(TokenTree::Ident(name)))
                    if word == "mod" && is_module =>
                {
                    let attributes = attributes(&tokens[..index]);
                    if !attributes.contains("cfg(test)") {
                        let child =
                            self.add_child(id, &name.to_string(), &attributes, &tokens[index + 2]);
                        self.modules[id].children.insert(name.to_string(), child);
                    }
                    index += 2;
                }
                // `impl A + use<'_>` captures lifetimes, and imports nothing.
                (TokenTree::Ident(word), next)
                    if word == "use" && !next.is_some_and(|next| is_punct(next, '<')) =>
                {
                    let rest = &tokens[index + 1..];
                    let end =
                        rest.iter().position(|token| is_punct(token, ';')).unwrap_or(rest.len());
                    self.read_use(id, &rest[..end], &mut Vec::new());
                    index += end;
                }
                (TokenTree::Ident(word), next) => {
                    if let (true, Some(TokenTree::Ident(name))) =
                        (is_module && is_item(&word.to_string()), next)
                    {
                        self.modules[id].items.insert(name.to_string());
                    }
                    index += self.read_path(id, &tokens[index..]);
                }
                _ => {}
            }
            index += 1;
        }
    }

    /// Adds the module `name` of the module `id`: its body in braces, or the file that `;` stands for.
    fn add_child(&mut self, id: usize, name: &str, attributes: &str, body: &TokenTree) -> usize {
        let parent = &self.modules[id];
        let folder = parent.folder.join(name);
        if let TokenTree::Group(group) = body {
            let child = self.modules.len();
            let file = parent.file.clone();
            self.modules.push(Module { file, folder, parent: id, ..Module::default() });
            self.read_tokens(child, group.stream().into_iter().collect(), true);
            return child;
        }
        let named = attributes.split("path=\"").nth(1).and_then(|rest| rest.split('"').next());
        if let Some(name) = named {
            let file = parent.file.with_file_name(name);
            let folder = file.parent().unwrap_or(&file).to_owned();
            return self.add_file(file, folder, id);
        }
        let flat = folder.with_extension("rs");
        let file =
            if self.sources.contains_key(flat.as_path()) { flat } else { folder.join("mod.rs") };
        self.add_file(file, folder, id)
    }

    /// Reads the path that begins the tokens, if it has two or more segments; returns how many tokens to pass.
    fn read_path(&mut self, id: usize, tokens: &[TokenTree]) -> usize {
        let mut segments = vec![tokens[0].to_string()];
        let mut end = 0;
        while let Some([colon, other, TokenTree::Ident(segment)]) = tokens.get(end + 1..end + 4)
            && is_punct(colon, ':')
            && is_punct(other, ':')
        {
            segments.push(segment.to_string());
            end += 3;
        }
        if segments.len() > 1 {
            let line = tokens[0].span().start().line;
            self.modules[id].paths.push(Written { segments, line });
        }
        end
    }

    /// Reads `a::{b, c as d, e::*}` below `prefix`.
    fn read_use(&mut self, id: usize, tokens: &[TokenTree], prefix: &mut Vec<String>) {
        for branch in tokens.split(|token| is_punct(token, ',')) {
            let depth = prefix.len();
            let mut alias = None;
            let mut is_leaf = false;
            for (index, token) in branch.iter().enumerate() {
                is_leaf = matches!(token, TokenTree::Ident(_));
                match token {
                    TokenTree::Ident(word) if word == "as" => {
                        alias = branch.get(index + 1).map(ToString::to_string);
                        break;
                    }
                    TokenTree::Ident(word) => prefix.push(word.to_string()),
                    TokenTree::Group(group) => {
                        let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
                        self.read_use(id, &tokens, prefix);
                    }
                    TokenTree::Punct(punct) if punct.as_char() == '*' => {
                        self.modules[id].globs.push(prefix.clone());
                    }
                    TokenTree::Punct(_) | TokenTree::Literal(_) => {}
                }
            }
            if is_leaf {
                let mut segments = prefix.clone();
                segments.pop_if(|last| last == "self");
                let name = alias.or_else(|| segments.last().cloned()).unwrap_or_default();
                let module = &mut self.modules[id];
                module.imports.insert(name, segments.clone());
                module.paths.push(Written { segments, line: branch[0].span().start().line });
            }
            prefix.truncate(depth);
        }
    }

    /// Returns the last module on a path, and whether the path goes on to an item in it; `None` if the path leads to
    /// another crate or begins with a local name.
    fn lookup(&self, from: usize, path: &[String], steps: usize) -> Option<(usize, bool)> {
        let steps = steps.checked_sub(1)?;
        let mut module = from;
        for (index, segment) in path.iter().enumerate() {
            let here = &self.modules[module];
            module = match segment.as_str() {
                "crate" => 0,
                "super" => here.parent,
                "self" => module,
                name if here.children.contains_key(name) => here.children[name],
                name if here.items.contains(name) => return Some((module, true)),
                name => {
                    let import = here.imports.get(name).filter(|import| import[..] != path[..]);
                    if let Some(import) = import {
                        let longer = [import, &path[index + 1..]].concat();
                        return self.lookup(module, &longer, steps);
                    }
                    return here.globs.iter().find_map(|glob| {
                        let (module, is_item) = self.lookup(module, glob, steps)?;
                        self.lookup(module, &path[index..], steps).filter(|_| !is_item)
                    });
                }
            };
        }
        Some((module, false))
    }

    fn arrows(&self) -> Arrows<'_> {
        let mut arrows = Arrows::new();
        for (id, module) in self.modules.iter().enumerate() {
            let imported = arrows.entry(module.file.as_path()).or_default();
            for path in &module.paths {
                let Some((definition, true)) = self.lookup(id, &path.segments, STEPS_MAX) else {
                    continue;
                };
                let file = self.modules[definition].file.as_path();
                if file != module.file {
                    imported.entry(file).or_insert(path.line);
                }
            }
        }
        arrows
    }

    /// Circles of more files than accepted, without parents of all their other files.
    fn knots<'p>(&self, arrows: &Arrows<'p>) -> Vec<BTreeSet<&'p Path>> {
        let mut knots = Vec::new();
        for mut circle in components(arrows).into_iter().filter(|circle| circle.len() > FILES_MAX) {
            let parent =
                circle.iter().find(|file| circle.iter().all(|other| self.holds(file, other)));
            let Some(parent) = parent.copied() else {
                knots.push(circle);
                continue;
            };
            circle.remove(parent);
            let imports_in_circle = |(file, imported): (&&'p Path, &BTreeMap<&'p Path, usize>)| {
                let mut imported = imported.clone();
                imported.retain(|file, _| circle.contains(file));
                circle.contains(file).then_some((*file, imported))
            };
            knots.extend(self.knots(&arrows.iter().filter_map(imports_in_circle).collect()));
        }
        knots
    }

    /// The file of a module is `file`, and that of a module within it, or itself, is `other`.
    fn holds(&self, file: &Path, other: &Path) -> bool {
        let Some(mut id) = self.modules.iter().position(|module| module.file == other) else {
            return false;
        };
        while id != 0 && self.modules[id].file != file {
            id = self.modules[id].parent;
        }
        self.modules[id].file == file
    }

    fn circles(&self, sources: &Sources<'_>) -> Vec<Finding> {
        let arrows = self.arrows();
        let mut findings = Vec::new();
        for circle in self.knots(&arrows) {
            for &file in &circle {
                let tied = arrows[file].iter().filter(|(imported, _)| circle.contains(*imported));
                let imports = tied
                    .clone()
                    .map(|(imported, line)| format!("{} (line {line})", imported.display()));
                let imports = imports.collect::<Vec<_>>().join(", ");
                findings.push(Finding {
                    rule: Rule::ImportCircle,
                    package: sources
                        .get(file)
                        .map_or(String::new(), |(source, _)| source.package.clone()),
                    file: file.to_owned(),
                    line: tied.map(|(_, line)| *line).min().unwrap_or(1),
                    text: format!("in a circle of {} files, imports {imports}", circle.len()),
                });
            }
        }
        findings
    }
}

/// Sets of files that reach each other.
fn components<'a>(
    arrows: &BTreeMap<&'a Path, BTreeMap<&'a Path, usize>>,
) -> Vec<BTreeSet<&'a Path>> {
    let reached: BTreeMap<&Path, BTreeSet<&Path>> =
        arrows.keys().map(|file| (*file, reached(file, arrows))).collect();
    let mut components: Vec<BTreeSet<&Path>> = Vec::new();
    for (file, others) in &reached {
        if others.contains(file) && !components.iter().any(|component| component.contains(file)) {
            let mutual = others.iter().filter(|other| reached[*other].contains(file));
            components.push(mutual.copied().collect());
        }
    }
    components
}

/// Files that `file` imports, directly or by others.
fn reached<'a>(file: &'a Path, arrows: &Arrows<'a>) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file];
    while let Some(file) = open.pop() {
        open.extend(arrows[file].keys().filter(|imported| reached.insert(**imported)));
    }
    reached
}

fn is_item(keyword: &str) -> bool {
    ["fn", "struct", "enum", "trait", "type", "const", "static", "union"].contains(&keyword)
}

/// Attributes and visibility at the end of the tokens, without spaces.
fn attributes(tokens: &[TokenTree]) -> String {
    let tokens = tokens.iter().rev().take_while(|token| {
        !is_punct(token, ';')
            && !matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
    });
    tokens.map(|token| token.to_string().replace(' ', "")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of circles among sources, each a name below `src` and its text.
    fn circle(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(file, text)| Source {
                file: Path::new("src").join(file),
                package: "a".into(),
                text: (*text).into(),
            })
            .collect();
        let parsed = sources
            .iter()
            .map(|source| (source.file.as_path(), (source, source.text.parse().unwrap())))
            .collect();
        find(&parsed).into_iter().map(|finding| finding.file.display().to_string()).collect()
    }

    const CIRCLE: [(&str, &str); 5] = [
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "use super::c::{self, C}; pub struct B;"),
        ("c.rs", "pub struct C; fn f() { crate::d::f() }"),
        ("d.rs", "pub fn f() { let _ = crate::a::A; }"),
    ];

    #[test]
    fn a_circle_of_four_files_is_found() {
        assert_eq!(circle(&CIRCLE), ["src/a.rs", "src/b.rs", "src/c.rs", "src/d.rs"]);
    }

    #[test]
    fn a_circle_of_three_files_is_accepted() {
        let mut files = CIRCLE;
        files[3].1 = "pub struct C; use crate::a::A;";
        assert!(circle(&files).is_empty());
    }

    #[test]
    fn a_re_export_is_followed_to_the_file_of_the_item() {
        let mut files = CIRCLE.to_vec();
        files[0].1 = "mod a; mod b; mod c; mod d; mod e; pub use e::A;";
        files[4].1 = "pub fn f() { let _ = crate::A; }";
        files.push(("e.rs", "pub struct A;"));
        assert!(circle(&files).is_empty());
        files[5].1 = "pub struct A; use crate::a::*; fn f(_: A) {} fn g() { crate::a::g() }";
        files[1].1 = "use crate::b::B; pub fn g() {}";
        assert_eq!(circle(&files).len(), 5);
    }

    #[test]
    fn names_of_a_glob_are_found_where_they_are_defined() {
        let mut files = CIRCLE;
        files[0].1 = "mod a; mod b; mod c; mod d; pub use a::*;";
        files[4].1 = "pub fn f() { let _ = crate::A; }";
        assert_eq!(circle(&files).len(), 4);
    }

    #[test]
    fn lifetimes_that_an_impl_captures_are_no_imports() {
        let mut files = CIRCLE;
        files[4].1 = "pub fn f() -> impl A + use<> { g(2 * crate::a::A) }";
        assert_eq!(circle(&files).len(), 4);
        files[4].1 = "pub fn f() -> impl A + use<> { crate::a::A; g(2 * 3, 4 * 5); h::i() }";
        assert_eq!(circle(&files).len(), 4);
    }

    #[test]
    fn imports_of_tests_are_left_out() {
        let mut files = CIRCLE;
        files[4].1 = "pub fn f() {}\n\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n";
        assert!(circle(&files).is_empty());
    }

    #[test]
    fn modules_in_folders_and_files_are_resolved() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b; mod c; #[path = \"x.rs\"] mod d; pub fn f() { b::f() }"),
            ("a/b.rs", "pub fn f() { super::c::inner::f() }"),
            ("a/c.rs", "pub mod inner { pub fn f() { super::super::d::f() } }"),
            ("a/x.rs", "pub fn f() { crate::a::f() }"),
        ];
        assert!(circle(&files).is_empty(), "a/mod.rs is the parent of the others");
        let mut files = files.to_vec();
        files[0].1 = "mod a; mod e;";
        files[1].1 = "mod b; mod c; #[path = \"x.rs\"] mod d; use crate::e::f;";
        files.push(("e.rs", "pub fn f() { crate::a::b::f() }"));
        files[4].1 = "pub fn f() { crate::e::f() }";
        assert_eq!(circle(&files), ["src/a/b.rs", "src/a/c.rs", "src/a/x.rs", "src/e.rs"]);
    }

    #[test]
    fn children_that_know_each_other_are_a_circle_without_their_parent() {
        let files = [
            (
                "lib.rs",
                "mod a; mod b; mod c; mod d; mod e; pub struct P; fn f() { e::f(); a::f() }",
            ),
            ("a.rs", "pub fn f() { super::b::f() }"),
            ("b.rs", "use crate::P; pub fn f() { super::c::f() }"),
            ("c.rs", "pub fn f() { super::d::f() }"),
            ("d.rs", "pub fn f() { super::a::f() }"),
            ("e.rs", "use super::P; pub fn f() {}"),
        ];
        assert_eq!(circle(&files), ["src/a.rs", "src/b.rs", "src/c.rs", "src/d.rs"]);
    }
}
