//! Every XDP verb: each frame that a program handles is where the verb sends it.

use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use wirepath_sys::bpf::{
    BpfError, DropCounter, DropSpec, Generator, Verb, VerbCounts, VerbProgram, XdpMode,
};

use crate::lab::{Pair, Shape, can_run, udp_frame};

/// Fewer than a veth's ring and a CPU map hold, so that none is refused whatever runs when.
const FRAMES: u32 = 64;

/// Frames at each place after [`FRAMES`] frames: handled by the program, on the map's CPU, in the far
/// end's stack, and out of the far end again.
fn after(verb: Verb) -> (VerbCounts, u64, u64) {
    let pair = Pair::new();
    let (near_index, far_index) = (pair.near_index, pair.far_index);
    let verb = match verb {
        Verb::Devmap { .. } => Verb::Devmap { ifindex: far_index },
        verb => verb,
    };
    let returned = pair.near.run(move || {
        let mut returned = DropCounter::load(&DropSpec::default()).expect("load");
        returned.attach(near_index, XdpMode::Native).expect("attach");
        returned
    });
    // Keeps the stack from answering that nothing listens there.
    let _socket = pair.far.run(|| UdpSocket::bind(("10.9.0.2", 7000)).expect("bind"));
    let program = pair.far.run(move || {
        let mut program = VerbProgram::load(verb).expect("load");
        program.attach(far_index, XdpMode::Native).expect("attach");
        program
    });
    let sent = pair.near.run(move || {
        let frame = udp_frame(7000, &[0; 18], Shape::default());
        let mut generator = Generator::new(&frame, near_index, 42).expect("new");
        generator.run(FRAMES, FRAMES).expect("run");
        generator.sent()
    });
    assert_eq!(sent, u64::from(FRAMES));
    let seen = || {
        let handled = program.counts().expect("counts");
        let in_stack = pair.far.run(|| ip_received(&fs::read_to_string(SNMP).expect("counters")));
        (handled, in_stack, returned.counts().expect("counts").frames)
    };
    let mut last = seen();
    testkit::until(Duration::from_secs(60), || {
        last = seen();
        last.0.handled == sent && last.0.on_cpu + last.1 + last.2 >= fate_count(verb)
    });
    last
}

const SNMP: &str = "/proc/thread-self/net/snmp";

/// Frames that another counter than the program's own has to see.
fn fate_count(verb: Verb) -> u64 {
    if verb == Verb::Drop { 0 } else { u64::from(FRAMES) }
}

fn ip_received(table: &str) -> u64 {
    let mut lines = table.lines().filter(|line| line.starts_with("Ip: "));
    let at = lines.next().expect("names").split(' ').position(|name| name == "InReceives");
    let value = lines.next().expect("values").split(' ').nth(at.expect("InReceives"));
    value.expect("a value").parse().expect("a number")
}

#[test]
fn every_frame_is_counted_where_its_verb_sends_it() {
    if !can_run() {
        return;
    }
    let all = u64::from(FRAMES);
    let handled = |on_cpu| VerbCounts { handled: all, on_cpu };
    for (verb, expected) in [
        (Verb::Drop, (handled(0), 0, 0)),
        (Verb::Pass, (handled(0), all, 0)),
        (Verb::Tx, (handled(0), 0, all)),
        (Verb::Devmap { ifindex: 0 }, (handled(0), 0, all)),
        (Verb::Cpumap { cpu: 0 }, (handled(all), 0, 0)),
    ] {
        assert_eq!(after(verb), expected, "{verb:?}");
    }
}

#[test]
fn target_that_does_not_exist_is_named() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    pair.far.run(|| {
        let error = VerbProgram::load(Verb::Devmap { ifindex: 9999 }).expect_err("no interface");
        assert!(matches!(error, BpfError::NoInterface { ifindex: 9999, .. }), "{error}");
        let error = VerbProgram::load(Verb::Cpumap { cpu: 4095 }).expect_err("no CPU");
        assert!(error.to_string().contains("cpus"), "{error}");
    });
}
