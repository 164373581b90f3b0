//! The output in which a figure is.

use std::fmt;
use std::path::PathBuf;

use super::figure::{FigureFault, fault};

/// Kinds of sources, behind the path of a file.
const SOURCES: [&str; 4] = [":json:", ":re:", ":csv:", ":hdr:"];

/// Output in which a figure is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Output of the program that is measured and runs to its end; without a prefix.
    Own,
    /// `server:`, output of the server.
    Server,
    /// `beside:`, output of the program beside the trial.
    Beside,
    /// `file:PATH:`, a file that the server writes, or the arm's program if there is no server.
    File(PathBuf),
}

impl Origin {
    /// Splits an origin off the start of a source. Errors: a file without a path or a source.
    pub(super) fn split(text: &str) -> Result<(Origin, &str), FigureFault> {
        const FORM: &str = "write file:PATH:json:/pointer";
        let Some((kind, rest)) = text.split_once(':') else { return Ok((Origin::Own, text)) };
        match kind {
            "server" => Ok((Origin::Server, rest)),
            "beside" => Ok((Origin::Beside, rest)),
            "file" => {
                // A path may have a colon.
                match SOURCES.iter().filter_map(|source| rest.find(source)).min() {
                    Some(end) => Ok((Origin::File(rest[..end].into()), &rest[end + 1..])),
                    None if SOURCES.iter().any(|source| rest.starts_with(&source[1..])) => {
                        fault("file: has no path".into(), FORM)
                    }
                    None => fault(format!("file:{rest} has no source"), FORM),
                }
            }
            _ => Ok((Origin::Own, text)),
        }
    }
}

/// The prefix of a source.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Own => Ok(()),
            Origin::Server => f.write_str("server:"),
            Origin::Beside => f.write_str("beside:"),
            Origin::File(path) => write!(f, "file:{}:", path.display()),
        }
    }
}
