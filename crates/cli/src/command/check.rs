//! `prove command --check`.

use std::fmt::Write;

use house::console;
use house::context::Context;
use model::{Programs, Support};
use remote::Failure;
use runner::{ProgramsPlan, Runner, check_programs};

/// Prints the arms and the figures that decide; with `--json`, the experiment as a document.
///
/// Errors: every mistake, in one message.
pub(super) fn run(
    context: &Context,
    runner: &Runner<'_>,
    experiment: &Programs,
    plan: &ProgramsPlan,
) -> Result<(), Failure> {
    check_programs(runner, &plan.spec)?;
    if context.json {
        return console::json(experiment);
    }
    let mut text = String::from("no mistake found; nothing was run\n");
    for (arm, support) in plan.arms() {
        let note = match support {
            Support::Refused { why } => format!("  (not run: {why})"),
            _ => String::new(),
        };
        let _ = writeln!(text, "  arm     {}{note}", arm.name);
    }
    for name in &plan.spec.judged {
        let _ = writeln!(text, "  judged  {name}");
    }
    console::text(&text)
}
