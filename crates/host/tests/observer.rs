//! The observer counts what frames of one namespace suffered.

use std::net::UdpSocket;
use std::time::Duration;

use lab::{Pair, PairSpec};
use wirepath_host::observer::{Observation, ObservedInterface};

fn interface<'a>(all: &'a [ObservedInterface], name: &str) -> &'a ObservedInterface {
    all.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("no {name} in {all:#?}"))
}

#[test]
fn frames_flows_and_stacks_of_one_namespace_are_counted_and_those_of_others_are_not() {
    let pair = Pair::new(&PairSpec::default()).unwrap();
    let (near, far) = (&pair.near, &pair.far);
    let mut observation = Observation::start(Some(near.netns.try_clone().unwrap()), 997).unwrap();
    let receiver = near.run(|| UdpSocket::bind((near.ip, 9000))).unwrap().unwrap();
    for _ in 0..20 {
        let sender = far.run(|| UdpSocket::bind((far.ip, 0))).unwrap().unwrap();
        (0..5).for_each(|_| assert!(sender.send_to(&[0; 64], (near.ip, 9000)).is_ok()));
    }
    observation.wait(Duration::from_millis(300), || false).unwrap();
    drop(receiver);
    let (observed, stacks) = observation.finish().unwrap();
    println!("{observed:#?}\n{}", stacks.folded());
    let names: Vec<_> = observed.interfaces.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["wp-near"]);
    let received = &interface(&observed.interfaces, "wp-near").received;
    assert_eq!(received.flows_count, 20);
    assert!(received.count >= 100, "{received:?}");
    assert_eq!(received.by_cpu.iter().sum::<u64>(), received.count);
    assert!(observed.cpus.iter().any(|cpu| cpu.softirqs_count > 0 && cpu.softirqs_ns > 0));
    assert!(observed.sees_functions != observed.unseen.iter().any(|what| what.contains("copies")));
}
