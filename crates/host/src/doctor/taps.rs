//! Packet sockets that hear what passes.

use super::{Notes, Scene, Severity, finding};

/// One line of `/proc/net/packet`.
struct Tap {
    protocol: u16,
    interface: u32,
    inode: u64,
}

fn parse(table: &str) -> Vec<Tap> {
    let tap = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        Some(Tap {
            protocol: u16::from_str_radix(words.get(3)?, 16).ok()?,
            interface: words.get(4)?.parse().ok()?,
            inode: words.get(8)?.parse().ok()?,
        })
    };
    table.lines().skip(1).filter_map(tap).collect()
}

pub(super) fn look(scene: &Scene, notes: &mut Notes<'_>) {
    let table = match scene.proc_net("packet") {
        Ok(table) => table,
        Err(why) => return notes.unseen(why),
    };
    for tap in parse(&table) {
        const ALL: u16 = libc::ETH_P_ALL as u16;
        let hears_path = tap.interface == 0 || scene.path.contains(&tap.interface);
        // Without a protocol, a packet socket hears nothing: it only sends.
        if !hears_path || tap.protocol == 0 {
            continue;
        }
        let owners = scene.owners();
        let owner = match owners.by_inode.get(&tap.inode) {
            Some(owner) => owner.clone(),
            None => {
                if owners.is_partial {
                    notes.unseen("owners of some packet sockets: their processes are not ours");
                }
                "somebody unknown".to_owned()
            }
        };
        let on = match scene.links.get(&tap.interface) {
            Some(link) => link.name.clone(),
            None => "all interfaces".to_owned(),
        };
        let (severity, hears) = match tap.protocol {
            ALL => (Severity::Medium, "everything".to_owned()),
            other => (Severity::Low, format!("protocol {other:#06x}")),
        };
        notes.find(
            finding(severity, format!("{owner} hears {hears} on {on}"))
                .read("/proc/net/packet", format!("protocol {:04x}, inode {}", tap.protocol, tap.inode))
                .read("/proc/PID/fd", &owner)
                .because(
                    "each packet is cloned for it and runs through its filter, also when that takes \
                     nothing (packet(7))",
                )
                .effect("a clone and a filter less for each packet")
                .risk("a DHCP client, a monitor or a capture needs it")
                .change(format!("end {owner}, or have it hear one protocol alone"), "start it again"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_table_of_packet_sockets_is_read_and_nonsense_is_skipped() {
        let table = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n\
                     0000000000000000 3      3    0003   2     1 0      0      6543  \n\
                     nonsense\n";
        let taps = parse(table);
        assert_eq!(taps.len(), 1);
        assert_eq!((taps[0].protocol, taps[0].interface, taps[0].inode), (3, 2, 6543));
        assert!(parse("").is_empty());
    }
}
