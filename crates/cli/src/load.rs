//! `wirepath load`: the two ends of a built-in load, which `prove command` starts.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::{Args, Subcommand};
use house::args::parse_duration;
use house::context::Context;
use house::{console, privileges, signals};
use lab::BuiltInLoad;
use probe::load::{LoadError, LoadFigures};
use remote::Failure;
use report::screen::Screen;
use schemars::JsonSchema;
use serde::Serialize;

use crate::probe::si;
use crate::shared_args::parse_ip;

#[derive(Debug, Subcommand)]
pub(crate) enum LoadCommand {
    /// Answer clients of a load until Ctrl-C
    #[command(after_help = "Example:\n  wirepath load serve tcp:8 192.0.2.7 --port 9000")]
    Serve(LoadEnd),
    /// Send a load to the server of the same load, and print the counts of both ends
    #[command(after_help = "Example:\n  wirepath load run ping:1400 192.0.2.7 --time 5s")]
    Run(LoadRun),
}

#[derive(Debug, Args)]
pub(crate) struct LoadEnd {
    /// Load: udp:SIZE@RATE, udp:SIZE@max/FLOWS, tcp, tcp:FLOWS, ping or ping:SIZE
    load: BuiltInLoad,
    /// Address of the server
    #[arg(value_parser = parse_ip)]
    address: IpAddr,
    /// TCP port of the server, and UDP port; the client uses those that follow
    #[arg(long, default_value_t = 9000, value_parser = clap::value_parser!(u16).range(1024..))]
    port: u16,
}

#[derive(Debug, Args)]
pub(crate) struct LoadRun {
    #[command(flatten)]
    end: LoadEnd,
    /// Time of the load: 1s, 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    time: Duration,
}

/// Document of `load run --json`. Counts without a meaning in a load are absent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LoadDocument {
    schema: u32,
    command: &'static str,
    /// In its whole form.
    load: String,
    /// Time of the sender.
    wall_ns: u64,
    /// Datagrams; of pings those that were echoed.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    datagrams: Option<DatagramsDocument>,
    sent_bytes: u64,
    /// Payload that the receiver counted; of pings, in the answers.
    received_bytes: u64,
    /// Payload from the receiver's first arrival to its last.
    goodput_bps: f64,
    /// Round trips; a lost ping is not in min, mean and max, and counts as 100 ms in the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_ns: Option<RttDocument>,
    /// Segments of TCP that were sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retransmit_count: Option<u64>,
    /// Sentence on a sender that was too slow for the rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    missed_rate: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct DatagramsDocument {
    sent_count: u64,
    /// Due by the rate, and not sent.
    unsent_count: u64,
    received_count: u64,
    lost_count: u64,
    /// Of those sent.
    loss_pct: f64,
    duplicated_count: u64,
    reordered_count: u64,
    sent_pps: f64,
    received_pps: f64,
    /// RFC 3550; absent with fewer than two arrivals.
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter_ns: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct RttDocument {
    min: u64,
    mean: f64,
    p50: u64,
    p90: u64,
    p99: u64,
    max: u64,
}

pub(crate) fn run(context: &Context, command: &LoadCommand) -> Result<(), Failure> {
    // Both ends are ordinary sockets.
    privileges::drop_all().map_err(Failure::failed)?;
    match command {
        LoadCommand::Serve(end) => {
            let at = SocketAddr::new(end.address, end.port);
            probe::load::serve(&end.load, at, signals::stop_flag(), &console::say)
                .map_err(|error| Failure::from_chain(&error))
        }
        LoadCommand::Run(args) => {
            let LoadEnd { load, address, port } = &args.end;
            let at = SocketAddr::new(*address, *port);
            let ran = probe::load::run(load, at, args.time, signals::stop_flag());
            let figures = ran.map_err(|error: LoadError| Failure::from_chain(&error))?;
            print(context, load, &figures)
        }
    }
}

fn print(context: &Context, load: &BuiltInLoad, figures: &LoadFigures) -> Result<(), Failure> {
    let document = LoadDocument::new(load, figures);
    if let Some(missed) = &document.missed_rate {
        console::say(&format!("warning: {missed}"));
    }
    if context.json { console::json(&document) } else { console::text(&document.text()) }
}

fn rate(amount: u64, interval_ns: u64) -> f64 {
    if interval_ns == 0 { 0.0 } else { amount as f64 * 1e9 / interval_ns as f64 }
}

impl LoadDocument {
    fn new(load: &BuiltInLoad, figures: &LoadFigures) -> Self {
        let arrived = &figures.arrived;
        let datagrams = figures.delivery.map(|delivery| DatagramsDocument {
            sent_count: delivery.sent_count,
            unsent_count: figures.unsent_count,
            received_count: delivery.received_count,
            lost_count: delivery.lost_count(),
            loss_pct: delivery.loss().unwrap_or(0.0) * 100.0,
            duplicated_count: delivery.duplicated_count.unwrap_or(0),
            reordered_count: delivery.reordered_count,
            sent_pps: rate(delivery.sent_count, figures.wall_ns),
            received_pps: rate(arrived.received_count, arrived.interval_ns),
            jitter_ns: figures.jitter_ns,
        });
        let rtt = figures.rtt.as_ref().filter(|rtt| !rtt.is_empty());
        let quantile = |quantile| figures.rtt_quantile_ns(quantile).unwrap_or(0);
        LoadDocument {
            schema: house::context::DOCUMENT,
            command: "load run",
            load: load.to_string(),
            wall_ns: figures.wall_ns,
            datagrams,
            sent_bytes: figures.sent_bytes,
            received_bytes: arrived.payload_bytes,
            goodput_bps: rate(arrived.payload_bytes.saturating_mul(8), arrived.interval_ns),
            rtt_ns: rtt.map(|rtt| RttDocument {
                min: rtt.min(),
                mean: rtt.mean(),
                p50: quantile(0.5),
                p90: quantile(0.9),
                p99: quantile(0.99),
                max: rtt.max(),
            }),
            retransmit_count: figures.retransmit_count,
            missed_rate: figures.missed_rate(load),
        }
    }

    fn text(&self) -> String {
        let mut screen = Screen::plain().with_column(9);
        if let Some(of) = &self.datagrams {
            let [sent, received, lost] = [of.sent_count, of.received_count, of.lost_count];
            let (twice, late) = (of.duplicated_count, of.reordered_count);
            let loss = of.loss_pct;
            screen.entry(
                "books",
                format!(
                    "sent {sent}, received {received}, lost {lost} ({loss:.4} %), duplicated {twice}, reordered {late}"
                ),
            );
            let rates = [of.sent_pps, of.received_pps].map(si);
            screen.entry("rate", format!("{}pps sent, {}pps received", rates[0], rates[1]));
        }
        screen.entry("payload", format!("{}bit/s", si(self.goodput_bps)));
        if let Some(rtt) = &self.rtt_ns {
            let figures =
                [rtt.min as f64, rtt.mean, rtt.p50 as f64, rtt.p99 as f64, rtt.max as f64];
            let [min, mean, p50, p99, max] = figures.map(|ns| format!("{:.2} µs", ns / 1000.0));
            let text = format!("min {min}, mean {mean}, p50 {p50}, p99 {p99}, max {max}");
            screen.entry("rtt", text);
        }
        if let Some(ns) = self.datagrams.as_ref().and_then(|of| of.jitter_ns) {
            screen.entry("jitter", format!("{:.3} µs (RFC 3550)", ns as f64 / 1000.0));
        }
        if let Some(count) = self.retransmit_count {
            screen.entry("resent", format!("{count} segments"));
        }
        screen.finish()
    }
}
