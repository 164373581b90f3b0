//! ping(8) through a TAP interface.

use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::TapHome;
use sys::child::{Child, ChildPlace};
use telemetry::{Entry, Snapshot};

use super::dump::{self, UdpTransport};
use super::error::GuestError;
use super::qemu::{Boot, GuestMachine, TAP_IFNAME};

pub(super) const PING: &str = "ping";
/// Interval between echoes, `ping -i 0.05`.
pub const ECHO_INTERVAL: Duration = Duration::from_millis(50);

/// Summary of the round trips by ping(8).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PingSummary {
    pub min_ns: f64,
    pub mean_ns: f64,
    pub max_ns: f64,
    /// Standard deviation.
    pub mdev_ns: f64,
}

/// Report of a run of ping(8).
#[derive(Debug, Clone, PartialEq)]
pub struct PingReport {
    pub sent_count: u64,
    /// Answers, without duplicates.
    pub received_count: u64,
    pub duplicated_count: u64,
    /// Round trips in the order of the answers. ping prints three digits, and none for a payload of
    /// less than 16 bytes.
    pub times_ns: Vec<u64>,
    /// Sequence number of the last answer.
    pub last_answered: Option<u16>,
    pub summary: Option<PingSummary>,
    pub wall_ns: u64,
}

impl PingReport {
    pub fn lost_count(&self) -> u64 {
        self.sent_count.saturating_sub(self.received_count)
    }

    /// Leaves out the echoes sent after the last one that was answered: ping ends with the answer that
    /// completes its count, whether or not others are under way.
    fn up_to_last_answer(self) -> PingReport {
        let under_way =
            self.last_answered.map_or(0, |last| (self.sent_count as u16).wrapping_sub(last));
        PingReport { sent_count: self.sent_count.saturating_sub(under_way.into()), ..self }
    }
}

/// A machine whose wire ends in a TAP interface.
#[derive(Debug)]
pub struct TapMachine {
    /// Declared first, so that it is killed before its namespace is released.
    pub machine: GuestMachine,
    pub home: TapHome,
}

impl TapMachine {
    /// Boots a guest with the address reserved for it in the namespace.
    pub fn boot(boot: &Boot) -> Result<TapMachine, GuestError> {
        let home = TapHome::new()?;
        let boot = Boot { ip: home.guest_ip, ..boot.clone() };
        let machine = GuestMachine::boot_on_tap(&boot, &home.netns)?;
        home.adopt(TAP_IFNAME)?;
        Ok(TapMachine { machine, home })
    }

    /// Boots with the console on a stream, without waiting until the guest is ready.
    pub fn start_with_console(boot: &Boot) -> Result<(TapMachine, UnixStream), GuestError> {
        let home = TapHome::new()?;
        let boot = Boot { ip: home.guest_ip, ..boot.clone() };
        let (machine, console, _) = GuestMachine::start_with_console(&boot, Some(&home.netns))?;
        home.adopt(TAP_IFNAME)?;
        Ok((TapMachine { machine, home }, console))
    }

    pub fn counters(&self, token: u16) -> Result<Snapshot, GuestError> {
        dump::counters(&mut self.requests()?, token)
    }

    /// The trace ring, oldest entry first.
    pub fn trace(&self, token: u16) -> Result<Vec<Entry>, GuestError> {
        dump::trace(&mut self.requests()?, token)
    }

    fn requests(&self) -> Result<UdpTransport, GuestError> {
        let opened = self.home.netns.run(|| UdpTransport::connect(self.home.guest_ip));
        opened.map_err(lab::LabError::from)?
    }

    /// Runs ping(8) in the namespace.
    pub fn ping(&self, count: u64, payload_bytes: usize) -> Result<PingReport, GuestError> {
        ping(&self.home, self.home.guest_ip, count, payload_bytes)
    }
}

fn ping(
    home: &TapHome,
    to: Ipv4Addr,
    count: u64,
    payload_bytes: usize,
) -> Result<PingReport, GuestError> {
    let deadline =
        ECHO_INTERVAL * u32::try_from(count).unwrap_or(u32::MAX) + Duration::from_secs(10);
    let mut command = Command::new(PING);
    command.env("LC_ALL", "C").args(["-n", "-i", &ECHO_INTERVAL.as_secs_f64().to_string()]).args([
        "-c",
        &count.to_string(),
        // Without a deadline ping waits for its last answer no longer than two round trips or one interval.
        "-w",
        &deadline.as_secs().to_string(),
        "-s",
        &payload_bytes.to_string(),
        &to.to_string(),
    ]);
    let begun = Instant::now();
    let mut child = Child::spawn(command, &ChildPlace { netns: Some(&home.netns), cpus: &[] })?;
    let at_most = deadline + Duration::from_secs(5);
    let finished = child.wait(at_most)?.ok_or_else(|| GuestError::Print {
        program: PING,
        wanted: format!("report within {} s", at_most.as_secs()),
    })?;
    let wall_ns = begun.elapsed().as_nanos() as u64;
    let said = [&finished.stdout[..], &finished.stderr[..]].concat();
    let report = parse(&String::from_utf8_lossy(&said), wall_ns)?;
    Ok(if report.received_count >= count { report.up_to_last_answer() } else { report })
}

/// Parses the output of iputils' ping.
pub fn parse(text: &str, wall_ns: u64) -> Result<PingReport, GuestError> {
    let counts = text.lines().find(|line| line.contains(" packets transmitted, "));
    let counts = counts.ok_or_else(|| missing(text, "line \"N packets transmitted\""))?;
    let times_ns = text.lines().filter_map(time_ns).collect();
    let last_answered = text.lines().rev().find_map(sequence);
    let summary = text.lines().find_map(|line| line.strip_prefix("rtt min/avg/max/mdev = "));
    let summary = match summary {
        Some(figures) => {
            Some(parse_summary(figures).ok_or_else(|| missing(text, "summary that can be read"))?)
        }
        None => None,
    };
    Ok(PingReport {
        sent_count: count(counts, " packets transmitted")
            .ok_or_else(|| missing(text, "count of echoes"))?,
        received_count: count(counts, " received")
            .ok_or_else(|| missing(text, "count of answers"))?,
        duplicated_count: count(counts, " duplicates").unwrap_or(0),
        times_ns,
        last_answered,
        summary,
        wall_ns,
    })
}

/// Error of output that lacks a part.
fn missing(text: &str, what: &str) -> GuestError {
    let end = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("nothing");
    GuestError::Print { program: PING, wanted: format!("{what}; it ended with {end:?}") }
}

/// One of the counts in a line such as `3 packets transmitted, 2 received, +1 duplicates`.
fn count(counts: &str, what: &str) -> Option<u64> {
    let part = counts.split(", ").find(|part| part.ends_with(what))?;
    part.trim_start_matches('+').split(' ').next()?.parse().ok()
}

/// Sequence number in the line of an answer.
fn sequence(line: &str) -> Option<u16> {
    let (_, rest) = line.split_once(" bytes from ")?.1.split_once(" icmp_seq=")?;
    rest.split(' ').next()?.parse().ok()
}

/// Round trip in the line of an answer; `None` for a duplicate.
fn time_ns(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once(" time=")?;
    let (ms, after) = rest.split_once(" ms")?;
    after.is_empty().then(|| nanoseconds(ms))?.map(|ns| ns.round() as u64)
}

fn parse_summary(figures: &str) -> Option<PingSummary> {
    let (figures, _) = figures.split_once(" ms")?;
    let figures = figures.split('/').map(nanoseconds).collect::<Option<Vec<_>>>()?;
    let [min_ns, mean_ns, max_ns, mdev_ns] = *figures else { return None };
    Some(PingSummary { min_ns, mean_ns, max_ns, mdev_ns })
}

fn nanoseconds(ms: &str) -> Option<f64> {
    ms.parse::<f64>().ok().filter(|ms| (0.0..1e9).contains(ms)).map(|ms| ms * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "\
PING 10.77.0.2 (10.77.0.2) 56(84) bytes of data.
64 bytes from 10.77.0.2: icmp_seq=1 ttl=64 time=0.413 ms
64 bytes from 10.77.0.2: icmp_seq=2 ttl=64 time=1.20 ms
64 bytes from 10.77.0.2: icmp_seq=2 ttl=64 time=1.31 ms (DUP!)

--- 10.77.0.2 ping statistics ---
3 packets transmitted, 2 received, +1 duplicates, 33.3333% packet loss, time 101ms
rtt min/avg/max/mdev = 0.413/0.806/1.200/0.393 ms
";

    #[test]
    fn counts_times_and_summary_are_parsed() {
        let report = parse(WHOLE, 7).unwrap();
        assert_eq!((report.sent_count, report.received_count), (3, 2));
        assert_eq!((report.duplicated_count, report.lost_count()), (1, 1));
        assert_eq!(report.times_ns, [413_000, 1_200_000]);
        let summary = report.summary.unwrap();
        assert!((summary.mean_ns - 806_000.0).abs() < 1.0 && summary.mdev_ns < 400_000.0);
    }

    #[test]
    fn echo_under_way_when_the_last_answer_came_is_not_lost() {
        let report = parse(WHOLE, 7).unwrap();
        assert_eq!(report.last_answered, Some(2));
        let report = report.up_to_last_answer();
        assert_eq!((report.sent_count, report.lost_count()), (2, 0));
        // Sequence numbers have 16 bits.
        let wrapped =
            PingReport { sent_count: 65_537, last_answered: Some(65_535), ..report.clone() };
        assert_eq!(wrapped.up_to_last_answer().sent_count, 65_535);
        let whole = PingReport { sent_count: 65_537, last_answered: Some(1), ..report.clone() };
        assert_eq!(whole.up_to_last_answer().sent_count, 65_537);
        let silent = PingReport { sent_count: 5, last_answered: None, ..report };
        assert_eq!(silent.up_to_last_answer().sent_count, 5);
    }

    #[test]
    fn short_payload_has_no_times_and_dead_guest_no_answers() {
        let short = "1 packets transmitted, 1 received, 0% packet loss, time 0ms\n";
        let report = parse(short, 0).unwrap();
        assert_eq!((report.received_count, report.times_ns.len(), report.summary), (1, 0, None));
        let dead = "5 packets transmitted, 0 received, +5 errors, 100% packet loss, time 4ms\n";
        assert_eq!(parse(dead, 0).unwrap().lost_count(), 5);
    }

    #[test]
    fn malformed_report_is_an_error_with_its_last_line() {
        let error = parse("ping: socket: Operation not permitted\n", 0).unwrap_err().to_string();
        assert!(error.contains("Operation not permitted"), "{error}");
        assert!(parse("", 0).is_err());
        let bent = WHOLE.replace("0.806", "x");
        assert!(parse(&bent, 0).unwrap_err().to_string().contains("summary"));
        assert!(parse("x packets transmitted, 1 received", 0).is_err());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            failure_persistence: None,
            ..Default::default()
        })]

        #[test]
        fn corrupt_report_is_parsed_or_refused_and_never_panics(
            at in 0..WHOLE.len(),
            len in 0..12_usize,
            put in ".{0,6}",
        ) {
            let mut bent = WHOLE.to_owned();
            bent.replace_range(at..(at + len).min(WHOLE.len()), &put);
            if let Ok(report) = parse(&bent, 0) {
                proptest::prop_assert!(report.times_ns.len() <= 3);
            }
        }
    }
}
