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
}

impl AttachedProgram {
    /// Reads what is known of a program; never fails, because error messages need it.
    pub fn read(id: u32) -> Self {
        let options = ProgInfoQueryOptions::default().include_map_ids(true);
        let found = ProgInfoIter::with_query_opts(options).find(|program| program.id == id);
        let maps = found.as_ref().map(|program| program.map_ids.clone()).unwrap_or_default();
        let mut maps = MapInfoIter::default().filter(|map| maps.contains(&map.id));
        AttachedProgram {
            id,
            name: found.map(|program| program.name.to_string_lossy().into_owned()),
            owner: owner(Path::new("/proc"), id),
            socket_map: maps
                .find(|map| map.ty == MapType::Xskmap)
                .map(|map| map.name.to_string_lossy().into_owned()),
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
        let bare = AttachedProgram { id: 12, name: None, owner: None, socket_map: None };
        assert!(bare.to_string().starts_with("(id 12), held by no process"), "{bare}");
        let whole = AttachedProgram {
            id: 12,
            name: Some("xsk_def_prog".into()),
            owner: Some("xdpsock (process 7)".into()),
            socket_map: Some("xsks_map".into()),
        };
        let expected = "`xsk_def_prog` (id 12), which passes frames to AF_XDP sockets in its map \
                        `xsks_map`, held by xdpsock (process 7)";
        assert_eq!(whole.to_string(), expected);
    }
}
