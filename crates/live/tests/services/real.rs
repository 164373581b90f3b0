//! Redis and nginx, against the counts of their own clients.

use sys::bpf::ServiceSpan;

use crate::server::{PORT, Server, place};

fn is_within_one_percent(found: u64, wanted: u64) -> bool {
    found.abs_diff(wanted) * 100 <= wanted
}

#[test]
fn requests_of_redis_are_those_of_its_client() {
    if !testkit::is_installed("redis-server") || !testkit::is_installed("redis-benchmark") {
        return;
    }
    let _alone = testkit::alone();
    let port = PORT.to_string();
    let arguments = ["--port", &port, "--save", "", "--appendonly", "no", "--daemonize", "no"];
    let Some(server) = Server::start("redis-server", &arguments) else { return };
    let Some(mut sources) = server.sources(&[]) else { return };
    let before = sources.read().unwrap();
    server.run("redis-benchmark", &["-p", &port, "-n", "20000", "-c", "10", "-t", "get", "--csv"]);
    let after = sources.read().unwrap();
    let seen = after.since(&before);
    let totals = seen.totals().unwrap();
    testkit::note(&format!("redis: {totals:?}"));
    assert!(is_within_one_percent(seen.request_count(), 20_000), "{totals:?}");
    assert!(is_within_one_percent(totals.acknowledged_count, 20_000), "{totals:?}");
    for span in [ServiceSpan::FirstSend, ServiceSpan::LastAcknowledgement] {
        let quantiles =
            [0.1, 0.5, 0.9, 0.99, 1.0].map(|share| seen.latency_us(span, share).unwrap());
        testkit::note(&format!("redis, {span:?}: {quantiles:?} us"));
        assert!(quantiles.is_sorted() && quantiles[0] > 0.5, "{quantiles:?}");
    }
    let cpu = seen.value(place(&sources, "cpu_per_request")).unwrap();
    assert!((0.5..5_000.0).contains(&cpu), "{cpu} us");
    assert_eq!(seen.value(place(&sources, "errors")), Some(0.0));
}

#[test]
fn requests_of_nginx_are_those_of_its_client() {
    if !testkit::is_installed("wrk") || !std::path::Path::new("/usr/sbin/nginx").exists() {
        return;
    }
    let _alone = testkit::alone();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    std::fs::write(folder.path().join("page"), vec![b'x'; 64 << 10]).unwrap();
    let settings = format!(
        "daemon off; worker_processes 2; pid {at}/pid; error_log stderr;\n\
         events {{ worker_connections 64; }}\n\
         http {{ access_log off; client_body_temp_path {at}/1; proxy_temp_path {at}/2;\n\
         fastcgi_temp_path {at}/3; uwsgi_temp_path {at}/4; scgi_temp_path {at}/5;\n\
         sendfile on; keepalive_requests 1000000; server {{ listen {PORT} reuseport; root {at}; }} }}\n"
    );
    std::fs::write(folder.path().join("nginx.conf"), settings).unwrap();
    // Workers of root become another user.
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = folder.path().join("nginx.conf");
    let Some(server) = Server::start("/usr/sbin/nginx", &["-c", file.to_str().unwrap()]) else {
        return;
    };
    let Some(mut sources) = server.sources(&[]) else { return };
    let before = sources.read().unwrap();
    let url = format!("http://127.0.0.1:{PORT}/page");
    let said = server.run("wrk", &["-t1", "-c8", "-d2s", &url]);
    let after = sources.read().unwrap();
    let seen = after.since(&before);
    let line = said.lines().find(|line| line.contains(" requests in ")).unwrap();
    let wanted: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
    let totals = seen.totals().unwrap();
    testkit::note(&format!("nginx: {wanted}, {totals:?}"));
    // Those of the end are answered and not counted by the client.
    assert!(totals.answered_count.abs_diff(wanted) <= wanted / 100 + 8, "{said}{totals:?}");
    let [first, last] = [ServiceSpan::FirstSend, ServiceSpan::LastAcknowledgement]
        .map(|span| seen.latency_us(span, 0.5).unwrap());
    testkit::note(&format!("nginx: first send {first} us, last acknowledgement {last} us"));
    assert!(last >= first, "{first} {last}");
    assert!(seen.value(place(&sources, "cpu_per_request")).unwrap() > 1.0);
}

#[test]
#[ignore = "a measurement: run it by hand on an idle machine"]
fn cost_of_a_request() {
    let _alone = testkit::alone();
    let port = PORT.to_string();
    let arguments = ["--port", &port, "--save", "", "--appendonly", "no", "--daemonize", "no"];
    let Some(server) = Server::start("redis-server", &arguments) else { return };
    let Some(mut sources) = server.sources(&[]) else { return };
    let _counting = sys::bpf::RunTimeCounting::start().unwrap();
    for connections in ["1", "10", "50"] {
        let (before, began) = (sources.run_time().unwrap().unwrap(), sources.read().unwrap());
        let arguments = ["-p", &port, "-n", "100000", "-c", connections, "-t", "get", "--csv"];
        server.run("redis-benchmark", &arguments);
        let (after, ended) = (sources.run_time().unwrap().unwrap(), sources.read().unwrap());
        let runs = after.all.since(&before.all);
        let requests = ended.since(&began).request_count() as f64;
        let (per_request, per_run) =
            (runs.count as f64 / requests, runs.ns as f64 / runs.count as f64);
        testkit::note(&format!(
            "{connections} connections: {requests} requests, {per_request:.2} runs each, {per_run:.0} ns a run, \
             {:.0} ns a request",
            runs.ns as f64 / requests
        ));
    }
    let begun = std::time::Instant::now();
    for _ in 0..100 {
        sources.guard_sample(None).unwrap();
    }
    let sample = begun.elapsed() / 100;
    let begun = std::time::Instant::now();
    for _ in 0..20 {
        sources.read().unwrap();
    }
    testkit::note(&format!("a sample {sample:?}, a reading {:?}", begun.elapsed() / 20));
}
