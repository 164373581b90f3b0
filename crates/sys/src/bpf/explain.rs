//! Traces packets through the stack of the running kernel.

use std::collections::BTreeMap;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};

use super::error::BpfError;
use super::explain_drops::{self, Drops};
use super::interruptions::RING_BYTES_MIN;
use super::object::{Loaded, Opened, embedded, map_error, per_cpu, shared_types, write_single};
use super::samples::{self, Samples};
use super::slices::{SliceRing, TimedStage};
use super::tracing::{EmptyRuns, RunTime, Tracepoints};
use crate::capability::Capability;

pub(super) mod types {
    super::shared_types!("explain");
}

/// Most interfaces that can be traced by name.
pub const SCOPES_MAX: usize = 16;
/// Buckets of a histogram: eight to a power of two.
pub const BUCKETS: usize = 256;
pub(super) const POINTS: usize = 16;
/// Ring buffer of the slices: 40 bytes each, read every 50 ms.
const SLICES_BYTES: u32 = 1 << 22;

/// Tracepoint at which a packet was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    Nowhere,
    /// Enqueued in an interface's queueing discipline.
    Queued,
    /// Given to the driver.
    ToDriver,
    /// As [`Point::ToDriver`], of a tunnel's device, which wraps the packet then.
    ToTunnel,
    /// In a CPU's backlog (virtual interfaces).
    InBacklog,
    /// Given to GRO by a driver.
    InGro,
    /// Given to the protocols.
    Received,
    /// As [`Point::Received`], of a packet that a tunnel's device unwraps then.
    FromTunnel,
    /// With its TCP connection, which frees acknowledgements without a tracepoint.
    InTcp,
    /// In the socket's queue, after `sk_data_ready`.
    Ready,
    Read,
    Consumed,
    Dropped,
}

impl Point {
    /// As numbered in `explain.bpf.c`.
    pub(super) const ALL: [Point; 13] = [
        Point::Nowhere,
        Point::Queued,
        Point::ToDriver,
        Point::ToTunnel,
        Point::InBacklog,
        Point::InGro,
        Point::Received,
        Point::FromTunnel,
        Point::InTcp,
        Point::Ready,
        Point::Read,
        Point::Consumed,
        Point::Dropped,
    ];
}

/// Traced packets: those first seen at this interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceScope {
    /// Inode number of the network namespace.
    pub netns: u32,
    /// Index of the interface; 0 for any in the namespace.
    pub ifindex: u32,
}

/// Property of the sockets of one service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceBy {
    /// Local port.
    Port(u16),
    /// The control group (version 2) of the process that created it, or one above it: the inode number of
    /// its folder.
    Cgroup(u64),
    /// Inode, as in [`Explain::add_sockets`].
    Inode,
}

impl ServiceBy {
    /// Number, port and cgroup in `explain.bpf.c`.
    fn numbers(self) -> (u32, u32, u64) {
        match self {
            ServiceBy::Port(port) => (1, port.into(), 0),
            ServiceBy::Cgroup(id) => (2, 0, id),
            ServiceBy::Inode => (3, 0, 0),
        }
    }
}

/// Time from one point to the next.
#[derive(Debug, Clone)]
pub struct Stage {
    pub count: u64,
    /// Timed packets.
    pub timed_count: u64,
    /// Sum of their times, nanoseconds.
    pub sum_ns: u64,
    /// Longest, nanoseconds.
    pub max_ns: u64,
    /// Place of the packet that took `max_ns`; all zero if it was not seen.
    pub longest: StagePlace,
    /// Timed packets by [`bucket_ns`].
    pub buckets: Vec<u64>,
}

/// Place of a packet at the end of a stage, and its flow. Zero is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StagePlace {
    /// Inode number of the network namespace.
    pub netns: u32,
    pub ifindex: u32,
    /// Process that read it.
    pub pid: u32,
    /// IP protocol.
    pub protocol: u8,
    pub from_port: u16,
    pub to_port: u16,
}

impl Stage {
    fn empty() -> Stage {
        Stage {
            count: 0,
            timed_count: 0,
            sum_ns: 0,
            max_ns: 0,
            longest: StagePlace::default(),
            buckets: vec![0; BUCKETS],
        }
    }
}

/// Key of wake-ups among the stages: no packet goes from one drop to another.
pub const WAKE_UP: (Point, Point) = (Point::Dropped, Point::Dropped);
/// Key of reads without arrival: no packet goes from one read to another.
const READ_UNSEEN: (Point, Point) = (Point::Read, Point::Read);

/// Results since loading.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// By (from, to); from [`Point::Nowhere`] for packets seen for the first time.
    pub stages: BTreeMap<(Point, Point), Stage>,
    /// Time from a socket's readiness until its sleeping reader runs.
    pub wake_up: Option<Stage>,
    /// Datagrams read whose arrival was not seen.
    pub read_unseen_count: u64,
    /// Packets whose end was not seen when another took their slot or their memory; of a service,
    /// packets that came to their socket by a way that was not seen.
    pub evicted_count: u64,
    /// Datagrams that were put into sockets and not read while packets were traced.
    pub unread_count: u64,
    /// Slices that found the ring buffer full.
    pub slices_lost_count: u64,
    /// Drops by kind and place.
    pub drops: Vec<Drops>,
    /// Drops that found no room in the table of kinds.
    pub drops_lost_count: u64,
    pub samples: Samples,
}

impl Seen {
    /// Adds packets of a service that came to their socket, to the stages that each of them passed.
    ///
    /// - `entry`: where a driver gave them to the stack; [`Point::Nowhere`] if that was not seen.
    fn add_arrived(&mut self, entry: Point, count: u64) {
        if count == 0 {
            return;
        }
        let passed = match entry {
            Point::Nowhere => vec![Point::Nowhere, Point::Received, Point::Ready],
            entry => vec![Point::Nowhere, entry, Point::Received, Point::Ready],
        };
        for pair in passed.windows(2) {
            self.stages.entry((pair[0], pair[1])).or_insert_with(Stage::empty).count += count;
        }
    }
}

/// The tracepoint of each program.
const TRACEPOINTS: [(&str, &str); 13] = [
    ("queued", "net_dev_queue"),
    ("to_driver", "net_dev_start_xmit"),
    ("in_backlog", "netif_rx"),
    ("in_gro", "napi_gro_receive_entry"),
    ("in_gro_frags", "napi_gro_frags_entry"),
    ("received", "netif_receive_skb"),
    ("segment", "tcp_probe"),
    ("ready", "sk_data_ready"),
    ("read_length", "sock_recv_length"),
    ("consumed", "consume_skb"),
    ("dropped", "kfree_skb"),
    ("waking", "sched_waking"),
    ("switched", "sched_switch"),
];

/// Programs at what a machine sends: a service is followed from the driver that receives.
const OF_SENDING: [&str; 2] = ["queued", "to_driver"];

/// Tracepoints without which the packets of a service are not known.
const OF_SERVICE: [&str; 3] = ["netif_receive_skb", "sk_data_ready", "sock_recv_length"];

/// Programs at the stack's tracepoints, attached only between [`Self::start`] and
/// [`Self::stop`]; they cost nothing otherwise.
#[derive(Debug)]
pub struct Explain {
    // Before the object, so that they are detached first.
    links: Vec<Link>,
    window: u32,
    missing: Vec<String>,
    tracepoints: Tracepoints,
    samples_per_second: u32,
    slices: Option<SliceRing>,
    loaded: Loaded,
}

fn set_key(map: &MapHandle, key: &[u8]) -> Result<(), BpfError> {
    map.update(key, &1u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|why| map_error(&map.name().to_string_lossy(), "written", why))
}

impl Explain {
    /// Loads the programs.
    ///
    /// - `scopes`: traced interfaces; all of this machine if empty.
    /// - `timed_one_in`: one packet in this many is timed; all are counted.
    /// - `samples_per_second`: samples of each CPU; 0 disables sampling.
    /// - `service`: only packets of these sockets, which must be in a namespace of `scopes`, from the
    ///   driver that receives them to the read.
    /// - `slices`: each time that is added to a stage is also reported by [`Self::drain`].
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_PERFMON; [`BpfError::Invalid`] for more
    /// than [`SCOPES_MAX`] scopes; [`BpfError::Unsupported`] for a service on a kernel without its
    /// tracepoints; [`BpfError::Load`] otherwise.
    pub fn load(
        scopes: &[TraceScope],
        service: Option<ServiceBy>,
        timed_one_in: u32,
        samples_per_second: u32,
        slices: bool,
    ) -> Result<Self, BpfError> {
        if scopes.len() > SCOPES_MAX {
            return Err(BpfError::Invalid {
                what: format!("{} interfaces named; there can be {SCOPES_MAX}", scopes.len()),
            });
        }
        let (service_number, port, cgroup_id) = service.map_or((0, 0, 0), ServiceBy::numbers);
        let mut config = types::config {
            service: service_number,
            port,
            cgroup_id,
            timed_one_in: timed_one_in.max(1),
            scopes_count: scopes.len() as u32,
            scopes: [types::scope { netns: 0, ifindex: 0 }; SCOPES_MAX],
            slices: slices.into(),
            has_refuser: explain_drops::is_refuser_passed().into(),
        };
        for (to, scope) in config.scopes.iter_mut().zip(scopes) {
            *to = types::scope { netns: scope.netns, ifindex: scope.ifindex };
        }
        let unused: &[&str] = if service.is_some() { &OF_SENDING } else { &[] };
        let used: Vec<_> =
            TRACEPOINTS.into_iter().filter(|(program, _)| !unused.contains(program)).collect();
        let tracepoints = Tracepoints::of_this_kernel(&used);
        let absent = tracepoints.missing();
        if let Some(absent) = absent.iter().find(|one| OF_SERVICE.contains(&one.name))
            && service.is_some()
        {
            let tracepoint = absent.to_string();
            return Err(BpfError::Unsupported { what: "packets of one service", tracepoint });
        }
        let loaded = Opened::open("explain", embedded!("explain"))?
            .needs(&[Capability::Bpf, Capability::Perfmon])
            .config(&config)?
            .without(&[unused, &tracepoints.absent_programs()].concat())
            .map_entries("slices", if slices { SLICES_BYTES } else { RING_BYTES_MIN })?
            .load()?;
        let slices = if slices { Some(SliceRing::over(&loaded.handle("slices")?)?) } else { None };
        let missing = absent.iter().map(ToString::to_string).collect();
        let links = Vec::new();
        Ok(Explain { links, window: 0, missing, tracepoints, samples_per_second, slices, loaded })
    }

    /// Opens a window in which packets are traced; does nothing if one is open.
    ///
    /// # Errors
    /// [`BpfError::Map`]; [`BpfError::Permission`] if the kernel allows no tracing.
    pub fn start(&mut self) -> Result<(), BpfError> {
        if !self.links.is_empty() {
            return Ok(());
        }
        self.window += 1;
        write_single(&self.loaded.handle(".bss")?, &self.window)?;
        let (links, refused) = self.tracepoints.attach(&self.loaded)?;
        self.links = links;
        for what in refused.iter().map(ToString::to_string) {
            if !self.missing.contains(&what) {
                self.missing.push(what);
            }
        }
        self.links.extend(samples::start(
            &self.loaded,
            self.samples_per_second,
            &mut self.missing,
        )?);
        Ok(())
    }

    /// Adds sockets of the service, and ports to which packets that are dropped were sent.
    ///
    /// - `inodes`: as in `socket:[INODE]` under `/proc/PID/fd`.
    /// - `ports`: IP protocol and local port.
    ///
    /// # Errors
    /// [`BpfError::Map`], for example if there are more than 65,536 sockets.
    pub fn add_sockets(
        &self,
        inodes: impl IntoIterator<Item = u64>,
        ports: impl IntoIterator<Item = (u8, u16)>,
    ) -> Result<(), BpfError> {
        let map = self.loaded.handle("inodes")?;
        inodes.into_iter().try_for_each(|inode| set_key(&map, &inode.to_ne_bytes()))?;
        let map = self.loaded.handle("ports")?;
        let keys =
            ports.into_iter().map(|(protocol, port)| u32::from(protocol) << 16 | u32::from(port));
        keys.map(u32::to_ne_bytes).try_for_each(|key| set_key(&map, &key))
    }

    /// Closes the window and detaches the programs.
    pub fn stop(&mut self) {
        self.links.clear();
    }

    /// Features that the kernel did not offer so far, each with its error.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Appends the slices since the last call. Makes no system call.
    pub fn drain(&mut self, into: &mut Vec<TimedStage>) {
        if let Some(slices) = &mut self.slices {
            slices.drain(into);
        }
    }

    /// Results of all windows so far.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn seen(&self) -> Result<Seen, BpfError> {
        let mut seen = Seen { samples: samples::read(&self.loaded)?, ..Seen::default() };
        let stages = self.loaded.handle("stages")?;
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
        let heres: Vec<types::here> = per_cpu(&self.loaded.handle("heres")?, 0)?;
        for (number, point) in points {
            seen.add_arrived(*point, heres.iter().map(|here| here.arrived[number]).sum());
        }
        seen.evicted_count = heres.iter().map(|here| here.unfinished).sum();
        let put_count: u64 = heres.iter().map(|here| here.put).sum();
        let taken_count: u64 = heres.iter().map(|here| here.taken).sum();
        seen.unread_count = put_count.saturating_sub(taken_count);
        seen.slices_lost_count = heres.iter().map(|here| here.slices_lost).sum();
        seen.drops_lost_count = heres.iter().map(|here| here.drops_lost).sum();
        let stacks = self.loaded.handle("stacks")?;
        for table in ["drops", "drops_of_all_ports"] {
            seen.drops.extend(explain_drops::read(&self.loaded.handle(table)?, &stacks)?);
        }
        Ok(seen)
    }

    /// Attaches the empty program, whose runs are counted like the others: see [`RunTime::empty`].
    ///
    /// # Errors
    /// [`BpfError::Map`] if the kernel does not attach it.
    pub fn attach_empty(&mut self) -> Result<EmptyRuns, BpfError> {
        EmptyRuns::attach(&self.loaded)
    }

    /// Run time of the programs while [`super::RunTimeCounting`] was on.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn run_time(&self) -> Result<RunTime, BpfError> {
        self.tracepoints.run_time(&self.loaded)
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

fn place(place: &types::place) -> StagePlace {
    StagePlace {
        netns: place.netns,
        ifindex: place.ifindex,
        pid: place.pid,
        protocol: place.protocol as u8,
        from_port: place.from_port,
        to_port: place.to_port,
    }
}

/// Sums of a stage over the CPUs; `None` if no packet went through it.
fn stage(map: &MapHandle, key: u32) -> Result<Option<Stage>, BpfError> {
    let mut sum = Stage::empty();
    for cpu in per_cpu::<types::stage>(map, key)? {
        sum.count += cpu.count;
        sum.timed_count += cpu.timed;
        sum.sum_ns += cpu.sum_ns;
        if cpu.max_ns > sum.max_ns {
            sum.max_ns = cpu.max_ns;
            sum.longest = place(&cpu.longest);
        }
        for (sum, count) in sum.buckets.iter_mut().zip(cpu.buckets) {
            *sum += u64::from(count);
        }
    }
    Ok((sum.count > 0 || sum.timed_count > 0).then_some(sum))
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
}
