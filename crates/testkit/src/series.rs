//! Series of starts of which none may lose anything: a line for each series, and the evidence of a loss.
//!
//! `.ci/starts` runs the tests that use it, with large numbers.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use crate::note;

/// Folder of the evidence; unless given, `evidence` in the target folder.
const EVIDENCE: &str = "WIREPATH_TEST_EVIDENCE";

/// A start that lost something.
#[derive(Debug)]
pub struct Loss {
    pub answered_count: u64,
    pub lost_count: u64,
    /// Counters and logs that explain it.
    pub evidence: String,
}

/// Value of an environment variable that overrides `number`.
///
/// # Panics
/// If the variable is no number.
pub fn number(variable: &str, number: usize) -> usize {
    env::var(variable)
        .map_or(number, |text| text.parse().unwrap_or_else(|_| panic!("{variable}={text}")))
}

/// Runs `start` `count` times. It returns the number of its requests, all of which were answered. At the end, and
/// at a loss, a line goes to standard error: starts, answered, lost, seconds.
///
/// # Panics
/// At the first loss. Its evidence is kept in a file and in the message.
#[track_caller]
pub fn all_answered(series: &str, count: usize, mut start: impl FnMut() -> Result<u64, Loss>) {
    let begun = Instant::now();
    let mut answered_count = 0_u64;
    for number in 1..=count {
        let loss = match start() {
            Ok(answered) => {
                answered_count = answered_count.saturating_add(answered);
                continue;
            }
            Err(loss) => loss,
        };
        answered_count = answered_count.saturating_add(loss.answered_count);
        note(&line(series, number, answered_count, loss.lost_count, begun));
        let kept = keep(series, &loss.evidence);
        panic!("{series}: start {number} lost {}; kept {kept}\n{}", loss.lost_count, loss.evidence);
    }
    note(&line(series, count, answered_count, 0, begun));
}

fn line(series: &str, starts: usize, answered: u64, lost: u64, begun: Instant) -> String {
    let seconds = begun.elapsed().as_secs_f64();
    format!("{series}: {starts} starts, {answered} answered, {lost} lost, {seconds:.1} s")
}

/// Writes the evidence to a file of its own. Returns where, or why not.
fn keep(series: &str, evidence: &str) -> String {
    let folder = env::var_os(EVIDENCE)
        .map(PathBuf::from)
        .or_else(|| Some(env::current_exe().ok()?.ancestors().nth(3)?.join("evidence")))
        .unwrap_or_default();
    let name: String =
        series.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let file = folder.join(format!("{name}.{}.txt", std::process::id()));
    match fs::create_dir_all(&folder).and_then(|()| fs::write(&file, evidence)) {
        Ok(()) => format!("in {}", file.display()),
        Err(error) => format!("in this message only: {}: {error}", file.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_loss_ends_a_series_and_its_evidence_is_kept() {
        let mut started = 0;
        let series = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            all_answered("a series/of tests", 5, || {
                started += 1;
                let evidence = "CSR0 0004".to_owned();
                let loss = Loss { answered_count: 9, lost_count: 1, evidence };
                if started == 3 { Err(loss) } else { Ok(10) }
            });
        }));
        let said = series.unwrap_err();
        let said = said.downcast_ref::<String>().expect("a text");
        assert!(said.contains("start 3 lost 1") && said.contains("CSR0 0004"), "{said}");
        assert_eq!(started, 3);
        let file = said.lines().next().and_then(|line| line.split_once("kept in ")).expect(said).1;
        assert_eq!(fs::read_to_string(file).unwrap(), "CSR0 0004");
        fs::remove_file(file).unwrap();
    }

    #[test]
    fn series_without_a_loss_runs_to_its_end() {
        let mut started = 0;
        all_answered("no loss", 4, || {
            started += 1;
            Ok(1)
        });
        assert_eq!(started, 4);
    }
}
