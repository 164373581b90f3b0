//! `wirepath prove command`: the user's own programs as arms.

mod args;
mod check;
mod resume;

use model::{Ended, Subject};
use remote::Failure;
use runner::{Planned, Proven};

pub(crate) use args::{
    CommandArgs, ExperimentArgs, PlaceSwitchArgs, ProgramArgs, programs_request,
};

use crate::gate;
use crate::proven::{
    ProveDocument, print_document, print_ladder, say_report, say_where, show_series, verdict,
};
use crate::running::{Terminal, run_in_child, runner};
use house::context::Context;
use house::next::{self, CommandLine};
use house::{console, signals};

pub(crate) fn run(context: &Context, args: &CommandArgs) -> Result<(), Failure> {
    let (programs, resumed) = match &args.resume {
        None => (args.programs()?, None),
        Some(id) => {
            let (programs, resumed) = resume::load(context, args, id)?;
            (programs, Some(resumed))
        }
    };
    let has_figures = programs.adapter.is_some() || programs.load.is_some();
    let names_no_figure = programs.metrics.is_empty() && !has_figures;
    let request = args.request(programs)?;
    let terminal = Terminal::open(context, args.watch.watch)?;
    let runner = runner(context, args.state.journal(), &terminal);
    let Planned::Programs(plan) = runner.plan(&request)? else {
        return Err(Failure::failed("the request is not of programs"));
    };
    if args.check {
        let Subject::Programs(programs) = &request.subject else { return Ok(()) };
        return check::run(context, &runner, programs, &plan);
    }
    runner::startable(&plan.spec)?;
    if names_no_figure {
        console::say(
            "no --metric and no --adapter: arms are judged by the client's wall time and by CPU time \
             per packet",
        );
    }
    let is_search = plan.is_search();
    let proven = if args.series.runs > 1 {
        let proven = runner.run_series(&request, &|request| run_in_child(&runner, request))?;
        let (detail, runs) = (args.watch.detail, args.series.runs);
        show_series(context, detail, &proven, runs, |run| document(run, is_search))?;
        proven
    } else {
        signals::stop_on_hangup()?;
        let proven = runner.run_planned(&request, Planned::Programs(plan), resumed)?;
        if context.json {
            print_document(&proven, &document(&proven, is_search))?;
        } else {
            print_ladder(&proven, args.watch.detail)?;
            say_where(&proven);
            say_next(context, &proven);
        }
        verdict(&proven)?;
        vec![proven]
    };
    if request.gate { gate::judge(&proven, args.accept_undecided) } else { Ok(()) }
}

/// Says how to go on with a run that was interrupted, or how to make a page of one that was not.
fn say_next(context: &Context, proven: &Proven) {
    let is_interrupted = proven.outcome.ended == Ended::Interrupted && !proven.gave_up;
    if is_interrupted && proven.is_stored && proven.has_result() {
        next::say(context, &CommandLine::new("prove command --resume").value(&proven.outcome.id));
    } else {
        say_report(context, proven);
    }
}

fn document(run: &Proven, is_search: bool) -> ProveDocument<'_> {
    if is_search { ProveDocument::searched(run) } else { ProveDocument::new(run) }
}
