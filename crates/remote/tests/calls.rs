//! The answering end among near ends that fail, lie, stall or vanish.

mod common;

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{Echo, EchoAnswer, EchoCall};
use wirepath_remote::{Calls, Greeting, LINE_BYTES_MAX, NearEndGone, RemoteError};

const LIMIT: Duration = Duration::from_secs(20);

type Started = Result<Calls<Echo>, RemoteError>;

/// A near end of our own, and the thread that waits for its greeting.
struct NearEnd {
    to: PipeWriter,
    from: BufReader<PipeReader>,
    stop: &'static AtomicBool,
    starting: JoinHandle<Started>,
}

impl NearEnd {
    fn start() -> Self {
        let (input, to) = pipe().expect("a pipe");
        let (from, output) = pipe().expect("a pipe");
        let stop: &AtomicBool = Box::leak(Box::default());
        let starting =
            thread::spawn(move || Calls::<Echo>::over(input.into(), output.into(), stop));
        NearEnd { to, from: BufReader::new(from), stop, starting }
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("a line");
        line
    }

    /// Sends a first line. Returns the error of the answering end.
    fn refused_after(mut self, line: &[u8]) -> String {
        // It may be refused before all of it was read.
        let _ = self.to.write_all(line);
        drop(self.to);
        let ended = self.starting.join().expect("no panic");
        host::text::chain(&ended.expect_err("refused"))
    }

    /// Greets; returns its writing and reading end, the stop flag, and the calls.
    fn greeted(mut self) -> (PipeWriter, BufReader<PipeReader>, &'static AtomicBool, Calls<Echo>) {
        let theirs: Greeting = serde_json::from_str(&self.hear()).expect("a greeting");
        assert_eq!(theirs, Greeting::own::<Echo>());
        send(&mut self.to, &Greeting::own::<Echo>());
        let calls = self.starting.join().expect("no panic").expect("it greets");
        (self.to, self.from, self.stop, calls)
    }
}

fn send(to: &mut PipeWriter, message: &impl serde::Serialize) {
    let line = serde_json::to_string(message).expect("JSON");
    to.write_all(format!("{line}\n").as_bytes()).expect("it reads");
}

/// Waits until the near end counts as gone; returns the reason.
fn reason(mut calls: Calls<Echo>, stop: &AtomicBool) -> Result<(), String> {
    while calls.next_call().is_some() {}
    let until = Instant::now() + LIMIT;
    while !stop.load(Ordering::Relaxed) && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(stop.load(Ordering::Relaxed), "work for a near end that is gone is stopped");
    calls.finish().map_err(|error| host::text::chain(&error))
}

#[test]
fn calls_come_in_order_between_heartbeats_and_are_answered() {
    let (mut to, mut from, stop, mut calls) = NearEnd::start().greeted();
    assert_eq!(calls.within(Duration::ZERO), Ok(None));
    for text in ["one", "two"] {
        to.write_all(b"\n\n").expect("it reads");
        send(&mut to, &EchoCall::Say(text.into()));
    }
    for text in ["one", "two"] {
        assert_eq!(calls.next_call(), Some(EchoCall::Say(text.into())));
        calls.answer(&EchoAnswer::Said(text.into())).expect("it reads");
        let mut line = String::new();
        from.read_line(&mut line).expect("an answer");
        assert_eq!(line, format!("{{\"said\":\"{text}\"}}\n"));
    }
    assert!(!stop.load(Ordering::Relaxed));
    send(&mut to, &EchoCall::Interrupt);
    send(&mut to, &EchoCall::Say("after".into()));
    assert_eq!(calls.within(LIMIT), Ok(Some(EchoCall::Say("after".into()))));
    assert!(stop.load(Ordering::Relaxed), "an interrupt is not passed on");
    drop(to);
    assert_eq!(calls.within(LIMIT), Err(NearEndGone));
    calls.finish().expect("it was closed");
}

#[test]
fn another_version_and_another_service_are_refused_with_both_named() {
    let own = Greeting::own::<Echo>();
    for theirs in [
        Greeting { exchange: own.exchange + 1, wirepath: "9.9.9".into(), ..own.clone() },
        Greeting { service: "another".into(), wirepath: "9.9.9".into(), ..own.clone() },
    ] {
        let line = format!("{}\n", serde_json::to_string(&theirs).expect("JSON"));
        let said = NearEnd::start().refused_after(line.as_bytes());
        let both = said.contains("wirepath 9.9.9") && said.contains(&own.wirepath);
        assert!(both && said.contains("the same wirepath version"), "{said}");
        let versions = [own.exchange, theirs.exchange].map(|number| format!("version {number} "));
        assert!(versions.iter().all(|version| said.contains(version)), "{said}");
    }
}

#[test]
fn first_line_that_is_no_greeting_is_refused() {
    let garbled = "sent an unexpected line";
    for (line, expected) in [
        (&b"GET / HTTP/1.1\r\n"[..], garbled),
        (b"{}\n", garbled),
        (b"\xff\x00\n", garbled),
        (&[b'x'; 1 << 16], "longer than 4096 bytes"),
        (&[b'['; 1 << 16], "longer than 4096 bytes"),
        (b"", "closed the exchange"),
    ] {
        let said = NearEnd::start().refused_after(line);
        assert!(said.contains("the near end") && said.contains(expected), "{said}");
    }
}

#[test]
fn every_broken_rule_ends_in_one_error_and_stops_the_work() {
    let flood = b"{\"say\":\"\"}\n".repeat(1000);
    let depth = [&b"["[..]; 10_000].concat();
    for (bytes, expected) in [
        (&b"{\"say\":7}\n"[..], "unexpected line: \"{\\\"say\\\":7}\""),
        (b"{\"colour\":7}\n", "unexpected line"),
        (b"\x1b[31m\n", "unexpected line: \"[31m\""),
        (&[&depth[..], b"\n"].concat(), "unexpected line"),
        (&vec![b'x'; LINE_BYTES_MAX + 1], "longer than 4194304 bytes"),
        (&flood, "more than 64 calls"),
    ] {
        let (mut to, _from, stop, calls) = NearEnd::start().greeted();
        // It may stop reading in the middle.
        let writing = thread::spawn({
            let bytes = bytes.to_vec();
            move || to.write_all(&bytes)
        });
        let until = Instant::now() + LIMIT;
        while !stop.load(Ordering::Relaxed) && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        let said = reason(calls, stop).expect_err(expected);
        assert!(said.contains("the near end") && said.contains(expected), "{expected}: {said}");
        let _ = writing.join().expect("no panic");
    }
}

#[test]
fn near_end_that_is_killed_in_the_middle_of_a_line_is_gone_without_an_error() {
    let (mut to, _from, stop, calls) = NearEnd::start().greeted();
    to.write_all(b"{\"say\":\"ha").expect("it reads");
    drop(to);
    reason(calls, stop).expect("it is gone");
}

#[test]
fn answer_that_is_not_read_ends_with_the_near_end() {
    let (to, from, _stop, calls) = NearEnd::start().greeted();
    // More than a pipe holds.
    let answering = thread::spawn(move || calls.answer(&EchoAnswer::Said("x".repeat(1 << 20))));
    thread::sleep(Duration::from_millis(50));
    assert!(!answering.is_finished(), "the pipe is full");
    drop(to);
    let said = answering.join().expect("no panic").expect_err("not sent").to_string();
    assert!(said.contains("the connection to the near end broke"), "{said}");
    drop(from);
}
