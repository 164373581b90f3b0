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
        let args = [env!("CARGO_BIN_EXE_wirepath"), "tunnel", "run", &file];
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
    let said = fail(wirepath(&["tunnel", "run", &file]), 2);
    assert!(said.contains("line 15") && said.contains("tunnel.vni"), "{said}");
    let said = fail(wirepath(&["tunnel", "run", &data.file("none.toml")]), 2);
    assert!(said.contains("cannot read"), "{said}");
}

#[test]
fn check_finds_on_this_host_what_a_start_refuses_and_says_the_same() {
    if !is_installed("ip") {
        return;
    }
    let row = Row::new(1500);
    let data = Data::new();
    let file = data.file("tunnel.toml");
    let run = |more: &[&str]| {
        let args = [env!("CARGO_BIN_EXE_wirepath"), "tunnel", "run", &file];
        common::enter(&row.names[1], &[&args[..], more].concat())
    };
    for engine in ["auto", "in-kernel-xdp", "xdp", "packet"] {
        let good = config(engine, "pa", "");
        fs::write(&file, &good).expect("a file");
        let output = common::run(run(&["--check"]));
        let text = common::all_text(&output);
        assert!(output.status.success() && text.contains("1 tunnel, 2 workers, nothing"), "{text}");
        for (from, to, code, said) in [
            ("\"pa\"", "\"wp-none0\"", 2, "wp-none0"),
            ("\"ua\"", "\"wp-none1\"", 2, "wp-none1"),
            ("\"10.99.0.1\"", "\"10.99.0.7\"", 3, "underlay.address: no interface here has"),
            ("mtu = 1600", "mtu = 1700", 3, "underlay.mtu: ua carries 1600 bytes, not 1700"),
            ("10.99.0.2", "10.98.0.2", 1, "10.98.0.2"),
        ] {
            assert!(good.contains(from), "{from}");
            fs::write(&file, good.replace(from, to)).expect("a file");
            for more in [&["--check"][..], &[]] {
                let text = fail(run(more), code);
                assert!(text.contains(said), "{engine} {more:?} {to}: {text}");
            }
        }
    }
    let links = succeed(ip(&["-n", &row.names[1], "-d", "link", "show"]));
    assert!(!links.contains("xdp") && !links.contains("wpp"), "{links}");
}

#[test]
fn virtual_port_out_of_which_super_frames_may_come_is_refused_with_the_remedy() {
    if !is_installed("ip") {
        return;
    }
    let row = Row::new(1500);
    let data = Data::new();
    let file = data.file("tunnel.toml");
    succeed(ip(&["-n", &row.names[1], "link", "add", "du", "type", "bridge"]));
    succeed(ip(&["-n", &row.names[1], "link", "set", "du", "up"]));
    for engine in ["auto", "xdp"] {
        fs::write(&file, config(engine, "du", "")).expect("a file");
        let args = [env!("CARGO_BIN_EXE_wirepath"), "tunnel", "run", &file];
        let said = fail(common::enter(&row.names[1], &args), 3);
        for word in ["du is a bridge without XDP in its driver", "give engine = \"packet\""] {
            assert!(said.contains(word), "{engine}: {said}");
        }
    }
}
