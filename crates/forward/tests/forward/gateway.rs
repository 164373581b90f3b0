//! The forwarder of the host's interfaces follows its next hop.

use std::time::Instant;

use wirepath_forward::config::Config;
use wirepath_forward::run::{Live, Operator, run as run_forwarder};

use super::fast::fast_lab;
use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

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
fn await_ping(lab: &Triple, what: &str, notes: &Mutex<Vec<String>>) {
    let begun = Instant::now();
    let ping = || lab.near.run(|| run("ping -c 1 -W 1 10.77.0.2")).expect("the namespace exists");
    while ping().is_err() {
        let notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(begun.elapsed() < PATIENCE, "no ping is answered {what}: {notes:?}");
    }
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
            let body = || {
                await_ping(&lab, "at first", &notes);
                // As a router that takes over an address: it announces itself.
                let replace = || {
                    std::fs::write("/proc/sys/net/ipv4/conf/wp-far/arp_notify", "1")
                        .expect("it is set");
                    ip("link set wp-far address 02:00:00:00:99:99");
                };
                lab.far.run(replace).expect("the namespace exists");
                await_ping(&lab, "by the new gateway", &notes);
                at_ours(&format!("link set {underlay} down"));
                at_ours(&format!("link set {underlay} up"));
                await_ping(&lab, "after the link was down", &notes);
            };
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
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
