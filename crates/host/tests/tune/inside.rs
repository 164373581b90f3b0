//! Plans made inside a namespace, as in a container.

use std::sync::atomic::AtomicBool;

use lab::End;
use wirepath_host::text::chain;
use wirepath_host::tune::{self, KnobError, Place, Profile, Scope, System, Target, Wanted};

use crate::bench::{Bench, INTERFACE};

/// Calls `act` with the system as a program inside of the namespace opens it.
fn inside<R: Send>(end: &End, act: impl FnOnce(&System) -> R + Send) -> R {
    end.run(|| act(&System::open(&Place::default()).unwrap())).unwrap()
}

#[test]
fn a_plan_made_inside_a_namespace_can_be_applied_there() {
    let bench = Bench::new();
    inside(&bench.pair.near, |system| {
        assert!(system.is_child_netns());
        for profile in [Profile::Latency, Profile::Throughput, Profile::Forwarding] {
            let wanted = Wanted { profile, interface: Some(INTERFACE), app_cpu: None };
            let plan = tune::plan(system, wanted).unwrap();
            let never = AtomicBool::new(false);
            let checked = plan.check(system, &never);
            checked.unwrap_or_else(|error| panic!("{profile:?}: {}", chain(&error)));
            let host_only = plan.left_out.iter().filter(|one| one.why.contains("host-only"));
            assert!(host_only.count() > 0, "{plan:?}");
        }
        let wanted =
            Wanted { profile: Profile::Throughput, interface: Some(INTERFACE), app_cpu: None };
        let plan = tune::plan(system, wanted).unwrap();
        for knob in ["rmem-max", "wmem-max", "netdev-max-backlog", "netdev-budget"] {
            assert!(!plan.steps.iter().any(|step| step.knob == knob), "{plan:?}");
            assert!(plan.left_out.iter().any(|one| one.knob == knob), "{plan:?}");
        }
        assert!(plan.steps.iter().any(|step| step.knob == "tcp-wmem"), "{plan:?}");
    });
}

#[test]
fn each_setting_is_offered_inside_a_namespace_only_if_it_can_be_set_there() {
    let bench = Bench::new();
    inside(&bench.pair.near, |system| {
        let (mut set_count, mut host_only_count) = (0, 0);
        for knob in tune::all() {
            // Those of the machine are set as anywhere, and this test leaves them alone.
            if matches!(knob.scope(), Scope::Host | Scope::Cpu) {
                continue;
            }
            for target in tune::targets(knob, system, Some(INTERFACE)).unwrap() {
                let name = format!("{} of {target}", knob.id());
                match knob.probe(system, &target) {
                    Ok(()) => {
                        let now = knob.read(system, &target).unwrap();
                        knob.set(system, &target, &now)
                            .unwrap_or_else(|error| panic!("{name}: {}", chain(&error)));
                        set_count += 1;
                    }
                    Err(KnobError::HostOnly { .. }) => {
                        assert_eq!(target, Target::Netns, "{name}");
                        host_only_count += 1;
                    }
                    // A driver without it; never a lack of rights, which root cannot cure.
                    Err(error) => assert!(error.is_absence(), "{name}: {}", chain(&error)),
                }
            }
        }
        assert!(set_count > 10 && host_only_count > 5, "{set_count}, {host_only_count}");
    });
}
