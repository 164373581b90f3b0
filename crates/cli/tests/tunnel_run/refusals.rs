//! Files and interfaces that `tunnel run` refuses, with the remedy.

use super::*;

#[test]
fn interface_with_too_small_an_mtu_is_refused_with_the_remedy() {
    if !is_installed("ip") {
        return;
    }
    let row = Row::new(1500);
    let data = Data::new();
    let file = data.file("tunnel.toml");
    let run = || {
        let args = [env!("CARGO_BIN_EXE_wirepath"), "tunnel", "run", "--config", &file];
        common::run(common::enter(&row.names[1], &args))
    };
    for (mtu, said) in [(9000, "underlay.mtu: ua carries 1600 bytes, not 9100"), (20_000, "16106")]
    {
        fs::write(&file, config_of("xdp", "pa", mtu, "")).expect("a file");
        let output = run();
        assert!(!output.status.success());
        let text = common::all_text(&output);
        assert!(text.contains(said), "{mtu}: {text}");
    }
}

#[test]
fn wrong_file_ends_with_2_and_all_that_is_wrong_by_line() {
    let data = Data::new();
    let file = data.file("tunnel.toml");
    fs::write(&file, config("xdp", "pa", "").replace("vni = 42", "vni = 16777216")).expect("it");
    let said = fail(wirepath(&["tunnel", "run", "--config", &file]), 2);
    assert!(said.contains("line 15") && said.contains("tunnel.vni"), "{said}");
    let said = fail(wirepath(&["tunnel", "run", "--config", &data.file("none.toml")]), 2);
    assert!(said.contains("cannot read"), "{said}");
    fs::write(&file, config("xdp", "pa", "")).expect("a file");
    let output = common::run(wirepath(&["tunnel", "run", "--check", "--config", &file]));
    assert!(output.status.success(), "{}", common::all_text(&output));
}

#[test]
fn interface_that_is_not_there_is_named() {
    let data = Data::new();
    let file = data.file("tunnel.toml");
    fs::write(&file, config("packet", "wp-none0", "")).expect("a file");
    let said = fail(wirepath(&["tunnel", "run", "--config", &file]), 1);
    assert!(said.contains("there is no interface ua") || said.contains("wp-none0"), "{said}");
}
