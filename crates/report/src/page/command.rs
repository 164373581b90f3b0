//! The command line that repeats an experiment.

use model::{ArmKind, Outcome};

/// Returns the command, as far as the outcome records its arguments.
pub(crate) fn command(outcome: &Outcome) -> String {
    if let Some(args) = outcome.load.get("args") {
        let seed = if args.contains("--seed") {
            String::new()
        } else {
            format!(" --seed {}", outcome.seed)
        };
        return format!("wirepath {args}{seed}");
    }
    let mut words = vec!["wirepath".to_string()];
    match outcome.load.get("plan") {
        // The arms are settings of a plan, measured under the path's load.
        Some(plan) => words.extend(["tune prove".into(), quoted(plan), "--path".into()]),
        None => words.push("prove".into()),
    }
    words.push(quoted(&outcome.path));
    words.extend(outcome.load.iter().filter_map(|(name, value)| option(name, value)));
    let variants: Vec<_> = outcome.arms.iter().filter(|arm| arm.kind == ArmKind::Variant).collect();
    // An arm that cannot run is part of no later rung.
    let ran: Vec<_> = variants
        .iter()
        .filter(|arm| arm.support.is_yes())
        .map(|arm| arm.switches.as_slice())
        .collect();
    let sets: Vec<_> = variants
        .iter()
        .filter(|arm| !arm.switches.is_empty())
        .map(|arm| arm.switches.join("+"))
        .collect();
    if let Some(asked) = outcome.load.get("arms") {
        words.push(format!("--arms {}", quoted(asked)));
    } else if is_ladder(&ran) {
        words.push("--arms ladder".into());
    } else if !sets.is_empty() {
        words.push(format!("--arms {}", quoted(&sets.join(","))));
    }
    let peers = outcome.arms.iter().filter(|arm| arm.kind == ArmKind::Peer);
    let peers: Vec<_> = peers.map(|arm| arm.name.as_str()).collect();
    if !peers.is_empty() {
        words.push(format!("--peers {}", quoted(&peers.join(","))));
    }
    if !outcome.load.contains_key("time_ms") {
        words.push(format!("--time {}s", outcome.wall_ms.div_ceil(1000)));
    }
    words.push(format!("--seed {}", outcome.seed));
    words.join(" ")
}

/// Option of a parameter of the load; `None` if it is recorded for another purpose.
fn option(name: &str, value: &str) -> Option<String> {
    let given = |option: &str| Some(format!("{option} {}", quoted(value)));
    match name {
        "from" => given("--from"),
        "forward" => Some("--forward".into()),
        "settle" => Some("--settle".into()),
        "kind" => given("--load"),
        "size_bytes" => given("--size"),
        "rate_pps" => given("--rate"),
        "trial_ms" => Some(format!("--trial {}", quoted(&format!("{value}ms")))),
        "time_ms" => Some(format!("--time {}", quoted(&format!("{value}ms")))),
        "resolve" => given("--resolve"),
        "far" => given("--far"),
        // Results of versions without other far ends.
        "peer" => Some(format!("--far {}", quoted(&format!("peer:{value}")))),
        "far_address" | "direction" | "interface" | "queue" | "app_cpu" | "far_cpu" => {
            given(&format!("--{}", name.replace('_', "-")))
        }
        "ssh_options" => {
            let options = value.lines().map(|option| format!("--ssh-option {}", quoted(option)));
            Some(options.collect::<Vec<_>>().join(" "))
        }
        _ => None,
    }
}

/// True if each arm has the switches of the one before and one more.
fn is_ladder(variants: &[&[String]]) -> bool {
    variants.len() > 1
        && variants[0].len() == 1
        && variants.windows(2).all(|pair| {
            pair[1].len() == pair[0].len() + 1 && pair[0].iter().all(|s| pair[1].contains(s))
        })
}

/// Quotes a word for a POSIX shell where necessary.
pub fn quoted(word: &str) -> String {
    if !word.is_empty()
        && word.chars().all(|c: char| c.is_ascii_alphanumeric() || "+-_.,:/@%".contains(c))
    {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_word_cannot_leave_its_quotes() {
        assert_eq!(quoted("ping"), "ping");
        assert_eq!(quoted("a; rm -rf '/'"), r"'a; rm -rf '\''/'\'''");
    }

    fn option_text(name: &str, value: &str) -> String {
        option(name, value).unwrap_or_default()
    }

    #[test]
    fn options_of_two_hosts_are_repeated() {
        assert_eq!(option_text("far", "ssh:root@db2:22"), "--far ssh:root@db2:22");
        assert_eq!(option_text("peer", "192.0.2.7"), "--far peer:192.0.2.7");
        assert_eq!(option_text("far_address", "10.1.0.2"), "--far-address 10.1.0.2");
        let options = option_text("ssh_options", "Port=22\nIdentityFile=a key");
        assert_eq!(options, "--ssh-option 'Port=22' --ssh-option 'IdentityFile=a key'");
        assert_eq!(option("plan_digest", "x"), None);
    }

    /// - `arms`: switches joined by `+`.
    fn are_rungs(arms: &[&str]) -> bool {
        let owned: Vec<Vec<String>> =
            arms.iter().map(|arm| arm.split('+').map(str::to_string).collect()).collect();
        is_ladder(&owned.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    #[test]
    fn ladder_is_recognised_among_sets_of_arms() {
        assert!(are_rungs(&["spin", "spin+batch", "spin+batch+gso"]));
        assert!(!are_rungs(&["spin", "batch", "gso"]));
        assert!(!are_rungs(&["spin", "spin+batch+gso"]));
        assert!(!are_rungs(&["spin"]));
    }
}
