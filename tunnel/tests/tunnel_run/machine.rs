//! A virtual machine behind the port's TAP device, as the forwarder sees it: its sockets send with every offload
//! through a TAP device of their own, and a relay in its place moves frames with what was left to a device.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sys::tap::{OFFLOAD_HEADER_BYTES, Tap};

use super::*;

/// Both devices, until it is dropped.
pub(super) struct Machine {
    stop: Arc<AtomicBool>,
    relay: Option<JoinHandle<()>>,
}

impl Machine {
    /// Replaces the veth between the plain host and the forwarder's.
    pub(super) fn instead_of_the_veth(row: &Row) -> Machine {
        let [plain, ours, _] = &row.names;
        succeed(ip(&["-n", plain, "link", "delete", "hp"]));
        let tap = |space: &str, name: &str| {
            let made = row.space(space).run(|| Tap::new_offloaded(name));
            let made = made.expect("the namespace is there").expect("CAP_NET_ADMIN");
            let mtu = row.mtu.to_string();
            succeed(ip(&["-n", space, "link", "set", name, "mtu", &mtu, "up"]));
            made
        };
        let taps = [tap(plain, "hp"), tap(ours, "pa")];
        succeed(ip(&["-n", plain, "address", "add", &format!("{PLAIN_IP}/24"), "dev", "hp"]));
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = stop.clone();
        let relay = std::thread::spawn(move || {
            let mut bytes = vec![0; OFFLOAD_HEADER_BYTES + (1 << 16) + 64];
            while !is_over.load(Ordering::Relaxed) {
                let _ = sys::poll::readable(
                    &[taps[0].as_fd(), taps[1].as_fd()],
                    Duration::from_millis(50),
                );
                for (from, to) in [(&taps[0], &taps[1]), (&taps[1], &taps[0])] {
                    while let Ok(len) = from.read(&mut bytes) {
                        // A full queue drops, as that of a card does.
                        let _ = to.write(&bytes[..len]);
                    }
                }
            }
        });
        Machine { stop, relay: Some(relay) }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(relay) = self.relay.take() {
            let _ = relay.join();
        }
    }
}
