//! Metrics of a route: one changes, and all else of the route stays, also after a kill.

use std::process::Command;

use wirepath_host::text::chain;
use wirepath_host::tune::{self, ApplyError, KnobError, RestoreOutcome};

use crate::bench::{Bench, INTERFACE};

/// Routes of the bench's namespace as `ip` shows them, without those that the kernel adds to the table `local` as soon as
/// an address has been tried.
fn shown(bench: &Bench) -> String {
    let all =
        ["-4", "-6"].map(|version| ip(bench, &["-d", version, "route", "show", "table", "all"]));
    let kept =
        all.iter().flat_map(|text| text.lines()).filter(|line| !line.contains("table local"));
    kept.collect::<Vec<_>>().join("\n")
}

/// Output of `ip` in the bench's namespace; it must succeed.
fn ip(bench: &Bench, words: &[&str]) -> String {
    let ran = bench.pair.near.run(|| Command::new("ip").args(words).output().unwrap()).unwrap();
    assert!(ran.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

const ROUTES: &[&str] = &[
    "default via 10.77.0.2 dev wp-near proto dhcp metric 100 mtu lock 1400 window 9000 advmss 1300 rto_min 40ms",
    "10.9.0.0/16 via 10.77.0.2 dev wp-near onlink src 10.77.0.1 tos 0x10 initrwnd 7 congctl bbr features ecn",
    "10.8.0.0/16 dev wp-near scope link table 100",
    "fd99::/64 via fd77::2 dev wp-near metric 77 pref high hoplimit 9",
];

/// A bench with routes of all sorts.
fn bench() -> Option<Bench> {
    if !testkit::is_installed("ip") {
        return None;
    }
    let bench = Bench::new();
    let file = "/proc/sys/net/ipv6/conf/all/disable_ipv6";
    bench.pair.near.run(|| std::fs::write(file, "0").unwrap()).unwrap();
    ip(&bench, &["address", "add", "fd77::1/64", "dev", INTERFACE, "nodad"]);
    for route in ROUTES {
        let words: Vec<&str> = ["route", "add"].into_iter().chain(route.split(' ')).collect();
        ip(&bench, &words);
    }
    Some(bench)
}

const STEPS: &[(&str, &str, &str)] = &[
    ("route-initcwnd", "route default dev wp-near", "20"),
    ("route-congestion-control", "route default dev wp-near", "cubic"),
    ("route-initrwnd", "route 10.9.0.0/16 dev wp-near", "30"),
    ("route-congestion-control", "route 10.9.0.0/16 dev wp-near", "default"),
    ("route-initcwnd", "route 10.8.0.0/16 dev wp-near table 100", "5"),
    ("route-initcwnd", "route fd99::/64 dev wp-near", "6"),
    ("route-congestion-control", "route fd99::/64 dev wp-near", "reno"),
    ("route-initcwnd", "route 10.77.0.0/24 dev wp-near", "40"),
];

#[test]
fn a_metric_changes_and_all_else_of_the_route_stays() {
    let Some(bench) = bench() else { return };
    let before = shown(&bench);
    bench.apply(&bench.plan(STEPS)).unwrap();
    let after = shown(&bench);
    for part in
        ["initcwnd 20", "congctl cubic", "initrwnd 30", "initcwnd 5", "initcwnd 6", "congctl reno"]
    {
        assert!(after.contains(part), "{part} in {after}");
    }
    let without = |text: &str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        let is_metric = |word: &&str| ["initcwnd", "initrwnd", "congctl"].contains(word);
        let mut kept = Vec::new();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            if is_metric(&word) {
                words.next();
            } else {
                kept.push(word);
            }
        }
        kept.join(" ")
    };
    assert_eq!(without(&after), without(&before));
    let report = bench.rollback();
    assert!(report.failures().next().is_none() && report.foreign().next().is_none(), "{report:?}");
    assert_eq!(shown(&bench), before);
}

#[test]
fn routes_are_listed_as_targets_of_their_interface() {
    let Some(bench) = bench() else { return };
    let knob = tune::find("route-initcwnd").unwrap();
    let targets = tune::targets(knob, &bench.system, Some(INTERFACE)).unwrap();
    let texts: Vec<String> = targets.iter().map(ToString::to_string).collect();
    for expected in [
        "route default dev wp-near",
        "route 10.77.0.0/24 dev wp-near",
        "route fd99::/64 dev wp-near",
    ] {
        assert!(texts.contains(&expected.to_owned()), "{expected} in {texts:?}");
    }
    assert!(!texts.iter().any(|text| text.contains("table")), "{texts:?}");
    assert!(tune::targets(knob, &bench.system, None).unwrap().is_empty());
}

#[test]
fn a_route_that_cannot_be_told_from_another_or_would_not_come_back_is_not_changed() {
    let Some(bench) = bench() else { return };
    ip(
        &bench,
        &["route", "append", "10.9.0.0/16", "via", "10.77.0.3", "dev", INTERFACE, "tos", "0x10"],
    );
    ip(
        &bench,
        &[
            "route",
            "add",
            "10.6.0.0/16",
            "nexthop",
            "via",
            "10.77.0.2",
            "nexthop",
            "via",
            "10.77.0.3",
        ],
    );
    let before = shown(&bench);
    let knob = tune::find("route-initcwnd").unwrap();
    let probe = |target: &str| knob.probe(&bench.system, &target.parse().unwrap()).unwrap_err();
    let twice = probe("route 10.9.0.0/16 dev wp-near");
    assert!(matches!(twice, KnobError::NotOffered { .. }), "{twice:?}");
    let kernel = probe("route fd77::/64 dev wp-near");
    assert!(matches!(kernel, KnobError::Inexact { .. }), "{kernel:?}");
    for absent in [
        "route 10.6.0.0/16 dev wp-near",
        "route 10.5.0.0/16 dev wp-near",
        "route default dev eth77",
    ] {
        let error = probe(absent);
        assert!(error.is_absence(), "{absent}: {error:?}");
    }
    let unknown =
        bench.plan(&[("route-congestion-control", "route default dev wp-near", "nonesuch")]);
    let error = chain(&bench.apply(&unknown).unwrap_err());
    assert!(error.contains("modprobe tcp_nonesuch"), "{error}");
    assert_eq!(shown(&bench), before);
}

#[test]
fn a_route_that_was_removed_has_nothing_to_restore_and_one_that_another_process_changed_is_kept() {
    let Some(bench) = bench() else { return };
    bench.apply(&bench.plan(&STEPS[..3])).unwrap();
    ip(&bench, &["route", "del", "10.9.0.0/16", "tos", "0x10"]);
    let routes =
        "default via 10.77.0.2 dev wp-near proto dhcp metric 100 initcwnd 33 congctl cubic";
    let words: Vec<&str> = ["route", "change"].into_iter().chain(routes.split(' ')).collect();
    ip(&bench, &words);
    let report = bench.rollback();
    let outcomes: Vec<&RestoreOutcome> =
        report.settings.iter().map(|setting| &setting.outcome).collect();
    assert!(matches!(outcomes[0], RestoreOutcome::Foreign { .. }), "{report:?}");
    assert_eq!(outcomes[1..], [&RestoreOutcome::Restored, &RestoreOutcome::Gone], "{report:?}");
    assert!(report.failures().next().is_none(), "{report:?}");
}

#[test]
fn a_refused_step_restores_the_routes_before_it() {
    let Some(bench) = bench() else { return };
    let before = shown(&bench);
    // The mask reads back differently, so the second step fails.
    let plan = bench.plan(&[STEPS[0], ("rps-cpus", "queue wp-near rx-1", "80000000,00000001")]);
    let error = bench.apply(&plan).unwrap_err();
    assert!(matches!(error, ApplyError::RolledBack { .. }), "{error:?}");
    assert_eq!(shown(&bench), before);
}
