//! A network namespace and its host, on which knobs act.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sys::netns::{Netns, NetnsError};
use sys::sysfs::{Sysfs, SysfsError};

use super::error::KnobError;
use super::irq_counts::irq_counts;
use super::target::Target;
use crate::net::{self, NetError};

/// Selects a network namespace and host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Network namespace: a name of `/run/netns`, the number of a process in it, or a file;
    /// `None` for that of the caller.
    pub netns: Option<String>,
    /// Folder that replaces `/` for settings of the host: it contains `sys`, `proc` and `etc`. If it
    /// has a `sys/class/net`, that replaces the interfaces too. `None` for the machine itself.
    pub root: Option<PathBuf>,
}

impl Place {
    /// File that identifies the namespace.
    pub fn netns_file(&self) -> PathBuf {
        match self.netns.as_deref() {
            None => "/proc/thread-self/ns/net".into(),
            Some(file) if file.contains('/') => file.into(),
            Some(pid) if !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()) => {
                format!("/proc/{pid}/ns/net").into()
            }
            Some(name) => Path::new("/run/netns").join(name),
        }
    }
}

#[derive(Debug)]
enum Tree {
    Mounted(Sysfs),
    Folder(PathBuf),
}

/// A network namespace and the host around it, open for reading and setting.
#[derive(Debug)]
pub struct System {
    netns: Netns,
    /// The namespace is the caller's, so that entering it would need a privilege without purpose.
    is_own: bool,
    place: Place,
    tree: Tree,
}

impl System {
    /// Opens a namespace. Without the privilege to mount its sysfs, `/sys` is used if the namespace is
    /// the caller's.
    pub fn open(place: &Place) -> Result<Self, KnobError> {
        let netns = Netns::open(place.netns_file())?;
        System::from_netns(netns, place.clone())
    }

    /// Opens a namespace that need not have a name.
    ///
    /// - `place`: its `netns` is used in messages and journals only.
    pub fn from_netns(netns: Netns, place: Place) -> Result<Self, KnobError> {
        let is_own = is_own(&netns);
        let injected = place.root.as_ref().map(|root| root.join("sys"));
        let tree =
            match injected.filter(|sys| sys.join("class/net").is_dir()) {
                Some(sys) => Tree::Folder(sys),
                None => match Sysfs::of(&netns) {
                    Ok(sysfs) => Tree::Mounted(sysfs),
                    Err(
                        SysfsError::Denied { .. } | SysfsError::Netns(NetnsError::Denied { .. }),
                    ) if is_own => Tree::Folder("/sys".into()),
                    Err(error) => return Err(error.into()),
                },
            };
        Ok(System { netns, is_own, place, tree })
    }

    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    /// True if the namespace is not the machine's first one, which alone has the sysctls of CPUs.
    ///
    /// Process 1 does not tell: in a container it is the container's own, or may not be inspected.
    ///
    /// Source: netns_core_table and net_core_table of net/core/sysctl_net_core.c.
    pub fn is_child_netns(&self) -> bool {
        let is_there =
            |name| self.sysctl(&Target::Netns, name, |path| path.symlink_metadata()).is_ok();
        is_there("net/core/somaxconn") && !is_there("net/core/netdev_max_backlog")
    }

    pub fn run<R: Send>(&self, body: impl FnOnce() -> R + Send) -> Result<R, NetnsError> {
        if self.is_own { Ok(body()) } else { self.netns.run(body) }
    }

    /// Number of the namespace that is never reused; `None` if the kernel has none.
    pub(super) fn netns_cookie(&self) -> Option<u64> {
        self.run(sys::netns::cookie).ok()?.ok()
    }

    /// Sends a netlink request inside the namespace.
    pub fn within<T: Send>(
        &self,
        ask: impl FnOnce() -> Result<T, NetError> + Send,
    ) -> Result<T, KnobError> {
        Ok(self.run(ask)??)
    }

    pub fn index(&self, interface: &str) -> Result<u32, KnobError> {
        let found = self.within(|| net::link_named(interface));
        match found {
            Err(KnobError::Net(NetError::NoInterface { .. })) => {
                Err(KnobError::NoTarget { target: Target::Interface(interface.to_owned()) })
            }
            found => Ok(found?.index),
        }
    }

    /// True unless a folder replaces the interfaces, so that netlink knows them.
    pub(super) fn has_real_interfaces(&self) -> bool {
        self.place.root.is_none() || matches!(self.tree, Tree::Mounted(_))
    }

    /// True if sysfs has no such folder of an interface, such as `eth0` or `eth0/queues/rx-1`.
    pub(super) fn lacks(&self, path: &str) -> bool {
        self.list_net(path).is_err_and(|error| {
            matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
                || error.kind() == io::ErrorKind::NotFound
        })
    }

    /// Last component of a link that belongs to an interface, such as `eth0/device/driver`.
    pub(super) fn link_net(&self, path: &str) -> Option<String> {
        let path = format!("class/net/{path}");
        match &self.tree {
            Tree::Mounted(sysfs) => sysfs.link_name(path).ok().flatten(),
            Tree::Folder(folder) => {
                let real = folder.join(path).canonicalize().ok()?;
                Some(real.file_name()?.to_string_lossy().into_owned())
            }
        }
    }

    /// Driver of an interface, or a replacement text, for messages.
    pub fn driver(&self, interface: &str) -> String {
        let asked =
            self.index(interface).and_then(|index| self.within(|| net::ethtool::driver(index)));
        asked.ok().flatten().unwrap_or_else(|| format!("of {interface}"))
    }

    /// Reads a file of sysfs that belongs to an interface, such as `eth0/mtu`.
    pub fn read_net(&self, path: &str) -> io::Result<String> {
        let path = format!("class/net/{path}");
        match &self.tree {
            Tree::Mounted(sysfs) => sysfs.read(path).map_err(cause),
            Tree::Folder(folder) => read(&folder.join(path)),
        }
    }

    /// Writes a file of sysfs that belongs to an interface.
    pub fn write_net(&self, path: &str, value: &str) -> io::Result<()> {
        let path = format!("class/net/{path}");
        match &self.tree {
            Tree::Mounted(sysfs) => sysfs.write(path, value).map_err(cause),
            Tree::Folder(folder) => write(&folder.join(path), value),
        }
    }

    /// Opens a file of sysfs for writing without writing.
    pub fn probe_net(&self, path: &str) -> io::Result<()> {
        let path = format!("class/net/{path}");
        match &self.tree {
            Tree::Mounted(sysfs) => sysfs.probe(path).map_err(cause),
            Tree::Folder(folder) => probe(&folder.join(path)),
        }
    }

    /// Names in a folder that belongs to an interface, sorted.
    pub fn list_net(&self, path: &str) -> io::Result<Vec<String>> {
        let path = format!("class/net/{path}");
        match &self.tree {
            Tree::Mounted(sysfs) => sysfs.list(path).map_err(cause),
            Tree::Folder(folder) => list(&folder.join(path)),
        }
    }

    /// Numbers of the queues of an interface: `direction` is `rx` or `tx`.
    pub fn queues(&self, interface: &str, direction: &str) -> io::Result<Vec<u32>> {
        let names = self.list_net(&format!("{interface}/queues"))?;
        let mut queues: Vec<u32> = names
            .iter()
            .filter_map(|name| name.strip_prefix(direction)?.strip_prefix('-')?.parse().ok())
            .collect();
        queues.sort_unstable();
        Ok(queues)
    }

    /// Interrupts of an interface's device, ascending; none for a virtual one.
    pub fn irqs(&self, interface: &str) -> Vec<u32> {
        // The device of a virtio card is one level below the PCI function that has the interrupts.
        let listed = ["device/msi_irqs", "device/../msi_irqs"]
            .iter()
            .find_map(|path| self.list_net(&format!("{interface}/{path}")).ok());
        let mut irqs: Vec<u32> = match listed {
            Some(names) => names.iter().filter_map(|name| name.parse().ok()).collect(),
            None => {
                let line = self.read_net(&format!("{interface}/device/irq")).ok();
                line.and_then(|text| text.parse().ok())
                    .filter(|irq| *irq != 0)
                    .into_iter()
                    .collect()
            }
        };
        irqs.sort_unstable();
        irqs
    }

    /// Interrupts that an interface's device has raised since the host's start, by the CPU that handled them; empty for
    /// a virtual one.
    pub fn interrupt_counts(&self, interface: &str) -> Vec<u64> {
        let irqs = self.irqs(interface);
        let all = irq_counts(&self.read_host("proc/interrupts").unwrap_or_default());
        let mut by_cpu = Vec::new();
        for row in irqs.iter().filter_map(|irq| all.get(irq)) {
            by_cpu.resize(row.len().max(by_cpu.len()), 0);
            by_cpu.iter_mut().zip(row).for_each(|(sum, count)| *sum += count);
        }
        by_cpu
    }

    /// True if there is such an interrupt.
    pub(super) fn has_irq(&self, irq: u32) -> bool {
        self.host_path(&format!("proc/irq/{irq}")).is_dir()
    }

    /// CPUs at which the driver would have an interrupt arrive; empty if it gives no hint.
    ///
    /// Source: Documentation/core-api/irq/irq-affinity.rst, and `affinity_hint` in Documentation/filesystems/proc.rst.
    pub(super) fn irq_hint(&self, irq: u32) -> Vec<usize> {
        let mask = self.read_host(&format!("proc/irq/{irq}/affinity_hint")).unwrap_or_default();
        super::value::mask_to_cpus(&mask).unwrap_or_default()
    }

    /// Names of the handlers of an interrupt, separated by commas; `None` if they cannot be read.
    pub(super) fn irq_action(&self, irq: u32) -> Option<String> {
        self.read_host(&format!("sys/kernel/irq/{irq}/actions")).ok()
    }

    /// True if a CPU is online, or if that cannot be read.
    pub(super) fn has_cpu(&self, cpu: u32) -> bool {
        let listed = self.read_host("sys/devices/system/cpu/online").ok();
        let listed = listed.and_then(|text| super::value::list_to_cpus(&text));
        listed.is_none_or(|cpus| cpus.contains(&(cpu as usize)))
    }

    /// A path of the host, such as `proc/interrupts`.
    pub fn host_path(&self, path: &str) -> PathBuf {
        self.place.root.as_deref().unwrap_or(Path::new("/")).join(path)
    }

    /// Reads a file of the host, without trailing white space.
    pub fn read_host(&self, path: &str) -> io::Result<String> {
        read(&self.host_path(path))
    }

    pub fn write_host(&self, path: &str, value: &str) -> io::Result<()> {
        write(&self.host_path(path), value)
    }

    /// Opens a file of the host for writing without writing.
    pub fn probe_host(&self, path: &str) -> io::Result<()> {
        probe(&self.host_path(path))
    }

    /// Names in a folder of the host, sorted.
    pub fn list_host(&self, path: &str) -> io::Result<Vec<String>> {
        list(&self.host_path(path))
    }

    /// Calls `act` with a file of `/proc/sys`, such as `net/core/rmem_max`: inside the namespace if
    /// that is the target, otherwise in the machine's first one.
    pub fn sysctl<T: Send>(
        &self,
        target: &Target,
        name: &str,
        act: impl FnOnce(&Path) -> io::Result<T> + Send,
    ) -> io::Result<T> {
        let real = Path::new("/proc/sys").join(name);
        match target {
            Target::Netns => self.run(|| act(&real)).map_err(io::Error::other)?,
            _ if self.place.root.is_some() || !name.starts_with("net/") => {
                act(&self.host_path(&format!("proc/sys/{name}")))
            }
            _ => match Netns::open("/proc/1/ns/net") {
                Ok(first) => match first.run(|| ()) {
                    Ok(()) => first.run(|| act(&real)).map_err(io::Error::other)?,
                    Err(_) => act(&real),
                },
                Err(_) => act(&real),
            },
        }
    }

    /// Online CPUs, ascending.
    pub fn online_cpus(&self) -> Vec<usize> {
        let listed = self.read_host("sys/devices/system/cpu/online").ok();
        listed.and_then(|text| super::value::list_to_cpus(&text)).unwrap_or_else(|| vec![0])
    }

    /// CPUs isolated by `isolcpus`, ascending.
    pub fn isolated_cpus(&self) -> Vec<usize> {
        let listed = self.read_host("sys/devices/system/cpu/isolated").ok();
        listed.and_then(|text| super::value::list_to_cpus(&text)).unwrap_or_default()
    }
}

fn is_own(netns: &Netns) -> bool {
    let own = Netns::current().and_then(|netns| netns.inode());
    matches!((own, netns.inode()), (Ok(own), Ok(asked)) if own == asked)
}

fn cause(error: SysfsError) -> io::Error {
    match error {
        SysfsError::Read { source, .. } | SysfsError::Write { source, .. } => source,
        error => io::Error::other(error),
    }
}

/// Reads a file to its end, without trailing white space.
pub(super) fn read(path: &Path) -> io::Result<String> {
    // Settings are short.
    const BYTES_MAX: u64 = 1 << 20;
    let mut text = String::new();
    fs::File::open(path)?.take(BYTES_MAX).read_to_string(&mut text)?;
    text.truncate(text.trim_end().len());
    Ok(text)
}

/// Writes an existing file in one call.
pub(super) fn write(path: &Path, value: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
    match file.write(value.as_bytes())? {
        written if written == value.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

pub(super) fn probe(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).open(path).map(drop)
}

fn list(path: &Path) -> io::Result<Vec<String>> {
    let mut names = fs::read_dir(path)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_is_selected_by_name_process_or_file() {
        let file = |text: &str| {
            Place { netns: Some(text.into()), root: None }.netns_file().display().to_string()
        };
        assert_eq!(file("blue"), "/run/netns/blue");
        assert_eq!(file("712"), "/proc/712/ns/net");
        assert_eq!(file("/proc/7/fd/3"), "/proc/7/fd/3");
        let none = System::open(&Place { netns: Some("no-such".into()), root: None });
        assert!(matches!(none, Err(KnobError::Netns(NetnsError::Open { .. }))), "{none:?}");
    }
}
