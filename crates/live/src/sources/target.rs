//! The service: its listening ports, its network namespace, and its processes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use host::netns::Netns;
use host::program::{
    listeners, own_group, owners, parent, process_of_unit, processes, socket_inodes,
};
use sys::bpf::SERVICE_PORTS_MAX;

use super::error::LiveError;

/// The service that is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Service {
    /// The listeners of a TCP port.
    Port(u16),
    /// A process and its descendants.
    Pid(u32),
    /// A unit of systemd.
    Unit(String),
}

/// A service as it was found.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) netns: Netns,
    pub(super) netns_inode: u32,
    /// Local ports of its TCP listeners.
    pub(super) ports: Vec<u16>,
    /// Processes that own a listener, or the one that was named.
    pub(super) roots: Vec<u32>,
    /// Control group of version 2 that holds the unit and nothing else.
    pub(super) cgroup: Option<PathBuf>,
}

impl Target {
    /// Finds a service.
    ///
    /// - `netns`: file of the network namespace of a port; `None` for that of the caller. A process has its own.
    ///
    /// Errors: it does not run, or has no TCP listener.
    pub(super) fn find(service: &Service, netns: Option<&Path>) -> Result<Target, LiveError> {
        match service {
            Service::Port(port) => {
                let netns = netns.map_or_else(Netns::current, Netns::open)?;
                let listeners = netns.run(|| listeners(Path::new("/proc/thread-self/net")))?;
                let own = listeners.into_iter().filter(|(_, found)| found == port);
                let inodes: BTreeSet<u64> = own.map(|(inode, _)| inode).collect();
                if inodes.is_empty() {
                    return Err(LiveError::NoListener { port: *port });
                }
                Target::new(netns, vec![*port], owners(&inodes), None)
            }
            Service::Pid(pid) => Target::at_process(*pid, None),
            Service::Unit(unit) => {
                let pid = process_of_unit(Path::new("/"), unit)?;
                Target::at_process(pid, own_group(pid))
            }
        }
    }

    /// Processes that own a listener of one of the ports now.
    pub(super) fn listening(netns: &Netns, ports: &[u16]) -> Result<Vec<u32>, LiveError> {
        let listeners = netns.run(|| listeners(Path::new("/proc/thread-self/net")))?;
        let own = listeners.into_iter().filter(|(_, found)| ports.contains(found));
        Ok(owners(&own.map(|(inode, _)| inode).collect()))
    }

    fn at_process(pid: u32, cgroup: Option<PathBuf>) -> Result<Target, LiveError> {
        let netns = Netns::open(format!("/proc/{pid}/ns/net"))?;
        let processes = with_descendants(&[pid]);
        let sockets: BTreeSet<u64> = processes.iter().flat_map(|pid| socket_inodes(*pid)).collect();
        let listeners = listeners(Path::new(&format!("/proc/{pid}/net")));
        let own = listeners.into_iter().filter(|(inode, _)| sockets.contains(inode));
        let ports: BTreeSet<u16> = own.map(|(_, port)| port).collect();
        if ports.is_empty() {
            return Err(LiveError::NoPort { pid });
        }
        if ports.len() > SERVICE_PORTS_MAX {
            return Err(LiveError::TooManyPorts { count: ports.len(), max: SERVICE_PORTS_MAX });
        }
        Target::new(netns, ports.into_iter().collect(), vec![pid], cgroup)
    }

    fn new(
        netns: Netns,
        ports: Vec<u16>,
        roots: Vec<u32>,
        cgroup: Option<PathBuf>,
    ) -> Result<Target, LiveError> {
        let netns_inode = netns.inode()? as u32;
        Ok(Target { netns, netns_inode, ports, roots, cgroup })
    }
}

/// Processes and all that descend from them, without ended ones.
pub(super) fn with_descendants(roots: &[u32]) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut next: Vec<u32> = roots.to_vec();
    let mut children = Children::default();
    while let Some(pid) = next.pop() {
        if found.insert(pid) {
            next.extend(children.listed(pid));
        }
    }
    found
}

/// Children of processes: by the kernel's own list, or by the parents of all processes where it keeps none.
#[derive(Default)]
struct Children {
    by_parent: Option<Vec<(u32, u32)>>,
}

impl Children {
    fn listed(&mut self, pid: u32) -> Vec<u32> {
        if let Some(by_parent) = &self.by_parent {
            return by_parent
                .iter()
                .filter(|(parent, _)| *parent == pid)
                .map(|(_, pid)| *pid)
                .collect();
        }
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut found = Vec::new();
        for thread in threads {
            match fs::read_to_string(thread.path().join("children")) {
                Ok(list) => found.extend(
                    list.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()),
                ),
                // A thread may have ended; without CONFIG_PROC_CHILDREN no thread has the file.
                Err(_) if Path::new("/proc/thread-self/children").exists() => {}
                Err(_) => {
                    let pairs = processes().filter_map(|pid| Some((parent(pid)?, pid)));
                    self.by_parent = Some(pairs.collect());
                    return self.listed(pid);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_leads_to_its_listener_and_its_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = Target::find(&Service::Port(port), None).unwrap();
        assert!(target.roots.contains(&std::process::id()), "{target:?}");
        let target = Target::find(&Service::Pid(std::process::id()), None);
        match target {
            Ok(target) => assert!(target.ports.contains(&port)),
            // Tests beside this one listen too.
            Err(why) => assert!(matches!(why, LiveError::TooManyPorts { .. }), "{why}"),
        }
        drop(listener);
        let why = Target::find(&Service::Port(port), None).unwrap_err().to_string();
        assert!(why.contains(&port.to_string()) && why.contains("ss -lntp"), "{why}");
    }

    #[test]
    fn descendants_are_found_down_to_the_last() {
        let mut shell =
            std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let found = testkit::until(testkit::LONG, || with_descendants(&[shell.id()]).len() == 2);
        let children: Vec<u32> = with_descendants(&[shell.id()]).into_iter().collect();
        for pid in children.iter().filter(|pid| **pid != shell.id()) {
            sys::pidfd::PidFd::open(*pid).unwrap().send(9).unwrap();
        }
        shell.wait().unwrap();
        assert!(found, "{children:?}");
    }
}
