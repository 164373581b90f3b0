//! Bridges: their querier and the addresses behind their ports.

use netlink_bindings::rt_link::{self, Ifinfomsg, LinkinfoDataMsg};
use netlink_bindings::rt_neigh;

use super::error::{NetError, ask};
use super::link::Mac;

/// True if a bridge knows a querier of IGMP or MLD: itself or another.
pub fn bridge_has_querier(index: u32) -> Result<bool, NetError> {
    ask(format!("reading bridge {index}"), |socket| {
        let header = Ifinfomsg { ifi_index: index as i32, ..Ifinfomsg::new() };
        let request = rt_link::Request::new().op_getlink_do(&header);
        let mut reply = socket.request(&request)?;
        let (_, attributes) = reply.recv_one()?;
        let info = attributes.get_linkinfo()?;
        let Ok(LinkinfoDataMsg::Bridge(bridge)) = info.get_data() else { return Ok(false) };
        // It is empty while none is known.
        Ok(bridge.get_mcast_querier_state().is_ok_and(|state| !state.is_empty()))
    })
}

/// Most entries that are read.
const ENTRIES_MAX: usize = 100_000;

/// Addresses that bridges learnt, each with the index of its port.
pub fn bridge_neighbours() -> Result<Vec<(u32, Mac)>, NetError> {
    ask("listing the addresses behind bridges", |socket| {
        let header = rt_neigh::Ndmsg { ndm_family: libc::AF_BRIDGE as u8, ..Default::default() };
        let request = rt_neigh::Request::new().op_getneigh_dump(&header);
        let mut replies = socket.request(&request)?;
        let mut learnt = Vec::new();
        while let Some((header, attributes)) = replies.recv().transpose()? {
            // Addresses of the ports themselves are permanent.
            let is_learnt = header.ndm_state & rt_neigh::NudState::Permanent as u16 == 0;
            let mac = attributes.get_lladdr().ok().and_then(|bytes| bytes.try_into().ok());
            if let (true, Some(mac), true) = (is_learnt, mac, learnt.len() < ENTRIES_MAX) {
                learnt.push((header.ndm_ifindex as u32, mac));
            }
        }
        Ok(learnt)
    })
}
