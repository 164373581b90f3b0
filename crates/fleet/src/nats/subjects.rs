//! Names under which an agent reaches subjects of account `CORE`.
//!
//! All that a host may publish begins with `wp.up.<host>.`: one rule of the broker a host, where each rule and each word
//! of it takes memory in every connection.

/// Kinds of messages that an agent sends: `wp.<kind>.<host>` in `CORE`.
const SENT: [&str; 3] = ["result", "hb", "lease"];
/// Streams whose latest message an agent reads, with their kind and the words behind the host's name.
const READ: [(&str, &str, usize); 4] =
    [("JOBS", "job", 0), ("LEASE", "lease", 0), ("ALIVE", "hb", 0), ("STORED", "stored", 1)];

/// A subject of `CORE` that agents reach.
pub(crate) struct Opened {
    /// With `*` for the host.
    pub(crate) core: String,
    /// Its name for agents, with the same words for each `*`.
    pub(crate) agent: String,
}

/// All of them.
pub(crate) fn opened() -> Vec<Opened> {
    let opened = |prefix: &str, kind: &str, verb: &str, more: usize| Opened {
        core: format!("{prefix}wp.{kind}.*{}", ".*".repeat(more)),
        agent: format!("wp.up.*.{verb}{kind}{}", ".*".repeat(more)),
    };
    let sent = SENT.iter().map(|kind| opened("", kind, "", 0));
    let read = READ.iter().map(|(stream, kind, more)| {
        opened(&format!("$JS.API.DIRECT.GET.{stream}."), kind, "last.", *more)
    });
    sent.chain(read).collect()
}

/// Subjects to which the agent of a host may publish.
pub(crate) fn host_subjects(host: &str) -> String {
    format!("wp.up.{host}.>")
}

/// Name for agents of `wp.<kind>.<host>…`.
pub(super) fn to_send(subject: &str) -> String {
    named(subject, "")
}

/// Name for agents of the latest message of `wp.<kind>.<host>…`.
pub(super) fn to_read(subject: &str) -> String {
    named(subject, "last.")
}

fn named(subject: &str, verb: &str) -> String {
    let mut words = subject.splitn(4, '.').skip(1);
    let (kind, host) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let rest = words.next().map_or(String::new(), |rest| format!(".{rest}"));
    format!("wp.up.{host}.{verb}{kind}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_broker_s_configuration() {
        let names: Vec<String> = opened().into_iter().map(|opened| opened.agent).collect();
        for (named, pattern) in [
            (to_send("wp.result.h7"), "wp.up.*.result"),
            (to_read("wp.job.h7"), "wp.up.*.last.job"),
            (to_read("wp.stored.h7.12"), "wp.up.*.last.stored.*"),
        ] {
            let with_host = pattern.replacen('*', "h7", 1).replacen('*', "12", 1);
            assert_eq!(named, with_host);
            assert!(names.iter().any(|name| name == pattern), "{pattern}");
        }
    }
}
