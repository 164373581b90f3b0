//! A program that is attached already, in messages.

use std::fmt;
use std::fs;
use std::path::Path;

use libbpf_rs::MapType;
use libbpf_rs::query::{MapInfoIter, ProgInfoIter, ProgInfoQueryOptions};

/// An XDP program of another program or process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedProgram {
    pub id: u32,
    /// `None` if it may not be read, which takes CAP_SYS_ADMIN, or CAP_BPF and CAP_PERFMON.
    pub name: Option<String>,
    /// Name and id of a process that holds the program or its link; `None` if there is none, or none
    /// that may be looked at.
    pub owner: Option<String>,
    /// Its map of AF_XDP sockets, if it has one.
    pub socket_map: Option<String>,
    /// Id of that map.
    pub socket_map_id: Option<u32>,
}

impl AttachedProgram {
    /// Program on an interface of the calling thread's network namespace.
    ///
    /// - Returns `None` if there is none, or if it cannot be read.
    pub fn on(ifindex: u32) -> Option<Self> {
        let index = i32::try_from(ifindex).ok()?;
        let mut found = libbpf_sys::bpf_xdp_query_opts {
            sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        // SAFETY: `found` lives through the call and says its own size.
        let rc = unsafe { libbpf_sys::bpf_xdp_query(index, 0, &raw mut found) };
        let ids = [found.prog_id, found.drv_prog_id, found.skb_prog_id, found.hw_prog_id];
        let id = ids.into_iter().find(|id| *id != 0).filter(|_| rc == 0)?;
        Some(AttachedProgram::read(id))
    }

    /// The way to receive through this program, as the rest of a sentence; empty if it has no map of sockets.
    pub(super) fn remedy(&self) -> String {
        let Some(id) = self.socket_map_id else { return String::new() };
        format!(
            "; or receive through it: `sudo bpftool map pin id {id} /sys/fs/bpf/sockets`, then --xsk-map \
             /sys/fs/bpf/sockets"
        )
    }

    /// Reads what is known of a program; never fails, because error messages need it.
    pub fn read(id: u32) -> Self {
        let options = ProgInfoQueryOptions::default().include_map_ids(true);
        let found = ProgInfoIter::with_query_opts(options).find(|program| program.id == id);
        let maps = found.as_ref().map(|program| program.map_ids.clone()).unwrap_or_default();
        let mut maps = MapInfoIter::default().filter(|map| maps.contains(&map.id));
        let socket_map = maps.find(|map| map.ty == MapType::Xskmap);
        AttachedProgram {
            id,
            name: found.map(|program| program.name.to_string_lossy().into_owned()),
            owner: owner(Path::new("/proc"), id),
            socket_map_id: socket_map.as_ref().map(|map| map.id),
            socket_map: socket_map.map(|map| map.name.to_string_lossy().into_owned()),
        }
    }
}

impl fmt::Display for AttachedProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "`{name}` ")?;
        }
        write!(f, "(id {})", self.id)?;
        if let Some(map) = &self.socket_map {
            write!(f, ", which passes frames to AF_XDP sockets in its map `{map}`")?;
        }
        match &self.owner {
            Some(owner) => write!(f, ", held by {owner}"),
            None => {
                f.write_str(", held by no process that can be seen: pinned, or attached for good")
            }
        }
    }
}

/// The first process with a descriptor of the program or of its link.
///
/// Source: proc_pid_fdinfo(5), `prog_id` of BPF descriptors.
fn owner(proc: &Path, id: u32) -> Option<String> {
    let wanted = format!("prog_id:\t{id}");
    let pids = fs::read_dir(proc).ok()?.flatten().map(|entry| entry.file_name());
    let mut pids = pids.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    pids.find_map(|pid| {
        let process = proc.join(pid.to_string());
        let mut descriptors = fs::read_dir(process.join("fdinfo")).ok()?.flatten();
        descriptors.find(|descriptor| {
            let text = fs::read_to_string(descriptor.path()).unwrap_or_default();
            text.lines().any(|line| line == wanted)
        })?;
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        Some(format!("{} (process {pid})", name.trim_end()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_whatever_is_known() {
        let bare = AttachedProgram {
            id: 12,
            name: None,
            owner: None,
            socket_map: None,
            socket_map_id: None,
        };
        assert!(bare.to_string().starts_with("(id 12), held by no process"), "{bare}");
        let whole = AttachedProgram {
            id: 12,
            name: Some("xsk_def_prog".into()),
            owner: Some("xdpsock (process 7)".into()),
            socket_map: Some("xsks_map".into()),
            socket_map_id: Some(5),
        };
        let expected = "`xsk_def_prog` (id 12), which passes frames to AF_XDP sockets in its map \
                        `xsks_map`, held by xdpsock (process 7)";
        assert_eq!(whole.to_string(), expected);
        assert!(whole.remedy().contains("map pin id 5 "), "{}", whole.remedy());
        assert_eq!(bare.remedy(), "");
    }
}
