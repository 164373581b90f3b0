//! The forwarder of the host's interfaces follows its next hop.

use std::time::Instant;

use wirepath_forward::config::Config;
use wirepath_forward::run::{Live, Operator, run as run_forwarder};

use super::fast::fast_lab;
use super::*;

const PASS_TIMEOUT: Duration = Duration::from_secs(60);

struct Test<'a> {
    stop: &'a AtomicBool,
    notes: &'a Mutex<Vec<String>>,
}

impl Operator for Test<'_> {
    fn wants_end(&mut self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn new_config(&mut self) -> Option<Config> {
        None
    }

    fn note(&mut self, note: &str) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note.to_owned());
    }

    fn opened(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    fn live(&mut self, _: &Live) {}
}

/// Pings through the tunnel until one is answered.
fn await_ping(lab: &Triple, when: &str, notes: &Mutex<Vec<String>>) {
    let begun = Instant::now();
    while lab.near.run(|| run("ping -c 1 -W 1 10.77.0.2")).expect("the namespace exists").is_err() {
        let notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(begun.elapsed() < PASS_TIMEOUT, "no ping is answered {when}: {notes:?}");
    }
}

/// Sends numbered datagrams through the tunnel while `change` runs and until they arrive again. Returns
/// the longest time without an arrival, and the number of datagrams that were lost.
fn outage(lab: &Triple, change: impl FnOnce()) -> (Duration, u32) {
    let receiver = lab.far.run(|| UdpSocket::bind(("10.77.0.2", 9)).expect("the address is there"));
    let receiver = receiver.expect("the namespace exists");
    receiver.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
    // Numbers of the next datagram and of the last that arrived.
    let (next, last, done) = (AtomicU32::new(1), AtomicU32::new(0), AtomicBool::new(false));
    let arrivals = thread::scope(|scope| {
        let arrivals = scope.spawn(|| {
            let (mut arrivals, mut bytes) = (Vec::new(), [0; 4]);
            while !done.load(Ordering::Relaxed) {
                if receiver.recv(&mut bytes).is_ok() {
                    arrivals.push((u32::from_be_bytes(bytes), Instant::now()));
                    last.store(u32::from_be_bytes(bytes), Ordering::Relaxed);
                }
            }
            arrivals
        });
        scope.spawn(|| {
            lab.near
                .run(|| {
                    let socket = UdpSocket::bind(("0.0.0.0", 0)).expect("a socket");
                    while !done.load(Ordering::Relaxed) {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        socket.send_to(&number.to_be_bytes(), ("10.77.0.2", 9)).expect("a route");
                        thread::sleep(Duration::from_micros(100));
                    }
                })
                .expect("the namespace exists")
        });
        let arrive = |number| {
            let begun = Instant::now();
            while last.load(Ordering::Relaxed) < number && begun.elapsed() < PASS_TIMEOUT {
                thread::sleep(Duration::from_millis(1));
            }
            last.load(Ordering::Relaxed) >= number
        };
        let before = arrive(500);
        change();
        let after = arrive(next.load(Ordering::Relaxed) + 500);
        done.store(true, Ordering::Relaxed);
        let arrivals = arrivals.join().expect("it does not panic");
        assert!(before && after, "of those sent, {} arrived: {before}, {after}", arrivals.len());
        arrivals
    });
    assert!(arrivals.is_sorted_by(|(a, _), (b, _)| a < b), "reordered or duplicated");
    let pairs = arrivals.windows(2).map(|pair| (pair[1].1 - pair[0].1, pair[1].0 - pair[0].0 - 1));
    let (gaps, lost): (Vec<_>, Vec<_>) = pairs.unzip();
    (gaps.into_iter().max().unwrap_or_default(), lost.iter().sum())
}

#[test]
fn gateway_with_another_address_and_a_link_that_comes_back_are_followed() {
    let _alone = alone();
    if !has(&["ip", "ping"]) {
        return;
    }
    for engine in ["xdp", "in-kernel"] {
        let lab = fast_lab();
        let [port, underlay] = [&lab.middle.near_if, &lab.middle.far_if].map(|end| &end.ifname);
        let at_ours = |command: &str| lab.middle.netns.run(|| ip(command)).expect("it exists");
        at_ours(&format!("addr add {OURS}/24 dev {underlay}"));
        let config = format!(
            "engine = \"{engine}\"\n[port]\ninterface = \"{port}\"\n\
             [underlay]\ninterface = \"{underlay}\"\naddress = \"{OURS}\"\nmtu = {UNDERLAY_MTU}\n\
             [order]\nstuck_after_us = 10000000\n\
             [[tunnel]]\nname = \"b\"\ncarrier = \"vxlan\"\nvni = {VNI}\nremote = \"{THEIRS}\"\n"
        );
        let config = Config::parse(&config).expect("valid configuration");
        let (stop, notes) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            let running = scope.spawn(|| {
                let mut operator = Test { stop: &stop, notes: &notes };
                lab.middle.netns.run(|| run_forwarder(config, &mut operator))
            });
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                await_ping(&lab, "at first", &notes);
                // As a router that takes over an address: it announces itself.
                let by_other = || {
                    lab.far
                        .run(|| {
                            std::fs::write("/proc/sys/net/ipv4/conf/wp-far/arp_notify", "1")
                                .expect("it is set");
                            ip("link set wp-far address 02:00:00:00:99:99");
                        })
                        .expect("the namespace exists")
                };
                let down_and_up = || {
                    at_ours(&format!("link set {underlay} down"));
                    at_ours(&format!("link set {underlay} up"));
                };
                let changes: [(&str, &dyn Fn()); 2] = [
                    ("gateway with another address", &by_other),
                    ("link down and up", &down_and_up),
                ];
                for (what, change) in changes {
                    let (gap, lost_count) = outage(&lab, change);
                    let ms = gap.as_secs_f64() * 1e3;
                    testkit::note(&format!("{engine}, {what}: {ms:.1} ms, {lost_count} frames"));
                    // Answers come back, too.
                    await_ping(&lab, &format!("after {what}"), &notes);
                }
            }));
            stop.store(true, Ordering::Relaxed);
            let ended = running.join().expect("it does not panic");
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
            ended.expect("the namespace exists").expect("it ends well");
        });
        let notes = notes.into_inner().unwrap_or_else(PoisonError::into_inner);
        let by_new = notes.iter().any(|note| note.contains("by 02:00:00:00:99:99"));
        assert!(by_new, "{engine}: {notes:?}");
    }
}
