//! Arms of the feed in the lab: each switch has its effect, and every lost quote is accounted for.

use std::net::SocketAddrV4;
use std::time::Duration;

use marketdata::capture::{CapturedInterface, LinkType, Writer};
use wirepath_feed::Switch;

use model::{Arm, Measurement, Support};
use model::{Load, Path};
use testkit::alone;
use testkit::arms::{self, counter};

fn feed() -> Box<dyn Path> {
    Box::new(wirepath_feed::Feed)
}

fn load(kind: &str) -> Load {
    arms::load(feed().as_ref(), kind, Duration::from_millis(200))
}

/// The counts of kernel and receiver agree on every quote.
#[track_caller]
fn balances(name: &str, m: &Measurement) {
    let accounted = counter(m, "received_count") + counter(m, "dropped_by_socket_count");
    assert_eq!(counter(m, "sent_count"), accounted, "{name}: {:?}", m.counters);
    assert_eq!(counter(m, "missing_count"), 0, "{name}");
    assert_eq!(counter(m, "stray_count"), 0, "{name}");
    assert_eq!(m.deliveries["forward"].reordered_count, 0, "{name}");
    assert_eq!(m.deliveries["forward"].duplicated_count, Some(0), "{name}");
}

fn supported(arm: &Arm, load: &Load) -> bool {
    arms::supported(feed().as_ref(), arm, load)
}

#[test]
fn a_surge_overflows_the_default_buffer_and_both_counts_agree() {
    let _alone = alone();
    let load = load("surge");
    let mut session = feed().open(&load).expect("a lab");
    let baseline = session.trial(&Arm::baseline()).expect("baseline");
    balances("baseline", &baseline);
    let dropped = counter(&baseline, "dropped_by_socket_count");
    assert!(dropped > 0, "printing keeps up with 1,000 at once: {:?}", baseline.counters);
    assert_eq!(baseline.lost_count(), dropped);
    let refused = baseline.metrics().into_iter().find(|m| m.name == "schedule_to_app_ns_max");
    let why = refused.expect("named").value.expect_err("refused under loss");
    assert!(why.contains("lost"), "{why}");

    let big = Arm::with([Switch::BigRcvbuf]);
    if supported(&big, &load) {
        let m = session.trial(&big).expect("it runs");
        balances("big-rcvbuf", &m);
        assert_eq!(m.lost_count(), 0, "{:?}", m.counters);
        assert!(m.not_effective.is_empty(), "{:?}", m.not_effective);

        // A receiver that prints is slower than the exchange: quotes gather for the next call.
        let m = session.trial(&Arm::with([Switch::BigRcvbuf, Switch::Batch])).expect("it runs");
        balances("batch", &m);
        let calls = m.costs["far"].syscall_count.expect("counted");
        assert!(calls < counter(&m, "received_count") / 2, "{calls} calls: {:?}", m.counters);
    }
}

#[test]
fn every_arm_receives_every_quote_and_times_its_segments() {
    let _alone = alone();
    let load = load("burst");
    let mut session = feed().open(&load).expect("a lab");
    for ids in [
        &[][..],
        &[Switch::Quiet],
        &[Switch::Quiet, Switch::Spin, Switch::Pin],
        &[Switch::Quiet, Switch::Fifo],
        &[Switch::Quiet, Switch::Pin, Switch::Rps],
        &[Switch::Quiet, Switch::BigRcvbuf, Switch::Batch],
        &[Switch::Quiet, Switch::BusyPoll],
        &[Switch::Quiet, Switch::LockMemory],
        &[Switch::Quiet, Switch::Spin, Switch::Pin, Switch::Bypass],
    ] {
        let arm = Arm::with(ids.iter().copied());
        if !supported(&arm, &load) {
            continue;
        }
        let m = session.trial(&arm).unwrap_or_else(|e| panic!("{}: {e}", arm.name));
        balances(&arm.name, &m);
        assert_eq!(counter(&m, "received_count"), 400, "{}", arm.name);
        assert_eq!(m.segments["schedule→app"].len(), 400, "{}", arm.name);
        assert_eq!(m.segments["match→app"].len(), 400, "{}", arm.name);
        let stamped = m.segments.get("kernel→app").map_or(0, |h| h.len());
        if arm.has(Switch::Bypass) {
            // By the XDP program, every frame.
            assert_eq!(stamped, 400);
        } else {
            // The kernel enables stamping in the background for the first such socket.
            assert!(stamped > 300, "{}: {stamped}", arm.name);
        }
    }
}

#[test]
fn effects_of_switches_are_read_back() {
    let _alone = alone();
    let load = load("paced");
    let mut session = feed().open(&load).expect("a lab");
    let mut trial = |ids: &[Switch]| {
        let arm = Arm::with(ids.iter().copied());
        supported(&arm, &load)
            .then(|| session.trial(&arm).unwrap_or_else(|e| panic!("{ids:?}: {e}")))
    };
    let plain = trial(&[]).expect("the baseline needs nothing");
    assert_eq!(counter(&plain, "far_printed_line_count"), counter(&plain, "received_count"));
    for entry in ["far scheduling", "far CPU", "far receive buffer"] {
        assert!(!plain.mode.contains_key(entry), "{entry}");
    }
    if let Some(m) = trial(&[Switch::Quiet]) {
        assert!(!m.counters.contains_key("far_printed_line_count"));
    }
    if let Some(m) = trial(&[Switch::Fifo]) {
        assert_eq!(m.mode["far scheduling"], "SCHED_FIFO 80");
    }
    if let Some(m) = trial(&[Switch::Pin]) {
        let cpus = sys::affinity::allowed_cpus().expect("CPUs");
        assert_eq!(m.mode["far CPU"], format!("[{}]", cpus[cpus.len() - 1]));
    }
    if let Some(m) = trial(&[Switch::BigRcvbuf]) {
        assert_eq!(m.mode["far receive buffer"], "16777216 bytes");
    }
    if let Some(m) = trial(&[Switch::LockMemory]) {
        assert!(counter(&m, "locked_bytes") > 1 << 20);
    }
    assert_eq!(sys::sched::locked_bytes(), 0, "memory stayed locked");
    if let Some(m) = trial(&[Switch::BusyPoll]) {
        let why = &m.not_effective.first().expect("a veth has no NAPI instance to name").why;
        assert!(why.contains("SO_INCOMING_NAPI_ID"), "{why}");
    }
}

/// A capture of opaque payloads with a number at offset 2, a burst of 20 each 10 ms.
fn capture(count: u16) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("wirepath-prove-{}", std::process::id()));
    let file = std::fs::File::create(&path).expect("a file");
    let interface = CapturedInterface { name: "none", link: LinkType::RawIp };
    let mut writer = Writer::new(file, &interface, "test").expect("a capture");
    let [from, to] = [9, 10_000].map(|port| SocketAddrV4::new([239, 1, 1, 1].into(), port));
    for n in 0..count {
        let payload = [b"xy", &n.to_be_bytes()[..], &vec![7; usize::from(n % 900)]].concat();
        let stamp_ns = 1_000_000_000 + u64::from(n / 20) * 10_000_000;
        writer.datagram(stamp_ns, from, to, &payload).expect("written");
    }
    writer.flush().expect("flushed");
    path
}

#[test]
fn a_capture_of_another_protocol_is_received_in_full_and_timed() {
    let _alone = alone();
    let file = capture(400);
    let sequence = "be16@2".parse().expect("a field");
    let path = wirepath_feed::ReplayedFeed { file: file.clone(), sequence };
    let load = arms::load(&path, "replay", Duration::from_secs(1));
    let mut session = path.open(&load).expect("a lab");
    for ids in [&[Switch::BigRcvbuf][..], &[Switch::BigRcvbuf, Switch::Quiet, Switch::Bypass]] {
        let arm = Arm::with(ids.iter().copied());
        if !arms::supported(&path, &arm, &load) {
            continue;
        }
        let m = session.trial(&arm).expect("it runs");
        balances(&arm.name, &m);
        assert_eq!(counter(&m, "received_count"), 400, "{}", arm.name);
        assert_eq!(m.segments["schedule→app"].len(), 400, "{}", arm.name);
        assert!(!m.segments.contains_key("match→app"), "opaque payloads have no match time");
    }
    let wrong = wirepath_feed::ReplayedFeed { sequence: "be8@0".parse().expect("a field"), ..path };
    let refused = wrong.open(&load).err().expect("every payload begins alike").to_string();
    assert!(refused.contains("be8@0") && refused.contains("--sequence"), "{refused}");
    std::fs::remove_file(&file).expect("removed");
}

#[test]
fn rps_without_pin_is_refused_with_the_valid_form() {
    let load = load("burst");
    match feed().support(&Arm::with([Switch::Quiet, Switch::Rps]), &load) {
        Support::Refused { why } => assert!(why.contains("pin+rps"), "{why}"),
        other => panic!("{other:?}"),
    }
    let pinned = feed().support(&Arm::with([Switch::Pin, Switch::Rps]), &load);
    assert!(!matches!(pinned, Support::Refused { .. }), "{pinned:?}");
}

#[test]
fn a_capture_between_two_ends_is_refused_with_the_remedy() {
    let sequence = "be16@2".parse().expect("a field");
    let path = wirepath_feed::ReplayedFeed { file: "none.pcap".into(), sequence };
    let load = arms::load(&path, "replay", Duration::from_secs(1));
    let load = Load { far: Some(model::TwoHosts::default()), ..load };
    let refused = path.open(&load).err().expect("refused").to_string();
    assert!(refused.contains("--replay") && refused.contains("--far"), "{refused}");
}

#[test]
fn switches_and_loads_beyond_a_far_end_are_refused_with_the_remedy() {
    let far = model::TwoHosts { end: "netns:none".into(), ..model::TwoHosts::default() };
    let between = Load { far: Some(far), ..load("burst") };
    match feed().support(&Arm::with([Switch::Pin, Switch::Rps]), &between) {
        Support::Unsupported { needs, .. } => assert!(needs.contains("tune prove"), "{needs}"),
        other => panic!("{other:?}"),
    }
    let many = Load { rate_pps: 10_000_000, ..between };
    let refused = feed().open(&many).err().expect("refused").to_string();
    assert!(refused.contains("at most 1000000") && refused.contains("--rate"), "{refused}");
}
