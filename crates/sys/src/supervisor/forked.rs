//! The forked process: nothing here allocates, locks or unwinds, because the owner may have threads
//! that held a lock when it forked.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::children::{kill, process, wait};
use super::record::{KILL_ALL, Record, SEND_USAGE};
use super::signals::{
    all_signals, child_signals, drain, forget_handlers, no_signals, set_signals_blocked,
};
use super::{Launch, Reaped, STEPS, StartError, SupervisorGroup, directory};
use crate::descriptors::close_all_but;
use crate::netns::Netns;
use crate::pidfd::PidFd;
use crate::rusage::timeval_ns;
use crate::{affinity, capability, child, clock, poll};

/// Name of the process, as tools show it: at most 15 bytes.
const NAME: &CStr = c"wirepath-guard";
/// Time between two rounds of killing; doubled up to [`KILL_INTERVAL_MAX`].
const KILL_INTERVAL: Duration = Duration::from_millis(5);
const KILL_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Rounds of removing an empty group, of [`KILL_INTERVAL`] each: the kernel may still hold an ended process.
const REMOVE_ROUNDS: u32 = 400;
/// Time between two reasons to wake up at all.
const IDLE_INTERVAL: Duration = Duration::from_secs(3600);

/// A launch in the form that execve(2) takes, made before the fork.
pub(super) struct Prepared<'a> {
    program: CString,
    _texts: Vec<CString>,
    /// Pointers into `_texts`, each list ended by a null pointer.
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    folder: CString,
    netns: Option<&'a Netns>,
    cpus: &'a [usize],
    group: Option<&'a SupervisorGroup>,
    streams: [RawFd; 3],
}

impl<'a> Prepared<'a> {
    pub(super) fn new(launch: &'a Launch<'_>) -> Result<Self, StartError> {
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| StartError::ZeroByte);
        if let Some(cpu) = launch.cpus.iter().find(|&&cpu| cpu >= libc::CPU_SETSIZE as usize) {
            // Checked here, because after fork an error must not allocate.
            let what = format!("CPU {cpu} does not exist");
            return Err(StartError::at(STEPS[4])(io::Error::new(
                io::ErrorKind::InvalidInput,
                what,
            )));
        }
        let mut texts = Vec::new();
        for argument in launch.arguments {
            texts.push(text(argument.as_bytes())?);
        }
        for (name, value) in &launch.environment {
            texts.push(text(&[name, &b"="[..], value].concat())?);
        }
        let list = |texts: &[CString]| {
            texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (arguments, environment) = texts.split_at(launch.arguments.len());
        Ok(Prepared {
            program: text(launch.program.as_bytes())?,
            arguments: list(arguments),
            environment: list(environment),
            folder: text(launch.folder)?,
            netns: launch.netns,
            cpus: launch.cpus,
            group: launch.group.as_ref(),
            streams: std::array::from_fn(|i| launch.streams[i].as_raw_fd()),
            _texts: texts,
        })
    }
}

/// Forks the supervisor; returns its process id. Its end of the socket is `socket`.
pub(super) fn fork(prepared: &Prepared<'_>, owner: &PidFd, socket: &UnixStream) -> io::Result<u32> {
    // No handler of the owner may run in the supervisor.
    let before = set_signals_blocked(&all_signals());
    // SAFETY: the child runs `supervise` alone, which neither allocates nor takes a lock, and ends by
    // _exit(2).
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        supervise(prepared, owner, socket);
    }
    let error = io::Error::last_os_error();
    set_signals_blocked(&before);
    u32::try_from(pid).map_err(|_| error)
}

fn supervise(prepared: &Prepared<'_>, owner: &PidFd, socket: &UnixStream) -> ! {
    let mut group = None;
    match begin(prepared, owner, socket, &mut group) {
        Ok((program, signals)) => watch(group.as_ref(), program, owner, socket, &signals),
        Err((step, error)) => {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            // The owner may have ended.
            let _ = Record::Failed { step, errno }.send(socket);
            end_all(State::new(group.as_ref(), 0), None);
        }
    }
}

/// Control group that this supervisor has created.
struct Created<'a> {
    parent: BorrowedFd<'a>,
    name: &'a CStr,
    /// `cgroup.procs`, until the program is started.
    processes: Option<File>,
    /// `cgroup.kill`; `None` before Linux 5.14.
    kill: Option<File>,
}

impl<'a> Created<'a> {
    /// Creates a group, which `created` holds even if a later step fails.
    fn make(group: &'a SupervisorGroup, created: &mut Option<Self>) -> io::Result<()> {
        let (parent, name) = (group.parent.as_fd(), group.name.as_c_str());
        directory::create(parent, name)?;
        let this = created.insert(Created { parent, name, processes: None, kill: None });
        let folder = directory::open(Some(parent), name)?;
        this.processes = Some(directory::open_file(folder.as_fd(), c"cgroup.procs")?);
        this.kill = directory::open_file(folder.as_fd(), c"cgroup.kill").ok();
        Ok(())
    }
}

type Step = (u64, io::Error);

fn raw_fd(file: &dyn AsFd) -> i32 {
    file.as_fd().as_raw_fd()
}

/// Starts the program. Returns its process id and a descriptor of SIGCHLD.
///
/// - `created`: set to the control group as soon as there is one.
fn begin<'a>(
    prepared: &Prepared<'a>,
    owner: &PidFd,
    socket: &UnixStream,
    created: &mut Option<Created<'a>>,
) -> Result<(libc::pid_t, File), Step> {
    let start = |error| (0, error);
    forget_handlers();
    // SAFETY: no memory is involved. It cannot fail: a new process leads no group.
    unsafe { libc::setsid() };
    // SAFETY: no memory is involved.
    let rc = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    if rc != 0 {
        return Err(start(io::Error::last_os_error()));
    }
    // SAFETY: the name is a string that outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, NAME.as_ptr()) };
    let signals = child_signals().map_err(start)?;
    if let Some(group) = prepared.group {
        Created::make(group, created).map_err(|error| (8, error))?;
    }
    let processes = created.as_mut().and_then(|group| group.processes.take());
    let (mut errors, errors_of_program) = io::pipe().map_err(start)?;
    let own_pid = std::process::id();
    // SAFETY: the child runs `become_program` alone, which neither allocates nor takes a lock, and ends
    // by execve(2) or _exit(2).
    let program = unsafe { libc::fork() };
    if program == 0 {
        become_program(prepared, processes.as_ref(), own_pid, errors_of_program);
    }
    if program < 0 {
        return Err(start(io::Error::last_os_error()));
    }
    // Closed by their owners; the next step closes the rest, whose owners are never dropped here.
    drop((errors_of_program, processes));
    let group = created.as_ref();
    close_all_but([
        raw_fd(socket),
        raw_fd(owner),
        raw_fd(&signals),
        raw_fd(&errors),
        group.map_or(-1, |group| group.parent.as_raw_fd()),
        group.and_then(|group| group.kill.as_ref()).map_or(-1, |kill| raw_fd(kill)),
    ]);
    // Ends with the program's execution, which closes its end.
    let mut failure = [0; 8];
    match read_whole(&mut errors, &mut failure) {
        0 => {}
        _ => {
            let [step, _, _, _, errno @ ..] = failure;
            let error = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
            return Err((u64::from(step), error));
        }
    }
    let pid = program as u32;
    let started = Record::Started { pid, at_ns: clock::monotonic_ns() };
    // An owner that has ended is noticed by the next poll: the program runs, and must be ended.
    let _ = started.send(socket);
    Ok((program, signals))
}

fn read_whole(from: &mut impl Read, buffer: &mut [u8]) -> usize {
    let mut len = 0;
    while let Some(room) = buffer.get_mut(len..).filter(|room| !room.is_empty()) {
        match from.read(room) {
            Ok(more @ 1..) => len += more,
            Ok(0) | Err(_) => break,
        }
    }
    len
}

/// From fork to exec of the program.
///
/// - `group`: `cgroup.procs` of its control group.
fn become_program(
    prepared: &Prepared<'_>,
    group: Option<&File>,
    supervisor: u32,
    mut errors: PipeWriter,
) -> ! {
    let (step, error) = prepare_and_execute(prepared, group, supervisor);
    let [a, b, c, d] = error.raw_os_error().unwrap_or(libc::EINVAL).to_ne_bytes();
    // The supervisor may have been killed.
    let _ = errors.write_all(&[step, 0, 0, 0, a, b, c, d]);
    exit(127)
}

/// Returns only on failure: the step and its error.
fn prepare_and_execute(
    prepared: &Prepared<'_>,
    group: Option<&File>,
    supervisor: u32,
) -> (u8, io::Error) {
    let steps = || -> Result<(), (u8, io::Error)> {
        // SAFETY: no memory is involved. It cannot fail for a process that leads no session.
        unsafe { libc::setpgid(0, 0) };
        child::die_with(supervisor).map_err(|error| (1, error))?;
        if let Some(mut group) = group {
            // 0 is the writer.
            group.write_all(b"0").map_err(|error| (2, error))?;
        }
        if let Some(netns) = prepared.netns {
            netns.enter().map_err(|error| (3, error))?;
        }
        if !prepared.cpus.is_empty() {
            affinity::pin_to(prepared.cpus).map_err(|error| (4, error))?;
        }
        // SAFETY: the folder is a string that outlives the call.
        if unsafe { libc::chdir(prepared.folder.as_ptr()) } != 0 {
            return Err((5, io::Error::last_os_error()));
        }
        for (from, to) in prepared.streams.iter().zip(0..) {
            // SAFETY: no memory is involved; both descriptors are this process's own.
            if unsafe { libc::dup2(*from, to) } < 0 {
                return Err((6, io::Error::last_os_error()));
            }
        }
        Ok(())
    };
    if let Err(failure) = steps() {
        return failure;
    }
    capability::clear_ambient();
    set_signals_blocked(&no_signals());
    // SAFETY: path and lists are strings and lists of strings with their ends, made by `Prepared`.
    unsafe {
        libc::execve(
            prepared.program.as_ptr(),
            prepared.arguments.as_ptr(),
            prepared.environment.as_ptr(),
        )
    };
    (7, io::Error::last_os_error())
}

/// Reports changes and obeys the owner until that has ended; then kills all.
fn watch(
    group: Option<&Created<'_>>,
    program: libc::pid_t,
    owner: &PidFd,
    socket: &UnixStream,
    signals: &File,
) -> ! {
    let mut state = State::new(group, program);
    let mut kill_after: Option<Duration> = None;
    loop {
        state.reap(Some(socket));
        if let Some(interval) = kill_after.filter(|_| !state.is_empty) {
            state.kill_all();
            kill_after = Some((interval * 2).min(KILL_INTERVAL_MAX));
        }
        let timeout = kill_after.filter(|_| !state.is_empty).unwrap_or(IDLE_INTERVAL);
        let fds = [signals.as_fd(), socket.as_fd(), owner.as_fd()];
        let Ok(ready) = poll::readable_set(&fds, timeout) else { break };
        if ready & 1 != 0 {
            drain(signals);
        }
        if ready & 2 != 0 {
            let mut command = [0];
            match (&mut &*socket).read(&mut command) {
                Ok(1) if command == [SEND_USAGE] => {
                    let reaped = state.usage();
                    if (Record::Usage { reaped }).send(socket).is_err() {
                        break;
                    }
                }
                Ok(1) if command == [KILL_ALL] => kill_after = Some(KILL_INTERVAL),
                _ => break,
            }
        }
        if ready & 4 != 0 {
            break;
        }
    }
    end_all(state, Some(signals))
}

/// Kills all, removes the group, and exits.
///
/// - `signals`: descriptor of SIGCHLD, if there is one already.
fn end_all(mut state: State<'_>, signals: Option<&File>) -> ! {
    let mut interval = KILL_INTERVAL;
    state.reap(None);
    while !state.is_empty {
        state.kill_all();
        // An error ends the wait early.
        let _ = match signals {
            Some(signals) => poll::readable(&[signals.as_fd()], interval),
            None => poll::readable(&[], interval),
        };
        signals.into_iter().for_each(drain);
        state.reap(None);
        interval = (interval * 2).min(KILL_INTERVAL_MAX);
    }
    if let Some(group) = state.group {
        for _ in 0..REMOVE_ROUNDS {
            if directory::remove_tree(group.parent, group.name).is_ok() {
                break;
            }
            // An error ends the wait early.
            let _ = poll::readable(&[], KILL_INTERVAL);
        }
    }
    exit(0)
}

struct State<'a> {
    group: Option<&'a Created<'a>>,
    /// 0 if it was not started.
    program: libc::pid_t,
    reaped_count: u64,
    /// Wait status of the last process that was reaped.
    last_status: libc::c_int,
    is_empty: bool,
}

impl<'a> State<'a> {
    fn new(group: Option<&'a Created<'a>>, program: libc::pid_t) -> Self {
        State { group, program, reaped_count: 0, last_status: 0, is_empty: false }
    }

    /// Reaps all that have ended, and reports to the owner if there is one.
    fn reap(&mut self, socket: Option<&UnixStream>) {
        while !self.is_empty {
            let record = match wait(libc::WNOHANG) {
                Some((0, _)) => return,
                Some((pid, status)) => {
                    self.reaped_count += 1;
                    self.last_status = status;
                    if pid != self.program {
                        continue;
                    }
                    Record::Ended { status, at_ns: clock::monotonic_ns() }
                }
                None => {
                    self.is_empty = true;
                    Record::Empty { at_ns: clock::monotonic_ns(), reaped: self.usage() }
                }
            };
            if let Some(socket) = socket {
                // An owner that has ended is noticed by the next poll.
                let _ = record.send(socket);
            }
        }
    }

    fn usage(&self) -> Reaped {
        // SAFETY: all-zero is a valid rusage, a plain C struct of integers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: RUSAGE_CHILDREN is always valid and `usage` may be written.
        unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
        Reaped {
            user_ns: timeval_ns(usage.ru_utime),
            system_ns: timeval_ns(usage.ru_stime),
            context_switch_count: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
            resident_bytes_max: usage.ru_maxrss as u64 * 1024,
            process_count: self.reaped_count,
            last_status: self.last_status,
        }
    }

    /// Kills the group, and all own children. Those of a killed child become own ones, so another round
    /// gets them if there is no group.
    fn kill_all(&self) {
        if let Some(kill) = self.group.and_then(|group| group.kill.as_ref()) {
            // Own children, which follow, may be all there is.
            let _ = kill.write_at(b"1", 0);
        }
        let own_pid = std::process::id() as libc::pid_t;
        let killed = directory::open(None, c"/proc").and_then(|proc| {
            directory::for_each(proc.as_fd(), |name, _| {
                if let Some((pid, parent)) = process(name)
                    && parent == own_pid
                {
                    kill(pid);
                }
            })
        });
        if killed.is_err() && self.program > 0 {
            // Without /proc, its process group is all that is known.
            kill(-self.program);
        }
    }
}

fn exit(code: i32) -> ! {
    // SAFETY: ends this process without running destructors or handlers of the owner.
    unsafe { libc::_exit(code) }
}
