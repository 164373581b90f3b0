//! A Lance driver in the style of its time: one frame per descriptor, one demand per frame, and
//! an interrupt handler that saves and restores the address register around its work.
//!
//! Twelve port accesses and an interrupt for each frame sent: two to demand it, ten to handle
//! the interrupt. That is the baseline; this program measures the accesses that a monitor and a
//! better driver save.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering, compiler_fence};

use guest_pages::{POLL_LINGER_US, boot, driver, report};

use crate::controller::enable_device;
use crate::cpu::{in8, in16, out16, pause, ticks};
use crate::pages::{Boot, Report};
use crate::pci::Function;
use crate::wake::{handler_ticks, sleep_until};

const ID: u32 = 0x2000_1022;
const RDP: u16 = 0x10;
const RAP: u16 = 0x12;
const RESET: u16 = 0x14;
const BDP: u16 = 0x16;

const INIT: u16 = 1 << 0;
const STRT: u16 = 1 << 1;
const STOP: u16 = 1 << 2;
const TDMD: u16 = 1 << 3;
const INEA: u16 = 1 << 6;
const IDON: u16 = 1 << 8;

const OWN: u32 = 1 << 31;
const ERR: u32 = 1 << 30;
const STP_ENP: u32 = 3 << 24;

const RING_MAX: usize = 512;
/// Bytes of a buffer: a frame with its check sequence, rounded up.
const BUFFER_BYTES: usize = 2048;
/// Polls of a full ring before the driver sleeps.
const FULL_SPINS: u32 = 64;

/// Memory that the device reads and writes.
#[repr(C, align(4096))]
struct Shared<T>(UnsafeCell<T>);

// SAFETY: accessed only by volatile operations through `Lance`, of which there is one.
unsafe impl<T> Sync for Shared<T> {}

type Ring = [[u32; 4]; RING_MAX];
type Buffers = [[u8; BUFFER_BYTES]; RING_MAX];

static TX_RING: Shared<Ring> = Shared(UnsafeCell::new([[0; 4]; RING_MAX]));
static RX_RING: Shared<Ring> = Shared(UnsafeCell::new([[0; 4]; RING_MAX]));
static TX_BUFFERS: Shared<Buffers> = Shared(UnsafeCell::new([[0; BUFFER_BYTES]; RING_MAX]));
static RX_BUFFERS: Shared<Buffers> = Shared(UnsafeCell::new([[0; BUFFER_BYTES]; RING_MAX]));
static INIT_BLOCK: Shared<[u8; 28]> = Shared(UnsafeCell::new([0; 28]));

/// First port, for the interrupt handler; 0 until the driver has started.
static BASE: AtomicU16 = AtomicU16::new(0);
/// Value for CSR3: the mask of the transmit interrupt.
static MASKS: AtomicU16 = AtomicU16::new(0);
/// Errors of CSR0 seen by the handler.
static ERRORS: AtomicU32 = AtomicU32::new(0);

fn address<T>(shared: &'static Shared<T>) -> u32 {
    shared.0.get() as usize as u32
}

/// Accesses a device port or register, counted and timed. Interrupts taken during it are not
/// included.
pub(crate) fn access<R>(body: impl FnOnce() -> R) -> R {
    let (begin, handlers) = (ticks(), handler_ticks());
    let result = body();
    let handled = handler_ticks() - handlers;
    let report = Report::get();
    report.add(report::PORT_TICKS, (ticks() - begin).saturating_sub(handled));
    report.add(report::PORT_ACCESSES, 1);
    result
}

fn read_csr(base: u16, at: u16) -> u16 {
    access(|| out16(base + RAP, at));
    access(|| in16(base + RDP))
}

fn write_csr(base: u16, at: u16, value: u16) {
    access(|| out16(base + RAP, at));
    access(|| out16(base + RDP, value));
}

/// Interrupt handler: acknowledges until nothing is pending, then enables interrupts again.
pub(crate) fn on_interrupt() {
    let base = BASE.load(Ordering::Relaxed);
    // The interrupted program may be between its write of RAP and that of the data.
    let rap = access(|| in16(base + RAP));
    for _ in 0..20 {
        let status = read_csr(base, 0);
        if status & 0x8600 == 0 {
            break;
        }
        // Disabled during the handler; pending causes are acknowledged at once.
        write_csr(base, 0, status & !(INEA | TDMD | STOP | STRT | INIT));
        if status & 0x7800 != 0 {
            ERRORS.fetch_add(1, Ordering::Relaxed);
        }
    }
    write_csr(base, 0, 0x7940);
    access(|| out16(base + RAP, rap));
}

/// The device, and the driver's position in its rings.
pub(crate) struct Lance {
    base: u16,
    mac: [u8; 6],
    tx_len: usize,
    rx_len: usize,
    tx_next: usize,
    /// Time of the last send.
    tx_last: u64,
    linger_ticks: u64,
    rx_next: usize,
    masked: bool,
    device_polls: bool,
}

impl Lance {
    /// Finds, initialises and starts the device, with interrupts enabled.
    pub(crate) fn open(boot: &Boot) -> Option<Self> {
        let function = Function::find(ID)?;
        let base = (function.read(0x10) & 0xfffe) as u16;
        // Enable ports and bus mastering.
        function.write(4, function.read(4) & 0xffff | 5);
        let line = function.read(0x3c) as u8;
        in16(base + RESET);
        out16(base + RAP, 20);
        out16(base + BDP, 2);
        let mac = core::array::from_fn(|i| in8(base + i as u16));
        let flags = boot.get(boot::DRIVER);
        let (tx_log2, rx_log2) =
            (boot.get(boot::TX_RING_LOG2).min(9), boot.get(boot::RX_RING_LOG2).min(9));
        let mut lance = Lance {
            base,
            mac,
            tx_len: 1 << tx_log2,
            rx_len: 1 << rx_log2,
            tx_next: 0,
            tx_last: 0,
            linger_ticks: POLL_LINGER_US * boot.tsc_khz() / 1000,
            rx_next: 0,
            masked: flags & driver::MASK_TX_INTERRUPT != 0,
            device_polls: flags & driver::DEVICE_POLLS != 0,
        };
        for i in 0..lance.rx_len {
            lance.rx_post(i);
        }
        let mut block = [0; 28];
        block[2] = (rx_log2 << 4) as u8;
        block[3] = (tx_log2 << 4) as u8;
        block[4..10].copy_from_slice(&mac);
        block[20..24].copy_from_slice(&address(&RX_RING).to_le_bytes());
        block[24..].copy_from_slice(&address(&TX_RING).to_le_bytes());
        // SAFETY: the device reads the block only at INIT, below.
        unsafe { INIT_BLOCK.0.get().write_volatile(block) };
        BASE.store(base, Ordering::Relaxed);
        let at = address(&INIT_BLOCK);
        write_csr(base, 1, at as u16);
        write_csr(base, 2, (at >> 16) as u16);
        let masks = if lance.masked { 1 << 9 } else { 0 };
        MASKS.store(masks, Ordering::Relaxed);
        write_csr(base, 3, masks);
        if !lance.device_polls {
            // Sends on demand only: the device does not poll.
            write_csr(base, 4, 0x1115);
        }
        write_csr(base, 0, INIT);
        (0..1000).find(|_| read_csr(base, 0) & IDON != 0)?;
        enable_device(line);
        write_csr(base, 0, IDON | INEA | STRT);
        Some(lance)
    }

    /// MAC address of the card.
    pub(crate) fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn word(ring: &'static Shared<Ring>, i: usize, word: usize) -> *mut u32 {
        assert!(i < RING_MAX && word < 4);
        // SAFETY: within the array, checked above.
        unsafe { ring.0.get().cast::<u32>().add(4 * i + word) }
    }

    fn load(ring: &'static Shared<Ring>, i: usize, word: usize) -> u32 {
        // SAFETY: `word` returns an aligned address in a ring; the device may write it concurrently.
        let value = unsafe { Self::word(ring, i, word).read_volatile() };
        compiler_fence(Ordering::Acquire);
        value
    }

    fn store(ring: &'static Shared<Ring>, i: usize, word: usize, value: u32) {
        // Earlier writes must be visible first: x86 keeps the order, the compiler needs the fence.
        compiler_fence(Ordering::Release);
        // SAFETY: as for `load`.
        unsafe { Self::word(ring, i, word).write_volatile(value) };
    }

    fn rx_post(&mut self, i: usize) {
        Self::store(&RX_RING, i, 0, address(&RX_BUFFERS) + (i * BUFFER_BYTES) as u32);
        Self::store(&RX_RING, i, 2, 0);
        Self::store(&RX_RING, i, 1, OWN | 0xf000 | (4096 - BUFFER_BYTES as u32));
    }

    /// True if the driver owns the next transmit descriptor.
    pub(crate) fn tx_ready(&self) -> bool {
        Self::load(&TX_RING, self.tx_next, 1) & OWN == 0
    }

    /// True if a received frame waits.
    pub(crate) fn rx_ready(&self) -> bool {
        Self::load(&RX_RING, self.rx_next, 1) & OWN == 0
    }

    /// Waits until the driver owns the next transmit descriptor: polls for a while, then sleeps, for
    /// which the transmit interrupt must be enabled.
    pub(crate) fn tx_wait(&mut self) {
        let begin = ticks();
        for spin in 0.. {
            // A device that polls is at work: while it lingers, polling is cheaper than an interrupt.
            // Otherwise sleep soon.
            let enough = if self.device_polls {
                ticks() - begin >= self.linger_ticks
            } else {
                spin >= FULL_SPINS
            };
            if enough || self.tx_ready() {
                break;
            }
            pause();
        }
        if !self.tx_ready() {
            // Half a ring at a time: one interrupt for many frames.
            let half = (self.tx_next + self.tx_len / 2) % self.tx_len;
            let awaited = if self.masked { half } else { self.tx_next };
            if self.masked {
                write_csr(self.base, 3, 0);
            }
            sleep_until(|| Self::load(&TX_RING, awaited, 1) & OWN == 0);
            if self.masked {
                write_csr(self.base, 3, MASKS.load(Ordering::Relaxed));
            }
        }
    }

    /// Sends a frame of `len` bytes written by `fill`; requires room.
    pub(crate) fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        let report = Report::get();
        let i = self.tx_next;
        let begin = ticks();
        // SAFETY: the buffer of a descriptor that the driver owns; no other reference to it exists.
        let buffers = unsafe { &mut *TX_BUFFERS.0.get() };
        fill(&mut buffers[i][..len]);
        report.add(report::COPY_TICKS, ticks() - begin);
        if Self::load(&TX_RING, i, 1) & ERR != 0 {
            report.add(report::ERRORS, 1);
        }
        Self::store(&TX_RING, i, 0, address(&TX_BUFFERS) + (i * BUFFER_BYTES) as u32);
        Self::store(&TX_RING, i, 2, 0);
        Self::store(&TX_RING, i, 1, OWN | STP_ENP | 0xf000 | (4096 - len as u32));
        self.tx_next = (i + 1) % self.tx_len;
        if !self.device_polls || self.is_quiet() {
            write_csr(self.base, 0, TDMD | INEA);
            // The demand may take longer than the device lingers, which has polled only now.
            self.tx_last = ticks();
        }
    }

    /// True if a device that polls may have gone to sleep: it polls for a while after a frame.
    fn is_quiet(&mut self) -> bool {
        let now = ticks();
        let quiet = now - self.tx_last > self.linger_ticks;
        self.tx_last = now;
        quiet
    }

    /// True if all frames were sent.
    pub(crate) fn tx_is_empty(&self) -> bool {
        (0..self.tx_len).all(|i| Self::load(&TX_RING, i, 1) & OWN == 0)
    }

    /// Takes a received frame without its check sequence, if any.
    pub(crate) fn receive<R>(&mut self, body: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let i = self.rx_next;
        let status = Self::load(&RX_RING, i, 1);
        if status & OWN != 0 {
            return None;
        }
        let report = Report::get();
        let len = (Self::load(&RX_RING, i, 2) & 0xfff) as usize;
        let result = if status & (ERR | STP_ENP) == STP_ENP && (18..=BUFFER_BYTES).contains(&len) {
            report.add(report::RX_FRAMES, 1);
            // SAFETY: the buffer of a descriptor that the driver owns until it is posted again.
            let buffers = unsafe { &mut *RX_BUFFERS.0.get() };
            Some(body(&mut buffers[i][..len - 4]))
        } else {
            report.add(report::ERRORS, 1);
            None
        };
        self.rx_post(i);
        self.rx_next = (i + 1) % self.rx_len;
        result
    }
}
