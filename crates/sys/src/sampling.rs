//! Samples of what CPUs execute, with the mappings of the processes that they belong to.
//!
//! The events are of CPUs and not of control groups: an event of a group is switched with each change to a task of another
//! group, which doubles the price of a round trip between two of them. A sample carries its group's id instead.
//!
//! Source: perf_event_open(2); include/uapi/linux/perf_event.h.

use std::io;

use crate::perf::{CLOSE_ON_EXEC, perf_event_open};
use crate::perf_ring::{PerfRecord, PerfRing, records};

/// Bytes of each CPU's ring: 20 s of samples, or the mappings of two thousand processes, fit in.
const RING_BYTES: usize = 256 << 10;

/// Longest record: its size has 16 bits.
const RECORD_BYTES_MAX: u64 = 1 << 16;

/// Event on a CPU. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuRecord {
    Sample(CodeSample),
    /// A process mapped code.
    Mapped {
        pid: u32,
        mapping: CodeMapping,
    },
    Forked {
        pid: u32,
        parent: u32,
    },
    /// A process executes another program: its mappings are gone.
    Executed {
        pid: u32,
    },
}

/// A CPU was here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeSample {
    pub pid: u32,
    pub address: u64,
    pub is_kernel: bool,
    /// Control group of version 2, as its folder's inode.
    pub group: u64,
}

/// Part of a file, or of no file, that a process may execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeMapping {
    pub start: u64,
    pub len_bytes: u64,
    /// Of its first byte in the file.
    pub offset_bytes: u64,
    pub inode: u64,
    /// Path as the process sees it; `[vdso]` or `//anon` of no file.
    pub path: Vec<u8>,
}

/// Samples of CPUs in rings that the kernel fills.
#[derive(Debug)]
pub struct CpuSampler {
    rings: Vec<PerfRing>,
    lost_count: u64,
}

impl CpuSampler {
    /// Opens a timer on each CPU, which takes a sample whenever a task was found running. It does not run yet.
    ///
    /// - `interval_ns`: between two samples of a CPU.
    ///
    /// Errors: EACCES without CAP_PERFMON, EINVAL before Linux 5.7, ENODEV for a CPU that is offline.
    pub fn open(cpus: &[usize], interval_ns: u64) -> io::Result<CpuSampler> {
        let mut attributes = libbpf_sys::perf_event_attr {
            type_: libbpf_sys::PERF_TYPE_SOFTWARE,
            size: size_of::<libbpf_sys::perf_event_attr>() as u32,
            config: u64::from(libbpf_sys::PERF_COUNT_SW_CPU_CLOCK),
            sample_type: u64::from(
                libbpf_sys::PERF_SAMPLE_IP
                    | libbpf_sys::PERF_SAMPLE_TID
                    | libbpf_sys::PERF_SAMPLE_TIME
                    | libbpf_sys::PERF_SAMPLE_CGROUP,
            ),
            clockid: libc::CLOCK_MONOTONIC,
            ..Default::default()
        };
        attributes.__bindgen_anon_1.sample_period = interval_ns;
        // The rings are polled: a notification would cost the sampled CPUs more than the sample.
        attributes.__bindgen_anon_2.wakeup_watermark = u32::MAX;
        attributes.set_watermark(1);
        attributes.set_disabled(1);
        attributes.set_exclude_idle(1);
        attributes.set_exclude_hv(1);
        attributes.set_use_clockid(1);
        attributes.set_sample_id_all(1);
        attributes.set_mmap(1);
        attributes.set_mmap2(1);
        attributes.set_comm(1);
        attributes.set_comm_exec(1);
        attributes.set_task(1);
        let rings = cpus.iter().map(|cpu| {
            let event = perf_event_open(&attributes, -1, *cpu as libc::c_int, CLOSE_ON_EXEC)?;
            PerfRing::map(event, RING_BYTES)
        });
        Ok(CpuSampler { rings: rings.collect::<io::Result<_>>()?, lost_count: 0 })
    }

    pub fn enable(&self) -> io::Result<()> {
        self.rings.iter().try_for_each(PerfRing::enable)
    }

    pub fn disable(&self) -> io::Result<()> {
        self.rings.iter().try_for_each(PerfRing::disable)
    }

    /// Takes what the rings hold. Records of one CPU come in the order of their times.
    pub fn take(&mut self, mut each: impl FnMut(u64, CpuRecord)) {
        for ring in &mut self.rings {
            let bytes = ring.take();
            self.lost_count += parse(&bytes, &mut each);
        }
    }

    /// Records for which the rings had no room.
    pub fn lost_count(&self) -> u64 {
        self.lost_count
    }
}

/// Bytes of a record from its start on.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*bytes))
    }
}

/// Passes on the records of a ring, with their times; returns the number of those that were lost.
fn parse(bytes: &[u8], each: &mut impl FnMut(u64, CpuRecord)) -> u64 {
    let mut lost_count = 0_u64;
    for PerfRecord { kind, misc, body } in records(bytes) {
        if kind == libbpf_sys::PERF_RECORD_LOST {
            lost_count = lost_count.saturating_add(lost(body).unwrap_or(0));
        } else if let Some((at_ns, record)) = record(kind, misc, body) {
            each(at_ns, record);
        }
    }
    lost_count
}

fn lost(body: &[u8]) -> Option<u64> {
    let mut fields = Fields(body);
    let _id = fields.u64()?;
    fields.u64()
}

fn record(kind: u32, misc: u16, body: &[u8]) -> Option<(u64, CpuRecord)> {
    let mut fields = Fields(body);
    if kind == libbpf_sys::PERF_RECORD_SAMPLE {
        let address = fields.u64()?;
        let (pid, _tid) = (fields.u32()?, fields.u32()?);
        let at_ns = fields.u64()?;
        let group = fields.u64()?;
        let mode = u32::from(misc) & libbpf_sys::PERF_RECORD_MISC_CPUMODE_MASK;
        let is_kernel = mode == libbpf_sys::PERF_RECORD_MISC_KERNEL;
        return Some((at_ns, CpuRecord::Sample(CodeSample { pid, address, is_kernel, group })));
    }
    // Process, thread and time stand at the end of all other records.
    const TRAILER_BYTES: usize = 16;
    let (body, trailer) = body.split_at_checked(body.len().checked_sub(TRAILER_BYTES)?)?;
    let at_ns = Fields(&trailer[8..]).u64()?;
    let mut fields = Fields(body);
    let pid = fields.u32()?;
    let record = match kind {
        libbpf_sys::PERF_RECORD_FORK => {
            let parent = fields.u32()?;
            // A thread has the mappings of its process.
            (pid != parent).then_some(CpuRecord::Forked { pid, parent })?
        }
        libbpf_sys::PERF_RECORD_COMM => {
            let is_exec = u32::from(misc) & libbpf_sys::PERF_RECORD_MISC_COMM_EXEC != 0;
            is_exec.then_some(CpuRecord::Executed { pid })?
        }
        libbpf_sys::PERF_RECORD_MMAP2 => {
            let _tid = fields.u32()?;
            let (start, len_bytes, offset_bytes) = (fields.u64()?, fields.u64()?, fields.u64()?);
            let _device = (fields.u32()?, fields.u32()?);
            let inode = fields.u64()?;
            let _generation = fields.u64()?;
            let _protection_and_flags = (fields.u32()?, fields.u32()?);
            let path = fields.0.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
            let mapping = CodeMapping { start, len_bytes, offset_bytes, inode, path };
            CpuRecord::Mapped { pid, mapping }
        }
        _ => return None,
    };
    Some((at_ns, record))
}

const _: () = assert!(RING_BYTES.is_power_of_two() && RING_BYTES as u64 >= RECORD_BYTES_MAX);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn header(kind: u32, misc: u32, body: &[u8]) -> Vec<u8> {
        let len = (body.len() + 8) as u16;
        [&kind.to_ne_bytes()[..], &(misc as u16).to_ne_bytes(), &len.to_ne_bytes(), body].concat()
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn halves(low: u32, high: u32) -> u64 {
        let [low, high] = [low, high].map(u32::to_ne_bytes);
        u64::from_ne_bytes([low, high].concat().try_into().unwrap())
    }

    fn records(bytes: &[u8]) -> (Vec<(u64, CpuRecord)>, u64) {
        let mut records = Vec::new();
        let lost = parse(bytes, &mut |at_ns, record| records.push((at_ns, record)));
        (records, lost)
    }

    /// One record of each kind, as the kernel writes them.
    fn every_kind() -> Vec<u8> {
        let trailer = [halves(7, 8), 99];
        let sample = words(&[0xffff_0000, halves(7, 8), 50, 4711]);
        let fork = words(&[halves(9, 7), halves(9, 8), 60, trailer[0], trailer[1]]);
        let exec = words(&[halves(9, 9), 0x6162, trailer[0], trailer[1]]);
        let path = u64::from_ne_bytes(*b"/bin/xy\0");
        let mapped = [halves(9, 9), 0x1000, 0x2000, 0x40, halves(1, 2), 33, 0, halves(5, 0), path];
        let mapped = words(&[&mapped[..], &trailer].concat());
        [
            header(libbpf_sys::PERF_RECORD_SAMPLE, libbpf_sys::PERF_RECORD_MISC_KERNEL, &sample),
            header(libbpf_sys::PERF_RECORD_FORK, 0, &fork),
            header(libbpf_sys::PERF_RECORD_COMM, libbpf_sys::PERF_RECORD_MISC_COMM_EXEC, &exec),
            header(libbpf_sys::PERF_RECORD_MMAP2, 0, &mapped),
            header(libbpf_sys::PERF_RECORD_LOST, 0, &words(&[1, 5, trailer[0], trailer[1]])),
        ]
        .concat()
    }

    #[test]
    fn records_of_each_kind_are_read() {
        let (read, lost) = records(&every_kind());
        let sample = CodeSample { pid: 7, address: 0xffff_0000, is_kernel: true, group: 4711 };
        let mapping = CodeMapping {
            start: 0x1000,
            len_bytes: 0x2000,
            offset_bytes: 0x40,
            inode: 33,
            path: b"/bin/xy".to_vec(),
        };
        let expected = [
            (50, CpuRecord::Sample(sample)),
            (99, CpuRecord::Forked { pid: 9, parent: 7 }),
            (99, CpuRecord::Executed { pid: 9 }),
            (99, CpuRecord::Mapped { pid: 9, mapping }),
        ];
        assert_eq!((read, lost), (expected.to_vec(), 5));
    }

    #[test]
    fn records_that_end_early_are_no_panic() {
        let whole = every_kind();
        for cut in 0..whole.len() {
            let (read, _) = records(&whole[..cut]);
            assert!(read.len() <= 4);
            // A record whose size is too small for it, and one of size 0.
            let mut bent = whole.clone();
            bent[6] = cut as u8;
            records(&bent);
        }
    }

    #[test]
    fn a_busy_process_is_sampled_with_its_group_and_code() {
        let cpus = crate::affinity::allowed_cpus().unwrap();
        let mut sampler = match CpuSampler::open(&cpus, 1_000_000) {
            Ok(sampler) => sampler,
            Err(error) => return testkit::skip("root", error),
        };
        sampler.enable().unwrap();
        let mut child = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"])
            .spawn()
            .unwrap();
        let pid = child.id();
        child.wait().unwrap();
        sampler.disable().unwrap();
        let mut read = Vec::new();
        sampler.take(|at_ns, record| read.push((at_ns, record)));
        let now_ns = crate::clock::monotonic_ns();
        assert!(read.iter().all(|(at_ns, _)| (1..=now_ns).contains(at_ns)), "{read:?}");
        let mut in_code = 0;
        let (mut mappings, mut groups) = (Vec::new(), std::collections::BTreeSet::new());
        for (_, record) in &read {
            match record {
                CpuRecord::Mapped { pid: of, mapping } if *of == pid => {
                    mappings.push(mapping.clone());
                }
                CpuRecord::Sample(sample) if sample.pid == pid => {
                    groups.insert(sample.group);
                    let code = |of: &CodeMapping| {
                        (of.start..of.start + of.len_bytes).contains(&sample.address)
                    };
                    in_code += usize::from(!sample.is_kernel && mappings.iter().any(code));
                }
                _ => {}
            }
        }
        assert!(in_code > 0, "{read:?}");
        let shell = std::fs::metadata("/bin/sh").unwrap().ino();
        assert!(mappings.iter().any(|of| of.inode == shell), "{mappings:?}");
        assert_eq!(groups.len(), 1, "{groups:?}");
        let before = read.len();
        sampler.take(|at_ns, record| read.push((at_ns, record)));
        assert_eq!(read.len(), before, "each is taken once, and none comes of a timer that stands");
    }
}
