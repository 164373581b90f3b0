//! Arguments of `wirepath compare`.

use clap::Args;
use house::args::parse_duration;

use crate::shared_args::{ResolveArgs, TitleArgs, WatchArgs, WireArgs};

/// Two programs, and the client of servers.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Command of the old program; a git reference with --build, an image with --image
    pub(super) old: String,
    /// Command of the new program, or the like
    pub(super) new: String,
    /// Client that measures them as servers: wrk, redis-benchmark, your own; without it they run to their end
    #[arg(last = true, value_name = "CLIENT")]
    pub(super) client: Vec<String>,
    /// Build OLD and NEW, which are git references of this repository, by this command; `.` is the working tree
    #[arg(long, value_name = "COMMAND", requires = "run")]
    pub(super) build: Option<String>,
    /// Program of each build, run in its folder
    #[arg(long, value_name = "COMMAND", requires = "build")]
    pub(super) run: Option<String>,
    /// OLD and NEW are container images, which podman runs in the lab
    #[arg(long, conflicts_with = "build")]
    pub(super) image: bool,
    /// Figure that decides: NAME='SOURCE lower|higher' with json:/POINTER, re:REGEX, csv:COLUMN or hdr:TAG@Q; or the
    /// name of one that needs no parsing; default: the first of a known client, else the wall time
    #[arg(long, value_name = "NAME=SOURCE")]
    pub(super) metric: Vec<String>,
    /// Servers are ready: tcp:PORT, udp:PORT, line:REGEX, file:PATH or sleep:MS; default: once they listen
    #[arg(long, value_name = "SIGN")]
    pub(super) ready: Option<String>,
    /// Command before each trial
    #[arg(long, value_name = "COMMAND")]
    pub(super) setup: Option<String>,
    #[command(flatten)]
    pub(super) wire: WireArgs,
    /// Congestion control of OLD and of NEW and their clients in the lab, such as cubic,bbr; both commands may then be the
    /// same
    #[arg(long, value_name = "OLD,NEW", value_parser = parse_two_names)]
    pub(super) congestion_control: Option<TwoNames>,
    /// Time to spend; the run ends sooner once the answer is decided
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    pub(super) time: std::time::Duration,
    #[command(flatten)]
    pub(super) resolve: ResolveArgs,
    /// Seed of the order of trials; default: random
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// End with 0 if it is not decided
    #[arg(long)]
    pub(super) accept_undecided: bool,
    #[command(flatten)]
    pub(super) watch: WatchArgs,
    #[command(flatten)]
    pub(super) title: TitleArgs,
    /// Do not store the result
    #[arg(long)]
    pub(super) no_history: bool,
}

/// A name for OLD and one for NEW.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TwoNames(pub(super) [String; 2]);

fn is_name(text: &str) -> bool {
    (1..=15).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Errors: it is not two names with a comma between them.
fn parse_two_names(text: &str) -> Result<TwoNames, String> {
    match text.split_once(',') {
        Some((old, new)) if is_name(old) && is_name(new) => {
            Ok(TwoNames([old.to_owned(), new.to_owned()]))
        }
        _ => Err("write two names, such as cubic,bbr".to_owned()),
    }
}

impl CompareArgs {
    /// True if its trials run in namespaces that it makes: programs that end need none.
    pub(crate) fn makes_lab(&self) -> bool {
        !self.client.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_names_have_a_comma_between_them() {
        assert_eq!(
            parse_two_names("cubic,bbr").unwrap(),
            TwoNames(["cubic".to_owned(), "bbr".to_owned()])
        );
        for text in
            ["", "cubic", "cubic,", ",bbr", "cubic,bbr,reno", "cubic, bbr", "a-name-of-sixteen,x"]
        {
            assert!(parse_two_names(text).is_err(), "{text}");
        }
    }
}
