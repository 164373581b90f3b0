//! Servers that end after their only client.

use super::*;
use crate::common::is_installed;

/// TCP server of one connection. It ends with `$STATUS` once it has answered.
const ONE_CLIENT: &str = r#"
import os, socket, sys
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("", int(os.environ["WIREPATH_PORT"])))
server.listen(1)
connection = server.accept()[0]
connection.sendall(connection.recv(64))
connection.close()
print("served one", flush=True)
sys.exit(int(os.environ.get("STATUS", "0")))
"#;

/// One exchange, and some time without the server.
const CLIENT: &str = r#"
import os, socket, time
begun = time.perf_counter()
client = socket.create_connection((os.environ["WIREPATH_FAR"], int(os.environ["WIREPATH_PORT"])), 3)
client.sendall(b"x")
assert client.recv(64) == b"x", "no echo"
print("took_us", 1e6 * (time.perf_counter() - begun), flush=True)
while os.environ.get("AFTER"): time.sleep(1)
time.sleep(0.3)
"#;

fn one_client(more: &[&str]) -> Option<Value> {
    if !is_installed("python3") {
        return None;
    }
    let data = Data::new();
    let server = format!("exec {}", script(&data, "server.py", ONE_CLIENT));
    let client = script(&data, "client.py", CLIENT);
    let args =
        ["--server", &server, "--client", &client, "--metric", "took_us=re:took_us (.+) lower"];
    Some(proven(&data, &[&args[..], more].concat()))
}

#[test]
fn a_server_that_ends_with_success_after_its_client_is_measured() {
    for keep in [&[][..], &["--keep-servers"]] {
        let Some(outcome) = one_client(&[&["--arm", "b:X=1"], keep].concat()) else { return };
        assert_no_failure(&outcome);
        for name in names(&outcome) {
            assert!(median(&outcome, name, "took_us") > 0.0, "{keep:?}");
            assert_eq!(arm(&outcome, name)["trials"], outcome["blocks"], "{keep:?}");
            assert!(median(&outcome, name, "server_cpu_ns") > 0.0, "{keep:?}");
        }
    }
}

#[test]
fn a_server_that_fails_after_its_client_fails_the_trial_with_its_last_words() {
    for keep in [&[][..], &["--keep-servers"]] {
        let Some(outcome) = one_client(&[&["--arm", "bad:STATUS=3"], keep].concat()) else {
            return;
        };
        let why = failures(&outcome, "bad");
        assert!(!why.is_empty(), "{keep:?}: {outcome:#}");
        assert!(
            why.iter().all(|why| why.contains("exit status: 3") && why.contains("served one")),
            "{keep:?}: {why:?}"
        );
    }
}

#[test]
fn a_server_that_ends_before_its_client_starts_fails_the_trial() {
    let data = Data::new();
    let args = ["--server", "echo done; exec sleep ${S:-1000}", "--arm", "bad:S=0.1"];
    let args = [&args[..], &["--ready", "sleep:20", "--warmup", "sleep 0.5"]].concat();
    let client = ["--client", "echo rps 5", "--metric", "rps=re:rps ([0-9]+)"];
    let outcome = proven(&data, &[&args[..], &client].concat());
    let why = failures(&outcome, "bad");
    assert!(
        !why.is_empty()
            && why.iter().all(|why| why.contains("before it had served") && why.contains("done")),
        "{why:?}"
    );
    assert_eq!(failures(&outcome, "baseline"), [""; 0]);
}

#[test]
fn a_client_that_outlives_its_server_until_the_limit_is_told_so() {
    if !is_installed("python3") {
        return;
    }
    let data = Data::new();
    let server = format!("exec {}", script(&data, "server.py", ONE_CLIENT));
    let client = format!("AFTER=1 {}", script(&data, "client.py", CLIENT));
    let args = ["--server", &server, "--client", &client, "--arm", "b:X=1", "--within", "1s"];
    let output = crate::common::run(prove(&data, &args));
    let said = crate::common::all_text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the server ended with success before its client"), "{said}");
}
