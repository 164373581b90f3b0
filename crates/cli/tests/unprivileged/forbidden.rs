//! A host that forbids user namespaces, and a journal that is root's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::Home;
use crate::common::{QUICK, all_text, fail, is_installed, json, run, succeed};

/// Runs the program where no user namespace can be made: in one whose own limit is 0.
fn where_forbidden(home: &Home, args: &[&str]) -> Command {
    let forbid = "echo 0 > /proc/sys/user/max_user_namespaces && \
                  exec setpriv --inh-caps=-all --ambient-caps=-all \"$@\"";
    let inside = ["unshare", "--map-current-user", "--keep-caps", "sh", "-c", forbid, "sh"];
    let program = home.file("wirepath");
    home.user(&[&inside[..], &[program.as_str()], args].concat())
}

#[test]
fn labs_are_refused_with_the_cause_and_the_remedy_and_the_rest_works() {
    let Some(home) = Home::new() else { return };
    if !is_installed("unshare") {
        return;
    }
    let arms = ["--arm", "a=echo x 1", "--arm", "b=echo x 1", "--metric", "x=re:x (.+) lower"];
    let command = [&["prove", "command"][..], &arms].concat();
    for args in [&["prove", "probe", "--arms", "spin"][..], &command] {
        let said = fail(where_forbidden(&home, args), 3);
        for part in [
            "CAP_SYS_ADMIN",
            "user.max_user_namespaces=0",
            "run as root",
            "sudo sysctl user.max_user_namespaces=1024",
            "setcap",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    succeed(where_forbidden(&home, &QUICK));
    succeed(where_forbidden(&home, &["history"]));
    let list = json(where_forbidden(&home, &["paths", "probe", "--json"]));
    let why = list["paths"][0]["support"].to_string();
    assert!(why.contains("CAP_SYS_ADMIN"), "{why}");
    // A place that exists is nothing that a namespace of its own could help with.
    let elsewhere = [&command[..], &["--near", "netns:none", "--far", "netns:nowhere"]].concat();
    let said = all_text(&run(where_forbidden(&home, &elsewhere)));
    assert!(!said.contains("max_user_namespaces") && said.contains("none"), "{said}");
}

#[test]
fn a_journal_of_root_is_no_error_of_a_user_who_asks_for_the_state() {
    let Some(home) = Home::new() else { return };
    let folder = home.file("journal");
    fs::create_dir(&folder).expect("a folder");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("its mode");
    let status = ["tune", "status", "--state", &folder];
    let said = succeed(home.wirepath(&status));
    assert!(said.contains("nothing is applied that you may see"), "{said}");
    let document = json(home.wirepath(&[&status[..], &["--json"]].concat()));
    assert_eq!(document["phase"], "not-readable");
    let doctor = run(home.wirepath(&["doctor", "--interface", "lo", "--state", &folder]));
    assert!(!all_text(&doctor).contains("cannot read"), "{}", all_text(&doctor));
}
