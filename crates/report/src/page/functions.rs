//! The functions whose CPU time differs most between an arm and the baseline.

use model::{CpuTimeChange, CpuTimePer, Outcome};

use crate::answer;
use crate::units;

/// Functions that are shown.
const ROWS_MAX: usize = 5;
/// Longest name of a function in a table, characters.
const NAME_LEN_MAX: usize = 40;

/// Functions whose CPU time differs most between two arms.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionTable {
    /// The two arms, and the way of measuring.
    pub caption: String,
    /// Names of the columns of figures: of the baseline, of the arm, of their difference.
    pub labels: [String; 3],
    pub rows: Vec<FunctionLine>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct FunctionLine {
    pub function: String,
    /// Program, where there are several, and the kernel; empty for the only program.
    pub place: String,
    pub figures: [String; 3],
}

/// Returns `None` if no arm differs in time, or nothing was sampled.
pub(super) fn functions(outcome: &Outcome) -> Option<FunctionTable> {
    let arm = answer::differing(outcome)?.arm;
    let base = outcome.arms.iter().find(|arm| arm.kind == model::ArmKind::Baseline)?;
    let (old, new) = answer::samples_of_arm(outcome, arm)?;
    let change = CpuTimeChange::new(&old, new)?;
    let per = match change.per {
        CpuTimePer::Packet => "packet",
        CpuTimePer::Trial => "trial",
    };
    let rows = change.functions.iter().take(ROWS_MAX).map(|of| {
        let difference = of.time.difference_ns();
        let sign = if difference > 0.0 { "+" } else { "" };
        FunctionLine {
            function: shortened(of.function),
            place: answer::place_of_function(&old, new, of).unwrap_or_default(),
            figures: [
                units::value(of.time.old_ns, "ns"),
                units::value(of.time.new_ns, "ns"),
                format!("{sign}{}", units::value(difference, "ns")),
            ],
        }
    });
    let lost = match old.lost_count.saturating_add(new.lost_count) {
        0 => String::new(),
        lost => format!("; {} lost", units::plural(lost, "record")),
    };
    Some(FunctionTable {
        caption: format!(
            "CPU time a {per} in a function itself, by {} samples of {} and {} of {arm}{lost}",
            units::grouped(old.sample_count() as i64),
            base.name,
            units::grouped(new.sample_count() as i64),
        ),
        labels: [base.name.clone(), arm.to_owned(), "difference".to_owned()],
        rows: rows.collect(),
    })
}

fn shortened(name: &str) -> String {
    match name.char_indices().nth(NAME_LEN_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}
