//! A control group of the test's own, with next to no memory.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{LONG, Running, skip, until};

/// Less than a command touches in its next moments.
const LIMIT_BYTES: &str = "65536";

/// Where groups with a memory controller are made, and the name of its limit: those of version 2,
/// else of version 1.
fn place() -> Option<&'static (PathBuf, &'static str)> {
    static FOUND: OnceLock<Option<(PathBuf, &'static str)>> = OnceLock::new();
    let find = || {
        let places = [
            ("/sys/fs/cgroup", "memory.max"),
            ("/sys/fs/cgroup/unified", "memory.max"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ];
        let found = places.into_iter().find_map(|(folder, limit)| {
            let trial = PathBuf::from(folder).join(name());
            fs::create_dir(&trial).ok()?;
            let has_limit = trial.join(limit).exists();
            fs::remove_dir(&trial).ok()?;
            has_limit.then(|| (PathBuf::from(folder), limit))
        });
        if found.is_none() {
            skip("no control group with a limit of memory can be made");
        }
        found
    };
    FOUND.get_or_init(find).as_ref()
}

fn name() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let n = MADE.fetch_add(1, Ordering::Relaxed);
    format!("wirepath-test-{}-{n}", std::process::id())
}

/// Removed when dropped, once whoever is in it has ended.
pub(crate) struct Group(PathBuf);

impl Group {
    pub(crate) fn is_there() -> bool {
        place().is_some()
    }

    /// Puts a command into a group without memory.
    pub(crate) fn around(running: &Running) -> Self {
        let (folder, limit) = place().expect("it was looked for");
        let group = Group(folder.join(name()));
        fs::create_dir(&group.0).expect("a group");
        fs::write(group.0.join(limit), LIMIT_BYTES).expect("a limit");
        // It may have ended meanwhile.
        let _ = fs::write(group.0.join("cgroup.procs"), running.pid().to_string());
        group
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let gone = until(LONG, || fs::remove_dir(&self.0).is_ok());
        assert!(gone || std::thread::panicking(), "{} is in use", self.0.display());
    }
}
