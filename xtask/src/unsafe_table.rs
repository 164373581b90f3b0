//! The table of unsafe code: every block, what makes it sound, and what holds it to that.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use syn::visit::{self, Visit};

use crate::source::rust_files;

/// Where the table is, below the workspace's folder.
const TABLE: &str = "docs/unsafe.md";

/// Folders with sources of ours.
const TOPS: &[&str] = &["crates", "guest", "guest-x86"];

/// By the beginning of a file's path, the longest that fits: the tests, models and checks that run
/// its unsafe code and fail when what it relies on does not hold.
const COVERED: &[(&str, &str)] = &[
    ("crates/sys/src/affinity.rs", "unit tests; `crates/host/tests/lab.rs` (ends on their CPUs)"),
    (
        "crates/sys/src/bpf/",
        "`crates/sys/tests/bpf_programs` (every program against real frames, kills, faults); `crates/cli/tests/explain.rs`; `crates/host/tests/doctor.rs`",
    ),
    ("crates/sys/src/capability.rs", "unit tests; `crates/cli/tests/rights.rs`"),
    ("crates/sys/src/child.rs", "unit tests; `crates/cli/tests/kill.rs` (children end with us)"),
    ("crates/sys/src/clock.rs", "unit tests"),
    (
        "crates/sys/src/kvm/",
        "`crates/paths/tests/vmnic` (real guests, hostile guests, exits against the kernel's counts); unit tests of `ram.rs` and `event.rs`, also under Miri; fuzz target `lance`",
    ),
    (
        "crates/sys/src/mmap.rs",
        "`crates/paths/tests/engines.rs` and `ledger.rs` (every frame of a ring accounted for)",
    ),
    ("crates/sys/src/multicast.rs", "unit tests; `crates/cli/tests/feed_live.rs`"),
    (
        "crates/sys/src/netns.rs",
        "unit tests; `crates/host/tests/lab.rs`, `crates/host/tests/kill.rs`",
    ),
    (
        "crates/sys/src/packet.rs",
        "`crates/paths/tests/engines.rs`, `ledger.rs`; `crates/cli/tests/two_namespaces.rs`",
    ),
    ("crates/sys/src/perf.rs", "`crates/cli/tests/explain.rs`"),
    ("crates/sys/src/poll.rs", "unit tests"),
    ("crates/sys/src/pty.rs", "unit tests; `crates/paths/tests/feed_prove.rs` (a serial clock)"),
    ("crates/sys/src/rusage.rs", "unit tests (CPU time of known work)"),
    ("crates/sys/src/sched.rs", "unit tests; `crates/paths/tests/feed_prove.rs`"),
    (
        "crates/sys/src/socket.rs",
        "`crates/paths/tests/engines.rs`; `crates/cli/tests/two_namespaces.rs`",
    ),
    ("crates/sys/src/sysfs.rs", "unit tests; `crates/host/tests/tune`"),
    (
        "crates/sys/src/tap.rs",
        "`crates/paths/tests/guest/tap.rs`; `crates/cli/tests/tunnel_run.rs`",
    ),
    (
        "crates/sys/src/udp.rs",
        "unit tests; `crates/paths/tests/engines.rs` (segments, stamps, overflow)",
    ),
    (
        "crates/sys/src/xsk/",
        "`crates/sys/tests/ring_model` (every interleaving of a ring's two ends); unit tests of `pool.rs`, `plain.rs` and `umem.rs`, also under Miri; `crates/paths/tests/ledger.rs` (no frame lost or twice); `crates/paths/tests/engines.rs`",
    ),
    (
        "guest/board-virt/",
        "`cargo xtask firmware` and `crates/paths/tests/guest` (boots, answers, counts in QEMU), its self-test `wirepath guest bench selftest`",
    ),
    (
        "guest/dma/",
        "`guest/dma/tests`, also under Miri; `crates/paths/tests/guest` and `crates/paths/tests/vmnic` (rings and frames of both guests lie in it)",
    ),
    (
        "guest/kernel/",
        "host unit tests of scheduler and bitmap; `wirepath guest bench selftest` (all registers over 10,000 switches, guard page, nesting)",
    ),
    ("guest/reference/", "`crates/paths/tests/guest` (peer `virtio-drivers` in QEMU)"),
    (
        "guest-x86/",
        "`crates/paths/tests/vmnic` (each driver mode in a real guest, streams by SHA-256)",
    ),
];

/// Writes the table, or, when `is_check`, fails if it is not what the sources say.
pub(crate) fn run(root: &Path, is_check: bool) -> Result<()> {
    let table = table(root)?;
    let file = root.join(TABLE);
    if !is_check {
        return fs::write(&file, table).with_context(|| format!("writing {TABLE}"));
    }
    let kept = fs::read_to_string(&file).with_context(|| format!("reading {TABLE}"))?;
    if kept != table {
        bail!("{TABLE} is not what the sources say; run: cargo xtask unsafe");
    }
    println!("unsafe: {TABLE} is what the sources say");
    Ok(())
}

fn table(root: &Path) -> Result<String> {
    let mut files = Vec::new();
    for top in TOPS {
        rust_files(root, &root.join(top), &mut files)?;
    }
    files.sort();
    let (mut body, mut total, mut unsound) = (String::new(), 0, Vec::new());
    for file in files.iter().filter(|file| !file.contains("/tests/")) {
        let text =
            fs::read_to_string(root.join(file)).with_context(|| format!("reading {file}"))?;
        let found = uses(&text).with_context(|| format!("parsing {file}"))?;
        if found.is_empty() {
            continue;
        }
        let covered = COVERED.iter().filter(|(begin, _)| file.starts_with(begin));
        let Some((_, covered)) = covered.max_by_key(|(begin, _)| begin.len()) else {
            unsound.push(format!("{file}: xtask/src/unsafe_table.rs does not say what covers it"));
            continue;
        };
        let _ = write!(body, "\n## {file}\n\nHeld to it by: {covered}.\n\n");
        body.push_str("| Where | What | Sound because |\n|---|---|---|\n");
        for Use { line, within, kind, reason } in found {
            let Some(reason) = reason else {
                unsound.push(format!("{file}:{line}: {kind} of {within} gives no reason"));
                continue;
            };
            total += 1;
            let _ = writeln!(body, "| `{within}` | {kind} | {} |", reason.replace('|', "\\|"));
        }
    }
    if !unsound.is_empty() {
        bail!("{}", unsound.join("\n"));
    }
    if total == 0 {
        bail!("no unsafe code found in {}: that cannot be", TOPS.join(", "));
    }
    Ok(format!(
        "# Unsafe code\n\nEvery unsafe block, function and implementation outside of tests: {total} of \
         them. In the workspace\nthey are all in `crates/sys`; the two guests have theirs where they \
         touch registers, page tables and\ndevice memory. Written by `cargo xtask unsafe` from the \
         sources; CI fails when it is out of date or\nwhen one gives no reason.\n{body}"
    ))
}

/// One place where the compiler takes our word.
struct Use {
    line: usize,
    /// Function or type.
    within: String,
    kind: &'static str,
    reason: Option<String>,
}

/// The uses in a file, in its order, without those of its tests.
fn uses(text: &str) -> Result<Vec<Use>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut finder = Finder { lines: &lines, scope: Vec::new(), of: None, found: Vec::new() };
    finder.visit_file(&syn::parse_file(text)?);
    finder.found.sort_by_key(|found| found.line);
    Ok(finder.found)
}

struct Finder<'a> {
    lines: &'a [&'a str],
    scope: Vec<String>,
    /// The trait that is being implemented.
    of: Option<String>,
    found: Vec<Use>,
}

impl Finder<'_> {
    fn found(&mut self, line: usize, kind: &'static str, reason: Option<String>) {
        let within = match self.scope.join("::") {
            top if top.is_empty() => "(file)".to_owned(),
            within => within,
        };
        self.found.push(Use { line, within, kind, reason });
    }

    fn within(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.scope.push(name);
        visit(self);
        self.scope.pop();
    }

    /// The comment with `SAFETY:` above the statement that a line, counted from one, is of.
    fn comment(&self, line: usize) -> Option<String> {
        let above = || self.lines[..line - 1].iter().rev().map(|line| line.trim());
        let is_of_the_statement =
            |line: &&str| !line.starts_with("//") && !line.ends_with([';', '{', '}']);
        let skipped = above().take_while(is_of_the_statement).count();
        let mut said: Vec<_> = above()
            .skip(skipped)
            .map_while(|line| line.strip_prefix("//"))
            .map(str::trim)
            .collect();
        said.reverse();
        let begin = said.iter().position(|line| line.starts_with("SAFETY:"))?;
        let said = said[begin..].join(" ");
        Some(said.trim_start_matches("SAFETY:").trim().to_owned())
    }

    fn function(&mut self, signature: &syn::Signature, attributes: &[syn::Attribute]) {
        let Some(word) = &signature.unsafety else { return };
        let docs: Vec<_> = attributes.iter().filter_map(doc).collect();
        let reason = docs
            .iter()
            .position(|line| line.trim() == "# Safety")
            .map(|at| docs[at + 1..].iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "))
            .map(|said| format!("asks of its caller: {}", said.trim()));
        let line = word.span.start().line;
        let contract = || Some(format!("asks what `{}` asks of callers", self.of.as_ref()?));
        self.found(line, "function", reason.or_else(|| self.comment(line)).or_else(contract));
    }
}

fn doc(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(value) = &pair.value else { return None };
    match &value.lit {
        syn::Lit::Str(text) if pair.path.is_ident("doc") => Some(text.value()),
        _ => None,
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => {
            attribute.path().is_ident("cfg") && list.tokens.to_string().starts_with("test")
        }
        _ => attribute.path().is_ident("test"),
    })
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            self.within(item.ident.to_string(), |this| visit::visit_item_mod(this, item));
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.within(item.sig.ident.to_string(), |this| {
            this.function(&item.sig, &item.attrs);
            visit::visit_item_fn(this, item);
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.within(item.sig.ident.to_string(), |this| {
            this.function(&item.sig, &item.attrs);
            visit::visit_impl_item_fn(this, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.within(item.sig.ident.to_string(), |this| {
            this.function(&item.sig, &item.attrs);
            visit::visit_trait_item_fn(this, item);
        });
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|s| s.ident.to_string()),
            _ => None,
        };
        let of = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        self.of = of.map(|of| of.ident.to_string());
        self.within(name.unwrap_or_else(|| "a type".into()), |this| {
            if let (Some(word), Some(of)) = (&item.unsafety, this.of.clone()) {
                let line = word.span.start().line;
                this.within(of, |this| this.found(line, "implementation", this.comment(line)));
            }
            visit::visit_item_impl(this, item);
        });
        self.of = None;
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        let line = block.unsafe_token.span.start().line;
        self.found(line, "block", self.comment(line));
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_foreign_item_fn(&mut self, _: &'ast syn::ForeignItemFn) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
struct A;
// SAFETY: nothing in it.
unsafe impl Send for A {}
impl A {
    /// Takes.
    ///
    /// # Safety
    /// `p` is
    /// valid.
    unsafe fn take(&self, p: *const u8) -> u8 {
        // SAFETY: the caller says so,
        // and nobody else.
        let first = unsafe { *p };
        first
    }
}
fn bare(p: *const u8) -> u8 { unsafe { *p } }
#[cfg(test)]
mod tests { fn f(p: *const u8) -> u8 { unsafe { *p } } }
";

    #[test]
    fn each_use_is_found_with_its_reason_and_tests_are_left_out() {
        let found = uses(SOURCE).unwrap();
        let shown: Vec<_> =
            found.iter().map(|u| (u.within.as_str(), u.kind, u.reason.as_deref())).collect();
        assert_eq!(
            shown,
            [
                ("A::Send", "implementation", Some("nothing in it.")),
                ("A::take", "function", Some("asks of its caller: `p` is valid.")),
                ("A::take", "block", Some("the caller says so, and nobody else.")),
                ("bare", "block", None),
            ]
        );
    }
}
