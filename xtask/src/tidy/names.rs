//! Names of types that more than one package offers to others: private ones never meet in one file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use proc_macro2::{TokenStream, TokenTree};

use super::tokens::is_word;
use super::{Finding, Rule, WHOLE_TREE};
use crate::sources::Source;

/// Where each type of the product is defined.
#[derive(Default)]
pub(super) struct Types(BTreeMap<String, BTreeSet<Definition>>);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Definition {
    package: String,
    file: PathBuf,
    line: usize,
}

impl Types {
    /// Adds the types of a file that are no part of its tests.
    pub(super) fn add(&mut self, source: &Source, stream: &TokenStream) {
        // The firmware's packages and the chores meet no other.
        if ["vm/firmware", "xtask"].iter().any(|apart| source.package.starts_with(apart)) {
            return;
        }
        self.add_level(source, stream, source.product_line_count());
    }

    fn add_level(&mut self, source: &Source, stream: &TokenStream, line_count: usize) {
        let tokens: Vec<TokenTree> = stream.clone().into_iter().collect();
        let is_keyword = |token: &TokenTree| {
            ["struct", "enum", "trait", "type"].iter().any(|word| is_word(token, word))
        };
        let mut is_member = false;
        for (index, token) in tokens.iter().enumerate() {
            let line = token.span().start().line;
            match token {
                TokenTree::Ident(word) if word == "impl" => is_member = true,
                TokenTree::Ident(word) if word == "fn" => is_member = false,
                TokenTree::Group(group) if group.delimiter() == proc_macro2::Delimiter::Brace => {
                    if !is_member {
                        self.add_level(source, &group.stream(), line_count);
                    }
                    is_member = false;
                }
                _ => {}
            }
            if let (true, Some(TokenTree::Ident(name))) = (is_keyword(token), tokens.get(index + 1))
                && line <= line_count
            {
                is_member = is_word(token, "trait");
                if index > 0 && is_word(&tokens[index - 1], "pub") {
                    let (package, file) = (source.package.clone(), source.file.clone());
                    let definition = Definition { package, file, line };
                    self.0.entry(name.to_string()).or_default().insert(definition);
                }
            }
        }
    }

    /// One finding for each name, at its first place.
    pub(super) fn collisions(self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (name, definitions) in self.0 {
            let packages: BTreeSet<&str> =
                definitions.iter().map(|definition| definition.package.as_str()).collect();
            if packages.len() > 1 {
                let first = definitions.first().expect("a name has a definition");
                let packages = packages.into_iter().collect::<Vec<_>>().join(", ");
                findings.push(Finding {
                    rule: Rule::NameCollision,
                    package: WHOLE_TREE.to_owned(),
                    file: first.file.clone(),
                    line: first.line,
                    text: format!("{name} in {packages}"),
                });
            }
        }
        findings
    }
}
