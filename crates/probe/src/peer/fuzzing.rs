//! Oracle of the fuzz target for lines of the control connection.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::protocol::{Answer, Ask, Hello, Say};
use crate::role::RoleReport;

/// A line that parses as a message survives a round trip unchanged, and the histograms of a
/// report are usable.
pub fn peer_message(line: &[u8]) {
    again::<Hello>(line);
    again::<Answer>(line);
    again::<Ask>(line);
    if let Some(Say::Report { report, .. }) = again::<Say>(line)
        && let Ok(report) = RoleReport::try_from(*report)
    {
        for histogram in report.segments.values() {
            assert!(histogram.value_at_quantile(0.99) <= histogram.max());
        }
    }
}

fn again<T: DeserializeOwned + Serialize>(line: &[u8]) -> Option<T> {
    let message: T = serde_json::from_slice(line).ok()?;
    let written = serde_json::to_vec(&message).expect("only string keys");
    let read: T = serde_json::from_slice(&written).expect("we wrote it");
    assert_eq!(serde_json::to_vec(&read).expect("only string keys"), written);
    Some(message)
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_of_peer_messages_passes() {
        testkit::corpus::replay("peer_message", super::peer_message);
    }
}
