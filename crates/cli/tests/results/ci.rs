//! `contrib/ci`: the scripts of CI jobs, and those inside the GitHub action and the GitLab template.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use serde_json::Value;

use crate::common::{Data, LONG, all_text, echo, fail, is_installed, run, run_within, succeed};

/// A command of `contrib/ci` as in a CI job, with results in `data`.
fn ci(data: &Data, program: &str) -> Command {
    let built = Path::new(env!("CARGO_BIN_EXE_wirepath")).parent().expect("a folder");
    let mut command = Command::new(program);
    command
        .env("PATH", format!("{}:{}", built.display(), env::var("PATH").expect("a path")))
        .env("WIREPATH_OUT", data.path().join("out"))
        .env("GITHUB_STEP_SUMMARY", data.file("step"))
        .env("WIREPATH_LOCKS", data.path());
    command
}

/// Folder of the action.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const CI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/ci");

#[test]
fn script_of_ci_jobs_ends_with_4_and_leaves_every_form() {
    let data = Data::new();
    let out = data.path().join("out");
    let mut command = ci(&data, &format!("{CI}/prove.sh"));
    command.args([
        "command",
        "--arm",
        "a=echo x 100",
        "--arm",
        "b=echo x 200",
        "--max-blocks",
        "8",
    ]);
    command.args(["--metric", "x_us=re:x ([0-9]+)", "--seed", "1"]);
    let output = run(command);
    assert_eq!(output.status.code(), Some(4), "{}", all_text(&output));
    assert!(all_text(&output).contains("::error title="), "{}", all_text(&output));
    for file in
        ["result.json", "report.html", "summary.md", "junit.xml", "bencher.json", "metrics.txt"]
    {
        assert!(fs::metadata(out.join(file)).is_ok_and(|file| file.len() > 0), "{file}");
    }
    let junit = fs::read_to_string(out.join("junit.xml")).unwrap();
    assert!(
        junit.contains("<failure type=\"worse\"") && junit.contains("slower than a"),
        "{junit}"
    );
    assert_eq!(fs::read(data.file("step")).unwrap(), fs::read(out.join("summary.md")).unwrap());
}

/// The script of the action's first step: what follows `run: |`, as far as it is indented.
fn script_of_action() -> String {
    let text = fs::read_to_string(format!("{ROOT}/action.yml")).expect("the action");
    let (_, rest) = text.split_once("      run: |\n").expect("a script");
    indented(rest, 8)
}

/// The first lines of a text that are indented by as many spaces, without them.
fn indented(text: &str, spaces: usize) -> String {
    let indent = " ".repeat(spaces);
    let lines: Vec<&str> = text.lines().map_while(|line| line.strip_prefix(&*indent)).collect();
    assert!(!lines.is_empty(), "{text}");
    lines.join("\n")
}

/// The script of the GitLab template: the items of `script`, one of several lines and one of one.
fn script_of_gitlab() -> String {
    let text = fs::read_to_string(format!("{CI}/gitlab.yml")).expect("the template");
    let (_, rest) = text.split_once("  script:\n    - |\n").expect("a script");
    let first = indented(rest, 6);
    let (_, second) = rest.split_once("\n    - ").expect("a second item");
    format!("{first}\n{}", second.lines().next().expect("a line"))
}

/// Runs of which one must decide.
const RUNS_MAX: usize = 5;
/// Longest time of the experiment of a job.
const CI_TIME: Duration = Duration::from_secs(100);

/// Runs a CI job that compares two servers, which work for so many microseconds a request.
///
/// - Returns the exit code, all output, and the verdict on the median round trip.
fn compared_in_ci(mut command: Command, data: &Data, [old, new]: [u32; 2]) -> (i32, String, Value) {
    let [echo, ping] = [("echo.py", echo::SERVER), ("ping.py", echo::PING)].map(|(name, text)| {
        let file = data.file(name);
        fs::write(&file, text).expect("a script");
        format!("exec python3 {file}")
    });
    command
        .env("WIREPATH_AGAINST", format!("{echo} {old}"))
        .env("WIREPATH_SERVER", format!("{echo} {new}"))
        .env("WIREPATH_CLIENT", ping)
        .env("WIREPATH_METRIC", format!("{}\n", echo::METRIC));
    let output = run_within(CI_TIME + LONG, command);
    let said = all_text(&output);
    let text = fs::read(data.path().join("out/result.json")).expect("a result");
    let outcome: Value = serde_json::from_slice(&text).expect("a document");
    let arms = outcome["arms"].as_array().expect("arms");
    let names: Vec<&Value> = arms.iter().map(|arm| &arm["name"]).collect();
    assert_eq!(names, ["old", "old again", "new"], "{said}");
    (output.status.code().expect("it ended"), said, arms[2]["metrics"]["p50_us"]["verdict"].clone())
}

#[test]
fn ci_jobs_compare_a_branch_with_the_old_server() {
    if !is_installed("python3") {
        return;
    }
    let time = format!("{}s", CI_TIME.as_secs());
    let limits = ["--ready", "udp", "--max-blocks", "8", "--time", &time];
    // On a busy machine a run may find that the old server differs from itself, or no difference of the round
    // trip, and then decides nothing.
    let is_found_worse = (0..RUNS_MAX).any(|_| {
        let data = Data::new();
        let mut command = ci(&data, &format!("{CI}/prove.sh"));
        command.arg("command").args(limits);
        let (code, said, verdict) = compared_in_ci(command, &data, [0, 400]);
        let is_worse = verdict == "worse";
        assert!(is_worse || verdict == "inconclusive", "{said}");
        match code {
            4 => assert!(said.contains("slower than old"), "{said}"),
            code => assert!(code == 5 && said.contains("not decided"), "{code}: {said}"),
        }
        is_worse && code == 4
    });
    assert!(is_found_worse, "no verdict in {RUNS_MAX} runs");
    let same = Data::new();
    // By the action, whose words come as one text.
    let mut command = ci(&same, "bash");
    // A false alarm of a few per cent is no difference of this size.
    let experiment = format!("command {} --resolve 50", limits.join(" "));
    command.args(["-euc", &script_of_action()]);
    command.env("GITHUB_ACTION_PATH", ROOT).env("RUNNER_TEMP", same.path());
    command.env("EXPERIMENT", experiment).env("RELEASE", "").env("SHA256", "").env("VERSION", "");
    let (code, said, _) = compared_in_ci(command, &same, [400, 400]);
    assert_ne!(code, 4, "{said}");
}

/// User and group without files or privileges that every Debian has.
const UNPRIVILEGED: u32 = 65534;

/// A folder as that of a job's user, who has no privilege: the scripts, and a release with a program.
struct Job {
    data: Data,
    /// File of the release.
    release: String,
}

impl Job {
    /// - `program`: the release's.
    fn new(program: &[u8]) -> Job {
        let data = Data::new();
        for folder in ["contrib/ci", "release", "temp"] {
            fs::create_dir_all(data.path().join(folder)).expect("a folder");
        }
        for script in ["install.sh", "prove.sh"] {
            let to = data.path().join("contrib/ci").join(script);
            fs::copy(format!("{CI}/{script}"), to).expect("a script");
        }
        let name = format!("wirepath-0.0.0-{}-linux", env::consts::ARCH);
        let release = data.file(&format!("release/{name}"));
        fs::write(&release, program).expect("a program");
        let job = Job { data, release };
        job.sum_up();
        job
    }

    /// Writes the checksums of the release.
    fn sum_up(&self) {
        let script = "cd \"$0\" && sha256sum -- wirepath-* > SHA256SUMS";
        let mut command = Command::new("sh");
        command.args(["-euc", script, &self.data.file("release")]);
        succeed(command);
    }

    /// A command in this folder, by a user without privileges if this is root.
    fn command(&self, program: &str) -> Command {
        let mut command = ci(&self.data, program);
        command.current_dir(self.data.path()).env("HOME", self.data.path());
        // Installed by the job alone.
        command.env("PATH", env::var("PATH").expect("a path"));
        if Command::new("id").arg("-u").output().expect("id").stdout == b"0\n" {
            let folders = ["", "contrib", "contrib/ci", "release", "temp"];
            for folder in folders.map(|folder| self.data.path().join(folder)) {
                fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("our folder");
                chown(&folder, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("root may");
            }
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        command
    }

    /// `install.sh` with these arguments.
    fn install(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&self.data.file("contrib/ci/install.sh"));
        command.args(arguments);
        command
    }
}

/// A program that answers `--version` alone.
const PROGRAM: &[u8] = b"#!/bin/sh\necho wirepath 0.0.0\n";

#[test]
fn a_release_is_installed_only_with_its_checksum() {
    let job = Job::new(PROGRAM);
    let (release, bin) = (job.release.as_str(), job.data.file("bin"));
    let installed = format!("{bin}/wirepath");
    let folder = job.data.file("release");
    let url = format!("file://{release}");
    let sum = succeed({
        let mut command = Command::new("sha256sum");
        command.arg(release);
        command
    });
    let sum = sum.split(' ').next().expect("a sum");
    let mut sources = vec![[release, ""], [folder.as_str(), ""], [release, sum]];
    if is_installed("curl") {
        sources.push([&url, ""]);
    }
    for [source, sum] in sources {
        assert_eq!(succeed(job.install(&[source, &bin, sum])).trim_end(), installed, "{source}");
        assert_eq!(fs::read(&installed).expect("a program"), PROGRAM);
        fs::remove_file(&installed).expect("ours");
    }
    let said = fail(job.install(&["http://example.org/wirepath", &bin]), 1);
    assert!(said.contains("not an https or file URL"), "{said}");
    let said = fail(job.install(&[release, &bin, &"0".repeat(64)]), 1);
    assert!(said.contains("nothing is installed"), "{said}");
    // Changed after it was summed up.
    fs::write(release, "other").expect("our file");
    let said = fail(job.install(&[release, &bin]), 1);
    assert!(said.contains("nothing is installed"), "{said}");
    // The sum is right, and it is no program.
    job.sum_up();
    let said = fail(job.install(&[release, &bin]), 1);
    assert!(said.contains("does not run on this machine"), "{said}");
    fs::remove_file(job.data.file("release/SHA256SUMS")).expect("ours");
    let said = fail(job.install(&[release, &bin]), 1);
    assert!(said.contains("no SHA256SUMS beside"), "{said}");
    assert!(!Path::new(&installed).exists());
    assert_eq!(fs::read_dir(&bin).expect("a folder").count(), 0, "no part is left");
}

/// Makes a key, and the file of public keys that names it.
fn new_signer(data: &Data, name: &str) -> (String, String) {
    let (key, signers) = (data.file(name), data.file(&format!("{name}.signers")));
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", &key]);
    succeed(command);
    let public = fs::read_to_string(format!("{key}.pub")).expect("a public key");
    fs::write(&signers, format!("release@wirepath {public}")).expect("our folder");
    (key, signers)
}

#[test]
fn a_release_with_another_signature_is_not_installed() {
    if !is_installed("ssh-keygen") {
        return;
    }
    let job = Job::new(PROGRAM);
    let (release, bin) = (job.release.as_str(), job.data.file("bin"));
    let (key, signers) = new_signer(&job.data, "key");
    let (_, others) = new_signer(&job.data, "other");
    let install = |signers: &str| {
        let mut command = job.install(&[release, &bin]);
        command.env("WIREPATH_SIGNERS", signers);
        command
    };
    let said = fail(install(&signers), 1);
    assert!(said.contains("no SHA256SUMS.sig beside"), "{said}");
    let sums = job.data.file("release/SHA256SUMS");
    let mut command = Command::new("ssh-keygen");
    command.args(["-Y", "sign", "-q", "-f", &key, "-n", "wirepath-release", &sums]);
    succeed(command);
    let said = fail(install(&others), 1);
    assert!(said.contains("not signed by a known key: nothing is installed"), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    assert!(!Path::new(&bin).exists(), "a folder is left");
    succeed(install(&signers));
    // Program and sum changed together, as by an intruder of the place that it is fetched from.
    fs::remove_dir_all(&bin).expect("ours");
    fs::write(release, "#!/bin/sh\necho other\n").expect("our file");
    job.sum_up();
    let said = fail(install(&signers), 1);
    assert!(said.contains("not signed by a known key: nothing is installed"), "{said}");
    assert!(!Path::new(&bin).exists(), "a folder is left");
}

#[test]
fn a_compressed_release_is_unpacked() {
    let job = Job::new(PROGRAM);
    // ./test installs it.
    let mut command = Command::new("xz");
    command.arg(&job.release);
    succeed(command);
    job.sum_up();
    let packed = format!("{}.xz", job.release);
    succeed(job.install(&[&packed, &job.data.file("bin")]));
    assert_eq!(fs::read(job.data.file("bin/wirepath")).expect("a program"), PROGRAM);
}

/// Comparisons of programs that end, which need no lab: one that is worse, and one that cannot be decided.
const WORSE: &str = "compare true 'sleep 0.1' --time 20s";
const UNDECIDED: &str = "compare true true --time 2s --resolve 0.01";

/// Runs a script of a CI system in the folder of a job.
fn run_job(job: &Job, script: &str, experiment: &str, undecided: &str) -> (Option<i32>, String) {
    let mut command = job.command("bash");
    command.args(["-euc", script]);
    command
        .env("GITHUB_ACTION_PATH", job.data.path())
        .env("VERSION", "")
        .env("RUNNER_TEMP", job.data.file("temp"))
        .env("RELEASE", &job.release)
        .env("WIREPATH_RELEASE", &job.release)
        .env("SHA256", "")
        .env("WIREPATH_RELEASE_SHA256", "")
        .env("EXPERIMENT", experiment)
        .env("WIREPATH_UNDECIDED", undecided);
    let output = run_within(LONG * 4, command);
    (output.status.code(), all_text(&output))
}

#[test]
fn jobs_of_a_user_without_privileges_install_a_release_and_leave_the_result() {
    let job = Job::new(&fs::read(env!("CARGO_BIN_EXE_wirepath")).expect("the program"));
    let out = job.data.path().join("out");
    let (code, said) = run_job(&job, &script_of_action(), WORSE, "fail");
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("::error title="), "{said}");
    assert!(out.join("junit.xml").exists() && out.join("report.html").exists());
    fs::remove_dir_all(&out).expect("ours");

    let script = script_of_gitlab();
    let experiment = script.rsplit("prove.sh ").next().expect("its experiment");
    let (code, said) = run_job(&job, &script.replace(experiment, WORSE), "", "fail");
    assert_eq!(code, Some(4), "{said}");
    for file in ["junit.xml", "metrics.txt"] {
        assert!(fs::metadata(out.join(file)).is_ok_and(|file| file.len() > 0), "{file}");
    }
    let (code, said) = run_job(&job, &script_of_action(), UNDECIDED, "no");
    assert!(code == Some(2) && said.contains("give pass or fail"), "{said}");
}

#[test]
fn an_undecided_result_is_a_warning_and_the_input_says_whether_the_job_fails() {
    let job = Job::new(&fs::read(env!("CARGO_BIN_EXE_wirepath")).expect("the program"));
    for (undecided, wanted) in [("fail", 5), ("pass", 0)] {
        // One run in twenty finds a difference that is none.
        let is_undecided = (0..RUNS_MAX).any(|_| {
            let (code, said) = run_job(&job, &script_of_action(), UNDECIDED, undecided);
            let is_warned = said.contains("::warning title=Wirepath::Not decided");
            assert!(!is_warned || code == Some(wanted), "{said}");
            is_warned
        });
        assert!(is_undecided, "{undecided}: each run was decided");
    }
}
