//! Steering is as asked for while a guard lives, and as before after it.

use wirepath_host::lab::{Pair, PairSpec};
use wirepath_host::net::ethtool::Feature;
use wirepath_host::steering::{
    RpsGuard, SteeringError, ThreadedNapiGuard, XpsGuard, rps_cpus, xps_cpus,
};

#[test]
fn receive_steering_ends_with_its_guard() {
    let pair = Pair::new(&PairSpec { queues: 2, ..PairSpec::default() }).unwrap();
    let (near, sysfs) = (&pair.near, pair.near.sysfs().unwrap());
    let now = || [0, 1].map(|queue| rps_cpus(&sysfs, &near.ifname, queue).unwrap());
    assert_eq!(now(), [const { Vec::<usize>::new() }; 2]);
    let outer = RpsGuard::set(&near.netns, &near.ifname, &[0]).unwrap();
    assert_eq!(now(), [vec![0], vec![0]]);
    let inner = RpsGuard::set(&near.netns, &near.ifname, &[]).unwrap();
    assert_eq!(now(), [const { Vec::<usize>::new() }; 2]);
    inner.restore().unwrap();
    assert_eq!(now(), [vec![0], vec![0]]);
    drop(outer);
    assert_eq!(now(), [const { Vec::<usize>::new() }; 2]);
}

#[test]
fn transmit_steering_ends_with_its_guard() {
    let pair = Pair::new(&PairSpec { queues: 2, ..PairSpec::default() }).unwrap();
    let (near, sysfs) = (&pair.near, pair.near.sysfs().unwrap());
    let now = || [0, 1].map(|queue| xps_cpus(&sysfs, &near.ifname, queue).unwrap());
    let before = now();
    let guard = XpsGuard::set(&near.netns, &near.ifname, &[&[], &[0]]).unwrap();
    assert_eq!(now(), [vec![], vec![0]]);
    drop(guard);
    assert_eq!(now(), before);
    let lists: [&[usize]; 3] = [&[0], &[0], &[0]];
    let too_many = XpsGuard::set(&near.netns, &near.ifname, &lists);
    assert!(matches!(too_many, Err(SteeringError::NoQueue { .. })), "{too_many:?}");
}

#[test]
fn one_transmit_queue_cannot_be_steered() {
    let pair = Pair::new(&PairSpec::default()).unwrap();
    let error = XpsGuard::set(&pair.near.netns, &pair.near.ifname, &[&[0]]).unwrap_err();
    assert!(matches!(error, SteeringError::Unsupported { .. }), "{error}");
}

#[test]
fn threaded_napi_needs_napi_and_ends_with_its_guard() {
    let pair = Pair::new(&PairSpec::default()).unwrap();
    let near = &pair.near;
    let error = ThreadedNapiGuard::set(&near.netns, &near.ifname, true).unwrap_err();
    assert!(error.to_string().contains("GRO"), "{error}");
    near.set_feature(Feature::GRO, true).unwrap();
    let sysfs = near.sysfs().unwrap();
    let now = || sysfs.read(format!("class/net/{}/threaded", near.ifname)).unwrap();
    let guard = ThreadedNapiGuard::set(&near.netns, &near.ifname, true).unwrap();
    assert_eq!(now(), "1");
    drop(guard);
    assert_eq!(now(), "0");
}

#[test]
fn a_guard_outlives_its_interface_without_complaint() {
    let pair = Pair::new(&PairSpec::default()).unwrap();
    let guard = RpsGuard::set(&pair.near.netns, &pair.near.ifname, &[0]).unwrap();
    pair.near.delete_link().unwrap();
    guard.restore().unwrap();
    let gone = RpsGuard::set(&pair.near.netns, &pair.near.ifname, &[0]);
    assert!(matches!(gone, Err(SteeringError::NoQueue { .. })), "{gone:?}");
}
