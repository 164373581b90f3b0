//! Layout of the metrics in Prometheus text format.

use std::fmt::Write;

/// Begins a metric.
pub(super) fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP wirepath_tunnel_{name} {help}");
    let _ = writeln!(out, "# TYPE wirepath_tunnel_{name} {kind}");
}
