//! `wirepath answer path NAME`: trials of a path of this program for another build.

use std::sync::atomic::AtomicBool;

use model::{Arm, Load, Path, Session};
use remote::path::{PathAnswer, PathCall, PathDescription, PathService, RequestedLoad};
use remote::{Calls, Failure};

use crate::load::{check_support, find_load};

/// Answers calls until the near end is gone.
///
/// - `stop`: set once the work under way should end.
pub fn answer_path(path: &dyn Path, stop: &'static AtomicBool) -> Result<(), Failure> {
    let mut calls = Calls::<PathService>::start_path(&PathDescription::describe(path), stop)?;
    let mut session: Option<Box<dyn Session>> = None;
    while let Some(call) = calls.next_call() {
        let answer = answer(path, &mut session, call).unwrap_or_else(PathAnswer::Failed);
        calls.answer(&answer)?;
    }
    drop(session);
    calls.finish()?;
    Ok(())
}

fn answer(
    path: &dyn Path,
    session: &mut Option<Box<dyn Session>>,
    call: PathCall,
) -> Result<PathAnswer, Failure> {
    match call {
        PathCall::Support { arm, load } => {
            let (arm, load) = (known_arm(path, &arm)?, known_load(path, load)?);
            Ok(PathAnswer::Support(path.support(&arm, &load)))
        }
        PathCall::Open { load, far: None } => {
            let load = known_load(path, load)?;
            check_support(&path.support(&Arm::baseline(), &load))?;
            let opened = session.insert(path.open(&load)?);
            Ok(PathAnswer::Opened { nic: opened.nic() })
        }
        PathCall::Trial { arm } => {
            let arm = known_arm(path, &arm)?;
            let session =
                session.as_mut().ok_or_else(|| Failure::failed("no lab is open for a trial"))?;
            let measured = session.trial(&arm).map_err(|error| Failure::from_chain(&error))?;
            let line = report::store::to_line(&measured);
            Ok(PathAnswer::Recorded(line.map_err(|error| Failure::Failed(error.to_string()))?))
        }
        PathCall::Close {} => {
            *session = None;
            Ok(PathAnswer::Closed {})
        }
        PathCall::Open { far: Some(_), .. }
        | PathCall::Listen { .. }
        | PathCall::Begin { .. }
        | PathCall::End {}
        | PathCall::Interrupt {} => Err(Failure::Usage(format!(
            "path {} runs in one process for another build",
            path.name()
        ))),
    }
}

/// Errors: the path has no such load.
fn known_load(path: &dyn Path, load: RequestedLoad) -> Result<Load, Failure> {
    find_load(path, Some(&load.kind))?;
    Ok(load.into())
}

/// Errors: the path has no such switch.
fn known_arm(path: &dyn Path, names: &[String]) -> Result<Arm, Failure> {
    let known = path.switches();
    let switches = names.iter().map(|name| {
        let found = known.iter().find(|switch| switch.id == name);
        found.ok_or_else(|| Failure::Usage(format!("path {} has no switch {name}", path.name())))
    });
    Ok(Arm::with(switches.collect::<Result<Vec<_>, _>>()?))
}
