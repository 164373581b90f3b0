//! The cause of a delay, from the intervals within it.

use std::fmt;

use serde::Serialize;
use sys::bpf::interruptions::{InterruptionKind, Interval};

/// Reason for a delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// Interrupts of devices, timers and other CPUs.
    Interrupt,
    /// Deferred work of the kernel on the thread's CPU.
    Softirq,
    /// Another task ran.
    Preemption,
    /// The control group had used up its quota.
    Throttling,
    /// The hypervisor ran something else; known to 10 ms only.
    Steal,
    PageFault,
    /// An idle CPU took its time to run the thread after its wake-up.
    WakeUp,
    /// The thread was busy with earlier work.
    Queue,
    Unknown,
}

impl CauseKind {
    /// All of them, in the order of reports.
    pub const ALL: [CauseKind; 9] = [
        CauseKind::Interrupt,
        CauseKind::Softirq,
        CauseKind::Preemption,
        CauseKind::Throttling,
        CauseKind::Steal,
        CauseKind::PageFault,
        CauseKind::WakeUp,
        CauseKind::Queue,
        CauseKind::Unknown,
    ];

    /// As in documents.
    pub fn name(self) -> &'static str {
        match self {
            CauseKind::Interrupt => "interrupt",
            CauseKind::Softirq => "softirq",
            CauseKind::Preemption => "preemption",
            CauseKind::Throttling => "throttling",
            CauseKind::Steal => "steal",
            CauseKind::PageFault => "page-fault",
            CauseKind::WakeUp => "wake-up",
            CauseKind::Queue => "queue",
            CauseKind::Unknown => "unknown",
        }
    }
}

/// A reason, and the interrupt, softirq or task that it was.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cause {
    pub kind: CauseKind,
    /// Empty if there is none.
    pub detail: String,
}

impl Cause {
    /// A reason without a name.
    pub fn plain(kind: CauseKind) -> Cause {
        Cause { kind, detail: String::new() }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, " ({})", self.detail) }
    }
}

/// A delay of the thread: CLOCK_MONOTONIC, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    pub begin_ns: u64,
    pub end_ns: u64,
    /// The thread handled earlier work in it.
    pub is_behind: bool,
}

impl Delay {
    fn len_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }
}

/// State of the host around a delay, which it has in coarse steps only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Around {
    pub(super) throttled_ns: u64,
    pub(super) stolen_ns: u64,
}

/// Time before and after an interval that belongs to it: the tracepoints are inside of the handlers, and
/// the way in and out, which a hypervisor prolongs, is not.
const MARGIN_NS: u64 = 2_000;
/// Longest way of an interrupt of the timer or of another CPU to its handler, from the time at which it was due: on a
/// virtual machine the hypervisor wakes up first, stops the thread, and enters the handler, which took 7 to 33 µs on a
/// KVM guest. Of a longer way the rest is the hypervisor's own.
const WAY_NS_MAX: u64 = 30_000;

/// Outer intervals include inner ones, so the innermost kinds count first.
const ORDER: [&[InterruptionKind]; 4] = [
    &[
        InterruptionKind::Interrupt,
        InterruptionKind::LocalTimer,
        InterruptionKind::FunctionCall,
        InterruptionKind::Reschedule,
        InterruptionKind::IrqWork,
    ],
    &[InterruptionKind::Softirq],
    &[InterruptionKind::Preempted, InterruptionKind::Suspended, InterruptionKind::WakeUp],
    &[InterruptionKind::PageFault],
];

/// The cause that explains at least half of a delay. The rest of it is the thread's own time, the
/// hypervisor's, or unknown.
pub(super) fn cause(delay: &Delay, intervals: &[&Interval], around: Around) -> Cause {
    let half_ns = delay.len_ns().div_ceil(2);
    let mut covered_ns = 0;
    for (at, kinds) in ORDER.iter().enumerate() {
        let so_far = &ORDER[..=at];
        let within = intervals.iter().filter(|one| so_far.iter().any(|of| of.contains(&one.kind)));
        let sum_ns = union_ns(delay, within.copied());
        let own_ns = sum_ns - covered_ns;
        covered_ns = sum_ns;
        if own_ns >= half_ns
            && let Some(longest) = longest(delay, intervals, kinds)
        {
            return named(longest, around);
        }
    }
    if delay.len_ns().saturating_sub(covered_ns) < half_ns {
        // Several, none of which is half.
        let longest = ORDER.iter().filter_map(|kinds| longest(delay, intervals, kinds));
        return longest
            .max_by_key(|one| within_ns(delay, one))
            .map_or_else(|| Cause::plain(CauseKind::Unknown), |one| named(one, around));
    }
    Cause::plain(match around {
        _ if delay.is_behind => CauseKind::Queue,
        Around { stolen_ns, .. } if stolen_ns >= half_ns => CauseKind::Steal,
        _ => CauseKind::Unknown,
    })
}

fn longest<'a>(
    delay: &Delay,
    intervals: &[&'a Interval],
    kinds: &[InterruptionKind],
) -> Option<&'a Interval> {
    let of = intervals.iter().filter(|one| kinds.contains(&one.kind));
    of.max_by_key(|one| within_ns(delay, one)).copied()
}

/// Time at which an interval began to hold up the thread.
fn stops_ns(one: &Interval) -> u64 {
    let earliest_ns = one.begin_ns.saturating_sub(WAY_NS_MAX);
    one.due_ns.map_or(one.begin_ns, |due_ns| due_ns.clamp(earliest_ns, one.begin_ns))
}

/// Time of an interval within a delay.
fn within_ns(delay: &Delay, one: &Interval) -> u64 {
    one.end_ns.min(delay.end_ns).saturating_sub(stops_ns(one).max(delay.begin_ns))
}

/// Time within a delay that is in at least one interval.
fn union_ns<'a>(delay: &Delay, intervals: impl Iterator<Item = &'a Interval>) -> u64 {
    let mut spans: Vec<(u64, u64)> = intervals
        .map(|one| {
            let from = stops_ns(one).saturating_sub(MARGIN_NS).max(delay.begin_ns);
            (from, one.end_ns.saturating_add(MARGIN_NS).min(delay.end_ns))
        })
        .filter(|(from, to)| from < to)
        .collect();
    spans.sort_unstable();
    let (mut sum_ns, mut upto_ns) = (0, 0);
    for (from, to) in spans {
        sum_ns += to.saturating_sub(from.max(upto_ns));
        upto_ns = to.max(upto_ns);
    }
    sum_ns
}

/// True for page faults between which there is no time but the ways into and out of their handlers.
pub(super) fn are_one_fault(one: &Interval, next: &Interval) -> bool {
    one.kind == InterruptionKind::PageFault
        && next.kind == InterruptionKind::PageFault
        && next.begin_ns.saturating_sub(one.end_ns) <= 2 * MARGIN_NS
}

/// Name of an interval's cause.
pub(super) fn named(one: &Interval, around: Around) -> Cause {
    // A shorter name leaves the rest of the one before it.
    let name = one.name.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(name).into_owned();
    let is_throttled = around.throttled_ns >= one.end_ns.saturating_sub(one.begin_ns) / 2;
    let (kind, detail) = match one.kind {
        InterruptionKind::Interrupt if name.is_empty() => {
            (CauseKind::Interrupt, one.number.to_string())
        }
        InterruptionKind::Interrupt => (CauseKind::Interrupt, name),
        InterruptionKind::LocalTimer => (CauseKind::Interrupt, "timer".into()),
        InterruptionKind::FunctionCall if name.is_empty() => {
            (CauseKind::Interrupt, "function call".into())
        }
        InterruptionKind::FunctionCall => (CauseKind::Interrupt, name),
        InterruptionKind::Reschedule => (CauseKind::Interrupt, "reschedule".into()),
        InterruptionKind::IrqWork => (CauseKind::Interrupt, "irq work".into()),
        InterruptionKind::Softirq => (CauseKind::Softirq, softirq(one.number)),
        InterruptionKind::Preempted | InterruptionKind::Suspended if is_throttled => {
            (CauseKind::Throttling, String::new())
        }
        InterruptionKind::Preempted => (CauseKind::Preemption, name),
        InterruptionKind::Suspended => (CauseKind::Unknown, String::new()),
        InterruptionKind::WakeUp => (CauseKind::WakeUp, String::new()),
        InterruptionKind::PageFault => (CauseKind::PageFault, String::new()),
    };
    Cause { kind, detail }
}

/// Source: the kernel's include/linux/interrupt.h.
fn softirq(number: u32) -> String {
    const NAMES: [&str; 10] = [
        "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER",
        "RCU",
    ];
    NAMES.get(number as usize).map_or_else(|| number.to_string(), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Delay = Delay { begin_ns: 1_000_000, end_ns: 2_000_000, is_behind: false };

    fn interval(kind: InterruptionKind, begin_ns: u64, end_ns: u64) -> Interval {
        let mut name = [0; 32];
        name[..9].copy_from_slice(b"hog\0older");
        let (awake_ns, due_ns) = (begin_ns, None);
        Interval { begin_ns, end_ns, due_ns, awake_ns, kind, number: 3, name, lost_count: 0 }
    }

    fn named_cause(delay: Delay, intervals: &[Interval], around: Around) -> String {
        cause(&delay, &intervals.iter().collect::<Vec<_>>(), around).to_string()
    }

    #[test]
    fn the_innermost_interval_that_explains_half_is_the_cause() {
        let softirq = interval(InterruptionKind::Softirq, 900000, 1900000);
        let none = Around::default();
        assert_eq!(named_cause(DELAY, std::slice::from_ref(&softirq), none), "softirq (NET_RX)");
        let timer = interval(InterruptionKind::LocalTimer, 1100000, 1800000);
        assert_eq!(named_cause(DELAY, &[softirq.clone(), timer], none), "interrupt (timer)");
        let short = interval(InterruptionKind::LocalTimer, 1100000, 1200000);
        assert_eq!(named_cause(DELAY, &[softirq, short], none), "softirq (NET_RX)");
    }

    #[test]
    fn another_task_is_named_unless_the_quota_was_used_up() {
        let taken = [interval(InterruptionKind::Preempted, 1100000, 1900000)];
        assert_eq!(named_cause(DELAY, &taken, Around::default()), "preemption (hog)");
        let around = Around { throttled_ns: 700_000, stolen_ns: 0 };
        assert_eq!(named_cause(DELAY, &taken, around), "throttling");
        let idle = [interval(InterruptionKind::Suspended, 1100000, 1900000)];
        assert_eq!(named_cause(DELAY, &idle, around), "throttling");
        assert_eq!(named_cause(DELAY, &idle, Around::default()), "unknown");
    }

    #[test]
    fn intervals_outside_of_the_delay_explain_nothing() {
        let apart = [
            interval(InterruptionKind::PageFault, 0, 1100000),
            interval(InterruptionKind::Softirq, 1950000, 9000000),
        ];
        assert_eq!(named_cause(DELAY, &apart, Around::default()), "unknown");
        let stolen = Around { throttled_ns: 0, stolen_ns: 10_000_000 };
        assert_eq!(named_cause(DELAY, &apart, stolen), "steal");
        assert_eq!(named_cause(Delay { is_behind: true, ..DELAY }, &apart, stolen), "queue");
    }

    #[test]
    fn of_several_that_share_the_delay_the_longest_is_named() {
        let shared = [
            interval(InterruptionKind::Softirq, 1000000, 1300000),
            interval(InterruptionKind::Preempted, 1300000, 1700000),
        ];
        assert_eq!(named_cause(DELAY, &shared, Around::default()), "preemption (hog)");
    }

    #[test]
    fn the_way_into_a_handler_and_out_of_it_belongs_to_it() {
        let delay = Delay { begin_ns: 10_000, end_ns: 15_000, is_behind: false };
        let tick = [interval(InterruptionKind::LocalTimer, 12, 13)];
        assert_eq!(named_cause(delay, &tick, Around::default()), "unknown");
        let tick = [Interval { begin_ns: 12_000, end_ns: 13_000, ..tick[0].clone() }];
        assert_eq!(named_cause(delay, &tick, Around::default()), "interrupt (timer)");
    }

    /// Recorded on a KVM guest: the interrupt was due 900 ns after the thread's last clock reading, and the hypervisor
    /// needed 7.5 µs until its handler ran.
    #[test]
    fn the_way_of_a_late_interrupt_belongs_to_the_timer() {
        let begin_ns = 735_987_999_168;
        let delay = Delay { begin_ns, end_ns: begin_ns + 30_816, is_behind: false };
        let due = |due_ns| Interval {
            due_ns,
            ..interval(InterruptionKind::LocalTimer, begin_ns + 8_403, begin_ns + 18_237)
        };
        let softirq = interval(InterruptionKind::Softirq, begin_ns + 19_139, begin_ns + 30_205);
        let name = |timer| named_cause(delay, &[timer, softirq.clone()], Around::default());
        assert_eq!(name(due(None)), "softirq (NET_RX)");
        assert_eq!(name(due(Some(begin_ns + 900))), "interrupt (timer)");
        // Alone in a delay that is the way for the most part.
        let delay = Delay { end_ns: begin_ns + 97_185, ..delay };
        let handled = interval(InterruptionKind::LocalTimer, begin_ns + 58_166, begin_ns + 96_393);
        let late = Interval { due_ns: Some(begin_ns + 634), ..handled.clone() };
        assert_eq!(named_cause(delay, &[handled], Around::default()), "unknown");
        assert_eq!(named_cause(delay, &[late], Around::default()), "interrupt (timer)");
    }

    #[test]
    fn a_call_of_another_cpu_counts_from_when_it_was_made_and_has_the_name_of_its_function() {
        let delay = Delay { begin_ns: 100_000, end_ns: 125_000, is_behind: false };
        let softirq = interval(InterruptionKind::Softirq, 116_000, 124_000);
        let called = Interval {
            due_ns: Some(99_000),
            ..interval(InterruptionKind::FunctionCall, 114_000, 115_000)
        };
        let name_around =
            |call: Interval| named_cause(delay, &[call, softirq.clone()], Around::default());
        assert_eq!(name_around(called.clone()), "interrupt (hog)");
        assert_eq!(
            name_around(Interval { name: [0; 32], ..called.clone() }),
            "interrupt (function call)"
        );
        assert_eq!(name_around(Interval { due_ns: None, ..called }), "softirq (NET_RX)");
    }

    #[test]
    fn a_timer_that_was_due_long_ago_explains_no_time_of_the_hypervisor() {
        // Each pause of 10 ms ends with the interrupt of a timer that was due in it.
        let timer = Interval {
            due_ns: Some(1_000_100),
            ..interval(InterruptionKind::LocalTimer, 1_980_000, 1_995_000)
        };
        let stolen = Around { throttled_ns: 0, stolen_ns: 10_000_000 };
        assert_eq!(named_cause(DELAY, std::slice::from_ref(&timer), stolen), "steal");
        assert_eq!(named_cause(DELAY, &[timer], Around::default()), "unknown");
    }
}
