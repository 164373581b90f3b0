//! Foreign programs in a trial: start, readiness, accounting and end of a server, a client or a command.
//!
//! A program runs under a [supervisor](sys::supervisor), which reaps all of its descendants, in a control
//! group of its own where one can be created. Nothing of it outlives the [`Program`], or this process
//! if that is killed.

mod cgroup;
mod error;
mod output;
mod ports;
mod processes;
mod ready;
mod usage;

use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use sys::counters::GroupCounters;
use sys::netns::Netns;
use sys::supervisor::{Event, Launch, Reaped, Supervisor, SupervisorGroup};

pub use cgroup::{Cgroup, CgroupParent};
pub use error::ProgramError;
pub use output::Output;
pub use ports::{PortHolder, PortUse, ServerSocket, Transport, port_holder};
pub use ready::{Ready, ReadyError};
pub use usage::{CountedBy, Usage};

use output::Capture;

/// Program that runs the commands.
pub const SHELL: &str = "/bin/sh";
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

/// Time between two looks for readiness: first, and at most.
const READY_INTERVAL_MIN: Duration = Duration::from_millis(1);
const READY_INTERVAL_MAX: Duration = Duration::from_millis(20);
/// Time between two looks at the stop flag.
const EVENT_INTERVAL: Duration = Duration::from_millis(20);
/// Time between two looks at the memory of a client, if its group does not count it.
const MEMORY_INTERVAL: Duration = Duration::from_millis(250);
/// Limit for processes to end after SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit for output to arrive after the last process: a descriptor may have left the group.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);
/// A file system's time may be this much behind the clock: one tick, and margin.
const FILE_TIME_LAG_LIMIT: Duration = Duration::from_millis(20);

/// True if a file was made or changed at that time or later.
pub fn is_changed_since(file: &fs::Metadata, time: SystemTime) -> bool {
    let changed = Duration::new(file.ctime().max(0) as u64, file.ctime_nsec().max(0) as u32);
    SystemTime::UNIX_EPOCH + changed + FILE_TIME_LAG_LIMIT >= time
}

/// Program to start, and its place.
#[derive(Debug, Clone)]
pub struct ProgramSpec<'a> {
    /// Line for `sh -c`.
    pub command: &'a str,
    /// Variables added to the environment of this process.
    pub env: Vec<(String, String)>,
    /// Network namespace; `None` for the caller's.
    pub netns: Option<&'a Netns>,
    /// Allowed CPUs; empty for the caller's.
    pub cpus: &'a [usize],
    pub folder: &'a Path,
    /// Part in the trial, such as `server`, for errors.
    pub name: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramEnd {
    /// Before it was stopped.
    ByItself,
    /// Within the grace time after the signal.
    Terminated,
    /// By SIGKILL, some or all of it.
    Killed,
}

/// A program all of whose processes have ended.
#[derive(Debug, Clone)]
pub struct FinishedProgram {
    /// Of the program itself; of a daemon, that of the process that started it.
    pub status: ExitStatus,
    pub end: ProgramEnd,
    pub stdout: Output,
    pub stderr: Output,
    pub usage: Usage,
    /// From its execution to the end of the program itself, or of its last process if it was stopped.
    pub wall: Duration,
}

impl FinishedProgram {
    /// Last lines that it printed, for an error.
    pub fn last_lines(&self) -> String {
        output::last_lines_of_both(&self.stdout.last_lines(), &self.stderr.last_lines())
    }
}

/// A running program. Dropping it kills all of its processes.
#[derive(Debug)]
pub struct Program {
    name: String,
    state: Mutex<State>,
    stdout: Capture,
    stderr: Capture,
    started: Instant,
    started_at: SystemTime,
    folder: PathBuf,
    /// Largest resident size that rusage may report for no better reason than the size of this process.
    resident_floor_bytes: u64,
    why_no_cgroup: Option<String>,
    // Dropped in this order: the supervisor removes the group.
    supervisor: Supervisor,
    cgroup: Option<Cgroup>,
    /// Of the processor, for the control group; `None` unless they are asked for and given.
    counters: Option<GroupCounters>,
}

#[derive(Debug, Default)]
struct State {
    /// Status and time of the program itself.
    ended: Option<(ExitStatus, u64)>,
    /// Time and resources when no process was left.
    empty: Option<(u64, Reaped)>,
    is_lost: bool,
    resident_bytes_max: u64,
}

impl State {
    fn apply(&mut self, event: Event) {
        match event {
            Event::Ended { status, at_ns } => self.ended = Some((status, at_ns)),
            Event::Empty { at_ns, reaped } => self.empty = Some((at_ns, reaped)),
            Event::Lost => self.is_lost = true,
        }
    }
}

impl Program {
    /// Starts a program. Its output is read from now on; standard input is empty.
    pub fn start(spec: &ProgramSpec<'_>) -> Result<Program, ProgramError> {
        Program::start_in(spec, &CgroupParent::find())
    }

    /// As [`start`](Self::start), with its control group in `parent`.
    pub fn start_in(
        spec: &ProgramSpec<'_>,
        parent: &CgroupParent,
    ) -> Result<Program, ProgramError> {
        let why = match parent.reserve() {
            Ok((path, group)) => match Program::launch(spec, Some((path.clone(), group)), None) {
                Err(ProgramError::Start { source, .. }) if source.is_of_group() => {
                    // Without the group's name, which is another one in each trial.
                    let parent = path.parent().unwrap_or(&path);
                    format!("in {}: {}", parent.display(), host::text::chain(&source))
                }
                started => return started,
            },
            Err(why) => why,
        };
        Program::launch(spec, None, Some(why))
    }

    fn launch(
        spec: &ProgramSpec<'_>,
        group: Option<(PathBuf, SupervisorGroup)>,
        why_no_cgroup: Option<String>,
    ) -> Result<Program, ProgramError> {
        let name = spec.name.to_owned();
        if !Path::new(SHELL).exists() {
            return Err(ProgramError::NoShell { name });
        }
        let failed = |what| {
            let name = name.clone();
            move |source| ProgramError::Io { name, what, source }
        };
        let (stdout, stdout_of_program) =
            io::pipe().map_err(failed("make a pipe for the output"))?;
        let (stderr, stderr_of_program) =
            io::pipe().map_err(failed("make a pipe for the output"))?;
        let stdin = File::open("/dev/null").map_err(failed("open /dev/null for the input"))?;
        let stdout = Capture::start(stdout).map_err(failed("read the output"))?;
        let stderr = Capture::start(stderr).map_err(failed("read the output"))?;
        let inherited = std::env::vars_os()
            .filter(|(name, _)| spec.env.iter().all(|(own, _)| name.as_os_str() != own.as_str()))
            .map(|(name, value)| (name.into_vec(), value.into_vec()));
        let added =
            spec.env.iter().map(|(name, value)| (name.clone().into(), value.clone().into()));
        let (cgroup, group) = group.unzip();
        let launch = Launch {
            program: SHELL,
            arguments: &["sh", "-c", spec.command],
            environment: inherited.chain(added).collect(),
            folder: spec.folder.as_os_str().as_bytes(),
            netns: spec.netns,
            cpus: spec.cpus,
            group,
            streams: [stdin.into(), stdout_of_program.into(), stderr_of_program.into()],
        };
        let resident_floor_bytes = processes::own_resident_bytes();
        let (started, started_at) = (Instant::now(), SystemTime::now());
        let supervisor = Supervisor::start(&launch)
            .map_err(|source| ProgramError::Start { name: name.clone(), source })?;
        let cgroup =
            cgroup.map(Cgroup::open).transpose().map_err(failed("open the control group"))?;
        Ok(Program {
            name: name.clone(),
            state: Mutex::default(),
            stdout,
            stderr,
            started,
            started_at,
            folder: spec.folder.to_owned(),
            resident_floor_bytes,
            why_no_cgroup,
            supervisor,
            cgroup,
            counters: None,
        })
    }

    /// Counts instructions, cycles and misses from now on, if the kernel does. Each switch between control groups takes
    /// longer then: in a pipe's round trip 1.7 times.
    pub fn count_processor(&mut self) {
        self.counters = self.cgroup.as_ref().and_then(|cgroup| {
            GroupCounters::open(cgroup.path(), &sys::affinity::allowed_cpus().ok()?).ok()
        });
    }

    /// Control group of its processes; `None` if none could be created.
    pub fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// Reason that it has no control group.
    pub fn why_no_cgroup(&self) -> Option<&str> {
        self.why_no_cgroup.as_deref()
    }

    pub fn processes(&self) -> Vec<u32> {
        match &self.cgroup {
            Some(cgroup) => cgroup.processes(),
            None => processes::descendants(self.supervisor.pid()),
        }
    }

    /// Sockets at which its processes take what clients send.
    pub fn listeners(&self) -> Vec<ServerSocket> {
        ports::listeners(&self.processes())
    }

    /// Addresses at which its processes have bound a port; a wildcard address is all of them.
    pub fn bound_addresses(&self, transport: Transport, port: u16) -> Vec<IpAddr> {
        let rows = ports::bound_by(&self.processes(), transport, port);
        rows.into_iter().map(|row| row.address).collect()
    }

    /// False once the program has ended with success. One that exits with status 0 and leaves a process, a
    /// daemon, runs until the end of the last process, whose status counts.
    ///
    /// Errors: the program failed; it may have left processes.
    pub fn is_running(&self) -> Result<bool, ProgramError> {
        self.take_events(Duration::ZERO)?;
        match self.early_end() {
            None => Ok(true),
            Some(status) if status.success() => Ok(false),
            Some(status) => {
                let (name, how) = (self.name.clone(), status.to_string());
                Err(ProgramError::Ended { name, how, output: self.last_words() })
            }
        }
    }

    /// Stops its processes, or lets them continue.
    pub fn pause(&self, paused: bool) {
        let signal = if paused { SIGSTOP } else { SIGCONT };
        processes::signal(&self.members(), &[signal], || self.members());
    }

    /// Time of its execution, CLOCK_MONOTONIC nanoseconds.
    pub fn started_ns(&self) -> u64 {
        self.supervisor.started_ns()
    }

    /// Time at which it ended with success, as by [`is_running`](Self::is_running); CLOCK_MONOTONIC nanoseconds.
    /// `None` while it runs.
    ///
    /// Errors: the program failed.
    pub fn ended_ns(&self) -> Result<Option<u64>, ProgramError> {
        if self.is_running()? {
            return Ok(None);
        }
        Ok(self.state().empty.map(|(at_ns, _)| at_ns))
    }

    /// Bytes of standard output so far, the mark of [`output_since`](Self::output_since).
    pub fn output_len_bytes(&self) -> u64 {
        self.stdout.len_bytes()
    }

    /// Standard output behind a mark, as far as it is kept.
    pub fn output_since(&self, mark_bytes: u64) -> Output {
        self.stdout.since(mark_bytes)
    }

    /// Error for a program that did not end in time. Its last lines are in it.
    pub fn timed_out(&self, limit: Duration) -> ProgramError {
        ProgramError::TimedOut { name: self.name.clone(), limit, output: self.last_lines() }
    }

    /// Error for a server that has ended with success before any client used it.
    pub fn ended_unused(&self) -> ProgramError {
        let how = self.early_end().map_or_else(|| "not yet".into(), |status| status.to_string());
        ProgramError::EndedUnused { name: self.name.clone(), how, output: self.last_words() }
    }

    /// Waits until the server is ready; returns the time since its start.
    ///
    /// Errors: it ended, `limit` passed, or `stop` was set.
    pub fn wait_ready(
        &mut self,
        ready: &Ready,
        limit: Duration,
        stop: &AtomicBool,
    ) -> Result<Duration, ProgramError> {
        if let Ready::Line(line) = ready {
            self.stdout.watch(line);
            self.stderr.watch(line);
        }
        let begun = Instant::now();
        let mut look = READY_INTERVAL_MIN;
        loop {
            self.take_events(Duration::ZERO)?;
            // Before its end: a line may be its last.
            let is_ready = self.is_ready(ready);
            if let Some(status) = self.early_end() {
                let (name, output) = (self.name.clone(), self.last_words());
                return Err(ProgramError::EndedEarly { name, how: status.to_string(), output });
            }
            if is_ready {
                return Ok(self.started.elapsed());
            }
            if stop.load(Ordering::Relaxed) {
                return Err(ProgramError::Interrupted { name: self.name.clone() });
            }
            let Some(left) = limit.checked_sub(begun.elapsed()) else {
                return Err(ProgramError::NotReady {
                    name: self.name.clone(),
                    ready: ready.to_string(),
                    limit,
                    why: self.why_not_ready(ready),
                    output: self.last_lines(),
                });
            };
            self.take_events(look.min(left))?;
            look = (look * 2).min(READY_INTERVAL_MAX);
        }
    }

    fn is_ready(&self, ready: &Ready) -> bool {
        match ready {
            Ready::Tcp(port) => !self.bound_addresses(Transport::Tcp, *port).is_empty(),
            Ready::Udp(port) => !self.bound_addresses(Transport::Udp, *port).is_empty(),
            Ready::Line(_) => self.stdout.is_line_seen() || self.stderr.is_line_seen(),
            Ready::File(path) => self.is_new(path),
            Ready::Sleep(time) => self.started.elapsed() >= *time,
        }
    }

    /// True if a file was made or changed since the start: one may be left of an earlier trial.
    fn is_new(&self, path: &Path) -> bool {
        fs::metadata(self.folder.join(path))
            .is_ok_and(|file| is_changed_since(&file, self.started_at))
    }

    fn why_not_ready(&self, ready: &Ready) -> String {
        let (transport, port) = match ready {
            Ready::Tcp(port) => (Transport::Tcp, *port),
            Ready::Udp(port) => (Transport::Udp, *port),
            Ready::Line(_) => return "no line of its output matches".into(),
            Ready::File(path) if self.folder.join(path).exists() => {
                return "the file is older than the server".into();
            }
            Ready::File(_) => return "there is no such file".into(),
            Ready::Sleep(_) => return "the limit is shorter".into(),
        };
        let own = self.processes();
        let tables = own.first().and_then(|pid| Netns::open(format!("/proc/{pid}/ns/net")).ok());
        match port_holder(tables.as_ref(), transport, port) {
            Ok(Some(holder)) if holder.use_ == PortUse::Bound => holder.to_string(),
            _ => format!("none of its processes has {transport} port {port}"),
        }
    }

    /// Waits for the end of a program that ends by itself, such as a client. Processes that it leaves are
    /// killed.
    ///
    /// Errors: `limit` passed or `stop` was set, and it was killed. An exit status other than 0 is no error.
    pub fn wait(self, limit: Duration, stop: &AtomicBool) -> Result<FinishedProgram, ProgramError> {
        self.wait_beside(&mut || Ok(()), limit, stop)
    }

    /// As [`wait`](Self::wait), and an error once `check` has one, such as that its server has failed, so that
    /// a client does not hang until its limit.
    pub fn wait_beside(
        self,
        check: &mut dyn FnMut() -> Result<(), ProgramError>,
        limit: Duration,
        stop: &AtomicBool,
    ) -> Result<FinishedProgram, ProgramError> {
        let begun = Instant::now();
        let mut memory_due = MEMORY_INTERVAL;
        loop {
            check()?;
            if self.state().ended.is_some() {
                return self.finish(ProgramEnd::ByItself);
            }
            if stop.load(Ordering::Relaxed) {
                return Err(ProgramError::Interrupted { name: self.name.clone() });
            }
            let passed = begun.elapsed();
            let Some(left) = limit.checked_sub(passed) else {
                return Err(self.timed_out(limit));
            };
            if passed >= memory_due {
                self.look_at_memory();
                memory_due = passed + MEMORY_INTERVAL;
            }
            self.take_events(left.min(EVENT_INTERVAL))?;
        }
    }

    /// Its processes, and those that have left its group.
    fn members(&self) -> Vec<u32> {
        let mut members = self.processes();
        if self.cgroup.is_some() {
            members.extend(processes::descendants(self.supervisor.pid()));
            members.sort_unstable();
            members.dedup();
        }
        members
    }

    /// Ends a program: SIGTERM to all of its processes, `grace` to comply, then SIGKILL.
    pub fn stop(self, grace: Duration) -> Result<FinishedProgram, ProgramError> {
        self.stop_by(SIGTERM, grace)
    }

    /// As [`stop`](Self::stop), by SIGINT: Ctrl-C makes many programs print their summary.
    pub fn interrupt(self, grace: Duration) -> Result<FinishedProgram, ProgramError> {
        self.stop_by(SIGINT, grace)
    }

    fn stop_by(self, signal: i32, grace: Duration) -> Result<FinishedProgram, ProgramError> {
        self.take_events(Duration::ZERO)?;
        if self.early_end().is_some() {
            return self.finish(ProgramEnd::ByItself);
        }
        self.look_at_memory();
        // A paused process handles the signal when it continues.
        processes::signal(&self.members(), &[signal, SIGCONT], || self.members());
        let deadline = Instant::now() + grace;
        loop {
            if self.state().empty.is_some() {
                return self.finish(ProgramEnd::Terminated);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.finish(ProgramEnd::Killed);
            }
            self.take_events(left)?;
        }
    }

    /// Kills what is left, and collects the results.
    fn finish(self, end: ProgramEnd) -> Result<FinishedProgram, ProgramError> {
        if self.state().empty.is_none() {
            self.supervisor.kill_all();
        }
        let deadline = Instant::now() + KILL_TIMEOUT;
        while self.state().empty.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let processes = processes::named(&self.processes());
                return Err(ProgramError::Stuck { name: self.name.clone(), processes });
            }
            self.take_events(left)?;
        }
        let usage = self.usage()?;
        let state = self.state();
        let started_ns = self.supervisor.started_ns();
        let (Some((status, ended_ns)), Some((empty_ns, _))) = (state.ended, state.empty) else {
            return Err(ProgramError::Lost { name: self.name.clone() });
        };
        drop(state);
        let wall_ns = if end == ProgramEnd::ByItself { ended_ns } else { empty_ns } - started_ns;
        let Program { stdout, stderr, supervisor, cgroup, .. } = self;
        // The end of the supervisor and of the group before the output, whose descriptors may have left.
        drop((supervisor, cgroup));
        Ok(FinishedProgram {
            status,
            end,
            stdout: stdout.finish(OUTPUT_TIMEOUT),
            stderr: stderr.finish(OUTPUT_TIMEOUT),
            usage,
            wall: Duration::from_nanos(wall_ns),
        })
    }

    /// Exit status, if the program has ended or failed.
    fn early_end(&self) -> Option<ExitStatus> {
        let state = self.state();
        let (status, _) = state.ended?;
        match state.empty {
            _ if !status.success() => Some(status),
            // The parent of a daemon ended with success before.
            Some((_, reaped)) => Some(ExitStatus::from_raw(reaped.last_status)),
            None => None,
        }
    }

    /// Last lines of a program that has ended or failed. What it left is killed, so that its output ends:
    /// the news of its end may come before its last line has been read.
    fn last_words(&self) -> String {
        if self.state().empty.is_none() {
            self.supervisor.kill_all();
        }
        self.stdout.wait_end(OUTPUT_TIMEOUT);
        self.stderr.wait_end(OUTPUT_TIMEOUT);
        self.last_lines()
    }

    /// Last lines of the output so far, for an error.
    pub fn last_lines(&self) -> String {
        output::last_lines_of_both(&self.stdout.last_lines(), &self.stderr.last_lines())
    }

    /// Waits at most `timeout` for a change, and records all changes so far.
    ///
    /// Errors: the supervisor was killed; the group is killed then.
    fn take_events(&self, timeout: Duration) -> Result<(), ProgramError> {
        let mut timeout = timeout;
        loop {
            let event = self.supervisor.next_event(timeout).map_err(|source| {
                let name = self.name.clone();
                ProgramError::Io { name, what: "supervise the processes", source }
            })?;
            let Some(event) = event else { break };
            self.state().apply(event);
            timeout = Duration::ZERO;
            if event == Event::Lost {
                break;
            }
        }
        if self.state().is_lost {
            self.cgroup.iter().for_each(Cgroup::kill);
            // Without a group, a daemon that has left the session is not found.
            processes::kill_session(self.supervisor.pid());
            Err(ProgramError::Lost { name: self.name.clone() })
        } else {
            Ok(())
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
