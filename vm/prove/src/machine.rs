//! A running machine, in namespaces of its own: addresses of guests are fixed, so that no two machines could share one.

use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::scratch::Scratch;
use lab::TapPort;
use lab::program::{Program, ProgramSpec, Usage};
use lab::qemu;
use model::PathError;
use outside::Target;

use crate::check::{CheckedArm, CheckedVm, Monitor, Outside};
use crate::command_line::{TAPS, command_line};
use crate::echo::Pinger;
use crate::error::{failed, failed_by};

/// Time limit for QEMU to connect to its monitor.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of pings until the first answer.
const READY_INTERVAL: Duration = Duration::from_millis(20);

/// A machine. Dropping it ends its program and removes its namespaces.
#[derive(Debug)]
pub(crate) struct Machine {
    // Dropped in this order: the program before its namespaces.
    program: Program,
    arm: String,
    near: TapPort,
    far: Option<TapPort>,
    /// Of QEMU, for pauses; `None` while it is not connected, and for another monitor.
    monitor: Option<qemu::Monitor>,
    listener: Option<UnixListener>,
    trace_log: Option<PathBuf>,
    baud: u32,
    /// Just before its start.
    pub(crate) started: Instant,
    _folder: Scratch,
}

impl Machine {
    /// Starts a machine, without waiting for its guest.
    ///
    /// - `knows_guest`: frames are sent to the guest's card before it answers a request for its address.
    pub(crate) fn start(
        vm: &CheckedVm,
        arm: &CheckedArm,
        knows_guest: bool,
    ) -> Result<Self, PathError> {
        let near = TapPort::new(TAPS[0]).map_err(PathError::part)?;
        let second = match arm.macs.len() {
            2 => Some(near.beside(TAPS[1]).map_err(PathError::part)?),
            _ => None,
        };
        near.configure(vm.near, vm.gateway).map_err(PathError::part)?;
        if knows_guest {
            near.set_neighbour(vm.gateway.unwrap_or(vm.guest), arm.macs[0])
                .map_err(PathError::part)?;
        }
        let folder = Scratch::new().map_err(|why| PathError::at("scratch folder", why))?;
        let socket = folder.path().join("monitor");
        let listener = match &arm.monitor {
            Monitor::Qemu(_) => Some(qemu::listen(&socket).map_err(PathError::part)?),
            Monitor::Other(_) => None,
        };
        let is_traced = listener.is_some() && vm.outside == Outside::Trace;
        let trace_log = is_traced.then(|| folder.path().join("trace"));
        let command = command_line(arm, &socket, trace_log.as_deref());
        let name = format!("machine of arm {}", arm.name);
        let started = Instant::now();
        let program = Program::start(&ProgramSpec {
            command: &command,
            env: vec![("WIREPATH_ARM".into(), arm.name.clone())],
            netns: Some(&near.netns),
            cpus: &[],
            folder: &vm.folder,
            name: &name,
        })
        .map_err(PathError::part)?;
        let mut machine = Machine {
            program,
            arm: arm.name.clone(),
            near,
            far: None,
            monitor: None,
            listener,
            trace_log,
            baud: vm.baud,
            started,
            _folder: folder,
        };
        if let Some(port) = second {
            let moved = port.move_out().map_err(|error| machine.explained(&error))?;
            let far = vm.far.unwrap_or(vm.guest);
            moved.configure(far, vm.far_gateway).map_err(PathError::part)?;
            machine.far = Some(moved);
        }
        Ok(machine)
    }

    /// Waits until the guest is ready and answers.
    ///
    /// Errors: it is not within the file's time limit, or its program has ended.
    pub(crate) fn wait_ready(
        &mut self,
        vm: &CheckedVm,
        pings: bool,
        stop: &AtomicBool,
    ) -> Result<(), PathError> {
        if let Some(ready) = &vm.ready {
            let waited = self.program.wait_ready(ready, vm.ready_within, stop);
            waited.map_err(|error| failed_by(&self.arm, &error))?;
        }
        if vm.ready.is_none() || pings {
            let mut pinger = self.pinger(vm, 56)?;
            self.first_answer(&mut pinger, READY_INTERVAL, vm.ready_within, stop)?;
        }
        self.connect(stop)
    }

    /// Pings until the first answer. Returns the time from the machine's start.
    pub(crate) fn first_answer(
        &self,
        pinger: &mut Pinger,
        interval: Duration,
        limit: Duration,
        stop: &AtomicBool,
    ) -> Result<Duration, PathError> {
        let begun = Instant::now();
        let answered = pinger.until_answer(interval, &mut || {
            self.check()?;
            if stop.load(Ordering::Relaxed) {
                return Err(PathError::at(&self.arm, "interrupted"));
            }
            if begun.elapsed() > limit {
                let why = format!("its guest did not answer within {} ms", limit.as_millis());
                return Err(failed(&self.arm, &why, &self.program));
            }
            Ok(())
        })?;
        Ok(answered - self.started)
    }

    /// Errors: its program has ended.
    pub(crate) fn check(&self) -> Result<(), PathError> {
        match self.program.is_running() {
            Ok(true) => Ok(()),
            Ok(false) => Err(failed(&self.arm, "its machine has ended", &self.program)),
            Err(error) => Err(failed_by(&self.arm, &error)),
        }
    }

    /// The end of its program in place of an error that this caused.
    fn explained(&self, error: &(dyn std::error::Error + 'static)) -> PathError {
        self.check().err().unwrap_or_else(|| failed_by(&self.arm, error))
    }

    /// Waits for QEMU's connection to its monitor, which it makes while it starts.
    fn connect(&mut self, stop: &AtomicBool) -> Result<(), PathError> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).map_err(|why| PathError::at(&self.arm, why))?;
                    let monitor = qemu::Monitor::open(stream);
                    self.monitor = Some(monitor.map_err(|error| self.explained(&error))?);
                    return Ok(());
                }
                Err(why) if why.kind() != ErrorKind::WouldBlock => {
                    return Err(PathError::at(&self.arm, why));
                }
                Err(_) => {}
            }
            self.check()?;
            if Instant::now() > deadline || stop.load(Ordering::Relaxed) {
                return Err(PathError::at(&self.arm, "QEMU did not connect to its monitor"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Pauses the guest, so that it takes no time from other arms. QEMU's clock stands still with it; the processes of
    /// another monitor are stopped.
    pub(crate) fn pause(&mut self) -> Result<(), PathError> {
        match &mut self.monitor {
            Some(monitor) => monitor.pause().map_err(|error| failed_by(&self.arm, &error)),
            None => {
                self.program.pause(true);
                Ok(())
            }
        }
    }

    pub(crate) fn resume(&mut self) -> Result<(), PathError> {
        let resumed = match &mut self.monitor {
            Some(monitor) => monitor.resume().map_err(|error| failed_by(&self.arm, &error)),
            None => {
                self.program.pause(false);
                Ok(())
            }
        };
        self.check().and(resumed)
    }

    /// Opens a socket for pings at the near side.
    pub(crate) fn pinger(&self, vm: &CheckedVm, payload_bytes: usize) -> Result<Pinger, PathError> {
        Pinger::open(&self.near.netns, vm.guest, payload_bytes)
    }

    pub(crate) fn near(&self) -> &TapPort {
        &self.near
    }

    pub(crate) fn far(&self) -> Option<&TapPort> {
        self.far.as_ref()
    }

    pub(crate) fn usage(&self) -> Result<Usage, PathError> {
        self.program.usage().map_err(|error| failed_by(&self.arm, &error))
    }

    /// Characters that its console has printed so far, with those of the monitor's program.
    pub(crate) fn console_bytes(&self) -> u64 {
        self.program.output_len_bytes()
    }

    /// Reason that its processes have no control group.
    pub(crate) fn why_no_cgroup(&self) -> Option<String> {
        self.program.why_no_cgroup().map(str::to_owned)
    }

    /// Its process, as far as it can be told: of several the one with a machine of KVM, or with most CPU time.
    pub(crate) fn target(&self) -> Option<Target> {
        let pids = self.program.processes().into_iter();
        let pid = pids.max_by_key(|pid| (has_kvm_machine(*pid), sys::clock::cpu_ns_of(*pid)))?;
        Some(Target { pid, trace_log: self.trace_log.clone(), baud: self.baud })
    }

    /// Failure with the last lines of its console.
    pub(crate) fn failed(&self, why: &str) -> PathError {
        failed(&self.arm, why, &self.program)
    }
}

/// True if a process has opened a machine of KVM. Source: the kernel's virt/kvm/kvm_main.c, `kvm-vm`.
fn has_kvm_machine(pid: u32) -> bool {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut targets = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.any(|target| target.as_os_str() == "anon_inode:kvm-vm")
}
