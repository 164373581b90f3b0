//! `wirepath history compare`.

use house::console;
use house::context::Context;
use remote::Failure;

use super::args::CompareArgs;
use crate::results::by;
use crate::{gate, results};

pub(crate) fn run(context: &Context, args: &CompareArgs) -> Result<(), Failure> {
    let (olds, news) = (
        results::database(context).named(&args.old)?,
        results::database(context).named(&args.new)?,
    );
    let basis = &args.basis;
    let mut comparison = runner::compare(&olds, &news, basis.unit.unit(), basis.resolve.ratio())?;
    comparison.gate = args.fail_on.map(|on| comparison.decide(by(on), basis.resolve.ratio()));
    if let Some(file) = &args.html {
        console::write_file(file, report::html::comparison_page(&comparison))?;
    }
    if context.json {
        console::text(&report::json::comparison_to_json(&comparison))?;
    } else if args.html.is_none() {
        console::text(&report::text::compare(&comparison, console::style()))?;
    }
    comparison.gate.as_ref().map_or(Ok(()), |gate| gate::end(gate, basis.accept_undecided))
}
