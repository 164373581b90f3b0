//! Notification of changes: an interface that goes down or is deleted, which a receive ring does not
//! report; routes and neighbours.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use netlink_bindings::builtin::Nlmsghdr;
use netlink_bindings::rt_link::OpGetlinkDo;
use netlink_bindings::traits::NetlinkRequest;
use sys::netns::Netns;
use sys::socket;

use super::error::NetError;
use super::link::{Link, link};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEvent {
    /// The interface was set down or lost its carrier.
    Down,
    /// It carries traffic again.
    Up,
    /// It was deleted or moved to another namespace. No event follows.
    Deleted,
    /// Another property changed: MTU, MAC address, an XDP program, its queues.
    Changed,
}

/// Watches one interface of the namespace in which it was created; usable from any thread.
///
/// [`LinkWatch::poll`] never blocks; the descriptor can be polled.
#[derive(Debug)]
pub struct LinkWatch {
    socket: File,
    /// For reading the state from the polling thread.
    netns: Netns,
    index: u32,
    name: String,
    is_running: bool,
    is_deleted: bool,
    /// Messages of the last read, and the position of the next one.
    buffer: Box<[u8; BUFFER_BYTES]>,
    filled: usize,
    read: usize,
}

/// A message about a link with many features has about 1.5 KiB.
const BUFFER_BYTES: usize = 32 * 1024;

impl LinkWatch {
    /// Starts watching; later changes are reported.
    pub fn new(index: u32) -> Result<Self, NetError> {
        let failed = |source| NetError::Io { what: format!("watching interface {index}"), source };
        let socket = listen(&[libc::RTNLGRP_LINK]).map_err(failed)?;
        let netns = Netns::current().map_err(|error| failed(io::Error::other(error)))?;
        // After joining the group, so that no change is missed.
        let Link { name, is_running, .. } = link(index)?;
        Ok(LinkWatch {
            socket,
            netns,
            index,
            name,
            is_running,
            is_deleted: false,
            buffer: Box::new([0; BUFFER_BYTES]),
            filled: 0,
            read: 0,
        })
    }

    /// Returns the next event, or `None` if there is none.
    ///
    /// If the kernel dropped messages because the buffer was full, the state is read again, so that
    /// the final state is never missed.
    pub fn poll(&mut self) -> Result<Option<LinkEvent>, NetError> {
        loop {
            while let Some((kind, payload)) = self.next_message() {
                if let Some(event) = self.judge(kind, payload) {
                    return Ok(Some(event));
                }
            }
            self.read = 0;
            self.filled = 0;
            match self.socket.read(&mut self.buffer[..]) {
                Ok(filled) => self.filled = filled,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    return self.look_again();
                }
                Err(source) => {
                    let what = format!("watching interface {}", self.index);
                    return Err(NetError::Io { what, source });
                }
            }
        }
    }

    /// Returns the original name of the interface if it has left the namespace; other events are
    /// discarded.
    pub fn gone(&mut self) -> Option<&str> {
        while let Ok(Some(_)) = self.poll() {}
        self.is_deleted.then_some(&self.name)
    }

    /// Type and place of the next message in the buffer.
    fn next_message(&mut self) -> Option<(u16, std::ops::Range<usize>)> {
        let start = self.read;
        let header = self.buffer[start..self.filled].get(..Nlmsghdr::len())?;
        let header = Nlmsghdr::new_from_slice(header)?;
        let end = start.checked_add(header.len as usize).filter(|&end| end <= self.filled)?;
        let payload = start + Nlmsghdr::len()..end;
        self.read = end.next_multiple_of(4).min(self.filled);
        (payload.start <= payload.end).then_some((header.r#type, payload))
    }

    fn judge(&mut self, kind: u16, payload: std::ops::Range<usize>) -> Option<LinkEvent> {
        let (header, _) = OpGetlinkDo::decode_reply(&self.buffer[payload]);
        if header.ifi_index as u32 != self.index || self.is_deleted {
            return None;
        }
        // Bridges announce their ports under the same type with their own family.
        if header.ifi_family != libc::AF_UNSPEC as u8 {
            return None;
        }
        match kind {
            libc::RTM_DELLINK => {
                self.is_deleted = true;
                Some(LinkEvent::Deleted)
            }
            libc::RTM_NEWLINK => {
                Some(self.compare(header.ifi_flags & libc::IFF_RUNNING as u32 != 0))
            }
            _ => None,
        }
    }

    fn compare(&mut self, is_running: bool) -> LinkEvent {
        let was_running = std::mem::replace(&mut self.is_running, is_running);
        match (was_running, is_running) {
            (true, false) => LinkEvent::Down,
            (false, true) => LinkEvent::Up,
            _ => LinkEvent::Changed,
        }
    }

    fn look_again(&mut self) -> Result<Option<LinkEvent>, NetError> {
        let index = self.index;
        let looked = self.netns.run(|| link(index)).map_err(|error| NetError::Io {
            what: format!("watching interface {index}"),
            source: io::Error::other(error),
        })?;
        match looked {
            Ok(link) => Ok(Some(self.compare(link.is_running))),
            Err(NetError::NoInterface { .. }) => {
                Ok((!std::mem::replace(&mut self.is_deleted, true)).then_some(LinkEvent::Deleted))
            }
            Err(error) => Err(error),
        }
    }
}

/// A socket that receives the kernel's notifications of these groups.
fn listen(groups: &[u32]) -> io::Result<File> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
    let socket = socket::open(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE)?;
    for group in groups {
        let join = libc::NETLINK_ADD_MEMBERSHIP;
        socket::set_int(socket.as_fd(), libc::SOL_NETLINK, join, *group as i32)?;
    }
    let mut socket = File::from(socket);
    // A socket without a port gets no notifications. Sending assigns one, and the kernel ignores
    // an empty message.
    let nothing = Nlmsghdr {
        len: Nlmsghdr::len() as u32,
        r#type: libc::NLMSG_NOOP as u16,
        ..Nlmsghdr::new()
    };
    socket.write_all(nothing.as_slice())?;
    Ok(socket)
}

/// Reports that a neighbour, a route or an interface of the namespace in which it was created has changed. The
/// descriptor can be polled.
#[derive(Debug)]
pub struct ChangeWatch {
    socket: File,
}

impl ChangeWatch {
    /// Reads of one call at most; the rest is left for the next.
    const READS_MAX: usize = 64;

    /// Starts watching; later changes are reported.
    pub fn new() -> Result<Self, NetError> {
        let groups = [
            libc::RTNLGRP_NEIGH,
            libc::RTNLGRP_IPV4_ROUTE,
            libc::RTNLGRP_IPV6_ROUTE,
            libc::RTNLGRP_LINK,
        ];
        let what = "watching routes and neighbours".to_owned();
        let socket = listen(&groups).map_err(|source| NetError::Io { what, source })?;
        Ok(ChangeWatch { socket })
    }

    /// True if there was a change since the last call; never blocks. Messages that the kernel dropped
    /// count as changes.
    pub fn has_changed(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let mut has_changed = false;
        for _ in 0..Self::READS_MAX {
            match self.socket.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => has_changed = true,
            }
        }
        has_changed
    }
}

impl AsFd for ChangeWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsFd for LinkWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
