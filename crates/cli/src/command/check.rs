//! `prove command --check`.

use std::fmt::Write;

use command::{Experiment, Spec};
use model::{Arm, Support};

use crate::console;
use crate::context::Context;
use crate::exit::Failure;
use crate::signals;

/// Prints the arms and the figures that decide; with `--json`, the experiment as a document.
///
/// Errors: every mistake, in one message.
pub(super) fn run(
    context: &Context,
    experiment: &Experiment,
    spec: &Spec,
    arms: &[(Arm, Support)],
) -> Result<(), Failure> {
    let problems = command::check(spec, signals::stop_flag());
    if !problems.is_empty() {
        let lines: Vec<String> =
            problems.iter().map(|problem| format!("{}: {}", problem.part, problem.why)).collect();
        return Err(Failure::Usage(format!("the experiment would fail: {}", lines.join("; "))));
    }
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
