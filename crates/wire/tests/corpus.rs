//! Replays the fuzzers' corpus, so that what they once found stays found.

use std::fs;
use std::path::Path;

use wirepath_wire::fuzzing;

/// Gives every file of the target's corpus to `body`, which panics when something is wrong.
fn replay(target: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is committed").flatten() {
        body(&fs::read(entry.path()).expect("a corpus holds files"));
        count += 1;
    }
    assert!(count >= 5, "{} holds {count} files", folder.display());
}

#[test]
fn corpus_of_frames_holds() {
    replay("frame", fuzzing::frame);
}

#[test]
fn corpus_of_probe_headers_holds() {
    replay("probe_header", fuzzing::probe_header);
}

#[test]
fn corpus_of_arp_and_icmp_holds() {
    replay("arp_icmp", fuzzing::arp_icmp);
}

#[test]
fn corpus_of_twse_telegrams_holds() {
    replay("twse", fuzzing::twse);
}

#[test]
fn corpus_of_mold_packets_and_itch_messages_holds() {
    replay("mold_itch", fuzzing::mold_itch);
}
