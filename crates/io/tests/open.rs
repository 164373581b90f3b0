//! Opening engines: every error names its subject and the remedy.

use std::net::UdpSocket;
use std::time::Duration;

use lab::{Pair, PairSpec};
use testkit::alone;
use testkit::engines::{
    FAR_PORT, NEAR_PORT, local, native, open, open_far, packet, pair, refused, remote, skb,
    towards, udp, udp_counters,
};
use wirepath_io::{Copying, EngineSpec, Local, Role, Template, XdpMode};

#[test]
fn required_zero_copy_that_is_refused_is_an_error_with_the_remedy() {
    let _alone = alone();
    let pair = pair();
    let spec = EngineSpec { copying: Copying::RequireZeroCopy, ..native() };
    refused(
        open_far(&pair, &spec),
        &["zero-copy is not offered", "wp-far queue 0", "drop --require-zero-copy"],
    );
    // Nothing stays behind: the same queue opens in copy mode.
    open_far(&pair, &native()).expect("free");
}

#[test]
fn missing_queue_is_an_error_with_the_number_of_queues() {
    let _alone = alone();
    let pair = pair();
    let at = Local { queue: 7, ..local(&pair.far, FAR_PORT) };
    for role in [Role::Send, Role::Receive] {
        let to = remote(&pair.near, NEAR_PORT);
        let opened = open(&pair.far, &towards(&skb(), role, &at, &to, 64));
        refused(opened, &["wp-far has no queue 7", "it has 1", "-q", "ethtool -L"]);
    }
}

#[test]
fn busy_queue_is_an_error_after_a_short_wait() {
    let _alone = alone();
    let pair = pair();
    let to = remote(&pair.near, NEAR_PORT);
    let send =
        |port| open(&pair.far, &towards(&skb(), Role::Send, &local(&pair.far, port), &to, 64));
    let _first = send(9010).expect("free");
    refused(send(9011), &["queue 0 of wp-far stayed busy", "1500 ms", "another queue", "-q QUEUE"]);
}

#[test]
fn queue_opens_again_right_after_it_was_closed() {
    let _alone = alone();
    let pair = pair();
    for spec in [skb(), native()] {
        for n in 0..20 {
            open_far(&pair, &spec).unwrap_or_else(|why| panic!("time {n}: {why}"));
        }
    }
}

#[test]
fn deleted_interface_is_an_error_with_its_name() {
    let _alone = alone();
    let pair = pair();
    let at = local(&pair.far, FAR_PORT);
    pair.near.delete_link().expect("deleted");
    let to = remote(&pair.near, NEAR_PORT);
    for role in [Role::Send, Role::Receive] {
        refused(
            open(&pair.far, &towards(&skb(), role, &at, &to, 64)),
            &["interface wp-far no longer exists"],
        );
    }
}

#[test]
fn mtu_too_big_for_native_mode_is_an_error_with_the_remedies() {
    let _alone = alone();
    let pair = Pair::new(&PairSpec { mtu_bytes: 9000, ..PairSpec::default() }).expect("a lab");
    refused(
        open_far(&pair, &native()),
        &["wp-far", "MTU", "native XDP", "mtu 1500", "fragments", "SKB mode"],
    );
    open_far(&pair, &EngineSpec { multi_buffer: true, ..native() }).expect("with fragments");
    open_far(&pair, &skb()).expect("in SKB mode");
}

#[test]
fn other_xdp_program_is_an_error_with_the_remedy() {
    let _alone = alone();
    let pair = pair();
    let first = pair.far.run(|| {
        let mut pass = sys::bpf::PassProgram::load(false).expect("load");
        pass.attach(pair.far.ifindex, XdpMode::Native).expect("attach");
        pass
    });
    for spec in [native(), skb()] {
        refused(
            open_far(&pair, &spec),
            &["wp-far", "already has an XDP program `pass` (id ", "ip link set dev wp-far xdp off"],
        );
    }
    drop(first);
    open_far(&pair, &native()).expect("free again");
}

#[test]
fn taken_udp_port_is_an_error_with_its_number() {
    let _alone = alone();
    let pair = pair();
    let holder = pair.far.run(|| UdpSocket::bind((pair.far.ip, FAR_PORT)).expect("free"));
    for spec in [udp(), packet(), skb(), native()] {
        refused(open_far(&pair, &spec), &["UDP port 9000 of 10.77.0.2 is taken", "--port"]);
    }
    drop(holder);
    open_far(&pair, &udp()).expect("free again");
}

#[test]
fn kernel_counts_a_wrong_checksum() {
    // Proves that the kernel verifies checksums, on which a test of the probe's engines relies.
    let _alone = alone();
    let pair = pair();
    let _holder = pair.far.run(|| std::net::UdpSocket::bind((pair.far.ip, FAR_PORT)));
    let sent = pair.near.run(|| {
        let (from, to) = (local(&pair.near, NEAR_PORT), remote(&pair.far, FAR_PORT));
        let template = Template::new(&from, &to, 0, 64).expect("a template");
        let mut tx = sys::packet::PacketTx::open(from.ifindex, 1514, 64).expect("a ring");
        tx.post(1, template.frame_bytes(), |frame| {
            template.build_unchecked(frame, &mut |_| {});
            // No sum of this payload is 0x1234.
            frame[40..42].copy_from_slice(&[0x12, 0x34]);
        });
        testkit::until(Duration::from_secs(10), || tx.kick().is_ok() && tx.reap() > 0)
    });
    assert!(sent.expect("the near end"), "the frame did not leave");
    assert!(
        testkit::until(Duration::from_secs(10), || udp_counters(&pair.far)["InCsumErrors"] == 1),
        "{:?}",
        udp_counters(&pair.far)
    );
}
