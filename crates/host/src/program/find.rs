//! The process of a port, or of a unit of systemd.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::ProgramError;
use super::sample::socket_inode;
use crate::explain::find_groups;

/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";
/// Levels of control groups in which a unit is searched.
const DEPTH_MAX: usize = 12;

/// The process that has a UDP socket or a TCP listener at a port; the first of several.
///
/// - `net`: folder with the tables of the network namespace, such as `/proc/4711/net`.
///
/// Errors: [`ProgramError::NoOwner`]; [`ProgramError::Hidden`] without the right to see the process.
pub fn process_of_port(net: &Path, port: u16) -> Result<u32, ProgramError> {
    let mut inodes = BTreeSet::new();
    for file in ["udp", "udp6", "tcp", "tcp6"] {
        let bound = bound_sockets(net, file).into_iter();
        inodes.extend(bound.filter(|(_, found)| *found == port).map(|(inode, _)| inode));
    }
    if inodes.is_empty() {
        return Err(ProgramError::NoOwner { port });
    }
    owners(&inodes).first().copied().ok_or(ProgramError::Hidden { port })
}

/// TCP listeners: inode and port.
///
/// - `net`: as of [`process_of_port`].
pub fn listeners(net: &Path) -> Vec<(u64, u16)> {
    ["tcp", "tcp6"].into_iter().flat_map(|file| bound_sockets(net, file)).collect()
}

/// Inodes and ports of the sockets in a table that receive from everyone: of TCP, the listeners.
///
/// Source: Linux, Documentation/networking/proc_net_tcp.rst.
fn bound_sockets(net: &Path, file: &str) -> Vec<(u64, u16)> {
    // Empty for IPv6 where the kernel lacks it.
    let table = fs::read_to_string(net.join(file)).unwrap_or_default();
    let is_tcp = file.starts_with("tcp");
    table.lines().skip(1).filter_map(|line| bound_socket(line, is_tcp)).collect()
}

fn bound_socket(line: &str, is_tcp: bool) -> Option<(u64, u16)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (_, port) = fields.get(1)?.rsplit_once(':')?;
    if is_tcp && *fields.get(3)? != LISTEN {
        return None;
    }
    let inode = fields.get(9)?.parse().ok().filter(|inode| *inode != 0)?;
    Some((inode, u16::from_str_radix(port, 16).ok()?))
}

/// Processes that have one of the sockets open, in ascending order.
pub fn owners(inodes: &BTreeSet<u64>) -> Vec<u32> {
    let mut owners: Vec<u32> = processes().filter(|pid| has_socket(*pid, inodes)).collect();
    owners.sort_unstable();
    owners
}

fn has_socket(pid: u32, inodes: &BTreeSet<u64>) -> bool {
    socket_inodes(pid).any(|inode| inodes.contains(&inode))
}

/// All processes of the machine.
pub fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Inodes of the sockets among a process's descriptors; none of one that has ended.
pub fn socket_inodes(pid: u32) -> impl Iterator<Item = u64> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|descriptor| socket_inode(fs::read_link(descriptor.path()).ok()?.to_str()?))
}

/// Parent of a process. Source: proc_pid_stat(5).
pub fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The main process of a running unit of systemd: the one in its control group whose parent is not.
///
/// - `unit`: with or without `.service`.
/// - `root`: `/`, or a folder in its place.
///
/// Errors: [`ProgramError::NoSystemd`], [`ProgramError::NoUnit`].
///
/// Source: sd_booted(3); systemd.resource-control(5): the group of a unit has its name.
pub fn process_of_unit(root: &Path, unit: &str) -> Result<u32, ProgramError> {
    if !root.join("run/systemd/system").is_dir() {
        return Err(ProgramError::NoSystemd { unit: unit.to_owned() });
    }
    let name = if unit.contains('.') { unit.to_owned() } else { format!("{unit}.service") };
    let mut groups = Vec::new();
    // Version 2 alone; beside version 1; systemd's own of version 1.
    for folder in ["sys/fs/cgroup", "sys/fs/cgroup/unified", "sys/fs/cgroup/systemd"] {
        find_groups(&root.join(folder), &|group| group == name, DEPTH_MAX, &mut groups);
    }
    let main = groups.iter().find_map(|group| main_process(&members(group)));
    main.ok_or_else(|| ProgramError::NoUnit { unit: unit.to_owned() })
}

fn members(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect()
}

fn main_process(members: &[u32]) -> Option<u32> {
    members
        .iter()
        .copied()
        .find(|pid| parent(*pid).is_some_and(|parent| !members.contains(&parent)))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn own_ports_are_found_and_one_without_an_owner_is_named() {
        let net = Path::new("/proc/self/net");
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        for port in [udp.local_addr().unwrap().port(), tcp.local_addr().unwrap().port()] {
            assert_eq!(process_of_port(net, port).unwrap(), std::process::id());
        }
        let port = udp.local_addr().unwrap().port();
        drop((udp, tcp));
        let error = process_of_port(net, port).unwrap_err().to_string();
        assert!(error.contains(&port.to_string()) && error.contains("ss -lnup"), "{error}");
    }

    #[test]
    fn a_connection_from_a_port_is_not_its_service() {
        let line = "0: 0100007F:1F90 0100007F:0050 01 0:0 00:0 0 0 0 31337 1 0";
        assert_eq!(bound_socket(line, true), None);
        assert_eq!(bound_socket(&line.replace(" 01 ", " 0A "), true), Some((31337, 8080)));
        // The port behind the peer's address is not its own.
        assert_eq!(bound_socket(line, false), Some((31337, 8080)));
    }

    #[test]
    fn a_unit_is_found_by_its_group_and_its_main_process_is_the_uppermost() {
        let root = tempfile::tempdir().unwrap();
        let find = |unit| process_of_unit(root.path(), unit).map_err(|why| why.to_string());
        assert!(find("quotes").unwrap_err().contains("not started by systemd"));
        fs::create_dir_all(root.path().join("run/systemd/system")).unwrap();
        assert!(find("quotes").unwrap_err().contains("no running unit quotes"));
        let group = root.path().join("sys/fs/cgroup/system.slice/quotes.service");
        fs::create_dir_all(&group).unwrap();
        assert!(find("quotes").is_err(), "without a process");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = std::process::id();
        fs::write(group.join("cgroup.procs"), format!("{}\n{own}\n", child.id())).unwrap();
        let found = (find("quotes"), find("quotes.service"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, (Ok(own), Ok(own)));
        assert!(find("quote").is_err());
    }
}
