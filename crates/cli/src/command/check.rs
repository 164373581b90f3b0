//! `prove command --check`.

use std::fmt::Write;

use command::{Problem, Spec};
use model::{Arm, Programs, Support};
use remote::Failure;

use crate::console;
use crate::context::Context;
use crate::signals;

/// Errors: every mistake, in one message.
pub(super) fn refuse(problems: &[Problem]) -> Result<(), Failure> {
    if problems.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> =
        problems.iter().map(|problem| format!("{}: {}", problem.part, problem.why)).collect();
    Err(Failure::Usage(format!("the experiment would fail: {}", lines.join("; "))))
}

/// Prints the arms and the figures that decide; with `--json`, the experiment as a document.
///
/// Errors: every mistake, in one message.
pub(super) fn run(
    context: &Context,
    experiment: &Programs,
    spec: &Spec,
    arms: &[(Arm, Support)],
) -> Result<(), Failure> {
    refuse(&command::check(spec, signals::stop_flag()))?;
    if context.json {
        return console::json(experiment);
    }
    let mut text = String::from("no mistake found; nothing was run\n");
    for (arm, support) in arms {
        let note = match support {
            Support::Refused { why } => format!("  (not run: {why})"),
            _ => String::new(),
        };
        let _ = writeln!(text, "  arm     {}{note}", arm.name);
    }
    for name in &spec.judged {
        let _ = writeln!(text, "  judged  {name}");
    }
    console::text(&text)
}
