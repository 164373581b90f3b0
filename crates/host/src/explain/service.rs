//! One service of this host: its sockets, its control group, and the namespace of its packets.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sys::bpf::explain::ServiceBy;

/// Levels of control groups in which a container is searched.
const DEPTH_MAX: usize = 12;
/// Shortest prefix of a container's id, as engines print it.
const ID_CHARS_MIN: usize = 12;

const TCP: u8 = 6;
const UDP: u8 = 17;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    #[error("no process {pid}; `ps` lists their numbers")]
    NoProcess {
        pid: u32,
        #[source]
        source: io::Error,
    },
    #[error("cannot list the sockets of process {pid}; run as root")]
    Unlisted {
        pid: u32,
        #[source]
        source: io::Error,
    },
    #[error(
        "no control group {} (version 2); give its path as in /proc/PID/cgroup: /system.slice/nginx.service",
        path.display()
    )]
    NoCgroup { path: PathBuf },
    #[error("the control group {} has no process; start the service first", path.display())]
    NoMember { path: PathBuf },
    #[error(
        "no running container whose id begins with {id}, by the names of control groups (version 2); give \
         12 or more digits of the id, or its group with --cgroup"
    )]
    NoContainer { id: String },
    #[error(
        "{count} control groups belong to containers whose ids begin with {id}; give more of the id"
    )]
    Ambiguous { id: String, count: usize },
}

/// Sockets whose packets are traced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TracedService {
    /// All with this local port, UDP and TCP.
    Port(u16),
    /// Those that a process has open; ids are those of this process namespace.
    Process(u32),
    /// Those that the processes of a control group, or of one below it, created.
    Cgroup { path: PathBuf, id: u64 },
}

impl TracedService {
    /// A process. Errors: [`ServiceError::NoProcess`], [`ServiceError::Unlisted`].
    pub fn process(pid: u32) -> Result<TracedService, ServiceError> {
        match sockets_of(pid) {
            Ok(_) => Ok(TracedService::Process(pid)),
            Err(source) if source.kind() == io::ErrorKind::NotFound => {
                Err(ServiceError::NoProcess { pid, source })
            }
            Err(source) => Err(ServiceError::Unlisted { pid, source }),
        }
    }

    /// A control group, by its folder or its path in the hierarchy.
    ///
    /// Errors: [`ServiceError::NoCgroup`].
    pub fn cgroup(path: &Path) -> Result<TracedService, ServiceError> {
        let below = path.strip_prefix("/").unwrap_or(path);
        let folders = hierarchies().into_iter().map(|hierarchy| hierarchy.join(below));
        let mut all = std::iter::once(path.to_owned()).chain(folders);
        all.find_map(|folder| TracedService::of_folder(folder).ok())
            .ok_or_else(|| ServiceError::NoCgroup { path: path.to_owned() })
    }

    fn of_folder(path: PathBuf) -> io::Result<TracedService> {
        fs::metadata(path.join("cgroup.procs"))?;
        let id = fs::metadata(&path)?.ino();
        Ok(TracedService::Cgroup { path, id })
    }

    /// A container, by its id or a prefix of it of at least 12 digits: the control group that is named
    /// after it, as Docker, Podman, containerd and CRI-O do.
    ///
    /// Errors: [`ServiceError::NoContainer`], [`ServiceError::Ambiguous`].
    pub fn container(id: &str) -> Result<TracedService, ServiceError> {
        let none = || ServiceError::NoContainer { id: id.to_owned() };
        if id.len() < ID_CHARS_MIN || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(none());
        }
        let mut found = Vec::new();
        // A second mount shows the same groups.
        if let Some(hierarchy) = hierarchies().first() {
            find_groups(hierarchy, &|name| is_of_container(name, id), DEPTH_MAX, &mut found);
        }
        match found.as_slice() {
            [] => Err(none()),
            [one] => TracedService::cgroup(one),
            several => Err(ServiceError::Ambiguous { id: id.to_owned(), count: several.len() }),
        }
    }

    /// A process of the service, in whose network namespace its packets are; `None` for a port.
    ///
    /// Errors: [`ServiceError::NoMember`].
    pub fn member(&self) -> Result<Option<u32>, ServiceError> {
        match self {
            TracedService::Port(_) => Ok(None),
            TracedService::Process(pid) => Ok(Some(*pid)),
            TracedService::Cgroup { path, .. } => match members(path).first() {
                Some(pid) => Ok(Some(*pid)),
                None => Err(ServiceError::NoMember { path: path.clone() }),
            },
        }
    }

    pub(super) fn by(&self) -> ServiceBy {
        match self {
            TracedService::Port(port) => ServiceBy::Port(*port),
            TracedService::Process(_) => ServiceBy::Inode,
            TracedService::Cgroup { id, .. } => ServiceBy::Cgroup(*id),
        }
    }

    /// Inodes of the sockets that a process has open now; none of one that has ended, and otherwise.
    pub(super) fn inodes(&self) -> Vec<u64> {
        match self {
            TracedService::Process(pid) => sockets_of(*pid).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// Local ports of the sockets that the service has open now, with their IP protocols.
    pub(super) fn ports(&self) -> BTreeSet<(u8, u16)> {
        let pids = match self {
            TracedService::Port(port) => return BTreeSet::from([(TCP, *port), (UDP, *port)]),
            TracedService::Process(pid) => vec![*pid],
            TracedService::Cgroup { path, .. } => members(path),
        };
        let sockets = pids.iter().filter_map(|pid| sockets_of(*pid).ok()).flatten();
        let sockets: BTreeSet<u64> = sockets.collect();
        let Some(pid) = pids.first() else { return BTreeSet::new() };
        let mut ports = BTreeSet::new();
        for (file, protocol) in [("udp", UDP), ("udp6", UDP), ("tcp", TCP), ("tcp6", TCP)] {
            // Without IPv6 there is no such file.
            let table = fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap_or_default();
            let own = ports_of(&table).filter(|(_, inode)| sockets.contains(inode));
            ports.extend(own.map(|(port, _)| (protocol, port)));
        }
        ports
    }
}

/// Folders where control groups of version 2 are mounted.
///
/// Source: proc_pid_mountinfo(5).
fn hierarchies() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let of_version_2 = mounts.lines().filter(|line| line.contains(" - cgroup2 "));
    of_version_2.filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from).collect()
}

/// Inodes of the sockets among a process's descriptors.
fn sockets_of(pid: u32) -> io::Result<Vec<u64>> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?
        .filter_map(|entry: io::Result<fs::DirEntry>| {
            let link = fs::read_link(entry.ok()?.path()).ok()?;
            link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        })
        .collect())
}

/// Local port and inode of each socket.
///
/// Source: Linux, Documentation/networking/proc_net_tcp.rst.
fn ports_of(table: &str) -> impl Iterator<Item = (u16, u64)> {
    table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (_, port) = fields.nth(1)?.rsplit_once(':')?;
        let inode = fields.nth(7)?.parse().ok()?;
        Some((u16::from_str_radix(port, 16).ok()?, inode))
    })
}

/// Processes of a control group and of those below it.
fn members(folder: &Path) -> Vec<u32> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let mut pids: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    folders_in(folder).iter().for_each(|below| pids.extend(members(below)));
    pids
}

/// Adds the uppermost folders below `folder` whose name is wanted.
pub(crate) fn find_groups(
    folder: &Path,
    is_wanted: &dyn Fn(&str) -> bool,
    depth: usize,
    found: &mut Vec<PathBuf>,
) {
    for below in folders_in(folder) {
        let name = below.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if is_wanted(name) {
            found.push(below);
        } else if depth > 0 {
            find_groups(&below, is_wanted, depth - 1, found);
        }
    }
}

/// True for `ID`, `docker-ID.scope`, `libpod-ID`, `cri-containerd-ID.scope` and the like.
fn is_of_container(name: &str, id: &str) -> bool {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let own = name.rsplit_once('-').map_or(name, |(_, own)| own);
    own.len() == 64 && own.starts_with(id) && own.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn own_sockets_are_found_with_their_ports() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = TracedService::process(std::process::id()).unwrap();
        let ports = service.ports();
        assert!(ports.contains(&(UDP, udp.local_addr().unwrap().port())), "{ports:?}");
        assert!(ports.contains(&(TCP, tcp.local_addr().unwrap().port())), "{ports:?}");
        assert!(service.inodes().len() >= 2);
        assert_eq!(service.member().unwrap(), Some(std::process::id()));
        assert_eq!(TracedService::Port(53).ports(), BTreeSet::from([(6, 53), (17, 53)]));
    }

    #[test]
    fn a_table_of_sockets_gives_ports_and_inodes() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  \
                     timeout inode ref pointer drops\n 2146: 0100007F:1F90 00000000:0000 07 \
                     00000000:00000000 00:00000000 00000000     0        0 31337 2 0 0\n junk\n";
        assert_eq!(ports_of(table).collect::<Vec<_>>(), [(8080, 31337)]);
    }

    #[test]
    fn control_groups_of_containers_are_known_by_their_names() {
        let id = "0123456789abcdef".repeat(4);
        let start = &id[..12];
        for name in [id.clone(), format!("docker-{id}.scope"), format!("cri-containerd-{id}.scope")]
        {
            assert!(is_of_container(&name, start), "{name}");
            assert!(!is_of_container(&name, "fff"), "{name}");
        }
        assert!(!is_of_container("docker.service", start));
        assert!(!is_of_container(start, start), "a shorter name is of something else");
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error = TracedService::process(u32::MAX).unwrap_err().to_string();
        assert!(error.contains("4294967295"), "{error}");
        let error = TracedService::cgroup(Path::new("/no/such.slice")).unwrap_err().to_string();
        assert!(error.contains("/no/such.slice"), "{error}");
        for id in ["0123", "not-a-container", &"f".repeat(64)] {
            let error = TracedService::container(id).unwrap_err().to_string();
            assert!(error.contains(id), "{error}");
        }
    }
}
