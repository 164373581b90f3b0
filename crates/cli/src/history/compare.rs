//! `wirepath history compare`.

use super::args::CompareArgs;
use crate::console;
use crate::context::Context;
use crate::exit::Failure;
use crate::results::{compare, judge, open_reading, series};

pub(crate) fn run(context: &Context, args: &CompareArgs) -> Result<(), Failure> {
    let store = open_reading(context)?;
    let comparison = compare(&series(&store, &args.old)?, &series(&store, &args.new)?)?;
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
