//! `wirepath history watch`.

use house::console;
use house::context::Context;
use remote::Failure;

use super::args::WatchArgs;
use crate::results::by;
use crate::{gate, results};

pub(crate) fn run(context: &Context, args: &WatchArgs) -> Result<(), Failure> {
    let mut outcomes = results::database(context).named(&args.ids)?;
    if let Some(path) = &args.path {
        outcomes.retain(|outcome| outcome.path == *path);
    }
    if outcomes.is_empty() {
        return Err(Failure::Usage(
            "no experiment of this path is stored; see `wirepath history`".into(),
        ));
    }
    let basis = &args.basis;
    let quantity = args.fail_on.map_or(model::By::Value, by);
    let mut watch = model::watch(&outcomes, basis.unit.unit(), quantity, basis.resolve.ratio());
    watch.gate = args.fail_on.map(|_| watch.decide());
    if let Some(file) = &args.html {
        console::write_file(file, report::html::watch_page(&watch))?;
    }
    if context.json {
        console::text(&report::json::watch_to_json(&watch))?;
    } else if args.html.is_none() {
        console::text(&report::text::watch(&watch, console::style()))?;
    }
    watch.gate.as_ref().map_or(Ok(()), |gate| gate::end(gate, basis.accept_undecided))
}
