//! A quota of CPU time.

use std::fs;
use std::io;
use std::path::PathBuf;

/// A control group with a quota, of either version; removed on drop.
pub(super) struct Quota {
    folder: PathBuf,
    parent: PathBuf,
    members: &'static str,
}

impl Quota {
    /// Small, so that a thread uses it up on a busy machine as well.
    ///
    /// Errors: the reason why this machine cannot have one.
    pub(super) fn of_a_twentieth() -> io::Result<Quota> {
        let name = format!("wirepath-quota-{}", std::process::id());
        let version_1 = PathBuf::from("/sys/fs/cgroup/cpu");
        let (parent, members) = if version_1.join("tasks").exists() {
            (version_1, "tasks")
        } else {
            (PathBuf::from("/sys/fs/cgroup"), "cgroup.threads")
        };
        let folder = parent.join(name);
        fs::create_dir(&folder)?;
        let quota = Quota { folder, parent, members };
        if members == "tasks" {
            fs::write(quota.folder.join("cpu.cfs_period_us"), "20000")?;
            fs::write(quota.folder.join("cpu.cfs_quota_us"), "1000")?;
        } else {
            fs::write(quota.folder.join("cpu.max"), "1000 20000")?;
            fs::write(quota.folder.join("cgroup.type"), "threaded")?;
        }
        Ok(quota)
    }

    /// Moves a thread into it, by its id.
    pub(super) fn enter(&self, thread: u32) {
        fs::write(self.folder.join(self.members), thread.to_string()).unwrap();
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        for thread in fs::read_to_string(self.folder.join(self.members)).unwrap_or_default().lines()
        {
            let _ = fs::write(self.parent.join(self.members), thread);
        }
        testkit::until(testkit::LONG, || {
            fs::remove_dir(&self.folder).is_ok() || !self.folder.exists()
        });
    }
}
