//! BPF object files: embedded, opened, configured, loaded.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::sync::Once;

use libbpf_rs::{
    ErrorKind, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel,
    ProgramMut,
};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::XdpMode;
use super::error::{BpfError, kernel_for};
use super::interface::Interface;
use super::link::{BpfLink, Tcx, TraceLink};
use super::map::Map;
use crate::capability::{Capability, missing_on_host};

/// Bytes of an object file, aligned for an ELF reader.
#[doc(hidden)]
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Aligned<T: ?Sized>(pub T);

/// Bytes of the object of `NAME.bpf.c`, as the build script of the calling crate compiled it.
#[doc(hidden)]
#[macro_export]
macro_rules! embedded_bpf_object {
    ($name:literal) => {{
        static OBJECT: &$crate::bpf::Aligned<[u8]> =
            &$crate::bpf::Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")));
        &OBJECT.0
    }};
}
#[doc(inline)]
pub use embedded_bpf_object as embedded;

/// Structs of `NAME.bpf.c`, which the build script of the calling crate generated from its BTF.
#[doc(hidden)]
#[macro_export]
macro_rules! shared_bpf_types {
    ($name:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $name, ".types.rs"));
    };
}
#[doc(inline)]
pub use shared_bpf_types as shared_types;

/// An open object that is not loaded yet.
#[derive(Debug)]
pub struct Opened {
    name: &'static str,
    object: OpenObject,
    needs: &'static [Capability],
    /// Oldest kernel that loads it, with the reason; `None` for that of [`kernel_for`].
    kernel: Option<&'static str>,
    has_frags: bool,
}

impl Opened {
    /// Opens the object `bytes` ([`embedded`]).
    ///
    /// - `name`: of the program, in messages.
    ///
    /// # Errors
    /// [`BpfError::Load`] if it is not a BPF object.
    pub fn open(name: &'static str, bytes: &[u8]) -> Result<Self, BpfError> {
        collect_messages();
        let object = ObjectBuilder::default().open_memory(bytes).map_err(|why| BpfError::Load {
            program: name,
            needs: kernel_for(name, false),
            log: take_messages(),
            source: to_io(why),
        })?;
        // Programs add offsets from packets to pointers, which takes CAP_PERFMON.
        let needs = &[Capability::Bpf, Capability::NetAdmin, Capability::Perfmon];
        Ok(Opened { name, object, needs, kernel: None, has_frags: false })
    }

    /// Sets the oldest kernel that loads it, with the reason, for the error message: `Linux 6.6 or newer
    /// (programs at tcx)`. Without, it is the kernel that has programs attached by a link.
    #[must_use]
    pub fn needs_kernel(mut self, kernel: &'static str) -> Self {
        self.kernel = Some(kernel);
        self
    }

    /// Sets the capabilities that loading needs, for the error message.
    pub(super) fn needs(mut self, needs: &'static [Capability]) -> Self {
        self.needs = needs;
        self
    }

    /// Writes the constants, the program's `struct config`.
    ///
    /// # Errors
    /// [`BpfError::Load`] if its constants have another size.
    pub fn config(mut self, config: &(impl IntoBytes + Immutable)) -> Result<Self, BpfError> {
        let (name, bytes) = (self.name, config.as_bytes());
        let wrong = |what: String| BpfError::Load {
            program: name,
            needs: kernel_for(name, false),
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

    /// Sets the size of a map before it is created.
    ///
    /// # Errors
    /// [`BpfError::Map`] if it has no such map.
    pub fn map_entries(mut self, map: &str, entries: u32) -> Result<Self, BpfError> {
        let mut found = self
            .object
            .maps_mut()
            .find(|candidate| candidate.name() == map)
            .ok_or_else(|| no_map(map))?;
        found.set_max_entries(entries).map_err(|why| map_error(map, "sized", why))?;
        Ok(self)
    }

    /// Lets all programs receive frames of more than one buffer.
    #[must_use]
    pub fn frags(mut self, frags: bool) -> Self {
        self.has_frags |= frags;
        if frags {
            for mut program in self.object.progs_mut() {
                program.set_flags(libbpf_sys::BPF_F_XDP_HAS_FRAGS);
            }
        }
        self
    }

    /// Binds all programs to an interface of the calling thread's network namespace, whose driver then answers
    /// them (`bpf_xdp_metadata_…`).
    #[must_use]
    pub(super) fn bound_to(mut self, ifindex: u32) -> Self {
        let frags = if self.has_frags { libbpf_sys::BPF_F_XDP_HAS_FRAGS } else { 0 };
        for mut program in self.object.progs_mut() {
            program.set_flags(frags | libbpf_sys::BPF_F_XDP_DEV_BOUND_ONLY);
            program.set_ifindex(ifindex);
        }
        self
    }

    /// As [`Self::frags`], for some programs.
    #[must_use]
    pub fn xdp_frags(mut self, programs: &[&str], frags: bool) -> Self {
        self.has_frags |= frags;
        for mut program in self.object.progs_mut() {
            if frags && programs.iter().any(|name| program.name() == *name) {
                program.set_flags(libbpf_sys::BPF_F_XDP_HAS_FRAGS);
            }
        }
        self
    }

    /// Excludes programs by name.
    pub(super) fn without(mut self, programs: &[&str]) -> Self {
        for mut program in self.object.progs_mut() {
            if programs.iter().any(|name| program.name() == *name) {
                program.set_autoload(false);
            }
        }
        self
    }

    /// Loads it into the kernel.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; [`BpfError::Load`] otherwise.
    pub fn load(self) -> Result<Loaded, BpfError> {
        let Opened { name, object, needs, kernel, has_frags } = self;
        match object.load() {
            Ok(object) => {
                take_messages();
                Ok(Loaded { name, object })
            }
            Err(why) => {
                let log = take_messages();
                let denied = why.kind() == ErrorKind::PermissionDenied;
                let source = to_io(why);
                match missing_on_host(needs).filter(|_| denied) {
                    Some(missing) => {
                        let what = format!("loading BPF program `{name}`");
                        Err(BpfError::Permission { what, missing, source })
                    }
                    None => {
                        let needs = kernel.unwrap_or_else(|| kernel_for(name, has_frags));
                        Err(BpfError::Load { program: name, needs, log, source })
                    }
                }
            }
        }
    }
}

/// A loaded object; its programs and maps are freed on drop unless something else holds them.
#[derive(Debug)]
pub struct Loaded {
    name: &'static str,
    object: Object,
}

impl Loaded {
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn program(&self, name: &str) -> Result<ProgramMut<'_>, BpfError> {
        self.object
            .progs_mut()
            .find(|program| program.name() == name)
            .ok_or_else(|| BpfError::Invalid { what: format!("no BPF program `{name}`") })
    }

    /// Attaches an XDP program to an interface. Call it on a thread in the interface's network namespace.
    ///
    /// # Errors
    /// See [`BpfError`]; each names the interface and the remedy.
    pub fn attach_xdp(
        &self,
        program: &'static str,
        ifindex: u32,
        mode: XdpMode,
    ) -> Result<BpfLink, BpfError> {
        BpfLink::xdp(self.program(program)?.as_fd(), program, ifindex, mode)
    }

    /// Attaches a traffic-control program (Linux 6.6), as of [`Self::attach_xdp`].
    ///
    /// # Errors
    /// See [`BpfError`]; each names the interface and the remedy.
    pub fn attach_tcx(
        &self,
        program: &'static str,
        ifindex: u32,
        side: Tcx,
    ) -> Result<BpfLink, BpfError> {
        BpfLink::tcx(self.program(program)?.as_fd(), program, ifindex, side)
    }

    /// Attaches a program to the tracepoint that its section names.
    ///
    /// - `ifindex`: interface that it watches, in messages.
    ///
    /// # Errors
    /// [`BpfError::Attach`].
    pub fn attach_trace(&self, program: &'static str, ifindex: u32) -> Result<TraceLink, BpfError> {
        let link = self.program(program)?.attach().map_err(|why| BpfError::Attach {
            program,
            interface: Interface::read(ifindex),
            source: io::Error::other(why),
        })?;
        Ok(TraceLink::new(link))
    }

    /// One of its maps.
    ///
    /// # Errors
    /// [`BpfError::Map`] if it has no such map.
    pub fn map(&self, name: &'static str) -> Result<Map, BpfError> {
        Ok(Map::new(name, self.handle(name)?))
    }

    /// Handle of a map; global sections go by their suffix (`.bss`).
    pub(super) fn handle(&self, name: &str) -> Result<MapHandle, BpfError> {
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

/// True in the first process namespace, which numbers processes as the kernel does.
///
/// Source: the kernel's include/linux/proc_ns.h, PROC_PID_INIT_INO.
pub(super) fn is_first_pid_namespace() -> bool {
    let own = std::fs::read_link("/proc/self/ns/pid");
    own.is_ok_and(|own| own.as_os_str() == "pid:[4026531836]")
}

/// Values of a key of a per-CPU array, one for each CPU.
pub(super) fn per_cpu<T: FromBytes>(map: &MapHandle, key: u32) -> Result<Vec<T>, BpfError> {
    let values = map
        .lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY)
        .map_err(|why| map_error(&map.name().to_string_lossy(), "read", why))?
        .unwrap_or_default();
    // The kernel rounds each value up to 8 bytes.
    Ok(values.iter().filter_map(|bytes| Some(T::read_from_prefix(bytes).ok()?.0)).collect())
}

/// Reads a global section, or an array map of one entry.
pub(super) fn read_single<T: FromBytes>(map: &MapHandle) -> Result<T, BpfError> {
    let name = map.name().to_string_lossy().into_owned();
    let bytes = map
        .lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|why| map_error(&name, "read", why))?;
    bytes.and_then(|bytes| T::read_from_bytes(&bytes).ok()).ok_or_else(|| no_map(&name))
}

/// Writes a global section, or an array map of one entry.
pub(super) fn write_single(
    map: &MapHandle,
    value: &(impl IntoBytes + Immutable),
) -> Result<(), BpfError> {
    map.update(&0_u32.to_ne_bytes(), value.as_bytes(), MapFlags::ANY)
        .map_err(|why| map_error(&map.name().to_string_lossy(), "written", why))
}

/// Error of a map call.
pub(super) fn map_error(map: &str, what: &'static str, why: libbpf_rs::Error) -> BpfError {
    BpfError::Map { map: map.into(), what, source: to_io(why) }
}

fn no_map(map: &str) -> BpfError {
    BpfError::Map { map: map.into(), what: "found", source: io::ErrorKind::NotFound.into() }
}

pub(super) fn to_io(why: libbpf_rs::Error) -> io::Error {
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

/// Limit of libbpf's output that is kept: the verifier's log can run to megabytes.
const MESSAGES_BYTES_MAX: usize = 16 * 1024;

/// Redirects libbpf's warnings from stderr into errors.
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
