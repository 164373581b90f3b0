//! The table of known programs.
//!
//! The expressions were made from the output of the versions named at each program; their outputs are
//! the fixtures in `tests/adapters`. netperf, memtier_benchmark, oha and k6 are not in Debian: theirs are from
//! their documentation and source.

pub(super) struct Known {
    pub(super) program: &'static str,
    /// Name of the program on a command line; empty for `program`.
    pub(super) line: &'static str,
    /// Text of an argument that selects this entry among those of one program.
    pub(super) mode: Option<&'static str>,
    /// Arguments that make it print its figures.
    pub(super) arguments: &'static [&'static str],
    /// True if these follow the program's name, because a command or a URL may end its own.
    pub(super) is_leading: bool,
    /// Arguments that hide the figures.
    pub(super) dropped: &'static [&'static str],
    /// Option that names the server, and the one that takes a socket's file in its place; without both it is this host.
    pub(super) host: Option<(&'static str, &'static str)>,
    pub(super) figures: &'static [&'static str],
    /// Reports of failures.
    pub(super) refusals: &'static [&'static str],
}

impl Known {
    /// Name of the program on a command line.
    pub(super) fn name(&self) -> &'static str {
        if self.line.is_empty() { self.program } else { self.line }
    }
}

const PLAIN: Known = Known {
    program: "",
    line: "",
    mode: None,
    arguments: &[],
    is_leading: false,
    dropped: &[],
    host: None,
    figures: &[],
    refusals: &[],
};

pub(super) const KNOWN: &[Known] = &[
    // 3.12 and 3.21, TCP and UDP.
    Known {
        program: "iperf3",
        arguments: &["-J"],
        figures: &["goodput_bps=json:/end/sum_received/bits_per_second"],
        refusals: &[IPERF3_ERROR],
        ..PLAIN
    },
    // 3.12 and 3.21, client's report. Its jitter and losses are the server's.
    Known {
        program: "iperf3-udp",
        line: "iperf3",
        mode: Some("-u"),
        arguments: &["-u", "-J"],
        figures: &[
            "goodput_bps=json:/end/sum_received/bits_per_second",
            "jitter_ms=json:/end/sum_received/jitter_ms",
            "lost_count=json:/end/sum_received/lost_packets",
        ],
        refusals: &[IPERF3_ERROR],
        ..PLAIN
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
        ..PLAIN
    },
    // 3.7: throughput.
    Known {
        program: "sockperf-throughput",
        line: "sockperf",
        mode: Some("throughput"),
        arguments: &[],
        figures: &[r"sent_pps=re:Message Rate is (\d+) \[msg/sec\]"],
        refusals: &[],
        ..PLAIN
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
        ..PLAIN
    },
    // 7.0.15. Of several tests (-t), the last one counts.
    Known {
        program: "redis-benchmark",
        is_leading: true,
        dropped: &["-q"],
        host: Some(("-h", "-s")),
        arguments: &["--csv"],
        figures: &[
            "rps=csv:rps",
            "p50_ms=csv:p50_latency_ms",
            "p99_ms=csv:p99_latency_ms",
            "mean_ms=csv:avg_latency_ms",
        ],
        refusals: &["Error from server.*", "Could not connect .*"],
        ..PLAIN
    },
    // 2.x. It seeks in its JSON file to remove commas, which a pipe cannot do.
    Known {
        program: "memtier_benchmark",
        host: Some(("-s", "-S")),
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
        ..PLAIN
    },
    // 2.3 (Apache 2.4). Its table of percentiles is in whole milliseconds, the file of -e is not. A length that differs
    // from that of the first answer is no failure (-l).
    Known {
        program: "ab",
        is_leading: true,
        arguments: &["-q", "-l", "-e", "/dev/stdout"],
        figures: &[
            r"rps=re:^Requests per second: +(\S+)",
            r"p50_ms=re:^50,(\S+)",
            r"p99_ms=re:^99,(\S+)",
            r"mean_ms=re:^Time per request: +(\S+) \[ms\] \(mean\)",
        ],
        refusals: &["Non-2xx responses: .*", "Failed requests: +[1-9].*"],
        ..PLAIN
    },
    // 0.1.5.
    Known {
        program: "hey",
        figures: &[
            r"rps=re:^ +Requests/sec:\s+(\S+)",
            r"p50_s=re:^ +50%+ in (\S+) secs",
            r"p99_s=re:^ +99%+ in (\S+) secs",
            r"mean_s=re:^ +Average:\s+(\S+) secs",
        ],
        refusals: &[r"^Error distribution:", r"^ +\[[45]\d\d\]\s.*responses"],
        ..PLAIN
    },
    // 12.12, the report of an attack: `… | vegeta report`.
    Known {
        program: "vegeta",
        arguments: &["-type=json"],
        figures: &[
            "rps=json:/throughput",
            "p50_ns=json:/latencies/50th",
            "p99_ns=json:/latencies/99th",
            "mean_ns=json:/latencies/mean",
        ],
        refusals: &[r#""errors":\["[^"]*""#],
        ..PLAIN
    },
    // 1.2.6.
    Known {
        program: "bombardier",
        is_leading: true,
        arguments: &["-l", "-p", "r", "-o", "json"],
        figures: &[
            "rps=json:/result/rps/mean",
            "p50_us=json:/result/latency/percentiles/50",
            "p99_us=json:/result/latency/percentiles/99",
            "mean_us=json:/result/latency/mean",
        ],
        refusals: &[r#""req[45]xx":[1-9]\d*"#, r#""others":[1-9]\d*"#],
        ..PLAIN
    },
    // 1.x, from its documentation.
    Known {
        program: "oha",
        is_leading: true,
        dropped: &["--no-tui", "-j", "--json"],
        arguments: &["--output-format", "json"],
        figures: &[
            "rps=json:/summary/requestsPerSec",
            "p50_s=json:/latencyPercentiles/p50",
            "p99_s=json:/latencyPercentiles/p99",
            "mean_s=json:/summary/average",
        ],
        refusals: &[r#""errorDistribution": *\{ *"[^"]"#],
        ..PLAIN
    },
    // 0.4x to 1.x, from its documentation; the summary of its thresholds goes to standard error.
    Known {
        program: "k6",
        arguments: &["--quiet", "--summary-export=/dev/stdout"],
        figures: &[
            "rps=json:/metrics/http_reqs/rate",
            "p50_ms=json:/metrics/http_req_duration/med",
            "p95_ms=json:/metrics/http_req_duration/p(95)",
            "mean_ms=json:/metrics/http_req_duration/avg",
        ],
        refusals: &[],
        ..PLAIN
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
        ..PLAIN
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
        ..PLAIN
    },
    // 0.4.11: tcp_lat, udp_lat. Half of a round trip.
    Known {
        program: "qperf",
        arguments: &["-uu"],
        figures: &[r"latency_ns=re:^ +latency += +(\S+ \S+)$"],
        refusals: &[],
        ..PLAIN
    },
    // 0.4.11: tcp_bw, and udp_bw as received.
    Known {
        program: "qperf-bw",
        line: "qperf",
        mode: Some("_bw"),
        arguments: &["-uu"],
        figures: &[r"goodput_bps=re:^ +(?:recv_)?bw += +(\S+ \S+)$"],
        refusals: &[],
        ..PLAIN
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
        ..PLAIN
    },
    // 2.7, TCP_RR and UDP_RR.
    Known {
        program: "netperf",
        host: Some(("-H", "-H")),
        arguments: &["-j", "--", "-o", "THROUGHPUT,MEAN_LATENCY,P50_LATENCY,P99_LATENCY"],
        figures: &[
            "tps=csv:Throughput",
            "mean_us=csv:Mean Latency Microseconds",
            "p50_us=csv:50th Percentile Latency Microseconds",
            "p99_us=csv:99th Percentile Latency Microseconds",
        ],
        refusals: &[],
        ..PLAIN
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
        ..PLAIN
    },
];

/// Report of an error; with it, the exit status is 0 before iperf3 3.14 all the same.
const IPERF3_ERROR: &str = "^\\s\"error\":\\s*\".*";
