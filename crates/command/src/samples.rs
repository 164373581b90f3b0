//! Samples of the programs of a trial, as part of its measurement.

use std::sync::Arc;

use host::sampling::{INTERVAL_NS, ProgramSamples, SampledKind, SampledProgram, Sampler};
use lab::program::Program;
use model::{CodeKind, CpuSamples, FunctionSamples};

use crate::accounting::SERVER;

/// Samples a program from now on; `None` without a control group, and where the kernel gives no samples.
pub(crate) fn sample(sampler: &Arc<Sampler>, program: &Program) -> Option<SampledProgram> {
    sampler.watch(program.cgroup()?.path())
}

/// Ends the samples of a program, and names its functions: not before everything of the trial has been counted.
///
/// - `program`: its part in the trial.
pub(crate) fn ended(sampled: Option<SampledProgram>, program: &str) -> Option<CpuSamples> {
    let ProgramSamples { functions, lost_count } = sampled?.end();
    let functions = functions.into_iter().map(|of| FunctionSamples {
        program: program.to_owned(),
        function: of.name,
        kind: match of.kind {
            SampledKind::Function => CodeKind::Function,
            SampledKind::Kernel => CodeKind::Kernel,
            SampledKind::File => CodeKind::File,
        },
        sample_count: of.count,
    });
    Some(CpuSamples::of_trial(INTERVAL_NS, None, lost_count, functions.collect()))
}

/// Samples of both ends as those of the trial.
pub(crate) fn trial_samples(
    near: Option<CpuSamples>,
    far: Option<CpuSamples>,
    packet_count: Option<u64>,
) -> Option<CpuSamples> {
    let mut samples = match (near, far) {
        (Some(mut near), Some(far)) => {
            near.add_program(far);
            near
        }
        (near, far) => near.or(far)?,
    };
    samples.packet_count = packet_count;
    Some(samples)
}

/// Samples that another host reports: bounded, and with texts that are safe to print.
pub(crate) fn sane(samples: CpuSamples) -> CpuSamples {
    const NAME_LEN_MAX: usize = 200;
    let functions = samples.functions.into_iter().take(model::FUNCTIONS_MAX);
    let functions = functions.map(|of| FunctionSamples {
        program: SERVER.to_owned(),
        function: host::text::printable(&of.function, NAME_LEN_MAX),
        ..of
    });
    let mut sane =
        CpuSamples::of_trial(samples.interval_ns, None, samples.lost_count, functions.collect());
    sane.other_count = sane.other_count.saturating_add(samples.other_count.min(1 << 40));
    sane
}
