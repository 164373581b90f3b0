//! Follows packets through the stack of the running kernel.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, Typedef};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};

use super::error::BpfError;
use super::object::{Loaded, Opened, embedded, map_error, to_u64};
use crate::capability::{Capability, missing};
use crate::perf::CpuTimer;

/// Interfaces that can be named.
pub const SCOPES_MAX: usize = 16;
/// Buckets of a histogram: eight to a power of two.
pub const BUCKETS: usize = 256;
const POINTS: usize = 16;

/// Where a packet was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// Nowhere before.
    Nowhere,
    /// Given to an interface's queueing discipline.
    Queued,
    /// Given to the driver.
    ToDriver,
    /// In a CPU's backlog, as virtual interfaces do it.
    InBacklog,
    /// Given to GRO by a driver.
    InGro,
    /// Given to the protocols.
    Received,
    /// In its socket, which says so.
    Ready,
    /// Read by the application.
    Read,
    /// Done with.
    Consumed,
    /// Dropped.
    Dropped,
}

impl Point {
    /// As numbered in `explain.bpf.c`.
    const ALL: [Point; 10] = [
        Point::Nowhere,
        Point::Queued,
        Point::ToDriver,
        Point::InBacklog,
        Point::InGro,
        Point::Received,
        Point::Ready,
        Point::Read,
        Point::Consumed,
        Point::Dropped,
    ];
}

/// What is followed: packets that are first seen at an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// Inode number of the network namespace.
    pub netns: u32,
    /// Index of the interface; 0 for any in the namespace.
    pub ifindex: u32,
}

/// Time from one point to the next.
#[derive(Debug, Clone)]
pub struct Stage {
    /// Packets.
    pub count: u64,
    /// Those of them that were timed.
    pub timed_count: u64,
    /// Sum of their times, nanoseconds.
    pub sum_ns: u64,
    /// Longest, nanoseconds.
    pub max_ns: u64,
    /// Timed packets by [`bucket_ns`].
    pub buckets: Vec<u64>,
}

/// A wake-up's key among the stages: nothing goes from one drop to another.
const WAKE_UP: (Point, Point) = (Point::Dropped, Point::Dropped);
/// Nor from one reading to another.
const READ_UNSEEN: (Point, Point) = (Point::Read, Point::Read);

/// All that was seen since loading.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// By (from, to); from [`Point::Nowhere`] are the packets that began to be followed.
    pub stages: BTreeMap<(Point, Point), Stage>,
    /// From a socket's readiness until its reader runs, for readers that slept.
    pub wake_up: Option<Stage>,
    /// Datagrams read of which it was not seen when they came.
    pub read_unseen_count: u64,
    /// Packets whose story ended because another took their slot.
    pub evicted_count: u64,
    /// Drops by reason and by the address of the code that dropped.
    pub drops: BTreeMap<(u32, u64), u64>,
    /// Samples of the CPUs by kernel call chain, innermost first; empty in user space.
    pub samples: Vec<(Vec<u64>, u64)>,
}

/// Runs of programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Runs {
    /// CPU time, nanoseconds.
    pub ns: u64,
    /// Runs.
    pub count: u64,
}

impl Runs {
    /// Those since `earlier`.
    pub fn since(&self, earlier: &Runs) -> Runs {
        Runs { ns: self.ns - earlier.ns, count: self.count - earlier.count }
    }
}

/// What the programs took by the kernel's account, entry and exit of a program not included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunTime {
    /// Those that follow packets.
    pub all: Runs,
    /// One that does nothing: what it takes is the price of counting.
    pub empty: Runs,
}

/// The tracepoint of each program.
const TRACEPOINTS: [(&str, &str); 11] = [
    ("queued", "net_dev_queue"),
    ("to_driver", "net_dev_start_xmit"),
    ("in_backlog", "netif_rx"),
    ("in_gro", "napi_gro_receive_entry"),
    ("received", "netif_receive_skb"),
    ("ready", "sk_data_ready"),
    ("read_length", "sock_recv_length"),
    ("consumed", "consume_skb"),
    ("dropped", "kfree_skb"),
    ("waking", "sched_waking"),
    ("switched", "sched_switch"),
];

/// Programs at the stack's tracepoints; they see packets only between [`Self::start`] and
/// [`Self::stop`], and cost nothing outside.
#[derive(Debug)]
pub struct Explain {
    // Before the object, so that they are taken off first.
    links: Vec<Link>,
    window: u32,
    missing: Vec<String>,
    absent: Vec<(&'static str, &'static str)>,
    samples_per_second: u32,
    loaded: Loaded,
}

impl Explain {
    /// Loads the programs.
    ///
    /// - `scopes`: what is followed; everything on this machine when empty.
    /// - `timed_one_in`: of so many packets one is timed; all are counted.
    /// - `samples_per_second`: how often each CPU is looked at; 0 for never.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_PERFMON; [`BpfError::Invalid`] for more
    /// than [`SCOPES_MAX`] scopes; [`BpfError::Load`] otherwise.
    pub fn load(
        scopes: &[Scope],
        timed_one_in: u32,
        samples_per_second: u32,
    ) -> Result<Self, BpfError> {
        if scopes.len() > SCOPES_MAX {
            return Err(BpfError::Invalid {
                what: format!("{} interfaces named; there can be {SCOPES_MAX}", scopes.len()),
            });
        }
        // struct config of explain.bpf.c.
        let mut config = vec![0; 8 + SCOPES_MAX * 8];
        config[..4].copy_from_slice(&timed_one_in.max(1).to_ne_bytes());
        config[4..8].copy_from_slice(&(scopes.len() as u32).to_ne_bytes());
        for (scope, at) in scopes.iter().zip(config[8..].chunks_exact_mut(8)) {
            at[..4].copy_from_slice(&scope.netns.to_ne_bytes());
            at[4..].copy_from_slice(&scope.ifindex.to_ne_bytes());
        }
        let absent = absent_tracepoints();
        let left_out: Vec<&str> = absent.iter().map(|(program, _)| *program).collect();
        let loaded = Opened::open("explain", embedded!("explain"))?
            .needs(&[Capability::Bpf, Capability::Perfmon])
            .config(&config)?
            .without(&left_out)
            .load()?;
        let say = |(_, tracepoint): &(_, _)| format!("tracepoint {tracepoint}: not in this kernel");
        let (links, missing) = (Vec::new(), absent.iter().map(say).collect());
        Ok(Explain { links, window: 0, missing, absent, samples_per_second, loaded })
    }

    /// Opens a window: from here on packets are followed. Nothing happens when one is open.
    ///
    /// # Errors
    /// [`BpfError::Map`], and [`BpfError::Permission`] when the kernel allows no tracing at all.
    pub fn start(&mut self) -> Result<(), BpfError> {
        if !self.links.is_empty() {
            return Ok(());
        }
        self.window += 1;
        self.loaded
            .map(".bss")?
            .update(&0_u32.to_ne_bytes(), &self.window.to_ne_bytes(), MapFlags::ANY)
            .map_err(|why| map_error(".bss", "written", why))?;
        let mut refused = None;
        let there = TRACEPOINTS.iter().filter(|pair| !self.absent.contains(pair));
        // The ends of a story first: what begins is then seen to its end.
        for (program, tracepoint) in there.rev() {
            match self.loaded.program(program)?.attach_trace() {
                Ok(link) => self.links.push(link),
                Err(why) => {
                    let what = format!("tracepoint {tracepoint}: {why}");
                    if !self.missing.contains(&what) {
                        self.missing.push(what);
                    }
                    refused = Some(why);
                }
            }
        }
        if let (true, Some(why)) = (self.links.is_empty(), refused) {
            let needs = missing(&[Capability::Bpf, Capability::Perfmon]);
            return Err(BpfError::Permission {
                what: "tracing packets".into(),
                missing: needs.unwrap_or_else(|| "leave of the kernel (lockdown?)".into()),
                source: io::Error::other(why),
            });
        }
        self.start_samples()
    }

    fn start_samples(&mut self) -> Result<(), BpfError> {
        if self.samples_per_second == 0 {
            return Ok(());
        }
        let cpus = libbpf_rs::num_possible_cpus().unwrap_or(1);
        for cpu in 0..cpus as u32 {
            let program = self.loaded.program("sample")?;
            let attached = CpuTimer::open(cpu, self.samples_per_second).and_then(|timer| {
                let link = program.attach_perf_event(timer.as_raw_fd());
                // The link has taken the descriptor over.
                link.inspect(|_| timer.give_away()).map_err(io::Error::other)
            });
            match attached {
                Ok(link) => self.links.push(link),
                // A CPU that is off has no timer.
                Err(why) if why.raw_os_error() == Some(libc::ENODEV) => {}
                Err(why) => {
                    let what = format!("samples of what CPUs do: {why}");
                    if !self.missing.contains(&what) {
                        self.missing.push(what);
                    }
                }
            }
        }
        Ok(())
    }

    /// Closes the window; the programs are off their tracepoints afterwards.
    pub fn stop(&mut self) {
        self.links.clear();
    }

    /// What the kernel did not offer so far, each with its answer.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// All that was seen in all windows so far.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn seen(&self) -> Result<Seen, BpfError> {
        let mut seen = Seen { samples: self.samples()?, ..Seen::default() };
        let stages = self.loaded.map("stages")?;
        let points = Point::ALL.iter().enumerate();
        for (number, from) in points.clone() {
            for (to_number, to) in points.clone() {
                let key = (number * POINTS + to_number) as u32;
                let Some(stage) = stage(&stages, key)? else { continue };
                match (*from, *to) {
                    READ_UNSEEN => seen.read_unseen_count = stage.count,
                    WAKE_UP => seen.wake_up = Some(stage),
                    key => drop(seen.stages.insert(key, stage)),
                }
            }
        }
        let [_, _, evicted, _] = super::object::sum_per_cpu::<4>(&self.loaded.map("heres")?)?;
        seen.evicted_count = evicted;
        let drops = self.loaded.map("drops")?;
        for key in drops.keys() {
            let Some(count) = lookup(&drops, &key)? else { continue };
            let reason = key.get(8..12).and_then(|bytes| bytes.try_into().ok());
            let reason = reason.map(u32::from_ne_bytes).unwrap_or_default();
            seen.drops.insert((reason, to_u64(&key[..8])), to_u64(&count));
        }
        Ok(seen)
    }

    fn samples(&self) -> Result<Vec<(Vec<u64>, u64)>, BpfError> {
        let (samples, stacks) = (self.loaded.map("samples")?, self.loaded.map("stacks")?);
        let mut all = Vec::new();
        for key in samples.keys() {
            let Some(count) = lookup(&samples, &key)? else { continue };
            let chain = match lookup(&stacks, &key) {
                Ok(Some(chain)) => {
                    chain.chunks_exact(8).map(to_u64).take_while(|at| *at != 0).collect()
                }
                // -1: no kernel stack.
                _ => Vec::new(),
            };
            all.push((chain, to_u64(&count)));
        }
        Ok(all)
    }

    /// A run of an empty program, counted as the others are, from here on: see [`RunTime::empty`].
    ///
    /// # Errors
    /// [`BpfError::Map`] when the kernel does not attach it.
    pub fn attach_empty(&mut self) -> Result<EmptyRuns, BpfError> {
        let attached = self.loaded.program("empty")?.attach_trace();
        attached.map(EmptyRuns).map_err(|why| map_error("empty", "attached", why))
    }

    /// What the programs took while the kernel counted it: see [`RunTimeCounting`].
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn run_time(&self) -> Result<RunTime, BpfError> {
        let mut sum = RunTime { empty: self.runs_of("empty")?, ..RunTime::default() };
        for (name, _) in TRACEPOINTS.iter().filter(|pair| !self.absent.contains(pair)) {
            let runs = self.runs_of(name)?;
            sum.all.ns += runs.ns;
            sum.all.count += runs.count;
        }
        Ok(sum)
    }

    fn runs_of(&self, name: &str) -> Result<Runs, BpfError> {
        let program = self.loaded.program(name)?;
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut len = size_of_val(&info) as u32;
        let fd = program.as_fd().as_raw_fd();
        // SAFETY: the descriptor is open; `info` may be written, and `len` says how far.
        let rc =
            unsafe { libbpf_sys::bpf_obj_get_info_by_fd(fd, (&raw mut info).cast(), &mut len) };
        if rc != 0 {
            let source = io::Error::last_os_error();
            return Err(BpfError::Map { map: name.into(), what: "asked for its cost", source });
        }
        Ok(Runs { ns: info.run_time_ns, count: info.run_cnt })
    }
}

/// Has an empty program run beside the others, as long as it lives.
#[derive(Debug)]
pub struct EmptyRuns(#[expect(dead_code, reason = "attached until it is dropped")] Link);

/// Has the kernel count the run time of all BPF programs of this machine, as long as it lives.
///
/// That has a price of its own: two looks at the clock a run, which are not in the count.
#[derive(Debug)]
pub struct RunTimeCounting(#[expect(dead_code, reason = "counts until it is closed")] OwnedFd);

impl RunTimeCounting {
    /// Starts counting.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN.
    pub fn start() -> io::Result<RunTimeCounting> {
        // SAFETY: no pointer is passed.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given it to us.
        Ok(RunTimeCounting(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

/// Lowest time of a bucket, nanoseconds.
pub fn bucket_ns(bucket: usize) -> u64 {
    match bucket {
        0..8 => bucket as u64,
        _ => {
            let power = bucket / 8 + 2;
            (8 + bucket as u64 % 8) << (power - 3)
        }
    }
}

/// Names of the running kernel's reasons for a drop, by number, without their common beginning;
/// empty where the kernel does not tell them.
///
/// Source: `enum skb_drop_reason` of the kernel's type information.
pub fn drop_reasons() -> BTreeMap<u32, String> {
    let Ok(btf) = Btf::from_vmlinux() else { return BTreeMap::new() };
    let Some(reasons) = btf.type_by_name::<Enum<'_>>("skb_drop_reason") else {
        return BTreeMap::new();
    };
    let named = reasons.iter().filter_map(|member| {
        let name = member.name?.to_str()?;
        let name = name.strip_prefix("SKB_DROP_REASON_").unwrap_or(name);
        Some((u32::try_from(member.value).ok()?, name.to_owned()))
    });
    named.collect()
}

/// Programs whose tracepoint the running kernel does not have, with that.
///
/// Source: a tracepoint's type is `btf_trace_NAME` in the kernel's type information.
fn absent_tracepoints() -> Vec<(&'static str, &'static str)> {
    // Without type information loading fails, and says so.
    let Ok(btf) = Btf::from_vmlinux() else { return Vec::new() };
    let is_there = |tracepoint: &str| {
        btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{tracepoint}")).is_some()
    };
    TRACEPOINTS.into_iter().filter(|(_, tracepoint)| !is_there(tracepoint)).collect()
}

fn lookup(map: &MapHandle, key: &[u8]) -> Result<Option<Vec<u8>>, BpfError> {
    map.lookup(key, MapFlags::ANY)
        .map_err(|why| map_error(&map.name().to_string_lossy(), "read", why))
}

/// A stage's sums over the CPUs; `None` when nothing went through it.
fn stage(map: &MapHandle, key: u32) -> Result<Option<Stage>, BpfError> {
    let per_cpu = map
        .lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY)
        .map_err(|why| map_error("stages", "read", why))?
        .unwrap_or_default();
    let mut sum =
        Stage { count: 0, timed_count: 0, sum_ns: 0, max_ns: 0, buckets: vec![0; BUCKETS] };
    for bytes in &per_cpu {
        // struct stage of explain.bpf.c.
        let Some((words, buckets)) = bytes.split_at_checked(32) else { continue };
        sum.count += to_u64(&words[..8]);
        sum.timed_count += to_u64(&words[8..16]);
        sum.sum_ns += to_u64(&words[16..24]);
        sum.max_ns = sum.max_ns.max(to_u64(&words[24..]));
        for (sum, bytes) in sum.buckets.iter_mut().zip(buckets.chunks_exact(4)) {
            *sum += bytes.try_into().map(u32::from_ne_bytes).map_or(0, u64::from);
        }
    }
    Ok((sum.count > 0).then_some(sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_go_up_without_a_gap_and_eight_to_a_power_of_two() {
        assert_eq!([0, 7, 8, 15, 16, 24].map(bucket_ns), [0, 7, 8, 15, 16, 32]);
        let starts: Vec<u64> = (0..BUCKETS).map(bucket_ns).collect();
        assert!(starts.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(starts[BUCKETS - 1] > 10_000_000_000, "ten seconds fit");
    }

    #[test]
    fn the_running_kernel_names_its_reasons() {
        let reasons = drop_reasons();
        assert!(
            reasons.is_empty() || reasons.values().any(|name| name == "NO_SOCKET"),
            "{reasons:?}"
        );
    }
}
