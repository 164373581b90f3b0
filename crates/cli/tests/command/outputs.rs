//! Outputs as real clients print them: the figure is read, or refused with the reason.

use super::*;

/// An experiment in which the second of two clients prints `output`, a shell's command line.
fn printed(output: &str, metric: &str) -> Value {
    let data = Data::new();
    let client = format!("b={output}");
    let good = "a=echo 'p99: 12.5'; echo '{\"p\":{\"ms\": 12.5}}'; printf 'rps,p99\\n1,12.5\\n'";
    let source = metric.split_once('=').expect("a figure").1;
    // The first client prints each form on lines of their own.
    let good = if source.starts_with("json:") { "a=echo '{\"p\":{\"ms\": 12.5}}'" } else { good };
    proven(&data, &["--arm", good, "--arm", &client, "--metric", metric])
}

#[test]
fn figures_of_untidy_outputs_are_read() {
    let json = "p_ms=json:/p/ms lower";
    let regex = "p_ms=re:p99: ([0-9.]+) lower";
    for (output, metric) in [
        ("echo 'warning: x'; echo '{\"p\":{\"ms\": 12.25}}'", json),
        ("echo '{\"event\":\"start\"}'; echo '{\"event\":\"end\",\"p\":{\"ms\": 12.25}}'", json),
        ("printf '\\rp99: 99.1 (20%%)\\r\\033[1mp99: 12.25\\033[0m\\n'", regex),
        ("seq 1 1000000; echo 'p99: 12.25'", regex),
        ("head -c 200000 /dev/urandom; echo; echo 'p99: 12.25'", regex),
        ("printf 'rps,p99\\r\\n\"100\",\"12.25\"\\r\\n'", "p_ms=csv:p99 lower"),
        ("sleep 300 & echo 'p99: 12.25'", regex),
        ("cat >/dev/null; echo 'p99: 12.25'", regex),
        ("echo 'p99: 12250us'", r"p_ms=re:p99: (\S+) lower"),
    ] {
        let outcome = printed(output, metric);
        assert_eq!(failures(&outcome, "b"), [""; 0], "{output}");
        assert_eq!(median(&outcome, "b", "p_ms"), 12.25, "{output}");
    }
}

#[test]
fn figures_that_may_be_wrong_are_refused_with_the_reason() {
    let regex = "p_ms=re:p99: ([0-9.]+) lower";
    let with_comma = "p_ms=re:p99: ([0-9.,]+) lower";
    for (output, metric, says) in [
        (
            "echo '{\"p\":{\"ms\": 12.5, \"lost\": -nan}}'",
            "p_ms=json:/p/ms lower",
            "invalid number",
        ),
        ("echo 'p99: 12,5'", with_comma, "decimal sign"),
        ("echo 'p99: 12,564 ms'", with_comma, "decimal sign"),
        ("echo 'p99: 12,564 ms'", regex, "decimal sign"),
        ("echo 'p99: 980.00us'", regex, "not in ms"),
        ("echo 'p99: 12.5'; kill -SEGV $$", regex, "SIGSEGV"),
        // Its unit changes with its size.
        (
            "[ $WIREPATH_TRIAL -gt 6 ] && echo 'p99: 1.02ms' || echo 'p99: 980.00us'",
            "p=re:p99: ([0-9.]+) lower",
            "in an earlier trial",
        ),
    ] {
        let outcome = printed(output, metric);
        let why = failures(&outcome, "b");
        assert!(why.last().is_some_and(|why| why.contains(says)), "{output}: {why:?}");
    }
}
