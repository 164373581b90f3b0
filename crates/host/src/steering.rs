//! Which CPUs do an interface's work: receive steering (RPS), transmit steering (XPS) and
//! NAPI in threads. Each guard puts back what it found when it is dropped.
//!
//! Source: the kernel's Documentation/networking/scaling.rst and napi.rst.

use std::io;

use sys::netns::Netns;
use sys::sysfs::{Sysfs, SysfsError};
use thiserror::Error;

/// Why steering could not be read or changed.
#[derive(Debug, Error)]
pub enum SteeringError {
    /// The kernel or the interface does not offer it.
    #[error("{what} is not supported here: {needs}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// What it takes.
        needs: &'static str,
    },
    /// The interface has no such queue, or is not there.
    #[error("{interface} has no queue for {what}: is the interface there?")]
    NoQueue {
        /// Interface.
        interface: String,
        /// What was asked for.
        what: &'static str,
    },
    /// The kernel's mask of CPUs could not be understood.
    #[error("cannot understand {text:?} as a mask of CPUs")]
    Mask {
        /// What was read.
        text: String,
    },
    /// Reading or writing failed.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
}

/// CPUs to which receive queue `queue` spreads its packets; empty when it does not.
pub fn rps_cpus(sysfs: &Sysfs, interface: &str, queue: u32) -> Result<Vec<usize>, SteeringError> {
    parse_mask(&sysfs.read(format!("class/net/{interface}/queues/rx-{queue}/rps_cpus"))?)
}

/// CPUs that send by transmit queue `queue`; empty when the kernel chooses by flow.
pub fn xps_cpus(sysfs: &Sysfs, interface: &str, queue: u32) -> Result<Vec<usize>, SteeringError> {
    let path = format!("class/net/{interface}/queues/tx-{queue}/xps_cpus");
    let text = sysfs.read(path).map_err(|error| one_queue_alone(error, interface))?;
    parse_mask(&text)
}

/// Receive packet steering on all receive queues of an interface, until dropped.
#[derive(Debug)]
#[must_use = "steering ends when the guard is dropped"]
pub struct RpsGuard(Restore);

impl RpsGuard {
    /// Spreads what every receive queue takes over `cpus`, by flow.
    ///
    /// - `cpus`: empty to switch steering off. The kernel leaves out CPUs that are isolated.
    pub fn set(netns: &Netns, interface: &str, cpus: &[usize]) -> Result<Self, SteeringError> {
        let mut restore = Restore::new(netns)?;
        for queue in queues(&restore.sysfs, interface, "rx")? {
            let path = format!("class/net/{interface}/queues/{queue}/rps_cpus");
            restore.write(path, &mask(cpus))?;
        }
        Ok(RpsGuard(restore))
    }

    /// Puts back what was there, and says so if that fails.
    pub fn restore(self) -> Result<(), SteeringError> {
        self.0.restore()
    }
}

/// Transmit packet steering on all transmit queues of an interface, until dropped.
#[derive(Debug)]
#[must_use = "steering ends when the guard is dropped"]
pub struct XpsGuard(Restore);

impl XpsGuard {
    /// Has each transmit queue used by the CPUs given for it.
    ///
    /// - `cpus_of_queue`: one list a queue, from queue 0; queues beyond it are left alone.
    pub fn set(
        netns: &Netns,
        interface: &str,
        cpus_of_queue: &[&[usize]],
    ) -> Result<Self, SteeringError> {
        let mut restore = Restore::new(netns)?;
        let present = queues(&restore.sysfs, interface, "tx")?.len();
        if cpus_of_queue.len() > present {
            let interface = interface.to_owned();
            return Err(SteeringError::NoQueue { interface, what: "every list of CPUs (XPS)" });
        }
        for (queue, cpus) in cpus_of_queue.iter().enumerate() {
            let path = format!("class/net/{interface}/queues/tx-{queue}/xps_cpus");
            restore.write(path, &mask(cpus)).map_err(|error| match error {
                SteeringError::Sysfs(error) => one_queue_alone(error, interface),
                error => error,
            })?;
        }
        Ok(XpsGuard(restore))
    }

    /// Puts back what was there, and says so if that fails.
    pub fn restore(self) -> Result<(), SteeringError> {
        self.0.restore()
    }
}

/// NAPI of an interface in kernel threads of its own, until dropped.
#[derive(Debug)]
#[must_use = "threaded NAPI ends when the guard is dropped"]
pub struct ThreadedNapiGuard(Restore);

impl ThreadedNapiGuard {
    /// Moves the interface's NAPI out of softirq into threads (or back, with `on` false).
    ///
    /// A veth has NAPI only while GRO is on or an XDP program is attached.
    pub fn set(netns: &Netns, interface: &str, on: bool) -> Result<Self, SteeringError> {
        let mut restore = Restore::new(netns)?;
        let path = format!("class/net/{interface}/threaded");
        let written = restore.write(path, if on { "1" } else { "0" });
        written.map_err(|error| match error {
            SteeringError::Sysfs(SysfsError::Write { source, .. })
                if source.raw_os_error() == Some(libc::EOPNOTSUPP) =>
            {
                SteeringError::Unsupported {
                    what: format!("threaded NAPI on {interface}"),
                    needs: "a driver with NAPI; on a veth, switch GRO on or attach XDP first",
                }
            }
            error => error,
        })?;
        Ok(ThreadedNapiGuard(restore))
    }

    /// Puts back what was there, and says so if that fails.
    pub fn restore(self) -> Result<(), SteeringError> {
        self.0.restore()
    }
}

/// Files written, with what they held before; undone in reverse.
#[derive(Debug)]
struct Restore {
    sysfs: Sysfs,
    before: Vec<(String, String)>,
}

impl Restore {
    fn new(netns: &Netns) -> Result<Self, SteeringError> {
        Ok(Restore { sysfs: Sysfs::of(netns)?, before: Vec::new() })
    }

    /// On an error, what was written so far is undone by the drop.
    fn write(&mut self, path: String, value: &str) -> Result<(), SteeringError> {
        let before = self.sysfs.read(&path)?;
        self.sysfs.write(&path, value)?;
        self.before.push((path, before));
        Ok(())
    }

    fn restore(mut self) -> Result<(), SteeringError> {
        self.undo()
    }

    /// Undoes all it can and returns the first error. An interface that is gone took its
    /// settings along.
    fn undo(&mut self) -> Result<(), SteeringError> {
        let mut outcome = Ok(());
        while let Some((path, value)) = self.before.pop() {
            match self.sysfs.write(&path, &value) {
                Err(SysfsError::Write { source, .. }) if is_gone(&source) => {}
                Err(error) if outcome.is_ok() => outcome = Err(error.into()),
                _ => {}
            }
        }
        outcome
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        // Who wants to know calls `restore`.
        let _reported_by_restore = self.undo();
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

fn queues(
    sysfs: &Sysfs,
    interface: &str,
    direction: &'static str,
) -> Result<Vec<String>, SteeringError> {
    let names = match sysfs.list(format!("class/net/{interface}/queues")) {
        Err(SysfsError::Read { source, .. }) if is_gone(&source) => Vec::new(),
        names => names?,
    };
    let queues: Vec<_> = names.into_iter().filter(|name| name.starts_with(direction)).collect();
    if queues.is_empty() {
        let what = if direction == "rx" { "receive steering (RPS)" } else { "transmit steering" };
        return Err(SteeringError::NoQueue { interface: interface.to_owned(), what });
    }
    Ok(queues)
}

/// With one transmit queue there is nothing to steer, and the kernel says "not found".
fn one_queue_alone(error: SysfsError, interface: &str) -> SteeringError {
    match &error {
        SysfsError::Read { source, .. } | SysfsError::Write { source, .. } if is_gone(source) => {
            SteeringError::Unsupported {
                what: format!("transmit steering (XPS) on {interface}"),
                needs: "at least two transmit queues",
            }
        }
        _ => error.into(),
    }
}

/// Writes CPUs as the kernel's mask: 32 bits a word in hexadecimal, highest first.
fn mask(cpus: &[usize]) -> String {
    let words = cpus.iter().max().map_or(1, |last| last / 32 + 1);
    let word = |number: usize| {
        cpus.iter()
            .filter(|&&cpu| cpu / 32 == number)
            .fold(0_u32, |word, cpu| word | 1 << (cpu % 32))
    };
    let words: Vec<_> = (0..words).rev().map(|number| format!("{:08x}", word(number))).collect();
    words.join(",")
}

fn parse_mask(text: &str) -> Result<Vec<usize>, SteeringError> {
    let mut cpus = Vec::new();
    for (number, word) in text.trim().rsplit(',').enumerate() {
        let word = u32::from_str_radix(word, 16)
            .map_err(|_| SteeringError::Mask { text: text.to_owned() })?;
        cpus.extend((0..32).filter(|bit| word >> bit & 1 == 1).map(|bit| number * 32 + bit));
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_written_as_the_kernel_reads_it() {
        assert_eq!(mask(&[]), "00000000");
        assert_eq!(mask(&[1, 0]), "00000003");
        assert_eq!(mask(&[33, 4]), "00000002,00000010");
    }

    #[test]
    fn a_mask_comes_back_as_its_cpus() {
        for cpus in [vec![], vec![0], vec![0, 1, 31], vec![4, 33, 95]] {
            assert_eq!(parse_mask(&mask(&cpus)).unwrap(), cpus);
        }
        assert_eq!(parse_mask("3").unwrap(), [0, 1]);
        assert!(matches!(parse_mask("3,x"), Err(SteeringError::Mask { .. })));
        assert!(parse_mask("").is_err());
    }
}
