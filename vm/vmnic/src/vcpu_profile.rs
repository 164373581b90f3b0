//! Timer samples of the vCPU's thread, beside the measures of its idle time that count.

use std::fs;
use std::time::Duration;

use sys::thread_samples::{SampledMode, ThreadSampler};
use vmm::Snapshot;

/// CPU time of the thread between two samples. Each takes the guest off its CPU, which costs tens of microseconds where KVM
/// is nested; a prime number keeps step with no tick.
const PERIOD_NS: u64 = 3_989_000;
/// Time in which a thread that was started has its name.
const NAME_TIMEOUT: Duration = Duration::from_millis(20);

/// Samples of the vCPU's thread of a monitor that runs.
pub(super) struct VcpuProfile(ThreadSampler);

/// Shares of the measured part, each by its name.
pub(super) type SampledShares = Vec<(&'static str, f64)>;

impl VcpuProfile {
    /// Begins; `None` where the kernel does not allow it, or the monitor has ended.
    ///
    /// - `pid`: process of the monitor.
    pub(super) fn begin(pid: u32) -> Option<VcpuProfile> {
        let mut waited = Duration::ZERO;
        loop {
            if let Some(thread) = vcpu_thread(pid) {
                return ThreadSampler::start(thread, PERIOD_NS).ok().map(VcpuProfile);
            }
            if waited >= NAME_TIMEOUT {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
            waited += Duration::from_millis(1);
        }
    }

    /// Shares of the wall time of the measured part: in the guest, in the monitor, in the kernel, and without a sample,
    /// which is idle.
    pub(super) fn shares(mut self, measured: &Snapshot) -> SampledShares {
        let end_ns = measured.began_ns.saturating_add(measured.at_ns);
        let samples = self.0.samples();
        let within =
            samples.iter().filter(|sample| (measured.began_ns..end_ns).contains(&sample.at_ns));
        let modes: Vec<SampledMode> = within.map(|sample| sample.mode).collect();
        shares(&modes, measured.at_ns)
    }
}

fn shares(modes: &[SampledMode], wall_ns: u64) -> SampledShares {
    let sample_share = PERIOD_NS as f64 / wall_ns.max(1) as f64;
    let [guest, monitor, kernel] = [SampledMode::Guest, SampledMode::User, SampledMode::Kernel]
        .map(|mode| modes.iter().filter(|&&one| one == mode).count() as f64 * sample_share);
    vec![
        ("sampled_share_guest", guest),
        ("sampled_share_monitor", monitor),
        ("sampled_share_kernel", kernel),
        ("sampled_share_idle", (1.0 - modes.len() as f64 * sample_share).max(0.0)),
    ]
}

fn vcpu_thread(pid: u32) -> Option<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    threads.filter_map(Result::ok).find_map(|thread| {
        let name = fs::read_to_string(thread.path().join("comm")).ok()?;
        (name.trim() == "vcpu").then(|| thread.file_name().to_str()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_shares_of_the_wall_time_and_the_rest_is_idle() {
        use SampledMode::{Guest, Kernel, User};
        let shares = shares(&[Guest, Guest, Guest, User, Kernel], 10 * PERIOD_NS);
        let expected = [("guest", 0.3), ("monitor", 0.1), ("kernel", 0.1), ("idle", 0.5)];
        for ((name, share), (short, expected)) in shares.into_iter().zip(expected) {
            assert!(name.ends_with(short) && (share - expected).abs() < 1e-9, "{name} {share}");
        }
        assert_eq!(super::shares(&[User; 3], PERIOD_NS)[3], ("sampled_share_idle", 0.0));
    }
}
