//! Programs of these tests, and the search for anything that they leave.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use testkit::LONG;
use wirepath_lab::program::{CgroupParent, Program, ProgramSpec, Ready};

/// A stop flag that is never set.
pub(crate) static GO_ON: AtomicBool = AtomicBool::new(false);

/// Time to comply with SIGTERM.
pub(crate) const GRACE: Duration = LONG;

/// Variable that all processes of a test inherit.
pub(crate) const MARK: &str = "WIREPATH_PROGRAM_TEST";

/// A daemon: forks twice, leaves the session and the process group, then runs `$BODY` with Python.
pub(crate) const DAEMON: &str = "exec python3 -c '
import os, signal, sys, time, socket
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.chdir(\"/\")
exec(os.environ[\"BODY\"])
'";

/// One way to run programs, and what its processes inherit.
pub(crate) struct Home {
    pub(crate) parent: CgroupParent,
    pub(crate) has_groups: bool,
    pub(crate) mark: String,
    groups: RefCell<Vec<PathBuf>>,
}

impl Home {
    pub(crate) fn new(has_groups: bool) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let parent = if has_groups {
            CgroupParent::find()
        } else {
            CgroupParent::none("a test without control groups")
        };
        Home { parent, has_groups, mark, groups: RefCell::default() }
    }

    pub(crate) fn spec<'a>(&self, name: &'a str, command: &'a str) -> ProgramSpec<'a> {
        let env = vec![(MARK.into(), self.mark.clone())];
        ProgramSpec { command, env, netns: None, cpus: &[], folder: Path::new("/"), name }
    }

    pub(crate) fn start(&self, name: &str, command: &str) -> Program {
        self.start_as(&self.spec(name, command))
    }

    pub(crate) fn start_as(&self, spec: &ProgramSpec<'_>) -> Program {
        let program = Program::start_in(spec, &self.parent).unwrap();
        if self.has_groups {
            let group = program.cgroup().expect("a probe had one").path().to_owned();
            self.groups.borrow_mut().push(group);
        } else {
            assert_eq!(program.why_no_cgroup(), Some("a test without control groups"))
        }
        program
    }

    /// As [`start`](Self::start); returns once a line of output is `ready`.
    pub(crate) fn start_until_ready(&self, command: &str) -> Program {
        self.start_spec_until_ready(&self.spec("server", command))
    }

    pub(crate) fn start_spec_until_ready(&self, spec: &ProgramSpec<'_>) -> Program {
        let mut server = self.start_as(spec);
        server.wait_ready(&ready("line:^ready$"), LONG, &GO_ON).unwrap();
        server
    }

    /// A daemon of [`DAEMON`].
    pub(crate) fn daemon<'a>(&self, body: &str) -> ProgramSpec<'a> {
        let mut spec = self.spec("server", DAEMON);
        spec.env.push(("BODY".into(), body.into()));
        spec
    }

    /// Fails if a process is left, or is not gone soon.
    #[track_caller]
    pub(crate) fn assert_gone(&self) {
        let gone = testkit::until(LONG, || marked(&self.mark).is_empty());
        assert!(gone, "left: {:?}", marked(&self.mark));
        for group in self.groups.borrow().iter() {
            assert!(!group.exists(), "{} is left", group.display());
        }
    }
}

/// Runs a test with control groups and without; the one with them is skipped if there are none.
#[track_caller]
pub(crate) fn in_both_homes(test: impl Fn(&Home)) {
    if !testkit::is_installed("python3") {
        return;
    }
    for has_groups in [true, false] {
        let home = Home::new(has_groups);
        if has_groups {
            let probe = Program::start_in(&home.spec("probe", "true"), &home.parent).unwrap();
            if let Some(why) = probe.why_no_cgroup() {
                testkit::skip("cgroup", why);
                continue;
            }
        }
        test(&home);
        home.assert_gone();
    }
}

/// Processes, with their command lines, that have the mark in their environment.
pub(crate) fn marked(mark: &str) -> Vec<(u32, String)> {
    let variable = format!("{MARK}={mark}\0");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(variable.len()).any(|window| window == variable.as_bytes())
    })
    .map(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        (pid, String::from_utf8_lossy(&line).replace('\0', " "))
    })
    .collect()
}

/// Control groups that a process made for its programs.
pub(crate) fn own_groups(pid: u32) -> Vec<String> {
    fn collect(folder: &Path, part: &str, found: &mut Vec<String>) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("wirepath-") && name.contains(part) {
                found.push(name);
            }
            collect(&entry.path(), part, found);
        }
    }
    let mut found = Vec::new();
    collect(Path::new("/sys/fs/cgroup"), &format!("-{pid}-"), &mut found);
    found
}

pub(crate) fn ready(text: &str) -> Ready {
    text.parse().unwrap()
}
