//! `wirepath doctor`: what slows packets, and what to do about it.

mod html;
mod text;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use host::doctor::{self, Report, Scene, Severity};
use serde_json::json;

use crate::args::Cli;
use crate::console;
use crate::end::Failure;
use crate::tune::{PlaceArgs, ProfileName, StateArgs, notice};

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// What packets are for; without it, what is good for one purpose and bad for another passes
    #[arg(long, value_enum)]
    profile: Option<ProfileName>,
    /// CPU of the application that the packets are for
    #[arg(long, value_name = "CPU")]
    app_cpu: Option<usize>,
    /// End with code 4 when there is a finding this bad, or worse
    #[arg(long, value_enum)]
    severity: Option<SeverityName>,
    /// Write a self-contained HTML page, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    state: StateArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SeverityName {
    /// Worth knowing
    Info,
    /// Costs a little, or sometimes
    Low,
    /// Costs every packet something
    Medium,
    /// Loses packets
    High,
}

impl From<SeverityName> for Severity {
    fn from(name: SeverityName) -> Severity {
        match name {
            SeverityName::Info => Severity::Info,
            SeverityName::Low => Severity::Low,
            SeverityName::Medium => Severity::Medium,
            SeverityName::High => Severity::High,
        }
    }
}

pub(crate) fn run(cli: &Cli, args: &DoctorArgs) -> Result<(), Failure> {
    notice(&args.state);
    let system = args.place.open(&args.state)?;
    let profile = args.profile.map(Into::into);
    let scene = Scene::new(system, args.place.interface.as_deref(), profile, args.app_cpu)?;
    let report = doctor::examine(&scene);
    let title = title(args);
    if let Some(file) = &args.html {
        std::fs::write(file, html::page(&report, &title)).map_err(|error| {
            Failure::failed(format!("cannot write {}: {error}", file.display()))
        })?;
    }
    if cli.json {
        let doc = json!({
            "schema": model::SCHEMA, "about": title, "findings": report.findings,
            "facts": report.facts, "unseen": report.unseen, "passed": report.passed,
        });
        console::text(&format!("{doc:#}"))?;
    } else {
        console::text(&text::render(&report, &title, console::style().width))?;
    }
    above(&report, args.severity)
}

fn above(report: &Report, threshold: Option<SeverityName>) -> Result<(), Failure> {
    let Some(threshold) = threshold.map(Severity::from) else {
        return Ok(());
    };
    match report.findings.iter().filter(|finding| finding.severity >= threshold).count() {
        0 => Ok(()),
        count => {
            Err(Failure::Threshold(format!("{count} findings at or above the severity asked for")))
        }
    }
}

fn title(args: &DoctorArgs) -> String {
    let what = args.place.interface.as_deref().unwrap_or("all interfaces");
    let place =
        args.place.netns.as_ref().map_or(String::new(), |name| format!(" of namespace {name}"));
    let purpose = args.profile.and_then(|name| name.to_possible_value());
    let purpose = purpose.map_or(String::new(), |name| format!(", for {}", name.get_name()));
    format!("{what}{place}{purpose}")
}

pub(super) fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Low => "low",
        Severity::Medium => "medium",
        Severity::High => "high",
    }
}
