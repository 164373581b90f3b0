//! Exported settings of TCP and routes, applied in a namespace by the form's own tool.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use wirepath_host::tune::{self, Form, Place, Plan, System};

use crate::bench::{Bench, INTERFACE};

const STEPS: &[(&str, &str, &str)] = &[
    ("tcp-congestion-control", "netns", "reno"),
    ("somaxconn", "netns", "777"),
    ("ip-local-port-range", "netns", "20000 60000"),
    ("tcp-notsent-lowat", "netns", "131072"),
    ("tcp-slow-start-after-idle", "netns", "0"),
    ("tcp-keepalive-time", "netns", "60"),
    ("route-initcwnd", "route default dev wp-near", "20"),
    ("route-congestion-control", "route default dev wp-near", "cubic"),
    ("route-initrwnd", "route 10.77.0.0/24 dev wp-near", "30"),
];

/// Runs a program, which must succeed; its standard output.
fn run(program: &str, arguments: &[&str]) -> String {
    let ran = Command::new(program).args(arguments).output().unwrap();
    assert!(
        ran.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&ran.stderr)
    );
    String::from_utf8(ran.stdout).unwrap()
}

/// Writes the files of a form below a folder.
fn export(plan: &Plan, system: &System, form: Form, folder: &Path) {
    let exported = tune::export(plan, system, form).unwrap();
    for file in exported.files {
        let path = folder.join(&file.path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file.text.as_str()).unwrap();
    }
}

/// Knobs that differ from the plan.
fn differing(plan: &Plan, system: &System) -> Vec<String> {
    let drift = plan.verify(system, &AtomicBool::new(false)).unwrap();
    drift.into_iter().map(|drift| drift.knob).collect()
}

#[test]
fn sysctl_and_ip_set_what_was_exported_and_nothing_else() {
    if !testkit::is_installed("ip") {
        return;
    }
    let bench = Bench::new();
    let folder = bench.folder.path();
    let near = &bench.pair.near;
    near.run(|| {
        run(
            "ip",
            &[
                "route",
                "add",
                "default",
                "via",
                "10.77.0.2",
                "dev",
                INTERFACE,
                "metric",
                "50",
                "mtu",
                "1400",
            ],
        );
        let system = System::open(&Place::default()).unwrap();
        let plan = Plan { netns: None, ..bench.plan(STEPS) };
        assert_eq!(differing(&plan, &system).len(), STEPS.len());
        export(&plan, &system, Form::Systemd, folder);
        let sysctl = folder.join("etc/sysctl.d/60-wirepath-wp-near.conf");
        run("sysctl", &["-p", sysctl.to_str().unwrap()]);
        let routes = differing(&plan, &system);
        assert!(
            routes.len() == 3 && routes.iter().all(|knob| knob.starts_with("route-")),
            "{routes:?}"
        );
        let script = folder.join("etc/wirepath/wirepath-wp-near.routes.sh");
        // Once at start-up, and again after a renewal.
        for _ in 0..2 {
            run("sh", &[script.to_str().unwrap()]);
            assert_eq!(differing(&plan, &system), Vec::<String>::new());
        }
        let shown = run("ip", &["route", "show", "default"]);
        let expected =
            "default via 10.77.0.2 dev wp-near metric 50 mtu 1400 initcwnd 20 congctl cubic";
        assert_eq!(shown.trim(), expected);
        run("ip", &["route", "del", "default"]);
        let ran = Command::new("sh").arg(&script).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(
            !ran.status.success() && said.contains("not exactly one route to default"),
            "{said}"
        );
        assert_eq!(run("ip", &["route", "show", "default"]), "");
    })
    .unwrap();
}

#[test]
fn unit_and_dispatcher_of_routes_are_valid() {
    let bench = Bench::new();
    let folder = bench.folder.path();
    bench
        .pair
        .near
        .run(|| {
            let system = System::open(&Place::default()).unwrap();
            let plan = Plan { netns: None, ..bench.plan(&STEPS[8..]) };
            for form in [Form::Systemd, Form::Networkmanager] {
                export(&plan, &system, form, folder);
            }
        })
        .unwrap();
    let dispatcher = folder.join("etc/NetworkManager/dispatcher.d/90-wirepath-wp-near.sh");
    run("sh", &["-n", dispatcher.to_str().unwrap()]);
    // For another interface it does nothing; for its own it would run the installed script.
    run("sh", &[dispatcher.to_str().unwrap(), "eth77", "up"]);
    if testkit::is_installed("systemd-analyze") {
        let unit = folder.join("etc/systemd/system/wirepath-wp-near-routes.service");
        run("systemd-analyze", &["verify", "--man=no", unit.to_str().unwrap()]);
    }
}
