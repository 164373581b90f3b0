//! `wirepath compare`: exit codes and looks, by programs that print constants: never a matter of timing.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Data, LONG, is_installed, run_within, succeed};

const TIME: &str = "x_ms=re:x ([0-9.]+)";

/// Exit code, sentences and messages of a comparison.
fn compare(data: &Data, folder: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = data.wirepath(&[&["compare"], args].concat());
    command.current_dir(folder);
    let output = run_within(LONG * 4, command);
    let [shown, said] = [output.stdout, output.stderr].map(|text| {
        String::from_utf8_lossy(&text).split_whitespace().collect::<Vec<_>>().join(" ")
    });
    (output.status.code().expect("it ended"), shown, said)
}

fn compare_servers(data: &Data, [old, new]: [&str; 2], client: &[&str]) -> (i32, String, String) {
    let args = [&[old, new, "--metric", TIME, "--"][..], client].concat();
    compare(data, Path::new("/"), &args)
}

/// A server that answers each connection with one line.
fn server(port: u16, answer: &str, address: &str) -> String {
    format!("socat TCP-LISTEN:{port},fork,reuseaddr{address} SYSTEM:'echo {answer}'")
}

#[test]
fn programs_that_end_pass_fail_or_stay_open() {
    let data = Data::new();
    let [slower, same, faster] = ["echo x 120", "echo x 100", "echo x 50"]
        .map(|new| compare(&data, Path::new("/"), &["echo x 100", new, "--metric", TIME]));
    let (code, shown, said) = slower;
    assert!(code == 4 && shown.contains("new is 20 % slower than old"), "{code} {shown} {said}");
    let (code, shown, said) = same;
    assert!(code == 0 && shown.contains("new is no slower than old"), "{code} {shown} {said}");
    let (code, shown, said) = faster;
    assert!(code == 0 && shown.contains("faster"), "{code} {shown} {said}");
    let named = ["echo x 100", "echo x 100", "--metric", TIME, "--name", "before the fix"];
    let (code, shown, said) = compare(&data, Path::new("/"), &named);
    assert!(code == 0 && shown.starts_with("before the fix"), "{code} {shown} {said}");
    // Whole milliseconds cannot show 5 % of one.
    let coarse = ["echo x 1", "echo x 1", "--metric", TIME, "--time", "3s"];
    let (code, shown, said) = compare(&data, Path::new("/"), &coarse);
    assert_eq!(code, 5, "{shown} {said}");
    let accepted = [&coarse[..], &["--accept-undecided"]].concat();
    assert_eq!(compare(&data, Path::new("/"), &accepted).0, 0);
}

#[test]
fn programs_that_end_run_on_this_host_itself() {
    let data = Data::new();
    let own = fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    let check = format!("test $(readlink /proc/self/ns/net) = '{own}' && echo x 7");
    let (code, shown, said) =
        compare(&data, Path::new("/"), &[&check, &check, "--metric", TIME, "--resolve", "20"]);
    assert_eq!(code, 0, "{shown} {said}");
}

#[test]
fn a_program_that_is_missing_or_fails_is_found_before_the_run() {
    let data = Data::new();
    let (code, _, said) = compare(&data, Path::new("/"), &["true", "./no-such-program"]);
    assert!(code == 2 && said.contains("new: ./no-such-program is not installed"), "{said}");
}

#[test]
fn a_server_is_found_by_its_socket_and_measured_over_the_wire() {
    if !is_installed("socat") {
        return;
    }
    let data = Data::new();
    let (old, new) = (server(7811, "x 100", ""), server(7811, "x 150", ""));
    let client = ["--", "socat", "-", "TCP:localhost:7811"];
    let args = [&[old.as_str(), &new, "--metric", TIME][..], &client].concat();
    let (code, shown, said) = compare(&data, Path::new("/"), &args);
    assert!(code == 4 && shown.contains("new is 50 % slower than old"), "{shown} {said}");
    assert!(said.contains("servers: TCP port 7811"), "{said}");
    assert!(said.contains("client: socat - TCP:10.77.0.2:7811"), "{said}");
}

#[test]
fn a_server_of_the_loopback_is_measured_there() {
    if !is_installed("socat") {
        return;
    }
    let data = Data::new();
    let old = server(7812, "x 100", ",bind=127.0.0.1");
    let client = ["--", "socat", "-", "TCP:localhost:7812"];
    let args = [&[old.as_str(), &old, "--metric", TIME][..], &client].concat();
    let (code, shown, said) = compare(&data, Path::new("/"), &args);
    assert!(code == 0 && said.contains("run in one namespace"), "{shown} {said}");
}

#[test]
fn servers_and_clients_that_do_not_fit_are_refused_with_the_remedy() {
    if !is_installed("socat") {
        return;
    }
    let data = Data::new();
    let (one, other) = (server(7813, "x 1", ""), server(7814, "x 1", ""));
    let client = ["socat", "-", "TCP:localhost:7813"];
    let (code, _, said) = compare_servers(&data, [&one, &other], &client);
    assert!(
        code == 2 && said.contains("TCP 7813; TCP 7814") && said.contains("$WIREPATH_PORT"),
        "{said}"
    );
    let (code, _, said) =
        compare_servers(&data, [&one, &one], &["socat", "-", "TCP:localhost:7899"]);
    assert!(
        code == 2 && said.contains("names port 7899, and the servers listen on TCP 7813"),
        "{said}"
    );
    let (code, _, said) =
        compare_servers(&data, [&one, "sleep 0.2; echo no room >&2; exit 3"], &client);
    assert!(code == 1 && said.contains("new") && said.contains("no room"), "{said}");
    let (code, shown, said) =
        compare_servers(&data, [&one, &one], &["sh", "-c", "echo broken >&2; exit 7"]);
    assert!(code == 1 && said.contains("broken") && shown.is_empty(), "{shown} {said}");
}

/// Runs git in a repository.
///
/// - Returns its output.
fn git(repository: &Path, words: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b", "-C"]).arg(repository).args(words);
    succeed(command)
}

/// References, worktrees and changes of a repository.
fn repository_state(repository: &Path) -> String {
    [&["status", "--porcelain"][..], &["for-each-ref"], &["worktree", "list"]]
        .map(|words| git(repository, words))
        .concat()
}

#[test]
fn builds_of_two_commits_are_compared_and_the_repository_stays_as_it_is() {
    let data = Data::new();
    let repository = data.path().join("repository");
    fs::create_dir(&repository).unwrap();
    git(&repository, &["init", "--quiet", "--initial-branch", "main"]);
    let source = repository.join("source");
    fs::write(&source, "echo x 100\n").unwrap();
    git(&repository, &["add", "."]);
    git(&repository, &["commit", "--quiet", "--message", "old"]);
    git(&repository, &["checkout", "--quiet", "-b", "pr"]);
    fs::write(&source, "echo x 130\n").unwrap();
    git(&repository, &["commit", "--quiet", "--all", "--message", "new"]);
    fs::write(&source, "echo x 160\n").unwrap();
    let before = repository_state(&repository);
    let build = ["--build", "cp source program", "--run", "sh ./program", "--metric", TIME];
    let (code, shown, said) = compare(&data, &repository, &[&["main", "pr"][..], &build].concat());
    assert!(code == 4 && shown.contains("new is 30 % slower than old"), "{shown} {said}");
    let (code, shown, said) = compare(&data, &repository, &[&["main", "."][..], &build].concat());
    assert!(code == 4 && shown.contains("new is 60 % slower than old"), "{shown} {said}");
    let (code, _, said) = compare(&data, &repository, &[&["main", "nosuch"][..], &build].concat());
    assert!(code == 2 && said.contains("\"nosuch\" is not a commit"), "{said}");
    let failing = ["main", "pr", "--build", "echo out of memory; false", "--run", "x"];
    let (code, _, said) = compare(&data, &repository, &failing);
    assert!(code == 1 && said.contains("out of memory"), "{said}");
    assert_eq!(repository_state(&repository), before);
}
