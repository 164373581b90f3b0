//! Every frame has exactly one owner at any time, whatever happens to the link.
//!
//! Long version: `WIREPATH_LEDGER_FRAMES=10000000 cargo test --release -p wirepath-probe --test
//! ledger`.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{
    FAR_PORT, NEAR_PORT, Running, alone, counter, local, note, remote, run, tasks, until, xdp,
};
use io::{AnyEngine, EngineSpec, Role, Setup, Wait, XdpMode};
use lab::{Pair, PairSpec};
use wirepath_probe::role::{self, Pace, RoleReport, Steering};
use xdp::LedgerBalance;

const MODES: [(&str, XdpMode, Wait); 4] = [
    ("skb, poll", XdpMode::Skb, Wait::Block),
    ("skb, spin", XdpMode::Skb, Wait::Spin),
    ("native, poll", XdpMode::Native, Wait::Block),
    ("native, spin", XdpMode::Native, Wait::Spin),
];

/// Frames of one run.
fn frames() -> u64 {
    let given = std::env::var("WIREPATH_LEDGER_FRAMES").ok();
    given.map_or(300_000, |n| n.parse().expect("WIREPATH_LEDGER_FRAMES is a number"))
}

fn pair() -> Pair {
    Pair::new(&PairSpec::default()).expect("a lab")
}

fn engine((_, mode, wait): (&str, XdpMode, Wait)) -> EngineSpec {
    xdp(mode, wait, 64)
}

/// Datagrams received so far. Counted at the near end if it pings, because an echoing end updates
/// its live count only while idle.
fn through(role: Role, near: &Running, far: &Running) -> u64 {
    let end = if role == Role::Ping { near } else { far };
    end.live.received_count.load(Ordering::Relaxed)
}

#[track_caller]
fn balanced(what: &str, ledger: Option<LedgerBalance>) -> LedgerBalance {
    let ledger = ledger.expect("an AF_XDP engine keeps a ledger");
    assert!(ledger.balances(), "{what}: {ledger:?}");
    assert_eq!(ledger.held_count, 0, "{what}: a frame was not released: {ledger:?}");
    ledger
}

/// All sent frames were reclaimed; the others are free or posted for receive.
#[track_caller]
fn settled(what: &str, ledger: Option<LedgerBalance>) {
    let ledger = balanced(what, ledger);
    assert_eq!(ledger.sending_count, 0, "{what}: {ledger:?}");
}

/// Each datagram arrived at most once, and in order because there is one queue.
#[track_caller]
fn arrived_once(what: &str, sent: &RoleReport, at: &RoleReport) {
    let arrived = at.arrived;
    assert_eq!(arrived.duplicated_count, Some(0), "{what}: {arrived:?}");
    assert_eq!(arrived.reordered_count, 0, "{what}: {arrived:?}");
    assert_eq!((at.too_old_count, at.stray_count), (0, 0), "{what}");
    assert!(arrived.received_count <= sent.sent_count, "{what}: {arrived:?}");
    assert!(arrived.received_count > 0, "{what}: nothing arrived");
    assert_eq!(counter(at, "xdp_rx_invalid_count"), 0, "{what}");
    assert_eq!(counter(sent, "xdp_tx_invalid_count"), 0, "{what}");
}

#[test]
fn a_flood_one_way_leaves_every_frame_accounted_for() {
    let _alone = alone();
    for mode in MODES {
        let pair = pair();
        let (near, far) = tasks(Role::Send, &engine(mode), Pace::Flood, 64, Some(frames()));
        let (sent, received) = run(&pair.near, &pair.far, &near, &far).expect(mode.0);
        assert_eq!(sent.sent_count, frames(), "{}", mode.0);
        settled(mode.0, sent.engine.ledger);
        settled(mode.0, received.engine.ledger);
        arrived_once(mode.0, &sent, &received);
        let (got, ms) = (received.arrived.received_count, sent.wall_ns / 1_000_000);
        note(&format!("{}: sent {}, received {got}, in {ms} ms", mode.0, sent.sent_count));
    }
}

#[test]
fn a_flood_of_pings_leaves_every_frame_accounted_for_at_both_ends() {
    let _alone = alone();
    for mode in MODES {
        let pair = pair();
        // Faster than any engine can answer: a schedule that is always late is a flood.
        let pace = Pace::Rate(10_000_000);
        let (near, far) = tasks(Role::Ping, &engine(mode), pace, 64, Some(frames()));
        let (pinged, echoed) = run(&pair.near, &pair.far, &near, &far).expect(mode.0);
        assert_eq!(pinged.sent_count, frames(), "{}", mode.0);
        settled(mode.0, pinged.engine.ledger);
        settled(mode.0, echoed.engine.ledger);
        arrived_once(mode.0, &pinged, &echoed);
        arrived_once(mode.0, &echoed, &pinged);
        let at_echo = echoed.arrived.received_count;
        assert_eq!(
            echoed.sent_count + counter(&echoed, "echo_dropped_count"),
            at_echo,
            "{}",
            mode.0
        );
        let (back, ms) = (pinged.arrived.received_count, pinged.wall_ns / 1_000_000);
        note(&format!(
            "{}: pinged {}, echoed {at_echo}, back {back}, in {ms} ms",
            mode.0, pinged.sent_count
        ));
    }
}

#[test]
fn a_fill_ring_that_runs_empty_loses_datagrams_but_no_frame() {
    let _alone = alone();
    for mode in MODES {
        let pair = pair();
        let (near, far) = tasks(Role::Send, &engine(mode), Pace::Flood, 64, Some(200));
        let starved = EngineSpec { frames: 64, ..engine(mode) };
        // The receiver is open but not polled until all is sent, so that its fill ring runs empty.
        let opened =
            pair.far.run(|| io::open(&Setup::receive(&starved, &local(&pair.far, FAR_PORT), 64)));
        let mut receiver: AnyEngine = opened.expect("the far end").expect(mode.0);
        let stop = AtomicBool::new(false);
        let sent = pair.near.run(|| {
            let (from, to) = (local(&pair.near, NEAR_PORT), remote(&pair.far, FAR_PORT));
            role::open_and_run(&near, &from, Some(&to), &stop, None)
        });
        let sent = sent.expect("the near end").expect(mode.0);
        stop.store(true, Ordering::Relaxed);
        let steering = Steering { stop: &stop, live: None, watch: None };
        let received = role::run(&mut receiver, &far, steering).expect(mode.0);
        assert_eq!(sent.sent_count, 200);
        assert_eq!(received.arrived.received_count, 64, "{}: one per frame", mode.0);
        let counters = &received.engine.counters;
        assert_eq!(counter(&received, "xdp_rx_dropped_count"), 136, "{}: {counters:?}", mode.0);
        assert!(counter(&received, "xdp_fill_ring_empty_count") > 0, "{}: {counters:?}", mode.0);
        settled(mode.0, received.engine.ledger);
    }
}

#[test]
fn few_frames_under_a_flood_are_reused_and_never_lost() {
    let _alone = alone();
    for mode in MODES {
        let pair = pair();
        let starved = EngineSpec { frames: 64, ..engine(mode) };
        for (role, pace) in [(Role::Send, Pace::Flood), (Role::Ping, Pace::Rate(10_000_000))] {
            let (near, far) = tasks(role, &starved, pace, 64, Some(50_000));
            let (sent, received) = run(&pair.near, &pair.far, &near, &far).expect(mode.0);
            assert_eq!(sent.sent_count, 50_000, "{}", mode.0);
            settled(mode.0, sent.engine.ledger);
            settled(mode.0, received.engine.ledger);
            arrived_once(mode.0, &sent, &received);
        }
    }
}

#[test]
fn a_link_that_goes_down_and_comes_back_costs_datagrams_but_no_frame() {
    let _alone = alone();
    for mode in MODES {
        for role in [Role::Send, Role::Ping] {
            let pair = pair();
            let pace = if role == Role::Send { Pace::Flood } else { Pace::Rate(50_000) };
            let (near, far) = tasks(role, &engine(mode), pace, 64, None);
            let (sending, answering) = Running::both(&pair, near, far).expect(mode.0);
            let flowing = || {
                let seen = through(role, &sending, &answering);
                until(|| through(role, &sending, &answering) > seen)
            };
            for end in [&pair.far, &pair.near] {
                assert!(flowing(), "{}: nothing arrives", mode.0);
                end.set_up(false).expect("down");
                end.set_up(true).expect("up");
            }
            assert!(flowing(), "{}, {role:?}: nothing arrives after the flap", mode.0);
            let sent = sending.stop();
            let received = answering.drained();
            settled(mode.0, sent.ledger);
            settled(mode.0, received.ledger);
            let (sent, received) = (sent.ran.expect(mode.0), received.ran.expect(mode.0));
            arrived_once(mode.0, &sent, &received);
            assert!(sent.arrived.duplicated_count == Some(0), "{}", mode.0);
        }
    }
}

#[test]
fn a_deleted_interface_is_reported_and_no_frame_is_lost() {
    let _alone = alone();
    for mode in MODES {
        for role in [Role::Send, Role::Ping] {
            let what = format!("{}, {role:?}", mode.0);
            let pair = pair();
            let pace = if role == Role::Send { Pace::Flood } else { Pace::Rate(50_000) };
            let (near, far) = tasks(role, &engine(mode), pace, 64, None);
            let (sending, answering) = Running::both(&pair, near, far).expect(mode.0);
            let arrives = until(|| through(role, &sending, &answering) > 0);
            assert!(arrives, "{what}: nothing arrives");
            pair.near.delete_link().expect("deleted");
            let (sent, received) = (sending.join(), answering.join());
            balanced(&what, sent.ledger);
            balanced(&what, received.ledger);
            for (ran, ifname) in [(sent.ran, "wp-near"), (received.ran, "wp-far")] {
                let why = ran.expect_err("the interface is gone");
                let says = format!("interface {ifname} no longer exists");
                assert!(why.contains(&says), "{what}: {why}");
            }
        }
    }
}

#[test]
fn a_peer_that_dies_leaves_the_other_end_with_all_its_frames() {
    let _alone = alone();
    for mode in MODES {
        for role in [Role::Send, Role::Ping] {
            let what = format!("{}, {role:?}", mode.0);
            let pair = pair();
            let pace = if role == Role::Send { Pace::Flood } else { Pace::Rate(50_000) };
            let (near, far) = tasks(role, &engine(mode), pace, 64, None);
            let (sending, answering) = Running::both(&pair, near, far).expect(mode.0);
            let arrives = until(|| through(role, &sending, &answering) > 0);
            assert!(arrives, "{what}: nothing arrives");
            // Stopped during the run and closed: program, socket and UMEM are gone.
            let dead = answering.stop();
            balanced(&what, dead.ledger);
            drop(dead);
            let sent = || sending.live.sent_count.load(Ordering::Relaxed);
            let before = sent();
            assert!(until(|| sent() > before), "{what}: sending stopped with the peer");
            let alive = sending.stop();
            settled(&what, alive.ledger);
            alive.ran.unwrap_or_else(|why| panic!("{what}: {why}"));
        }
    }
}
