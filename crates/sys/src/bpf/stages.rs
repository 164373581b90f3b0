//! Times of the packets that some processes receive: driver to socket, and socket to read.

use std::sync::OnceLock;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Struct;
use libbpf_rs::{Link, MapCore, MapFlags};

use super::error::BpfError;
use super::object::{Loaded, Opened, embedded, map_error, per_cpu, shared_types};
use super::tracing::{EmptyRuns, MissingTracepoint, RunTime, Tracepoints};
use crate::capability::Capability;

mod types {
    super::shared_types!("stages");
}

/// Buckets of a histogram: 32 to a power of two, up to 135 seconds.
pub const BUCKETS: usize = 1056;

/// Most process ids of [`Narrow::Processes`], their descendants included.
pub const PROCESSES_MAX: usize = 16_384;

/// Packets that are traced, by the socket that receives them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Narrow {
    /// Sockets that a process of this cgroup (version 2), or of one below it, created. The id is
    /// the inode number of the cgroup's folder.
    Cgroup(u64),
    /// Sockets that one of these processes reads, or a child that it starts later. The ids are
    /// those of the initial process namespace.
    Processes(Vec<u32>),
}

/// Counts since the programs were attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageCounts {
    /// Packets read.
    pub packets: u64,
    /// Packets that lack a time.
    pub dropped: u64,
    /// Children that did not fit into the list of processes.
    pub processes_missed: u64,
    /// Packets by the time from the driver to the socket; see [`bucket_ns`].
    pub driver: Vec<u64>,
    /// Packets by the time from the socket to the read.
    pub socket: Vec<u64>,
}

/// The tracepoint of each program, in the order in which a packet passes them.
const TRACEPOINTS: [(&str, &str); 8] = [
    ("in_backlog", "netif_rx"),
    ("in_gro", "napi_gro_receive_entry"),
    ("in_gro_frags", "napi_gro_frags_entry"),
    ("received", "netif_receive_skb"),
    ("established", "tcp_probe"),
    ("ready", "sk_data_ready"),
    ("read_length", "sock_recv_length"),
    ("forked", "sched_process_fork"),
];

/// Attached programs, which end with this or with the process.
#[derive(Debug)]
pub struct StagePrograms {
    // Before the object, so that they are detached first.
    links: Vec<Link>,
    missing: Vec<MissingTracepoint>,
    tracepoints: Tracepoints,
    loaded: Loaded,
}

impl StagePrograms {
    /// Loads and attaches the programs.
    ///
    /// - `netns`: inode number of the network namespace of both interfaces and sockets.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_PERFMON; [`BpfError::Invalid`] for no cgroup
    /// or process, or more than [`PROCESSES_MAX`]; [`BpfError::Load`] otherwise.
    pub fn attach(netns: u32, narrow: &Narrow) -> Result<StagePrograms, BpfError> {
        let (cgroup_id, processes) = match narrow {
            Narrow::Cgroup(id) => (*id, &[][..]),
            Narrow::Processes(ids) => (0, &ids[..]),
        };
        if cgroup_id == 0 && !(1..=PROCESSES_MAX).contains(&processes.len()) {
            let count = processes.len();
            let what =
                format!("{count} processes to trace; give 1 to {PROCESSES_MAX}, or a cgroup");
            return Err(BpfError::Invalid { what });
        }
        let config = types::config { cgroup_id, netns, pad: 0 };
        let used = TRACEPOINTS.iter().filter(|(program, _)| *program != FORKED || cgroup_id == 0);
        let absent = missing_tracepoints().unwrap_or_default();
        let tracepoints = Tracepoints::without(&used.copied().collect::<Vec<_>>(), |name: &str| {
            absent.iter().any(|missing| missing.name == name)
        });
        let mut left_out = tracepoints.absent_programs();
        left_out.extend((cgroup_id != 0).then_some(FORKED));
        let loaded = Opened::open("stages", embedded!("stages"))?
            .needs(&[Capability::Bpf, Capability::Perfmon])
            .config(&config)?
            .without(&left_out)
            .load()?;
        let map = loaded.handle("processes")?;
        for id in processes {
            map.update(&id.to_ne_bytes(), &1_u32.to_ne_bytes(), MapFlags::ANY)
                .map_err(|why| map_error("processes", "written", why))?;
        }
        let (links, refused) = tracepoints.attach(&loaded)?;
        let missing = tracepoints.missing().into_iter().chain(refused).collect();
        Ok(StagePrograms { links, missing, tracepoints, loaded })
    }

    /// Detaches the programs; their counts stay.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    /// Tracepoints that are not used, each with the reason.
    pub fn missing(&self) -> &[MissingTracepoint] {
        &self.missing
    }

    /// Counts so far, over all CPUs.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn counts(&self) -> Result<StageCounts, BpfError> {
        let mut sum = StageCounts {
            packets: 0,
            dropped: 0,
            processes_missed: 0,
            driver: vec![0; BUCKETS],
            socket: vec![0; BUCKETS],
        };
        for cpu in per_cpu::<types::counts>(&self.loaded.handle("counts")?, 0)? {
            sum.packets += cpu.packets;
            sum.dropped += cpu.dropped;
            sum.processes_missed += cpu.processes_missed;
            sum.driver.iter_mut().zip(cpu.driver).for_each(|(sum, count)| *sum += count);
            sum.socket.iter_mut().zip(cpu.socket).for_each(|(sum, count)| *sum += count);
        }
        Ok(sum)
    }

    /// Attaches the empty program, whose run time is the cost of counting run time.
    ///
    /// # Errors
    /// [`BpfError::Map`] if the kernel does not attach it.
    pub fn attach_empty(&self) -> Result<EmptyRuns, BpfError> {
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

const FORKED: &str = "forked";

/// Tracepoints that the running kernel lacks, of those that the programs use.
///
/// Returns `None` if the kernel has no type information (BTF), without which none is usable.
pub fn missing_tracepoints() -> Option<Vec<MissingTracepoint>> {
    kernel().as_ref().map(|kernel| kernel.missing.clone())
}

/// True if sockets of the running kernel refer to the cgroup of their creator.
pub fn sockets_have_cgroups() -> bool {
    kernel().as_ref().is_some_and(|kernel| kernel.sockets_have_cgroups)
}

/// Facts of the kernel's type information.
struct Kernel {
    missing: Vec<MissingTracepoint>,
    /// Source: `struct sock_cgroup_data`, which has no member without CONFIG_SOCK_CGROUP_DATA.
    sockets_have_cgroups: bool,
}

/// Reads the facts once: each traced trial needs them, and reading takes longer than 10 ms.
fn kernel() -> &'static Option<Kernel> {
    static KERNEL: OnceLock<Option<Kernel>> = OnceLock::new();
    KERNEL.get_or_init(|| {
        let btf = Btf::from_vmlinux().ok()?;
        let data = btf.type_by_name::<Struct<'_>>("sock_cgroup_data");
        let sockets_have_cgroups = data.is_some_and(|data| {
            data.iter().any(|member| member.name.is_some_and(|name| name == "cgroup"))
        });
        let missing = Tracepoints::of_this_kernel(&TRACEPOINTS).missing();
        Some(Kernel { missing, sockets_have_cgroups })
    })
}

/// Lowest and highest time of a bucket, nanoseconds. The last one also has all longer times.
pub fn bucket_ns(bucket: usize) -> (u64, u64) {
    let bucket = bucket as u64;
    let power = (bucket / 32).saturating_sub(1);
    let low = (bucket - power * 32) << power;
    (low, low + (1 << power) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_meet_without_a_gap_and_are_a_32nd_wide_at_most() {
        assert_eq!(
            [0, 31, 32, 63, 64, 65].map(bucket_ns).map(|(low, _)| low),
            [0, 31, 32, 63, 64, 66]
        );
        for bucket in 1..BUCKETS {
            let ((_, before), (low, high)) = (bucket_ns(bucket - 1), bucket_ns(bucket));
            assert_eq!(low, before + 1, "{bucket}");
            assert!((high - low) * 32 <= low.max(32), "{bucket}: {low} to {high}");
        }
        assert_eq!(bucket_ns(BUCKETS - 1).1, (1 << 37) - 1);
    }

    #[test]
    fn neither_a_cgroup_nor_a_process_is_an_error() {
        for narrow in [Narrow::Cgroup(0), Narrow::Processes(Vec::new())] {
            let error = StagePrograms::attach(1, &narrow).unwrap_err();
            assert!(matches!(error, BpfError::Invalid { .. }), "{error}");
        }
    }
}
