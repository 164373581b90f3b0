//! Features of the table: a command for each, and how its result is read.

use serde_json::Value;

use crate::common::rig::{Rig, ScriptResult};
use crate::machine::FAR_IP;

/// A row of the table.
pub(crate) struct Feature {
    pub(crate) name: &'static str,
    /// As the page shows it.
    pub(crate) command: String,
    run: Run,
}

enum Run {
    /// The command as it is.
    Plain,
    /// Beside an echo with the same options in the far namespace.
    Echo(&'static str),
}

/// Result of a feature on a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Works,
    /// The command did its work without the feature, and said so.
    WithoutEffect(String),
    /// First line of the message.
    Refused(String),
    /// Not all of the 50 answers came.
    Lost(u64),
}

/// Tries of a feature that loses datagrams: an emulated card on a busy host loses single ones of any engine.
const TRIES: usize = 3;

fn plain(name: &'static str, command: &str) -> Feature {
    Feature { name, command: command.to_owned(), run: Run::Plain }
}

fn ping(name: &'static str, options: &'static str) -> Feature {
    let command = format!("wirepath probe ping {FAR_IP} --no-peer -c 50 -i via {options}");
    Feature { name, command, run: Run::Echo(options) }
}

pub(crate) fn all() -> Vec<Feature> {
    vec![
        plain("list of paths", "wirepath paths"),
        plain("checks of a host", "wirepath doctor via"),
        ping("UDP sockets", "--arm baseline"),
        ping("AF_PACKET", "--packet"),
        ping("AF_XDP, SKB mode", "--arm bypass"),
        ping("AF_XDP, native mode", "--arm bypass+native"),
        ping("AF_XDP, zero-copy", "--arm bypass+native+zero-copy --require-zero-copy"),
        ping("AF_XDP, several frames a packet", "--arm bypass --multi-buffer"),
        ping("busy polling of a socket", "--arm busy-poll"),
        ping("busy polling by epoll", "--arm epoll+epoll-busy-poll"),
        ping("interrupt suspension", "--arm epoll+epoll-busy-poll+irq-suspend"),
        ping("io_uring", "--arm io-uring"),
        ping("MSG_ZEROCOPY", "--arm zero-copy-send"),
        plain("explain", "wirepath explain --time 1s"),
        plain(
            "experiment in a lab, sockets",
            "wirepath prove probe --arms spin --trial 50ms --max-blocks 6 --time 60s --no-history",
        ),
        plain(
            "experiment in a lab, AF_XDP native",
            "wirepath prove probe --arms spin+bypass+native --trial 50ms --max-blocks 6 --time 60s --no-history",
        ),
    ]
}

impl Feature {
    /// The first result that is no loss, or the last one.
    pub(crate) fn try_on(&self, rig: &Rig) -> Outcome {
        let mut outcome = self.try_once(rig);
        for _ in 1..TRIES {
            if matches!(outcome, Outcome::Lost(_)) {
                outcome = self.try_once(rig);
            }
        }
        outcome
    }

    fn try_once(&self, rig: &Rig) -> Outcome {
        match self.run {
            Run::Plain => plain_outcome(&rig.run(&self.command)),
            Run::Echo(options) => echo_outcome(&rig.run(&self.beside_an_echo(options))),
        }
    }

    fn beside_an_echo(&self, options: &str) -> String {
        // Refusals of the near end are the ones to show: the far end may have ended with the same.
        format!(
            "ip netns exec far wirepath probe echo -i vib {options} >/tmp/far.out 2>/tmp/far.err &
             far=$!
             n=0
             until grep -q listening /tmp/far.err || ! kill -0 $far 2>/dev/null; do
                 n=$((n + 1)); [ $n -lt 300 ] || break
                 sleep 0.1
             done
             {} --json
             code=$?
             kill $far 2>/dev/null
             wait $far
             exit $code",
            self.command
        )
    }
}

fn plain_outcome(ran: &ScriptResult) -> Outcome {
    match ran.code {
        0 if ran.stdout.is_empty() => Outcome::Refused("no output".to_owned()),
        0 => Outcome::Works,
        _ => Outcome::Refused(message(ran)),
    }
}

fn echo_outcome(ran: &ScriptResult) -> Outcome {
    let document = serde_json::from_str::<Value>(&ran.stdout).unwrap_or_default();
    let received =
        document.pointer("/deliveries/round-trip/received_count").and_then(Value::as_u64);
    let noted = document.pointer("/not_effective/0/why").and_then(Value::as_str);
    match (ran.code, received, noted) {
        (0, Some(50), Some(why)) => Outcome::WithoutEffect(why.to_owned()),
        (0, Some(50), None) => Outcome::Works,
        (0, Some(count), _) => Outcome::Lost(count),
        _ => Outcome::Refused(message(ran)),
    }
}

/// The error on standard error; progress comes before it.
fn message(ran: &ScriptResult) -> String {
    let lines = ran.stderr.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<&str> = lines.collect();
    let found = lines
        .iter()
        .copied()
        .find(|line| line.contains("error") || line.contains("unsupported"))
        .or(lines.last().copied());
    found.map_or_else(|| format!("exit code {}", ran.code), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(code: i32, stdout: &str, stderr: &str) -> ScriptResult {
        ScriptResult { code, stdout: stdout.to_owned(), stderr: stderr.to_owned() }
    }

    #[test]
    fn a_feature_works_only_if_every_answer_came_and_nothing_was_noted() {
        let document = |received: u32, notes: &str| {
            format!(
                r#"{{"deliveries":{{"round-trip":{{"received_count":{received}}}}},"not_effective":[{notes}]}}"#
            )
        };
        assert_eq!(echo_outcome(&ran(0, &document(50, ""), "")), Outcome::Works);
        let noted = document(50, r#"{"switch":"busy-poll","why":"no NAPI"}"#);
        assert_eq!(echo_outcome(&ran(0, &noted, "")), Outcome::WithoutEffect("no NAPI".into()));
        let few = echo_outcome(&ran(0, &document(49, ""), ""));
        assert_eq!(few, Outcome::Lost(49));
    }

    #[test]
    fn the_error_is_told_from_progress() {
        let stderr = "peer is absent\nerror: Linux 5.18 is needed\n";
        let refused = Outcome::Refused("error: Linux 5.18 is needed".into());
        assert_eq!(plain_outcome(&ran(3, "", stderr)), refused);
        assert_eq!(plain_outcome(&ran(7, "", "")), Outcome::Refused("exit code 7".into()));
        assert_eq!(plain_outcome(&ran(0, "", "")), Outcome::Refused("no output".into()));
    }
}
