//! Pages of metrics that a server of this test serves, hostile ones too.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use wirepath_live::sources::{LiveError, MetricSpec, SourceSpec, Sources};

/// Serves each connection by `answer`, which gets the number of the connection; returns the address.
fn serve(answer: impl Fn(usize, TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Ends with the test program.
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            answer(number, stream);
        }
    });
    format!("http://{address}/metrics")
}

fn send(mut stream: TcpStream, body: &str) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}

fn open(metrics: &[String]) -> Result<Sources, LiveError> {
    let metrics = metrics.iter().map(|text| text.parse::<MetricSpec>().unwrap()).collect();
    Sources::open(&SourceSpec { service: None, netns: None, metrics })
}

/// Error of a page.
fn refusal(answer: impl Fn(usize, TcpStream) + Send + 'static) -> String {
    let url = serve(answer);
    open(&[format!("prom:{url}#x:value lower")]).unwrap_err().to_string()
}

#[test]
fn figures_are_those_of_the_time_between_two_readings() {
    let url = serve(|number, stream| {
        // Four metrics a reading; the first is that of `open`.
        let n = number / 5;
        let fast = 1000 * (n + 1);
        let slow = 1000 + 100 * n.saturating_sub(1);
        let all = fast + slow;
        let sum = n * 30;
        send(
            stream,
            &format!(
                "x_seconds_bucket{{le=\"0.01\"}} {fast}\nx_seconds_bucket{{le=\"0.04\"}} {all}\n\
                 x_seconds_bucket{{le=\"+Inf\"}} {all}\nx_seconds_sum {sum}\nx_seconds_count {all}\n\
                 busy {n}\ns{{quantile=\"0.99\"}} {n}\n"
            ),
        );
    });
    let metric = |rest: &str| format!("prom:{url}#{rest}");
    let mut sources = open(&[
        metric("x_seconds:p50 lower"),
        metric("x_seconds:p99 lower"),
        metric("x_seconds:mean lower"),
        metric("busy:value lower"),
        metric("s:p99 lower"),
    ])
    .unwrap();
    let names: Vec<&str> = sources.figures().iter().map(|figure| figure.name.as_str()).collect();
    assert_eq!(names, ["x_seconds_p50", "x_seconds_p99", "x_seconds_mean", "busy_value", "s_p99"]);
    let before = sources.read().unwrap();
    let after = sources.read().unwrap();
    let seen = after.since(&before);
    // 1,000 fast ones and 100 slow ones between.
    assert_eq!(seen.request_count(), 1100);
    let p50 = seen.value(0).unwrap();
    assert!((p50 - 0.0055).abs() < 1e-9, "{p50}");
    let p99 = seen.value(1).unwrap();
    assert!((p99 - (0.01 + 0.03 * 0.89)).abs() < 1e-9, "{p99}");
    assert_eq!(seen.bucket_ratio(1), Some(4.0));
    assert!((seen.value(2).unwrap() - 30.0 / 1100.0).abs() < 1e-9);
    assert_eq!((seen.value(3), seen.value(4)), (Some(2.0), Some(2.0)));
    // The other way round a counter falls, as after a restart.
    assert_eq!(before.since(&after).value(0), None);
    assert_eq!(sources.problems().count(), 0);
}

#[test]
fn a_page_that_fails_during_the_run_leaves_its_figure_out() {
    let url = serve(|number, stream| match number {
        0 | 1 | 3 => send(stream, "x 5\n"),
        _ => send(stream, "y 5\n"),
    });
    let mut sources = open(&[format!("prom:{url}#x:value lower")]).unwrap();
    let before = sources.read().unwrap();
    let failed = sources.read().unwrap();
    assert_eq!(failed.since(&before).value(0), None);
    let why = sources.problems().next().unwrap().to_string();
    assert!(why.contains("x_value") && why.contains("no series x"), "{why}");
    let after = sources.read().unwrap();
    assert_eq!(after.since(&before).value(0), Some(5.0));
}

#[test]
fn hostile_pages_are_refused_within_bounds_of_time_and_memory() {
    let begun = Instant::now();
    let endless = refusal(|_, mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'y'; 4096]).is_ok() {}
    });
    assert!(endless.contains("longer than") || endless.contains("within"), "{endless}");
    let silent = refusal(|_, stream| std::mem::forget(stream));
    assert!(silent.contains("within 2s"), "{silent}");
    let slow = refusal(|_, mut stream| {
        while stream.write_all(b"H").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert!(slow.contains("within 2s") || slow.contains("not HTTP"), "{slow}");
    let head = refusal(|_, mut stream| {
        let _ =
            stream.write_all(format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(1 << 20)).as_bytes());
    });
    assert!(head.contains("head"), "{head}");
    let line = refusal(|_, stream| send(stream, &format!("x {}", "1".repeat(1 << 20))));
    assert!(line.contains("65536"), "{line}");
    let elsewhere = refusal(|_, mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n");
    });
    assert!(elsewhere.contains("302"), "{elsewhere}");
    let binary = refusal(|_, stream| send(stream, "x \u{0}\u{1}"));
    assert!(binary.contains("not a sample"), "{binary}");
    assert!(begun.elapsed() < testkit::LONG, "{:?}", begun.elapsed());
    let none =
        open(&["prom:http://127.0.0.1:1/metrics#x:value lower".into()]).unwrap_err().to_string();
    assert!(none.contains("cannot connect"), "{none}");
}

#[test]
fn without_a_service_and_a_metric_there_is_nothing_to_judge() {
    let why = open(&[]).unwrap_err().to_string();
    assert!(why.contains("--port") && why.contains("--metric"), "{why}");
    let twice = ["a=command:echo 1 lower".to_owned(), "a=command:echo 2 lower".to_owned()];
    assert!(open(&twice).unwrap_err().to_string().contains("two figures are called a"));
}
