//! The counts that the engines, iperf3 and sockperf report of known faults, as a Markdown table.
//!
//! A filter between two namespaces drops every 25th datagram and duplicates another of each 25; in a second
//! run it swaps every 25th with its successor. As root: `cargo run --release -p wirepath-probe --example counts`
#![allow(clippy::print_stdout, reason = "its output is its result")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use common::engines;
use common::truth::{self, CLEAN, COUNT, FaultyLab, Judged, LOSS, ORDER, RATE_PPS};
use lab::End;
use lab::adapters::Figure;
use lab::program::{FinishedProgram, Program, ProgramSpec, Ready};
use sys::bpf::{FaultCounts, FaultSpec};

const SERVE_LIMIT: Duration = Duration::from_secs(30);

/// Counts by a program; `None` if it has no such count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Reported {
    lost: u64,
    duplicated: Option<u64>,
    reordered: u64,
    /// Datagrams that the report covers.
    of: u64,
}

impl Reported {
    fn by(judged: &Judged) -> Self {
        let books = &judged.reported;
        Reported {
            lost: books.lost_count(),
            duplicated: books.duplicated_count,
            reordered: books.reordered_count,
            of: books.sent_count,
        }
    }
}

fn row(program: &str, direction: &str, injected: &FaultCounts, reported: Reported) {
    let duplicated = reported.duplicated.map_or("–".to_owned(), |count| count.to_string());
    let covering = if reported.of == injected.seen {
        String::new()
    } else {
        format!(", covering {}", reported.of)
    };
    println!(
        "| {program} | {direction} | {} / {} / {} of {} | {} / {duplicated} / {}{covering} |",
        injected.dropped,
        injected.duplicated,
        injected.reordered,
        injected.seen,
        reported.lost,
        reported.reordered
    );
}

/// One row for all engines that report the same.
fn ours(faults: &FaultSpec) -> Result<bool, Box<dyn Error>> {
    let mut rows: BTreeMap<_, (FaultCounts, Reported, Vec<&str>)> = BTreeMap::new();
    let mut is_true = true;
    for (name, engine) in engines() {
        let one_way = truth::one_way(faults, &engine, false)?;
        let [forth, back] = truth::echo(faults, &engine, false)?;
        for (direction, judged) in
            [("forward", one_way), ("forward, of an echo", forth), ("return", back)]
        {
            is_true &= judged.mismatch().is_none();
            let reported = Reported::by(&judged);
            let row =
                rows.entry((direction, reported)).or_insert((judged.injected, reported, vec![]));
            row.2.push(name);
        }
    }
    for ((direction, _), (injected, reported, names)) in rows {
        let program = if names.len() == engines().len() {
            format!("wirepath, all {} engine variants", names.len())
        } else {
            format!("wirepath, {}", names.join(", "))
        };
        row(&program, direction, &injected, reported);
    }
    Ok(is_true)
}

fn start_at(name: &str, command: &str, end: &End) -> Result<Program, Box<dyn Error>> {
    let (netns, folder) = (Some(&end.netns), Path::new("/"));
    Ok(Program::start(&ProgramSpec { command, env: vec![], netns, cpus: &[], folder, name })?)
}

/// Output of a client at the near end and of its server at the far end.
fn serve(
    lab: &FaultyLab,
    server: &str,
    ready: &Ready,
    client: &str,
) -> Result<(FinishedProgram, FinishedProgram), Box<dyn Error>> {
    let never = AtomicBool::new(false);
    let mut server = start_at("server", server, &lab.lab.far)?;
    server.wait_ready(ready, SERVE_LIMIT, &never)?;
    let client = start_at("client", client, &lab.lab.near)?.wait(SERVE_LIMIT, &never)?;
    Ok((client, server.stop(Duration::from_secs(2))?))
}

fn count(figure: &str, output: &[u8]) -> Result<u64, Box<dyn Error>> {
    Ok(figure.parse::<Figure>()?.take(output)? as u64)
}

/// iperf3 has no echo: one way there, and with `-R` one way back. Its receiver's report is shown.
fn iperf3(faults: &FaultSpec) -> Result<(), Box<dyn Error>> {
    for (direction, index, reverse) in [("forward", 0, ""), ("return", 1, "-R")] {
        let lab = FaultyLab::new(faults, faults, false);
        let (ip, rate) = (lab.lab.far.ip, RATE_PPS * 64 * 8);
        let client =
            format!("exec iperf3 -c {ip} -p 9100 -u -J -l 64 -k {COUNT} -b {rate} {reverse}");
        let (client, server) =
            serve(&lab, "exec iperf3 -s -1 -J -p 9100", &Ready::Tcp(9100), &client)?;
        let (end, receiver) = if index == 0 { ("server", server) } else { ("client", client) };
        let take = |figure| count(figure, receiver.stdout.bytes());
        let reported = Reported {
            lost: take("lost_count=json:/end/sum/lost_packets lower")?,
            duplicated: None,
            reordered: take("reordered_count=json:/end/streams/0/udp/out_of_order lower")?,
            of: take("of_count=json:/end/sum/packets lower")?,
        };
        row(&format!("iperf3, {end}'s report"), direction, &lab.injected()[index], reported);
    }
    Ok(())
}

/// sockperf does not distinguish the directions, so that only the first has faults.
fn sockperf(faults: &FaultSpec) -> Result<(), Box<dyn Error>> {
    let lab = FaultyLab::new(faults, &CLEAN, false);
    let ip = lab.lab.far.ip;
    let client = format!(
        "exec sockperf under-load -i {ip} -p 9100 -m 64 -t 1 --mps {RATE_PPS} --reply-every 1"
    );
    let server = format!("exec sockperf server -i {ip} -p 9100");
    let (client, _) = serve(&lab, &server, &Ready::Udp(9100), &client)?;
    let text = String::from_utf8_lossy(client.stdout.bytes());
    let (_, valid) = text.split_once("[Valid Duration]").ok_or("no [Valid Duration]")?;
    let take = |figure| count(figure, valid.as_bytes());
    let reported = Reported {
        lost: take(r"lost_count=re:# dropped messages = (\d+) lower")?,
        duplicated: Some(take(r"duplicated_count=re:# duplicated messages = (\d+) lower")?),
        reordered: take(r"reordered_count=re:# out-of-order messages = (\d+) lower")?,
        of: take(r"of_count=re:SentMessages=(\d+) lower")?,
    };
    row("sockperf under-load", "forward", &lab.injected()[0], reported);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("| program | direction | injected | reported |\n|---|---|---|---|");
    let mut is_true = true;
    for faults in [&LOSS, &ORDER] {
        is_true &= ours(faults)?;
        iperf3(faults)?;
        sockperf(faults)?;
    }
    if is_true { Ok(()) } else { Err("an engine's report is not what was injected".into()) }
}
