//! Figures of known programs.

use regex::bytes::Regex;

use super::error::{FigureError, Reason, quoted};
use super::known::KNOWN;
use super::{Figure, OUTPUT_BYTES_MAX};

/// Figures of a program, and the arguments that make it print them.
#[derive(Debug, Clone)]
pub struct Adapter {
    pub program: &'static str,
    pub figures: Vec<Figure>,
    /// Text that follows the program's own arguments on a shell's command line.
    pub arguments: &'static [&'static str],
    /// Reports of failures, whose figures would be of failures.
    refusals: Vec<Regex>,
}

impl Adapter {
    /// Returns every figure of the program in an output.
    ///
    /// Errors: the first figure that cannot be taken, or a report of failures.
    pub fn take(&self, output: &[u8]) -> Result<Vec<(&str, f64)>, FigureError> {
        let head = &output[..output.len().min(OUTPUT_BYTES_MAX)];
        if let Some(refusal) = self.refusals.iter().find_map(|refusal| refusal.find(head)) {
            return Err(FigureError {
                figure: self.figures.first().map(|figure| figure.name.clone()).unwrap_or_default(),
                from: self.program.into(),
                reason: Reason::Refused { text: quoted(refusal.as_bytes()) },
            });
        }
        self.figures
            .iter()
            .map(|figure| Figure::take(figure, output).map(|value| (figure.name.as_str(), value)))
            .collect()
    }
}

/// Names of the programs that [`ready_made`] knows; some have an entry a mode.
pub const PROGRAMS: &[&str] = &{
    let mut names = [""; KNOWN.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = KNOWN[at].program;
        at += 1;
    }
    names
};

fn refusal(text: &str) -> regex::bytes::Regex {
    regex::bytes::RegexBuilder::new(text).multi_line(true).build().expect("a test parses all")
}

/// Returns the figures of a program; `None` if it is not one of [`PROGRAMS`].
pub fn ready_made(program: &str) -> Option<Adapter> {
    let known = KNOWN.iter().find(|known| known.program == program)?;
    Some(Adapter {
        program: known.program,
        figures: known.figures.iter().map(|text| Figure::fixed(text)).collect(),
        arguments: known.arguments,
        refusals: known.refusals.iter().map(|text| refusal(text)).collect(),
    })
}
