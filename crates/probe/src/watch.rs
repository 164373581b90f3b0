//! Watches the interface of a running role: poll(2) does not report a dead link.

use std::time::{Duration, Instant};

use host::net::{self, LinkEvent, LinkWatch};

/// Time for which a link may be down before a run fails.
const DOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that a link may need which its driver has reset for an XDP program: igb takes 3 s.
const RESET_TIMEOUT: Duration = Duration::from_secs(5);

/// Detects an interface that goes down or is removed.
#[derive(Debug)]
pub struct InterfaceWatch {
    link: LinkWatch,
    ifname: String,
    down_since: Option<Instant>,
    /// Times the link went down and came back.
    pub flap_count: u64,
}

impl InterfaceWatch {
    /// Watches an interface in the calling thread's network namespace. Waits for its carrier: the system-call filter of a
    /// peer keeps an engine from asking the driver.
    pub fn new(ifindex: u32, ifname: &str) -> Option<Self> {
        let begun = Instant::now();
        while begun.elapsed() < RESET_TIMEOUT
            && net::link(ifindex).is_ok_and(|link| link.is_up && !link.has_carrier)
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        let link = LinkWatch::new(ifindex).ok()?;
        // A link that is already down causes no event, and an AF_XDP socket opened on it would wait
        // forever.
        let is_down = net::link(ifindex).is_ok_and(|link| !link.is_running);
        let down_since = is_down.then(Instant::now);
        Some(InterfaceWatch { link, ifname: ifname.to_owned(), down_since, flap_count: 0 })
    }

    /// Errors: the interface was removed, or has been down for two seconds. Cheap without events; a
    /// link that recovers is only counted.
    pub fn check(&mut self) -> Result<(), io::IoError> {
        while let Ok(Some(event)) = self.link.poll() {
            match event {
                LinkEvent::Deleted => {
                    return Err(io::IoError::Gone { ifname: self.ifname.clone() });
                }
                LinkEvent::Down => {
                    self.down_since.get_or_insert_with(Instant::now);
                }
                LinkEvent::Up => {
                    self.flap_count += u64::from(self.down_since.take().is_some());
                }
                LinkEvent::Changed => {}
            }
        }
        match self.down_since {
            Some(since) if since.elapsed() > DOWN_TIMEOUT => {
                Err(io::IoError::LinkDown { ifname: self.ifname.clone() })
            }
            _ => Ok(()),
        }
    }
}
