//! What the fuzz target holds true of lines on the control connection.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::protocol::{Answer, Ask, Hello, Say};
use crate::probe::role::RoleReport;

/// A line is no message, or one that can be written and read again as the same; a report can be
/// used.
pub fn peer_message(line: &[u8]) {
    again::<Hello>(line);
    again::<Answer>(line);
    again::<Ask>(line);
    if let Some(Say::Report { report }) = again::<Say>(line)
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
