//! What each engine, iperf3 and sockperf report of known faults, as one Markdown table.
//!
//! A filter between two namespaces drops every 25th datagram and sends every 25th twice, or in
//! a second run swaps every 25th with its successor. Run it as root:
//!
//! `cargo run --release -p wirepath-paths --example truth`

#[path = "../tests/common/mod.rs"]
mod common;

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use common::truth::{self, CLEAN, COUNT, FaultyLab, Judged, LOSS, ORDER, RATE_PPS};
use host::child::{Child, Place};
use serde_json::Value;
use sys::bpf::{FaultCounts, FaultSpec};

/// UDP and TCP port of the other programs.
const PORT: &str = "9100";

/// What a program says; `None` where it has no such figure.
#[derive(Default, Clone, Copy)]
struct Said {
    lost: Option<i64>,
    duplicated: Option<i64>,
    reordered: Option<i64>,
    /// Datagrams that its report is about, where it leaves some out.
    of: Option<i64>,
}

struct Row {
    program: String,
    direction: &'static str,
    injected: FaultCounts,
    said: Said,
}

impl Row {
    fn ours(name: &str, direction: &'static str, judged: &Judged) -> Self {
        let r = &judged.reported;
        let said = Said {
            lost: Some(r.lost_count() as i64),
            duplicated: Some(r.duplicated_count as i64),
            reordered: Some(r.reordered_count as i64),
            of: Some(r.sent_count as i64),
        };
        Row { program: format!("wirepath, {name}"), direction, injected: judged.injected, said }
    }

    fn line(&self) -> String {
        let figure = |n: Option<i64>| n.map_or("–".to_owned(), |n| n.to_string());
        let (i, s) = (&self.injected, &self.said);
        format!(
            "| {} | {} | {} | {} / {} / {} | {} | {} / {} / {} |",
            self.program,
            self.direction,
            i.seen,
            i.dropped,
            i.duplicated,
            i.reordered,
            figure(s.of),
            figure(s.lost),
            figure(s.duplicated),
            figure(s.reordered),
        )
    }
}

/// Runs a server at the far end and a client at the near end; returns what each printed.
fn serve(
    lab: &FaultyLab,
    program: &str,
    server: &[&str],
    listening: Option<&str>,
    client: &[&str],
) -> Result<(Vec<u8>, Vec<u8>), String> {
    let text = |e: host::child::ChildError| e.to_string();
    let place = Place { netns: Some(&lab.lab.far.netns), cpus: &[] };
    let mut command = Command::new(program);
    command.args(server);
    let mut served = Child::spawn(command, &place).map_err(text)?;
    if let Some(line) = listening {
        served.wait_for_stdout(line, Duration::from_secs(2));
    }
    let place = Place { netns: Some(&lab.lab.near.netns), cpus: &[] };
    let mut last = "not run".to_owned();
    // A server without a line that tells it listens refuses until it does.
    for _ in 0..50 {
        let mut command = Command::new(program);
        command.args(client);
        let mut asked = Child::spawn(command, &place).map_err(text)?;
        let finished = asked.wait(Duration::from_secs(30)).map_err(text)?;
        let finished = finished.ok_or_else(|| format!("{program} did not end"))?;
        // iperf3's JSON also ends well where it says that the server refused.
        let refused = String::from_utf8_lossy(&finished.stdout).contains("\"error\":");
        if finished.status.success() && !refused {
            let at_server = match served.wait(Duration::from_secs(1)).map_err(text)? {
                Some(ended) => ended.stdout,
                None => served.stop().map_err(text)?.stdout,
            };
            return Ok((finished.stdout, at_server));
        }
        last = String::from_utf8_lossy(&[finished.stdout, finished.stderr].concat()).into_owned();
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!("{program}: {last}"))
}

/// iperf3 has no echo: one way there, and with `-R` one way back.
fn iperf3(faults: &FaultSpec) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (direction, n, reverse) in [("forward", 0, None), ("return", 1, Some("-R"))] {
        let lab = FaultyLab::new(faults, faults);
        let (ip, count) = (lab.lab.far.ip.to_string(), COUNT.to_string());
        let rate = (RATE_PPS * 64 * 8).to_string();
        let mut client = vec!["-c", &ip, "-p", PORT, "-u", "-J", "-l", "64", "-k", &count];
        client.extend(["-b", &rate]);
        client.extend(reverse);
        let server = ["-s", "-1", "-J", "-p", PORT];
        let (client, server) = serve(&lab, "iperf3", &server, None, &client)?;
        // The receiver is the one to know.
        for (end, json) in [("client", client), ("server", server)] {
            let json: Value = serde_json::from_slice(&json).map_err(|e| e.to_string())?;
            let number = |at: &str| json.pointer(at).and_then(Value::as_f64).map(|n| n as i64);
            let said = Said {
                lost: number("/end/sum/lost_packets"),
                duplicated: None,
                reordered: number("/end/streams/0/udp/out_of_order"),
                of: number("/end/sum/packets"),
            };
            let program = format!("iperf3, {end}'s report");
            rows.push(Row { program, direction, injected: lab.injected()[n], said });
        }
    }
    Ok(rows)
}

/// sockperf cannot tell the directions apart: each is faulted alone.
fn sockperf(faults: &FaultSpec) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (direction, n, forth, back) in
        [("forward", 0, faults, &CLEAN), ("return", 1, &CLEAN, faults)]
    {
        let lab = FaultyLab::new(forth, back);
        let (ip, rate) = (lab.lab.far.ip.to_string(), RATE_PPS.to_string());
        let client = ["under-load", "-i", &ip, "-p", PORT, "-m", "64", "-t", "1"];
        let client = [&client[..], &["--mps", &rate, "--reply-every", "1"]].concat();
        let server = ["server", "-i", &ip, "-p", PORT];
        let (said, _) = serve(&lab, "sockperf", &server, Some("Warmup stage"), &client)?;
        let text = String::from_utf8_lossy(&said);
        let valid = text.split_once("[Valid Duration]").map_or("", |(_, valid)| valid);
        let number = |key: &str| {
            let rest = valid.split_once(key)?.1.trim_start_matches([' ', '=']);
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..end].parse().ok()
        };
        let said = Said {
            lost: number("# dropped messages"),
            duplicated: number("# duplicated messages"),
            reordered: number("# out-of-order messages"),
            of: number("SentMessages"),
        };
        let program = "sockperf under-load".into();
        rows.push(Row { program, direction, injected: lab.injected()[n], said });
    }
    Ok(rows)
}

fn main() -> Result<(), String> {
    let mut out = std::io::stdout();
    let mut print = |line: &str| writeln!(out, "{line}").map_err(|e| e.to_string());
    print("Injected and reported are each lost / duplicated / reordered, in datagrams.\n")?;
    print("sockperf judges the middle of its run, and counts duplicates over all of it.\n")?;
    print("| program | direction | crossed | injected | judged by it | reported |")?;
    print("|---|---|---|---|---|---|")?;
    let mut lies = Vec::new();
    for faults in [&LOSS, &ORDER] {
        for (name, engine) in common::engines() {
            let one_way = truth::one_way(faults, &engine)?;
            let both = truth::echo(faults, &engine)?;
            let judged = [
                (format!("{name}, one way"), "forward", one_way),
                (format!("{name}, echo"), "forward", both[0]),
                (format!("{name}, echo"), "return", both[1]),
            ];
            for (name, direction, judged) in judged {
                print(&Row::ours(&name, direction, &judged).line())?;
                lies.extend(judged.lie().map(|lie| format!("{name}, {direction}: {lie}")));
            }
        }
        for (program, rows) in [("iperf3", iperf3(faults)), ("sockperf", sockperf(faults))] {
            match rows {
                Ok(rows) => rows.iter().try_for_each(|row| print(&row.line()))?,
                Err(why) => common::skip(&format!("{program}: {why}")),
            }
        }
    }
    if lies.is_empty() { Ok(()) } else { Err(lies.join("\n")) }
}
