//! Network namespaces of dropped packets: their names, interfaces, rules and sockets, read when first asked for.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sys::netns::Netns;

use crate::causes::Owners;
use crate::net::nftables::{self, Ruleset};
use crate::net::{self, NetError, QdiscState, TcpState};

/// A socket with a local port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::explain) struct BoundSocket {
    /// IP protocol.
    pub(super) protocol: u8,
    pub(in crate::explain) local: SocketAddr,
    pub(in crate::explain) inode: u64,
    /// It takes packets of any sender: a UDP socket without a peer, or a TCP socket that listens.
    pub(super) is_open: bool,
    /// Connections that wait to be accepted, and that may.
    pub(in crate::explain) queue: Option<(u32, u32)>,
    /// Twice the requested size.
    pub(super) receive_buffer_bytes: u32,
}

fn bound_sockets() -> Result<Vec<BoundSocket>, NetError> {
    let tcp = net::tcp_sockets()?.into_iter().filter(|one| one.inode != 0).map(|one| BoundSocket {
        protocol: super::TCP,
        local: one.local,
        inode: one.inode.into(),
        is_open: one.state == TcpState::Listen,
        queue: (one.state == TcpState::Listen).then_some((one.receive_queue, one.send_queue)),
        receive_buffer_bytes: one.memory.receive_buffer_bytes,
    });
    let udp = net::udp_sockets()?.into_iter().map(|one| BoundSocket {
        protocol: super::UDP,
        local: one.local,
        inode: one.inode.into(),
        is_open: one.remote.port() == 0,
        queue: None,
        receive_buffer_bytes: one.memory.receive_buffer_bytes,
    });
    Ok(tcp.chain(udp).collect())
}

/// Most processes among which a namespace without a name is searched.
const PROCESSES_MAX: usize = 1 << 16;

/// All namespaces that rows were asked about.
#[derive(Debug, Default)]
pub(in crate::explain) struct Spaces {
    by_inode: BTreeMap<u32, Space>,
    owners: OnceCell<Owners>,
}

/// A namespace.
#[derive(Debug, Default)]
pub(in crate::explain) struct Space {
    /// Name of `ip netns`, or the process that it belongs to; `None` for the one of this process, and for one that is
    /// gone.
    pub(in crate::explain) name: Option<String>,
    /// Prefix of a command in it: empty, or `ip netns exec blue `.
    pub(super) prefix: String,
    /// `None` if it cannot be opened.
    netns: Option<Netns>,
    /// It is this process's, so that entering it would need a privilege without purpose.
    is_own: bool,
    interfaces: OnceCell<BTreeMap<u32, String>>,
    rules: OnceCell<Option<Ruleset>>,
    sockets: OnceCell<Vec<BoundSocket>>,
    qdiscs: OnceCell<Vec<QdiscState>>,
}

impl Spaces {
    /// Opens a namespace, for [`Self::opened`].
    pub(in crate::explain) fn open(&mut self, inode: u32) {
        self.by_inode.entry(inode).or_insert_with(|| Space::open(inode));
    }

    pub(in crate::explain) fn opened(&self, inode: u32) -> Option<&Space> {
        self.by_inode.get(&inode)
    }

    /// Program and process that have a socket open.
    pub(in crate::explain) fn owner(&self, socket_inode: u64) -> Option<String> {
        self.owners.get_or_init(Owners::read).by_inode.get(&socket_inode).cloned()
    }
}

fn inode_of(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().and_then(|file| u32::try_from(file.ino()).ok())
}

impl Space {
    fn open(inode: u32) -> Space {
        let own = PathBuf::from("/proc/thread-self/ns/net");
        if inode_of(&own) == Some(inode) {
            return Space { netns: Netns::open(&own).ok(), is_own: true, ..Space::default() };
        }
        let (path, name, prefix) = match named(inode).or_else(|| of_process(inode)) {
            Some(found) => found,
            None => return Space::default(),
        };
        Space { name: Some(name), prefix, netns: Netns::open(path).ok(), ..Space::default() }
    }

    /// The result of `body` in the namespace; `None` if it cannot be entered.
    pub(in crate::explain) fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Option<T> {
        if self.is_own { Some(body()) } else { self.netns.as_ref()?.run(body).ok() }
    }

    /// As [`Self::run`]; `None` too if the kernel refuses.
    fn ask<T: Send>(&self, body: impl FnOnce() -> Result<T, NetError> + Send) -> Option<T> {
        self.run(body)?.ok()
    }

    /// Names of its interfaces, by index.
    pub(super) fn interfaces(&self) -> &BTreeMap<u32, String> {
        self.interfaces.get_or_init(|| {
            let links = self.ask(net::links).unwrap_or_default();
            links.into_iter().map(|link| (link.index, link.name)).collect()
        })
    }

    /// Interface's name; `None` if there is none with that index.
    pub(in crate::explain) fn interface(&self, index: u32) -> Option<&str> {
        self.interfaces().get(&index).map(String::as_str)
    }

    /// `None` if the rules cannot be read.
    pub(super) fn rules(&self) -> Option<&Ruleset> {
        self.rules.get_or_init(|| self.ask(nftables::ruleset)).as_ref()
    }

    /// Sockets that are bound to a local port.
    pub(super) fn bound(&self, protocol: u8, port: u16) -> impl Iterator<Item = &BoundSocket> {
        let sockets = self.sockets.get_or_init(|| self.ask(bound_sockets).unwrap_or_default());
        sockets.iter().filter(move |one| one.protocol == protocol && one.local.port() == port)
    }

    /// Listening sockets whose accept queue is full.
    pub(in crate::explain) fn full_listeners(&self) -> impl Iterator<Item = &BoundSocket> {
        let sockets = self.sockets.get_or_init(|| self.ask(bound_sockets).unwrap_or_default());
        sockets.iter().filter(|one| one.queue.is_some_and(|(now, most)| now > most))
    }

    /// Disciplines of an interface's queue: that of its root, or a shaper.
    pub(in crate::explain) fn discipline(&self, index: u32) -> Option<String> {
        let qdiscs = self.qdiscs.get_or_init(|| self.ask(net::qdiscs).unwrap_or_default());
        let is_shaper = |one: &&QdiscState| one.interface == index && one.limits.is_some();
        if let Some(shaper) = qdiscs.iter().find(is_shaper) {
            return Some(shaper.to_string());
        }
        let qdisc = self.ask(move || net::root_qdisc(index)).flatten()?;
        Some(match qdisc.limit {
            Some(limit) => format!("{}, limit {limit}", qdisc.kind),
            None => qdisc.kind,
        })
    }

    /// Name of the interface, and the gateway, of the route to an address.
    pub(super) fn route(&self, to: IpAddr) -> Option<(String, Option<IpAddr>)> {
        let route = self.ask(move || net::route_to(to))?;
        Some((self.interface(route.ifindex)?.to_owned(), route.gateway))
    }

    /// A setting of the namespace, such as `net/ipv4/conf/all/rp_filter`.
    pub(super) fn setting(&self, path: &str) -> Option<String> {
        let path = Path::new("/proc/sys").join(path);
        Some(self.run(|| fs::read_to_string(path).ok())??.trim().to_owned())
    }
}

/// File, name and prefix of a namespace with a name.
fn named(inode: u32) -> Option<(PathBuf, String, String)> {
    let entries = fs::read_dir("/run/netns").ok()?.flatten();
    let entry = entries.into_iter().find(|entry| inode_of(&entry.path()) == Some(inode))?;
    let name = entry.file_name().to_string_lossy().into_owned();
    let prefix = format!("ip netns exec {} ", super::command_word(&name, "NETNS"));
    Some((entry.path(), name, prefix))
}

/// The same of one without, by a process in it.
fn of_process(inode: u32) -> Option<(PathBuf, String, String)> {
    let entries = fs::read_dir("/proc").ok()?.flatten().take(PROCESSES_MAX);
    let mut processes = entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, entry.path().join("ns/net")))
    });
    let (pid, path) = processes.find(|(_, path)| inode_of(path) == Some(inode))?;
    Some((path, process_name(pid), format!("nsenter -t {pid} -n ")))
}

/// Program and number of a process.
pub(in crate::explain) fn process_name(pid: u32) -> String {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match comm.trim() {
        "" => format!("process {pid}"),
        comm => format!("{} (process {pid})", crate::text::printable(comm, 16)),
    }
}
