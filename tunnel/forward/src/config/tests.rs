use super::*;

const GOOD: &str = r#"
workers = 2
engine = "tap"
accept_no_checksum_v6 = true

[port]
interface = "lan0"
mtu = 1450

[underlay]
interface = "wan0"
address = "10.0.0.1"
mtu = 1600
queues = 2

[[tunnel]]
name = "site-b"
carrier = "vxlan"
vni = 42
remote = "10.0.0.2"
next_hop = "02:00:00:00:00:0b"
ttl = "inherit"
dscp = 46
dont_fragment = "inherit"

[[tunnel]]
name = "site-c"
carrier = "gretap"
key = 7
remote = "10.0.0.3"
sequence = true
checksum = true
vlan = 20

[[static]]
mac = "02:00:00:00:00:0c"
tunnel = "site-c"

[fdb]
entries = 1000
ageing_s = 60
learn = false

[order]
domain = "flow"
lanes = 4
window = 128
stuck_after_us = 500

[qos]
rate_kbps = 100000
overhead_bytes = 20

[[qos.class]]
queue_frames = 64
dscp = [46, 48]
priority = [5]

[[qos.class]]
"#;

const SMALL: &str = r#"
port = { interface = "lan0" }
underlay = { interface = "wan0", address = "fd00::1" }
tunnel = [{ name = "b", carrier = "vxlan", vni = 0, remote = "fd00::2" }]
"#;

/// Errors of the good configuration with `from` replaced by `to`.
fn errors_after(from: &str, to: &str) -> Vec<String> {
    assert_eq!(GOOD.matches(from).count(), 1, "{from:?} is there once");
    let errors = Config::parse(&GOOD.replace(from, to)).expect_err("invalid configuration");
    errors.0.iter().map(ToString::to_string).collect()
}

fn first_error(from: &str, to: &str) -> String {
    errors_after(from, to).remove(0)
}

#[test]
fn every_key_sets_its_field() {
    let config = Config::parse(GOOD).expect("valid configuration");
    assert_eq!((config.workers, config.engine), (2, ForwardEngine::Tap));
    assert!(config.accepts_no_checksum_v6);
    assert_eq!(
        (&config.port.name[..], config.port.mtu_bytes, config.port.queues),
        ("lan0", 1450, None)
    );
    assert_eq!((config.underlay.mtu_bytes, config.underlay.queues), (1600, Some(2)));
    let local: IpAddr = "10.0.0.1".parse().expect("valid address");
    let [b, c] = &config.tunnels[..] else { panic!("there are two tunnels") };
    assert_eq!(
        b.tunnel,
        Tunnel {
            local,
            remote: "10.0.0.2".parse().expect("valid address"),
            carrier: Carrier::Vxlan { vni: 42 },
        }
    );
    assert_eq!(b.next_hop, Some([2, 0, 0, 0, 0, 0xb]));
    let outer = b.outer([4; 6], [6; 6]);
    assert_eq!((outer.src_mac, outer.dst_mac, outer.mtu_bytes), ([4; 6], [6; 6], 1600));
    assert_eq!((outer.ttl, outer.dscp), (Field::Inherit(64), Field::Fixed(46)));
    assert_eq!((outer.dont_fragment, outer.has_checksum), (Field::Inherit(true), false));
    assert_eq!(c.tunnel.carrier, Carrier::Gretap { key: Some(7) });
    assert_eq!(config.vlans(), [None, Some(20)]);
    let outer = c.outer([4; 6], [6; 6]);
    assert!(outer.has_checksum && outer.has_sequence);
    assert_eq!(config.statics, [StaticConfig { mac: [2, 0, 0, 0, 0, 0xc], tunnel: 1 }]);
    let fdb = FdbSpec { entry_count_max: 1000, ageing_ns: 60_000_000_000, seed: 0 };
    assert_eq!((config.fdb, config.learns), (fdb, false));
    let order = OrderSpec { lanes: 4, window_tickets: 128, stuck_after_ns: 500_000 };
    assert_eq!((config.order, config.domain), (order, Domain::Flow));
    assert_eq!(config.qos.shaper, Some((100_000_000, 125_000)));
    let [first, second] = &config.qos.classes[..] else { panic!("there are two classes") };
    assert_eq!(
        (first.queue.frame_count_max, &first.dscp[..], &first.priority[..]),
        (64, &[46, 48][..], &[5][..])
    );
    assert_eq!(second.queue, QueueSpec { frame_count_max: 512, byte_count_max: 1 << 20 });
    let decap = config.decap();
    assert_eq!((decap.tunnels.len(), decap.inner_bytes_max, decap.vxlan_port), (2, 1472, 4789));
}

#[test]
fn minimal_configuration_uses_defaults() {
    let config = Config::parse(SMALL).expect("valid configuration");
    assert_eq!((config.workers, config.engine, config.learns), (1, ForwardEngine::Auto, true));
    assert_eq!((config.order.lanes, config.domain, config.qos.shaper), (1, Domain::Port, None));
    assert_eq!(config.qos.classes.len(), 1);
    let outer = config.tunnels[0].outer([0; 6], [0; 6]);
    assert!(outer.has_checksum, "VXLAN over IPv6 has a checksum by default");
}

#[test]
fn error_names_line_key_problem_and_remedy() {
    assert_eq!(
        errors_after("vni = 42", "vni = 16777216"),
        ["line 19: tunnel.vni: 16777216 is out of range; give 0 to 16777215"]
    );
    assert_eq!(
        errors_after("window = 128", "window = 100"),
        ["line 47: order.window: 100 is not a power of two; give 128"]
    );
    assert_eq!(
        errors_after("remote = \"10.0.0.3\"", "remote = \"10.0.0\""),
        [concat!(
            "line 30: tunnel.remote: \"10.0.0\" is not a valid IP address; ",
            "write one such as \"10.0.0.2\""
        )]
    );
    assert_eq!(
        errors_after("ttl = \"inherit\"", "ttl = \"copy\""),
        ["line 22: tunnel.ttl: invalid value \"copy\"; give 1 to 255, or \"inherit\""]
    );
    assert_eq!(
        errors_after("tunnel = \"site-c\"", "tunnel = \"site-d\""),
        ["line 37: static.tunnel: there is no tunnel \"site-d\"; give one of: site-b, site-c"]
    );
    assert_eq!(
        errors_after("key = 7", "vni = 7"),
        [concat!(
            "line 29: tunnel.vni: only vxlan tunnels have this key; ",
            "remove the key, or change the carrier"
        )]
    );
}

#[test]
fn comments_are_no_part_of_the_key_that_an_error_names() {
    let commented = GOOD
        .replace("[underlay]", "[underlay]   # of [the] tunnels = all")
        .replace("\"wan0\"", "\"wan0\"   # interface = \"wan1\"")
        .replace("[[qos.class]]\nqueue", "[[qos.class]] # \"first\nqueue");
    for (from, to, key) in [
        ("mtu = 1600", "mtu = \"x\"  # = 1500", "underlay.mtu"),
        ("entries = 1000", "entries = \"#\" # one = two", "fdb.entries"),
        ("queue_frames = 64", "queue_frames = 'many' # []", "qos.class.queue_frames"),
        ("address = \"10.0.0.1\"", "# address = \"10.0.0.1\"", "underlay.address"),
    ] {
        assert_eq!(commented.matches(from).count(), 1, "{from}");
        let errors = Config::parse(&commented.replace(from, to)).expect_err("invalid").0;
        assert_eq!(errors[0].key, key, "{errors:?}");
    }
    let header = commented.replace("[underlay]   #", "[underlay]\nnone = 1 #");
    assert_eq!(Config::parse(&header).expect_err("invalid").0[0].key, "underlay.none");
    let port = GOOD.replace("[port]\ninterface = \"lan0\"", "[port]   # a = b");
    let error = &Config::parse(&port).expect_err("invalid").0[0];
    assert_eq!((&error.key[..], &error.problem[..]), ("port", "missing field `interface`"));
}

#[test]
fn errors_of_several_places_are_reported_together_by_line() {
    let text = GOOD
        .replace("workers = 2", "workers = 0")
        .replace("02:00:00:00:00:0b", "01:00:00:00:00:0b")
        .replace("priority = [5]", "priority = [8]");
    let errors = Config::parse(&text).expect_err("invalid configuration");
    let places: Vec<_> = errors.0.iter().map(|e| (e.line, &e.key[..])).collect();
    assert_eq!(places, [(2, "workers"), (21, "tunnel.next_hop"), (57, "qos.class.priority")]);
    assert_eq!(errors.to_string().lines().count(), 3);
}

#[test]
fn unknown_keys_wrong_types_and_bad_syntax_report_their_line() {
    let error = first_error("queues = 2", "queus = 2");
    assert!(error.starts_with("line 14: underlay.queus: unknown field `queus`"), "{error}");
    assert!(error.ends_with("correct or remove the key"), "{error}");
    let error = first_error("ageing_s = 60", "ageing_s = \"60\"");
    assert!(error.starts_with("line 41: fdb.ageing_s: invalid type: string"), "{error}");
    let error = first_error("engine = \"tap\"", "engine = \"dpdk\"");
    assert!(error.starts_with("line 3: engine: unknown variant `dpdk`"), "{error}");
    let error = first_error("learn = false", "learn = ");
    assert!(error.starts_with("line 42: fdb.learn: "), "{error}");
    let error = Config::parse("").expect_err("too little").to_string();
    assert!(error.starts_with("line 1: the file: missing field"), "{error}");
}

/// Asserts that the good configuration with `from` replaced by `to` has an error that begins with `place`.
fn has(from: &str, to: &str, place: &str) {
    let errors = errors_after(from, to);
    assert!(errors.iter().any(|error| error.starts_with(place)), "{errors:?}");
}

#[test]
fn contradictions_are_reported() {
    has("interface = \"wan0\"", "interface = \"lan0\"", "line 11: underlay.interface: ");
    has("interface = \"lan0\"", "interface = \"a name too long\"", "line 7: port.interface: ");
    has("address = \"10.0.0.1\"", "", "line 10: underlay.address: the tunnels need");
    has("address = \"10.0.0.1\"", "address = \"fd00::1\"", "line 20: tunnel.remote: fd00::1 and");
    has(
        "remote = \"10.0.0.2\"",
        "remote = \"10.0.0.1\"",
        "line 20: tunnel.remote: 10.0.0.1 is both",
    );
    has(
        "remote = \"10.0.0.2\"",
        "remote = \"224.0.0.1\"",
        "line 20: tunnel.remote: 224.0.0.1 cannot",
    );
    has("name = \"site-c\"", "name = \"site-b\"", "line 27: tunnel.name: duplicate");
    has("name = \"site-c\"", "name = \"\"", "line 27: tunnel.name: invalid tunnel name \"\"");
    has("vni = 42", "", "line 16: tunnel.vni: VXLAN needs");
    has("domain = \"flow\"", "domain = \"port\"", "line 46: order.lanes: domain \"port\" has");
    has("rate_kbps = 100000", "burst_bytes = 9000", "line 51: qos.burst_bytes: a burst needs");
    has("rate_kbps = 100000", "police_kbps = 0", "line 51: qos.police_kbps: 0 is out of range");
    let no_rate = "line 51: qos.police_burst_bytes: a burst needs a rate; add police_kbps";
    has("rate_kbps = 100000", "police_burst_bytes = 9000", no_rate);
    has("dscp = [46, 48]", "dscp = [46, 46]", "line 56: qos.class.dscp: 46 is listed twice");
    has("mtu = 1600", "mtu = 100", "line 13: underlay.mtu: 100 is out of range");
    let twice = "[[static]]\nmac = \"02:00:00:00:00:0c\"\ntunnel = \"site-c\"\n[fdb]";
    has("[fdb]", twice, "line 40: static.mac: 02:00:00:00:00:0c is listed twice");
    let same = "carrier = \"vxlan\"\nvni = 42\nremote = \"10.0.0.2\"\n#";
    let text = GOOD
        .replace("carrier = \"gretap\"", same)
        .replace("key = 7", "")
        .replace("remote = \"10.0.0.3\"", "")
        .replace("sequence = true", "");
    let errors = Config::parse(&text).expect_err("invalid configuration").to_string();
    assert!(errors.contains("tunnel \"site-b\" has the same endpoints"), "{errors}");
}

#[test]
fn vni_or_key_without_a_vlan_of_its_own_is_reported() {
    let errors = errors_after("vlan = 20\n", "");
    let [error] = &errors[..] else { panic!("{errors:?}") };
    assert_eq!(
        *error,
        "line 27: tunnel.vlan: tunnel \"site-b\" has another VNI or key, so it is another broadcast \
         domain, and both would carry the same frames of the port; add vlan = 1 to 4094, the VLAN of \
         the port that it carries"
    );
    let text = GOOD.replace("vni = 42", "vni = 42\nvlan = 20");
    let error = Config::parse(&text).expect_err("one VLAN").to_string();
    assert!(error.contains("VLAN 20 is that of tunnel \"site-b\""), "{error}");
    let more = "[[tunnel]]\nname = \"d\"\ncarrier = \"vxlan\"\nvni = 42\nremote = \"10.0.0.4\"\n";
    assert!(Config::parse(&format!("{GOOD}\n{more}")).is_ok(), "two tunnels of one VNI");
    let error =
        Config::parse(&format!("{GOOD}\n{more}vlan = 9")).expect_err("two VLANs").to_string();
    assert!(
        error.contains("tunnel \"site-b\" has the same VNI or key and another VLAN"),
        "{error}"
    );
    let errors = errors_after("vlan = 20", "vlan = 4095");
    assert_eq!(errors, ["line 33: tunnel.vlan: 4095 is out of range; give 1 to 4094"]);
    let errors = errors_after("engine = \"tap\"", "engine = \"packet\"");
    assert!(
        errors[0].contains("engine: \"packet\" receives frames without their VLAN"),
        "{errors:?}"
    );
}

#[test]
fn cpus_are_a_list_of_different_numbers_and_set_the_workers() {
    let config = Config::parse(&format!("cpus = [3, 1]\n{SMALL}")).expect("valid configuration");
    assert_eq!((config.workers, config.cpus), (2, vec![3, 1]));
    let config = Config::parse(&format!("workers = 4\ncpus = [3, 1]\n{SMALL}")).expect("valid");
    assert_eq!((config.workers, config.cpus), (4, vec![3, 1]));
    for (list, problem) in [("[1, 1]", "1 is listed twice"), ("[8192]", "8192 is out of range")] {
        let error =
            Config::parse(&format!("cpus = {list}\n{SMALL}")).expect_err("invalid").to_string();
        assert!(error.starts_with(&format!("line 1: cpus: {problem}")), "{error}");
    }
}

/// The small configuration with a keepalive.
fn kept_alive(table: &str) -> String {
    SMALL.replace("vni = 0", &format!("vni = 0, keepalive = {table}"))
}

#[test]
fn keepalive_has_defaults_and_limits_and_starts_at_a_reload() {
    for (table, ms, lost) in [("{}", 1000, 3), ("{ interval_ms = 60000, lost = 1 }", 60_000, 1)] {
        let config = Config::parse(&kept_alive(table)).expect("valid configuration");
        let expected = KeepaliveConfig { interval: Duration::from_millis(ms), lost };
        assert_eq!(config.tunnels[0].keepalive, Some(expected));
    }
    let plain = Config::parse(SMALL).expect("valid configuration");
    assert_eq!(plain.tunnels[0].keepalive, None);
    let kept = Config::parse(&kept_alive("{}")).expect("valid");
    assert!(plain.fixed_differences(&kept).is_empty());
    for (table, said) in [
        ("{ interval_ms = 99 }", "tunnel.keepalive.interval_ms: 99 is out of range; give 100 to"),
        ("{ lost = 0 }", "tunnel.keepalive.lost: 0 is out of range; give 1 to 100"),
        ("{ interval = 1 }", "unknown field `interval`"),
    ] {
        let error = Config::parse(&kept_alive(table)).expect_err("invalid").to_string();
        assert!(error.contains(said), "{table}: {error}");
    }
}

#[test]
fn encryption_of_earlier_versions_is_one_error_that_names_its_replacement() {
    let keyed = SMALL.replace("vni = 0", "vni = 0, encryption = { keys = \"b.keys\", port = 0 }");
    let error = Config::parse(&keyed).expect_err("invalid").to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    for said in
        ["tunnel.encryption: ", "remove the key", "WireGuard or IPsec", "tunnel/docs/tunnel.md"]
    {
        assert!(error.contains(said), "{said}: {error}");
    }
}

/// Keys of the table of which `line` is a line in [`GOOD`], from the error of one that it does not have.
fn keys_beside(line: &str) -> Vec<String> {
    let error = first_error(line, &format!("{line}\nnot_a_key = 1"));
    let (_, expected) = error.split_once("`not_a_key`, expected").expect("unknown field");
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn reference_has_every_key() {
    let reference = include_str!("../../../docs/reference.md");
    let mut key_count = 0;
    for line in [
        "workers = 2",
        "mtu = 1600",
        "name = \"site-b\"",
        "tunnel = \"site-c\"",
        "entries = 1000",
        "window = 128",
        "rate_kbps = 100000",
        "queue_frames = 64",
    ] {
        // The tables and the key of earlier versions have no row of their own.
        let others =
            ["port", "underlay", "tunnel", "static", "fdb", "order", "qos", "class", "encryption"];
        for key in keys_beside(line).iter().filter(|key| !others.contains(&&key[..])) {
            assert!(reference.contains(&format!("\n| `{key}` |")), "{key}, beside {line}");
            key_count += 1;
        }
    }
    assert!(key_count > 30, "{key_count} keys");
    for key in ["interval_ms", "lost"] {
        assert!(reference.contains(&format!("{key} = ")), "{key} of keepalive");
    }
}

#[test]
fn samples_of_the_manual_and_the_reference_are_valid() {
    let interfaces = "port = { interface = \"lan0\" }\n\
        underlay = { interface = \"wan0\", address = \"10.0.0.1\" }\n";
    let pages =
        [include_str!("../../../docs/tunnel.md"), include_str!("../../../docs/reference.md")];
    let samples: Vec<&str> = pages
        .iter()
        .flat_map(|page| page.split("```toml\n").skip(1))
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect();
    assert_eq!(samples.len(), 4);
    for sample in samples {
        let before = if sample.contains("[port]") { "" } else { interfaces };
        if let Err(errors) = Config::parse(&format!("{before}{sample}")) {
            panic!("{errors}, of\n{sample}");
        }
    }
}

#[test]
fn truncated_files_never_panic() {
    for cut in 0..GOOD.len() {
        let _ = Config::parse(&GOOD[..cut]);
        let _ = Config::parse(&GOOD[cut..]);
    }
}

#[test]
fn forwarder_parts_follow_the_configuration() {
    let config = Config::parse(GOOD).expect("valid configuration");
    let fdb = config.table(1).expect("there is room");
    assert_eq!(fdb.entry_count_max(), 1024);
    assert_eq!(fdb.lookup(20, [2, 0, 0, 0, 0, 0xc], 0), Some(FdbPort::Tunnel(1)));
    assert_eq!(fdb.lookup(0, [2, 0, 0, 0, 0, 0xc], 0), None, "of another VLAN");
    let mut packet = [0; 34];
    (packet[12], packet[14], packet[15]) = (0x08, 0x45, 48 << 2);
    assert_eq!(config.classifier().class(&packet), 0);
    packet[15] = 0;
    assert_eq!(config.classifier().class(&packet), 1, "other frames go to the last class");
    let shaper = config.shaper(0).expect("there is a rate");
    assert_eq!(shaper.counts().count(), 2);
    let config = Config::parse(SMALL).expect("valid configuration");
    assert!(config.shaper(0).is_none());
}
