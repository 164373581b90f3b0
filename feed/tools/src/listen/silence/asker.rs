//! A thread that asks the library of causes, so that the receiver never waits for the kernel's answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use host::causes::{self, Evidence, Finding, GroupQuestion, Sample};
use host::net::{self, nftables::Ruleset};
use host::tune::{Place, System};
use sys::capability;

use super::Silence;

/// Longest wait for the answers at the end of a run.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

enum Order {
    /// The window of a line begins.
    Begin { line: usize },
    /// It ends, and the line has been silent in it.
    Explain { line: usize, silence: Box<Silence> },
    /// Sockets have dropped datagrams since the run was opened.
    Drops,
}

/// Counters of interfaces in a window.
pub(super) struct Grown<'a> {
    pub(super) before: &'a Sample,
    pub(super) after: &'a Sample,
}

impl Grown<'_> {
    /// Packets that an interface received.
    pub(super) fn packets(&self, ifname: &str) -> u64 {
        let count =
            |sample: &Sample| sample.counters.get(&format!("link {ifname} rx_packets")).copied();
        count(self.after).unwrap_or(0).saturating_sub(count(self.before).unwrap_or(0))
    }
}

/// The thread, and what it was asked.
#[derive(Debug)]
pub(super) struct Asker {
    orders: Sender<Order>,
    notes: Receiver<String>,
    pending_count: usize,
}

impl Asker {
    /// Starts the thread; `None` without one, and then silence has no explanation.
    ///
    /// It is started before the receiver gets a CPU and a priority of its own, which threads inherit.
    pub(super) fn start() -> Option<Self> {
        let (orders, taken) = mpsc::channel();
        let (answer, notes) = mpsc::channel();
        let run = move || {
            let rules = Arc::new(net::nftables::ruleset().unwrap_or_default());
            let system = System::open(&Place::default());
            // Any user may read the rest.
            if let (Ok(system), Ok(())) = (system, capability::keep(&[])) {
                answer_all(&system, &rules, &taken, &answer);
            }
        };
        thread::Builder::new().name("causes".into()).spawn(run).ok()?;
        Some(Asker { orders, notes, pending_count: 0 })
    }

    pub(super) fn begin(&self, line: usize) {
        // A thread that has ended answers nothing.
        let _ended = self.orders.send(Order::Begin { line });
    }

    pub(super) fn explain(&mut self, line: usize, silence: Silence) {
        let sent = self.orders.send(Order::Explain { line, silence: Box::new(silence) });
        self.pending_count += usize::from(sent.is_ok());
    }

    pub(super) fn drops(&mut self) {
        self.pending_count += usize::from(self.orders.send(Order::Drops).is_ok());
    }

    /// Answers that have come.
    ///
    /// - `is_last`: waits for the others.
    pub(super) fn answers(&mut self, is_last: bool) -> Vec<String> {
        let mut answers = Vec::new();
        while self.pending_count > 0 {
            let next = if is_last {
                self.notes.recv_timeout(LAST_ANSWERS).ok()
            } else {
                self.notes.try_recv().ok()
            };
            let Some(note) = next else { break };
            self.pending_count -= 1;
            answers.push(note);
        }
        answers.retain(|note| !note.is_empty());
        answers
    }
}

fn answer_all(
    system: &System,
    rules: &Arc<Ruleset>,
    orders: &Receiver<Order>,
    answer: &Sender<String>,
) {
    let Ok(opened) = Sample::take(system) else { return };
    let mut begun = BTreeMap::new();
    for order in orders {
        let Ok(now) = Sample::take(system) else { return };
        let note = match order {
            Order::Begin { line } => {
                begun.insert(line, now);
                continue;
            }
            Order::Explain { line, silence } => {
                let before = begun.get(&line).unwrap_or(&opened);
                let found =
                    silence.question(rules).and_then(|question| finding(before, &now, question));
                silence.text(found.as_ref(), &Grown { before, after: &now })
            }
            Order::Drops => drops(&opened, &now).unwrap_or_default(),
        };
        if answer.send(note).is_err() {
            return;
        }
    }
}

/// Evidence with the samples of a window.
fn evidence(before: &Sample, after: &Sample) -> Option<Evidence> {
    let system = System::open(&Place::default()).ok()?;
    Some(Evidence::new(system, None, None, None).ok()?.watched(before.clone(), after.clone()))
}

fn finding(before: &Sample, after: &Sample, question: GroupQuestion) -> Option<Finding> {
    causes::of_group(&evidence(before, after)?.about_group(question))
}

/// Why this process's sockets dropped datagrams.
fn drops(before: &Sample, after: &Sample) -> Option<String> {
    let report = causes::examine_for(&evidence(before, after)?, |cause| {
        ["udp-rcvbuf", "checksum"].contains(&cause.id)
    });
    let own = format!("(process {})", std::process::id());
    let is_own = |found: &&Finding| found.what.contains(&own) || found.cause == "checksum";
    let found = report.findings.iter().find(is_own)?;
    let own = match found.cause {
        "udp-rcvbuf" => {
            "; here it is --receive-buffer 8388608, which needs CAP_NET_ADMIN or net.core.rmem_max of as much"
        }
        _ => "",
    };
    Some(said(found) + own)
}

/// A finding in one line: what, and what to do.
pub(super) fn said(found: &Finding) -> String {
    format!("{}; {}", found.what, found.change)
}
