//! Exit codes of commands: the one table.

/// Way in which a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCode {
    Done,
    Failed,
    Usage,
    Unsupported,
    Worse,
    Undecided,
    Interrupted,
}

impl ExitCode {
    /// Every code, in the order of its number.
    pub const ALL: [ExitCode; 7] = [
        ExitCode::Done,
        ExitCode::Failed,
        ExitCode::Usage,
        ExitCode::Unsupported,
        ExitCode::Worse,
        ExitCode::Undecided,
        ExitCode::Interrupted,
    ];

    /// Number that the process ends with.
    pub const fn code(self) -> u8 {
        match self {
            ExitCode::Done => 0,
            ExitCode::Failed => 1,
            ExitCode::Usage => 2,
            ExitCode::Unsupported => 3,
            ExitCode::Worse => 4,
            ExitCode::Undecided => 5,
            ExitCode::Interrupted => 130,
        }
    }

    /// One word.
    pub const fn name(self) -> &'static str {
        match self {
            ExitCode::Done => "done",
            ExitCode::Failed => "failed",
            ExitCode::Usage => "usage",
            ExitCode::Unsupported => "unsupported",
            ExitCode::Worse => "worse",
            ExitCode::Undecided => "undecided",
            ExitCode::Interrupted => "interrupted",
        }
    }

    /// One line.
    pub const fn meaning(self) -> &'static str {
        match self {
            ExitCode::Done => "done; with `--fail-on`, shown to be no worse",
            ExitCode::Failed => "failed",
            ExitCode::Usage => {
                "a mistake in the command line or an input file, or a file, interface or id that does not exist"
            }
            ExitCode::Unsupported => "this host lacks a right or a feature; the message names it",
            ExitCode::Worse => "worse, or found, beyond the threshold that was asked for",
            ExitCode::Undecided => "not decided; with the reason, and what would decide it",
            ExitCode::Interrupted => {
                "ended by SIGINT or SIGTERM before its planned end, also with a partial result"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_names_and_meanings_differ_and_codes_ascend() {
        for pair in ExitCode::ALL.windows(2) {
            assert!(pair[0].code() < pair[1].code(), "{pair:?}");
            assert_ne!(pair[0].name(), pair[1].name());
            assert_ne!(pair[0].meaning(), pair[1].meaning());
        }
    }
}
