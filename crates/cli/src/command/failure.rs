//! A run in which every trial failed: its errors once, and the likely cause.

use model::Outcome;
use remote::Failure;
use runner::Proven;

use crate::proven::verdict;

/// Errors that are shown.
const ERRORS_MAX: usize = 2;

/// Failure of a run without a single figure, or that of the signal that ended it; `None` if any trial gave one.
pub(crate) fn all_failed(proven: &Proven) -> Option<Failure> {
    let why = text(&proven.outcome)?;
    match verdict(proven) {
        Err(interrupted @ Failure::Interrupted(_)) => Some(interrupted),
        _ => Some(Failure::Failed(why)),
    }
}

/// `None` if any trial gave a figure.
fn text(outcome: &Outcome) -> Option<String> {
    let has_figures = outcome.arms.iter().any(|arm| !arm.metrics.is_empty());
    let mut errors: Vec<&str> =
        outcome.arms.iter().flat_map(|arm| &arm.failures).map(String::as_str).collect();
    if has_figures || errors.is_empty() {
        return None;
    }
    let count = errors.len();
    errors.sort_unstable();
    errors.dedup();
    let alike = if errors.len() == 1 { " alike" } else { "" };
    let shown = errors.iter().take(ERRORS_MAX).map(|error| error.trim());
    let shown = shown.collect::<Vec<_>>().join("; ");
    let client = outcome.load.get("client").map_or("", String::as_str);
    let cause = likely_cause(client, &shown).map_or_else(String::new, |cause| format!("\n{cause}"));
    Some(format!("all {count} trials failed{alike}: {shown}{cause}"))
}

/// - `client`: command of the client; empty if each arm has its own.
fn likely_cause(client: &str, errors: &str) -> Option<&'static str> {
    let names_server = client.contains("WIREPATH_FAR");
    let names_itself = ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| client.contains(name));
    if errors.starts_with("the server") {
        return errors.contains("ended before it was ready").then_some(
            "likely cause: the server's own line; run it by hand. One that goes into the background ends for its parent",
        );
    }
    if !names_server && names_itself {
        return Some(
            "likely cause: localhost in the client's line; the server has a namespace of its own, at $WIREPATH_FAR",
        );
    }
    if !names_server && !client.is_empty() {
        return Some(
            "likely cause: the client's line has no $WIREPATH_FAR, the server's address; quote it with ' so that your \
             shell does not replace it",
        );
    }
    errors.to_lowercase().contains("refused").then_some(
        "likely cause: the port in the client's line; the server's is $WIREPATH_PORT, of --port or --ready tcp:PORT",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likely_cause_is_read_from_the_line_and_the_error() {
        let cause = |client, error| likely_cause(client, error).unwrap_or_default();
        assert!(cause("curl http://localhost:80/", "refused").contains("localhost in the client"));
        assert!(cause("curl http://db:80/", "the client failed").contains("no $WIREPATH_FAR"));
        assert!(cause("curl http://$WIREPATH_FAR:81/", "Connection refused").contains("the port"));
        let ended = "the server ended before it was ready: exit status: 1; no such option";
        assert!(cause("curl http://$WIREPATH_FAR/", ended).contains("by hand"));
        assert_eq!(likely_cause("curl http://$WIREPATH_FAR/", "the client failed"), None);
    }
}
