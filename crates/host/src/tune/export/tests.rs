use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use testkit::hostile;

use super::*;
use crate::text::chain;
use crate::tune::{PLAN_SCHEMA, Place, Step};

/// A folder that stands for `/`, with one interface.
fn root() -> (TempDir, System) {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
        ("sys/class/net/eth1/address", "02:00:00:00:00:01\n"),
        ("sys/class/net/eth1/device/driver/x", ""),
    ] {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let place = Place { netns: None, root: Some(folder.path().into()) };
    let system = System::open(&place).unwrap();
    (folder, system)
}

const STEPS: &[(&str, &str, &str)] = &[
    ("gro-flush-timeout", "interface eth1", "20000"),
    ("rps-cpus", "queue eth1 rx-0", "3"),
    ("tx-queue-len", "interface eth1", "777"),
    ("channels", "interface eth1", "rx=0 tx=0 combined=2"),
    ("rings", "interface eth1", "rx=512"),
    ("coalescing", "interface eth1", "adaptive-rx=off rx-usecs=3"),
    ("gro", "interface eth1", "off"),
    ("udp-gso", "interface eth1", "on"),
    ("qdisc", "interface eth1", "pfifo:100"),
    ("irq-affinity", "irq 24", "2"),
    (
        "ntuple-rules",
        "interface eth1",
        "7:udp4,dst-ip=10.1.0.0/16,queue=1 8:udp4,dst-port=53,queue=drop",
    ),
    ("route-initcwnd", "route default dev eth1", "20"),
    ("route-congestion-control", "route fd00::/8 dev eth1 table 100", "bbr"),
    ("rmem-max", "netns", "8388608"),
    ("ip-local-port-range", "netns", "1024\t65535"),
    ("tcp-congestion-control", "netns", "bbr"),
    ("tcp-rmem", "netns", "4096\t131072\t6291456"),
    ("sched-rt-runtime", "host", "-1"),
    ("governor", "cpu 1", "performance"),
    ("idle-states", "cpu 1", "state1=1 state2=1"),
    ("huge-pages", "host", "madvise"),
];

fn plan(system: &System, steps: &[(&str, &str, &str)]) -> Plan {
    let plan = Plan {
        schema: PLAN_SCHEMA,
        machine: machine_id(system),
        profile: "latency".into(),
        interface: Some("eth1".into()),
        driver: None,
        other_interfaces: Vec::new(),
        netns: None,
        steps: steps
            .iter()
            .map(|(knob, target, value)| Step {
                knob: (*knob).into(),
                target: target.parse().unwrap(),
                seen: Value::new("0").unwrap(),
                value: Value::new(*value).unwrap(),
                reason: "a test".into(),
            })
            .collect(),
        left_out: Vec::new(),
    };
    Plan::parse(&plan.to_text()).expect("a valid plan")
}

/// Text of a file without comments and empty lines, and the ids of the settings left out.
fn exported(form: Form, path: &str) -> (String, Vec<String>) {
    let (_folder, system) = root();
    let exported = export(&plan(&system, STEPS), &system, form).unwrap();
    let file = exported.files.iter().find(|file| file.path == Path::new(path));
    let names: Vec<_> = exported.files.iter().map(|file| &file.path).collect();
    let text = &file.unwrap_or_else(|| panic!("{path} in {names:?}")).text;
    let lines = text.as_str().lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let omitted = exported.omitted.iter().map(|omitted| omitted.knob.clone()).collect();
    (lines.map(|line| format!("{line}\n")).collect(), omitted)
}

#[test]
fn sysctls_are_lines_of_sysctl_d() {
    let (text, omitted) = exported(Form::Sysctl, "etc/sysctl.d/60-wirepath-eth1.conf");
    assert_eq!(
        text,
        "net.core.rmem_max = 8388608\n\
         net.ipv4.ip_local_port_range = 1024\t65535\n\
         net.ipv4.tcp_congestion_control = bbr\n\
         net.ipv4.tcp_rmem = 4096\t131072\t6291456\n\
         kernel.sched_rt_runtime_us = -1\n"
    );
    assert_eq!(omitted.len(), STEPS.len() - 5);
}

#[test]
fn systemd_has_a_link_file_and_leaves_the_rest_to_udev() {
    let (link, omitted) = exported(Form::Systemd, "etc/systemd/network/60-wirepath-eth1.link");
    assert_eq!(omitted, ["irq-affinity"]);
    assert_eq!(
        link,
        "[Match]\n\
         MACAddress=02:00:00:00:00:01\n\
         [Link]\n\
         NamePolicy=keep kernel database onboard slot path\n\
         AlternativeNamesPolicy=database onboard slot path\n\
         MACAddressPolicy=persistent\n\
         CombinedChannels=2\n\
         RxBufferSize=512\n\
         GenericReceiveOffload=no\n\
         TransmitQueueLength=777\n\
         UseAdaptiveRxCoalesce=no\n\
         RxCoalesceSec=3us\n"
    );
    let (rules, _) = exported(Form::Systemd, "etc/udev/rules.d/90-wirepath-eth1.rules");
    let of = "ACTION==\"add\", SUBSYSTEM==\"net\", ATTR{address}==\"02:00:00:00:00:01\", ";
    let cpu = "ACTION==\"add\", SUBSYSTEM==\"cpu\", KERNEL==\"cpu1\", ";
    assert_eq!(
        rules,
        [
            format!("{of}RUN+=\"/usr/sbin/ethtool -K $name tx-udp-segmentation on\"\n"),
            format!("{of}ATTR{{gro_flush_timeout}}=\"20000\"\n"),
            format!(
                "{of}RUN+=\"/bin/sh -c 'echo 3 >/sys/class/net/$name/queues/rx-0/rps_cpus'\"\n"
            ),
            format!("{of}RUN+=\"/usr/sbin/tc qdisc replace dev $name root pfifo limit 100\"\n"),
            format!(
                "{of}RUN+=\"/usr/sbin/ethtool -N $name flow-type udp4 dst-ip 10.1.0.0 m 0.0.255.255 \
                 action 1 loc 7\"\n"
            ),
            format!(
                "{of}RUN+=\"/usr/sbin/ethtool -N $name flow-type udp4 dst-port 53 action -1 loc 8\"\n"
            ),
            format!("{cpu}ATTR{{cpufreq/scaling_governor}}=\"performance\"\n"),
            format!("{cpu}ATTR{{cpuidle/state1/disable}}=\"1\"\n"),
            format!("{cpu}ATTR{{cpuidle/state2/disable}}=\"1\"\n"),
        ]
        .concat()
    );
    let (files, _) = exported(Form::Systemd, "etc/tmpfiles.d/wirepath-eth1.conf");
    assert_eq!(files, "w /sys/kernel/mm/transparent_hugepage/enabled - - - - madvise\n");
}

#[test]
fn tuned_collects_the_options_of_a_plugin_and_has_no_queueing_discipline() {
    let (text, omitted) = exported(Form::Tuned, "etc/tuned/wirepath-eth1/tuned.conf");
    assert_eq!(
        omitted,
        [
            "irq-affinity",
            "coalescing",
            "qdisc",
            "ntuple-rules",
            "route-initcwnd",
            "route-congestion-control"
        ]
    );
    assert_eq!(
        text,
        "[main]\n\
         summary=Plan of wirepath tune, profile latency\n\
         [net]\n\
         devices=eth1\n\
         channels=combined 2\n\
         features=gro off tx-udp-segmentation on\n\
         ring=rx 512\n\
         txqueuelen=777\n\
         [sysctl]\n\
         net.core.rmem_max=8388608\n\
         net.ipv4.ip_local_port_range=1024\t65535\n\
         net.ipv4.tcp_congestion_control=bbr\n\
         net.ipv4.tcp_rmem=4096\t131072\t6291456\n\
         kernel.sched_rt_runtime_us=-1\n\
         [sysfs]\n\
         /sys/class/net/eth1/gro_flush_timeout=20000\n\
         /sys/class/net/eth1/queues/rx-0/rps_cpus=3\n\
         /sys/devices/system/cpu/cpu1/cpufreq/scaling_governor=performance\n\
         /sys/devices/system/cpu/cpu1/cpuidle/state1/disable=1\n\
         /sys/devices/system/cpu/cpu1/cpuidle/state2/disable=1\n\
         /sys/kernel/mm/transparent_hugepage/enabled=madvise\n"
    );
}

#[test]
fn features_of_tuned_are_in_the_order_that_its_verification_expects() {
    let (_folder, system) = root();
    let of = "interface eth1";
    let steps = [("udp-gso", of, "on"), ("gro", of, "off"), ("tso", of, "off"), ("sg", of, "on")];
    let exported = export(&plan(&system, &steps), &system, Form::Tuned).unwrap();
    let expected = "features=sg on tso off gro off tx-udp-segmentation on\n";
    let text = exported.files[0].text.as_str();
    assert!(text.contains(expected), "{text}");
}

#[test]
fn network_manager_gets_properties_of_a_connection() {
    let (text, omitted) = exported(Form::Networkmanager, "wirepath-eth1.nmcli.sh");
    let properties: Vec<_> = text.lines().skip_while(|line| !line.starts_with("exec")).collect();
    assert_eq!(
        properties,
        [
            "exec nmcli \"$@\" \\",
            "    ethtool.ring-rx 512 \\",
            "    ethtool.feature-gro off \\",
            "    ethtool.feature-tx-udp-segmentation on \\",
            "    ethtool.coalesce-adaptive-rx 0 \\",
            "    ethtool.coalesce-rx-usecs 3",
        ]
    );
    for knob in ["channels", "qdisc", "rmem-max"] {
        assert!(omitted.contains(&knob.to_owned()), "{knob}: {omitted:?}");
    }
}

#[test]
fn routes_are_changed_by_a_script_that_systemd_or_network_manager_starts() {
    let script = "etc/wirepath/wirepath-eth1.routes.sh";
    for form in [Form::Systemd, Form::Networkmanager] {
        let (text, omitted) = exported(form, script);
        let calls = "change -4 254 default initcwnd 20\nchange -6 100 fd00::/8 congctl bbr\n";
        assert!(text.ends_with(calls) && text.contains("\ninterface=eth1\n"), "{text}");
        assert!(!omitted.iter().any(|knob| knob.starts_with("route-")), "{omitted:?}");
    }
    let (unit, _) = exported(Form::Systemd, "etc/systemd/system/wirepath-eth1-routes.service");
    assert!(unit.contains("\nExecStart=/bin/sh /etc/wirepath/wirepath-eth1.routes.sh\n"), "{unit}");
    let path = "etc/NetworkManager/dispatcher.d/90-wirepath-eth1.sh";
    let (dispatcher, _) = exported(Form::Networkmanager, path);
    assert!(dispatcher.starts_with("[ \"$1\" = eth1 ] || exit 0\n"), "{dispatcher}");
    let (playbook, _) = exported(Form::Ansible, "wirepath-eth1.yml");
    let handlers = playbook.matches("    - name: Start the unit of routes\n").count();
    assert_eq!(handlers, 1, "{playbook}");
}

#[test]
fn a_playbook_installs_what_the_other_files_hold() {
    let (text, omitted) = exported(Form::Ansible, "wirepath-eth1.yml");
    assert_eq!(omitted, ["irq-affinity"]);
    for part in [
        "        dest: /etc/sysctl.d/60-wirepath-eth1.conf\n",
        "          net.core.rmem_max = 8388608\n",
        "        dest: /etc/udev/rules.d/90-wirepath-eth1.rules\n",
        "      notify: Trigger udev\n",
        "    - name: Apply tmpfiles.d\n",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn the_unit_holds_the_whole_plan() {
    let (text, omitted) = exported(Form::Unit, "etc/wirepath/wirepath-eth1.toml");
    let (_folder, system) = root();
    assert_eq!(Plan::parse(&text).unwrap(), plan(&system, STEPS));
    assert!(omitted.is_empty());
    let (unit, _) = exported(Form::Unit, "etc/systemd/system/wirepath-eth1.service");
    assert!(
        unit.contains("ExecStart=/usr/bin/wirepath tune apply /etc/wirepath/wirepath-eth1.toml")
    );
    assert!(unit.contains("\nWantedBy=sys-subsystem-net-devices-eth1.device\n"), "{unit}");
}

#[test]
fn values_and_names_that_would_need_quoting_are_not_written() {
    let (_folder, system) = root();
    let mut quoted = plan(&system, &[("governor", "cpu 1", "\"evil")]);
    for form in [Form::Systemd, Form::Udev, Form::Tuned, Form::Ansible] {
        let exported = export(&quoted, &system, form).unwrap();
        assert!(exported.files.is_empty(), "{form}: {:?}", exported.files);
        assert!(exported.omitted[0].why.contains("quoting"), "{form}");
    }
    quoted.interface = Some("eth\"1".into());
    let error = export(&quoted, &system, Form::Udev).unwrap_err();
    assert!(matches!(error, ExportError::Name { .. }), "{error}");
}

const FORMS: [Form; 7] = [
    Form::Systemd,
    Form::Udev,
    Form::Sysctl,
    Form::Networkmanager,
    Form::Tuned,
    Form::Ansible,
    Form::Unit,
];

/// Checks a file by a reader of its own form.
fn assert_reads(file: &ExportedFile, plan: &Plan, about: &str) {
    let text = file.text.as_str();
    hostile::assert_shows(text, &[], about);
    hostile::assert_no_line(text, about);
    assert!(
        !text.lines().any(|line| line.starts_with('#') && line.ends_with('\\')),
        "{about}: a comment that goes on\n{text}"
    );
    let lines = || text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let name = file.path.to_str().unwrap();
    match file.path.extension().unwrap().to_str().unwrap() {
        "sh" => {
            let mut shell = Command::new("sh").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
            shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
            assert!(shell.wait().unwrap().success(), "{about}: {text}");
            if name.starts_with("etc/wirepath") {
                let changes = lines().skip_while(|line| *line != "}").skip(1);
                let is_change =
                    |line: &str| line.starts_with("change -4 ") || line.starts_with("change -6 ");
                assert!(changes.into_iter().all(is_change), "{about}: {text}");
                return;
            }
            if name.starts_with("etc/NetworkManager") {
                assert!(
                    lines().any(|line| line.starts_with("    exec sh /etc/wirepath/")),
                    "{text}"
                );
                return;
            }
            let properties = lines().skip_while(|line| !line.starts_with("exec nmcli")).skip(1);
            assert!(
                properties
                    .into_iter()
                    .all(|line| ["    ethtool.", "    tc."].iter().any(|p| line.starts_with(p))),
                "{about}: {text}"
            );
        }
        "toml" => assert_eq!(&Plan::parse(text).unwrap(), plan, "{about}"),
        "rules" => {
            for line in lines() {
                let is_rule = line.starts_with("ACTION==\"add\", SUBSYSTEM==\"");
                assert!(is_rule && line.matches('"').count() % 2 == 0, "{about}: {line}");
            }
        }
        "yml" => {
            let mut is_content = false;
            for line in lines() {
                is_content = is_content && line.len() - line.trim_start().len() >= 10
                    || line.ends_with("content: |");
                let is_key = line.trim_start_matches([' ', '-']).split_once(':').is_some();
                assert!(is_content || is_key, "{about}: {line}");
            }
        }
        _ if name.starts_with("etc/tmpfiles.d") => {
            assert!(lines().all(|line| line.starts_with("w /sys/")), "{about}: {text}");
        }
        // Sections and assignments.
        _ => {
            let is_assignment = |line: &str| {
                let key = line.split('=').next().unwrap_or_default().trim();
                line.contains('=')
                    && key.chars().all(|c| c.is_ascii_alphanumeric() || "._/-".contains(c))
            };
            let is_section = |line: &str| line.starts_with('[') && line.ends_with(']');
            let bad = lines().find(|line| !is_section(line) && !is_assignment(line));
            assert_eq!(bad, None, "{about}");
        }
    }
}

#[test]
fn no_text_of_a_plan_changes_the_structure_of_an_exported_file() {
    let (_folder, system) = root();
    let mut plan = plan(&system, STEPS);
    plan.driver = Some("veth".into());
    plan.left_out = vec![crate::tune::LeftOut { knob: "busy-poll".into(), why: "a reason".into() }];
    let document = serde_json::to_value(&plan).unwrap();
    let read = |field: &str, text: &str| {
        let document = hostile::replaced(&document, field, text);
        Plan::parse(&toml::to_string(&document).unwrap()).map_err(|error| chain(&error))
    };
    let files = |plan: &Plan, form| export(plan, &system, form).map(|exported| exported.files);
    let long = hostile::long();
    let mut texts = hostile::texts();
    texts.push(("long", long[..1 << 19].to_owned()));
    let fields = hostile::fields(&document);
    let (mut refused, mut accepted, mut written) = (0, 0, 0);
    for field in &fields {
        let harmless = read(field, hostile::HARMLESS);
        for (name, text) in &texts {
            let plan = match read(field, text) {
                Ok(plan) => plan,
                Err(error) => {
                    assert!(!error.is_empty());
                    refused += 1;
                    continue;
                }
            };
            accepted += 1;
            for form in FORMS {
                let about = format!("{name} in {field:?}, as {form}");
                let Ok(found) = files(&plan, form) else { continue };
                found.iter().for_each(|file| assert_reads(file, &plan, &about));
                written += found.len();
                let Ok(Ok(usual)) = harmless.as_ref().map(|plan| files(plan, form)) else {
                    continue;
                };
                for (found, usual) in found.iter().zip(&usual) {
                    let lines = |file: &ExportedFile| file.text.as_str().lines().count();
                    let is_same = found.path == usual.path && lines(found) == lines(usual);
                    assert!(is_same, "{about}: {}", found.text.as_str());
                }
            }
        }
    }
    testkit::note(&format!(
        "{} fields of a plan, {} texts, {} forms: {refused} plans refused, {accepted} exported, {written} files read",
        fields.len(),
        texts.len(),
        FORMS.len()
    ));
    // The texts without control characters reach the files.
    assert!(accepted > 2 * texts.len() && written > 100, "{accepted} plans, {written} files");
    for deep in
        ["[".repeat(1 << 20), format!("profile = {}", "[".repeat(1 << 19)), "a.".repeat(1 << 18)]
    {
        assert!(Plan::parse(&deep).is_err());
    }
}

#[test]
fn a_profile_made_in_memory_stays_in_the_comment_of_each_form() {
    let (_folder, system) = root();
    let mut plan = plan(&system, STEPS);
    for (name, text) in hostile::texts() {
        plan.profile = text;
        for form in FORMS {
            for file in export(&plan, &system, form).unwrap().files {
                let about = format!("{name} as {form}");
                let text = file.text.as_str();
                // A plan as TOML has the text in quotes, on one line or in three quotes.
                if file.path.extension().unwrap() != "toml" {
                    hostile::assert_no_line(text, &about);
                    hostile::assert_shows(text, &[], &about);
                }
            }
        }
    }
}

#[test]
fn plans_of_other_machines_and_of_namespaces_are_refused() {
    let (_folder, system) = root();
    let mut plan = plan(&system, STEPS);
    plan.netns = Some("blue".into());
    let error = export(&plan, &system, Form::Tuned).unwrap_err();
    assert!(matches!(error, ExportError::Namespace { .. }), "{error}");
    plan.machine = "ffffffffffff".into();
    let error = export(&plan, &system, Form::Unit).unwrap_err();
    assert!(matches!(error, ExportError::Plan(PlanError::OtherMachine { .. })), "{error}");
}
