//! Datagrams that waited longer than allowed between the kernel and the application, and their causes.

mod list;
mod note;
mod report;

pub(crate) use list::Now;
pub use list::{LateDatagram, LateList};
pub(crate) use note::Note;
pub(crate) use report::LateDocument;
pub use report::LateReport;

#[cfg(test)]
mod tests {
    use host::interruptions::{Cause, CauseKind};

    use super::*;
    use crate::capture::{CapturedInterface, LinkType, Reader, Writer};

    /// A recording of `payloads`, with a note before and after each.
    fn recording(payloads: &[&[u8]], notes: &[Note]) -> Vec<u8> {
        let interface = CapturedInterface { name: "lab0", link: LinkType::RawIp };
        let mut writer = Writer::new(Vec::new(), &interface, "a test").expect("memory");
        let (from, to) = ("192.0.2.1:1".parse().unwrap(), "224.0.100.100:10000".parse().unwrap());
        let mut notes = notes.iter();
        for payload in payloads {
            notes.by_ref().take(1).for_each(|note| writer.note(note).expect("memory"));
            writer.datagram(7, from, to, payload).expect("memory");
        }
        notes.for_each(|note| writer.note(note).expect("memory"));
        writer.into_inner().expect("memory")
    }

    #[test]
    fn notes_are_read_beside_the_datagrams_and_change_none_of_them() {
        let cause = Cause { kind: CauseKind::Softirq, detail: "NET_RX".into() };
        let notes = [
            Note::Over { at_ns: 0, over_ns: 50_000 },
            Note::Late { stamp_ns: 7, waited_ns: 60_000, cause },
            Note::Counts { at_ns: 0, beyond_count: 3, lost_count: 0 },
        ];
        let payloads = [&b"one"[..], b"two"];
        for (notes, late) in [(&notes[..], true), (&[], false)] {
            let file = recording(&payloads, notes);
            let mut reader = Reader::new("memory", &file[..]).expect("pcapng");
            for (number, payload) in (1..).zip(payloads) {
                let datagram = reader.next_datagram().expect("whole").expect("two");
                assert_eq!((datagram.number, datagram.payload), (number, payload));
            }
            assert_eq!(reader.next_datagram().expect("whole"), None);
            let mut expected = LateReport::default();
            notes.iter().cloned().for_each(|note| expected.add_note(note));
            assert_eq!(reader.late(), late.then_some(expected));
        }
    }
}
