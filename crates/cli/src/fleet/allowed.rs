//! Work that an agent takes: `prove` of a built-in path, in a lab on its host, its part of a mesh, and with
//! `--allow-tune` the steps of roll-outs.
//!
//! No argument names a file or a program, and `prove command` is not allowed, so that a coordinator that was taken
//! over can start no program of its choice. A step has a plan of settings, whose knobs are those of `tune`.

use fleet::rollout::STEP;
use host::tune::Plan;
use remote::Failure;

use super::mesh::{MESH, Part};
use super::prove::check;
use super::work::{OWNER, Work};

const PATHS: [&str; 5] = ["probe", "feed", "tunnel", "vmnic", "guest"];

/// Options with a value, of both kinds of work.
const OPTIONS: [&str; 11] = [
    "--load",
    "--size",
    "--rate",
    "--trial",
    "--ip",
    "--vlan",
    "--time",
    "--seed",
    "--min-blocks",
    "--max-blocks",
    "--resolve",
];

/// More options with a value and those without one, of a path's measurement.
const OF_JOBS: ([&str; 2], [&str; 3]) =
    (["--arms", "--peers"], ["--no-history", "--json", "--settle"]);

/// The same, of a measurement in a roll-out.
const OF_STEPS: ([&str; 2], [&str; 2]) = (["--path", "--far"], ["--no-history", "--settle"]);

/// A job that an agent does.
#[derive(Debug)]
pub(super) enum Task {
    /// `prove` with the arguments of the job.
    Prove,
    /// The echo or the pings of a pair.
    Mesh(Part),
    /// A step of a roll-out.
    Step(Work),
}

/// Reads a job. Errors: it is not on the list.
///
/// - `may_tune`: the agent runs with `--allow-tune`.
pub(super) fn read(arguments: &[String], may_tune: bool) -> Result<Task, Failure> {
    let text = match arguments {
        [name, text] if name == STEP => text,
        [name, text] if name == MESH => return Part::read(text).map(Task::Mesh),
        _ => return check_job(arguments).map(|()| Task::Prove),
    };
    let work: Work = serde_json::from_str(text)
        .map_err(|error| Failure::Usage(format!("cannot read the step: {error}")))?;
    // An agent that no longer may tune still restores what it applied.
    if !may_tune && !matches!(work, Work::RollBack { .. }) {
        return Err(Failure::Usage(
            "this host's agent runs without --allow-tune, so no plan is measured or applied here"
                .into(),
        ));
    }
    check_step(&work)?;
    Ok(Task::Step(work))
}

/// Checks a step of a roll-out. Errors: it names a file, a program or a host beside a `wirepath peer`.
pub(super) fn check_step(work: &Work) -> Result<(), Failure> {
    if let Some(owner) = work.owner().filter(|owner| !owner.starts_with(OWNER)) {
        return Err(Failure::Usage(format!(
            "{owner:?} is no roll-out: its id begins with {OWNER}"
        )));
    }
    if let Some(text) = work.plan() {
        let netns = Plan::parse(text).map_err(Failure::usage)?.netns;
        if let Some(netns) = netns.filter(|netns| netns.contains('/')) {
            return Err(Failure::Usage(format!(
                "agents take no file as namespace of a plan: {netns:?}"
            )));
        }
    }
    if let Work::Measure { arguments, .. } = work {
        check_words(arguments.iter().map(String::as_str), &OF_STEPS.0, &OF_STEPS.1)?;
    }
    work.check()
}

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
    check_words(words, &OF_JOBS.0, &OF_JOBS.1)?;
    check(arguments)
}

/// Errors: an option that is on neither list, or a path as its value.
///
/// - `more`: options with a value, beside [`OPTIONS`].
fn check_words<'a>(
    mut words: impl Iterator<Item = &'a str>,
    more: &[&str],
    flags: &[&str],
) -> Result<(), Failure> {
    while let Some(word) = words.next() {
        let (name, value) = word.split_once('=').map_or((word, None), |(n, v)| (n, Some(v)));
        if flags.contains(&word) {
            continue;
        }
        if !OPTIONS.contains(&name) && !more.contains(&name) {
            return Err(Failure::Usage(format!(
                "agents take no {name:?}: use {}",
                [more, &OPTIONS].concat().join(", ")
            )));
        }
        let value = value.or_else(|| words.next()).unwrap_or_default();
        if value.contains(['/', '\0']) {
            return Err(Failure::Usage(format!("agents take no path as {name}: {value:?}")));
        }
        if name == "--far" && !value.starts_with("peer:") {
            return Err(Failure::Usage(format!(
                "agents take no far end {value:?}: use peer:HOST[:PORT], and run `wirepath peer` there"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_in_a_lab_are_measured() {
        let check = |text: &str| check_job(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for good in [
            "probe --load ping --arms spin --settle --json",
            "tunnel --time=30s --seed 7 --max-blocks 9 --resolve 2% --json",
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

    #[test]
    fn parts_of_a_mesh_have_an_address_of_one_host_and_limits() {
        let read = |address: &str, count: u32, more: &str| {
            let text = format!(
                r#"{{"does":"ping","address":"{address}","session":7,"count":{count},"wait_s":20{more}}}"#
            );
            super::read(&[MESH.to_owned(), text], false)
        };
        for good in ["10.0.0.2", "fd00::7"] {
            assert!(matches!(read(good, 20, ""), Ok(Task::Mesh(_))), "{good}");
        }
        for bad in
            ["db2", "", "10.0.0.2:9000", "--to", "255.255.255.255", "224.0.0.1", "ff02::1", "::"]
        {
            assert_eq!(read(bad, 20, "").unwrap_err().code(), 2, "{bad}");
        }
        for (count, more) in [(0, ""), (1_000_001, ""), (20, r#","port":53"#)] {
            assert_eq!(read("10.0.0.2", count, more).unwrap_err().code(), 2, "{count} {more}");
        }
    }

    #[test]
    fn steps_need_the_permission_of_the_host_and_name_no_file_program_or_other_owner() {
        let read =
            |text: &str, may_tune| super::read(&[STEP.to_owned(), text.to_owned()], may_tune);
        let confirm = r#"{"work":"confirm","owner":"rollout-1"}"#;
        assert!(matches!(read(confirm, true), Ok(Task::Step(Work::Confirm { .. }))));
        assert!(read(confirm, false).unwrap_err().text().contains("--allow-tune"));
        // The way back is always open.
        assert!(read(r#"{"work":"roll-back","owner":"rollout-1"}"#, false).is_ok());
        for bad in [
            r#"{"work":"roll-back","owner":"ansible"}"#,
            r#"{"work":"confirm","owner":"--root=/x"}"#,
            r#"{"work":"shell","owner":"rollout-1"}"#,
            "x",
        ] {
            assert_eq!(read(bad, true).unwrap_err().code(), 2, "{bad}");
        }
        let plan = "schema = 1\nmachine = \"x\"\nprofile = \"forwarding\"\n";
        let measure = |plan: &str, words: &str| {
            let arguments = words.split(' ').map(str::to_owned).collect();
            check_step(&Work::Measure { plan: plan.to_owned(), has_plan: true, arguments })
        };
        for good in ["--load ping", "--far peer:db9:7117 --load=ping --max-blocks 9 --resolve=2%"] {
            assert!(measure(plan, good).is_ok(), "{good}: {:?}", measure(plan, good));
        }
        for bad in [
            "--client x --server y",
            "--far ssh:db9",
            "--far netns:red",
            "--from red",
            "--load /etc/passwd",
            "--state x",
            "-i eth0",
            "--ssh-option ProxyCommand=x",
            "--secret-file x",
        ] {
            assert_eq!(measure(plan, bad).unwrap_err().code(), 2, "{bad}");
        }
        let file = format!("{plan}netns = \"/proc/1/ns/net\"\n");
        assert!(measure(&file, "--load ping").unwrap_err().text().contains("no file"));
        assert!(measure("nonsense", "--load ping").is_err());
        assert!(matches!(super::read(&["probe".into()], true), Ok(Task::Prove)));
    }
}
