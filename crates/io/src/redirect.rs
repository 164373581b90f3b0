//! XDP program in front of AF_XDP sockets: our own, or one that is attached already.

use std::os::fd::BorrowedFd;
use std::path::Path;

use sys::bpf::{
    AttachedProgram, FEED_GROUPS_MAX, FilterCounts, PinnedSocketMap, SocketFilter, XdpMode,
};

use crate::error::IoError;

/// Passes frames to AF_XDP sockets by their queue.
#[derive(Debug)]
pub(crate) enum Redirect {
    /// Chooses the frames itself and counts them.
    Own(SocketFilter),
    /// Program of another process, which chooses the frames; sockets go into its pinned map.
    Pinned { map: PinnedSocketMap, program: Option<AttachedProgram> },
}

impl Redirect {
    /// The program of the pinned map if a path is given, the one of `load` otherwise. Neither has sockets yet.
    pub(crate) fn open(
        pinned: Option<&Path>,
        load: impl FnOnce() -> Result<SocketFilter, IoError>,
    ) -> Result<Self, IoError> {
        Ok(match pinned {
            Some(path) => Redirect::Pinned { map: PinnedSocketMap::open(path)?, program: None },
            None => Redirect::Own(load()?),
        })
    }

    /// Lets frames of an interface into bound sockets, each with its queue. `mode` is of our own program.
    ///
    /// A program detaches on drop. Sockets leave a pinned map when they close.
    pub(crate) fn start<'a>(
        &mut self,
        ifindex: u32,
        mode: XdpMode,
        sockets: impl IntoIterator<Item = (u32, BorrowedFd<'a>)>,
    ) -> Result<(), IoError> {
        match self {
            Redirect::Own(filter) => {
                for (queue, socket) in sockets {
                    filter.insert_socket(queue, socket)?;
                }
                filter.attach(ifindex, mode)?;
            }
            Redirect::Pinned { map, program } => {
                *program = Some(map.program_on(ifindex)?);
                for (queue, socket) in sockets {
                    map.insert_socket(queue, socket)?;
                }
            }
        }
        Ok(())
    }

    /// The program, for a report; `None` for our own.
    pub(crate) fn program(&self) -> Option<String> {
        let Redirect::Pinned { map, program } = self else { return None };
        let program = program.as_ref()?;
        let name = program.name.as_deref().unwrap_or("?");
        Some(format!("{name} (id {}), through {}", program.id, map.path().display()))
    }

    /// Counters of our own program; `None` if they cannot be read, or it is another's.
    pub(crate) fn counts(&self) -> Option<FilterCounts> {
        match self {
            Redirect::Own(filter) => filter.counts().ok(),
            Redirect::Pinned { .. } => None,
        }
    }

    /// As [`Self::counts`], of the datagrams of each group.
    pub(crate) fn redirected_by_group(&self) -> Option<[u64; FEED_GROUPS_MAX]> {
        match self {
            Redirect::Own(filter) => filter.redirected_by_group().ok(),
            Redirect::Pinned { .. } => None,
        }
    }
}
