//! A control group of the test's own, with next to nothing of something.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{LONG, Running, until};

/// Exhausted resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Without {
    Memory,
    Threads,
}

/// A controller: folder of its groups, and the name of its limit.
type Controller = (PathBuf, &'static str);

impl Without {
    /// Those of version 2, else of version 1.
    fn find(self) -> Option<Controller> {
        let places = match self {
            Without::Memory => [
                ("/sys/fs/cgroup", "memory.max"),
                ("/sys/fs/cgroup/unified", "memory.max"),
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ],
            Without::Threads => [
                ("/sys/fs/cgroup", "pids.max"),
                ("/sys/fs/cgroup/unified", "pids.max"),
                ("/sys/fs/cgroup/pids", "pids.max"),
            ],
        };
        places.into_iter().find_map(|(folder, limit)| {
            let trial = PathBuf::from(folder).join(name());
            fs::create_dir(&trial).ok()?;
            let has_limit = trial.join(limit).exists();
            fs::remove_dir(&trial).ok()?;
            has_limit.then(|| (PathBuf::from(folder), limit))
        })
    }

    fn controller(self) -> Option<&'static Controller> {
        static MEMORY: OnceLock<Option<Controller>> = OnceLock::new();
        static THREADS: OnceLock<Option<Controller>> = OnceLock::new();
        let found = if self == Without::Memory { &MEMORY } else { &THREADS };
        found.get_or_init(|| self.find()).as_ref()
    }

    /// Less than a command wants in its next moments.
    fn limit(self) -> &'static str {
        match self {
            Without::Memory => "65536",
            Without::Threads => "1",
        }
    }
}

fn name() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let n = MADE.fetch_add(1, Ordering::Relaxed);
    format!("wirepath-test-{}-{n}", std::process::id())
}

/// Control group, removed on drop once its processes have ended.
pub(crate) struct Group(PathBuf);

impl Group {
    #[track_caller]
    pub(crate) fn is_there(without: Without) -> bool {
        let is_there = without.controller().is_some();
        if !is_there {
            testkit::skip("cgroup", format!("no group with a limit of {without:?} can be created"));
        }
        is_there
    }

    /// Puts a command into a group.
    pub(crate) fn around(running: &Running, without: Without) -> Self {
        let (folder, limit) = without.controller().expect("it was looked for");
        let group = Group(folder.join(name()));
        fs::create_dir(&group.0).expect("a group");
        fs::write(group.0.join(limit), without.limit()).expect("a limit");
        // It may have ended since.
        let _ = fs::write(group.0.join("cgroup.procs"), running.pid().to_string());
        group
    }

    /// Lifts the limit.
    pub(crate) fn relieve(&self, without: Without) {
        let (_, limit) = without.controller().expect("it was looked for");
        fs::write(self.0.join(limit), "max").expect("a limit");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let gone = until(LONG, || fs::remove_dir(&self.0).is_ok());
        assert!(gone || std::thread::panicking(), "{} is in use", self.0.display());
    }
}
