//! Rules that read the tokens of one file.
//!
//! Token trees, and not a syntax tree: a parser does not look into `assert!`, `vec!` or `macro_rules!`, where a
//! third of the messages and many closures are.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::{Finding, Rule};
use crate::sources::Source;

/// Names that say nothing by themselves.
const PREPOSITIONS: [&str; 26] = [
    "of", "with", "at", "by", "from", "on", "to", "into", "per", "over", "under", "after",
    "before", "between", "within", "without", "via", "than", "until", "since", "beside", "behind",
    "above", "below", "through", "onto",
];

/// Last words of a duration's name that say what it limits or repeats.
const TIMING_NOUNS: [&str; 16] = [
    "INTERVAL", "TIMEOUT", "LIMIT", "GRACE", "PERIOD", "DELAY", "DEADLINE", "AGE", "DURATION",
    "TIME", "WINDOW", "STEP", "MIN", "MAX", "LENGTH", "BUDGET",
];

/// Words of a comment that add nothing to the name of the item below.
const FILLERS: [&str; 12] =
    ["the", "a", "an", "of", "its", "this", "returns", "return", "gets", "is", "for", "in"];

/// Returns what the file breaks of the rules that need no other file.
pub(super) fn find(source: &Source, stream: &TokenStream) -> Vec<Finding> {
    let mut finder = Finder { source, findings: Vec::new() };
    finder.level(stream);
    finder.findings
}

struct Finder<'a> {
    source: &'a Source,
    findings: Vec<Finding>,
}

impl Finder<'_> {
    /// Looks through the tokens of one group or file, and then through the groups among them.
    fn level(&mut self, stream: &TokenStream) {
        let tokens: Vec<TokenTree> = stream.clone().into_iter().collect();
        for index in 0..tokens.len() {
            let rest = &tokens[index..];
            match &tokens[index] {
                TokenTree::Ident(word) if word == "let" => self.closure(rest),
                TokenTree::Ident(word) if word == "match" => self.bool_match(rest),
                TokenTree::Ident(word) if word == "fn" => self.function(&tokens[..index], rest),
                TokenTree::Ident(word) if word == "const" => self.timing(rest),
                TokenTree::Literal(_) => self.message(&tokens[index]),
                TokenTree::Punct(_)
                    if doc_text(rest).is_some()
                        && (index < 2 || doc_text(&tokens[index - 2..]).is_none()) =>
                {
                    self.comment(rest);
                }
                TokenTree::Group(group) if !is_doc(group) => self.level(&group.stream()),
                _ => {}
            }
        }
    }

    fn report(&mut self, rule: Rule, token: &TokenTree, text: impl Into<String>) {
        self.findings.push(Finding {
            rule,
            package: self.source.package.clone(),
            file: self.source.file.clone(),
            line: token.span().start().line,
            text: text.into(),
        });
    }

    /// `let NAME = |…| …;`
    fn closure(&mut self, tokens: &[TokenTree]) {
        let Some((name, body)) = named_closure(tokens) else { return };
        self.report(Rule::NamedClosure, &tokens[0], &name);
        if PREPOSITIONS.contains(&name.as_str()) {
            self.report(Rule::PrepositionClosure, &tokens[0], &name);
        }
        for nested in closures(body) {
            self.report(Rule::NestedClosure, &nested, &name);
        }
    }

    /// `match … { true => …`
    fn bool_match(&mut self, tokens: &[TokenTree]) {
        let arms = tokens.iter().find_map(|token| match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let arms: Vec<TokenTree> = group.stream().into_iter().collect();
                arms.windows(2).any(is_arrow).then_some(arms)
            }
            _ => None,
        });
        let arms = arms.unwrap_or_default();
        let is_bool = (0..arms.len()).any(|index| {
            let begins =
                index == 0 || is_punct(&arms[index - 1], ',') || is_block(&arms[index - 1]);
            begins
                && (is_word(&arms[index], "true") || is_word(&arms[index], "false"))
                && arms.get(index + 1..index + 3).is_some_and(is_arrow)
        });
        if is_bool {
            self.report(Rule::BoolMatch, &tokens[0], "match on a bool");
        }
    }

    fn function(&mut self, before: &[TokenTree], tokens: &[TokenTree]) {
        let Some(TokenTree::Ident(name)) = tokens.get(1) else { return };
        let name = name.to_string();
        if name == "of" || name.starts_with("of_") || name.ends_with("_of") {
            self.report(Rule::OfFunction, &tokens[0], &name);
        }
        if is_public(before) && returns_string_error(tokens) {
            self.report(Rule::StringError, &tokens[0], &name);
        }
    }

    /// `const NAME: Duration =`
    fn timing(&mut self, tokens: &[TokenTree]) {
        let Some(TokenTree::Ident(name)) = tokens.get(1) else { return };
        let name = name.to_string();
        let kind = tokens.iter().skip(2).take_while(|token| !is_punct(token, '='));
        let is_duration = kind.last().is_some_and(|token| is_word(token, "Duration"));
        let last_word = name.rsplit('_').next().unwrap_or(&name);
        if is_duration && (!TIMING_NOUNS.contains(&last_word) || name == "GRACE") {
            self.report(Rule::BareTiming, &tokens[0], &name);
        }
    }

    fn message(&mut self, literal: &TokenTree) {
        let text = literal.to_string();
        if text.ends_with('"') && says_is_no(&text) {
            self.report(Rule::IsNo, literal, text);
        }
    }

    /// A doc comment and the item below it.
    fn comment(&mut self, tokens: &[TokenTree]) {
        let Some(text) = doc_text(tokens) else { return };
        if doc_text(&tokens[2..]).is_some() {
            return;
        }
        let Some(name) = item_name(&tokens[2..]) else { return };
        let name: Vec<String> = words(&split_name(&name));
        let mut said = words(&text);
        said.retain(|word| !FILLERS.contains(&word.as_str()));
        let is_link = text.contains('`');
        if !is_link && !said.is_empty() && said.iter().all(|word| name.contains(word)) {
            self.report(Rule::EchoComment, &tokens[0], text.trim());
        }
    }
}

/// Returns the name and the body of the closure that a `let` statement defines.
fn named_closure(tokens: &[TokenTree]) -> Option<(String, &[TokenTree])> {
    let mut index = 1;
    index += usize::from(is_word(tokens.get(index)?, "mut"));
    let TokenTree::Ident(name) = tokens.get(index)? else { return None };
    index += 1;
    if is_punct(tokens.get(index)?, ':') {
        index += tokens[index..].iter().position(|token| is_punct(token, '='))?;
    }
    if !is_punct(tokens.get(index)?, '=') {
        return None;
    }
    index += 1;
    while is_punct(tokens.get(index)?, '&')
        || is_word(&tokens[index], "mut")
        || is_word(&tokens[index], "move")
        || is_word(&tokens[index], "async")
    {
        index += 1;
    }
    if !is_punct(tokens.get(index)?, '|') {
        return None;
    }
    let parameters = &tokens[index + 1..];
    let end = parameters.iter().position(|token| is_punct(token, '|'))?;
    let body = &parameters[end + 1..];
    let end = body.iter().position(|token| is_punct(token, ';')).unwrap_or(body.len());
    Some((name.to_string(), &body[..end]))
}

/// Returns the first token of each closure among `tokens`.
fn closures(tokens: &[TokenTree]) -> Vec<TokenTree> {
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => {
                found.extend(closures(&group.stream().into_iter().collect::<Vec<_>>()));
            }
            _ if is_punct(token, '|') && begins_expression(&tokens[..index]) => {
                found.push(token.clone());
            }
            _ => {}
        }
    }
    found
}

/// A `|` after these tokens opens a closure: it is neither an operator nor part of a pattern.
fn begins_expression(before: &[TokenTree]) -> bool {
    let Some(last) = before.last() else { return true };
    ["move", "return", "async"].iter().any(|word| is_word(last, word))
        || [',', '=', ';', '&', ':'].iter().any(|&punct| is_punct(last, punct))
        || before.len() >= 2 && is_arrow(&before[before.len() - 2..])
}

/// `pub fn`, `pub(crate) fn`, with `const`, `async`, `unsafe` or `extern "C"` between.
fn is_public(before: &[TokenTree]) -> bool {
    let mut before = before.iter().rev().skip_while(|token| {
        ["const", "async", "unsafe", "extern"].iter().any(|word| is_word(token, word))
            || matches!(token, TokenTree::Literal(_))
    });
    match before.next() {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
            before.next().is_some_and(|token| is_word(token, "pub"))
        }
        last => last.is_some_and(|token| is_word(token, "pub")),
    }
}

/// The function whose tokens begin with `fn` returns `Result<…, String>`.
fn returns_string_error(tokens: &[TokenTree]) -> bool {
    let signature = tokens.iter().take_while(|token| !is_block(token) && !is_punct(token, ';'));
    let signature: Vec<&TokenTree> = signature.collect();
    let Some(arrow) =
        signature.windows(2).position(|pair| is_punct(pair[0], '-') && is_punct(pair[1], '>'))
    else {
        return false;
    };
    let returned = &signature[arrow + 2..];
    let Some(start) = returned.iter().position(|token| is_word(token, "Result")) else {
        return false;
    };
    let mut depth = 0;
    for (index, token) in returned.iter().enumerate().skip(start + 1) {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '<' => depth += 1,
            TokenTree::Punct(punct) if punct.as_char() == '>' => depth -= 1,
            TokenTree::Punct(punct) if punct.as_char() == ',' && depth == 1 => {
                return returned.get(index + 1).is_some_and(|token| is_word(token, "String"));
            }
            _ => {}
        }
    }
    false
}

/// "X is no Y"; not "there is no Y", "is no longer", "is no worse".
fn says_is_no(literal: &str) -> bool {
    let text = literal.replace("\\\n", " ");
    let words: Vec<&str> = text.split([' ', '\n', '\t', '"']).filter(|w| !w.is_empty()).collect();
    words.windows(2).enumerate().any(|(index, pair)| {
        let subject = index.checked_sub(1).map(|index| words[index].to_lowercase());
        let next = words.get(index + 2).copied().unwrap_or_default();
        let next = next.trim_end_matches(|c: char| !c.is_alphanumeric());
        matches!(pair, ["is" | "are", "no"])
            && subject.is_none_or(|subject| subject != "there")
            && !next.ends_with("er")
            && !["more", "less", "worse", "way", ""].contains(&next)
    })
}

/// The text of the doc comment that begins the tokens.
fn doc_text(tokens: &[TokenTree]) -> Option<String> {
    let [TokenTree::Punct(hash), TokenTree::Group(group), ..] = tokens else { return None };
    if hash.as_char() != '#' || !is_doc(group) {
        return None;
    }
    let literal = group.stream().into_iter().nth(2)?.to_string();
    Some(literal.trim_start_matches('r').trim_matches(['#', '"']).to_owned())
}

/// `[doc = …]`
fn is_doc(group: &Group) -> bool {
    let first = group.stream().into_iter().next();
    group.delimiter() == Delimiter::Bracket && first.is_some_and(|token| is_word(&token, "doc"))
}

/// The name of the item, field or variant that begins the tokens, after its attributes.
fn item_name(tokens: &[TokenTree]) -> Option<String> {
    const KEYWORDS: [&str; 14] = [
        "pub",
        "const",
        "async",
        "unsafe",
        "extern",
        "fn",
        "struct",
        "enum",
        "trait",
        "type",
        "static",
        "mod",
        "mut",
        "macro_rules",
    ];
    let is_prefix = |token: &&TokenTree| match token {
        TokenTree::Ident(word) => KEYWORDS.contains(&word.to_string().as_str()),
        TokenTree::Punct(punct) => ['#', '!'].contains(&punct.as_char()),
        TokenTree::Group(group) => group.delimiter() != Delimiter::Brace,
        TokenTree::Literal(_) => true,
    };
    match tokens.iter().find(|token| !is_prefix(token))? {
        TokenTree::Ident(name) => Some(name.to_string()),
        _ => None,
    }
}

/// `FrameCount` and `frame_count` as `frame count`.
fn split_name(name: &str) -> String {
    let mut split = String::new();
    let mut before = ' ';
    for c in name.chars() {
        if c.is_uppercase() && before.is_lowercase() {
            split.push(' ');
        }
        split.push(if c == '_' { ' ' } else { c });
        before = c;
    }
    split
}

/// Words in lower case, without the ending of a plural.
fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(|word| word.to_lowercase().trim_end_matches('s').to_owned()).collect()
}

pub(super) fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

pub(super) fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

/// `=>`
fn is_arrow(pair: &[TokenTree]) -> bool {
    is_punct(&pair[0], '=') && is_punct(&pair[1], '>')
}

fn is_block(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}
