//! Receivers of all lines: a socket a line, or AF_XDP on each interface.

use std::os::fd::BorrowedFd;
use std::path::Path;

use host::net::{ethtool, link};
use io::multicast::{Group, GroupDatagram, GroupReceiver};
use io::{GroupPort, XdpGroups, XdpMode};
use sys::poll;

use super::error::ListenError;
use super::{ListenPlan, ReceiveBy};

#[derive(Debug)]
pub(super) enum Intake {
    Sockets(Vec<GroupReceiver>),
    /// Groups of one interface, and their lines.
    Xdp(Vec<(XdpGroups, Vec<usize>)>),
}

impl Intake {
    /// Joins the groups of a plan, in the calling thread's network namespace.
    pub(super) fn open(plan: &ListenPlan) -> Result<Self, ListenError> {
        Ok(match &plan.receive_by {
            ReceiveBy::Sockets => Intake::Sockets(
                plan.groups
                    .iter()
                    .map(|group| GroupReceiver::open(group, &plan.tuning))
                    .collect::<Result<_, _>>()?,
            ),
            ReceiveBy::Xdp { mode, xsk_map } => {
                Intake::Xdp(open_xdp(plan, *mode, xsk_map.as_deref())?)
            }
        })
    }

    /// Takes what has arrived, without waiting; returns the number of datagrams. `each` gets the line.
    pub(super) fn take(
        &mut self,
        each: &mut impl FnMut(usize, GroupDatagram<'_>),
    ) -> Result<usize, ListenError> {
        let mut taken = 0;
        match self {
            Intake::Sockets(receivers) => {
                for (line, receiver) in receivers.iter_mut().enumerate() {
                    taken += receiver.take(&mut |datagram| each(line, datagram))?;
                }
            }
            Intake::Xdp(ports) => {
                for (port, lines) in ports {
                    taken += port.take(&mut |group, datagram| each(lines[group], datagram));
                }
            }
        }
        Ok(taken)
    }

    /// Descriptors to wait on, at most `room`; the rest is left to the end of the wait.
    pub(super) fn fds(&self, room: usize) -> Vec<BorrowedFd<'_>> {
        let room = room.min(poll::FDS_MAX);
        match self {
            Intake::Sockets(receivers) => {
                receivers.iter().map(GroupReceiver::as_fd).take(room).collect()
            }
            Intake::Xdp(ports) => {
                ports.iter().flat_map(|(port, _)| port.fds()).take(room).collect()
            }
        }
    }

    /// Datagrams of a line that did not get here for lack of room.
    pub(super) fn dropped_count(&self, line: usize) -> u64 {
        match self {
            Intake::Sockets(receivers) => receivers[line].dropped_count(),
            Intake::Xdp(ports) => place(ports, line).map_or(0, |(port, at)| port.dropped_count(at)),
        }
    }

    /// System calls that received for a line; with AF_XDP those of its interface.
    pub(super) fn syscall_count(&self, line: usize) -> u64 {
        match self {
            Intake::Sockets(receivers) => receivers[line].syscall_count,
            Intake::Xdp(ports) => place(ports, line).map_or(0, |(port, _)| port.syscall_count()),
        }
    }

    /// Receive buffer of a line as the kernel counts it; 0 with AF_XDP, which has none.
    pub(super) fn receive_buffer_bytes(&self, line: usize) -> usize {
        match self {
            Intake::Sockets(receivers) => receivers[line].receive_buffer_bytes(),
            Intake::Xdp(_) => 0,
        }
    }
}

/// Port of a line, and its index there.
fn place(ports: &[(XdpGroups, Vec<usize>)], line: usize) -> Option<(&XdpGroups, usize)> {
    ports.iter().find_map(|(port, lines)| {
        let at = lines.iter().position(|known| *known == line)?;
        Some((port, at))
    })
}

/// One receiver an interface: it has one XDP program.
fn open_xdp(
    plan: &ListenPlan,
    mode: XdpMode,
    xsk_map: Option<&Path>,
) -> Result<Vec<(XdpGroups, Vec<usize>)>, ListenError> {
    let mut ports = Vec::new();
    for (line, group) in plan.groups.iter().enumerate() {
        let lines: Vec<usize> =
            (0..plan.groups.len()).filter(|at| plan.groups[*at].ifindex == group.ifindex).collect();
        if lines[0] != line {
            continue;
        }
        let groups: Vec<Group> = lines.iter().map(|at| plan.groups[*at].clone()).collect();
        let link = link(group.ifindex)?;
        let channels = ethtool::channels(group.ifindex).map(|channels| channels.rx_queues());
        let port = GroupPort {
            mtu_bytes: link.mtu_bytes,
            queues: channels.unwrap_or(link.rx_queue_count).max(1),
            mode,
            batch: plan.tuning.batch,
            xsk_map: xsk_map.map(Path::to_owned),
        };
        ports.push((XdpGroups::open(&groups, &port)?, lines));
    }
    Ok(ports)
}
