//! Work that an agent takes: `prove` of a built-in path, in a lab on its host.
//!
//! No argument names a file, a program, a host or an interface, and `prove command` is not allowed, so that a
//! coordinator that was taken over can start no program of its choice.

use super::prove::check;
use crate::exit::Failure;

const PATHS: [&str; 5] = ["probe", "feed", "tunnel", "vmnic", "guest"];

/// Options with a value.
const OPTIONS: [&str; 11] = [
    "--arms",
    "--peers",
    "--load",
    "--size",
    "--rate",
    "--trial",
    "--ip",
    "--time",
    "--seed",
    "--min-blocks",
    "--max-blocks",
];

/// Options without a value.
const FLAGS: [&str; 2] = ["--no-history", "--json"];

/// Checks the arguments of a job. Errors: they are not those of a path in a lab.
pub(super) fn check_job(arguments: &[String]) -> Result<(), Failure> {
    let mut words = arguments.iter().map(String::as_str);
    let path = words.next().unwrap_or_default();
    if !PATHS.contains(&path) {
        return Err(Failure::Usage(format!(
            "{path:?} is no path that agents measure: use {}; for other work, `fleet prove --on ssh:HOST`",
            PATHS.join(", ")
        )));
    }
    while let Some(word) = words.next() {
        let (name, value) = word.split_once('=').map_or((word, None), |(n, v)| (n, Some(v)));
        if FLAGS.contains(&word) {
            continue;
        }
        if !OPTIONS.contains(&name) {
            return Err(Failure::Usage(format!(
                "agents take no {name:?}: use {}",
                OPTIONS.join(", ")
            )));
        }
        let value = value.or_else(|| words.next()).unwrap_or_default();
        if value.contains(['/', '\0']) {
            return Err(Failure::Usage(format!("agents take no path as {name}: {value:?}")));
        }
    }
    check(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_in_a_lab_are_measured() {
        let check = |text: &str| check_job(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for good in [
            "probe --load ping --arms spin --json",
            "tunnel --time=30s --seed 7 --max-blocks 9 --json",
        ] {
            assert!(check(good).is_ok(), "{good}: {:?}", check(good));
        }
        for bad in [
            "",
            "command --arm a=./x --arm b=./y --client z",
            "--help",
            "probe --far ssh:h2",
            "probe --against ./old",
            "probe -i eth0",
            "probe --secret-file x",
            "feed --replay /etc/passwd",
            "probe --data-dir /tmp/x",
            "probe --load /etc/passwd",
            "probe x",
            "probe --load",
            "../x",
        ] {
            assert_eq!(check(bad).unwrap_err().code(), 2, "{bad}");
        }
    }
}
