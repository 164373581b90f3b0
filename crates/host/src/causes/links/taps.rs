//! Packet sockets that receive copies of packets.

use crate::causes::finding::{Notes, Severity, finding};
use crate::causes::evidence::Evidence;

/// One line of `/proc/net/packet`.
struct Tap {
    protocol: u16,
    interface: u32,
    inode: u64,
}

fn parse(table: &str) -> Vec<Tap> {
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            Some(Tap {
                protocol: u16::from_str_radix(words.get(3)?, 16).ok()?,
                interface: words.get(4)?.parse().ok()?,
                inode: words.get(8)?.parse().ok()?,
            })
        })
        .collect()
}

pub(super) fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(table) = notes.ask(view.proc_net("packet")) else { return };
    for tap in parse(&table) {
        const ALL: u16 = libc::ETH_P_ALL as u16;
        let hears_path = tap.interface == 0 || view.path.contains(&tap.interface);
        // A packet socket without a protocol only sends.
        if !hears_path || tap.protocol == 0 {
            continue;
        }
        let owners = view.owners();
        let owner = match owners.by_inode.get(&tap.inode) {
            Some(owner) => owner.clone(),
            None => {
                if owners.is_partial {
                    notes.unseen(
                        "owners of some packet sockets: their processes may not be inspected",
                    );
                }
                "an unknown process".to_owned()
            }
        };
        let on = match view.links.get(&tap.interface) {
            Some(link) => link.name.clone(),
            None => "all interfaces".to_owned(),
        };
        let (severity, hears) = match tap.protocol {
            ALL => (Severity::Medium, "all packets".to_owned()),
            other => (Severity::Low, format!("protocol {other:#06x}")),
        };
        notes.find(
            finding(severity, format!("{owner} receives {hears} on {on}"))
                .read("/proc/net/packet", format!("protocol {:04x}, inode {}", tap.protocol, tap.inode))
                .read("/proc/PID/fd", &owner)
                .because(
                    "each packet is cloned for it and passes its filter, even if the filter accepts none \
                     (packet(7))",
                )
                .effect("saves a clone and a filter run for each packet")
                .risk("a DHCP client, a monitor or a capture needs it")
                .change(format!("stop {owner}, or restrict it to one protocol"), "start it again"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn packet_socket_table_is_parsed_and_invalid_lines_are_skipped() {
        let table = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n\
                     0000000000000000 3      3    0003   2     1 0      0      6543  \n\
                     nonsense\n";
        let taps = parse(table);
        assert_eq!(taps.len(), 1);
        assert_eq!((taps[0].protocol, taps[0].interface, taps[0].inode), (3, 2, 6543));
        assert!(parse("").is_empty());
    }
}
