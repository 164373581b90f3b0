//! Page of a recording: answers, bars and tables, all finished texts and shares.

use super::Remark;
use crate::screen::Tone;

#[derive(Debug, Clone, Default)]
pub struct SummaryPage {
    pub title: String,
    /// Time, length and program.
    pub about: String,
    /// The figures that come first.
    pub answers: Vec<SummaryAnswer>,
    pub bars: Vec<BarChart>,
    pub tables: Vec<SummaryTable>,
    pub notes: Vec<Remark>,
    /// How the figures come about.
    pub method: String,
}

#[derive(Debug, Clone)]
pub struct SummaryAnswer {
    pub subject: String,
    pub text: String,
    pub tone: Tone,
}

#[derive(Debug, Clone, PartialEq)]
pub struct BarChart {
    pub title: String,
    pub caption: String,
    /// Text alternative.
    pub description: String,
    pub bars: Vec<Bar>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    pub label: String,
    pub value: u64,
    pub text: String,
    /// 0 or 1: colour of the bar, and the line that it is of.
    pub line: usize,
}

#[derive(Debug, Clone)]
pub struct SummaryTable {
    pub section: String,
    pub caption: String,
    /// Name, and true for a column of figures.
    pub columns: Vec<(String, bool)>,
    pub rows: Vec<Vec<String>>,
}
