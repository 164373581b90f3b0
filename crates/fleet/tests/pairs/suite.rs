//! Tests of any pair of exchange and archive.

use model::{Limits, PathRequest, Request, Subject};
use remote::work::Call;
use testkit::{LONG, until};
use wirepath_fleet::book::{
    ATTEMPTS_MAX, Agent, AgentMoment, Archive, BookEntry, Coordinator, Exchange, Job, JobRow,
    JobState, Measured, Report, SILENCE_MS, VERSION,
};

use super::Pair;

/// An experiment with every kind of value: texts, times and numbers.
fn probe_request() -> Request {
    let path = PathRequest { path: "probe".into(), arms: "spin".into(), ..PathRequest::default() };
    Request::new(Subject::Path(Box::new(path)), Limits { seed: Some(7), ..Limits::default() })
}

pub(crate) fn job(name: &str, host: &str) -> Job {
    Job {
        v: VERSION,
        job: name.into(),
        experiment: "e".into(),
        host: host.into(),
        attempt: 1,
        fence: 0,
        call: Call::RunAlone(Box::new(probe_request())),
        not_after_ms: 1_000_000,
    }
}

fn measured(job: &Job) -> Measured {
    Measured::Done(format!("{} {}", job.job, job.attempt))
}

/// The only job.
fn entry(book: &mut impl Archive) -> BookEntry {
    book.entries(Some("e")).unwrap().remove(0)
}

fn states(book: &mut impl Archive) -> Vec<JobState> {
    book.entries(Some("e")).unwrap().iter().map(|entry| entry.state).collect()
}

fn ends(book: &mut impl Archive) -> Vec<(String, u32, JobState)> {
    book.rows("e").unwrap().into_iter().map(|row| (row.job, row.attempt, row.state)).collect()
}

pub(crate) fn job_passes_all_its_states_once(pair: &impl Pair) {
    let (mut book, mut exchange) = (pair.open(), pair.open());
    book.plan(&[job("a", "h1"), job("b", "h1"), job("c", "h2")]).unwrap();
    book.plan(&[job("a", "h9")]).unwrap();
    assert_eq!(states(&mut book), [JobState::Planned; 3], "planned once");
    let mut coordinator = Coordinator::new("e");
    assert!(!coordinator.turn(&mut exchange, &mut book, 1).unwrap());
    assert_eq!(
        states(&mut book),
        [JobState::Given, JobState::Planned, JobState::Given],
        "one a host"
    );
    let mut agent = Agent::start("h1", pair.outbox("h1")).unwrap();
    let mut other = Agent::start("h2", pair.outbox("h2")).unwrap();
    agent.turn(&mut pair.open(), 2, measured, |_| true).unwrap();
    let given = exchange.next("h1").unwrap().unwrap();
    assert_eq!((given.call, given.attempt), (job("a", "h1").call, 1));
    agent.turn(&mut pair.open(), 3, |_| panic!("measured twice"), |_| true).unwrap();
    other.turn(&mut pair.open(), 3, |_| Measured::Failed("no".into()), |_| true).unwrap();
    coordinator.turn(&mut exchange, &mut book, 4).unwrap();
    assert_eq!(states(&mut book), [JobState::Stored, JobState::Given, JobState::Stored]);
    agent.turn(&mut pair.open(), 5, |_| Measured::Refused("not here".into()), |_| true).unwrap();
    assert!(coordinator.turn(&mut exchange, &mut book, 6).unwrap());
    let expected = [("a", JobState::Done), ("b", JobState::Refused), ("c", JobState::Failed)]
        .map(|(n, s)| (n.into(), 1, s));
    assert_eq!(ends(&mut book), expected);
    assert_eq!(book.rows("e").unwrap()[0].body, "a 1");
    assert!(book.entries(None).unwrap().is_empty(), "all have ended");
    let step = Job { experiment: "r.1".into(), ..job("s", "h9") };
    book.plan(&[step, Job { experiment: "f".into(), ..job("f", "h9") }]).unwrap();
    assert_eq!(book.newest(9).unwrap(), ["f", "e"]);
    assert_eq!(book.entries(None).unwrap().len(), 2);
    assert!(book.rows("other").unwrap().is_empty());
    agent.turn(&mut pair.open(), 7, measured, |_| true).unwrap();
    assert!(pair.outbox("h1").all().unwrap().is_empty(), "forgotten once confirmed");
}

pub(crate) fn steps_need_the_expected_state_and_fence(pair: &impl Pair) {
    let mut book = pair.open();
    book.plan(&[job("a", "h1")]).unwrap();
    let planned = entry(&mut book);
    let report = |fence, state| Report {
        v: VERSION,
        job: "a".into(),
        host: "h1".into(),
        attempt: 1,
        fence,
        state,
        body: String::new(),
    };
    book.store(&[report(0, JobState::Running)]).unwrap();
    assert_eq!(entry(&mut book), planned, "not a step of this state");
    let given = book.give(std::slice::from_ref(&planned)).unwrap().remove(0);
    assert!(given.job.fence > planned.job.fence);
    assert!(book.give(&[planned]).unwrap().is_empty(), "a coordinator that was replaced");
    let fence = given.job.fence;
    book.store(&[report(fence, JobState::Accepted), report(fence, JobState::Accepted)]).unwrap();
    let accepted = entry(&mut book);
    assert_eq!(accepted.state, JobState::Accepted);
    book.store(&[report(fence, JobState::Running), report(fence, JobState::Accepted)]).unwrap();
    let running = entry(&mut book);
    assert_eq!(running.state, JobState::Running);
    assert!(!book.again(&accepted).unwrap(), "not a step of this state");
    assert!(book.again(&running).unwrap());
    assert!(!book.again(&running).unwrap());
    let again = entry(&mut book);
    assert_eq!((again.state, again.job.attempt), (JobState::Planned, 2));
    assert_ne!(again.job.fence, fence);
    let row = |state| JobRow {
        job: "a".into(),
        host: "h1".into(),
        attempt: 2,
        state,
        body: String::new(),
    };
    assert!(!book.close(&running, &row(JobState::Done)).unwrap(), "an older fence");
    assert!(!book.close(&again, &row(JobState::Done)).unwrap(), "never measured");
    assert!(book.close(&again, &row(JobState::Cancelled)).unwrap());
    assert!(!book.close(&again, &row(JobState::Cancelled)).unwrap());
    assert_eq!(ends(&mut book).len(), 1);
}

pub(crate) fn agent_restarted_in_a_measurement_reports_it_as_interrupted(pair: &impl Pair) {
    let mut book = pair.open();
    book.plan(&[job("a", "h1")]).unwrap();
    let mut coordinator = Coordinator::new("e");
    let mut now = 0;
    for attempt in 1..=ATTEMPTS_MAX {
        // Longer than a lease of the agent that ended.
        now += 40_000;
        coordinator.turn(&mut pair.open(), &mut book, now).unwrap();
        let mut agent = Agent::start("h1", pair.outbox("h1")).unwrap();
        agent.turn(&mut pair.open(), now, measured, |at| at != AgentMoment::Begun).unwrap();
        let mut agent = Agent::start("h1", pair.outbox("h1")).unwrap();
        agent.turn(&mut pair.open(), now, |_| panic!("begun again"), |_| true).unwrap();
        assert_eq!(entry(&mut book).job.attempt, attempt);
        coordinator.turn(&mut pair.open(), &mut book, now).unwrap();
    }
    assert_eq!(ends(&mut book), [("a".into(), ATTEMPTS_MAX, JobState::Interrupted)]);
}

fn is_alive(exchange: &mut impl Exchange, now_ms: u64) -> bool {
    let alive = exchange.are_alive(&["h9", "h1"], now_ms).unwrap();
    assert!(!alive[0], "never seen");
    alive[1]
}

pub(crate) fn lease_has_one_owner_until_it_ends(pair: &impl Pair) {
    let mut exchange = pair.open();
    assert!(exchange.lease("h1", 5, 100, 200).unwrap());
    assert!(!exchange.lease("h1", 6, 150, 250).unwrap());
    assert!(exchange.lease("h1", 5, 150, 300).unwrap(), "renewed");
    assert!(!exchange.lease("h1", 6, 300, 400).unwrap());
    assert!(exchange.lease("h1", 6, 301, 400).unwrap(), "ended");
    exchange.release("h1", 5).unwrap();
    assert!(!exchange.lease("h1", 7, 302, 400).unwrap(), "released by another fence");
    assert!(is_alive(&mut exchange, 400), "by its lease");
    exchange.release("h1", 6).unwrap();
    assert!(exchange.lease("h1", 7, 303, 304).unwrap());
    assert!(!is_alive(&mut exchange, 10 * SILENCE_MS));
    exchange.beat("h1", 10 * SILENCE_MS).unwrap();
    // A broker stores it a moment later.
    assert!(until(LONG, || is_alive(&mut exchange, 11 * SILENCE_MS)));
    assert!(!is_alive(&mut exchange, 11 * SILENCE_MS + 1));
}

pub(crate) fn late_report_of_a_lost_job_changes_nothing(pair: &impl Pair) {
    let mut book = pair.open();
    book.plan(&[job("a", "h1")]).unwrap();
    let mut coordinator = Coordinator::new("e");
    coordinator.turn(&mut pair.open(), &mut book, 0).unwrap();
    let given = pair.open().next("h1").unwrap().unwrap();
    let report = |state, body: &str| Report {
        v: VERSION,
        job: "a".into(),
        host: "h1".into(),
        attempt: 1,
        fence: given.fence,
        state,
        body: body.into(),
    };
    let mut exchange = pair.open();
    exchange.report(&report(JobState::Running, "")).unwrap();
    coordinator.turn(&mut exchange, &mut book, 100_000).unwrap();
    let again = entry(&mut book);
    assert_eq!((again.state, again.job.attempt), (JobState::Planned, 2), "silent: another attempt");
    // The host was stopped, and wakes with its old result.
    exchange.report(&report(JobState::Done, "late")).unwrap();
    exchange.report(&report(JobState::Done, "late")).unwrap();
    coordinator.turn(&mut exchange, &mut book, 100_001).unwrap();
    assert_eq!(states(&mut book), [JobState::Given]);
    assert!(exchange.is_confirmed(given.fence).unwrap(), "the agent may forget it");
    assert!(exchange.reports().unwrap().is_empty());
    let mut agent = Agent::start("h1", pair.outbox("h1")).unwrap();
    agent.turn(&mut exchange, 100_002, measured, |_| true).unwrap();
    assert!(coordinator.turn(&mut exchange, &mut book, 100_003).unwrap());
    assert_eq!(book.rows("e").unwrap()[0].body, "a 2");
}

pub(crate) fn expired_and_cancelled_jobs_have_a_row(pair: &impl Pair) {
    let mut book = pair.open();
    let early = Job { not_after_ms: 10, ..job("a", "h1") };
    book.plan(&[early, job("b", "h1")]).unwrap();
    let mut coordinator = Coordinator::new("e");
    coordinator.turn(&mut pair.open(), &mut book, 5).unwrap();
    let mut agent = Agent::start("h1", pair.outbox("h1")).unwrap();
    agent.turn(&mut pair.open(), 11, |_| panic!("too late"), |_| true).unwrap();
    coordinator.turn(&mut pair.open(), &mut book, 11).unwrap();
    coordinator.cancel(&mut book, "stopped").unwrap();
    assert!(coordinator.turn(&mut pair.open(), &mut book, 12).unwrap());
    let expected = [("a".into(), 1, JobState::Expired), ("b".into(), 1, JobState::Cancelled)];
    assert_eq!(ends(&mut book), expected);
}
