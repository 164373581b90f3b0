//! Figures from the outputs of real programs, in `tests/adapters`.

use std::fs;
use std::path::Path;
use std::process::Command;

use wirepath_lab::adapters::{Figure, PROGRAMS, Reason, ready_made};

fn output(file: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adapters").join(file);
    fs::read(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// Checks the figures of a program in one of its outputs: `name value, name value`.
fn check(program: &str, file: &str, expected: &str) {
    let adapter = ready_made(program).expect(program);
    let figures = adapter.take(&output(file)).unwrap_or_else(|why| panic!("{file}: {why}"));
    assert_eq!(figures.len(), adapter.figures.len());
    let expected: Vec<_> = expected.split(", ").collect();
    assert_eq!(figures.len(), expected.len(), "{program} {figures:?}");
    for ((name, value), expected) in figures.iter().zip(expected) {
        let (expected_name, number) = expected.split_once(' ').unwrap();
        let number: f64 = number.parse().unwrap();
        let is_same = (value - number).abs() <= number * 1e-12;
        assert!(
            *name == expected_name && is_same,
            "{program} {file}: {name} {value}, not {expected}"
        );
    }
}

fn refused(program: &str, file: &str) -> Reason {
    ready_made(program).expect(program).take(&output(file)).expect_err(file).reason
}

#[test]
fn every_program_has_figures_in_its_output() {
    let mut seen = Vec::new();
    for (program, file, figures) in [
        ("iperf3", "iperf3-3.12-tcp.json", "goodput_bps 21740723304.580013"),
        ("iperf3", "iperf3-3.21-tcp.json", "goodput_bps 2088826619.405179"),
        (
            "iperf3-udp",
            "iperf3-3.21-udp-gsro.json",
            "goodput_bps 29577634.2060467, jitter_ms 0.0000608790522291895, lost_count 1356928",
        ),
        (
            "iperf3-udp",
            "iperf3-3.12-udp.json",
            "goodput_bps 41497363.01206163, jitter_ms 0.00410619694705748, lost_count 81511",
        ),
        (
            "sockperf",
            "sockperf-3.7-ping-pong.txt",
            "p50_us 5.663, p99_us 8.923, p999_us 38.667, mean_us 6.265, lost_count 0",
        ),
        (
            "sockperf",
            "sockperf-3.7-under-load.txt",
            "p50_us 12.383, p99_us 2908.726, p999_us 3657.293, mean_us 231.004, lost_count 0",
        ),
        ("sockperf-throughput", "sockperf-3.7-throughput.txt", "sent_pps 122031"),
        ("wrk", "wrk-4.1.0.txt", "rps 30035.37, p50_us 247, p99_us 4730, mean_us 397.98"),
        (
            "redis-benchmark",
            "redis-benchmark-7.0.15.csv",
            "rps 46620.05, p50_ms 0.111, p99_ms 0.231, mean_ms 0.112",
        ),
        (
            "redis-benchmark",
            "redis-benchmark-7.0.15-two-tests.csv",
            "rps 40733.2, p50_ms 0.127, p99_ms 0.255, mean_ms 0.128",
        ),
        ("ab", "ab-2.3.txt", "rps 1338.09, p50_ms 0.846, p99_ms 16.176, mean_ms 1.495"),
        ("hey", "hey-0.1.5.txt", "rps 1147.7079, p50_s 0.0012, p99_s 0.0124, mean_s 0.0017"),
        (
            "bombardier",
            "bombardier-1.2.6.json",
            "rps 1678.2866578098615, p50_us 927, p99_us 5747, mean_us 1186.71",
        ),
        (
            "vegeta",
            "vegeta-12.json",
            "rps 179.6908546246998, p50_ns 1045245, p99_ns 33401743, mean_ns 7071405",
        ),
        (
            "oha",
            "oha-1-from-documentation.json",
            "rps 9512.5, p50_s 0.0019, p99_s 0.0098, mean_s 0.0021",
        ),
        ("k6", "k6-from-documentation.json", "rps 949.52, p50_ms 0.87, p95_ms 2.6, mean_ms 1.043"),
        (
            "memtier_benchmark",
            "memtier_benchmark-2-from-source.json",
            "rps 29839.89, p50_ms 0.391, p99_ms 1.775, p999_ms 3.183, mean_ms 0.461",
        ),
        (
            "h2load",
            "h2load-1.52.0.txt",
            "rps 107009.1, mean_us 335, max_us 3710, first_byte_us_mean 4020",
        ),
        (
            "dnsperf",
            "dnsperf-2.10.0.txt",
            "qps 63050.040857, mean_s 0.001484, max_s 0.009624, lost_count 0",
        ),
        ("qperf", "qperf-0.4.11-udp_lat.txt", "latency_ns 6980"),
        ("qperf-bw", "qperf-0.4.11-udp_bw.txt", "goodput_bps 11580473344"),
        ("qperf-bw", "qperf-0.4.11-tcp_bw.txt", "goodput_bps 14032044032"),
        (
            "irtt",
            "irtt-0.9.0.json",
            "rtt_ns_p50 108760, rtt_ns_mean 7058191, rtt_ns_max 27968356, lost_percent 0",
        ),
        (
            "netperf",
            "netperf-2.7-from-documentation.csv",
            "tps 35854.15, mean_us 27.84, p50_us 26, p99_us 59",
        ),
        (
            "hyperfine",
            "hyperfine-1.15.0.json",
            "time_s_mean 0.0011350729, time_s_median 0.0008551215000000001, time_s_max 0.003239918",
        ),
    ] {
        check(program, file, figures);
        seen.push(program);
    }
    let untested: Vec<_> = PROGRAMS.iter().filter(|program| !seen.contains(program)).collect();
    assert!(untested.is_empty(), "{untested:?}");
    assert!(ready_made("cat").is_none());
}

#[test]
fn failures_are_not_taken_for_figures() {
    for (program, file, text) in [
        ("ab", "ab-2.3-404.txt", "Non-2xx responses:      50"),
        ("hey", "hey-0.1.5-404.txt", "[404]"),
        ("hey", "hey-0.1.5-refused.txt", "Error distribution"),
        ("bombardier", "bombardier-1.2.6-404.json", "req4xx"),
        ("vegeta", "vegeta-12-404.json", "404 File not found"),
        ("wrk", "wrk-4.1.0-404.txt", "Non-2xx or 3xx responses: 25496"),
        ("h2load", "h2load-1.52.0-404.txt", "5000 failed"),
        ("h2load", "h2load-1.52.0-refused.txt", "50 failed"),
        ("redis-benchmark", "redis-benchmark-7.0.15-refused.txt", "Connection refused"),
        ("iperf3", "iperf3-3.12-refused.json", "Connection refused"),
        ("iperf3", "iperf3-3.21-refused.json", "unable to connect to server"),
        ("iperf3", "iperf3-3.21-busy.json", "the server is busy"),
    ] {
        let reason = refused(program, file);
        assert!(
            matches!(&reason, Reason::Refused { text: found } if found.contains(text)),
            "{reason}"
        );
    }
    let lost = "Queries completed:    0 (0.00%)\n  Queries per second:   0.000000\n";
    assert!(ready_made("dnsperf").unwrap().take(lost.as_bytes()).is_err());
    let silent = "sockperf: No messages were received from the server. Is the server down?\n";
    assert!(
        ready_made("sockperf")
            .unwrap()
            .take(silent.as_bytes())
            .unwrap_err()
            .to_string()
            .contains("server down")
    );
    let errors = output("memtier_benchmark-2-from-source.json");
    let errors = String::from_utf8(errors).unwrap().replace("Errors\": 0", "Errors\": 12");
    assert!(ready_made("memtier_benchmark").unwrap().take(errors.as_bytes()).is_err());
}

#[test]
fn an_output_cut_at_any_place_has_all_figures_or_an_error() {
    for program in PROGRAMS {
        let adapter = ready_made(program).unwrap();
        let files =
            fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adapters")).unwrap();
        for file in files.map(|entry| entry.unwrap().path()) {
            let whole = fs::read(&file).unwrap();
            let cuts = (0..whole.len()).step_by(whole.len() / 50 + 1);
            for cut in cuts {
                let Ok(figures) = adapter.take(&whole[..cut]) else { continue };
                assert_eq!(figures.len(), adapter.figures.len(), "{program} {}", file.display());
            }
        }
        assert!(adapter.take(b"").is_err());
    }
}

#[test]
fn memtier_prints_its_file_removes_it_and_keeps_its_status() {
    let folder = std::env::temp_dir().join(format!("wirepath-memtier-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let adapter = ready_made("memtier_benchmark").unwrap();
    let program = "memtier_benchmark() { for a; do case $a in --json-out-file=*) \
                   echo '{\"a\": 7}' >\"${a#*=}\" ;; esac; done; return 3; }";
    let line = format!("{program}; memtier_benchmark -s ::1 {}", adapter.arguments.join(" "));
    let out = Command::new("sh").args(["-c", &line]).env("TMPDIR", &folder).output().unwrap();
    let figure: Figure = "a_us=json:/a".parse().unwrap();
    assert_eq!(figure.take(&out.stdout).unwrap(), 7.0);
    assert_eq!(out.status.code(), Some(3));
    fs::remove_dir(&folder).expect("no file is left");
}
