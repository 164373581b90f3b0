//! Names of interfaces by namespace and index.

use std::collections::BTreeMap;
use std::fs;

use sys::bpf::observer::FramePlace;
use sys::netns::Netns;

use crate::net;

/// Folder of the namespaces of `ip netns`.
const NAMED: &str = "/run/netns";

/// Names of the interfaces of a namespace; of none, of the current one and of those with a name.
pub(super) fn interfaces(netns: Option<&Netns>) -> BTreeMap<FramePlace, String> {
    let mut names = BTreeMap::new();
    match netns {
        Some(netns) => add(&mut names, netns, ""),
        None => {
            for entry in fs::read_dir(NAMED).into_iter().flatten().flatten() {
                if let Ok(netns) = Netns::open(entry.path()) {
                    let suffix = format!(" of {}", entry.file_name().to_string_lossy());
                    add(&mut names, &netns, &suffix);
                }
            }
            // Last, because one with a name may be the current one.
            if let Ok(netns) = Netns::current() {
                add(&mut names, &netns, "");
            }
        }
    }
    names
}

fn add(names: &mut BTreeMap<FramePlace, String>, netns: &Netns, suffix: &str) {
    let Ok(inode) = netns.inode() else { return };
    let links = netns.run(net::links).ok().and_then(Result::ok).unwrap_or_default();
    for link in links {
        let place = FramePlace { netns: inode as u32, ifindex: link.index };
        names.insert(place, format!("{}{suffix}", link.name));
    }
}

pub(super) fn of(names: &BTreeMap<FramePlace, String>, place: FramePlace) -> String {
    names
        .get(&place)
        .cloned()
        .unwrap_or_else(|| format!("interface {} of namespace {}", place.ifindex, place.netns))
}
