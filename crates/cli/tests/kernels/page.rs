//! docs/reference/kernels.md.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::features::{Feature, Outcome};

/// Results of one kernel.
pub(crate) struct Column {
    /// Suite of Debian.
    pub(crate) from: String,
    pub(crate) kernel: String,
    pub(crate) outcomes: Vec<Outcome>,
}

const HEAD: &str = "# Kernels

What each kernel offers to this program, tried by `cargo xtask kernels`: Debian's kernels boot in QEMU (TCG) with the
program and a pair of virtio-net cards behind an IOMMU, and each command of the table runs there. *yes*: it did its work,
and every datagram was answered, in one of three tries. A number is a message below: the feature is missing, each try lost
datagrams, or it had no effect (*off*).
`.ci/nightly` repeats it. Cards: [nics.md](../nics.md).

";

/// Writes the page if `UPDATE=1`.
pub(crate) fn check(features: &[Feature], columns: &[Column]) {
    let text = page(features, columns, &date());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/kernels.md");
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&file, text).expect("the page is written");
        return;
    }
    let rows = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("| ")).skip(1).map(str::to_owned).collect()
    };
    let before = std::fs::read_to_string(&file).expect("the page");
    assert_eq!(rows(&before), rows(&text), "run `cargo xtask kernels` and review the difference");
}

fn date() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output().expect("date runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn page(features: &[Feature], columns: &[Column], date: &str) -> String {
    let mut text = HEAD.to_owned();
    let kernels: Vec<String> =
        columns.iter().map(|c| format!("{} ({}) |", c.kernel, c.from)).collect();
    let _ = writeln!(text, "{date}, version {}:\n", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(text, "| feature | command | {}", kernels.join(" "));
    let _ = writeln!(text, "|---|---|{}", "---|".repeat(columns.len()));
    let mut messages = Vec::new();
    for (n, feature) in features.iter().enumerate() {
        let cells: Vec<String> =
            columns.iter().map(|c| cell(&c.outcomes[n], &mut messages)).collect();
        let _ =
            writeln!(text, "| {} | `{}` | {} |", feature.name, feature.command, cells.join(" | "));
    }
    if !messages.is_empty() {
        text.push_str("\nMessages:\n\n");
    }
    for (n, message) in messages.iter().enumerate() {
        let _ = writeln!(text, "{}. `{}`", n + 1, message.replace('`', "'"));
    }
    text
}

/// A result, and the number of its message.
fn cell(outcome: &Outcome, messages: &mut Vec<String>) -> String {
    let mut number = |message: &String| {
        let known = messages.iter().position(|known| known == message);
        known.unwrap_or_else(|| {
            messages.push(message.clone());
            messages.len() - 1
        }) + 1
    };
    match outcome {
        Outcome::Works => "yes".to_owned(),
        Outcome::WithoutEffect(message) => format!("off ({})", number(message)),
        Outcome::Refused(message) => format!("no ({})", number(message)),
        Outcome::Lost(count) => format!("no ({})", number(&format!("{count} of 50 answers"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features;

    #[test]
    fn equal_messages_have_one_number() {
        let features = features::all();
        let refused = |text: &str| Outcome::Refused(text.to_owned());
        let column = |first: Outcome| {
            let mut outcomes = vec![Outcome::Works; features.len()];
            outcomes[0] = first;
            outcomes[1] = refused("a");
            Column { from: "bookworm".into(), kernel: "6.1".into(), outcomes }
        };
        let columns = [column(Outcome::WithoutEffect("b".into())), column(refused("a"))];
        let text = page(&features, &columns, "2026-11-25");
        assert!(text.contains("`wirepath paths` | off (1) | no (2) |"), "{text}");
        assert!(text.ends_with("Messages:\n\n1. `b`\n2. `a`\n"), "{text}");
    }
}
