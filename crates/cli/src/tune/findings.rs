//! A plan of the findings of `doctor`.

use std::fmt::Display;
use std::path::Path;

use host::causes::{self, Evidence, Finding};
use host::tune::{self, Plan, Profile, System, WantedSetting};
use host::user_file;
use house::place::{PlaceArgs, StateArgs};
use remote::Failure;
use serde::Deserialize;

use super::apply::read_stdin;

/// Longest document.
const BYTES_MAX: u64 = 2 << 20;
/// Longest reason of a step, characters.
const REASON_LEN_MAX: usize = 200;
/// Most settings of a document.
const SETTINGS_MAX: usize = 1_000;

/// The parts of a document of `doctor --json` that a plan needs.
#[derive(Debug, Deserialize)]
struct Document {
    netns: Option<String>,
    findings: Vec<Found>,
}

#[derive(Debug, Deserialize)]
struct Found {
    what: String,
    #[serde(default)]
    settings: Vec<WantedSetting>,
}

impl Found {
    fn new(finding: Finding) -> Self {
        let mut found = Found { what: finding.what, settings: finding.settings };
        found.shorten();
        found
    }

    /// Names of interfaces and processes are of strangers, and a plan has no control characters.
    fn shorten(&mut self) {
        self.what = host::text::printable(&self.what, REASON_LEN_MAX);
    }
}

/// Makes a plan of the settings that the findings name.
///
/// Errors: the file is not such a document, it is of another namespace, or no finding is a setting of the plan's
/// interface.
pub(super) fn plan(state: &StateArgs, place: &PlaceArgs, file: &Path) -> Result<Plan, Failure> {
    let Document { netns, findings } = document(file)?;
    if let (Some(asked), Some(found)) = (&place.netns, &netns)
        && asked != found
    {
        return Err(Failure::Usage(format!(
            "{} is of namespace {found}, not of {asked}; remove --netns, or examine that one",
            file.display()
        )));
    }
    if wanted_settings(&findings).count() > SETTINGS_MAX {
        return Err(Failure::Usage(format!("{} has too many settings", file.display())));
    }
    let interface = match &place.interface {
        Some(interface) => Some(interface.clone()),
        None => the_interface(&tune::interfaces(wanted_settings(&findings)))?,
    };
    let place = PlaceArgs { interface, netns: place.netns.clone().or(netns) };
    let system = place.open(state)?;
    let plan = plan_of(&system, "doctor", place.interface.as_deref(), &findings)?;
    if plan.steps.is_empty() && plan.left_out.is_empty() {
        return Err(Failure::failed(
            "nothing to plan: no finding names a setting that differs from that of this host",
        ));
    }
    Ok(plan)
}

/// Makes a plan of what `doctor` finds now, with the settings of the service profile that a proof has to judge.
///
/// Errors: the host cannot be examined.
pub(super) fn service_plan(
    state: &StateArgs,
    place: &PlaceArgs,
    app_cpu: Option<usize>,
) -> Result<Plan, Failure> {
    let (profile, interface) = (Profile::Service, place.interface.as_deref());
    let evidence = Evidence::new(place.open(state)?, interface, Some(profile), app_cpu)?;
    let found: Vec<Found> =
        causes::examine(&evidence).findings.into_iter().map(Found::new).collect();
    let system = evidence.system();
    let candidates = tune::plan(system, tune::Wanted { profile, interface, app_cpu })?;
    Ok(plan_of(system, profile.name(), interface, &found)?.and(candidates))
}

fn plan_of(
    system: &System,
    purpose: &str,
    interface: Option<&str>,
    findings: &[Found],
) -> Result<Plan, Failure> {
    let wanted = findings
        .iter()
        .flat_map(|found| found.settings.iter().map(move |setting| (setting, found.what.as_str())));
    Ok(tune::settings_plan(system, purpose, interface, wanted)?)
}

fn wanted_settings(findings: &[Found]) -> impl Iterator<Item = &WantedSetting> {
    findings.iter().flat_map(|found| &found.settings)
}

/// Errors: the findings are of several.
fn the_interface(found: &[String]) -> Result<Option<String>, Failure> {
    match found {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        several => Err(Failure::Usage(format!(
            "the findings are of {}, and a plan is for one interface: name it with --interface",
            several.join(", ")
        ))),
    }
}

fn document(file: &Path) -> Result<Document, Failure> {
    let text = if file == Path::new("-") {
        read_stdin().map_err(Failure::usage)?
    } else {
        let bytes =
            user_file::read(file, BYTES_MAX).map_err(|error| invalid_document(file, &error))?;
        String::from_utf8(bytes).map_err(|error| invalid_document(file, &error))?
    };
    let mut document: Document =
        serde_json::from_str(&text).map_err(|error| invalid_document(file, &error))?;
    document.findings.iter_mut().for_each(Found::shorten);
    Ok(document)
}

fn invalid_document(file: &Path, why: &dyn Display) -> Failure {
    let name =
        if file == Path::new("-") { "standard input".into() } else { file.to_string_lossy() };
    Failure::Usage(format!("{name} is not a document of `wirepath doctor --json`: {why}"))
}
