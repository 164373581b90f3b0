//! Settings are as asked for while they are held, and as before afterwards.

use lab::{End, Pair, PairSpec};
use wirepath_host::tune::{KnobError, ScopedSettings, Target};

fn two_queues() -> Pair {
    Pair::new(&PairSpec { queues: 2, gro: true, ..PairSpec::default() }).unwrap()
}

fn shown(end: &End, path: &str) -> String {
    end.sysfs().unwrap().read(format!("class/net/{}/{path}", end.ifname)).unwrap()
}

#[test]
fn what_is_held_twice_comes_back_layer_by_layer() {
    let pair = two_queues();
    let near = &pair.near;
    let now = || ["rx-0", "rx-1"].map(|queue| shown(near, &format!("queues/{queue}/rps_cpus")));
    let before = now();
    let mut outer = ScopedSettings::new(&near.netns).unwrap();
    outer.set_all("rps-cpus", &near.ifname, "1").unwrap();
    let held = now();
    assert!(held.iter().all(|mask| mask.ends_with('1')) && held != before, "{held:?}");
    let mut inner = ScopedSettings::new(&near.netns).unwrap();
    inner.set_all("rps-cpus", &near.ifname, "0").unwrap();
    assert_eq!(now(), before);
    inner.restore().unwrap();
    assert_eq!(now(), held);
    drop(outer);
    assert_eq!(now(), before);
}

#[test]
fn settings_of_several_kinds_go_with_one_value() {
    let pair = two_queues();
    let near = &pair.near;
    let now = || ["threaded", "queues/tx-1/xps_cpus", "tx_queue_len"].map(|path| shown(near, path));
    let before = now();
    let mut held = ScopedSettings::new(&near.netns).unwrap();
    let interface = || Target::Interface(near.ifname.clone());
    held.set("threaded-napi", interface(), "1").unwrap();
    held.set("xps-cpus", Target::TxQueue(near.ifname.clone(), 1), "1").unwrap();
    held.set("tx-queue-len", interface(), "77").unwrap();
    let changed = now();
    assert_eq!((changed[0].as_str(), changed[2].as_str()), ("1", "77"));
    // What fails leaves the rest held.
    let error = held.set("tx-queue-len", interface(), "many").unwrap_err();
    assert!(matches!(error, KnobError::Value { .. }), "{error}");
    assert_eq!(now(), changed);
    drop(held);
    assert_eq!(now(), before);
}

#[test]
fn what_the_driver_does_not_have_is_named() {
    let pair = Pair::new(&PairSpec::default()).unwrap();
    let near = &pair.near;
    let mut held = ScopedSettings::new(&near.netns).unwrap();
    for (knob, value) in [("coalescing", "rx-usecs=0"), ("rings", "rx=4096")] {
        let interface = Target::Interface(near.ifname.clone());
        let error = held.set(knob, interface, value).unwrap_err();
        assert!(matches!(error, KnobError::NotOffered { .. }), "{error}");
    }
    let queue = Target::TxQueue(near.ifname.clone(), 0);
    let error = held.set("xps-cpus", queue, "1").unwrap_err();
    assert!(error.to_string().contains("two transmit queues"), "{error}");
    let error = held.set("threaded-napi", Target::Interface(near.ifname.clone()), "1").unwrap_err();
    assert!(error.to_string().contains("GRO"), "{error}");
}

#[test]
fn an_interface_that_is_gone_took_its_settings_along() {
    let pair = Pair::new(&PairSpec::default()).unwrap();
    let near = &pair.near;
    let mut held = ScopedSettings::new(&near.netns).unwrap();
    held.set_all("rps-cpus", &near.ifname, "1").unwrap();
    near.delete_link().unwrap();
    held.restore().unwrap();
    let mut held = ScopedSettings::new(&near.netns).unwrap();
    assert!(held.set_all("rps-cpus", &near.ifname, "1").is_err());
}
