//! Figures by regular expression.

use std::time::Instant;

use regex::bytes::{Match, Regex};

use super::TIME_MAX;
use super::error::{Reason, tail};

/// Returns the capture of the last match in which the group took part.
///
/// One search is linear in the output, but all of them together can be quadratic: hence the time limit.
pub(super) fn last<'a>(output: &'a [u8], regex: &Regex) -> Result<Match<'a>, Reason> {
    let begun = Instant::now();
    let mut last = None;
    for found in regex.captures_iter(output) {
        last = found.get(1).or(last);
        if begun.elapsed() > TIME_MAX {
            return Err(Reason::TooSlow);
        }
    }
    last.ok_or_else(|| Reason::NoMatch { tail: tail(output) })
}
