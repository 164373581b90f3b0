//! A mesh of hosts as text.

use crate::screen::Tone;

/// All pairs of hosts, and what stands out.
#[derive(Debug, Clone, PartialEq)]
pub struct MeshPage {
    /// Load and number of hosts.
    pub subject: String,
    /// Figure of the matrix.
    pub caption: String,
    /// Names of the hosts, in the order of rows and columns.
    pub hosts: Vec<String>,
    /// Row of each host: a cell for each other host; `None` if the pair was not measured.
    pub cells: Vec<Vec<Option<MeshCell>>>,
    /// Each host's part: how much slower or faster its pairs are than the rest.
    pub parts: Vec<String>,
    /// Named hosts and links, or that there are none.
    pub findings: Vec<(Tone, String)>,
    /// Conditions that qualify the result.
    pub remarks: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct MeshCell {
    /// Its figure, or the reason for its absence in a word.
    pub text: String,
    /// Good: plain; bad: named; doubt: lost or failed.
    pub tone: Tone,
}
