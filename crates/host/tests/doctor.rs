//! Known faults are each found with their evidence, and a namespace without them is healthy.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lab::{End, Pair, PairSpec};
use sys::bpf::{PassProgram, XdpMode, hook_functions};
use sys::child::{Child, ChildError, ChildPlace};
use sys::socket;
use wirepath_host::causes::{DoctorReport, Evidence, Finding, Severity, examine};
use wirepath_host::net::ethtool::{self, Feature};
use wirepath_host::net::{self, Channels, VxlanSpec};
use wirepath_host::tune::{Place, Profile, System};

fn system(end: &End) -> System {
    let file = format!("/proc/{}/fd/{}", std::process::id(), end.netns.as_fd().as_raw_fd());
    System::open(&Place { netns: Some(file), root: None }).unwrap()
}

fn look(end: &End, profile: Option<Profile>) -> DoctorReport {
    examine(&Evidence::new(system(end), None, profile, None).unwrap())
}

fn vxlan(end: &End, name: &str, port: u16, bound_to: Option<u32>, queues: u32, mtu_bytes: u32) {
    let spec = VxlanSpec {
        name,
        mac: None,
        vni: 7,
        local: end.ip,
        remote: Ipv4Addr::new(10, 77, 0, 2),
        port,
        bound_to,
        tx_queues: queues,
        mtu_bytes,
    };
    end.run(|| net::create_vxlan(&spec)).unwrap().unwrap();
}

fn forward(end: &End) {
    let file = format!("/proc/sys/net/ipv4/conf/{}/forwarding", end.ifname);
    end.run(|| fs::write(file, "1")).unwrap().unwrap();
}

/// Receives all packets on all interfaces, like a forgotten capture.
fn tap(end: &End) -> OwnedFd {
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    end.run(|| socket::open(libc::AF_PACKET, libc::SOCK_RAW, i32::from(protocol))).unwrap().unwrap()
}

/// A socket that has room for a datagram or two and got more.
fn overwhelmed(end: &End) -> UdpSocket {
    end.run(|| {
        let receiver = UdpSocket::bind((end.ip, 9000)).unwrap();
        socket::set_int(receiver.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 2048).unwrap();
        let sender = UdpSocket::bind((end.ip, 0)).unwrap();
        for _ in 0..100 {
            sender.send_to(&[0; 512], (end.ip, 9000)).unwrap();
        }
        receiver
    })
    .unwrap()
}

/// Forty rules and one that needs connections; whether nft is there to make them.
fn firewall(end: &End) -> bool {
    let rules: String = (0..40).map(|port| format!("udp dport {} drop\n", 40_000 + port)).collect();
    let text = format!(
        "table ip seeded {{\nchain in {{\ntype filter hook input priority 0; policy accept;\n\
         ct state invalid drop\n{rules}}}\n}}\n"
    );
    let mut command = Command::new("nft");
    command.arg(text);
    match Child::spawn(command, &ChildPlace { netns: Some(&end.netns), cpus: &[] }) {
        Err(error @ ChildError::NotFound { .. }) => {
            testkit::skip("nft", format!("{error}; package nftables"));
            false
        }
        child => {
            let finished = child.unwrap().wait(Duration::from_secs(20)).unwrap().unwrap();
            assert!(finished.status.success(), "{finished:?}");
            true
        }
    }
}

/// Asserts that one finding of that check says all these words, in its line or its evidence.
fn expect(report: &DoctorReport, check: &str, words: &[&str]) {
    let own = report.findings.iter().filter(|found| found.cause == check);
    let said: Vec<String> = own
        .clone()
        .map(|found| {
            let evidence = found.evidence.iter().map(|e| format!("{} {}", e.source, e.value));
            format!("{} {}", found.what, evidence.collect::<Vec<_>>().join(" "))
        })
        .collect();
    let found = said.iter().any(|said| words.iter().all(|word| said.contains(word)));
    assert!(found, "{check} {words:?} is not in {said:#?}");
    for found in own {
        let parts = [found.why, found.effect, found.risk, &found.change, &found.undo];
        assert!(parts.iter().all(|part| !part.is_empty()), "{found:?}");
        assert!(!found.evidence.is_empty(), "{found:?}");
    }
}

#[test]
fn each_known_fault_is_named_with_its_evidence() {
    let pair = Pair::new(&PairSpec { queues: 2, tso: false, ..PairSpec::default() }).unwrap();
    let near = &pair.near;
    let sysfs = near.sysfs().unwrap();
    let write =
        |path: &str, text: &str| sysfs.write(format!("class/net/wp-near/{path}"), text).unwrap();
    write("queues/rx-0/rps_cpus", "1");
    write("queues/tx-0/xps_cpus", "1");
    write("queues/tx-1/xps_cpus", "1");
    write("gro_flush_timeout", "20000");
    write("napi_defer_hard_irqs", "2");
    vxlan(near, "wp-loose", 4789, None, 1, 1400);
    vxlan(near, "wp-big", 4790, Some(near.ifindex), 2, 1450);
    // The kernel makes no tunnel too large for what is below; that has to shrink afterwards.
    near.run(|| net::set_mtu(near.ifindex, 1400)).unwrap().unwrap();
    forward(near);
    let _tap = tap(near);
    let _socket = overwhelmed(near);
    let mut program = PassProgram::load(false).unwrap();
    near.run(|| program.attach(near.ifindex, XdpMode::Skb)).unwrap().unwrap();
    near.run(|| net::set_root_fifo(near.ifindex, 10, false)).unwrap().unwrap();
    near.set_feature(Feature::GSO, false).unwrap();
    let has_firewall = firewall(near);
    let now = near.run(|| ethtool::channels(near.ifindex)).unwrap().unwrap();
    near.run(|| ethtool::set_channels(near.ifindex, &Channels { rx: 1, ..now })).unwrap().unwrap();

    let report = look(near, None);
    let many_cpus = system(near).online_cpus().len() > 1;
    if many_cpus {
        expect(&report, "receive-steering", &["CPU 0", "rps_cpus 1"]);
        expect(&report, "transmit-steering", &["CPU 1", "xps_cpus"]);
    }
    expect(&report, "tunnel-mtu", &["wp-big", "1450", "1400"]);
    expect(
        &report,
        "taps",
        &["receives all packets", "all interfaces", &format!("process {}", std::process::id())],
    );
    expect(&report, "udp-rcvbuf", &["UDP port 9000", "dropped", "RCVBUF"]);
    expect(&report, "forwarding", &["GRO is off on wp-near", "forwarding"]);
    expect(&report, "xdp", &["generic mode on wp-near"]);
    expect(&report, "qdisc", &["queue of only 10 packets", "pfifo limit 10"]);
    if has_firewall {
        expect(&report, "rule-count", &["41 firewall rules", "seeded in (input)"]);
        expect(&report, "conntrack", &["tracked", "seeded in"]);
        expect(&report, "conntrack", &["conntrack_in"]);
    }
    // Nothing is being lost: what was lost before the examination is low.
    assert_eq!(report.worst(), Some(Severity::Medium));

    let latency = look(near, Some(Profile::Latency));
    expect(&latency, "receive-steering", &["RPS on queue wp-near rx-0"]);
    expect(&latency, "napi", &["timer", "gro_flush_timeout 20000"]);
    expect(&latency, "napi", &["interrupts off", "napi_defer_hard_irqs 2"]);
    let throughput = look(near, Some(Profile::Throughput));
    expect(&throughput, "offloads", &["gso is off on wp-near"]);
    expect(&throughput, "offloads", &["tso is off on wp-near"]);
    let forwarding = look(near, Some(Profile::Forwarding));
    expect(&forwarding, "forwarding", &["before the route", "ip_early_demux 1"]);
    if many_cpus {
        expect(&forwarding, "channels", &["1 of 2 rx", "rx 1"]);
    }
}

#[test]
fn a_namespace_without_faults_raises_no_alarm() {
    let pair = Pair::new(&PairSpec { queues: 2, gro: true, ..PairSpec::default() }).unwrap();
    let near = &pair.near;
    vxlan(near, "wp-good", 4789, Some(near.ifindex), 2, 1450);
    forward(near);
    near.run(|| fs::write("/proc/sys/net/ipv4/ip_early_demux", "0")).unwrap().unwrap();
    let _socket = near.run(|| UdpSocket::bind((near.ip, 9000))).unwrap().unwrap();
    for profile in
        [None, Some(Profile::Latency), Some(Profile::Throughput), Some(Profile::Forwarding)]
    {
        let report = look(near, profile);
        // Softirqs are the machine's, and may have too much to do.
        let own: Vec<_> = report.findings.iter().filter(|found| found.cause != "softnet").collect();
        assert!(own.is_empty(), "{profile:?}: {own:#?}");
        assert!(report.unseen.is_empty(), "{profile:?}: {:?}", report.unseen);
        assert!(report.facts.iter().any(|fact| fact.cause == "memory"));
        let host_only = report.facts.iter().find(|fact| fact.cause == "host-settings").unwrap();
        assert!(host_only.text.contains("busy-poll"), "{host_only:?}");
    }
}

/// Calls `act` again and again on a thread of its own while a namespace is examined.
fn look_during(end: &End, act: impl Fn() + Send + Sync) -> DoctorReport {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                act();
            }
        });
        let report = look(end, None);
        stop.store(true, Ordering::Relaxed);
        report
    })
}

fn of_check<'a>(report: &'a DoctorReport, check: &str) -> &'a Finding {
    let mut own = report.findings.iter().filter(|found| found.cause == check);
    let found = own.next().unwrap_or_else(|| panic!("no {check} in {:#?}", report.findings));
    assert!(own.next().is_none(), "{:#?}", report.findings);
    found
}

/// Runs a command of a finding. Returns its output.
fn obey(end: &End, command: &str) -> String {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]);
    let place = ChildPlace { netns: Some(&end.netns), cpus: &[] };
    let mut child = Child::spawn(shell, &place).unwrap();
    let finished = child.wait(Duration::from_secs(20)).unwrap().unwrap();
    assert!(finished.status.success(), "{command}: {finished:?}");
    String::from_utf8_lossy(&finished.stdout).into_owned()
}

#[test]
fn a_full_accept_queue_is_named_with_its_socket_and_the_limit_that_binds() {
    let pair = Pair::new(&PairSpec::default()).unwrap();
    let near = &pair.near;
    near.run(|| fs::write("/proc/sys/net/core/somaxconn", "1")).unwrap().unwrap();
    let listener = near.run(|| TcpListener::bind((near.ip, 8080))).unwrap().unwrap();
    assert!(!has(&look(near, None), "listen-queue"), "nothing was refused yet");
    let to = SocketAddr::from((near.ip, 8080));
    let connect =
        || near.run(|| TcpStream::connect_timeout(&to, Duration::from_millis(20))).unwrap();
    let open: Vec<_> = (0..4).map(|_| connect()).collect();
    let report = look_during(near, || drop(connect()));
    let own = format!("process {}", std::process::id());
    expect(&report, "listen-queue", &["TCP port 8080 of", &own, "is full", "ListenOverflows"]);
    expect(&report, "listen-queue", &["somaxconn 1", "2 connections wait, and 1 may"]);
    let found = of_check(&report, "listen-queue");
    assert_eq!(found.severity, Severity::High, "{found:?}");
    assert!(found.change.contains("sysctl -w net.core.somaxconn=4096"), "{found:?}");
    assert!(found.undo.contains("sysctl -w net.core.somaxconn=1"), "{found:?}");

    // Of the past, it is worth a line.
    drop((listener, open));
    let found = of_check(&look(near, None), "listen-queue").clone();
    assert_eq!(found.severity, Severity::Low, "{found:?}");
    assert!(found.what.contains("in all"), "{found:?}");
}

#[test]
fn packets_that_rp_filter_drops_are_found_and_its_setting_is_named() {
    let pair = Pair::new(&PairSpec::default()).unwrap();
    let (near, far) = (&pair.near, &pair.far);
    // Both know each other's addresses before the filter is on.
    let greet = far.run(|| UdpSocket::bind((far.ip, 0))).unwrap().unwrap();
    greet.send_to(&[0], (near.ip, 9000)).unwrap();
    near.run(|| {
        // A route back through another interface.
        let other = net::create_bridge("wp-other").unwrap();
        net::set_up(other, true).unwrap();
        net::add_address(other, Ipv4Addr::new(192, 168, 91, 2), 24).unwrap();
        fs::write("/proc/sys/net/ipv4/conf/wp-near/rp_filter", "1").unwrap();
    })
    .unwrap();
    let sender = far
        .run(|| {
            let source = Ipv4Addr::new(192, 168, 91, 1);
            net::add_address(far.ifindex, source, 32).unwrap();
            UdpSocket::bind((source, 0)).unwrap()
        })
        .unwrap();
    assert!(!has(&look(near, None), "reverse-path"), "nothing was dropped yet");
    let report = look_during(near, || {
        sender.send_to(&[0; 64], (near.ip, 9000)).unwrap();
        thread::sleep(Duration::from_millis(5));
    });
    expect(&report, "reverse-path", &["dropped by rp_filter", "conf/wp-near/rp_filter 1"]);
    let found = of_check(&report, "reverse-path");
    assert_eq!(found.severity, Severity::High, "{found:?}");
    assert!(found.change.contains("net.ipv4.conf.wp-near.rp_filter=2"), "{found:?}");
    assert!(found.undo.contains("net.ipv4.conf.wp-near.rp_filter=1"), "{found:?}");
    let past = look(near, None);
    assert_eq!(of_check(&past, "reverse-path").severity, Severity::Low);
}

#[test]
fn a_shaper_left_behind_is_named_with_its_rate_and_removed_by_the_command() {
    let pair = Pair::new(&PairSpec::default()).unwrap();
    let near = &pair.near;
    let shapers = [
        ("root tbf rate 1mbit burst 1600 limit 3000", "1 Mbit/s", "tbf"),
        ("root handle 1: htb default 10", "5 Mbit/s", "htb"),
    ];
    for (words, rate, kind) in shapers {
        let class = match kind {
            "htb" => " && tc class add dev wp-near parent 1: classid 1:10 htb rate 5mbit",
            _ => "",
        };
        obey(near, &format!("tc qdisc add dev wp-near {words}{class}"));
        let report = look(near, None);
        expect(&report, "shaper", &["wp-near sends at most", rate, kind]);
        let found = of_check(&report, "shaper").clone();
        assert_eq!(found.severity, Severity::Medium, "{found:?}");
        // The prefix enters the namespace, in which this runs already.
        let plain = |command: &str| command[command.find("tc qdisc").unwrap()..].to_owned();
        let before = obey(near, "tc qdisc show dev wp-near");
        obey(near, &plain(&found.change));
        assert!(!has(&look(near, None), "shaper"));
        if kind == "tbf" {
            obey(near, &plain(&found.undo));
            let again = obey(near, "tc qdisc show dev wp-near");
            let queue_discipline = |text: &str| text.split_once("root").unwrap().1.to_owned();
            assert_eq!(queue_discipline(&again), queue_discipline(&before), "undone as it was");
            obey(near, &plain(&found.change));
        }
    }
    // A rate that leaves the link its speed is not one.
    obey(near, "tc qdisc add dev wp-near root tbf rate 9gbit burst 64kb limit 1mb");
    assert!(!has(&look(near, None), "shaper"));
}

#[test]
fn datagrams_lost_by_sockets_that_are_gone_and_by_filters_are_told_apart() {
    let pair = Pair::new(&PairSpec::default()).unwrap();
    let (near, far) = (&pair.near, &pair.far);
    drop(overwhelmed(near));
    let report = look(near, None);
    expect(&report, "udp-rcvbuf", &["sockets that are closed now", "RcvbufErrors"]);
    assert_eq!(of_check(&report, "udp-rcvbuf").severity, Severity::Low);
    assert!(!has(&report, "socket-filter"), "{:#?}", report.findings);

    let socket = far.run(|| UdpSocket::bind((far.ip, 9000))).unwrap().unwrap();
    socket::attach_drop_all(socket.as_fd()).unwrap();
    let sender = far.run(|| UdpSocket::bind((far.ip, 0))).unwrap().unwrap();
    let report = look_during(far, || {
        sender.send_to(&[0], (far.ip, 9000)).unwrap();
        thread::sleep(Duration::from_millis(5));
    });
    expect(&report, "socket-filter", &["refused by the filter of UDP port 9000", "InErrors"]);
    assert_eq!(of_check(&report, "socket-filter").severity, Severity::High);
    assert!(!has(&report, "udp-rcvbuf"), "its buffer is not the cause: {:#?}", report.findings);
}

#[test]
fn one_interface_brings_along_what_its_packets_cross() {
    let pair = Pair::new(&PairSpec { queues: 2, gro: true, ..PairSpec::default() }).unwrap();
    let near = &pair.near;
    vxlan(near, "wp-big", 4790, Some(near.ifindex), 1, 1450);
    near.run(|| net::set_mtu(near.ifindex, 1400)).unwrap().unwrap();
    let other = near.run(|| net::create_bridge("wp-other")).unwrap().unwrap();
    let report = examine(&Evidence::new(system(near), Some("wp-near"), None, None).unwrap());
    expect(&report, "tunnel-mtu", &["wp-big"]);
    let alone = examine(&Evidence::new(system(near), Some("wp-other"), None, None).unwrap());
    assert!(!alone.findings.iter().any(|found| found.cause.starts_with("tunnel")), "{alone:?}");
    assert_ne!(other, 0);
    let absent = Evidence::new(system(near), Some("eth77"), None, None).unwrap_err();
    assert!(absent.to_string().contains("eth77"), "{absent}");
}

#[test]
fn interrupts_and_coalescing_are_judged_by_what_a_machine_shows() {
    let pair = Pair::new(&PairSpec::default()).unwrap();
    let near = &pair.near;
    let root = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("proc/interrupts", "  CPU0 CPU1\n 24:  5000  4000  PCI-MSI 0-edge  eth0\n 25: 900 0 x\n"),
        ("proc/irq/24/smp_affinity", "3\n"),
        ("proc/77/comm", "irqbalance\n"),
        ("sys/class/net/wp-near/device/numa_node", "1\n"),
        ("sys/devices/system/node/node1/cpulist", "1\n"),
        ("proc/irq/25/smp_affinity", "1\n"),
        ("sys/devices/system/cpu/online", "0-1\n"),
        ("sys/class/net/wp-near/device/msi_irqs/24", "msix\n"),
        ("sys/class/net/wp-near/device/msi_irqs/25", "msix\n"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "0\n"),
    ] {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let place = Place { netns: None, root: Some(root.path().into()) };
    let examined = |profile, app_cpu| {
        let system = System::from_netns(near.netns.try_clone().unwrap(), place.clone()).unwrap();
        examine(&Evidence::new(system, Some("wp-near"), profile, app_cpu).unwrap())
    };
    let report = examined(Some(Profile::Latency), Some(0));
    expect(&report, "interrupts", &["24", "moves between 2 CPUs", "5000 4000", "smp_affinity 3"]);
    expect(&report, "interrupts", &["25", "application's CPU 0", "irqbalance runs (process 77)"]);
    expect(&report, "locality", &["CPU 0 is far", "numa_node 1"]);
    expect(&report, "cpu", &["CPU 0 changes its frequency", "powersave"]);
    expect(&report, "cpu", &["CPU 0 may enter deep idle states", "state1=0"]);
    expect(&report, "cpu", &["huge pages", "always"]);
    let none = examined(None, None);
    assert!(!none.findings.iter().any(|found| found.cause == "cpu"), "{:#?}", none.findings);
    expect(&none, "interrupts", &["CPU 0 gets all interrupts"]);
}

/// Examines a machine with these files for an application on CPU 1.
fn on_machine(files: &[(&str, &str)]) -> DoctorReport {
    let pair = Pair::new(&PairSpec::default()).unwrap();
    let root = tempfile::tempdir().unwrap();
    let usual = [("sys/devices/system/cpu/online", "0-3\n"), ("proc/1/comm", "init\n")];
    for (path, text) in usual.iter().chain(files) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let place = Place { netns: None, root: Some(root.path().into()) };
    let system = System::from_netns(pair.near.netns.try_clone().unwrap(), place).unwrap();
    examine(&Evidence::new(system, Some("wp-near"), Some(Profile::Latency), Some(1)).unwrap())
}

fn has(report: &DoctorReport, check: &str) -> bool {
    report.findings.iter().any(|found| found.cause == check)
}

#[test]
fn other_work_on_the_application_s_cpu_is_named_one_step_at_a_time() {
    const CMDLINE: &str = "proc/cmdline";
    const ISOLATED: &str = "sys/devices/system/cpu/isolated";
    const NO_TICK: &str = "sys/devices/system/cpu/nohz_full";
    let none =
        on_machine(&[(CMDLINE, "quiet\n"), (ISOLATED, "\n"), ("proc/9/comm", "irqbalance\n")]);
    expect(&none, "isolation", &["CPU 1 is not isolated"]);
    expect(&none, "isolation", &["irqbalance may move", "process 9"]);
    let other = on_machine(&[(CMDLINE, "isolcpus=2-3\n"), (ISOLATED, "2-3\n")]);
    expect(&other, "isolation", &["CPUs 2,3 are isolated", "CPU 1 is not"]);
    let ticking =
        on_machine(&[(CMDLINE, "isolcpus=1\n"), (ISOLATED, "1\n"), (NO_TICK, " (null)\n")]);
    expect(&ticking, "isolation", &["timer tick", "CPU 1"]);
    let free = on_machine(&[
        (CMDLINE, "isolcpus=1 nohz_full=1\n"),
        (ISOLATED, "1\n"),
        (NO_TICK, "1\n"),
        ("proc/9/comm", "irqbalance\n"),
    ]);
    assert!(!has(&free, "isolation"), "{:#?}", free.findings);
}

#[test]
fn slow_clock_source_is_named_and_a_quick_one_is_not() {
    const NOW: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    const OFFERED: &str = "sys/devices/system/clocksource/clocksource0/available_clocksource";
    let slow = on_machine(&[(NOW, "acpi_pm\n"), (OFFERED, "tsc acpi_pm \n")]);
    expect(&slow, "clocks", &["read from acpi_pm", "tsc acpi_pm"]);
    assert!(!has(&on_machine(&[(NOW, "tsc\n"), (OFFERED, "tsc acpi_pm \n")]), "clocks"));
    assert!(!has(&on_machine(&[]), "clocks"));
}

#[test]
fn functions_that_the_firewall_calls_have_names() {
    let pair = Pair::new(&PairSpec::default()).unwrap();
    let near = &pair.near;
    assert_eq!(nft_functions(near), 0);
    near.run(|| net::create_empty_hooks("wp", &[net::Hook::Output, net::Hook::PostRouting], 3))
        .unwrap()
        .unwrap();
    assert_eq!(nft_functions(near), 6);
    let report = look(near, None);
    expect(&report, "hooks", &["without a rule", "ip output nft_do_chain"]);
    near.run(|| net::delete_table("wp")).unwrap().unwrap();
    assert_eq!(nft_functions(near), 0);
}

fn nft_functions(end: &End) -> usize {
    let hooks = hook_functions(&end.netns).unwrap();
    hooks.iter().filter(|hook| hook.function.starts_with("nft_do_chain")).count()
}
