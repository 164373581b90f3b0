//! Plans of each profile for an interface of a namespace.

use lab::{Pair, PairSpec};
use wirepath_host::net::Channels;
use wirepath_host::net::ethtool::{self, Feature};
use wirepath_host::tune::{
    self, Applied, KnobError, Place, Plan, PlanError, Profile, System, Wanted,
};

use crate::bench::{Bench, INTERFACE, netns_file};

fn planned(plan: &Plan) -> Vec<(&str, String, &str)> {
    plan.steps.iter().map(|s| (s.knob.as_str(), s.target.to_string(), s.value.as_str())).collect()
}

fn wanted(profile: Profile) -> Wanted<'static> {
    Wanted { profile, interface: Some(INTERFACE), app_cpu: None }
}

#[test]
fn latency_disables_delays_and_names_the_settings_left_out() {
    let bench = Bench::new();
    bench.system.write_net("wp-near/queues/rx-1/rps_cpus", "1").unwrap();
    bench.system.write_net("wp-near/gro_flush_timeout", "20000").unwrap();
    bench.system.write_net("wp-near/threaded", "1").unwrap();
    let plan = tune::plan(&bench.system, wanted(Profile::Latency)).unwrap();
    let expected = [
        ("rps-cpus", "queue wp-near rx-1".to_owned(), "0"),
        ("threaded-napi", "interface wp-near".to_owned(), "0"),
        ("gro-flush-timeout", "interface wp-near".to_owned(), "0"),
    ];
    assert_eq!(planned(&plan), expected);
    let why = |knob: &str| {
        let left_out = plan.left_out.iter().find(|left_out| left_out.knob == knob);
        left_out.map(|left_out| left_out.why.as_str()).unwrap_or_default()
    };
    assert!(why("coalescing").contains("not offered by driver veth"), "{plan:?}");
    assert!(why("busy-poll").contains("host-only"), "{plan:?}");
    assert!(why("governor").contains("setting of the machine"), "{plan:?}");
    assert!(matches!(bench.apply(&plan).unwrap(), Applied::Done { .. }));
    let again = tune::plan(&bench.system, wanted(Profile::Latency)).unwrap();
    assert_eq!(planned(&again), []);
}

#[test]
fn throughput_and_forwarding_use_every_queue_and_never_spread_where_there_can_be_more() {
    let bench = Bench::new();
    let near = &bench.pair.near;
    near.set_feature(Feature::GRO, false).unwrap();
    near.set_feature(Feature::GSO, false).unwrap();
    let now = near.run(|| ethtool::channels(near.ifindex)).unwrap().unwrap();
    near.run(|| ethtool::set_channels(near.ifindex, &Channels { rx: 1, ..now })).unwrap().unwrap();
    let many_cpus = bench.system.online_cpus().len() > 1;
    let throughput = tune::plan(&bench.system, wanted(Profile::Throughput)).unwrap();
    let knobs: Vec<_> = throughput.steps.iter().map(|step| step.knob.as_str()).collect();
    assert!(["gso", "gro"].iter().all(|knob| knobs.contains(knob)), "{knobs:?}");
    assert_eq!(knobs.contains(&"channels"), many_cpus);
    assert!(!knobs.contains(&"rps-cpus"), "{knobs:?}");
    let forwarding = tune::plan(&bench.system, wanted(Profile::Forwarding)).unwrap();
    let knobs: Vec<_> = forwarding.steps.iter().map(|step| step.knob.as_str()).collect();
    assert!(["gro", "ip-early-demux"].iter().all(|knob| knobs.contains(knob)), "{knobs:?}");
    for plan in [throughput, forwarding] {
        let before = bench.everything();
        assert_eq!(Plan::parse(&plan.to_text()).unwrap(), plan);
        assert!(matches!(bench.apply(&plan).unwrap(), Applied::Done { .. }));
        bench.rollback();
        assert_eq!(bench.everything(), before);
    }
}

#[test]
fn one_queue_and_many_cpus_are_spread_over() {
    let pair = Pair::new(&PairSpec { gro: true, ..PairSpec::default() }).unwrap();
    let place = Place { netns: Some(netns_file(&pair.near.netns)), root: None };
    let system = System::open(&place).unwrap();
    let plan = tune::plan(&system, wanted(Profile::Throughput)).unwrap();
    let cpus = system.online_cpus();
    let has = planned(&plan).iter().any(|(knob, ..)| *knob == "rps-cpus");
    assert_eq!(has, cpus.len() > 1);
    // The application's CPU is left to it.
    let wanted = Wanted { app_cpu: cpus.last().copied(), ..wanted(Profile::Throughput) };
    let plan = tune::plan(&system, wanted).unwrap();
    let mask = planned(&plan).into_iter().find(|(knob, ..)| *knob == "rps-cpus");
    if let Some((_, _, mask)) = mask {
        assert!(!tune::mask_to_cpus(mask).unwrap().contains(cpus.last().unwrap()));
    }
}

#[test]
fn an_absent_interface_or_cpu_is_refused() {
    let bench = Bench::new();
    let absent = Wanted { interface: Some("eth77"), ..wanted(Profile::Latency) };
    let error = tune::plan(&bench.system, absent).unwrap_err();
    assert!(matches!(error, PlanError::Knob(KnobError::NoTarget { .. })), "{error:?}");
    let absent = Wanted { app_cpu: Some(4000), ..wanted(Profile::Latency) };
    let error = tune::plan(&bench.system, absent).unwrap_err();
    assert!(error.to_string().contains("cpu 4000"), "{error}");
}
