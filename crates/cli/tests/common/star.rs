//! Hosts of a fleet: namespaces around a bridge.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;
use sys::bpf::{Fault, FaultFilter, FaultSpec};
use sys::netns::Netns;
use sys::tap::Tap;

use super::{LONG, Running, ip, succeed};

/// Time for which the wire of the slowed host holds each frame back.
const HOLD: Duration = Duration::from_millis(10);

/// Number of meshes for each state of the wires.
pub(crate) fn seeds() -> u64 {
    let seeds = std::env::var("WIREPATH_TEST_MESHES").ok();
    seeds.map_or(10, |text| text.parse().expect("a number"))
}

/// Names in a document of a mesh, a link as `one,other`.
fn named(document: &Value) -> BTreeSet<String> {
    let text = |of: &Value| of.as_str().unwrap_or_default().replace("netns:", "");
    let suspects = document["suspects"].as_array().expect("a list").iter();
    suspects
        .filter(|of| of["named"] == true)
        .map(|of| format!("{},{}", text(&of["host"]), text(&of["other"])))
        .collect()
}

/// Runs a mesh for each seed. Returns how many name exactly what is expected.
///
/// - `mesh`: command of a mesh with a seed, which prints its document.
pub(crate) fn right_meshes(expected: &BTreeSet<String>, mesh: impl Fn(&str) -> Command) -> u64 {
    (0..seeds())
        .filter(|seed| {
            let output = Running::start(mesh(&seed.to_string())).finish(LONG * 20).expect("an end");
            let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
            let found = named(&document);
            testkit::note(&format!("seed {seed}: named {found:?}, expected {expected:?}"));
            if found != *expected {
                testkit::note(&format!("{document:#}"));
            }
            found == *expected
        })
        .count() as u64
}

/// Namespaces around a bridge, each with one interface; gone when dropped.
pub(crate) struct Star {
    pub(crate) names: Vec<String>,
    pub(crate) hub: String,
    /// Wire of the slowed host.
    wire: Option<Wire>,
    /// Both directions of the lossy link.
    filters: Vec<FaultFilter>,
}

/// A wire between two TAP interfaces that holds frames back on their way to the host.
struct Wire {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Star {
    /// - `slowed`: place of the host whose frames are held back.
    pub(crate) fn new(count: usize, slowed: Option<usize>) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("wpf{}-{n}{end}", std::process::id());
        let names = (0..count).map(|at| name(&format!("h{at}"))).collect();
        let mut star = Star { names, hub: name("hub"), wire: None, filters: Vec::new() };
        for name in star.names.iter().chain([&star.hub]) {
            succeed(ip(&["netns", "add", name]));
            succeed(ip(&["-n", name, "link", "set", "lo", "up"]));
        }
        let hub = star.hub.clone();
        succeed(ip(&["-n", &hub, "link", "add", "name", "bridge", "type", "bridge"]));
        succeed(ip(&["-n", &hub, "link", "set", "dev", "bridge", "up"]));
        succeed(ip(&["-n", &hub, "address", "add", "10.79.0.254/24", "dev", "bridge"]));
        for (at, name) in star.names.iter().enumerate() {
            let port = format!("p{at}");
            if slowed == Some(at) {
                star.wire = Some(Wire::new(name, &hub, &port));
            } else {
                let pair = ["link", "add", "wire", "netns", name, "type", "veth", "peer", "name"];
                succeed(ip(&[&pair[..], &[&port, "netns", &hub]].concat()));
            }
            let address = format!("10.79.0.{}/24", at + 1);
            succeed(ip(&["-n", name, "address", "add", &address, "dev", "wire"]));
            succeed(ip(&["-n", name, "link", "set", "wire", "up"]));
            succeed(ip(&["-n", &hub, "link", "set", &port, "master", "bridge", "up"]));
        }
        star
    }

    /// Gives two hosts a link of their own, beside the bridge, that loses every tenth datagram to `far`.
    pub(crate) fn make_lossy(&mut self, near: usize, far: usize) {
        for (host, other) in [(near, far), (far, near)] {
            let (name, port) = (&self.names[host], format!("x{host}"));
            let pair = ["link", "add", "lossy", "netns", name, "type", "veth", "peer", "name"];
            succeed(ip(&[&pair[..], &[&port, "netns", &self.hub]].concat()));
            succeed(ip(&["-n", name, "link", "set", "lossy", "up"]));
            succeed(ip(&["-n", &self.hub, "link", "set", &port, "up"]));
            let [own, to] = [host, other].map(|at| format!("10.79.0.{}", at + 1));
            let route = ["route", "add", &to, "dev", "lossy", "src", &own];
            succeed(ip(&[&["-n", name], &route[..]].concat()));
        }
        let lossy = FaultSpec {
            udp_port: 9000,
            drop: Some(Fault { every: 10, phase: 3 }),
            ..FaultSpec::default()
        };
        let hub = Netns::open(format!("/run/netns/{}", self.hub)).expect("our namespace");
        let attached = hub.run(|| {
            let index = |at: usize| host::net::link_named(&format!("x{at}")).expect("ours").index;
            let attach = |spec: &FaultSpec, from: usize, to: usize| {
                let mut filter = FaultFilter::load(spec).expect("a filter");
                filter.attach(index(from), index(to)).expect("Linux 6.6");
                filter
            };
            vec![attach(&lossy, near, far), attach(&FaultSpec::default(), far, near)]
        });
        self.filters = attached.expect("the hub");
    }

    /// The hosts as `--on` takes them.
    pub(crate) fn on(&self) -> String {
        self.names.iter().map(|name| format!("netns:{name}")).collect::<Vec<_>>().join(",")
    }
}

impl Drop for Star {
    fn drop(&mut self) {
        if let Some(wire) = &mut self.wire {
            wire.stop.store(true, Ordering::Relaxed);
            wire.threads.drain(..).for_each(|thread| drop(thread.join()));
        }
        self.filters.clear();
        for name in self.names.iter().chain([&self.hub]) {
            let _ = ip(&["netns", "delete", name]).output();
        }
    }
}

impl Wire {
    fn new(host: &str, hub: &str, port: &str) -> Self {
        let tap = |netns: &str, name: &str| {
            let netns = Netns::open(format!("/run/netns/{netns}")).expect("our namespace");
            netns.run(|| Tap::new(name)).expect("a thread").expect("a TAP interface")
        };
        let (near, far) = (tap(host, "wire"), tap(hub, port));
        let stop = Arc::new(AtomicBool::new(false));
        let carry = |from: &Tap, to: &Tap, hold: Duration| {
            let (from, to) = (from.try_clone().expect("a TAP"), to.try_clone().expect("a TAP"));
            let stop = stop.clone();
            thread::spawn(move || {
                let mut frame = vec![0; 2048];
                while !stop.load(Ordering::Relaxed) {
                    match from.read(&mut frame) {
                        Ok(len) => {
                            thread::sleep(hold);
                            // An interface that is not up yet takes nothing.
                            let _ = to.write(&frame[..len]);
                        }
                        Err(_) => thread::sleep(Duration::from_millis(1)),
                    }
                }
            })
        };
        let threads = vec![carry(&near, &far, Duration::ZERO), carry(&far, &near, HOLD)];
        Wire { stop, threads }
    }
}
