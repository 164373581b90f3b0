//! The two pages shared with the monitor.

use core::sync::atomic::{AtomicU64, Ordering};

use guest_pages::{MAGIC, boot, report};

/// Configuration from the monitor. Copied once, as it does not change.
#[derive(Clone, Copy)]
pub(crate) struct Boot {
    words: [u64; boot::LEN],
}

impl Boot {
    /// Reads the page at `at`.
    ///
    /// # Safety
    ///
    /// `at` must be the address of a boot page, readable and aligned to 8.
    pub(crate) unsafe fn read(at: *const u64) -> Self {
        let mut words = [0; boot::LEN];
        for (i, word) in words.iter_mut().enumerate() {
            // SAFETY: the caller promises a page; the index is below its 512 words.
            let at = unsafe { at.add(i) };
            // SAFETY: as above; aligned, and not written while the guest runs.
            *word = unsafe { at.read_volatile() };
        }
        assert!(words[boot::MAGIC] == MAGIC);
        Boot { words }
    }

    /// Word at an index, see [`boot`].
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.words[index]
    }

    /// The same page with another frequency of the time stamp counter.
    pub(crate) fn with_tsc_khz(mut self, khz: u64) -> Self {
        self.words[boot::TSC_KHZ] = khz;
        self
    }

    /// Frequency of the time stamp counter in kHz.
    pub(crate) fn tsc_khz(&self) -> u64 {
        self.words[boot::TSC_KHZ].max(1)
    }
}

/// The page that the monitor reads.
#[derive(Clone, Copy)]
pub(crate) struct Report {
    words: &'static [AtomicU64; report::LEN],
}

/// Address of the report page; 0 until [`Report::install`].
static REPORT_AT: AtomicU64 = AtomicU64::new(0);

impl Report {
    /// Starts using the page named by the boot page.
    pub(crate) fn install(boot: &Boot) {
        REPORT_AT.store(boot.get(boot::REPORT), Ordering::Relaxed);
    }

    /// The page.
    pub(crate) fn get() -> Self {
        let at = REPORT_AT.load(Ordering::Relaxed) as *const [AtomicU64; report::LEN];
        assert!(!at.is_null());
        // SAFETY: the monitor reserves an aligned page there for this use only; atomics make its
        // concurrent reads sound.
        Report { words: unsafe { &*at } }
    }

    /// Current value of a word.
    pub(crate) fn get_word(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, index: usize, value: u64) {
        self.words[index].store(value, Ordering::Release);
    }

    /// Adds to a word by one instruction, so that an interrupt in between loses no count. It needs no
    /// lock prefix: there is one processor.
    pub(crate) fn add(&self, index: usize, value: u64) {
        let word = self.words[index].as_ptr();
        // SAFETY: an aligned word written only by this processor.
        unsafe {
            core::arch::asm!("add qword ptr [{}], {}", in(reg) word, in(reg) value);
        }
    }

    /// Clears all counters before the measured part.
    pub(crate) fn clear(&self) {
        for word in &self.words[1..] {
            word.store(0, Ordering::Relaxed);
        }
    }
}
