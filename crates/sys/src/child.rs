//! Child processes in a network namespace that end with their parent.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::affinity;
use crate::capability;
use crate::clock;
use crate::jail;
use crate::netns::Netns;
use crate::pidfd::PidFd;
use crate::rusage::timeval_ns;

/// A command that runs this program: the image of this process, also after its file was replaced or removed.
pub fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("wirepath");
    command
}

/// Gives a command an empty /run of its own, where lock files of a killed program do not outlive it and those of
/// others do not stop it. The start fails without CAP_SYS_ADMIN.
pub fn hide_run(command: &mut Command) {
    // SAFETY: between fork and exec it makes system calls only; nothing in it allocates or takes a
    // lock, errors included.
    unsafe { command.pre_exec(jail::hide_run) };
}

/// Lets a command run without the capabilities that this process has for its own ends, as programs of the user do. Those
/// of root stay.
pub fn as_the_user(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec it makes one system call; nothing in it allocates or takes a lock.
    unsafe {
        command.pre_exec(|| {
            capability::clear_ambient();
            Ok(())
        })
    }
}

/// Time that [`Child::stop`] waits after SIGTERM, and limit for the last output of a child to
/// arrive after its end.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// Output kept of a child, of each stream; lines that were taken do not count. One that writes more is killed: it may be
/// an ssh client that passes on the output of a far host.
pub const OUTPUT_BYTES_MAX: usize = 32 << 20;
/// Longest line that [`Child::take_line`] waits for. A measurement or an outcome that `wirepath answer` sends takes some MiB at most.
pub const LINE_BYTES_MAX: usize = 8 << 20;

#[derive(Debug, Error)]
pub enum ChildError {
    #[error("{} is not installed (not found in PATH)", program.display())]
    NotFound {
        program: OsString,
        #[source]
        source: io::Error,
    },
    /// Start failed: permission, no such CPU, or the namespace cannot be entered.
    #[error("cannot start {}", program.display())]
    Start {
        program: OsString,
        #[source]
        source: io::Error,
    },
    #[error("cannot wait for {}", program.display())]
    Wait {
        program: OsString,
        #[source]
        source: io::Error,
    },
    /// It was killed for the amount of its output.
    #[error(
        "{} wrote {excess} to its {stream} and was killed; run it by hand to see that output",
        program.display()
    )]
    TooMuchOutput { program: OsString, stream: &'static str, excess: Excess },
}

/// Limit that the output of a child exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excess {
    /// More than [`OUTPUT_BYTES_MAX`].
    Output,
    /// More than [`LINE_BYTES_MAX`] in one line.
    Line,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Excess::Output => write!(f, "more than {} MiB", OUTPUT_BYTES_MAX >> 20),
            Excess::Line => write!(f, "a line of more than {} MiB", LINE_BYTES_MAX >> 20),
        }
    }
}

/// Namespace and CPUs of a child; by default those of the caller.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChildPlace<'a> {
    /// Network namespace; `None` for the caller's.
    pub netns: Option<&'a Netns>,
    /// Allowed CPUs; empty for the caller's.
    pub cpus: &'a [usize],
}

/// Resources used by a child and those of its descendants that it waited for.
///
/// Source: wait4(2), getrusage(2); microseconds in the kernel's answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChildUsage {
    pub user_ns: u64,
    pub system_ns: u64,
    /// Context switches to wait.
    pub voluntary_switch_count: u64,
    /// Context switches by preemption.
    pub involuntary_switch_count: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub usage: ChildUsage,
}

/// A running child process in a process group of its own.
///
/// Its output is collected, up to a limit: see [`ChildError::TooMuchOutput`].
///
/// Dropping it kills the whole group with SIGKILL and reaps the child. If the parent dies without
/// dropping it, the kernel sends SIGKILL to the child itself (not to its descendants).
#[derive(Debug)]
pub struct Child {
    program: OsString,
    pid: libc::pid_t,
    pidfd: Arc<PidFd>,
    stdout: Arc<Output>,
    stderr: Arc<Output>,
    ended: Option<(ExitStatus, ChildUsage)>,
}

impl Child {
    /// Starts `command` at `place`, with captured output and empty standard input.
    ///
    /// The parent-death signal of Linux follows the *thread* that spawned: **the child is
    /// killed when the calling thread ends**, so call this from a thread that lives as long
    /// as the child should, and never inside [`Netns::run`].
    ///
    /// Source: prctl(2), PR_SET_PDEATHSIG.
    pub fn spawn(command: Command, place: &ChildPlace<'_>) -> Result<Self, ChildError> {
        Self::spawn_on(command, place, Stdio::null())
    }

    /// As [`Self::spawn`], with `stdin` as standard input.
    pub fn spawn_on(
        mut command: Command,
        place: &ChildPlace<'_>,
        stdin: Stdio,
    ) -> Result<Self, ChildError> {
        let program = command.get_program().to_owned();
        let start = |source| ChildError::Start { program: program.clone(), source };
        let netns = match place.netns.map(Netns::try_clone).transpose() {
            Ok(netns) => netns,
            Err(error) => return Err(start(io::Error::other(error))),
        };
        let cpus = place.cpus.to_vec();
        if let Some(cpu) = cpus.iter().find(|&&cpu| cpu >= libc::CPU_SETSIZE as usize) {
            // Checked here, because after fork an error must not allocate.
            let what = format!("CPU {cpu} does not exist");
            return Err(start(io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        let parent = std::process::id();
        let prepare = move || {
            die_with(parent)?;
            if let Some(netns) = &netns {
                netns.enter()?;
            }
            if !cpus.is_empty() {
                affinity::pin_to(&cpus)?;
            }
            Ok(())
        };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        // SAFETY: between fork and exec `prepare` makes system calls only; nothing in it
        // allocates or takes a lock, errors included.
        unsafe { command.pre_exec(prepare) };
        let mut child = command.spawn().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ChildError::NotFound { program: program.clone(), source },
            _ => start(source),
        })?;
        let pid = child.id() as libc::pid_t;
        let pidfd = match PidFd::open(pid as u32) {
            Ok(pidfd) => Arc::new(pidfd),
            Err(source) => {
                kill_group(pid, libc::SIGKILL);
                let _already_gone = child.wait();
                return Err(start(source));
            }
        };
        // Dropping std's handle does not kill or reap the process: `Child` does.
        let (stdout, stderr) = (Arc::default(), Arc::default());
        let this = Child { program: program.clone(), pid, pidfd, stdout, stderr, ended: None };
        this.stdout.fill_from(child.stdout.take(), &this.pidfd).map_err(start)?;
        this.stderr.fill_from(child.stderr.take(), &this.pidfd).map_err(start)?;
        Ok(this)
    }

    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// CPU time used so far by all threads, nanoseconds; `None` after it was reaped (see
    /// [`Finished::usage`]).
    pub fn cpu_ns(&self) -> Option<u64> {
        if self.ended.is_some() {
            return None;
        }
        clock::cpu_ns_of(self.pid())
    }

    pub fn stdout_so_far(&self) -> Vec<u8> {
        self.stdout.bytes()
    }

    pub fn stderr_so_far(&self) -> Vec<u8> {
        self.stderr.bytes()
    }

    /// Waits until standard output contains `text`, such as a server's ready message.
    ///
    /// Returns false if the output ended or `timeout` passed without it.
    pub fn wait_for_stdout(&self, text: &str, timeout: Duration) -> bool {
        let text = text.as_bytes();
        let mut searched_len = 0;
        let found = self.stdout.wait_for(timeout, |seen| {
            let kept = seen.untaken();
            // Text across two pieces begins in the first one.
            let from = searched_len.min(kept.len()).saturating_sub(text.len());
            searched_len = kept.len();
            kept[from..].windows(text.len().max(1)).any(|window| window == text).then_some(())
        });
        found.is_some()
    }

    /// Takes the next line of standard output, without its line break.
    ///
    /// Returns `None` if the output ended or `timeout` passed before one was complete. A line above [`LINE_BYTES_MAX`] ends
    /// the child, and the next [`wait`](Self::wait) is an error.
    pub fn take_line(&self, timeout: Duration) -> Option<Vec<u8>> {
        let taken = self.stdout.wait_for(timeout, |seen| match seen.take_line() {
            Ok(line) => line.map(Ok),
            Err(excess) => Some(Err(excess)),
        });
        match taken? {
            Ok(line) => Some(line),
            Err(excess) => {
                self.stdout.refuse(excess, &self.pidfd);
                None
            }
        }
    }

    /// Waits at most `timeout` for the end; `None` if it still runs.
    ///
    /// Kills processes left in its group. Returns the same if called again after the end.
    ///
    /// Errors: it wrote more than is kept.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Finished>, ChildError> {
        let (status, usage) = match self.ended {
            Some(ended) => ended,
            None => {
                if !self.has_ended_within(timeout)? {
                    return Ok(None);
                }
                self.reap()?
            }
        };
        // No writer is left, unless a descendant changed its process group.
        for (output, stream) in
            [(&self.stdout, "standard output"), (&self.stderr, "standard error")]
        {
            if let Some(excess) = output.wait_end(STOP_GRACE) {
                let program = self.program.clone();
                return Err(ChildError::TooMuchOutput { program, stream, excess });
            }
        }
        let (stdout, stderr) = (self.stdout.bytes(), self.stderr.bytes());
        Ok(Some(Finished { status, stdout, stderr, usage }))
    }

    /// Stops the group (SIGSTOP) until [`resume`](Self::resume): it uses no CPU, and its sleeps
    /// continue to run.
    pub fn pause(&self) {
        self.signal_while_alive(libc::SIGSTOP);
    }

    pub fn resume(&self) {
        self.signal_while_alive(libc::SIGCONT);
    }

    fn signal_while_alive(&self, signal: i32) {
        if self.ended.is_none() {
            kill_group(self.pid, signal);
        }
    }

    /// Ends the group: SIGTERM, a second to comply, then SIGKILL.
    pub fn stop(mut self) -> Result<Finished, ChildError> {
        self.signal_while_alive(libc::SIGTERM);
        // A paused child handles the signal when it continues.
        self.resume();
        if let Some(finished) = self.wait(STOP_GRACE)? {
            return Ok(finished);
        }
        kill_group(self.pid, libc::SIGKILL);
        loop {
            if let Some(finished) = self.wait(STOP_GRACE)? {
                return Ok(finished);
            }
        }
    }

    /// Sends SIGINT, as Ctrl-C does; see [`wait`](Self::wait) for the end.
    pub fn interrupt(&mut self) {
        self.signal_while_alive(libc::SIGINT);
    }

    fn has_ended_within(&self, timeout: Duration) -> Result<bool, ChildError> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let has_ended = self
                .pidfd
                .has_ended_within(left)
                .map_err(|source| ChildError::Wait { program: self.program.clone(), source })?;
            if has_ended {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    /// Kills the rest of the group, then reaps the leader. In this order, because the group id may
    /// be reused once its leader is reaped.
    fn reap(&mut self) -> Result<(ExitStatus, ChildUsage), ChildError> {
        kill_group(self.pid, libc::SIGKILL);
        let (status, usage) = reap_process(self.pid)
            .map_err(|source| ChildError::Wait { program: self.program.clone(), source })?;
        Ok(*self.ended.insert((ExitStatus::from_raw(status), usage)))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // An error means that the child was reaped elsewhere; it has ended in any case.
            let _gone = self.reap();
        }
    }
}

/// Waits for the end of a child that is not reaped yet. Returns its wait status and resources.
pub(crate) fn reap_process(pid: libc::pid_t) -> io::Result<(i32, ChildUsage)> {
    let mut status = 0;
    // SAFETY: all-zero is a valid rusage, a plain C struct of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: status and usage may be written; the process is a child that is not reaped yet.
        let rc = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
        if rc == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let usage = ChildUsage {
        user_ns: timeval_ns(usage.ru_utime),
        system_ns: timeval_ns(usage.ru_stime),
        voluntary_switch_count: usage.ru_nvcsw as u64,
        involuntary_switch_count: usage.ru_nivcsw as u64,
    };
    Ok((status, usage))
}

/// Makes the kernel kill the calling process when its parent's spawning thread ends.
pub(crate) fn die_with(parent: u32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    let rc = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    // If the parent died before the call above, the signal would never arrive.
    if std::os::unix::process::parent_id() != parent {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(())
}

fn kill_group(pid: libc::pid_t, signal: i32) {
    // SAFETY: no memory is involved; callers have not reaped the leader, so the group id is still
    // the child's. An empty group is no error here.
    unsafe { libc::kill(-pid, signal) };
}

/// Output of a pipe so far, collected by a thread.
#[derive(Debug, Default)]
struct Output {
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Seen {
    bytes: Vec<u8>,
    /// Bytes at the start that were taken as lines.
    taken_len: usize,
    /// Bytes at the start that were taken or have no line break.
    searched_len: usize,
    /// Nothing follows.
    ended: bool,
    /// The rest was refused.
    excess: Option<Excess>,
}

impl Seen {
    fn untaken(&self) -> &[u8] {
        &self.bytes[self.taken_len..]
    }

    /// Adds a piece. Errors: that would be more than is kept.
    fn add(&mut self, piece: &[u8]) -> Result<(), Excess> {
        if self.untaken().len() + piece.len() > OUTPUT_BYTES_MAX {
            return Err(Excess::Output);
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Takes the next line, without its line break; `None` if none is complete. No byte is searched or moved twice for it.
    ///
    /// Errors: the line is too long.
    fn take_line(&mut self) -> Result<Option<Vec<u8>>, Excess> {
        let found = self.bytes[self.searched_len..].iter().position(|byte| *byte == b'\n');
        let end = found.map_or(self.bytes.len(), |found| self.searched_len + found);
        if end - self.taken_len > LINE_BYTES_MAX {
            return Err(Excess::Line);
        }
        if found.is_none() {
            self.searched_len = end;
            return Ok(None);
        }
        let line = self.bytes[self.taken_len..end].to_vec();
        self.taken_len = end + 1;
        if self.taken_len * 2 >= self.bytes.len() {
            self.bytes.drain(..self.taken_len);
            self.taken_len = 0;
        }
        self.searched_len = self.taken_len;
        Ok(Some(line))
    }
}

impl Output {
    /// Collects from `pipe` until it ends, or has more than is kept: then the process is killed.
    fn fill_from(
        self: &Arc<Self>,
        pipe: Option<impl Read + Send + 'static>,
        process: &Arc<PidFd>,
    ) -> io::Result<()> {
        let Some(mut pipe) = pipe else {
            self.end();
            return Ok(());
        };
        let (output, process) = (Arc::clone(self), Arc::clone(process));
        let body = move || {
            let mut piece = vec![0; 64 << 10];
            loop {
                match pipe.read(&mut piece) {
                    Ok(len @ 1..) => {
                        if !output.add(&piece[..len], &process) {
                            break;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => break,
                }
            }
            output.end();
        };
        thread::Builder::new().name("child output".into()).spawn(body).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a piece; false if no more is kept.
    fn add(&self, piece: &[u8], process: &PidFd) -> bool {
        let mut seen = self.lock();
        let added = if seen.ended { Ok(()) } else { seen.add(piece) };
        let goes_on = added.is_ok() && !seen.ended;
        drop(seen);
        match added {
            Ok(()) => self.changed.notify_all(),
            Err(excess) => self.refuse(excess, process),
        }
        goes_on
    }

    fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Keeps nothing from now on, and kills the process. The owner of the [`Child`] kills the rest of its group.
    fn refuse(&self, excess: Excess, process: &PidFd) {
        let mut seen = self.lock();
        seen.ended = true;
        seen.excess = Some(excess);
        drop(seen);
        // It may have ended.
        let _ = process.send(libc::SIGKILL);
        self.changed.notify_all();
    }

    /// Output that was not taken as lines.
    fn bytes(&self) -> Vec<u8> {
        self.lock().untaken().to_vec()
    }

    /// Waits until `look` finds something; `None` if the pipe ended without it, or time is up.
    fn wait_for<T>(
        &self,
        timeout: Duration,
        mut look: impl FnMut(&mut Seen) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + timeout;
        let mut seen = self.lock();
        loop {
            let found = look(&mut seen);
            let left = deadline.saturating_duration_since(Instant::now());
            if found.is_some() || seen.ended || left.is_zero() {
                return found;
            }
            let waited = self.changed.wait_timeout(seen, left);
            seen = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the end of the pipe. Returns the limit that its output exceeded, if it did.
    fn wait_end(&self, timeout: Duration) -> Option<Excess> {
        self.wait_for(timeout, |seen| seen.ended.then_some(seen.excess)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const TEST_TIMEOUT: Duration = Duration::from_secs(20);

    #[test]
    fn files_of_a_command_with_a_run_of_its_own_are_gone_with_it() {
        let name = format!("/run/wirepath-test-{}", std::process::id());
        let mut command = shell(&format!("touch {name} && ls /run"));
        hide_run(&mut command);
        let mut child = match Child::spawn(command, &ChildPlace::default()) {
            Err(ChildError::Start { source, .. })
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                return testkit::skip("root", "a mount namespace is made as root");
            }
            started => started.unwrap(),
        };
        let finished = child.wait(TEST_TIMEOUT).unwrap().expect("it ends");
        let listed = String::from_utf8_lossy(&finished.stdout).into_owned();
        assert_eq!(format!("/run/{}", listed.trim()), name, "{finished:?}");
        assert!(!Path::new(&name).exists());
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn lines_are_taken_one_by_one_and_none_after_the_end() {
        let child =
            Child::spawn(shell("echo one; echo; printf three"), &ChildPlace::default()).unwrap();
        assert_eq!(child.take_line(TEST_TIMEOUT).as_deref(), Some(&b"one"[..]));
        assert_eq!(child.take_line(TEST_TIMEOUT).as_deref(), Some(&b""[..]));
        assert_eq!(child.take_line(TEST_TIMEOUT), None, "a line without its end");
        let slow = Child::spawn(shell("sleep 20"), &ChildPlace::default()).unwrap();
        assert_eq!(slow.take_line(Duration::from_millis(10)), None);
    }

    #[test]
    fn many_lines_are_taken_in_order_and_none_is_lost() {
        let child = Child::spawn(shell("seq 300000"), &ChildPlace::default()).unwrap();
        for n in 1..=300_000 {
            assert_eq!(child.take_line(TEST_TIMEOUT), Some(n.to_string().into_bytes()));
        }
        assert_eq!(child.take_line(TEST_TIMEOUT), None);
    }

    #[test]
    fn text_across_pieces_is_found() {
        let child = Child::spawn(shell("printf rea; sleep 0.1; echo dy"), &ChildPlace::default());
        assert!(child.unwrap().wait_for_stdout("ready", TEST_TIMEOUT));
        let child = Child::spawn(shell("echo steady"), &ChildPlace::default()).unwrap();
        assert!(!child.wait_for_stdout("ready", TEST_TIMEOUT));
    }

    /// Peak of this process's memory, bytes.
    fn memory_bytes_max() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    #[test]
    #[ignore = "role of a child process"]
    fn role_owner_of_children_that_flood() {
        // 16 streams at their limit would be 512 MiB.
        for n in 0..16 {
            let (redirection, stream) = [("", "standard output"), (">&2", "standard error")][n % 2];
            // The sleeper survives the killed `cat` until its group is killed.
            let script = format!("sleep 600 & trap '' PIPE; cat /dev/zero {redirection}; wait");
            let mut child = Child::spawn(shell(&script), &ChildPlace::default()).unwrap();
            let error = child.wait(TEST_TIMEOUT).unwrap_err();
            let said = error.to_string();
            assert!(said.contains("more than 32 MiB") && said.contains(stream), "{said}");
            assert!(child.wait(TEST_TIMEOUT).is_err(), "the same again");
        }
        let mut lines = Child::spawn(shell("exec cat /dev/zero"), &ChildPlace::default()).unwrap();
        assert_eq!(lines.take_line(TEST_TIMEOUT), None);
        assert!(matches!(lines.wait(TEST_TIMEOUT), Err(ChildError::TooMuchOutput { .. })));
        let peak = memory_bytes_max();
        assert!(peak < 256 << 20, "{} MiB", peak >> 20);
    }

    #[test]
    fn memory_is_bounded_under_children_that_write_without_end_and_they_are_killed() {
        let mut role = testkit::role("child::tests::role_owner_of_children_that_flood");
        let output = role.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    #[test]
    fn a_line_without_end_is_refused_at_its_limit_and_searched_once() {
        let mut seen = Seen::default();
        let piece = vec![b'x'; LINE_BYTES_MAX / 4];
        for _ in 0..4 {
            seen.add(&piece).unwrap();
            assert_eq!(seen.take_line(), Ok(None));
            assert_eq!(seen.searched_len, seen.bytes.len(), "the next search begins behind");
        }
        seen.add(b"x").unwrap();
        assert_eq!(seen.take_line(), Err(Excess::Line));
        let mut seen = Seen::default();
        seen.add(&piece).unwrap();
        seen.add(b"\none\ntwo\nrest").unwrap();
        assert_eq!(seen.take_line().unwrap().map(|line| line.len()), Some(piece.len()));
        assert_eq!(seen.bytes, b"one\ntwo\nrest", "memory of taken lines is returned");
        assert_eq!(seen.take_line(), Ok(Some(b"one".to_vec())));
        assert_eq!(seen.take_line(), Ok(Some(b"two".to_vec())));
        assert_eq!((seen.take_line(), seen.untaken()), (Ok(None), &b"rest"[..]));
        assert_eq!(seen.add(&vec![0; OUTPUT_BYTES_MAX]), Err(Excess::Output));
    }

    #[test]
    fn output_and_status_come_back() {
        let command = shell("echo out; echo err >&2; exit 3");
        let mut child = Child::spawn(command, &ChildPlace::default()).unwrap();
        let finished = child.wait(TEST_TIMEOUT).unwrap().unwrap();
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!((&finished.stdout[..], &finished.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(child.wait(TEST_TIMEOUT).unwrap().unwrap(), finished);
        assert_eq!(child.cpu_ns(), None);
    }

    #[test]
    fn it_runs_in_the_namespace_and_on_the_cpu_asked_for() {
        let netns = Netns::new().unwrap();
        let cpu = *affinity::allowed_cpus().unwrap().last().unwrap();
        let place = ChildPlace { netns: Some(&netns), cpus: &[cpu] };
        let script = "stat -Lc %i /proc/self/ns/net; grep Cpus_allowed_list /proc/self/status";
        let mut child = Child::spawn(shell(script), &place).unwrap();
        let finished = child.wait(TEST_TIMEOUT).unwrap().unwrap();
        let text = String::from_utf8(finished.stdout).unwrap();
        let mut words = text.split_whitespace();
        assert_eq!(words.next(), Some(&*netns.inode().unwrap().to_string()));
        assert_eq!(words.last(), Some(&*cpu.to_string()));
    }

    #[test]
    fn usage_counts_the_work_done() {
        let command =
            shell("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done; sleep 60");
        let child = Child::spawn(command, &ChildPlace::default()).unwrap();
        assert!(child.wait_for_stdout("done", TEST_TIMEOUT));
        let so_far_ns = child.cpu_ns().unwrap();
        assert!(so_far_ns > 0);
        let finished = child.stop().unwrap();
        assert_eq!(finished.status.signal(), Some(libc::SIGTERM));
        let usage = finished.usage;
        // The tick separates user from system time; the sum matches the scheduler's to a tick.
        assert!(usage.user_ns + usage.system_ns + 20_000_000 > so_far_ns, "{usage:?}");
    }

    #[test]
    fn a_time_limit_leaves_it_running_and_drop_kills_its_group() {
        let mut child =
            Child::spawn(shell("sleep 600 & echo $!; wait"), &ChildPlace::default()).unwrap();
        assert!(child.wait_for_stdout("\n", TEST_TIMEOUT));
        assert_eq!(child.wait(Duration::ZERO).unwrap(), None);
        let grandchild = String::from_utf8(child.stdout_so_far()).unwrap();
        let grandchild = format!("/proc/{}/stat", grandchild.trim());
        let own = format!("/proc/{}", child.pid());
        assert!(Path::new(&own).exists() && is_alive(&grandchild));
        drop(child);
        assert!(!Path::new(&own).exists(), "reaped");
        assert!(becomes_true(|| !is_alive(&grandchild)), "the group was killed");
    }

    #[test]
    fn a_child_that_ignores_the_polite_signal_is_killed() {
        let command = shell("trap '' TERM; echo ready; while :; do sleep 1; done");
        let child = Child::spawn(command, &ChildPlace::default()).unwrap();
        assert!(child.wait_for_stdout("ready", TEST_TIMEOUT));
        assert_eq!(child.stop().unwrap().status.signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn it_dies_with_the_thread_that_spawned_it() {
        let spawn = || Child::spawn(shell("exec sleep 600"), &ChildPlace::default()).unwrap();
        let mut child = thread::spawn(spawn).join().unwrap();
        let finished = child.wait(TEST_TIMEOUT).unwrap().expect("killed by the kernel");
        assert_eq!(finished.status.signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_missing_program_and_an_absent_cpu_are_told_apart() {
        let missing = Child::spawn(Command::new("no-such-program"), &ChildPlace::default());
        assert!(matches!(missing.unwrap_err(), ChildError::NotFound { .. }));
        for cpu in [1023, 1_000_000] {
            let place = ChildPlace { netns: None, cpus: &[cpu] };
            let error = Child::spawn(shell("true"), &place).unwrap_err();
            assert!(matches!(error, ChildError::Start { .. }), "{error}");
        }
    }

    fn is_alive(stat: &str) -> bool {
        let state = |text: String| text.rsplit(')').next().map(|s| s.trim().starts_with('Z'));
        std::fs::read_to_string(stat).ok().and_then(state) == Some(false)
    }

    fn becomes_true(condition: impl Fn() -> bool) -> bool {
        (0..1000).any(|_| {
            thread::sleep(Duration::from_millis(5));
            condition()
        })
    }
}
