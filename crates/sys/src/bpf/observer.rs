//! Counts of what frames suffer: copies, clones, hooks, flows and hashes, softirqs (bpf/observer.bpf.c, bpf/copies.bpf.c).

use std::collections::BTreeMap;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use zerocopy::FromBytes;

use super::error::BpfError;
use super::object::{Loaded, Opened, embedded, map_error, per_cpu, shared_types, write_single};
use super::samples::{self, Samples, lookup};
use super::tracing::{EmptyRuns, RunTime, Tracepoints};
use crate::capability::Capability;

mod types {
    use super::shared_types;

    shared_types!("observer");
}

mod copies_types {
    use super::shared_types;

    shared_types!("copies");
}

const TRACEPOINTS: [(&str, &str); 4] = [
    ("received", "netif_receive_skb"),
    ("sent", "net_dev_start_xmit"),
    ("softirq_begins", "softirq_entry"),
    ("softirq_ends", "softirq_exit"),
];

/// Programs at functions that copy, in the order of `enum function` of the C program, then the others.
const FUNCTIONS: [(&str, &str); 8] = [
    ("expand_head", "pskb_expand_head"),
    ("copy", "skb_copy"),
    ("copy_expand", "skb_copy_expand"),
    ("copy_head", "__pskb_copy_fclone"),
    ("pull_tail", "__pskb_pull_tail"),
    ("copy_bits", "skb_copy_bits"),
    ("clone", "skb_clone"),
    ("hook", "nf_hook_slow"),
];

/// Hooks of each family in the table of `copies.bpf.c`.
const HOOKS: usize = 8;
const FAMILIES: usize = 16;

/// An interface of a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FramePlace {
    /// Inode number of the namespace.
    pub netns: u32,
    pub ifindex: u32,
}

/// Frames of one direction of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectionCounts {
    pub by_cpu: Vec<u64>,
    /// TCP and UDP frames with a hash over their ports.
    pub hashed: u64,
    /// Distinct flows of TCP and UDP.
    pub flows: u64,
    /// Distinct hashes of the frames that have one.
    pub hashes: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterfaceCounts {
    pub received: DirectionCounts,
    pub sent: DirectionCounts,
}

/// Calls of one function by one call chain for frames of one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyCounts {
    pub place: FramePlace,
    /// Kernel function that copied or cloned.
    pub function: &'static str,
    /// Return addresses, innermost first; may begin with those of the program that counted.
    pub chain: Vec<u64>,
    pub count: u64,
    /// Copied; 0 of clones.
    pub bytes: u64,
    /// Calls for frames that were clones, or had clones, already.
    pub shared: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookCounts {
    /// `NFPROTO_*` of linux/netfilter.h.
    pub family: u8,
    pub hook: u8,
    pub runs: u64,
    /// Hooked functions that these runs had to call.
    pub functions: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SoftirqCounts {
    /// Runs of NET_RX.
    pub runs: u64,
    /// Time in them, nanoseconds.
    pub ns: u64,
}

/// Counts since loading.
#[derive(Debug, Clone, Default)]
pub struct ObserverCounts {
    pub interfaces: BTreeMap<FramePlace, InterfaceCounts>,
    /// Distinct flows and hashes for which the table had no room.
    pub unlisted_count: u64,
    pub copies: Vec<CopyCounts>,
    pub hooks: Vec<HookCounts>,
    /// By CPU.
    pub softirqs: Vec<SoftirqCounts>,
    pub samples: Samples,
}

/// Programs, attached between [`Self::start`] and [`Self::stop`].
#[derive(Debug)]
pub struct ObserverPrograms {
    // Before the objects, so that they are detached first.
    links: Vec<Link>,
    missing: Vec<String>,
    samples_per_second: u32,
    tracepoints: Tracepoints,
    loaded: Loaded,
    /// `None` where functions may not be traced.
    copies: Option<(Tracepoints, Loaded)>,
}

impl ObserverPrograms {
    /// Loads the programs. Functions that the kernel does not let programs trace are in [`Self::missing`].
    ///
    /// - `netns`: inode number of the observed namespace; `None` for all.
    /// - `samples_per_second`: samples of each CPU; 0 for none.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_PERFMON; [`BpfError::Load`] without BTF.
    pub fn load(netns: Option<u32>, samples_per_second: u32) -> Result<Self, BpfError> {
        let netns = netns.unwrap_or(0);
        let tracepoints = Tracepoints::of_this_kernel(&TRACEPOINTS);
        let loaded = Opened::open("observer", embedded!("observer"))?
            .needs(&[Capability::Bpf, Capability::Perfmon])
            .config(&types::config { netns, pad: 0 })?
            .without(&tracepoints.absent_programs())
            .load()?;
        let missing = tracepoints.missing().iter().map(ToString::to_string).collect();
        let mut programs = ObserverPrograms {
            links: Vec::new(),
            missing,
            samples_per_second,
            tracepoints,
            loaded,
            copies: None,
        };
        match load_copies(netns) {
            Ok((functions, loaded)) => {
                let absent = functions.missing();
                programs.missing.extend(
                    absent.iter().map(|one| format!("function {}: {}", one.name, one.reason)),
                );
                programs.copies = Some((functions, loaded));
            }
            Err(why) => programs.lose_copies(&why),
        }
        Ok(programs)
    }

    fn lose_copies(&mut self, why: &BpfError) {
        self.copies = None;
        self.missing.push(format!(
            "copies and clones by caller, and runs of netfilter hooks: the kernel does not let programs trace \
             its functions ({})",
            root_cause(why)
        ));
    }

    /// Attaches the programs.
    ///
    /// # Errors
    /// [`BpfError::Permission`] if the kernel allows no tracing.
    pub fn start(&mut self) -> Result<(), BpfError> {
        let (links, refused) = self.tracepoints.attach(&self.loaded)?;
        self.links = links;
        self.missing.extend(refused.iter().map(ToString::to_string));
        let functions = self.copies.as_ref().map(|(functions, loaded)| functions.attach(loaded));
        match functions {
            Some(Ok((links, refused))) => {
                self.links.extend(links);
                let refused = refused.iter();
                self.missing
                    .extend(refused.map(|one| format!("function {}: {}", one.name, one.reason)));
            }
            Some(Err(why)) => self.lose_copies(&why),
            None => {}
        }
        self.links.extend(samples::start(
            &self.loaded,
            self.samples_per_second,
            &mut self.missing,
        )?);
        self.count(true)
    }

    /// Ends the counts and detaches the programs.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn stop(&mut self) -> Result<(), BpfError> {
        self.count(false)?;
        self.links.clear();
        Ok(())
    }

    fn count(&self, is_on: bool) -> Result<(), BpfError> {
        let copies = self.copies.iter().map(|(_, loaded)| loaded);
        copies
            .chain([&self.loaded])
            .try_for_each(|loaded| write_single(&loaded.handle(".bss")?, &u32::from(is_on)))
    }

    /// Facts that cannot be seen here, each with the reason.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// True if copies, clones and hooks are counted.
    pub fn sees_functions(&self) -> bool {
        self.copies.is_some()
    }

    /// Attaches the empty program: see [`RunTime::empty`].
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
        let mut sum = self.tracepoints.run_time(&self.loaded)?;
        if let Some((functions, loaded)) = &self.copies {
            sum.all = sum.all.plus(&functions.run_time(loaded)?.all);
        }
        Ok(sum)
    }

    /// Reads all counts.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn counts(&self) -> Result<ObserverCounts, BpfError> {
        let softirqs: Vec<types::softirq> = per_cpu(&self.loaded.handle("softirqs")?, 0)?;
        let mut counts = ObserverCounts {
            interfaces: interfaces(&self.loaded)?,
            unlisted_count: softirqs.iter().map(|cpu| cpu.unlisted).sum(),
            softirqs: softirqs
                .iter()
                .map(|cpu| SoftirqCounts { runs: cpu.runs, ns: cpu.ns })
                .collect(),
            samples: samples::read(&self.loaded)?,
            ..ObserverCounts::default()
        };
        if let Some((_, loaded)) = &self.copies {
            counts.copies = copies(loaded)?;
            counts.hooks = hooks(loaded)?;
        }
        Ok(counts)
    }
}

fn root_cause(error: &BpfError) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn load_copies(netns: u32) -> Result<(Tracepoints, Loaded), BpfError> {
    let functions = Tracepoints::functions_of_this_kernel(&FUNCTIONS);
    let loaded = Opened::open("copies", embedded!("copies"))?
        .needs(&[Capability::Bpf, Capability::Perfmon])
        .config(&copies_types::config { netns, pad: 0 })?
        .without(&functions.absent_programs())
        .load()?;
    Ok((functions, loaded))
}

fn interfaces(loaded: &Loaded) -> Result<BTreeMap<FramePlace, InterfaceCounts>, BpfError> {
    let frames = loaded.handle("frames")?;
    let mut interfaces = BTreeMap::<FramePlace, InterfaceCounts>::new();
    for key in frames.keys() {
        let Ok(raw) = types::place::read_from_bytes(&key) else { continue };
        let cpus: Vec<types::frames> = frames
            .lookup_percpu(&key, MapFlags::ANY)
            .map_err(|why| map_error("frames", "read", why))?
            .unwrap_or_default()
            .iter()
            .filter_map(|bytes| types::frames::read_from_bytes(bytes).ok())
            .collect();
        let counts = interfaces.entry(place(raw)).or_default();
        counts.received.by_cpu = cpus.iter().map(|cpu| cpu.received).collect();
        counts.received.hashed = cpus.iter().map(|cpu| cpu.received_hashed).sum();
        counts.sent.by_cpu = cpus.iter().map(|cpu| cpu.sent).collect();
        counts.sent.hashed = cpus.iter().map(|cpu| cpu.sent_hashed).sum();
    }
    for key in loaded.handle("distincts")?.keys() {
        let Ok(raw) = types::distinct::read_from_bytes(&key) else { continue };
        let counts = interfaces.entry(place(raw.place)).or_default();
        // As `enum what` of the C program.
        match raw.what {
            0 => counts.received.flows += 1,
            1 => counts.received.hashes += 1,
            2 => counts.sent.flows += 1,
            _ => counts.sent.hashes += 1,
        }
    }
    Ok(interfaces)
}

fn place(raw: types::place) -> FramePlace {
    FramePlace { netns: raw.netns, ifindex: raw.ifindex }
}

fn copies(loaded: &Loaded) -> Result<Vec<CopyCounts>, BpfError> {
    let (copies, chains) = (loaded.handle("copies")?, loaded.handle("chains")?);
    let mut all = Vec::new();
    for key in copies.keys() {
        let Some(value) = lookup(&copies, &key)? else { continue };
        let (Ok(raw), Ok(copied)) = (
            copies_types::copier::read_from_bytes(&key),
            copies_types::copied::read_from_bytes(&value),
        ) else {
            continue;
        };
        let Some((_, function)) = FUNCTIONS.get(raw.function as usize) else { continue };
        all.push(CopyCounts {
            place: FramePlace { netns: raw.place.netns, ifindex: raw.place.ifindex },
            function,
            chain: samples::chain(&chains, &raw.chain.to_ne_bytes()),
            count: copied.count,
            bytes: copied.bytes,
            shared: copied.shared,
        });
    }
    Ok(all)
}

fn hooks(loaded: &Loaded) -> Result<Vec<HookCounts>, BpfError> {
    let map: MapHandle = loaded.handle("hooks")?;
    let mut all = Vec::new();
    for at in 0..FAMILIES * HOOKS {
        let cpus: Vec<copies_types::hook_runs> = per_cpu(&map, at as u32)?;
        let runs = cpus.iter().map(|cpu| cpu.runs).sum();
        let functions = cpus.iter().map(|cpu| cpu.functions).sum();
        if runs > 0 {
            let (family, hook) = ((at / HOOKS) as u8, (at % HOOKS) as u8);
            all.push(HookCounts { family, hook, runs, functions });
        }
    }
    Ok(all)
}
