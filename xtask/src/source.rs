//! What a source file may not say, depending on where it lies.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Folders beside the paths that all of them may use; they may use none.
const SHARED: &[&str] = &["peers"];

/// Macros that write to stdout or stderr.
const PRINTS: &[&str] = &["print", "println", "eprint", "eprintln", "dbg"];

/// Sources under `root` that break a rule, each as `file:line: sentence`:
///
/// - no `unsafe` outside crates/sys;
/// - no print outside crates/cli and xtask (tests, benchmarks and build scripts may);
/// - a folder of crates/paths/src never refers to its neighbour's module.
pub(crate) fn violations(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for top in ["crates", "xtask"] {
        rust_files(root, &root.join(top), &mut files)?;
    }
    if files.is_empty() {
        bail!("no Rust files under {}", root.display());
    }
    files.sort();
    let paths: Vec<String> = files.iter().filter_map(|file| path_of(file)).collect();
    let mut violations = Vec::new();
    for file in &files {
        let text =
            fs::read_to_string(root.join(file)).with_context(|| format!("reading {file}"))?;
        let tokens = tokens(&text);
        let mut report = |line: usize, what: String| {
            violations.push(format!("{file}:{line}: {what}"));
        };
        if !file.starts_with("crates/sys/") {
            for token in tokens.iter().filter(|token| token.text == "unsafe") {
                report(token.line, "unsafe outside crates/sys; wrap it there".into());
            }
        }
        if may_not_print(file) {
            for (line, name) in prints(without_tests(&tokens)) {
                report(line, format!("{name}! outside crates/cli; return the text instead"));
            }
        }
        if let Some(own) = path_of(file) {
            // A path may have a module of its own with a neighbour's name.
            let foreign = |name: &str| {
                name != own
                    && !SHARED.contains(&name)
                    && paths.iter().any(|path| path == name)
                    && !files.iter().any(|file| {
                        let folder = format!("crates/paths/src/{own}/{name}");
                        *file == format!("{folder}.rs") || file.starts_with(&format!("{folder}/"))
                    })
            };
            for (line, name) in siblings(&tokens) {
                if foreign(name) {
                    report(line, format!("path {own} refers to path {name}; move what they share"));
                }
            }
        }
    }
    Ok(violations)
}

/// Adds the Rust files under `folder`, as paths from `root`.
pub(crate) fn rust_files(root: &Path, folder: &Path, files: &mut Vec<String>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("reading {}", folder.display()))?.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                rust_files(root, &path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).unwrap_or(&path);
            files.push(name.to_str().context("a file name is no UTF-8")?.to_owned());
        }
    }
    Ok(())
}

/// The path (of packets) whose folder a file lies in.
fn path_of(file: &str) -> Option<String> {
    let (path, _) = file.strip_prefix("crates/paths/src/")?.split_once('/')?;
    Some(path.to_owned())
}

fn may_not_print(file: &str) -> bool {
    !file.starts_with("crates/cli/")
        && !file.starts_with("xtask/")
        && !file.contains("/tests/")
        && !file.contains("/benches/")
        && !file.contains("/examples/")
        && !file.ends_with("/build.rs")
        && !file.ends_with("/tests.rs")
}

/// A word or a punctuation mark, with the line it is on.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

/// The words and marks of a source file, without comments, strings and characters.
///
/// Not a parser: just enough that what is said about code is not found in prose.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(len) = raw_string(rest) {
            len
        } else if first == '"' {
            quoted(rest, '"')
        } else if first == '\'' {
            character(rest)
        } else {
            let word = |c: char| c.is_alphanumeric() || c == '_';
            let len = match rest.find(|c| !word(c)) {
                Some(0) => first.len_utf8(),
                Some(len) => len,
                None => rest.len(),
            };
            if !first.is_whitespace() {
                tokens.push(Token { text: &rest[..len], line });
            }
            len
        };
        line += rest[..len].matches('\n').count();
        at += len;
    }
    tokens
}

/// Bytes of the block comment, with those in it, that `rest` starts with.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let tail = &rest.as_bytes()[at..];
        if tail.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if tail.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Bytes of the raw string that `rest` starts with, if it does.
fn raw_string(rest: &str) -> Option<usize> {
    let start = ["r", "br", "cr"].iter().find_map(|prefix| {
        let tail = rest.strip_prefix(prefix)?.trim_start_matches('#');
        tail.starts_with('"').then_some((prefix.len(), rest.len() - tail.len()))
    });
    let (prefix, quote) = start?;
    let end = format!("\"{}", "#".repeat(quote - prefix));
    let body = quote + 1;
    Some(rest[body..].find(&end).map_or(rest.len(), |at| body + at + end.len()))
}

/// Bytes of the literal in `quote`s that `rest` starts with.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Bytes of the character that `rest` starts with, or of the mark of a lifetime.
fn character(rest: &str) -> usize {
    let mut after = rest.chars().skip(1);
    match (after.next(), after.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(rest, '\''),
        _ => 1,
    }
}

/// The tokens but for items under `#[cfg(test)]`.
fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let marked = tokens[at..].len() >= MARK.len()
            && tokens[at..].iter().zip(MARK).all(|(token, mark)| token.text == mark);
        if marked {
            at += item(&tokens[at + MARK.len()..]) + MARK.len();
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

/// Tokens of the item that `tokens` start with: to its closing brace or semicolon.
fn item(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "{" | "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Print macros that are called, by line.
fn prints<'a>(tokens: Vec<Token<'a>>) -> Vec<(usize, &'a str)> {
    let pairs = tokens.windows(2);
    pairs
        .filter(|pair| PRINTS.contains(&pair[0].text) && pair[1].text == "!")
        .map(|pair| (pair[0].line, pair[0].text))
        .collect()
}

/// Names that are looked up in the crate's root or in a parent module: `crate::NAME`,
/// `super::NAME`, and each of `crate::{NAME, NAME::…}`.
fn siblings<'a>(tokens: &[Token<'a>]) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if !matches!(token.text, "crate" | "super") {
            continue;
        }
        let rest = &tokens[at + 1..];
        let [colon, colon_too, rest @ ..] = rest else { continue };
        if colon.text != ":" || colon_too.text != ":" {
            continue;
        }
        match rest.first() {
            Some(open) if open.text == "{" => {
                let mut depth = 0;
                let mut starts = false;
                for token in rest {
                    match token.text {
                        "{" => {
                            depth += 1;
                            starts = depth == 1;
                        }
                        "}" if depth == 1 => break,
                        "}" => depth -= 1,
                        "," => starts = depth == 1,
                        name => {
                            if starts {
                                found.push((token.line, name));
                            }
                            starts = false;
                        }
                    }
                }
            }
            Some(name) => found.push((name.line, name.text)),
            None => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Violations in a tree of these files.
    fn of_tree(files: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().expect("a temporary folder can be made");
        for top in ["crates", "xtask"] {
            fs::create_dir(root.path().join(top)).expect("the folder is new");
        }
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it can be made");
            fs::write(path, text).expect("it can be written");
        }
        violations(root.path()).expect("the tree can be read")
    }

    #[test]
    fn unsafe_is_at_home_in_sys_alone() {
        let text = "fn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(
            of_tree(&[("crates/sys/src/a.rs", text), ("crates/io/src/a.rs", text)]),
            ["crates/io/src/a.rs:2: unsafe outside crates/sys; wrap it there"]
        );
    }

    #[test]
    fn words_in_prose_and_in_longer_words_are_not_code() {
        let text = r##"
            #![deny(unsafe_code)] // unsafe println!("x")
            /* unsafe /* unsafe */ unsafe */
            /// println!("in an example");
            fn f<'a>(_: &'a str) -> [char; 2] { g("unsafe \" println!()", r#"unsafe "x" "#); ['"', '\''] }
            const B: &[u8] = br"\unsafe\";
        "##;
        assert_eq!(of_tree(&[("crates/io/src/a.rs", text)]), [""; 0]);
    }

    #[test]
    fn prints_are_for_the_command_line_and_for_tests() {
        let text = "fn f() {\n    println!(\"x\");\n    std::eprint!(\"y\");\n}\n";
        let in_tests = "fn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() { eprintln!(\"skip\"); }\n}\n\
                        fn h() { dbg!(1); }\n";
        let found = of_tree(&[
            ("crates/cli/src/main.rs", text),
            ("xtask/src/main.rs", text),
            ("crates/host/tests/lab.rs", text),
            ("crates/sys/build.rs", text),
            ("crates/host/src/a.rs", text),
            ("crates/host/src/b.rs", in_tests),
        ]);
        assert_eq!(
            found,
            [
                "crates/host/src/a.rs:2: println! outside crates/cli; return the text instead",
                "crates/host/src/a.rs:3: eprint! outside crates/cli; return the text instead",
                "crates/host/src/b.rs:6: dbg! outside crates/cli; return the text instead",
            ]
        );
    }

    #[test]
    fn path_that_reaches_into_its_neighbour_is_named() {
        let feed = "use crate::{\n    path::Load,\n    probe::{Engine, feed},\n};\nfn f() { super::super::probe::g() }\n";
        let found = of_tree(&[
            ("crates/paths/src/lib.rs", "mod feed; mod probe; use crate::probe::Probe;"),
            ("crates/paths/src/probe/mod.rs", "use crate::path::Path; use wire::probe;"),
            ("crates/paths/src/feed/mod.rs", feed),
            ("crates/paths/src/peers/mod.rs", "use crate::probe::Probe;"),
            ("crates/paths/src/probe/session.rs", "use crate::peers::Peer;"),
        ]);
        assert_eq!(
            found,
            [
                "crates/paths/src/feed/mod.rs:3: path feed refers to path probe; move what they share",
                "crates/paths/src/feed/mod.rs:5: path feed refers to path probe; move what they share",
                "crates/paths/src/peers/mod.rs:1: path peers refers to path probe; move what they share",
            ]
        );
    }

    #[test]
    fn formats_and_own_modules_may_bear_a_neighbour_s_name() {
        let found = of_tree(&[
            ("crates/paths/src/probe/mod.rs", ""),
            ("crates/paths/src/feed/mod.rs", "use wire::probe::Header; use super::probe;"),
            ("crates/paths/src/feed/probe.rs", ""),
            ("crates/paths/src/guest/mod.rs", "let x = y.probe; use wire::{frame, probe};"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn tree_without_sources_is_an_error_and_no_pass() {
        let root = tempfile::tempdir().expect("a temporary folder can be made");
        assert!(violations(root.path()).is_err());
    }
}
