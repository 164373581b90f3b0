//! Attaching, its errors with their remedies, and detaching.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::{env, io};

use wirepath_sys::bpf::{
    BpfError, DropCounter, DropSpec, FaultFilter, FaultSpec, PassProgram, ProbeFilterSpec,
    SocketFilter, XdpMode,
};

use crate::lab::{Pair, can_run, ip};

const SPEC: ProbeFilterSpec = ProbeFilterSpec {
    addresses: &[IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2))],
    udp_port: 7000,
    arp_icmp: true,
    vlan_tag: None,
    frags: false,
    queues: 1,
};

/// Output of `ip` for the interface; contains `prog/xdp` while a program is attached.
fn details(name: &str) -> String {
    let out = Command::new("ip").args(["-d", "link", "show", name]).output().expect("ip runs");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn every_program_attaches_in_both_modes_and_goes_with_drop() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let index = pair.far_index;
    pair.far.run(move || {
        for mode in [XdpMode::Skb, XdpMode::Native] {
            for frags in [false, true] {
                let mut filter =
                    SocketFilter::for_probe(&ProbeFilterSpec { frags, ..SPEC }).expect("load");
                filter.attach(index, mode).expect("attach");
                assert!(details("far").contains("prog/xdp"), "{}", details("far"));
                assert_eq!(details("far").contains("xdpgeneric"), mode == XdpMode::Skb);
                filter.detach();
                assert!(!details("far").contains("prog/xdp"), "{}", details("far"));
                filter.attach(index, mode).expect("attach again");
                drop(filter);
                assert!(!details("far").contains("prog/xdp"), "{}", details("far"));

                let mut pass = PassProgram::load(frags).expect("load");
                pass.attach(index, mode).expect("attach");
                pass.detach();

                let mut drops =
                    DropCounter::load(&DropSpec { frags, ..DropSpec::default() }).expect("load");
                drops.attach(index, mode).expect("attach");
            }
        }
    });
}

#[test]
fn a_second_program_is_refused_with_the_id_of_the_first() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let index = pair.far_index;
    pair.far.run(move || {
        let mut first = SocketFilter::for_probe(&SPEC).expect("load");
        first.attach(index, XdpMode::Native).expect("attach");
        let refused = first.attach(index, XdpMode::Native).expect_err("it has one already");
        assert!(matches!(refused, BpfError::InUse { .. }), "{refused}");

        let mut second = SocketFilter::for_probe(&SPEC).expect("load");
        // The same mode answers EBUSY, the other one EEXIST.
        for mode in [XdpMode::Native, XdpMode::Skb] {
            let refused = second.attach(index, mode).expect_err("occupied");
            let BpfError::AlreadyAttached { program: Some(program), .. } = &refused else {
                panic!("{refused:?}");
            };
            let id = program.id;
            assert!(details("far").contains(&format!("id {id} ")), "{}", details("far"));
            let message = refused.to_string();
            let owner = format!("(process {})", std::process::id());
            for part in ["`probe` (id ", "in its map `sockets`", "held by ", &owner] {
                assert!(message.contains(part), "{message}");
            }
            assert!(message.contains("ip link set dev far xdp off"), "{message}");
        }
        drop(first);
        second.attach(index, XdpMode::Native).expect("free again");
    });
}

#[test]
fn a_jumbo_mtu_needs_the_fragments_program_or_skb_mode() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    pair.near.run(|| ip("link set near mtu 9000"));
    let index = pair.far_index;
    pair.far.run(move || {
        ip("link set far mtu 9000");
        let mut plain = SocketFilter::for_probe(&SPEC).expect("load");
        let refused = plain.attach(index, XdpMode::Native).expect_err("too big");
        assert!(matches!(refused, BpfError::MtuTooBig { .. }), "{refused:?}");
        let message = refused.to_string();
        for part in ["far (index", "MTU 9000", "fragments", "SKB mode", "mtu 1500"] {
            assert!(message.contains(part), "{message}");
        }
        plain.attach(index, XdpMode::Skb).expect("SKB mode takes any MTU");
        drop(plain);
        let mut frags =
            SocketFilter::for_probe(&ProbeFilterSpec { frags: true, ..SPEC }).expect("load");
        frags.attach(index, XdpMode::Native).expect("fragments take any MTU");
    });
}

#[test]
fn fewer_receive_queues_than_the_peer_sends_on_is_named() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    pair.near.run(|| ip("link add name a numtxqueues 4 type veth peer name b numrxqueues 1"));
    pair.near.run(|| {
        let index = crate::lab::index_of("b");
        let mut filter = SocketFilter::for_probe(&SPEC).expect("load");
        let refused = filter.attach(index, XdpMode::Native).expect_err("too few");
        assert!(matches!(refused, BpfError::TooFewQueues { .. }), "{refused:?}");
        assert!(refused.to_string().contains("ethtool -L b rx"), "{refused}");
    });
}

#[test]
fn an_interface_that_is_not_there_is_named_by_index() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    pair.far.run(|| {
        let mut filter = SocketFilter::for_probe(&SPEC).expect("load");
        for index in [4_000, u32::MAX] {
            let refused = filter.attach(index, XdpMode::Skb).expect_err("nothing there");
            assert!(matches!(refused, BpfError::NoInterface { .. }), "{refused:?}");
            assert!(refused.to_string().contains(&index.to_string()), "{refused}");
        }
    });
}

#[test]
fn a_program_on_a_deleted_interface_can_still_be_dropped() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let index = pair.far_index;
    pair.far.run(move || {
        let mut filter = SocketFilter::for_probe(&SPEC).expect("load");
        filter.attach(index, XdpMode::Native).expect("attach");
        ip("link del far");
        filter.detach();
        filter.counts().expect("counts outlive the interface");
    });
}

const IFINDEX: &str = "WIREPATH_TEST_IFINDEX";

/// Interface that the parent names.
fn index() -> u32 {
    env::var(IFINDEX).expect("set by the parent").parse().expect("an index")
}

/// Starts one of the roles below in this thread's namespace.
fn child(role: &str, index: u32) -> std::process::Child {
    testkit::role(role)
        .env(IFINDEX, index.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts")
}

#[test]
#[ignore = "role of a child process"]
fn child_that_attaches_and_waits() {
    let mut filter = SocketFilter::for_probe(&SPEC).expect("load");
    filter.attach(index(), XdpMode::Native).expect("attach");
    io::stdout().write_all(b"\nattached\n").expect("told");
    let _ = io::stdin().read(&mut [0]);
}

#[test]
fn kill_minus_nine_takes_the_program_off() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let index = pair.far_index;
    pair.far.run(move || {
        let mut child = child("attach::child_that_attaches_and_waits", index);
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let told = lines.any(|line| line.is_ok_and(|line| line == "attached"));
        assert!(told, "the child did not attach");
        assert!(details("far").contains("prog/xdp"), "{}", details("far"));
        // SIGKILL.
        child.kill().expect("killed");
        child.wait().expect("gone");
        assert!(!details("far").contains("prog/xdp"), "{}", details("far"));
    });
}

/// Programs on the tcx ingress of an interface.
fn tcx_programs(ifindex: u32) -> u32 {
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: `options` lives through the call, says its own size and has no arrays to fill.
    let answer = unsafe {
        libbpf_sys::bpf_prog_query_opts(
            ifindex as i32,
            libbpf_sys::BPF_TCX_INGRESS,
            &raw mut options,
        )
    };
    assert_eq!(answer, 0);
    // SAFETY: both members of the union are the same number.
    unsafe { options.__bindgen_anon_1.count }
}

#[test]
#[ignore = "role of a child process"]
fn child_that_injects_faults_and_waits() {
    let mut filter = FaultFilter::load(&FaultSpec::default()).expect("load");
    filter.attach(index(), index()).expect("attach");
    io::stdout().write_all(b"\nattached\n").expect("told");
    let _ = io::stdin().read(&mut [0]);
}

#[test]
fn kill_minus_nine_takes_the_fault_filter_off() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let index = pair.far_index;
    pair.far.run(move || {
        let mut child = child("attach::child_that_injects_faults_and_waits", index);
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let told = lines.any(|line| line.is_ok_and(|line| line == "attached"));
        assert!(told, "the child did not attach");
        assert_eq!(tcx_programs(index), 1);
        child.kill().expect("killed");
        child.wait().expect("gone");
        assert_eq!(tcx_programs(index), 0);
    });
}

#[test]
#[ignore = "role of a child process"]
fn child_without_capabilities() {
    // SAFETY: no pointers; it gives up root, and with it every capability.
    let answer = unsafe { libc::setresuid(65_534, 65_534, 65_534) };
    assert_eq!(answer, 0);
    let refused = SocketFilter::for_probe(&SPEC).expect_err("no capability");
    assert!(matches!(refused, BpfError::Permission { .. }), "{refused:?}");
    let message = refused.to_string();
    for part in ["CAP_BPF and CAP_NET_ADMIN", "sudo setcap cap_bpf,cap_net_admin"] {
        assert!(message.contains(part), "{message}");
    }
    io::stdout().write_all(b"\nrefused\n").expect("told");
}

#[test]
fn missing_capabilities_are_named_with_the_command() {
    let out = testkit::role("attach::child_without_capabilities").output().expect("ran");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && text.contains("\nrefused\n"), "{text}");
}
