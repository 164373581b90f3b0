use std::path::PathBuf;

use super::*;

fn source(file: &str, text: &str) -> Source {
    let package = file.split("/src").next().unwrap_or(file).to_owned();
    Source { file: PathBuf::from(file), package, text: text.to_owned() }
}

/// Findings in one file: the rule's name, the line and the text.
fn found(text: &str) -> Vec<(&'static str, usize, String)> {
    let findings = find_in_sources(&[source("crates/a/src/x.rs", text)]).unwrap();
    findings.into_iter().map(|found| (found.rule.name(), found.line, found.text)).collect()
}

fn lines(rule: Rule, text: &str) -> Vec<usize> {
    let findings = found(text).into_iter().filter(|(name, ..)| *name == rule.name());
    findings.map(|(_, line, _)| line).collect()
}

#[test]
fn closures_with_a_name_are_found_in_functions_and_macros() {
    let text = "fn f() {\n let a = |x| x;\n let mut b = move || 1;\n let c: &dyn Fn() = &|| ();\n\
                assert!({ let d = |x: Vec<u8>| x; true });\n let e = x | y;\n s.map(|x| x);\n}";
    assert_eq!(lines(Rule::NamedClosure, text), [2, 3, 4, 5]);
}

#[test]
fn closures_named_by_a_preposition_are_found() {
    let text = "fn f() {\n let of = |x| x;\n let often = |x| x;\n let with = move || ();\n}";
    assert_eq!(lines(Rule::PrepositionClosure, text), [2, 4]);
}

#[test]
fn closures_within_named_closures_are_found() {
    let text = "fn f() {\n let a = |x| {\n  x.map(|y| y | 1).or_else(move || 2)\n };\n\
                let b = |x| match x {\n 1 | 2 => 3,\n _ => g(|| 4),\n };\n b(|x| x);\n}";
    assert_eq!(lines(Rule::NestedClosure, text), [3, 3, 7]);
}

#[test]
fn matches_on_a_bool_are_found() {
    let text = "fn f() {\n match a { true => 1, false => 2 };\n match unsafe { b } { false if c => {} _ => {} }\n\
                match d { Some(true) => 1, x => false, };\n match e { 0 => true, _ => false };\n\
                match g { _ if h => {} true => {} }\n}";
    assert_eq!(lines(Rule::BoolMatch, text), [2, 6]);
}

#[test]
fn functions_named_by_of_are_found() {
    let text =
        "fn of() {}\npub fn of_host() {}\nfn name_of(f: fn(u8)) {}\nfn offer() {}\nfn proof() {}";
    assert_eq!(lines(Rule::OfFunction, text), [1, 2, 3]);
}

#[test]
fn durations_without_a_noun_are_found() {
    let text = "const LOOK: Duration = S;\npub const GRACE: std::time::Duration = S;\n\
                const STOP_GRACE: Duration = S;\nconst START_TIMEOUT: Duration = S;\nconst LONG: u64 = 1;";
    assert_eq!(lines(Rule::BareTiming, text), [1, 2]);
}

#[test]
fn public_functions_with_a_text_as_error_are_found() {
    let text = "pub fn a() -> Result<u8, String> {}\npub(crate) const fn b() -> io::Result<Vec<u8>> {}\n\
                fn c() -> Result<u8, String> {}\npub(super) async fn d(x: u8) -> Option<Result<Vec<(u8, String)>, String>> {}\n\
                pub fn e() -> Result<BTreeMap<u8, String>, Error> {}\npub fn f() -> Result<u8, Error> { let x: Result<u8, String>; }";
    assert_eq!(lines(Rule::StringError, text), [1, 4]);
}

#[test]
fn messages_that_say_is_no_are_found() {
    let text = "#[error(\"{0:?} is no name\")]\nfn f() { bail!(\"x are no \\\n numbers\") }\n\
                /// This is no name.\nfn g() { (\"there is no room\", \"is no longer\", \"is no worse\", \"is no\") }";
    assert_eq!(lines(Rule::IsNo, text), [1, 2]);
}

#[test]
fn comments_that_repeat_the_name_are_found() {
    let text = "/// The frame count.\npub frame_count: u64,\n/// Returns the port.\n#[must_use]\npub(crate) fn port() {}\n\
                /// The port, in host order.\nport: u16,\n/// A frame.\n/// It moves.\nstruct Frame;\n/// Open sockets.\nstruct OpenSocket;";
    assert_eq!(lines(Rule::EchoComment, text), [1, 3, 11]);
}

#[test]
fn a_name_of_types_in_two_packages_counts_once() {
    let one = "pub struct Report;\nimpl Parse for Report { type Output = u8; }\npub struct Alone;\nstruct Private;";
    let other = "pub enum Report {}\npub type Output = u8;\npub(crate) struct Private;\n\n\
                 #[cfg(test)]\nmod tests {\n pub struct Alone;\n}\n";
    let sources = [source("crates/a/src/x.rs", one), source("crates/b/src/y.rs", other)];
    let findings = find_in_sources(&sources).unwrap();
    let collisions: Vec<String> = findings.into_iter().map(|finding| finding.text).collect();
    assert_eq!(collisions, ["Report in crates/a, crates/b"]);
}

#[test]
fn a_file_that_is_not_rust_is_named() {
    let error = find_in_sources(&[source("crates/a/src/x.rs", "fn f( {")]).unwrap_err();
    assert!(error.to_string().starts_with("crates/a/src/x.rs: "), "{error}");
}

fn ledger(text: &str) -> Counts {
    parse_ledger(text).unwrap()
}

#[test]
fn numbers_of_the_ledger_only_fall() {
    let allowed = ledger("bool-match\ta\t3\nbool-match\tb\t2\nis-no\ta\t1\n");
    let counts = ledger("bool-match\ta\t1\nbool-match\tb\t5\nof-function\ta\t1\n");
    assert_eq!(lowered(&counts, &allowed), "bool-match\ta\t1\nbool-match\tb\t2\n");
    let over = differing(&counts, &allowed, |count, limit| count > limit);
    assert_eq!(
        list(&over, &counts, &allowed),
        "bool-match in b: 5, not 2; of-function in a: 1, not 0"
    );
}

#[test]
fn a_ledger_with_an_unknown_rule_or_no_number_is_refused() {
    for line in ["bool-match\ta", "bool\ta\t1", "is-no\ta\tx"] {
        let error = parse_ledger(line).unwrap_err().to_string();
        assert!(error.starts_with(".ci/tidy.tsv:1: "), "{error}");
    }
}
