//! Object files: embedded, opened, configured, loaded.

use std::cell::RefCell;
use std::sync::Once;
use std::{io, mem};

use libbpf_rs::{
    ErrorKind, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel,
    ProgramMut,
};

use super::error::BpfError;
use crate::capability::{Capability, missing};

/// The bytes of an object file, aligned as an ELF reader wants them.
#[repr(C, align(8))]
pub(super) struct Aligned<T: ?Sized>(pub(super) T);

/// Embeds `bpf/NAME.bpf.c`, as compiled by the build script.
macro_rules! embedded {
    ($name:literal) => {{
        static OBJECT: &$crate::bpf::object::Aligned<[u8]> = &$crate::bpf::object::Aligned(
            *include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")),
        );
        &OBJECT.0
    }};
}
pub(super) use embedded;

/// An object that is open and can still be configured.
#[derive(Debug)]
pub(super) struct Opened {
    name: &'static str,
    object: OpenObject,
    needs: &'static [Capability],
}

impl Opened {
    /// Opens embedded bytes.
    pub(super) fn open(name: &'static str, bytes: &[u8]) -> Result<Self, BpfError> {
        collect_messages();
        let object = ObjectBuilder::default().open_memory(bytes).map_err(|why| BpfError::Load {
            program: name,
            log: take_messages(),
            source: to_io(why),
        })?;
        // Offsets that a packet tells are added to pointers, which takes CAP_PERFMON.
        let needs = &[Capability::Bpf, Capability::NetAdmin, Capability::Perfmon];
        Ok(Opened { name, object, needs })
    }

    /// Names what loading needs, for the message when it is refused.
    pub(super) fn needs(mut self, needs: &'static [Capability]) -> Self {
        self.needs = needs;
        self
    }

    /// Writes the constants: a byte image of the program's `struct config`.
    pub(super) fn config(mut self, bytes: &[u8]) -> Result<Self, BpfError> {
        let name = self.name;
        let wrong = |what: String| BpfError::Load {
            program: name,
            log: String::new(),
            source: io::Error::new(io::ErrorKind::InvalidData, what),
        };
        let mut rodata = self
            .object
            .maps_mut()
            .find(|map| map.name().to_string_lossy().ends_with(".rodata"))
            .ok_or_else(|| wrong("the object has no .rodata".into()))?;
        let image = rodata
            .initial_value_mut()
            .filter(|image| image.len() == bytes.len())
            .ok_or_else(|| wrong(format!("its struct config is not {} bytes", bytes.len())))?;
        image.copy_from_slice(bytes);
        Ok(self)
    }

    /// Sets a map's size before it is made.
    pub(super) fn map_entries(mut self, map: &str, entries: u32) -> Result<Self, BpfError> {
        let mut found = self
            .object
            .maps_mut()
            .find(|candidate| candidate.name() == map)
            .ok_or_else(|| no_map(map))?;
        found.set_max_entries(entries).map_err(|why| map_error(map, "sized", why))?;
        Ok(self)
    }

    /// Lets all programs see frames of more than one buffer.
    pub(super) fn frags(mut self, frags: bool) -> Self {
        if frags {
            for mut program in self.object.progs_mut() {
                program.set_flags(libbpf_sys::BPF_F_XDP_HAS_FRAGS);
            }
        }
        self
    }

    /// Leaves programs out, by name.
    pub(super) fn without(mut self, programs: &[&str]) -> Self {
        for mut program in self.object.progs_mut() {
            if programs.iter().any(|name| program.name() == *name) {
                program.set_autoload(false);
            }
        }
        self
    }

    /// Loads it into the kernel.
    pub(super) fn load(self) -> Result<Loaded, BpfError> {
        let Opened { name, object, needs } = self;
        match object.load() {
            Ok(object) => {
                take_messages();
                Ok(Loaded { name, object })
            }
            Err(why) => {
                let log = take_messages();
                let denied = why.kind() == ErrorKind::PermissionDenied;
                let source = to_io(why);
                match missing(needs).filter(|_| denied) {
                    Some(missing) => {
                        let what = format!("loading BPF program `{name}`");
                        Err(BpfError::Permission { what, missing, source })
                    }
                    None => Err(BpfError::Load { program: name, log, source }),
                }
            }
        }
    }
}

/// An object in the kernel; programs and maps go when it is dropped and nothing else holds them.
#[derive(Debug)]
pub(super) struct Loaded {
    name: &'static str,
    object: Object,
}

impl Loaded {
    /// Name of the object.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// One of its programs.
    pub(super) fn program(&self, name: &str) -> Result<ProgramMut<'_>, BpfError> {
        self.object
            .progs_mut()
            .find(|program| program.name() == name)
            .ok_or_else(|| BpfError::Invalid { what: format!("no BPF program `{name}`") })
    }

    /// A handle of its own on one of the maps; a global section goes by its suffix (`.bss`).
    pub(super) fn map(&self, name: &str) -> Result<MapHandle, BpfError> {
        let map = self
            .object
            .maps()
            .find(|map| {
                map.name() == name
                    || name.starts_with('.') && map.name().to_string_lossy().ends_with(name)
            })
            .ok_or_else(|| no_map(name))?;
        MapHandle::try_from(&map).map_err(|why| map_error(name, "opened", why))
    }
}

/// Sums a per-CPU map of one entry that is `N` counters of 64 bits.
pub(super) fn sum_per_cpu<const N: usize>(map: &MapHandle) -> Result<[u64; N], BpfError> {
    let name = map.name().to_string_lossy().into_owned();
    let per_cpu = map
        .lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|why| map_error(&name, "read", why))?
        .unwrap_or_default();
    let mut sums = [0_u64; N];
    for entry in &per_cpu {
        for (sum, value) in sums.iter_mut().zip(entry.chunks_exact(mem::size_of::<u64>())) {
            *sum = sum.wrapping_add(to_u64(value));
        }
    }
    Ok(sums)
}

/// Reads a global section, or an array map of one entry.
pub(super) fn read_single(map: &MapHandle) -> Result<Vec<u8>, BpfError> {
    let name = map.name().to_string_lossy().into_owned();
    map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|why| map_error(&name, "read", why))?
        .ok_or_else(|| no_map(&name))
}

/// Eight bytes, host order; zero for anything else.
pub(super) fn to_u64(bytes: &[u8]) -> u64 {
    bytes.try_into().map(u64::from_ne_bytes).unwrap_or_default()
}

/// A map call that failed.
pub(super) fn map_error(map: &str, what: &'static str, why: libbpf_rs::Error) -> BpfError {
    BpfError::Map { map: map.into(), what, source: to_io(why) }
}

fn no_map(map: &str) -> BpfError {
    BpfError::Map { map: map.into(), what: "found", source: io::ErrorKind::NotFound.into() }
}

fn to_io(why: libbpf_rs::Error) -> io::Error {
    let kind = match why.kind() {
        ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        ErrorKind::AlreadyExists => io::ErrorKind::AlreadyExists,
        ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
        ErrorKind::Unsupported => io::ErrorKind::Unsupported,
        ErrorKind::OutOfMemory => io::ErrorKind::OutOfMemory,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, why)
}

thread_local! {
    static MESSAGES: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What is kept of libbpf's output; the verifier's log can run to megabytes.
const MESSAGES_BYTES_MAX: usize = 16 * 1024;

/// Keeps libbpf from writing to stderr: its warnings go into our errors instead.
fn collect_messages() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, line| {
            MESSAGES.with_borrow_mut(|kept| {
                if kept.len() + line.len() <= MESSAGES_BYTES_MAX {
                    kept.push('\n');
                    kept.push_str(line.trim_end());
                }
            });
        })));
    });
    take_messages();
}

fn take_messages() -> String {
    MESSAGES.take()
}
