//! Figures out of the output of any program.
//!
//! A [`Figure`] has a name, the place of its value in the output, and a direction of improvement:
//!
//! ```text
//! NAME=[server:|beside:|file:PATH:]SOURCE [lower|higher]
//! p99_us=json:/latency/p99
//! rps=re:([0-9.]+) requests
//! score=csv:Total Score higher
//! p999_us=hdr:@99.9
//! p99_us=file:out/latency.json:json:/p99
//! ```
//! The prefix names the output ([`Origin`]); without it, it is that of the program that is measured.
//!
//! # Names and units
//! The name states the unit ([`model::stated_unit`]): `_ns`, `_us`, `_ms`, `_s`; `_bps` (bits a second),
//! `_pps`, `_rps`, `_qps`, `_tps`; `_bytes`, `_count`, `_share` (0 to 1), `_percent`. Some units imply
//! the direction, which may then be left out: times and counts improve downwards, rates and shares
//! upwards. A number without a unit in the output is in the unit of the name. A number with one is
//! converted: `4.73ms` is 4730 in `p99_us`, `1.2 Gbits/sec` is 1.2 × 10⁹ in `goodput_bps`, `12.3k` is
//! 12,300 in `rps`. `k`, `M`, `G` and `T` are powers of 1000, `Ki`, `Mi`, `Gi` and `Ti` of 1024. Commas
//! between groups of three digits are ignored if there are several or a fraction; any other comma is an error,
//! because it may be a decimal sign. A bare number that `re:` takes out of a text is an error if another unit than
//! that of the name follows it there.
//!
//! # Sources
//! The last report counts in every source, because programs print intermediate reports first.
//! - `json:/pointer` (RFC 6901): a number, or a string that holds one. A document starts on a line of its
//!   own; other lines before and after it are skipped. If several documents take one line each (JSON
//!   Lines), the last one counts. Any other number of documents than one is an error, and so is a
//!   document that is cut off.
//! - `re:REGEX`: the one capture group (`(?:…)` groups without capturing) of the last match. `^` and
//!   `$` match at line ends. Invalid UTF-8 in the output does no harm.
//! - `csv:COLUMN`: the last row, below the first row that has a field `COLUMN`. Separator is the comma;
//!   fields may be quoted. Rows before the header may be anything.
//! - `hdr:TAG@QUANTILE` in percent, `hdr:@99.9` for intervals without a tag: a quantile over all
//!   intervals of an HdrHistogram log (V2, compressed or not) with that tag. Its values have no unit, so
//!   they are in that of the name.
//!
//! # Errors, never gaps
//! A figure that cannot be taken is a [`FigureError`], which fails its trial: empty output, no match,
//! `NaN`, a negative number, or zero for a rate, which a program prints when it measured nothing. A time of
//! zero is below the program's resolution. Output above [`OUTPUT_BYTES_MAX`] is refused.
//!
//! [`ready_made`] has the figures of known programs.

mod client;
mod csv;
mod error;
mod figure;
#[doc(hidden)]
pub mod fuzzing;
mod hdr;
pub(crate) mod json;
mod known;
mod origin;
mod pattern;
mod ready_made;
mod unit;

use std::time::Duration;

pub use client::{Client, client};
pub use error::{FigureError, FigureSyntaxError, Reason};
pub use figure::{Figure, Source};
pub use origin::Origin;
pub use ready_made::{Adapter, PROGRAMS, ready_made};

/// Longest output from which figures are taken, bytes.
pub const OUTPUT_BYTES_MAX: usize = 16 << 20;

/// Time limit for a figure, checked between the matches of an expression and the intervals of a log.
const TIME_MAX: Duration = Duration::from_secs(10);
