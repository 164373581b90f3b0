//! Figures of known programs.
//!
//! The expressions were made from the output of the versions named at each program; their outputs are
//! the fixtures in `tests/adapters`. netperf and memtier_benchmark are not in Debian: theirs are from
//! their documentation and source.

use regex::bytes::Regex;

use super::error::{FigureError, Reason, quoted};
use super::{Figure, OUTPUT_BYTES_MAX};

/// Figures of a program, and the arguments that make it print them.
#[derive(Debug, Clone)]
pub struct Adapter {
    pub program: &'static str,
    pub figures: Vec<Figure>,
    /// Text that follows the program's own arguments on a shell's command line.
    pub arguments: &'static [&'static str],
    /// Reports of failures, whose figures would be of failures.
    refusals: Vec<Regex>,
}

impl Adapter {
    /// Returns every figure of the program in an output.
    ///
    /// Errors: the first figure that cannot be taken, or a report of failures.
    pub fn take(&self, output: &[u8]) -> Result<Vec<(&str, f64)>, FigureError> {
        let head = &output[..output.len().min(OUTPUT_BYTES_MAX)];
        if let Some(refusal) = self.refusals.iter().find_map(|refusal| refusal.find(head)) {
            return Err(FigureError {
                figure: self.figures.first().map(|figure| figure.name.clone()).unwrap_or_default(),
                from: self.program.into(),
                reason: Reason::Refused { text: quoted(refusal.as_bytes()) },
            });
        }
        self.figures
            .iter()
            .map(|figure| Figure::take(figure, output).map(|value| (figure.name.as_str(), value)))
            .collect()
    }
}

struct Known {
    program: &'static str,
    arguments: &'static [&'static str],
    figures: &'static [&'static str],
    refusals: &'static [&'static str],
}

/// Names of the programs that [`ready_made`] knows; some have an entry a mode.
pub const PROGRAMS: &[&str] = &{
    let mut names = [""; KNOWN.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = KNOWN[at].program;
        at += 1;
    }
    names
};

const KNOWN: &[Known] = &[
    // 3.12 and 3.21, TCP and UDP.
    Known {
        program: "iperf3",
        arguments: &["-J"],
        figures: &["goodput_bps=json:/end/sum_received/bits_per_second"],
        refusals: &[IPERF3_ERROR],
    },
    // 3.12 and 3.21, client's report. Its jitter and losses are the server's.
    Known {
        program: "iperf3-udp",
        arguments: &["-u", "-J"],
        figures: &[
            "goodput_bps=json:/end/sum_received/bits_per_second",
            "jitter_ms=json:/end/sum_received/jitter_ms",
            "lost_count=json:/end/sum_received/lost_packets",
        ],
        refusals: &[IPERF3_ERROR],
    },
    // 3.7: ping-pong and under-load. Half of a round trip, unless --full-rtt.
    Known {
        program: "sockperf",
        arguments: &[],
        figures: &[
            r"p50_us=re:---> percentile 50\.000 = +(\S+)",
            r"p99_us=re:---> percentile 99\.000 = +(\S+)",
            r"p999_us=re:---> percentile 99\.900 = +(\S+)",
            r"mean_us=re:Summary: Latency is (\S+ \S+)",
            r"lost_count=re:# dropped messages = (\d+)",
        ],
        refusals: &["No messages were received from the server.*"],
    },
    // 3.7: throughput.
    Known {
        program: "sockperf-throughput",
        arguments: &[],
        figures: &[r"sent_pps=re:Message Rate is (\d+) \[msg/sec\]"],
        refusals: &[],
    },
    // 4.1.0. Its megabytes are of 1024, so its transfer rate is left out.
    Known {
        program: "wrk",
        arguments: &["--latency"],
        figures: &[
            r"rps=re:^Requests/sec: +(\S+)",
            r"p50_us=re:^ +50% +(\S+)",
            r"p99_us=re:^ +99% +(\S+)",
            r"mean_us=re:^ +Latency +(\d\S*)",
        ],
        refusals: &["Non-2xx or 3xx responses: .*", "Socket errors: .*"],
    },
    // 7.0.15. Of several tests (-t), the last one counts.
    Known {
        program: "redis-benchmark",
        arguments: &["--csv"],
        figures: &[
            "rps=csv:rps",
            "p50_ms=csv:p50_latency_ms",
            "p99_ms=csv:p99_latency_ms",
            "mean_ms=csv:avg_latency_ms",
        ],
        refusals: &["Error from server.*", "Could not connect .*"],
    },
    // 2.x. It seeks in its JSON file to remove commas, which a pipe cannot do.
    Known {
        program: "memtier_benchmark",
        arguments: &[
            "--hide-histogram",
            "--out-file=/dev/null",
            "--json-out-file=\"${json:=$(mktemp)}\"; status=$?;",
            "cat \"$json\"; rm \"$json\"; exit $status",
        ],
        figures: &[
            "rps=json:/ALL STATS/Totals/Ops~1sec",
            "p50_ms=json:/ALL STATS/Totals/Percentile Latencies/p50.00",
            "p99_ms=json:/ALL STATS/Totals/Percentile Latencies/p99.00",
            "p999_ms=json:/ALL STATS/Totals/Percentile Latencies/p99.90",
            "mean_ms=json:/ALL STATS/Totals/Average Latency",
        ],
        refusals: &["\"Connection Errors\": *[1-9][0-9]*"],
    },
    // nghttp2 1.52.0. It prints no percentiles, and its megabytes are of 1024.
    Known {
        program: "h2load",
        arguments: &[],
        figures: &[
            r"rps=re:^finished in \S+, (\S+) req/s",
            r"mean_us=re:^time for request: +\S+ +\S+ +(\S+)",
            r"max_us=re:^time for request: +\S+ +(\S+)",
            r"first_byte_us_mean=re:^time to 1st byte: +\S+ +\S+ +(\S+)",
        ],
        refusals: &[r"requests: .* [1-9]\d* failed.*"],
    },
    // 2.10.0.
    Known {
        program: "dnsperf",
        arguments: &[],
        figures: &[
            r"qps=re:Queries per second: +(\S+)",
            r"mean_s=re:Average Latency \(s\): +(\S+)",
            r"max_s=re:Average Latency \(s\): .* max (\S+)\)",
            r"lost_count=re:Queries lost: +(\d+)",
        ],
        refusals: &[r"Queries completed: +0 .*"],
    },
    // 0.4.11: tcp_lat, udp_lat. Half of a round trip.
    Known {
        program: "qperf",
        arguments: &["-uu"],
        figures: &[r"latency_ns=re:^ +latency += +(\S+ \S+)$"],
        refusals: &[],
    },
    // 0.4.11: tcp_bw, and udp_bw as received.
    Known {
        program: "qperf-bw",
        arguments: &["-uu"],
        figures: &[r"goodput_bps=re:^ +(?:recv_)?bw += +(\S+ \S+)$"],
        refusals: &[],
    },
    // 0.9.0. Its one-way delays need synchronised clocks and are left out.
    Known {
        program: "irtt",
        arguments: &["-q", "-o", "-"],
        figures: &[
            "rtt_ns_p50=json:/stats/rtt/median",
            "rtt_ns_mean=json:/stats/rtt/mean",
            "rtt_ns_max=json:/stats/rtt/max",
            "lost_percent=json:/stats/packet_loss_percent lower",
        ],
        refusals: &[],
    },
    // 2.7, TCP_RR and UDP_RR.
    Known {
        program: "netperf",
        arguments: &["-j", "--", "-o", "THROUGHPUT,MEAN_LATENCY,P50_LATENCY,P99_LATENCY"],
        figures: &[
            "tps=csv:Throughput",
            "mean_us=csv:Mean Latency Microseconds",
            "p50_us=csv:50th Percentile Latency Microseconds",
            "p99_us=csv:99th Percentile Latency Microseconds",
        ],
        refusals: &[],
    },
    // 1.15, one command.
    Known {
        program: "hyperfine",
        arguments: &["--style", "none", "--export-json", "/dev/stdout"],
        figures: &[
            "time_s_mean=json:/results/0/mean",
            "time_s_median=json:/results/0/median",
            "time_s_max=json:/results/0/max",
        ],
        refusals: &[],
    },
];

/// Report of an error; with it, the exit status is 0 before iperf3 3.14 all the same.
const IPERF3_ERROR: &str = "^\\s\"error\":\\s*\".*";

fn refusal(text: &str) -> regex::bytes::Regex {
    regex::bytes::RegexBuilder::new(text).multi_line(true).build().expect("a test parses all")
}

/// Returns the figures of a program; `None` if it is not one of [`PROGRAMS`].
pub fn ready_made(program: &str) -> Option<Adapter> {
    let known = KNOWN.iter().find(|known| known.program == program)?;
    Some(Adapter {
        program: known.program,
        figures: known.figures.iter().map(|text| Figure::fixed(text)).collect(),
        arguments: known.arguments,
        refusals: known.refusals.iter().map(|text| refusal(text)).collect(),
    })
}
