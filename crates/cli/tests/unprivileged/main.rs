//! Labs of an ordinary user: in a user namespace of the program's own, with the user's id, and without rights on the host.

#[path = "../common/mod.rs"]
mod common;
mod compare;
mod forbidden;
mod labs;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use common::{Data, all_text, clean, run};
use serde_json::Value;
use testkit::skip;

/// An id without an account.
const USER: &str = "65533";

/// A user's home, with the program in it: the build folder may be closed to other users.
struct Home(Data);

impl Home {
    /// `None` if this machine lacks what the tests need, which is reported.
    fn new() -> Option<Self> {
        if !common::is_installed("setpriv") {
            return None;
        }
        if sys::capability::effective_uid() != 0 {
            skip("root", "becoming another user needs root");
            return None;
        }
        let home = Home(Data::new());
        let program = home.0.file("wirepath");
        let built = env!("CARGO_BIN_EXE_wirepath");
        fs::hard_link(built, &program).or_else(|_| fs::copy(built, &program).map(drop)).unwrap();
        fs::set_permissions(home.0.path(), fs::Permissions::from_mode(0o777)).unwrap();
        // The load is unknown, which is found behind the rights.
        let said = all_text(&run(home.wirepath(&["prove", "probe", "--load", "none"])));
        if said.contains("a lab needs ") {
            skip("kernel", said);
            return None;
        }
        Some(home)
    }

    fn file(&self, name: &str) -> String {
        self.0.file(name)
    }

    /// The program as an ordinary user, without any capability.
    fn wirepath(&self, args: &[&str]) -> Command {
        self.user(&[&[self.file("wirepath").as_str()][..], args].concat())
    }

    /// A command of the user.
    fn user(&self, line: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--inh-caps=-all"]);
        let mut command = clean(command, line);
        let folder = self.0.path();
        command.env("HOME", folder).env("WIREPATH_LOCKS", folder).current_dir(folder);
        command.env_remove("XDG_DATA_HOME");
        command
    }
}

/// Arms of an outcome, as (name, reason that it did not run).
fn absent(outcome: &Value) -> Vec<(String, String)> {
    let arms = outcome["arms"].as_array().expect("a list").iter();
    arms.filter_map(|arm| {
        let what = arm["support"]["what"].as_str()?;
        Some((arm["name"].as_str().expect("a name").to_owned(), what.to_owned()))
    })
    .collect()
}

/// Panics if a trial failed, or an arm that can run has none.
fn assert_measured(outcome: &Value) {
    for arm in outcome["arms"].as_array().expect("a list") {
        let can_run = arm["support"]["status"] == "yes";
        assert_eq!(arm["trials"].as_u64().expect("a count") > 0, can_run, "{arm}");
        assert!(arm["failures"].as_array().is_none_or(Vec::is_empty), "{arm}");
    }
}
