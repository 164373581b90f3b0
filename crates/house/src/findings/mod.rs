//! A report of the doctor's checks: text, page, metrics and document.

mod html;
mod metrics;
mod text;

use std::path::PathBuf;

use clap::Args;
use host::causes::{DoctorReport, Fact, Finding, Severity, Unseen};
use host::observer::Observed;
use remote::Failure;
use schemars::JsonSchema;
use serde::Serialize;

use crate::console;
use crate::context::{Context, DOCUMENT};
use crate::next::{self, CommandLine};
use crate::place::PlaceArgs;

/// Output of a report, and its threshold.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Exit with code 4 if there is a finding of this severity or above
    #[arg(long, value_enum)]
    severity: Option<Severity>,
    /// Show evidence, reasons, effects and risks, and what was measured
    #[arg(long, short)]
    verbose: bool,
    /// Also write a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write metrics for the textfile collector of the node exporter: FILE.prom
    #[arg(long, value_name = "FILE")]
    textfile: Option<PathBuf>,
}

/// Place and purpose of an examination.
pub struct Examined<'a> {
    pub place: &'a PlaceArgs,
    /// Added to the title.
    pub purpose: &'a str,
    /// The command that examines it, with its options but those of the place.
    pub command: CommandLine,
}

/// Prints a report as requested, and the command that plans its settings. Errors: a finding at or above the requested
/// severity.
pub fn show(
    context: &Context,
    report: &DoctorReport,
    examined: &Examined<'_>,
    output: &OutputArgs,
) -> Result<(), Failure> {
    let Examined { place, purpose, .. } = examined;
    let title = &format!("{}{purpose}", place.title());
    if let Some(file) = &output.html {
        console::replace_file(file, html::page(report, title))?;
    }
    if let Some(file) = &output.textfile {
        console::replace_file(file, metrics::text(report, title))?;
    }
    if context.json {
        console::json(&DoctorDocument {
            schema: DOCUMENT,
            about: title,
            netns: place.netns.as_deref(),
            findings: &report.findings,
            facts: &report.facts,
            unseen: &report.unseen,
            passed: &report.passed,
            observed: report.observed.as_ref(),
        })?;
    } else {
        console::text(&text::render(report, title, !output.verbose, console::style()))?;
        if let Some(line) = planning(report, examined) {
            next::say(context, &line);
        }
    }
    above(report, output.severity)
}

/// Document of `doctor --json` and `tunnel check --json`.
#[derive(Serialize, JsonSchema)]
pub struct DoctorDocument<'a> {
    schema: u32,
    about: &'a str,
    /// Network namespace that was examined, as it was named; `None` for that of the command.
    netns: Option<&'a str>,
    findings: &'a [Finding],
    facts: &'a [Fact],
    unseen: &'a [Unseen],
    passed: &'a [&'static str],
    /// Counts of `doctor --observe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    observed: Option<&'a Observed>,
}

/// The command that makes a plan of the findings; `None` if none of them is a setting of `tune`, or they were proved.
///
/// A plan is for one interface: that of the first finding, which is the most severe.
fn planning(report: &DoctorReport, examined: &Examined<'_>) -> Option<CommandLine> {
    let Examined { place, command, .. } = examined;
    let settings: Vec<_> = report.findings.iter().flat_map(|finding| &finding.settings).collect();
    let is_proved = report.findings.iter().any(|finding| !finding.worth.is_empty());
    if settings.is_empty() || is_proved {
        return None;
    }
    let first = settings.iter().find_map(|setting| setting.target.interface());
    let interface = place.interface.as_deref().or(first);
    let examine = command.clone().argument(interface);
    let examine = examine.option("--netns", place.netns.as_deref());
    Some(examine.words("--json | wirepath tune plan --from - > plan.toml"))
}

fn above(report: &DoctorReport, threshold: Option<Severity>) -> Result<(), Failure> {
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

#[cfg(test)]
mod tests {
    use host::causes::{Confidence, FindingEvidence, FindingWorth};
    use report::screen::Style;
    use testkit::hostile;

    use super::*;

    /// A report with a text in each place that may have the name of an interface, a process or a file.
    fn report(text: &str) -> DoctorReport {
        let own = || text.to_owned();
        DoctorReport {
            findings: vec![Finding {
                cause: "taps",
                severity: Severity::High,
                confidence: Confidence::Now,
                what: own(),
                cost: Some(own()),
                evidence: vec![FindingEvidence { source: own(), value: own() }],
                why: "a reason",
                effect: "an effect",
                risk: "a risk",
                change: own(),
                undo: own(),
                settings: Vec::new(),
                worth: vec![FindingWorth {
                    knob: own(),
                    metric: own(),
                    ratio: 0.5,
                    low: Some(0.4),
                    high: None,
                    verdict: own(),
                }],
            }],
            facts: vec![Fact { cause: "memory", text: own() }],
            unseen: vec![Unseen { cause: "taps", why: own() }],
            passed: vec!["clocks"],
            observed: None,
        }
    }

    #[test]
    fn no_name_of_the_host_changes_the_structure_of_a_report_or_drives_the_terminal() {
        let usual = report(hostile::HARMLESS);
        let style = Style { width: usize::MAX, ..Style::default() };
        let elements = |page: &str| hostile::elements(page, &["meta"], "the page");
        let lines = |text: &str| text.lines().count();
        for (name, text) in hostile::texts() {
            let found = report(&text);
            let shown = report::text::visible_colored(&text::render(&found, &text, false, style));
            hostile::assert_shows(&shown, &[], name);
            hostile::assert_no_line(&shown, name);
            assert_eq!(lines(&shown), lines(&text::render(&usual, "x", false, style)), "{name}");
            let page = html::page(&found, &text);
            hostile::assert_shows(&page, &[], name);
            assert_eq!(elements(&page), elements(&html::page(&usual, "x")), "{name}");
            let metrics = metrics::text(&found, &text);
            hostile::assert_no_line(&metrics, name);
            assert_eq!(lines(&metrics), lines(&metrics::text(&usual, "x")), "{name}");
        }
    }
}
