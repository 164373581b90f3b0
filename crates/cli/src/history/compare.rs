//! `wirepath history compare`.

use super::args::CompareArgs;
use crate::console;
use crate::context::Context;
use crate::exit::Failure;
use crate::results::{compare, judge, named};

pub(crate) fn run(context: &Context, args: &CompareArgs) -> Result<(), Failure> {
    let comparison = compare(&named(context, &args.old)?, &named(context, &args.new)?)?;
    if let Some(file) = &args.html {
        console::write_file(file, report::html::comparison_page(&comparison))?;
    }
    if context.json {
        console::text(&report::json::comparison_to_json(&comparison))?;
    } else if args.html.is_none() {
        console::text(&report::text::compare(&comparison, console::style()))?;
    }
    judge(&comparison, args.fail_on, args.threshold.ratio())
}
