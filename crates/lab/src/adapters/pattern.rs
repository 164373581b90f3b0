//! Figures by regular expression.

use std::time::{Duration, Instant};

use regex::bytes::Regex;

use super::error::{Reason, tail};

/// Time limit for all matches in an output. One search is linear in the output, but all of them together
/// can be quadratic.
const LIMIT: Duration = Duration::from_secs(10);

/// Returns the capture of the last match in which the group took part.
pub(super) fn last<'a>(output: &'a [u8], regex: &Regex) -> Result<&'a [u8], Reason> {
    let begun = Instant::now();
    let mut last = None;
    for found in regex.captures_iter(output) {
        last = found.get(1).map(|group| group.as_bytes()).or(last);
        if begun.elapsed() > LIMIT {
            return Err(Reason::TooSlow { limit_s: LIMIT.as_secs() });
        }
    }
    last.ok_or_else(|| Reason::NoMatch { tail: tail(output) })
}
