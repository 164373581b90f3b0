//! Map of AF_XDP sockets of a program that another process attached, opened by its pin.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use super::attached::AttachedProgram;
use super::error::BpfError;
use super::interface::Interface;
use super::object::to_io;

/// An XSKMAP with sockets by queue, pinned in a bpffs.
#[derive(Debug)]
pub struct PinnedSocketMap {
    map: MapHandle,
    path: PathBuf,
}

impl PinnedSocketMap {
    /// Opens the map pinned at `path`.
    ///
    /// # Errors
    /// [`BpfError::PinnedMap`] if nothing is pinned there, it may not be opened, or it is no XSKMAP with keys
    /// and values of 4 bytes.
    pub fn open(path: &Path) -> Result<Self, BpfError> {
        let wrong = |why: String| BpfError::PinnedMap { path: path.into(), why, source: None };
        // The kernel says "permission denied" of a file that is not pinned.
        let found = fs::metadata(path).map_err(|source| BpfError::PinnedMap {
            path: path.into(),
            why: "cannot be opened".into(),
            source: Some(source),
        })?;
        if !found.is_file() || path.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(wrong("is not a pinned map".into()));
        }
        let map = MapHandle::from_pinned_path(path).map_err(|why| BpfError::PinnedMap {
            path: path.into(),
            why: "cannot be opened as a pinned map by this process (root, or CAP_BPF and the rights of \
                  the file; it lies in a bpffs, such as /sys/fs/bpf)"
                .into(),
            source: Some(to_io(why)),
        })?;
        // A pinned program or link opens as well.
        let kind = fs::read_link(format!("/proc/self/fd/{}", map.as_fd().as_raw_fd()));
        if kind.is_ok_and(|kind| kind.as_os_str() != "anon_inode:bpf-map") {
            return Err(wrong("is not a map: a program or a link is pinned there".into()));
        }
        if map.map_type() != MapType::Xskmap {
            return Err(wrong(format!("is a map of type {:?}, not an XSKMAP", map.map_type())));
        }
        if (map.key_size(), map.value_size()) != (4, 4) {
            let (key, value) = (map.key_size(), map.value_size());
            return Err(wrong(format!(
                "has keys of {key} and values of {value} bytes; a map of sockets by queue has 4 and 4"
            )));
        }
        Ok(PinnedSocketMap { map, path: path.into() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Program that is attached to an interface, in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`BpfError::NoProgram`] if there is none: the map would stay without frames.
    pub fn program_on(&self, ifindex: u32) -> Result<AttachedProgram, BpfError> {
        AttachedProgram::on(ifindex).ok_or_else(|| BpfError::NoProgram {
            interface: Interface::read(ifindex),
            path: self.path.clone(),
        })
    }

    /// Assigns a bound AF_XDP socket to a queue. The kernel removes the entry when the socket closes, which
    /// happens however the process ends; no other entry is touched.
    ///
    /// Source: xsk_delete_from_maps in net/xdp/xsk.c.
    ///
    /// # Errors
    /// [`BpfError::PinnedMap`] if the map has no such queue, or may not be written; [`BpfError::QueueTaken`] if
    /// the queue has a socket.
    pub fn insert_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), BpfError> {
        let entries = self.map.max_entries();
        if queue >= entries {
            return Err(BpfError::PinnedMap {
                path: self.path.clone(),
                why: format!("has {entries} entries, none for queue {queue}; name a queue with -q"),
                source: None,
            });
        }
        let value = socket.as_raw_fd().to_ne_bytes();
        let inserted = self.map.update(&queue.to_ne_bytes(), &value, MapFlags::NO_EXIST);
        inserted.map_err(|why| match why.kind() {
            libbpf_rs::ErrorKind::AlreadyExists => {
                BpfError::QueueTaken { path: self.path.clone(), queue }
            }
            _ => BpfError::PinnedMap {
                path: self.path.clone(),
                why: format!("did not take the socket of queue {queue}"),
                source: Some(to_io(why)),
            },
        })
    }
}
