//! Network namespaces of dropped packets: their names, interfaces, rules and sockets, read when first asked for.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sys::netns::Netns;

use crate::net::nftables::{self, Ruleset};
use crate::net::{self, BoundSocket, NetError, ShaperQdisc};

/// Most processes among which a namespace without a name is searched.
const PROCESSES_MAX: usize = 1 << 16;

/// All namespaces that rows were asked about.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    by_inode: BTreeMap<u32, Space>,
    owners: OnceCell<BTreeMap<u64, String>>,
}

/// A namespace.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// Name of `ip netns`, or the process that it belongs to; `None` for the one of this process, and for one that is
    /// gone.
    pub(super) name: Option<String>,
    /// What a command in it begins with: empty, or `ip netns exec blue `.
    pub(super) prefix: String,
    /// `None` if it cannot be opened.
    netns: Option<Netns>,
    interfaces: OnceCell<BTreeMap<u32, String>>,
    rules: OnceCell<Option<Ruleset>>,
    sockets: OnceCell<Vec<BoundSocket>>,
    shapers: OnceCell<Vec<ShaperQdisc>>,
}

impl Spaces {
    pub(super) fn get(&mut self, inode: u32) -> &Space {
        self.by_inode.entry(inode).or_insert_with(|| Space::open(inode))
    }

    /// Program and process that have a socket open.
    pub(super) fn owner(&self, socket_inode: u64) -> Option<String> {
        self.owners.get_or_init(owners).get(&socket_inode).cloned()
    }
}

fn inode_of(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().and_then(|file| u32::try_from(file.ino()).ok())
}

impl Space {
    fn open(inode: u32) -> Space {
        let own = PathBuf::from("/proc/thread-self/ns/net");
        if inode_of(&own) == Some(inode) {
            return Space { netns: Netns::open(&own).ok(), ..Space::default() };
        }
        let (path, name, prefix) = match named(inode).or_else(|| of_process(inode)) {
            Some(found) => found,
            None => return Space::default(),
        };
        Space { name: Some(name), prefix, netns: Netns::open(path).ok(), ..Space::default() }
    }

    /// The result of `body` in the namespace; `None` if it cannot be entered, or the kernel refuses.
    pub(super) fn ask<T: Send>(
        &self,
        body: impl FnOnce() -> Result<T, NetError> + Send,
    ) -> Option<T> {
        self.netns.as_ref()?.run(body).ok()?.ok()
    }

    /// Interface's name; `None` if there is none with that index.
    pub(super) fn interface(&self, index: u32) -> Option<&str> {
        let names = self.interfaces.get_or_init(|| {
            let links = self.ask(net::links).unwrap_or_default();
            links.into_iter().map(|link| (link.index, link.name)).collect()
        });
        names.get(&index).map(String::as_str)
    }

    /// `None` if the rules cannot be read.
    pub(super) fn rules(&self) -> Option<&Ruleset> {
        self.rules.get_or_init(|| self.ask(nftables::ruleset)).as_ref()
    }

    /// Sockets that are bound to a local port.
    pub(super) fn bound(&self, protocol: u8, port: u16) -> impl Iterator<Item = &BoundSocket> {
        let sockets = self.sockets.get_or_init(|| self.ask(net::bound_sockets).unwrap_or_default());
        sockets.iter().filter(move |one| one.protocol == protocol && one.local.port() == port)
    }

    /// Disciplines of an interface's queue: that of its root, or a shaper.
    pub(super) fn discipline(&self, index: u32) -> Option<String> {
        let shapers = self.shapers.get_or_init(|| self.ask(net::shapers).unwrap_or_default());
        if let Some(shaper) = shapers.iter().find(|shaper| shaper.interface == index) {
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
        let read = || fs::read_to_string(path).ok();
        Some(self.netns.as_ref()?.run(read).ok()??.trim().to_owned())
    }
}

/// File, name and prefix of a namespace with a name.
fn named(inode: u32) -> Option<(PathBuf, String, String)> {
    let entries = fs::read_dir("/run/netns").ok()?.flatten();
    let entry = entries.into_iter().find(|entry| inode_of(&entry.path()) == Some(inode))?;
    let name = entry.file_name().to_string_lossy().into_owned();
    let prefix = format!("ip netns exec {} ", super::word(&name));
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

/// Owners of all sockets of this machine's processes, by the socket's inode.
fn owners() -> BTreeMap<u64, String> {
    let mut owners = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten().take(PROCESSES_MAX) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        for inode in super::super::service::sockets_of(pid).unwrap_or_default() {
            owners.entry(inode).or_insert_with(|| process_name(pid));
        }
    }
    owners
}
