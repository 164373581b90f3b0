//! Replays the fuzzers' corpus, so that what they once found stays found.

#[path = "../../../fuzz/inputs.rs"]
mod inputs;

use wirepath_wire::fuzzing;

/// Gives every input of the target to `body`, which panics when something is wrong.
fn replay(target: &str, body: fn(&[u8])) {
    let inputs = inputs::of(target);
    inputs.iter().for_each(|bytes| body(bytes));
    assert!(inputs.len() >= 5, "{target} has {} inputs", inputs.len());
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
