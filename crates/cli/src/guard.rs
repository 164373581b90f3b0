//! A process that rolls settings back if the one that waits for a confirmation is killed.
//!
//! It is in a session and in control groups of its own, so that neither the end of a login nor that of a
//! service ends both. It reports a rollback that fails to the system's log and in the journal's folder,
//! and tries again.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use host::text::chain;
use host::tune::{self, JournalStore, Phase, RollbackError};
use house::place::StateArgs;
use house::{console, signals};
use remote::Failure;
use runner::JournalFolder;
use sys::child::this_program;

use crate::syslog;

/// Pause after the first rollback that failed; it doubles with each one.
const RETRY_INTERVAL_MIN: Duration = Duration::from_millis(500);
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Time after which it gives up.
const RETRY_TIMEOUT: Duration = Duration::from_secs(3600);

/// Time limit for another process that holds the lock, for one attempt.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Line by which the guard says that it waits; what it could not do follows.
const READY: &str = "ready";

/// Guard of this process, until dropped. It reads from a pipe that closes when this process ends, by
/// whatever cause, and then checks whether the settings were confirmed.
pub(crate) struct Guard {
    child: Child,
}

impl Guard {
    /// Starts the guard, and waits until neither Ctrl-C nor the end of this session reaches it.
    pub(crate) fn start(journal: &JournalFolder) -> Result<Self, Failure> {
        let mut command = this_program();
        command.arg("tune").arg("guard").arg(std::process::id().to_string());
        command.arg("--state").arg(&journal.folder);
        if let Some(root) = &journal.root {
            command.arg("--root").arg(root);
        }
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(not_started)?;
        let mut guard = Guard { child };
        let mut line = String::new();
        // The pipe closes if it ends.
        if let Some(out) = guard.child.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(not_started)?;
        }
        let left_undone = line.trim_end().strip_prefix(READY);
        let left_undone =
            left_undone.ok_or_else(|| not_started(io::Error::other("it ended at once")))?;
        if !left_undone.is_empty() {
            console::say(&format!("note: the guard process{left_undone}"));
        }
        Ok(guard)
    }
}

fn not_started(error: io::Error) -> Failure {
    Failure::failed(format!("cannot start the guard process, nothing was changed: {error}"))
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // The closed pipe ends it.
        let _ended = self.child.wait();
    }
}

/// Body of the guard: waits for the end of process `pid`, then rolls back its unconfirmed settings.
pub(crate) fn run(state: &StateArgs, pid: u32) -> Result<(), Failure> {
    signals::stop_on_hangup()?;
    let mut left_undone = Vec::new();
    if let Err(error) = sys::session::lead_new() {
        left_undone.push(format!(" has no session of its own ({error})"));
    }
    if let Err(shared) = leave_control_groups() {
        left_undone.push(format!(" ends with control group {shared}"));
    }
    writeln!(io::stdout(), "{READY}{}", left_undone.join(", and"))?;
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;

    let store = state.store();
    let log = syslog::Log::open(&state.host_path("dev/log"), "wirepath-tune-guard");
    let (begun, mut pause) = (Instant::now(), RETRY_INTERVAL_MIN);
    for attempt in 1.. {
        let why = match attempt_rollback(state, &store, pid) {
            Ok(None) => return Ok(()),
            Ok(Some(done)) => {
                log.notice(&format!("settings of process {pid} were not confirmed: {done}"));
                return Ok(());
            }
            Err(why) => why,
        };
        let is_last = signals::stop_requested() || begun.elapsed() > RETRY_TIMEOUT;
        let next = if is_last {
            "run `wirepath tune rollback`".to_owned()
        } else {
            format!("tried again in {} s", pause.as_secs_f32())
        };
        let text =
            format!("attempt {attempt} to roll back unconfirmed settings failed: {why}; {next}");
        log.error(&text);
        // The log has it, too.
        let _unwritten = keep(&store, &text);
        if is_last {
            return Err(Failure::Failed(text));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(RETRY_INTERVAL_MAX);
    }
    Ok(())
}

/// Returns what was done, or `None` if there was nothing to do.
fn attempt_rollback(
    state: &StateArgs,
    store: &JournalStore,
    pid: u32,
) -> Result<Option<String>, String> {
    // Another process may be rolling back or confirming.
    let lock = store.lock_within(LOCK_TIMEOUT).map_err(|error| chain(&error))?;
    match store.read().map_err(|error| chain(&error))? {
        Some(journal) if journal.header.pid == pid && journal.phase != Phase::Confirmed => {}
        _ => return Ok(None),
    }
    let why = "the process that waited for a confirmation was killed";
    let report = match tune::rollback(store, &lock, state.root.as_deref(), why) {
        Err(RollbackError::Nothing { .. }) => return Ok(None),
        report => report.map_err(|error| chain(&error))?,
    };
    match report.failure() {
        Some(failure) => Err(failure),
        None => {
            let kept = report.foreign().count();
            let others = match kept {
                0 => String::new(),
                kept => format!("; {kept} that another process changed were kept"),
            };
            Ok(Some(format!("rolled back{others}")))
        }
    }
}

/// Writes the last failure where `tune status` finds it; the end of the journal removes it.
fn keep(store: &JournalStore, text: &str) -> io::Result<()> {
    let path = store.guard_file();
    // A link is not followed, and never cut.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

/// Moves this process to the root of every hierarchy of control groups, where no service manager ends it.
///
/// Errors: a group that it could not leave.
fn leave_control_groups() -> Result<(), String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for mount in cgroup_mounts(&mounts) {
        // Checked below.
        let _may_stay = fs::OpenOptions::new()
            .write(true)
            .open(mount.join("cgroup.procs"))
            .and_then(|mut file| file.write_all(b"0"));
    }
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut groups = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    match groups.find(|group| *group != "/") {
        None => Ok(()),
        Some(group) => Err(group.to_owned()),
    }
}

/// Roots of control groups, of both versions.
///
/// Source: proc(5), /proc/PID/mountinfo: `36 35 98:0 ROOT MOUNT OPTIONS … - TYPE SOURCE OPTIONS`.
fn cgroup_mounts(mountinfo: &str) -> Vec<PathBuf> {
    mountinfo
        .lines()
        .filter_map(|line: &str| {
            let (mount, kind) = line.split_once(" - ")?;
            let is_cgroup = matches!(kind.split(' ').next(), Some("cgroup" | "cgroup2"));
            is_cgroup.then(|| mount.split(' ').nth(4).map(|point| Path::new(point).to_owned()))?
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hierarchy_of_control_groups_is_found() {
        let mounts = "24 1 0:22 / /proc rw - proc proc rw\n\
            33 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            41 30 0:36 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw\n";
        let expected = [Path::new("/sys/fs/cgroup/cpu"), Path::new("/sys/fs/cgroup/unified")];
        assert_eq!(cgroup_mounts(mounts), expected);
    }
}
