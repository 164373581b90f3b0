//! Packet sockets that receive copies of packets.

use super::copies::CAPTURES;
use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "A packet socket receives a copy of each packet",
    symptom: "the host spends more CPU time for each packet since a capture, monitor or DHCP client runs",
    evidence: "`/proc/net/packet`: sockets for all protocols or for one, and their programs",
    remedy: "end the capture that was forgotten, or restrict it to one interface and protocol",
    undo: "start it again",
    references: &["packet(7)"],
    is_of_forwarding: true,
    ..Cause::new("taps", check)
};

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

fn check(view: &Evidence, notes: &mut Notes<'_>) {
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
            counted(view, &tap, finding(severity, format!("{owner} receives {hears} on {on}")))
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

/// Adds the frames that the observer saw pass the socket, and the copies that were made of them.
fn counted(view: &Evidence, tap: &Tap, found: Finding) -> Finding {
    let hears = |index: u32| tap.interface == 0 || tap.interface == index;
    let Some(observed) = &view.observed else { return found };
    let heard = view.interfaces().filter(|link| hears(link.index));
    let frames: u64 = heard
        .filter_map(|link| view.observed_at(link.index))
        .map(|counts| match i32::from(tap.protocol) {
            libc::ETH_P_ALL => counts.received.count + counts.sent.count,
            _ => counts.received.count,
        })
        .sum();
    if frames == 0 {
        return found;
    }
    let found = found
        .seen(Confidence::Now)
        .costs(format!("{frames} frames passed its filter in {:.1} s", observed.seconds()))
        .read("frames of its interfaces (observer)", frames.to_string());
    let copies = view.observed_clones().chain(view.observed_copies());
    let copies = copies.filter(|one| hears(one.index) && CAPTURES.contains(&one.caller.as_str()));
    let copies: Vec<String> =
        copies.map(|one| format!("{} of {} by {}", one.count, one.interface, one.by())).collect();
    match &copies[..] {
        [] => found,
        copies => found.read("clones and copies for packet sockets (observer)", copies.join(", ")),
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
