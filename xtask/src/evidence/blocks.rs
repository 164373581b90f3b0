//! Marked blocks of a page: the command of a table, and the lines that its result replaces.

use std::ops::Range;

use anyhow::{Context, Result, bail};

/// Form of a block, for errors.
pub(super) const FORM: &str =
    "a block begins with the line `<!-- evidence: prove … -->` and ends with `<!-- end -->`";

const START: &str = "<!-- evidence:";
const CLOSE: &str = "-->";
const END: &str = "<!-- end -->";

/// A table that a command of the program measures.
#[derive(Debug)]
pub(super) struct Block {
    /// Line of its first marker, counted from 1.
    pub(super) line: usize,
    /// Arguments of the program.
    pub(super) words: Vec<String>,
    /// Bytes of the page between both markers.
    body: Range<usize>,
}

impl Block {
    /// The command as a user would type it.
    pub(super) fn command(&self) -> String {
        let mut command = String::from("wirepath");
        for word in &self.words {
            command.push(' ');
            if !word.is_empty() && word.chars().all(is_plain) {
                command += word;
            } else {
                command += &format!("'{word}'");
            }
        }
        command
    }
}

/// True for characters that a shell takes as they are.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || "-_=+,./:%@".contains(c)
}

/// Returns the blocks of a page in order; `name` is that of the page in errors. Fenced code is not read.
pub(super) fn parse(name: &str, text: &str) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let (mut offset, mut is_code) = (0, false);
    for (index, whole) in text.split_inclusive('\n').enumerate() {
        let (start, line) = (offset, whole.trim_end());
        offset += whole.len();
        let place = format!("{name}:{}", index + 1);
        if line.starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        if let Some(rest) = line.strip_prefix(START) {
            if let Some(before) = open {
                bail!("{place}: the block of line {} is still open; add `{END}`", before.line);
            }
            let Some(command) = rest.strip_suffix(CLOSE) else {
                bail!("{place}: the marker does not end on its line; add `{CLOSE}`");
            };
            let words = words(command).with_context(|| place.clone())?;
            open = Some(Block { line: index + 1, words, body: offset..offset });
        } else if line == END {
            let Some(mut block) = open.take() else {
                bail!("{place}: `{END}` without a block; {FORM}");
            };
            block.body.end = start;
            blocks.push(block);
        }
    }
    if let Some(block) = open {
        bail!("{name}:{}: the block has no end; add the line `{END}`", block.line);
    }
    Ok(blocks)
}

/// Returns the page with the bodies of its blocks replaced by one table each.
pub(super) fn replaced(text: &str, blocks: &[Block], tables: &[String]) -> String {
    let mut page = text.to_string();
    // From the end, so that the places of earlier blocks stay right.
    for (block, table) in blocks.iter().zip(tables).rev() {
        page.replace_range(block.body.clone(), table);
    }
    page
}

/// Splits a command at spaces; single quotes keep words together. No shell reads it.
fn words(command: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    for c in command.chars() {
        if c == '\'' {
            is_quoted = !is_quoted;
            word.get_or_insert_default();
        } else if c.is_whitespace() && !is_quoted {
            words.extend(word.take());
        } else {
            word.get_or_insert_default().push(c);
        }
    }
    words.extend(word);
    if is_quoted {
        bail!("a quote is not closed; add `'`");
    }
    if words.first().is_none_or(|first| first != "prove") {
        bail!("the command is not `prove`, which alone has a result with arms; {FORM}");
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(text: &str) -> Vec<(usize, String)> {
        let blocks = parse("page.md", text).unwrap();
        blocks.iter().map(|block| (block.line, block.command())).collect()
    }

    #[test]
    fn blocks_have_their_command_and_line() {
        let text = "# A\n\n```\n<!-- evidence: not this -->\n```\n\n\
            <!-- evidence: prove probe --load ping -->\n<!-- end -->\ntext\n\
            <!-- evidence:  prove command --server 'a -p  1' --x '' -->\r\n| t |\r\n<!-- end -->\r\n";
        let wanted = [
            (7, "wirepath prove probe --load ping"),
            (10, "wirepath prove command --server 'a -p  1' --x ''"),
        ];
        assert_eq!(commands(text), wanted.map(|(line, command)| (line, command.to_string())));
    }

    #[test]
    fn only_the_lines_between_the_markers_are_replaced() {
        let text = "a\n<!-- evidence: prove x -->\nold\n\nold\n<!-- end -->\nb\n\
            <!-- evidence: prove y -->\n<!-- end -->";
        let blocks = parse("page.md", text).unwrap();
        let tables = ["one\n".to_string(), "two\n".to_string()];
        assert_eq!(
            replaced(text, &blocks, &tables),
            "a\n<!-- evidence: prove x -->\none\n<!-- end -->\nb\n\
            <!-- evidence: prove y -->\ntwo\n<!-- end -->"
        );
    }

    #[test]
    fn errors_name_page_line_and_remedy() {
        for (text, wanted) in [
            ("a\n<!-- evidence: prove x\n", "page.md:2: the marker does not end on its line; add"),
            ("<!-- evidence: prove x -->\n", "page.md:1: the block has no end; add the line"),
            (
                "<!-- evidence: prove x -->\n<!-- evidence: prove y -->\n",
                "page.md:2: the block of line 1 is still open; add",
            ),
            ("\n<!-- end -->\n", "page.md:2: `<!-- end -->` without a block; a block begins"),
            (
                "<!-- evidence: prove 'x -->\n<!-- end -->\n",
                "page.md:1: a quote is not closed; add",
            ),
            ("<!-- evidence: history prune --yes -->\n", "page.md:1: the command is not `prove`"),
            ("<!-- evidence: -->\n<!-- end -->\n", "page.md:1: the command is not `prove`"),
        ] {
            let error = format!("{:#}", parse("page.md", text).unwrap_err());
            assert!(error.starts_with(wanted), "{error}");
        }
    }
}
