//! Every long-running command under every fault: it goes on or ends as recorded, and leaves nothing
//! behind. Then faults in seeded random order at random moments.
//!
//! `UPDATE=1` records the outcomes in tests/goldens/faults.md and docs/internals/faults.md.
//! `WIREPATH_TEST_FAULTS=1000` sets the number of random runs, `WIREPATH_TEST_SEED` the first seed.

mod clock;
#[path = "../common/mod.rs"]
mod common;
mod fault;
mod service;
mod subject;
mod table;

use std::thread;
use std::time::Duration;

use common::{own_links, until};
use fault::Fault;
use subject::{Stage, Subject};

/// Time that a command may take to react to a fault, or to end after SIGINT.
const SOON: Duration = Duration::from_secs(15);
/// Time after which a running command counts as going on, unless the record says that it ends.
const WHILE: Duration = Duration::from_millis(700);

/// Outcome of a command under faults. Panics at an outcome that no fault may cause: a panic, a command
/// that does not end, or leftovers.
fn outcome(subject: Subject, faults: &[(Duration, Fault)], patience: Duration) -> String {
    let links = own_links();
    let stage = Stage::new(subject);
    let mut running = stage.start(subject);
    let held = running.holdings();
    for (after, fault) in faults {
        thread::sleep(*after);
        if running.has_ended() {
            break;
        }
        fault.strike(&stage, &running);
    }
    let ends_by_itself = until(patience, || running.has_ended());
    let struck: Vec<_> = faults.iter().map(|(_, fault)| *fault).collect();
    if !ends_by_itself {
        stage.assert_serves(&running, &struck);
    }
    let asked = if ends_by_itself { None } else { Some("INT") };
    if let Some(signal) = asked {
        running.signal(signal);
    }
    let pid = running.pid();
    let said = running.stderr();
    let Some(output) = running.finish(SOON) else {
        panic!("{subject} under {faults:?}: {pid} does not end; it said: {said}");
    };
    let all = common::all_text(&output);
    // The standard library panics if a thread has no memory for its signal stack.
    let starved = faults.iter().any(|(_, fault)| *fault == Fault::Memory);
    let panicked = all.contains("panicked") && !(starved && all.contains("alternative stack"));
    assert!(!panicked, "{subject} under {faults:?}: {all}");
    let is_whole = matches!(output.status.code(), Some(0 | 130));
    if is_whole {
        stage.assert_books(&output, &struck);
    }
    held.assert_gone();
    stage.assert_clean();
    assert_eq!(own_links(), links, "{subject} under {faults:?}");
    let ended = match output.status.code() {
        Some(code) => format!("exit {code}"),
        None => "killed".to_owned(),
    };
    // A run that a signal ends before its time says so by its exit code.
    if asked.is_some() && is_whole {
        return "goes on".to_owned();
    }
    // The error message is part of the outcome.
    let why = all.lines().rev().find_map(|line| line.strip_prefix("error: "));
    let ended = if asked.is_some() { format!("goes on; when asked, {ended}") } else { ended };
    match why {
        // The number of its blocks is another in each run.
        Some(why) if why.starts_with("interrupted after ") => format!("{ended}: interrupted"),
        Some(why) => format!("{ended}: {}", stage.without_names(why)),
        None => ended,
    }
}

/// Checks a row of the table: `subject` under each fault that can strike it.
fn row_holds(subject: Subject) {
    if !subject.can_run() {
        return;
    }
    let now = |fault: Fault| {
        if fault.is_chance(subject) || !fault.can_strike(subject) {
            return "–".to_owned();
        }
        let patience = if table::is_written() {
            4 * WHILE
        } else if table::ends(subject, fault) {
            SOON
        } else {
            WHILE
        };
        outcome(subject, &[(Duration::from_millis(200), fault)], patience)
    };
    table::holds(subject, &Fault::ALL.map(now));
}

macro_rules! rows {
    ($($(#[$house:meta])? $name:ident: $subject:expr;)*) => {
        $($(#[$house])?
        #[test]
        fn $name() {
            row_holds($subject);
        })*
    };
}

rows! {
    peer_under_faults: Subject::Peer;
    echo_under_faults: Subject::Echo(&[]);
    xdp_echo_under_faults: Subject::Echo(&["--arm", "bypass"]);
    packet_echo_under_faults: Subject::Echo(&["--packet"]);
    receive_under_faults: Subject::Receive;
    ping_under_faults: Subject::Ping(&[]);
    xdp_ping_under_faults: Subject::Ping(&["--arm", "bypass"]);
    send_under_faults: Subject::Send;
    #[cfg(feature = "feed")]
    listen_under_faults: Subject::Listen;
    #[cfg(feature = "feed")]
    record_under_faults: Subject::Record;
    #[cfg(feature = "feed")]
    replay_under_faults: Subject::Replay;
    #[cfg(feature = "tunnel")]
    tunnel_under_faults: Subject::Tunnel("xdp");
    #[cfg(feature = "tunnel")]
    packet_tunnel_under_faults: Subject::Tunnel("packet");
    generate_under_faults: Subject::Generate;
    #[cfg(feature = "tunnel")]
    measure_under_faults: Subject::Measure;
    prove_probe_under_faults: Subject::Prove("probe", "spin+bypass");
    #[cfg(feature = "feed")]
    prove_feed_under_faults: Subject::Prove("feed", "spin");
    #[cfg(feature = "tunnel")]
    prove_tunnel_under_faults: Subject::Prove("tunnel", "rps");
    #[cfg(feature = "vm")]
    prove_vmnic_under_faults: Subject::Prove("vmnic", "rap-in-kernel");
    #[cfg(feature = "vm")]
    prove_guest_under_faults: Subject::Prove("guest", "quiet");
    tune_prove_under_faults: Subject::TuneProve;
    explain_under_faults: Subject::Explain;
    serve_under_faults: Subject::Serve;
    apply_under_faults: Subject::Apply;
    #[cfg(feature = "vm")]
    guest_under_faults: Subject::Guest;
    #[cfg(feature = "vm")]
    vmnic_under_faults: Subject::Vmnic;
}

/// Deterministic generator: the same seed gives the same faults.
struct Random(u64);

impl Random {
    /// Source: Vigna, splitmix64.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

#[test]
fn faults_at_random_leave_nothing_behind() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let subjects: Vec<_> = Subject::ALL
        .into_iter()
        .filter(|subject| subject.is_there() && subject.can_run())
        .collect();
    let mut failed = Vec::new();
    let (runs, seed) = (number("WIREPATH_TEST_FAULTS", 25), number("WIREPATH_TEST_SEED", 7));
    for run in seed..seed + runs {
        let mut random = Random(run);
        let subject = subjects[random.below(subjects.len())];
        let faults: Vec<_> = (0..1 + random.below(3))
            .map(|_| {
                let may: Vec<_> =
                    Fault::ALL.into_iter().filter(|f| f.can_strike(subject)).collect();
                (Duration::from_millis(random.below(400) as u64), may[random.below(may.len())])
            })
            .collect();
        println!("seed {run}: {subject} under {faults:?}");
        match std::panic::catch_unwind(|| outcome(subject, &faults, WHILE)) {
            Ok(ended) => println!("seed {run}: {ended}"),
            Err(_) => failed.push(run),
        }
    }
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
}

#[test]
fn every_command_that_runs_for_long_has_a_row() {
    table::is_whole();
}
