//! `wirepath doctor`: settings that slow packets, with the remedy.

mod html;
mod metrics;
mod text;

use std::path::PathBuf;

use clap::Args;
use host::doctor::{self, Fact, Finding, HostView, Report, Severity, Unseen};
use host::tune::Profile;
use schemars::JsonSchema;
use serde::Serialize;

use crate::console;
use crate::context::Context;
use crate::exit::Failure;
use crate::tune::{PlaceArgs, StateArgs, notice};

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Purpose of the packets; without it, settings that help one purpose and harm another pass
    #[arg(long, value_enum)]
    profile: Option<Profile>,
    /// CPU of the application that receives the packets
    #[arg(long, value_name = "CPU")]
    app_cpu: Option<usize>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    state: StateArgs,
}

/// Output of a report, and its threshold.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Exit with code 4 if there is a finding of this severity or above
    #[arg(long, value_enum)]
    severity: Option<Severity>,
    /// Also write a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write metrics for the textfile collector of node_exporter: FILE.prom
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
}

pub(crate) fn run(context: &Context, args: &DoctorArgs) -> Result<(), Failure> {
    notice(&args.state);
    let system = args.place.open(&args.state)?;
    let profile = args.profile;
    let view = HostView::new(system, args.place.interface.as_deref(), profile, args.app_cpu)?;
    let report = doctor::examine(&view);
    show(context, &report, &title(args), &args.output)
}

/// Prints a report as requested. Errors: a finding at or above the requested severity.
pub(crate) fn show(
    context: &Context,
    report: &Report,
    title: &str,
    output: &OutputArgs,
) -> Result<(), Failure> {
    if let Some(file) = &output.html {
        std::fs::write(file, html::page(report, title)).map_err(|error| {
            Failure::failed(format!("cannot write {}: {error}", file.display()))
        })?;
    }
    if let Some(file) = &output.metrics {
        console::replace_file(file, &metrics::text(report, title))?;
    }
    if context.json {
        console::json(&Document {
            schema: crate::context::DOCUMENT,
            about: title,
            findings: &report.findings,
            facts: &report.facts,
            unseen: &report.unseen,
            passed: &report.passed,
        })?;
    } else {
        console::text(&text::render(report, title, console::style().width))?;
    }
    above(report, output.severity)
}

/// Document of `doctor --json` and `tunnel check --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Document<'a> {
    schema: u32,
    about: &'a str,
    findings: &'a [Finding],
    facts: &'a [Fact],
    unseen: &'a [Unseen],
    passed: &'a [&'static str],
}

fn above(report: &Report, threshold: Option<Severity>) -> Result<(), Failure> {
    let Some(threshold) = threshold else {
        return Ok(());
    };
    match report.findings.iter().filter(|finding| finding.severity >= threshold).count() {
        0 => Ok(()),
        count => {
            let findings = console::count(count, "finding");
            Err(Failure::Threshold(format!("{findings} at or above the requested severity")))
        }
    }
}

fn title(args: &DoctorArgs) -> String {
    let purpose = args.profile.map_or(String::new(), |p| format!(", for {}", p.name()));
    format!("{}{purpose}", args.place.title())
}
