//! An observation as lines of text.

use super::{Observed, ObservedCopies, ObservedDirection, ObservedHook};

/// Most lines of copies, of clones and of interfaces.
const ROWS_MAX: usize = 8;

impl Observed {
    /// The counts, a line each, with units.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.summary()];
        lines.extend(self.copies.iter().take(ROWS_MAX).map(|copies| {
            format!("copies: {}, {} bytes each", self.of_frames(copies), copies.bytes_each())
        }));
        let clones = self.clones.iter().take(ROWS_MAX);
        lines.extend(clones.map(|clones| format!("clones: {}", self.of_frames(clones))));
        let mut busiest: Vec<_> = self.interfaces.iter().collect();
        busiest.sort_by_key(|one| std::cmp::Reverse(one.received.count + one.sent.count));
        for one in busiest.into_iter().take(ROWS_MAX) {
            for (direction, verb) in [(&one.received, "receives"), (&one.sent, "sends")] {
                if direction.count > 0 {
                    lines.push(format!("{} {verb} {}", one.name, direction.text()));
                }
            }
        }
        for cpu in &self.cpus {
            lines.push(format!(
                "CPU {}: {} NET_RX softirqs, {:.1} % of its time, {} frames, {} hand-overs from other CPUs, {} dropped",
                cpu.cpu,
                cpu.softirqs_count,
                self.share_of_window(cpu.softirqs_ns) * 100.0,
                cpu.processed_count,
                cpu.handed_count,
                cpu.dropped_count
            ));
        }
        lines.extend(self.hooks.iter().map(ObservedHook::text));
        lines
    }

    fn summary(&self) -> String {
        let cost = match (self.cost.ns_per_frame, self.cost.total_ns) {
            (Some(each), Some(total)) => format!(
                "; the observer took {each} ns a frame, {:.1} % of a CPU",
                self.share_of_window(total) * 100.0
            ),
            _ => String::new(),
        };
        let frames = self.frames_count();
        format!(
            "{:.1} s observed: {frames} frames received and sent by interfaces{cost}",
            self.seconds()
        )
    }

    /// Share of the window, 0.0 to 1.0 of one CPU.
    pub fn share_of_window(&self, ns: u64) -> f64 {
        ns as f64 / self.window_ns.max(1) as f64
    }

    /// `102 of 103 frames of gt by gre_tap_xmit [ip_gre] (pskb_expand_head)`.
    fn of_frames(&self, copies: &ObservedCopies) -> String {
        let at = self.interface(copies.netns, copies.index);
        let frames = at.map_or(0, |one| one.received.count.max(one.sent.count));
        let (count, name, by) = (copies.count, &copies.interface, copies.by());
        format!("{count} for {frames} frames of {name} by {by} ({})", copies.function)
    }
}

impl ObservedDirection {
    /// `4000 frames of 64 flows with 64 hashes, on CPU 0 (2010) and CPU 1 (1990)`.
    pub fn text(&self) -> String {
        let flows = match (self.flows_count, self.hashed_count) {
            (0, _) => String::new(),
            (flows, 0) => format!(" of {flows} flows without hashes"),
            (flows, _) => format!(" of {flows} flows with {} hashes", self.hashes_count),
        };
        let cpus = self.by_cpu.iter().enumerate().filter(|(_, count)| **count > 0);
        let cpus: Vec<String> = cpus.map(|(cpu, count)| format!("CPU {cpu} ({count})")).collect();
        format!("{} frames{flows}, on {}", self.count, cpus.join(" and "))
    }
}

impl ObservedHook {
    /// `ip forward ran for 300 frames and called 900 functions`.
    pub fn text(&self) -> String {
        let ObservedHook { family, hook, runs_count, functions_count, .. } = self;
        let how = if self.is_computed { " (computed: frames times hooked functions)" } else { "" };
        format!(
            "{family} {hook} ran for {runs_count} frames and called {functions_count} functions{how}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_and_hashes_are_in_one_line_with_their_cpus() {
        let direction = ObservedDirection {
            count: 60,
            by_cpu: vec![60, 0, 0],
            hashed_count: 60,
            flows_count: 64,
            hashes_count: 1,
        };
        assert_eq!(direction.text(), "60 frames of 64 flows with 1 hashes, on CPU 0 (60)");
        assert_eq!(direction.cpus(), [0]);
        let plain = ObservedDirection { hashed_count: 0, ..direction };
        assert!(plain.text().contains("64 flows without hashes"));
    }
}
