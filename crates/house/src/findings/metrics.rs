//! Findings as metrics, for the textfile collector of node_exporter.

use host::causes::{DoctorReport, Severity};
use report::metrics::Metrics;
use time::OffsetDateTime;

const SEVERITIES: [(Severity, &str); 4] = [
    (Severity::High, "high"),
    (Severity::Medium, "medium"),
    (Severity::Low, "low"),
    (Severity::Info, "info"),
];

/// - `about`: the examined host, namespace or interface.
pub(super) fn text(report: &DoctorReport, about: &str) -> String {
    let mut metrics = Metrics::new("wirepath_doctor");
    let mut findings = metrics.gauge("findings", "Causes why packets are lost, late or refused.");
    for (severity, name) in SEVERITIES {
        let count = report.findings.iter().filter(|one| one.severity == severity).count();
        findings.sample(&[("about", about), ("severity", name)], count);
    }
    let mut found = metrics.gauge("finding", "A finding: 1 as long as it is there.");
    for finding in &report.findings {
        let severity = SEVERITIES.iter().find(|(severity, _)| *severity == finding.severity);
        let severity = severity.map_or("", |(_, name)| name);
        let labels = [
            ("about", about),
            ("cause", finding.cause),
            ("severity", severity),
            ("what", finding.what.as_str()),
        ];
        found.sample(&labels, 1);
    }
    metrics
        .gauge("causes_excluded", "Causes that were looked for completely and not found.")
        .sample(&[("about", about)], report.passed.len());
    metrics
        .gauge("causes_unseen", "Reasons why a cause could not be looked for, or not completely.")
        .sample(&[("about", about)], report.unseen.len());
    metrics
        .gauge("run_timestamp_seconds", "Time of the examination.")
        .sample(&[("about", about)], OffsetDateTime::now_utc().unix_timestamp());
    metrics.text()
}

#[cfg(test)]
mod tests {
    use host::causes::{Confidence, Finding};

    use super::*;

    #[test]
    fn every_severity_has_a_count_and_every_finding_a_line() {
        let finding = |what: &str| Finding {
            cause: "rings",
            severity: Severity::High,
            confidence: Confidence::Now,
            cost: None,
            what: what.into(),
            evidence: Vec::new(),
            why: "",
            effect: "",
            risk: "",
            change: String::new(),
            undo: String::new(),
            settings: Vec::new(),
            worth: Vec::new(),
        };
        let report = DoctorReport {
            findings: vec![finding("eth0: \"small\""), finding("eth1: small")],
            passed: vec!["irq"],
            ..DoctorReport::default()
        };
        let text = text(&report, "this host");
        for line in [
            "wirepath_doctor_findings{about=\"this host\",severity=\"high\"} 2",
            "wirepath_doctor_findings{about=\"this host\",severity=\"info\"} 0",
            "wirepath_doctor_finding{about=\"this host\",cause=\"rings\",severity=\"high\",what=\"eth0: \\\"small\\\"\"} 1",
            "wirepath_doctor_causes_excluded{about=\"this host\"} 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} in {text}");
        }
    }
}
