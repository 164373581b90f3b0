//! A report as one HTML page that fetches nothing.

use std::fmt::Write;

use host::causes::DoctorReport;
// Names of processes and interfaces are untrusted.
use report::html::escape;

use super::text::{known, word, worth_text};

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
    article{border-left:.4em solid #999;padding:.1em 1em;margin:1.5em 0}\
    .high{border-color:#b00020}.medium{border-color:#c77700}.low{border-color:#3b6ea5}\
    dt{font-weight:bold;float:left;width:5.5em}dd{margin-left:6em}code{background:#eee}\
    @media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}code{background:#333}}";

pub(super) fn page(report: &DoctorReport, title: &str) -> String {
    let title = escape(title);
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>wirepath doctor: {title}</title>\
         <style>{STYLE}</style></head><body><h1>{title}</h1>\n"
    );
    for finding in &report.findings {
        let severity = word(finding.severity);
        let _ = writeln!(
            out,
            "<article class=\"{severity}\"><h2>{} <small>({severity}, {}, {})</small></h2><dl>",
            escape(&finding.what),
            escape(finding.cause),
            known(finding.confidence)
        );
        for evidence in &finding.evidence {
            let (source, value) = (escape(&evidence.source), escape(&evidence.value));
            let _ = writeln!(out, "<dt>evidence</dt><dd>{source}: <code>{value}</code></dd>");
        }
        for worth in &finding.worth {
            let _ = writeln!(out, "<dt>worth</dt><dd>{}</dd>", escape(&worth_text(worth)));
        }
        for (label, text) in [
            ("why", escape(finding.why)),
            ("effect", escape(finding.effect)),
            ("risk", escape(finding.risk)),
            ("do", format!("<code>{}</code>", escape(&finding.change))),
            ("undo", format!("<code>{}</code>", escape(&finding.undo))),
        ] {
            let _ = writeln!(out, "<dt>{label}</dt><dd>{text}</dd>");
        }
        out.push_str("</dl></article>\n");
    }
    if report.findings.is_empty() {
        out.push_str("<p>Nothing found.</p>\n");
    }
    let facts = report.facts.iter().map(|fact| fact.text.clone());
    list(&mut out, "Measured", facts);
    let unseen = report.unseen.iter().map(|unseen| format!("{}: {}", unseen.cause, unseen.why));
    list(&mut out, "Not seen, or not completely", unseen);
    list(&mut out, "Excluded", report.passed.iter().map(|name| (*name).to_owned()));
    out.push_str("</body></html>\n");
    out
}

fn list(out: &mut String, title: &str, rows: impl Iterator<Item = String>) {
    let rows: String = rows.map(|row| format!("<li>{}</li>", escape(&row))).collect();
    if !rows.is_empty() {
        let _ = writeln!(out, "<h2>{title}</h2><ul>{rows}</ul>");
    }
}

#[cfg(test)]
mod tests {
    use host::causes::{Fact, Unseen};

    use super::*;

    #[test]
    fn a_page_is_whole_and_what_others_named_is_escaped() {
        let report = DoctorReport {
            facts: vec![Fact { cause: "memory", text: "<script>".into() }],
            unseen: vec![Unseen { cause: "taps", why: "a & b".into() }],
            ..DoctorReport::default()
        };
        let page = page(&report, "eth0 \"x\"");
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert!(page.contains("&lt;script&gt;") && page.contains("a &amp; b"));
        assert!(page.contains("Nothing found") && !page.contains("http"));
    }
}
