use proptest::prelude::*;

use super::*;

fn message() -> KeepaliveMessage {
    KeepaliveMessage { kind: KeepaliveKind::Request, session: 7, number: 3, time_ns: 99 }
}

#[test]
fn frame_is_read_as_it_was_written_and_shorter_or_other_ones_are_not() {
    let frame = message().frame();
    assert_eq!(KeepaliveMessage::read(&frame), Some(message()));
    let answer = message().answer().expect("a request is answered");
    assert_eq!(KeepaliveMessage::read(&answer.frame()), Some(answer));
    assert_eq!(answer.answer(), None, "an answer is not answered: no loop");
    assert_eq!(KeepaliveMessage::read(&frame[..FRAME_BYTES - 1]), None);
    for at in [0, 5, 12, MAGIC_AT, VERSION_AT, KIND_AT] {
        let mut other = frame;
        other[at] ^= 0x40;
        assert_eq!(KeepaliveMessage::read(&other), None, "byte {at}");
    }
}

fn answer(request: KeepaliveMessage, time_ns: u64) -> KeepaliveMessage {
    KeepaliveMessage { time_ns, ..request.answer().expect("a request") }
}

#[test]
fn answers_are_counted_once_and_only_those_to_requests_that_were_sent() {
    let keepalive = Keepalive::new(7);
    let [first, second] = [keepalive.request(), keepalive.request()];
    keepalive.answered(&answer(first, 10), 25);
    let counts = keepalive.counts();
    assert_eq!((counts.sent_count, counts.answered_count, counts.unanswered_count), (2, 1, 1));
    assert_eq!((counts.delay_ns, counts.delay_ns_max), (15, 15));
    for ignored in [
        answer(first, 10),
        second,
        KeepaliveMessage { session: 8, ..answer(second, 10) },
        KeepaliveMessage { number: 2, ..answer(second, 10) },
        KeepaliveMessage { number: u64::MAX, ..answer(second, 10) },
    ] {
        keepalive.answered(&ignored, 25);
        assert_eq!(keepalive.counts(), counts, "{ignored:?}");
    }
    keepalive.answered(&answer(second, 20), 24);
    let counts = keepalive.counts();
    assert_eq!((counts.answered_count, counts.unanswered_count), (2, 0));
    assert_eq!((counts.delay_ns, counts.delay_ns_max), (4, 15));
}

proptest! {
    #[test]
    fn any_frame_is_refused_or_read_whole(
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
        is_mended in any::<bool>(),
    ) {
        let mut frame = bytes;
        if is_mended && frame.len() >= KIND_AT {
            frame[..VERSION_AT + 1].copy_from_slice(&message().frame()[..VERSION_AT + 1]);
        }
        fuzzing::keepalive(&frame);
    }
}

#[test]
fn corpus_of_keepalives_holds() {
    testkit::corpus::replay("keepalive", fuzzing::keepalive);
}
