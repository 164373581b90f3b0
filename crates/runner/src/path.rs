//! Switches of a path.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

use model::{
    Arm, ArmPlan, BEST, Load, LoadRequest, Path, PathRequest, Request, Support, did_you_mean,
};
use remote::Failure;

use crate::against::Builds;
use crate::arms::arms_of_builds;
use crate::best::Space;
use crate::header::load_parameters;
use crate::load::{check_support, find_load, requested_load};
use crate::opened::Opened;
use crate::proof::Proof;
use crate::runner::Runner;

/// Arms of a path under a load.
pub struct PathPlan {
    path: Box<dyn Path>,
    load: Load,
    against: Option<PathBuf>,
    is_search: bool,
    /// From here on its time counts: arms were tried in labs.
    pub(crate) begun: Instant,
    pub(crate) proof: Proof,
}

impl PathPlan {
    /// Name of the path.
    pub fn path(&self) -> &str {
        &self.proof.path
    }

    /// Parameters that are stored with the result.
    pub fn load(&self) -> &BTreeMap<String, String> {
        &self.proof.load
    }

    /// True if the best set of switches is searched.
    pub fn is_search(&self) -> bool {
        self.is_search
    }

    pub fn arms(&self) -> &[(Arm, Support)] {
        &self.proof.arms
    }

    /// Metrics of the verdict, most important first.
    pub fn judged(&self) -> &[String] {
        &self.proof.judged
    }
}

/// Errors: the path has no such load, switch or peer, or its baseline is not possible here.
pub(crate) fn plan(
    runner: &Runner<'_>,
    request: &Request,
    wanted: &PathRequest,
) -> Result<PathPlan, Failure> {
    let begun = Instant::now();
    let path = (runner.find_path)(&wanted.path, &wanted.load)?;
    let path = match &wanted.file {
        Some(file) => path.configured(file)?,
        None => path,
    };
    let own_arms = path.arms();
    let kind = find_load(path.as_ref(), wanted.load.kind.as_deref())?;
    let load = requested_load(path.as_ref(), kind, &wanted.load)?;
    let is_search = wanted.arms == BEST && wanted.against.is_none() && own_arms.is_empty();
    let switches = model::ids(path.switches());
    let arms = if !own_arms.is_empty() {
        own_arms
            .into_iter()
            .map(|arm| {
                let support = path.support(&arm, &load);
                (arm, support)
            })
            .collect()
    } else if is_search {
        Vec::new()
    } else if wanted.against.is_some() {
        let arm = ArmPlan::parse_one(&wanted.arms, &switches)
            .map_err(|error| Failure::Usage(error.message_for(path.name())))?;
        arms_of_builds(&arm.switches)
    } else {
        let plan = ArmPlan::parse(&wanted.arms, &switches)
            .map_err(|error| Failure::Usage(error.message_for(path.name())))?;
        let rungs = path.ladder(&load);
        let listed = plan.switches(&switches, &rungs);
        model::arms(&plan, listed, &wanted.peers, &mut |arm| path.support(arm, &load))
    };
    if let Some((_, support)) = arms.first() {
        check_support(support)?;
    }
    check_peers(path.as_ref(), &wanted.peers)?;
    let mut parameters = load_parameters(&load, &request.limits);
    if let Some(file) = &wanted.file {
        parameters.insert("file".to_owned(), file.name.display().to_string());
        parameters.insert("experiment".to_owned(), file.text.clone());
        // The file decides it.
        parameters.insert("judged".to_owned(), kind.judged.join(","));
    } else if !is_search {
        parameters.insert("arms".to_owned(), wanted.arms.clone());
        parameters.extend(replay_parameters(&wanted.load));
    }
    if path.program().is_some() {
        // Its program may be gone when the result of a run that was killed is read.
        parameters.insert("judged".to_owned(), kind.judged.join(","));
    }
    let proof = Proof::for_path(request, path.as_ref(), kind, &load, parameters);
    let proof = Proof { arms, ..proof };
    Ok(PathPlan { path, load, against: wanted.against.clone(), is_search, begun, proof })
}

/// Opens the path's lab, or starts both builds.
pub(crate) fn open<'a>(plan: PathPlan) -> Result<Opened<'a>, Failure> {
    let PathPlan { path, load, against, is_search, begun: _, mut proof } = plan;
    let session = match against {
        None => path.open(&load)?,
        Some(old) => {
            let builds = Builds::start(&old, path.as_ref(), &load, &proof.arms[0].0)?;
            let version = builds.old_version();
            proof.load.insert("against".to_owned(), format!("{} ({version})", old.display()));
            Box::new(builds)
        }
    };
    let space = is_search.then(|| Space {
        switches: model::ids(path.switches()),
        trial: Some(load.trial),
        support: Box::new(move |arm| path.support(arm, &load)),
    });
    Ok(Opened { proof, session, space, records_search: false, guards: Vec::new() })
}

/// Parameters of a capture that are stored with the result.
fn replay_parameters(load: &LoadRequest) -> Vec<(String, String)> {
    let Some(replay) = &load.replay else { return Vec::new() };
    vec![
        ("replay".to_owned(), replay.file.display().to_string()),
        ("sequence".to_owned(), replay.sequence.clone()),
    ]
}

/// Refuses peers that no load of the path supports. A peer that only another load supports becomes
/// an unsupported arm.
fn check_peers(path: &dyn Path, peers: &[String]) -> Result<(), Failure> {
    let known: BTreeSet<&str> = path.loads().iter().flat_map(|load| load.peers).copied().collect();
    let Some(unknown) = peers.iter().find(|peer| !known.contains(peer.as_str())) else {
        return Ok(());
    };
    let hint = did_you_mean(unknown, known.iter().copied());
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    let path = path.name();
    Err(Failure::Usage(format!("'{unknown}' is not a peer of {path}{hint}it has: {known}")))
}
