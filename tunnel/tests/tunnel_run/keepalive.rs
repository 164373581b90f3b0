//! Keepalives between two forwarders: one behind AF_XDP, one with a TAP device.

use super::*;

const KEPT_ALIVE: &str = "keepalive = { interval_ms = 100, lost = 10 }\n";

/// State that a forwarder printed last.
fn state_of(running: &Running) -> Value {
    let text = running.stdout();
    text.lines().rev().find_map(|line| serde_json::from_str(line).ok()).unwrap_or_default()
}

fn await_reach(running: &Running, reach: &str) {
    assert!(
        until(LONG, || state_of(running)["keepalive"]["b"]["state"] == reach),
        "{reach}: {} {}",
        state_of(running),
        running.stderr()
    );
}

/// A forwarder in the place of the kernel's device, whose TAP device has its address.
fn start_far(row: &Row, data: &Data) -> Running {
    let file = data.file("far.toml");
    let config = config("tap", "lan0", "").replace("\"ua\"", "\"tb\"");
    let config = config.replace("10.99.0.1", "@").replace("10.99.0.2", "10.99.0.1");
    fs::write(&file, config.replace('@', "10.99.0.2")).expect("a file");
    let space = &row.names[2];
    let program = [env!("CARGO_BIN_EXE_wirepath"), "tunnel", "run", "--json", &file];
    let mut far = Running::start(common::enter(space, &program));
    far.await_stderr("tunnel b: ");
    // The other host remembers it.
    succeed(ip(&["-n", space, "link", "set", "lan0", "address", "02:00:00:00:00:99"]));
    succeed(ip(&["-n", space, "address", "add", &format!("{BEHIND_IP}/24"), "dev", "lan0"]));
    far
}

#[test]
fn far_end_that_dies_and_comes_back_is_noticed_and_answers_whatever_its_own_file_says() {
    if !is_installed("ip") {
        return;
    }
    let row = Row::new(1500);
    let data = Data::new();
    succeed(ip(&["-n", &row.names[2], "link", "delete", "vx0"]));
    let far = start_far(&row, &data);
    let file = data.file("near.toml");
    // The headers do not fit: the segments of TCP have to be limited.
    let narrow = config("xdp", "pa", "").replace("mtu = 1600", "mtu = 1500");
    fs::write(&file, &narrow).expect("a file");
    let mut near = row.start(&["--json"], &file);
    let (plain, behind) = (row.space(&row.names[0]), row.space(&row.names[2]));
    udp_echo(&plain, (&behind, BEHIND_IP), 50, 64);
    tcp_stream(&plain, (&behind, BEHIND_IP), 400_000);
    tcp_stream(&behind, (&plain, PLAIN_IP), 400_000);
    assert!(
        until(LONG, || state_of(&near)["frames"]["mss_clamped"].as_u64() > Some(0)),
        "{}",
        state_of(&near)
    );

    // Begun by a reload, while frames pass.
    fs::write(&file, format!("{narrow}{KEPT_ALIVE}")).expect("a file");
    near.signal("HUP");
    await_reach(&near, "up");
    assert!(state_of(&near)["keepalive"]["b"]["delay_ns"].as_u64() > Some(0));
    assert!(!far.end_by("KILL", LONG).status.success());
    near.await_stderr("tunnel b: no answer to 10 keepalives");
    await_reach(&near, "down");
    assert!(state_of(&near)["keepalive"]["b"]["lost"].as_u64() >= Some(10));
    let far = start_far(&row, &data);
    near.await_stderr("tunnel b: the far end answers again");
    await_reach(&near, "up");
    udp_echo(&behind, (&plain, PLAIN_IP), 50, 64);
    for end in [near, far] {
        let output = end.end_by("TERM", LONG);
        assert!(output.status.success(), "{}", common::all_text(&output));
    }
}
