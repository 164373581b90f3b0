//! A TAP interface that any virtual machine attaches to by its name.

use std::fs;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use host::net::{self, Mac};
use sys::netns::Netns;
use sys::tap::Tap;

use super::LabError;
use super::end::{PREFIX, quiet_netns};

/// Time limit for a machine to attach to its interface.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of requests for an unknown neighbour, milliseconds: a guest that starts is asked until it answers.
const ARP_INTERVAL_MS: &str = "50";

/// An interface in a namespace of its own, in which a virtual machine runs or once ran. It is removed with the namespace.
#[derive(Debug)]
pub struct TapPort {
    pub netns: Netns,
    pub ifname: String,
    ifindex: u32,
}

impl TapPort {
    /// Creates the namespace and the interface.
    ///
    /// Needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
    pub fn new(ifname: &str) -> Result<Self, LabError> {
        TapPort::within(quiet_netns()?, ifname)
    }

    /// Creates another interface in the same namespace.
    pub fn beside(&self, ifname: &str) -> Result<Self, LabError> {
        TapPort::within(self.netns.try_clone()?, ifname)
    }

    fn within(netns: Netns, ifname: &str) -> Result<Self, LabError> {
        let ifindex = netns.run(|| {
            Tap::create_lasting(ifname).map_err(|source| LabError::Tap { source })?;
            let link = net::link_named(ifname)?;
            net::set_up(link.index, true)?;
            Ok::<_, LabError>(link.index)
        })??;
        Ok(TapPort { netns, ifname: ifname.to_owned(), ifindex })
    }

    /// Assigns an address of a /24, and a router for other networks.
    pub fn configure(&self, ip: Ipv4Addr, gateway: Option<Ipv4Addr>) -> Result<(), LabError> {
        self.netns.run(|| {
            let path = format!("/proc/sys/net/ipv4/neigh/{}/retrans_time_ms", self.ifname);
            fs::write(&path, ARP_INTERVAL_MS)
                .map_err(|source| LabError::Sysctl { path, source })?;
            net::add_address(self.ifindex, ip, PREFIX)?;
            if let Some(gateway) = gateway {
                net::add_default_route(gateway)?;
            }
            Ok(())
        })?
    }

    /// Enters the address of a guest's card, so that frames are sent to it before it can answer a request for it.
    pub fn set_neighbour(&self, ip: Ipv4Addr, mac: Mac) -> Result<(), LabError> {
        Ok(self.netns.run(|| net::set_neighbour(self.ifindex, ip, mac))??)
    }

    /// Waits until a machine has attached, and moves the interface to a namespace of its own.
    ///
    /// Errors: no machine has, within ten seconds.
    pub fn move_out(self) -> Result<Self, LabError> {
        let deadline = Instant::now() + ATTACH_TIMEOUT;
        while !self.netns.run(|| net::link(self.ifindex))??.has_carrier {
            if Instant::now() > deadline {
                return Err(LabError::NotAttached { ifname: self.ifname });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let netns = quiet_netns()?;
        self.netns.run(|| net::move_to(self.ifindex, &netns))??;
        let ifindex = netns.run(|| {
            let link = net::link_named(&self.ifname)?;
            net::set_up(link.index, true)?;
            Ok::<_, LabError>(link.index)
        })??;
        Ok(TapPort { netns, ifname: self.ifname, ifindex })
    }

    /// Frames sent and received by the host so far.
    pub fn frame_count(&self) -> Result<u64, LabError> {
        let counters = self.netns.run(net::link_counters)??;
        let own = counters.into_iter().filter(|(ifname, _, _)| *ifname == self.ifname);
        let frames = own.filter(|(_, name, _)| ["rx_packets", "tx_packets"].contains(name));
        Ok(frames.map(|(_, _, count)| count).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_cross_a_port_that_was_moved_after_a_program_attached() {
        let port = TapPort::new("wp-tap0").expect("the test runs as root");
        let other = port.beside("wp-tap1").unwrap();
        let machine = port.netns.run(|| Tap::new("wp-tap1")).unwrap().unwrap();
        let moved = other.move_out().unwrap();
        let (near, guest) = (Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2));
        moved.configure(near, None).unwrap();
        moved.set_neighbour(guest, [2, 0, 0, 0, 0, 9]).unwrap();
        let socket = moved.netns.run(|| std::net::UdpSocket::bind((near, 0))).unwrap().unwrap();
        socket.send_to(b"hello", (guest, 9)).unwrap();
        let mut frame = [0; 2048];
        let len = (0..1000)
            .find_map(|_| {
                std::thread::sleep(Duration::from_millis(1));
                machine.read(&mut frame).ok()
            })
            .unwrap();
        assert_eq!((&frame[..6], &frame[len - 5..len]), (&[2, 0, 0, 0, 0, 9][..], &b"hello"[..]));
        assert_eq!(moved.frame_count().unwrap(), 1);
    }
}
