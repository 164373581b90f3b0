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
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    state: StateArgs,
}

/// What becomes of a report.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// End with code 4 when there is a finding this bad, or worse
    #[arg(long, value_enum)]
    severity: Option<SeverityName>,
    /// Write a self-contained HTML page, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
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
    show(cli, &report, &title(args), &args.output)
}

/// Puts a report out as the options say; fails when it is worse than they allow.
pub(crate) fn show(
    cli: &Cli,
    report: &Report,
    title: &str,
    output: &OutputArgs,
) -> Result<(), Failure> {
    if let Some(file) = &output.html {
        std::fs::write(file, html::page(report, title)).map_err(|error| {
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
        console::text(&text::render(report, title, console::style().width))?;
    }
    above(report, output.severity)
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
    let purpose = args.profile.and_then(|name| name.to_possible_value());
    let purpose = purpose.map_or(String::new(), |name| format!(", for {}", name.get_name()));
    format!("{}{purpose}", args.place.title())
}

pub(super) fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Low => "low",
        Severity::Medium => "medium",
        Severity::High => "high",
    }
}
