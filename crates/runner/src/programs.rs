//! The user's own programs.

use std::any::Any;
use std::collections::BTreeMap;

use command::{At, CheckedPrograms, CommandSession, Journals, Problem};
use model::{BEST, Programs, Request};
use remote::Failure;

use crate::best::Space;
use crate::header::limit_parameters;
use crate::opened::Opened;
use crate::proof::{Proof, Resumed};
use crate::runner::{JournalFolder, Runner};

/// Arms of the user's own programs.
pub struct ProgramsPlan {
    pub spec: CheckedPrograms,
    is_search: bool,
    proof: Proof,
}

impl ProgramsPlan {
    /// Arms that are known before a search.
    pub fn arms(&self) -> &[(model::Arm, model::Support)] {
        &self.proof.arms
    }

    /// True if the best set of switches is searched.
    pub fn is_search(&self) -> bool {
        self.is_search
    }
}

/// Errors: a mistake in the experiment.
pub(crate) fn plan(request: &Request, wanted: &Programs) -> Result<ProgramsPlan, Failure> {
    let spec = command::resolve(wanted).map_err(Failure::usage)?;
    // Mistakes in lists of arms show here, too.
    let arms = command::arms(&spec).map_err(Failure::usage)?;
    let is_search = spec.plan == BEST && !spec.switches.is_empty();
    let load = parameters(request, wanted, &spec);
    let proof = Proof::new(request, Programs::PATH, spec.judged.clone(), load);
    let proof = Proof { arms, deciding: spec.deciding.clone(), ..proof };
    Ok(ProgramsPlan { spec, is_search, proof })
}

/// Opens the lab or the places of the programs.
pub(crate) fn open<'a>(
    runner: &Runner<'_>,
    plan: ProgramsPlan,
    resumed: Option<&Resumed>,
) -> Result<Opened<'a>, Failure> {
    let ProgramsPlan { spec, is_search, mut proof } = plan;
    startable(&spec)?;
    let guards = guards(runner, &runner.journal, &spec)?;
    let ran = resumed.map_or(0, |resumed| resumed.trials.len() as u32);
    let session = CommandSession::open(
        spec.clone(),
        journals(runner, &runner.journal, &spec),
        ran,
        runner.stop,
    )?;
    if let Some(resumed) = resumed {
        proof.load.clone_from(&resumed.header.load);
    }
    let space = is_search.then(|| Space {
        switches: spec.switches.iter().map(command::Switch::id).collect(),
        support: Box::new(move |arm| command::support(&spec, arm)),
        trial: None,
    });
    Ok(Opened { proof, session: Box::new(session), space, records_search: true, guards })
}

/// Processes that roll back the settings of existing namespaces if this one is killed.
///
/// - `far`: journal of the far end.
pub(crate) fn guards(
    runner: &Runner<'_>,
    far: &JournalFolder,
    spec: &CheckedPrograms,
) -> Result<Vec<Box<dyn Any>>, Failure> {
    if spec.is_lab() {
        return Ok(Vec::new());
    }
    // Another host has a guard of its own.
    let far = (!spec.is_far_elsewhere()).then(|| (At::Far, far.clone()));
    let near = (At::Near, runner.journal.near());
    let middle = spec
        .middle_here()
        .map(|place| (At::Place(place.name.clone()), runner.journal.place(&place.name)));
    far.into_iter()
        .chain([near])
        .chain(middle)
        .filter(|(at, _)| spec.has_settings_at(at))
        .map(|(_, journal)| (runner.start_guard)(&journal))
        .collect()
}

/// Journals of all places on this host.
///
/// - `far`: of the far end.
pub(crate) fn journals(
    runner: &Runner<'_>,
    far: &JournalFolder,
    spec: &CheckedPrograms,
) -> Journals {
    let of_place = |name: &String| (name.clone(), runner.journal.place(name).store());
    Journals {
        far: far.store(),
        near: runner.journal.near().store(),
        places: spec.middle_here().map(|place| of_place(&place.name)).collect(),
    }
}

/// Description of the experiment that is stored with the result.
pub(crate) fn parameters(
    request: &Request,
    programs: &Programs,
    spec: &CheckedPrograms,
) -> BTreeMap<String, String> {
    let mut load = limit_parameters(&request.limits);
    load.extend([
        ("args".to_owned(), request.words.clone().unwrap_or_default()),
        ("digest".to_owned(), programs.digest()),
        ("experiment".to_owned(), programs.to_text()),
        ("judged".to_owned(), spec.judged.join(",")),
    ]);
    load.extend(spec.client().map(|client| ("client".to_owned(), client.to_owned())));
    load.extend(programs.wire.as_ref().map(|wire| ("wire".to_owned(), wire.to_string())));
    if !spec.switches.is_empty() {
        load.insert("arms".to_owned(), spec.plan.clone());
    }
    load
}

/// Errors: the commands that cannot start, found without a place.
pub fn startable(spec: &CheckedPrograms) -> Result<(), Failure> {
    refuse_problems(&command::unstartable(spec))
}

/// Errors: every mistake that would fail the experiment, in one message.
pub fn check_programs(runner: &Runner<'_>, spec: &CheckedPrograms) -> Result<(), Failure> {
    refuse_problems(&command::check(spec, runner.stop))
}

/// Errors: every problem, in one message.
fn refuse_problems(problems: &[Problem]) -> Result<(), Failure> {
    if problems.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> =
        problems.iter().map(|problem| format!("{}: {}", problem.part, problem.why)).collect();
    Err(Failure::Usage(format!("the experiment would fail: {}", lines.join("; "))))
}
