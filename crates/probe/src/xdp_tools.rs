//! Programs of xdp-tools as peers of load `storm`: `xdp-bench` at the far end, `xdp-trafficgen` at the near end.

use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use host::child::{Child, ChildPlace, Finished, hide_run};
use host::net::Mac;
use lab::peers::version_of;
use lab::{End, Pair, PairSpec, Placement, RunCause};
use model::Support;
use sys::bpf::{AttachedProgram, detach_leftover};

/// Time limit for the start of a program, which reads the kernel's types first, and for its end.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Bytes of UDP payload in a frame of `xdp-trafficgen`: 64 bytes with the headers of Ethernet, IPv6 and UDP.
pub(super) const GENERATED_PAYLOAD_BYTES: u64 = 2;

pub(super) const BENCH: &str = "xdp-bench";
pub(super) const GENERATOR: &str = "xdp-trafficgen";

/// A command that leaves no file behind, however it ends: its lock is in a `/run` of its own, and its program is
/// attached without libxdp's dispatcher, which would be pinned.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LIBXDP_SKIP_DISPATCHER", "1");
    hide_run(&mut command);
    command
}

/// The last line that a program printed, which is its error.
fn said(finished: &Finished) -> String {
    let text = [&finished.stdout[..], &finished.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.unwrap_or("no message").to_owned()
}

/// `xdp-bench` on the far end's interface.
pub(super) struct XdpBench<'a> {
    // Before the guard, so that the program has ended when its XDP program is looked for.
    child: Child,
    far: Leftover<'a>,
    before_count: u64,
}

/// Detaches what a killed program left on an interface.
struct Leftover<'a>(&'a End);

impl Drop for Leftover<'_> {
    fn drop(&mut self) {
        // Nothing is attached after an orderly end.
        let _nothing_attached = self.0.run(|| detach_leftover(self.0.ifindex));
    }
}

impl<'a> XdpBench<'a> {
    /// Starts it; its XDP program is attached on return.
    ///
    /// - `verb`: `drop`, `pass` or `tx`.
    /// - `cpus`: of the far end.
    pub(super) fn start(far: &'a End, verb: &str, cpus: &[usize]) -> Result<Self, RunCause> {
        let mut command = command(BENCH);
        command.args([verb, &far.ifname]);
        let child = Child::spawn(command, &ChildPlace { netns: Some(&far.netns), cpus })?;
        let mut bench = XdpBench { child, far: Leftover(far), before_count: 0 };
        let begun = Instant::now();
        while far.run(|| AttachedProgram::on(far.ifindex))?.is_none() {
            if let Some(finished) = bench.child.wait(POLL_INTERVAL)? {
                return Err(format!("{BENCH} {verb}: {}", said(&finished)).into());
            }
            if begun.elapsed() > PROGRAM_TIMEOUT {
                let seconds = PROGRAM_TIMEOUT.as_secs();
                return Err(format!("{BENCH} {verb} attached nothing within {seconds} s").into());
            }
        }
        bench.before_count = arrived_count(far)?;
        Ok(bench)
    }

    /// Frames that the interface has handed to the program.
    pub(super) fn handled_count(&self) -> Result<u64, RunCause> {
        Ok(arrived_count(self.far.0)?.saturating_sub(self.before_count))
    }

    /// CPU time so far, nanoseconds; 0 if it has ended.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.child.cpu_ns().unwrap_or(0)
    }

    /// Ends it as Ctrl-C does.
    ///
    /// Errors: it had ended before, so that its counts are of less than the trial.
    pub(super) fn stop(self) -> Result<(), RunCause> {
        let finished = end(BENCH, self.child)?;
        if finished.status.success() {
            return Ok(());
        }
        Err(format!("{BENCH}: {}: {}", finished.status, said(&finished)).into())
    }
}

/// Interrupts a program and waits for its end.
fn end(name: &str, mut child: Child) -> Result<Finished, RunCause> {
    child.interrupt();
    let seconds = PROGRAM_TIMEOUT.as_secs();
    let ended = child.wait(PROGRAM_TIMEOUT)?;
    ended.ok_or_else(|| format!("{name} did not end within {seconds} s of SIGINT").into())
}

/// Frames that NAPI of a veth has taken; with an XDP program each is handed to it.
///
/// Source: the kernel's drivers/net/veth.c, veth_xdp_rcv and veth_get_stats64.
fn arrived_count(end: &End) -> Result<u64, RunCause> {
    let path = format!("class/net/{}/statistics/rx_packets", end.ifname);
    Ok(end.sysfs()?.read(path)?.parse()?)
}

/// A part of a run of `xdp-trafficgen` in which it sent.
pub(super) struct Generated {
    pub(super) interval: Duration,
    /// Frames that arrived in it.
    pub(super) received_count: u64,
    /// CPU time of the program, its start included.
    pub(super) cpu_ns: u64,
}

/// Sends for `trial` from the first arrival on.
///
/// - `arrived`: count of arrivals.
pub(super) fn generate(
    pair: &Pair,
    trial: Duration,
    places: &Placement,
    arrived: impl Fn() -> Result<u64, RunCause>,
) -> Result<Generated, RunCause> {
    let mut command = command(GENERATOR);
    command.args(["udp", "-m", &text(pair.far.mac), "-M", &text(pair.near.mac), &pair.near.ifname]);
    let place = ChildPlace { netns: Some(&pair.near.netns), cpus: &places.near };
    let mut child = Child::spawn(command, &place)?;
    let (begun, first_count) = (Instant::now(), arrived()?);
    while arrived()? == first_count {
        run_generator(&mut child, POLL_INTERVAL)?;
        if begun.elapsed() > PROGRAM_TIMEOUT {
            return Err(
                format!("{GENERATOR} sent nothing within {} s", PROGRAM_TIMEOUT.as_secs()).into()
            );
        }
    }
    let (begun, before) = (Instant::now(), arrived()?);
    run_generator(&mut child, trial)?;
    let received_count = arrived()?.saturating_sub(before);
    let interval = begun.elapsed();
    let usage = end(GENERATOR, child)?.usage;
    Ok(Generated { interval, received_count, cpu_ns: usage.user_ns + usage.system_ns })
}

/// Lets the generator run for a time. Errors: it ended.
fn run_generator(child: &mut Child, time: Duration) -> Result<(), RunCause> {
    match child.wait(time)? {
        None => Ok(()),
        Some(finished) => Err(format!("{GENERATOR}: {}", said(&finished)).into()),
    }
}

/// Version of the program of a peer, read once; `None` for a peer of our own.
pub(super) fn version(peer: &str) -> Option<&'static str> {
    static VERSIONS: [OnceLock<Option<String>>; 2] = [const { OnceLock::new() }; 2];
    let (place, program) = match peer {
        GENERATOR => (0, GENERATOR),
        peer if is_tool(peer) => (1, BENCH),
        _ => return None,
    };
    VERSIONS[place].get_or_init(|| version_of(program, &["--version"])).as_deref()
}

/// True for a peer that is a program of xdp-tools.
pub(super) fn is_tool(peer: &str) -> bool {
    peer == GENERATOR || peer.starts_with(BENCH)
}

fn text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Support for one of these peers, whose program is tried once in a lab.
pub(super) fn support(peer: &str) -> Support {
    static BENCH_SUPPORT: OnceLock<Support> = OnceLock::new();
    static GENERATOR_SUPPORT: OnceLock<Support> = OnceLock::new();
    if peer == GENERATOR {
        GENERATOR_SUPPORT.get_or_init(|| tried_support(GENERATOR, try_generator)).clone()
    } else {
        BENCH_SUPPORT.get_or_init(|| tried_support(BENCH, try_bench)).clone()
    }
}

fn tried_support(program: &str, try_it: impl FnOnce() -> Result<(), RunCause>) -> Support {
    if let Err(why) = Command::new(program).arg("help").output() {
        let what = format!("{program} is not installed ({why})");
        return Support::unsupported(what, "apt-get install xdp-tools");
    }
    match try_it() {
        Ok(()) => Support::Yes,
        Err(why) => Support::unsupported(
            format!("{program} on this kernel"),
            format!("xdp-tools that support it, such as 1.5.4 on Linux 6.12 (Debian 13): {why}"),
        ),
    }
}

fn try_bench() -> Result<(), RunCause> {
    let pair = Pair::new(&PairSpec { gro: true, ..PairSpec::default() })?;
    XdpBench::start(&pair.far, "drop", &[])?.stop()
}

fn try_generator() -> Result<(), RunCause> {
    let mut command = command(GENERATOR);
    command.arg("probe");
    let mut child = Child::spawn(command, &ChildPlace::default())?;
    match child.wait(PROGRAM_TIMEOUT)? {
        Some(finished) if finished.status.success() => Ok(()),
        Some(finished) => Err(said(&finished).into()),
        None => Err(format!("no exit within {} s", PROGRAM_TIMEOUT.as_secs()).into()),
    }
}
