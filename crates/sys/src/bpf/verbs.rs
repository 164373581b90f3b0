//! XDP verbs, each as a program that counts what it handles.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::{Immutable, IntoBytes};

use super::XdpMode;
use super::error::BpfError;
use super::interface::Interface;
use super::link::XdpProgram;
use super::object::{Loaded, Opened, embedded, map_error, per_cpu, shared_types};

mod types {
    super::shared_types!("verbs");
}

/// Fate that an XDP program decides for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// XDP_DROP.
    Drop,
    /// XDP_PASS: to the stack.
    Pass,
    /// XDP_TX: out of the interface on which it arrived.
    Tx,
    /// XDP_REDIRECT by a devmap, out of an interface.
    Devmap {
        /// The interface, in the namespace of the calling thread.
        ifindex: u32,
    },
    /// XDP_REDIRECT by a CPU map, to a program on that CPU that counts and drops.
    Cpumap {
        /// The CPU.
        cpu: u32,
    },
}

/// Programs of the object; all but those of the verb are left out.
const PROGRAMS: [&str; 6] =
    ["verb_drop", "verb_pass", "verb_tx", "verb_devmap", "verb_cpumap", ON_CPU];
const ON_CPU: &str = "verb_on_cpu";

/// Frames that a CPU map holds for its CPU: the default of the kernel's own sample.
const QUEUE_FRAMES: u32 = 2048;

impl Verb {
    fn program(self) -> &'static str {
        match self {
            Verb::Drop => "verb_drop",
            Verb::Pass => "verb_pass",
            Verb::Tx => "verb_tx",
            Verb::Devmap { .. } => "verb_devmap",
            Verb::Cpumap { .. } => "verb_cpumap",
        }
    }

    fn cpu(self) -> u32 {
        if let Verb::Cpumap { cpu } = self { cpu } else { 0 }
    }
}

/// Counters of a [`VerbProgram`] since it was loaded, over all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerbCounts {
    /// Frames for which the verb was returned.
    pub handled: u64,
    /// Frames that arrived on the CPU of a [`Verb::Cpumap`]; 0 for other verbs.
    pub on_cpu: u64,
}

/// XDP program that counts every frame and returns one verb.
///
/// Frames of [`Verb::Tx`] and [`Verb::Devmap`] are lost on a veth whose peer has neither GRO nor an
/// XDP program.
#[derive(Debug)]
pub struct VerbProgram {
    program: XdpProgram,
    counts: MapHandle,
}

/// `struct bpf_cpumap_val`: length of the queue, and the program of that CPU.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct CpumapValue {
    queue_frames: u32,
    program_fd: i32,
}

impl VerbProgram {
    /// Loads the program and points its map to the target; nothing is attached yet. Call it on a thread
    /// in the target's network namespace.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_NET_ADMIN, [`BpfError::NoInterface`] for a target
    /// that does not exist, [`BpfError::Map`] for a CPU that is offline, [`BpfError::Load`] otherwise.
    pub fn load(verb: Verb) -> Result<Self, BpfError> {
        let own = verb.program();
        let is_cpumap = matches!(verb, Verb::Cpumap { .. });
        let needed = |name: &str| name == own || (name == ON_CPU && is_cpumap);
        let others: Vec<&str> = PROGRAMS.into_iter().filter(|name| !needed(name)).collect();
        let loaded = Opened::open("verbs", embedded!("verbs"))?
            .config(&types::config { cpu: verb.cpu() })?
            .map_entries("cpus", verb.cpu() + 1)?
            .without(&others)
            .load()?;
        match verb {
            Verb::Devmap { ifindex } => point_at_interface(&loaded, ifindex)?,
            Verb::Cpumap { cpu } => point_at_cpu(&loaded, cpu)?,
            Verb::Drop | Verb::Pass | Verb::Tx => {}
        }
        let counts = loaded.handle("counts")?;
        Ok(VerbProgram { program: XdpProgram::named(loaded, own), counts })
    }

    /// Attaches the program to an interface until drop or the end of the process. Call it on a thread in
    /// the interface's network namespace.
    ///
    /// # Errors
    /// See [`BpfError`]; each names the interface and the remedy.
    pub fn attach(&mut self, ifindex: u32, mode: XdpMode) -> Result<(), BpfError> {
        self.program.attach(ifindex, mode)
    }

    /// Counters since loading.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn counts(&self) -> Result<VerbCounts, BpfError> {
        let sum = |place| -> Result<u64, BpfError> {
            Ok(per_cpu::<types::counts>(&self.counts, place)?.iter().map(|cpu| cpu.frames).sum())
        };
        Ok(VerbCounts { handled: sum(0)?, on_cpu: sum(1)? })
    }
}

fn point_at_interface(loaded: &Loaded, ifindex: u32) -> Result<(), BpfError> {
    let key = 0_u32.to_ne_bytes();
    let written = loaded.handle("target")?.update(&key, &ifindex.to_ne_bytes(), MapFlags::ANY);
    written.map_err(|why| {
        if Interface::read(ifindex).is_unknown() {
            BpfError::NoInterface { ifindex, source: io::Error::new(io::ErrorKind::NotFound, why) }
        } else {
            map_error("target", "written", why)
        }
    })
}

fn point_at_cpu(loaded: &Loaded, cpu: u32) -> Result<(), BpfError> {
    let program_fd = loaded.program(ON_CPU)?.as_fd().as_raw_fd();
    let value = CpumapValue { queue_frames: QUEUE_FRAMES, program_fd };
    let written =
        loaded.handle("cpus")?.update(&cpu.to_ne_bytes(), value.as_bytes(), MapFlags::ANY);
    written.map_err(|why| map_error("cpus", "written", why))
}
