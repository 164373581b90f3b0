//! Evidence on a host for causes: an interface and all that its packets cross in its namespace, settings, and
//! counters and sockets at two moments.
//!
//! A section is read at its first use, and once. Two samples enclose a window of time; what is not a counter is
//! read once.

mod groups;
mod host;
mod kernel_log;
mod observed;
mod sample;
mod tables;
mod vanished;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use crate::causes::udp::GroupQuestion;
use crate::net::{self, Link, LinkDetail};
use crate::observer::Observed;
use crate::program::{Program, ProgramError, ProgramWatch};
use crate::text::chain;
use crate::tune::{KnobError, Profile, System, Target, Value, find};

pub(crate) use groups::Membership;
pub(crate) use kernel_log::Message;
pub(crate) use observed::{FRAMES_MIN, has_constant_hash};
pub(crate) use sample::counters_here;
pub use sample::{Losses, Sample, Window};
pub(crate) use tables::LegacyTable;
use tables::Tables;

/// Time between the two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// An interface, the interfaces that its packets cross, and the profile to judge them by.
#[derive(Debug)]
pub struct Evidence {
    pub(crate) system: System,
    pub(crate) profile: Option<Profile>,
    pub(crate) app_cpu: Option<usize>,
    /// Program that is asked about.
    pub(crate) program: Option<Program>,
    /// All interfaces of the namespace, by index.
    pub(crate) links: BTreeMap<u32, Link>,
    pub(crate) details: BTreeMap<u32, LinkDetail>,
    /// Interface by which the outer packets of a tunnel leave, by the tunnel's index.
    below_tunnel: BTreeMap<u32, u32>,
    /// Interfaces that the packets cross; loopback only if it was named.
    pub(crate) path: Vec<u32>,
    owners: std::sync::OnceLock<Owners>,
    window: std::sync::OnceLock<Result<Window, String>>,
    /// Counts of the observer; `None` if it did not run.
    pub(crate) observed: Option<Observed>,
    kernel_log: std::sync::OnceLock<Result<Vec<Message>, String>>,
    groups: std::sync::OnceLock<Vec<Membership>>,
    /// The group that this is about.
    pub(super) asked: Option<GroupQuestion>,
    tables: Tables,
}

/// Programs by the inode number of their sockets.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    pub(crate) by_inode: BTreeMap<u64, String>,
    /// Those that have sockets, by process id.
    pub(crate) processes: BTreeMap<u32, SocketProcess>,
    /// Some processes could not be inspected.
    pub(crate) is_partial: bool,
}

/// A process that has sockets.
#[derive(Debug, Default)]
pub(crate) struct SocketProcess {
    /// Program and process id.
    pub(crate) name: String,
    /// Open descriptors of all kinds.
    pub(crate) descriptor_count: u64,
    /// Inode numbers.
    pub(crate) sockets: Vec<u64>,
}

impl Owners {
    /// Reads the descriptors of all processes.
    pub(crate) fn read() -> Owners {
        let mut owners = Owners::default();
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = process.file_name();
            let Some(pid) = name.to_str().filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
            else {
                continue;
            };
            let Ok(descriptors) = std::fs::read_dir(process.path().join("fd")) else {
                // The process has exited, or may not be inspected.
                owners.is_partial |= process.path().exists();
                continue;
            };
            let mut found = SocketProcess::default();
            for descriptor in descriptors.flatten() {
                found.descriptor_count += 1;
                let Ok(to) = std::fs::read_link(descriptor.path()) else { continue };
                let inode = to
                    .to_str()
                    .and_then(|to| to.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
                found.sockets.extend::<Option<u64>>(inode);
            }
            let Ok(number) = pid.parse() else { continue };
            if found.sockets.is_empty() {
                continue;
            }
            let comm = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.name = format!("{} (process {pid})", comm.trim());
            owners.by_inode.extend(found.sockets.iter().map(|inode| (*inode, found.name.clone())));
            owners.processes.insert(number, found);
        }
        owners
    }
}

impl Evidence {
    /// Reads all interfaces of the namespace.
    ///
    /// - `interface`: start of the path; `None` for all interfaces.
    /// - `profile`: purpose of the packets; without it, settings that suit one purpose and harm
    ///   another are not judged.
    pub fn new(
        system: System,
        interface: Option<&str>,
        profile: Option<Profile>,
        app_cpu: Option<usize>,
    ) -> Result<Self, KnobError> {
        let links = system.within(net::links)?;
        let links: BTreeMap<u32, Link> = links.into_iter().map(|link| (link.index, link)).collect();
        let mut details = system.within(net::details)?;
        if details.values().any(|detail| detail.headroom_bytes.is_none()) {
            // Without BPF, it stays unknown.
            let known = sys::bpf::headrooms(system.netns()).unwrap_or_default();
            for detail in details.values_mut() {
                let found = known.get(&detail.index).copied();
                detail.headroom_bytes = detail.headroom_bytes.or(found);
            }
        }
        let below_tunnel = system.within(|| Ok(below_tunnels(&links, &details)))?;
        let path = match interface {
            None => {
                links.values().filter(|link| !link.is_loopback).map(|link| link.index).collect()
            }
            Some(name) => connected(system.index(name)?, &links, &details, &below_tunnel),
        };
        let (owners, window, kernel_log, groups) = Default::default();
        let tables = Tables::default();
        Ok(Evidence {
            system,
            profile,
            app_cpu,
            program: None,
            links,
            details,
            below_tunnel,
            path,
            owners,
            window,
            observed: None,
            kernel_log,
            groups,
            asked: None,
            tables,
        })
    }

    pub fn system(&self) -> &System {
        &self.system
    }

    pub(crate) fn interfaces(&self) -> impl Iterator<Item = &Link> {
        self.path.iter().filter_map(|index| self.links.get(index))
    }

    /// The first of these interfaces, in the order of the path.
    pub fn first_of(&self, names: &[String]) -> Option<String> {
        self.interfaces().map(|link| link.name.clone()).find(|name| names.contains(name))
    }

    /// An interface that the packets cross, by its index.
    pub(crate) fn on_path(&self, index: u32) -> Option<&Link> {
        self.links.get(&index).filter(|_| self.path.contains(&index))
    }

    /// Interface by which the outer packets of a tunnel leave: the one that it is bound to, or that of the route to
    /// its far end; `None` if there is neither, as for a tunnel with many far ends.
    pub(crate) fn below_tunnel(&self, tunnel: &Link) -> Option<&Link> {
        self.below_tunnel.get(&tunnel.index).and_then(|index| self.links.get(index))
    }

    pub(crate) fn read(&self, knob: &str, target: &Target) -> Result<String, KnobError> {
        let value: Value = find(knob)
            .ok_or_else(|| KnobError::NoTarget { target: target.clone() })?
            .read(&self.system, target)?;
        Ok(value.to_string())
    }

    /// Reads a file in `/proc/sys` of the namespace.
    pub(crate) fn sysctl(&self, file: &str) -> Option<String> {
        let read = |path: &Path| std::fs::read_to_string(path);
        Some(self.system.sysctl(&Target::Netns, file, read).ok()?.trim().to_owned())
    }

    /// Numbers in a file of `/proc/sys` of the namespace.
    pub(crate) fn numbers(&self, file: &str) -> Option<Vec<u64>> {
        parsed(&self.sysctl(file)?)
    }

    /// The only or first of [`Self::numbers`].
    pub(crate) fn number(&self, file: &str) -> Option<u64> {
        self.numbers(file)?.first().copied()
    }

    /// Numbers in a file of `/proc/sys` that is of the whole kernel.
    pub(crate) fn host_numbers(&self, file: &str) -> Option<Vec<u64>> {
        let read = |path: &Path| std::fs::read_to_string(path);
        parsed(&self.system.sysctl(&Target::Host, file, read).ok()?)
    }

    pub(crate) fn proc_net(&self, file: &str) -> Result<String, KnobError> {
        let path = format!("/proc/thread-self/net/{file}");
        let read = self.system.run(|| std::fs::read_to_string(&path))?;
        read.map_err(|source| KnobError::Read { what: path, source })
    }

    /// Returns the setting and value by which packets from this interface are forwarded, by route or
    /// bridge; `None` if they are not.
    pub(crate) fn forwards(&self, link: &Link) -> Option<(String, String)> {
        let file = format!("net/ipv4/conf/{}/forwarding", link.name);
        if let Some(value) = self.sysctl(&file).filter(|value| value == "1") {
            return Some((format!("/proc/sys/{file}"), value));
        }
        let master = self.details.get(&link.index)?.master?;
        let master =
            self.links.get(&master).filter(|link| link.kind.as_deref() == Some("bridge"))?;
        Some((format!("IFLA_MASTER of {}", link.name), format!("bridge {}", master.name)))
    }

    pub(crate) fn is_for(&self, profile: Profile) -> bool {
        self.profile == Some(profile)
    }

    /// Process id of a program of that name, if one runs.
    pub(crate) fn process(&self, name: &str) -> Option<String> {
        let processes = self.system.list_host("proc").ok()?;
        let mut pids =
            processes.into_iter().filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
        pids.find(|pid| {
            self.system.read_host(&format!("proc/{pid}/comm")).is_ok_and(|comm| comm == name)
        })
    }

    /// Process id of irqbalance, if it runs.
    pub(crate) fn irqbalance(&self) -> Option<String> {
        self.process("irqbalance")
    }

    /// Prefix that runs a command in the namespace.
    pub(crate) fn prefix(&self) -> String {
        match &self.system.place().netns {
            None => String::new(),
            Some(name) if !name.contains('/') && !name.bytes().all(|b| b.is_ascii_digit()) => {
                format!("ip netns exec {name} ")
            }
            Some(_) => format!("nsenter --net={} ", self.system.place().netns_file().display()),
        }
    }

    /// Shell command that runs `command` with the namespace's sysfs, from outside of the namespace.
    pub(crate) fn in_sysfs(&self, command: &str) -> String {
        let prefix = self.prefix();
        match prefix.as_str() {
            "" => command.to_owned(),
            // `ip netns exec` mounts the namespace's own sysfs.
            named if named.starts_with("ip netns") => format!("{named}sh -c '{command}'"),
            other => {
                format!("{other}unshare -m sh -c 'mount -t sysfs none /sys && {command}'")
            }
        }
    }

    /// Counters and sockets at two moments: the first call takes a second, unless [`Self::watched`] gave them.
    ///
    /// Errors: the reason why they cannot be read.
    pub(super) fn window(&self) -> Result<&Window, &str> {
        let window = self.window.get_or_init(|| {
            let take = || Sample::take(&self.system).map_err(|error| chain(&error));
            let before = take()?;
            std::thread::sleep(SAMPLE_INTERVAL);
            Ok(Window::new(before, take()?))
        });
        window.as_ref().map_err(String::as_str)
    }

    /// Evidence with samples that enclose a window of the caller's.
    #[must_use]
    pub fn watched(mut self, before: Sample, after: Sample) -> Self {
        self.window = Ok(Window::new(before, after)).into();
        self
    }

    /// Evidence on why a member of a group gets nothing, for [`super::of_group`].
    #[must_use]
    pub fn about_group(mut self, question: GroupQuestion) -> Self {
        self.asked = Some(question);
        self
    }

    pub(super) fn is_question(&self) -> bool {
        self.asked.is_some()
    }

    /// Evidence with a program, whose second sample is taken at the end of the window. Without a CPU of the
    /// application, it is the one that the program is bound to.
    ///
    /// Errors: those of [`ProgramWatch::end`].
    pub fn with_program(mut self, watch: ProgramWatch) -> Result<Self, ProgramError> {
        // Causes that need the window say why there is none.
        let _window = self.window();
        let program = watch.end()?;
        self.app_cpu = self.app_cpu.or(program.pinned_to());
        self.program = Some(program);
        Ok(self)
    }

    /// Program that has a socket, and its process.
    pub(super) fn owner(&self, inode: u32) -> String {
        let owner = self.owners().by_inode.get(&u64::from(inode));
        owner.map_or("an unknown process", String::as_str).to_owned()
    }

    /// Owners of sockets, as far as `/proc` shows them.
    pub(crate) fn owners(&self) -> &Owners {
        self.owners.get_or_init(Owners::read)
    }
}

fn parsed(text: &str) -> Option<Vec<u64>> {
    text.split_whitespace().map(|word| word.parse().ok()).collect()
}

/// The interface below each tunnel: the one that it is bound to, else that of the route to its far end.
fn below_tunnels(
    links: &BTreeMap<u32, Link>,
    details: &BTreeMap<u32, LinkDetail>,
) -> BTreeMap<u32, u32> {
    details
        .values()
        .filter_map(|detail| Some((detail.index, lower_device(detail, links)?)))
        .filter(|(tunnel, below)| {
            tunnel != below && links.get(below).is_some_and(|link| !link.is_loopback)
        })
        .collect()
}

fn lower_device(detail: &LinkDetail, links: &BTreeMap<u32, Link>) -> Option<u32> {
    let bound = detail.vxlan_bound_to.filter(|index| *index != 0).or_else(|| {
        let peer = links.get(&detail.index)?.peer.filter(|peer| peer.netns_id.is_none())?;
        detail.tunnel_remote.is_some().then_some(peer.index)
    });
    // A far end without a route has nothing below.
    bound.or_else(|| Some(net::route_to(detail.tunnel_remote?).ok()?.ifindex))
}

/// Interfaces connected to `start`: those below and on top of it, its bridge and the bridge's other
/// ports.
fn connected(
    start: u32,
    links: &BTreeMap<u32, Link>,
    details: &BTreeMap<u32, LinkDetail>,
    below_tunnel: &BTreeMap<u32, u32>,
) -> Vec<u32> {
    let lower_devices = |index: u32| {
        let routed = below_tunnel.get(&index).copied();
        let stacked = links.get(&index).and_then(|link| {
            // The peer of a veth is not below it, although it may be in this namespace.
            let peer = link.peer.filter(|peer| peer.netns_id.is_none())?;
            (link.kind.as_deref() != Some("veth")).then_some(peer.index)
        });
        routed.into_iter().chain(stacked)
    };
    let mut seen = BTreeSet::from([start]);
    let mut to_visit = vec![start];
    let mut path = Vec::new();
    while let Some(index) = to_visit.pop() {
        path.push(index);
        let mut next: Vec<u32> = lower_devices(index).collect();
        next.extend(
            links.keys().copied().filter(|other| lower_devices(*other).any(|low| low == index)),
        );
        let master = details.get(&index).and_then(|detail| detail.master);
        next.extend(master);
        let ports = details.values().filter(|detail| detail.master == Some(index));
        next.extend(ports.map(|detail| detail.index));
        // A veth pair with both ends in this namespace.
        let peer = links.get(&index).and_then(|link| link.peer).filter(|p| p.netns_id.is_none());
        next.extend(peer.map(|peer| peer.index));
        // A tunnel whose far ends are not known may use any interface.
        if !links.get(&index).is_some_and(|link| link.is_loopback) {
            let unbound = details.values().filter(|detail| {
                detail.vxlan_bound_to == Some(0) && !below_tunnel.contains_key(&detail.index)
            });
            next.extend(unbound.map(|detail| detail.index));
        }
        to_visit.extend(
            next.into_iter().filter(|index| links.contains_key(index) && seen.insert(*index)),
        );
    }
    path
}
