//! Studies of the wire with distance: its errors, Reno against theory, and the gain of equal losses.
//!
//! `cargo run --release -p wirepath-lab --example wire_study -- errors|mathis|pairing [BLOCKS] [SECONDS]`, as root. Tables
//! go to standard output, as in docs/evidence/wire.md.

use std::error::Error;
use std::io::{Read, Write, stdout};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use sys::clock::monotonic_ns;
use sys::{socket, tcp};
use wirepath_lab::{DistantPair, End, PairSpec, WireReport};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Ethernet, IPv4, UDP, checksum, preamble and gap of a datagram.
const DATAGRAM_OVERHEAD_BYTES: usize = 14 + 20 + 8 + 24;
/// Payload of a segment with time stamps at an MTU of 1500 bytes.
const SEGMENT_BYTES: f64 = 1448.0;
/// Part of a flow that is left out: it begins slowly.
const START: Duration = Duration::from_secs(2);

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| {
        words.get(at).map_or(Ok(default), |word| word.parse()).map_err(|_| "not a number")
    };
    match words.first().map(String::as_str) {
        Some("errors") => errors(),
        Some("mathis") => mathis(number(1, 5)?, number(2, 12)?),
        Some("pairing") => pairing(number(1, 20)?, number(2, 3)?),
        _ => Err("name a study: errors, mathis or pairing".into()),
    }
}

fn print(line: &str) -> Outcome<()> {
    Ok(writeln!(stdout(), "{line}")?)
}

fn lab(wire: &str) -> Outcome<DistantPair> {
    Ok(DistantPair::new(&PairSpec::default(), &wire.parse()?)?)
}

fn udp_at(end: &End) -> Outcome<UdpSocket> {
    let socket = end.run(|| UdpSocket::bind((end.ip, 0)))??;
    socket::set_receive_buffer(socket.as_fd(), 64 << 20)?;
    Ok(socket)
}

fn quantile(values: &mut [f64], quantile: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * quantile) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Sends datagrams with their times at a rate; returns one-way times in microseconds, the rate of arrivals on the wire in
/// Mbit/s, and the wire's counts.
fn one_way(
    wire: &str,
    size_bytes: usize,
    sent_mbit: f64,
    time: Duration,
) -> Outcome<(Vec<f64>, f64, WireReport)> {
    let lab = lab(wire)?;
    let (near, far) = (udp_at(&lab.ends.near)?, udp_at(&lab.ends.far)?);
    near.connect(far.local_addr()?)?;
    far.set_read_timeout(Some(Duration::from_millis(500)))?;
    lab.wire.begin(1)?;
    let interval_ns = ((size_bytes + DATAGRAM_OVERHEAD_BYTES) as f64 * 8e3 / sent_mbit) as u64;
    let (times, rate) = thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut times, mut arrivals) = (Vec::new(), Vec::new());
            let mut buffer = [0; 2048];
            while let Ok(len_bytes) = far.recv(&mut buffer) {
                let now_ns = monotonic_ns();
                let sent_ns =
                    buffer[..len_bytes].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                times.push((now_ns - sent_ns) as f64 / 1e3);
                arrivals.push(now_ns);
            }
            let bytes =
                (arrivals.len().saturating_sub(1) * (size_bytes + DATAGRAM_OVERHEAD_BYTES)) as f64;
            let took_ns =
                arrivals.last().zip(arrivals.first()).map_or(0, |(last, first)| last - first);
            (times, bytes * 8e3 / took_ns as f64)
        });
        let (begun_ns, mut datagram) = (monotonic_ns(), vec![0; size_bytes]);
        for number in 0.. {
            let due_ns = begun_ns + number * interval_ns;
            if due_ns > begun_ns + time.as_nanos() as u64 {
                break;
            }
            if let Some(wait_ns) = due_ns.checked_sub(monotonic_ns()).filter(|wait| *wait > 100_000)
            {
                thread::sleep(Duration::from_nanos(wait_ns));
            }
            datagram[..8].copy_from_slice(&monotonic_ns().to_be_bytes());
            // Datagrams that the sender's own full queue drops are not lost by the wire.
            let _ = near.send(&datagram);
        }
        receiver.join().map_err(|_| "the receiver failed")
    })?;
    Ok((times, rate, lab.wire.report()?))
}

fn errors() -> Outcome<()> {
    print(
        "| wire | load | one way p50, us | p99, us | rate, Mbit/s | lost, planned | wire late p50 / p99, us | fault |",
    )?;
    print("|---|---|---|---|---|---|---|---|")?;
    let plain = |rate: &str| format!("delay=20ms,rate={rate},buffer=2mb");
    for (wire, size_bytes, sent_mbit) in [
        (plain("100mbit"), 100, 1.0),
        (plain("100mbit"), 1_400, 50.0),
        ("delay=1ms,rate=100mbit".to_owned(), 100, 1.0),
        ("delay=20ms,rate=100mbit,buffer=250kb".to_owned(), 1_400, 110.0),
        (plain("500mbit"), 1_400, 550.0),
        (plain("1gbit"), 1_400, 1_100.0),
        ("delay=20ms,rate=100mbit,loss=1%".to_owned(), 1_400, 50.0),
        ("delay=20ms,rate=100mbit,loss=1%,burst=5".to_owned(), 1_400, 50.0),
    ] {
        let spec: model::WireSpec = wire.parse()?;
        let (mut times, rate, report) =
            one_way(&wire, size_bytes, sent_mbit, Duration::from_secs(4))?;
        let counts = report.forward;
        let line = format!(
            "| {wire} | {size_bytes} B at {sent_mbit} Mbit/s | {:.0} | {:.0} | {rate:.3} | {} of {} ({:.3} %), {:.3} % | {:.0} / {:.0} | {} |",
            quantile(&mut times, 0.5),
            quantile(&mut times, 0.99),
            counts.lost_count,
            counts.data_segment_count,
            counts.loss().unwrap_or(0.0) * 100.0,
            spec.loss() * 100.0,
            counts.late_ns_p50 as f64 / 1e3,
            counts.late_ns_p99 as f64 / 1e3,
            report.fault(&spec).unwrap_or_else(|| "none".to_owned()),
        );
        print(&line)?;
    }
    Ok(())
}

/// A flow of one connection; returns the goodput behind its start in Mbit/s, and the wire's counts.
fn flow(lab: &DistantPair, control: &str, seed: u64, time: Duration) -> Outcome<(f64, WireReport)> {
    let at = (lab.ends.far.ip, 9000);
    let listener = lab.ends.far.run(|| TcpListener::bind(at))??;
    lab.wire.begin(seed)?;
    let skipped = START.min(time / 4);
    let goodput = thread::scope(|scope| {
        let receiver = scope.spawn(move || -> std::io::Result<f64> {
            let (mut connection, _) = listener.accept()?;
            let (begun, mut buffer) = (Instant::now(), vec![0; 256 << 10]);
            let mut first: Option<Instant> = None;
            let (mut count, mut last) = (0_u64, begun);
            while begun.elapsed() < time {
                let len_bytes = connection.read(&mut buffer)?;
                if len_bytes == 0 {
                    break;
                }
                if begun.elapsed() >= skipped {
                    last = Instant::now();
                    match first {
                        None => first = Some(last),
                        Some(_) => count += len_bytes as u64,
                    }
                }
            }
            let took = first.map_or(Duration::ZERO, |first| last - first);
            Ok(count as f64 * 8e-6 / took.as_secs_f64())
        });
        let sending = lab.ends.near.run(|| -> std::io::Result<()> {
            let mut connection = TcpStream::connect(at)?;
            tcp::set_congestion_control(connection.as_fd(), control)?;
            let (begun, chunk) = (Instant::now(), vec![0x5a; 64 << 10]);
            connection.set_write_timeout(Some(time))?;
            while begun.elapsed() < time {
                // The receiver ends it.
                if connection.write_all(&chunk).is_err() {
                    break;
                }
            }
            Ok(())
        });
        let received = receiver.join().map_err(|_| "the receiver failed")?;
        sending??;
        Ok::<f64, Box<dyn Error>>(received?)
    })?;
    Ok((goodput, lab.wire.report()?))
}

fn mean_and_spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

/// Round trip of 20 ms. Source of the formula: Mathis, Semke, Mahdavi and Ott, CCR 27(3), 1997, with C = 1.22.
fn mathis(runs: u64, seconds: u64) -> Outcome<()> {
    print("| loss | control | goodput, Mbit/s (sd of runs) | Mathis | realised loss | faults |")?;
    print("|---|---|---|---|---|---|")?;
    for loss in [0.1, 1.0] {
        for control in ["reno", "cubic", "bbr"] {
            let lab = lab(&format!("delay=10ms,rate=100mbit,loss={loss}%"))?;
            let (mut goodputs, mut lost, mut all, mut faults) = (Vec::new(), 0, 0, 0);
            for seed in 0..runs {
                let (goodput, report) = flow(&lab, control, seed, Duration::from_secs(seconds))?;
                goodputs.push(goodput);
                lost += report.forward.lost_count;
                all += report.forward.data_segment_count;
                faults += u32::from(report.fault(lab.wire.spec()).is_some());
            }
            let theory = SEGMENT_BYTES * 8e-6 / 0.020 * 1.22 / f64::sqrt(loss / 100.0);
            let (mean, spread) = mean_and_spread(&goodputs);
            let realised = lost as f64 / all as f64 * 100.0;
            print(&format!(
                "| {loss} % | {control} | {mean:.1} ({spread:.1}) | {theory:.1} | {realised:.3} % | {faults} of {runs} |"
            ))?;
        }
    }
    Ok(())
}

/// Spread of the logarithm of the ratio of two arms, in one block and across blocks.
fn pairing(blocks: u64, seconds: u64) -> Outcome<()> {
    print(
        "| arms | loss | goodputs, Mbit/s | sd of log ratio, paired | unpaired | variance ratio | correlation | faults |",
    )?;
    print("|---|---|---|---|---|---|---|---|")?;
    let lab = lab("delay=10ms,rate=100mbit,loss=0.5%")?;
    for controls in [["reno", "reno"], ["cubic", "reno"], ["bbr", "bbr"]] {
        let mut goodputs = [Vec::new(), Vec::new()];
        let mut faults = 0;
        for block in 0..blocks {
            // Each is the first in half of the blocks.
            let order = if block % 2 == 0 { [0, 1] } else { [1, 0] };
            for arm in order {
                let time = Duration::from_secs(seconds);
                let (goodput, report) = flow(&lab, controls[arm], block, time)?;
                goodputs[arm].push(goodput);
                faults += u32::from(report.fault(lab.wire.spec()).is_some());
            }
        }
        let [one, other] =
            goodputs.each_ref().map(|arm| arm.iter().map(|value| value.ln()).collect::<Vec<_>>());
        let paired: Vec<f64> = one.iter().zip(&other).map(|(a, b)| a - b).collect();
        let (_, paired_sd) = mean_and_spread(&paired);
        let [(_, one_sd), (_, other_sd)] = [mean_and_spread(&one), mean_and_spread(&other)];
        let unpaired_sd = one_sd.hypot(other_sd);
        let [values, baseline] =
            goodputs.each_ref().map(|arm| arm.iter().copied().map(Some).collect::<Vec<_>>());
        let found = model::Pairing::new(&values, &baseline);
        let means = goodputs.each_ref().map(|arm| mean_and_spread(arm).0);
        print(&format!(
            "| {} and {} | 0.5 % | {:.1} and {:.1} | {:.1} % | {:.1} % | {:.1} | {:.2}{} | {faults} of {} |",
            controls[0],
            controls[1],
            means[0],
            means[1],
            paired_sd * 100.0,
            unpaired_sd * 100.0,
            found.map_or(f64::NAN, |found| found.gain),
            found.map_or(f64::NAN, |found| found.correlation),
            if found.is_some_and(|found| found.is_shown) { "" } else { " (no gain claimed)" },
            blocks * 2,
        ))?;
    }
    Ok(())
}
