//! BPF links: attachments that end with the process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Mutex;

use super::XdpMode;
use super::attached::AttachedProgram;
use super::error::BpfError;
use super::interface::Interface;
use super::map::Map;
use super::object::Loaded;
use crate::capability::{Capability, missing_on_host};

/// Side of an interface that a traffic-control program sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tcx {
    /// Frames that it receives.
    Ingress,
    /// Frames that it sends.
    Egress,
}

/// One attachment; dropping it detaches the program.
#[derive(Debug)]
pub struct BpfLink {
    fd: OwnedFd,
    interface: Interface,
}

impl BpfLink {
    /// Attaches an XDP program.
    ///
    /// Source: bpf(2) BPF_LINK_CREATE; the mode travels in `flags`.
    pub(super) fn xdp(
        program: BorrowedFd<'_>,
        name: &'static str,
        ifindex: u32,
        mode: XdpMode,
    ) -> Result<Self, BpfError> {
        let flags = match mode {
            XdpMode::Skb => libbpf_sys::XDP_FLAGS_SKB_MODE,
            XdpMode::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
        };
        create(program, ifindex, libbpf_sys::BPF_XDP, flags)
            .map_err(|source| xdp_error(name, ifindex, mode, source))
    }

    /// Attaches a traffic-control program to an interface.
    ///
    /// Source: bpf(2) BPF_LINK_CREATE with BPF_TCX_INGRESS or BPF_TCX_EGRESS (kernel 6.6).
    pub(super) fn tcx(
        program: BorrowedFd<'_>,
        name: &'static str,
        ifindex: u32,
        side: Tcx,
    ) -> Result<Self, BpfError> {
        let kind = match side {
            Tcx::Ingress => libbpf_sys::BPF_TCX_INGRESS,
            Tcx::Egress => libbpf_sys::BPF_TCX_EGRESS,
        };
        create(program, ifindex, kind, 0).map_err(|source| attach_error(name, ifindex, source))
    }

    pub(super) fn interface(&self) -> &Interface {
        &self.interface
    }
}

impl Drop for BpfLink {
    fn drop(&mut self) {
        // Closing is not enough while a forked child holds a copy of the descriptor.
        // SAFETY: `self` owns the open descriptor; a failure (the interface is gone) leaves nothing
        // attached either.
        let _ = unsafe { libbpf_sys::bpf_link_detach(self.fd.as_raw_fd()) };
    }
}

/// Attachment to a tracepoint; dropping it detaches the program.
#[derive(Debug)]
pub struct TraceLink {
    /// Used by its drop alone; the lock lets several threads hold references.
    _link: Mutex<libbpf_rs::Link>,
}

impl TraceLink {
    pub(super) fn new(link: libbpf_rs::Link) -> Self {
        TraceLink { _link: Mutex::new(link) }
    }
}

/// Detaches an XDP program that another process left on an interface without a link. Returns true
/// if the kernel detached one.
///
/// Call it on a thread in the interface's network namespace.
pub fn detach_leftover(ifindex: u32) -> bool {
    // SAFETY: no pointer but null for options is passed.
    unsafe { libbpf_sys::bpf_xdp_detach(ifindex as i32, 0, std::ptr::null()) == 0 }
}

/// A loaded XDP program and its one attachment: its own at XDP, or that of its twin at tcx.
#[derive(Debug)]
pub(super) struct XdpProgram {
    // Before the object, so that it is detached first.
    link: Option<BpfLink>,
    loaded: Loaded,
    name: &'static str,
}

impl XdpProgram {
    /// The program that carries the name of its object.
    pub(super) fn new(loaded: Loaded) -> Self {
        let name = loaded.name();
        XdpProgram::named(loaded, name)
    }

    pub(super) fn named(loaded: Loaded, name: &'static str) -> Self {
        XdpProgram { link: None, loaded, name }
    }

    pub(super) fn map(&self, name: &'static str) -> Result<Map, BpfError> {
        self.loaded.map(name)
    }

    pub(super) fn attach(&mut self, ifindex: u32, mode: XdpMode) -> Result<(), BpfError> {
        self.attach_by(self.name, |program, name| BpfLink::xdp(program, name, ifindex, mode))
    }

    /// Attaches another program of the object, which sees the socket buffers that an interface receives.
    pub(super) fn attach_tcx(&mut self, name: &'static str, ifindex: u32) -> Result<(), BpfError> {
        self.attach_by(name, |program, name| BpfLink::tcx(program, name, ifindex, Tcx::Ingress))
    }

    fn attach_by(
        &mut self,
        name: &'static str,
        link: impl FnOnce(BorrowedFd<'_>, &'static str) -> Result<BpfLink, BpfError>,
    ) -> Result<(), BpfError> {
        if let Some(link) = &self.link {
            return Err(BpfError::InUse { interface: link.interface.clone() });
        }
        self.link = Some(link(self.loaded.program(name)?.as_fd(), name)?);
        Ok(())
    }

    pub(super) fn detach(&mut self) {
        self.link = None;
    }
}

fn create(
    program: BorrowedFd<'_>,
    ifindex: u32,
    kind: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> io::Result<BpfLink> {
    let target = i32::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: `options` lives through the call and says its own size.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), target, kind, &raw const options)
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the call returned a new descriptor without another owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(BpfLink { fd, interface: Interface::read(ifindex) })
}

fn xdp_error(name: &'static str, ifindex: u32, mode: XdpMode, source: io::Error) -> BpfError {
    let interface = Interface::read(ifindex);
    let native = mode == XdpMode::Native;
    match source.raw_os_error() {
        // XDP returns EINVAL for an unknown index.
        Some(libc::EINVAL) if interface.is_unknown() => BpfError::NoInterface { ifindex, source },
        // EEXIST: a program in the other mode.
        Some(libc::EBUSY | libc::EEXIST) => {
            let program = AttachedProgram::on(ifindex).map(Box::new);
            BpfError::AlreadyAttached { interface, program, source }
        }
        // veth returns ERANGE, most drivers EINVAL; no other argument can be invalid.
        Some(libc::ERANGE | libc::EINVAL) if native => BpfError::MtuTooBig { interface, source },
        Some(libc::ENOSPC) if native => BpfError::TooFewQueues { interface, source },
        Some(libc::EOPNOTSUPP) => BpfError::ModeUnsupported { interface, mode, source },
        _ => attach_error(name, ifindex, source),
    }
}

fn attach_error(name: &'static str, ifindex: u32, source: io::Error) -> BpfError {
    match source.raw_os_error() {
        Some(libc::ENODEV) => BpfError::NoInterface { ifindex, source },
        Some(libc::EPERM) => match missing_on_host(&[Capability::Bpf, Capability::NetAdmin]) {
            Some(missing) => {
                BpfError::Permission { what: format!("attaching `{name}`"), missing, source }
            }
            None => BpfError::Attach { program: name, interface: Interface::read(ifindex), source },
        },
        _ => BpfError::Attach { program: name, interface: Interface::read(ifindex), source },
    }
}
