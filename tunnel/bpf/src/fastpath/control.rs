//! The page that the programs and the slow path share: rules, the policer, and the frames given to
//! the slow path.

use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{FAST_TUNNELS_MAX, FastDirection, FastPath, FastRules, types};

/// End of the 64-bit words of `struct control`; 32-bit words follow.
pub(super) const WIDE_BYTES: usize = offset_of!(types::control, is_on);
const _: () = assert!(WIDE_BYTES == offset_of!(types::control, credit) + 8);

/// Networks of the programs: VLAN identifiers.
const FAST_NETWORKS: u16 = 1 << 12;

impl FastPath {
    /// Sets the rules. A direction whose target refused frames stays off.
    pub fn set_rules(&self, rules: &FastRules) {
        self.store64(offset_of!(types::control, ageing_ns), rules.ageing_ns);
        let refresh_ns = (rules.ageing_ns / 8).min(1_000_000_000);
        self.store64(offset_of!(types::control, refresh_ns), refresh_ns);
        let learns = self.control.word32(offset_of!(types::control, learns));
        learns.store(rules.learns.into(), Ordering::Relaxed);
        let has_vlans = self.control.word32(offset_of!(types::control, has_vlans));
        has_vlans.store(rules.has_vlans.into(), Ordering::Relaxed);
        for (at, is_on) in rules.is_on.into_iter().enumerate() {
            let is_on = is_on && self.refusals()[at].is_none();
            let word = self.control.word32(offset_of!(types::control, is_on) + 4 * at);
            word.store(is_on.into(), Ordering::Release);
        }
        self.count_change();
    }

    /// Sets the destination of frames to unknown stations of a network; `None` for the slow path.
    pub fn set_sole_tunnel(&self, network: u16, tunnel: Option<u32>) {
        let at = offset_of!(types::control, sole) + 4 * usize::from(network % FAST_NETWORKS);
        self.change32(at, tunnel.map_or(0, |tunnel| tunnel + 1));
        self.count_change();
    }

    /// Sets the network of a tunnel's frames: the VLAN of the port, or 0.
    pub fn set_network(&self, tunnel: u32, network: u16) {
        let at = offset_of!(types::control, networks) + 4 * (tunnel as usize % FAST_TUNNELS_MAX);
        self.change32(at, network.into());
    }

    /// Sets the limit of all frames that enter at the port, with a full bucket.
    ///
    /// - `limit`: bits per second, 1 to 10¹²; bytes, 1 to 256 MiB. `None` for no limit.
    pub fn set_policer(&self, limit: Option<(u64, u64)>, now_ns: u64) {
        let rate_at = offset_of!(types::control, rate_bits_per_s);
        self.store64(rate_at, 0);
        let Some((rate_bits_per_s, burst_bytes)) = limit else { return };
        let credit_max = burst_bytes.saturating_mul(8_000_000_000).min(i64::MAX as u64 / 2);
        self.store64(offset_of!(types::control, credit_max), credit_max);
        self.store64(offset_of!(types::control, full_ns), credit_max / rate_bits_per_s.max(1) + 1);
        self.store64(offset_of!(types::control, filled_ns), now_ns);
        self.credit().store(credit_max, Ordering::Relaxed);
        self.control.word64(rate_at).store(rate_bits_per_s, Ordering::Release);
    }

    /// Takes credit of the limit, if there is one, for frames that the programs have not seen. It may fall
    /// below zero, which the next frames pay.
    pub fn charge_policer(&self, bytes: u64) {
        let rate_bits_per_s = self.control.word64(offset_of!(types::control, rate_bits_per_s));
        if rate_bits_per_s.load(Ordering::Acquire) > 0 {
            let price = i64::try_from(bytes.saturating_mul(8_000_000_000)).unwrap_or(i64::MAX / 2);
            self.credit().fetch_sub(price.cast_unsigned(), Ordering::Relaxed);
        }
    }

    /// Credit of the limit, in bits times 10⁹: a signed word.
    fn credit(&self) -> &AtomicU64 {
        self.control.word64(offset_of!(types::control, credit))
    }

    /// Largest packet that the programs have sent into a tunnel since the last call, in bytes of the outer IP
    /// packet; 0 for none.
    pub fn take_sent_bytes_max(&self, tunnel: u32) -> u32 {
        let at =
            offset_of!(types::control, sent_bytes_max) + 4 * (tunnel as usize % FAST_TUNNELS_MAX);
        let word = self.control.word32(at);
        // A write takes the line from the CPUs that read it.
        if word.load(Ordering::Relaxed) == 0 { 0 } else { word.swap(0, Ordering::Relaxed) }
    }

    /// Frames given to the slow path so far.
    pub fn given(&self, direction: FastDirection) -> u64 {
        self.control
            .word64(offset_of!(types::control, given) + 8 * direction as usize)
            .load(Ordering::Acquire)
    }

    /// Frames that the slow path has finished, as last set.
    pub fn finished(&self, direction: FastDirection) -> u64 {
        self.control
            .word64(offset_of!(types::control, finished) + 8 * direction as usize)
            .load(Ordering::Relaxed)
    }

    /// Publishes the number of frames of [`Self::given`] that have been sent or dropped.
    pub fn set_finished(&self, direction: FastDirection, count: u64) {
        self.control
            .word64(offset_of!(types::control, finished) + 8 * direction as usize)
            .store(count, Ordering::Release);
    }

    /// Errors of targets that take no frames from XDP, by direction: their direction is left to the
    /// slow path.
    pub fn refusals(&self) -> [Option<io::Error>; 2] {
        [0, 1].map(|at| {
            let word = self.control.word32(offset_of!(types::control, refused) + 4 * at);
            let error = word.load(Ordering::Relaxed).cast_signed();
            (error != 0).then(|| io::Error::from_raw_os_error(error))
        })
    }

    fn store64(&self, at: usize, value: u64) {
        self.control.word64(at).store(value, Ordering::Relaxed);
    }

    /// Writes a word unless it has the value: a store takes the line from every CPU that reads it.
    fn change32(&self, at: usize, value: u32) {
        let word = self.control.word32(at);
        if word.load(Ordering::Relaxed) != value {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Makes every CPU look up again what it remembers of its last frame. Call it after a change of stations,
    /// tunnels or rules.
    pub(super) fn count_change(&self) {
        self.control.word32(offset_of!(types::control, changes)).fetch_add(1, Ordering::Release);
    }
}
