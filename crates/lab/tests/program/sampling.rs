//! Samples of a program are its CPU time, by function.

use std::sync::Arc;

use host::sampling::{INTERVAL_NS, ProgramSamples, SampledKind, Sampler};
use testkit::LONG;
use wirepath_lab::program::{FinishedProgram, Program};

use crate::common::{GO_ON, Home};

/// Runs a command to its end; `None` where nothing is sampled.
fn sampled(sampler: &Arc<Sampler>, command: &str) -> Option<(FinishedProgram, ProgramSamples)> {
    let home = Home::new(true);
    let program = Program::start(&home.spec("client", command)).unwrap();
    let watched = program.cgroup().and_then(|group| sampler.watch(group.path()));
    let Some(watched) = watched else {
        testkit::skip("cgroup", "no samples of a control group");
        return None;
    };
    let mut poll = || {
        watched.poll();
        Ok(())
    };
    let ended = program.wait_beside(&mut poll, LONG * 4, &GO_ON).unwrap();
    Some((ended, watched.end()))
}

fn count(samples: &ProgramSamples, kind: SampledKind) -> u64 {
    samples.functions.iter().filter(|of| of.kind == kind).map(|of| of.count).sum()
}

#[test]
fn samples_of_all_processes_are_their_cpu_time_and_have_names() {
    let sampler = Sampler::open(&sys::affinity::allowed_cpus().unwrap());
    // Processes that end soon, one after the other, and the kernel's work for one.
    let command = "i=0; while [ $i -lt 10 ]; do \
                   python3 -c 'n = 0\nwhile n < 500000: n += 1'; i=$((i+1)); done; \
                   dd if=/dev/zero of=/dev/null bs=1M count=1500 2>/dev/null";
    let Some((ended, samples)) = sampled(&sampler, command) else { return };
    let all: u64 = samples.functions.iter().map(|of| of.count).sum();
    let share = (all * INTERVAL_NS) as f64 / ended.usage.cpu_ns() as f64;
    assert!((0.5..2.0).contains(&share), "{share} of {:?}: {samples:?}", ended.usage);
    let of_kernel = samples.functions.iter().filter(|of| of.kind == SampledKind::Kernel);
    assert!(of_kernel.clone().any(|of| !of.name.starts_with("0x")), "{samples:?}");
    assert!(count(&samples, SampledKind::Kernel) >= 5, "{samples:?}");
    // Of the interpreter's functions, or its name.
    let unknown = samples.functions.iter().find(|of| of.name == "code that is not known");
    let unknown = unknown.map_or(0, |of| of.count);
    assert!(unknown * 5 < all, "{unknown} of {all} in no file: {samples:?}");
    let mut names = samples.functions.iter().map(|of| &of.name);
    assert!(names.any(|name| name.contains("Py") || name.contains("python")), "{samples:?}");
}

#[test]
fn samples_of_one_program_are_none_of_another_beside_it() {
    let sampler = Sampler::open(&sys::affinity::allowed_cpus().unwrap());
    let home = Home::new(true);
    let busy = home.start("server", "while :; do :; done");
    let other = busy.cgroup().and_then(|group| sampler.watch(group.path()));
    let Some((ended, samples)) = sampled(&sampler, "sleep 0.5") else { return };
    let all: u64 = samples.functions.iter().map(|of| of.count).sum();
    assert!(all <= 5, "{all} samples of {:?}: {samples:?}", ended.usage);
    let other = other.expect("the other one was sampled").end();
    assert!(other.functions.iter().map(|of| of.count).sum::<u64>() > 5, "{other:?}");
}
