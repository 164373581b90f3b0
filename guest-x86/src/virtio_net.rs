//! The driver of virtio-net over memory-mapped registers, as QEMU's `microvm` has it.

use core::sync::atomic::{AtomicUsize, Ordering};

use dma::Dma;
use virtio::mmio::register::{INTERRUPT_ACK, INTERRUPT_STATUS};
use virtio::net::{FRAME_BYTES_MAX, NetDriver, Settings};
use virtio::{Frame, Registers};
use wire::nettest::{boot, report};

use crate::cpu::{pause, read8, read32, ticks, write32};
use crate::interrupts;
use crate::lance::access;
use crate::nic::sleep_until;
use crate::pages::{Boot, Report};

/// As drivers of virtio-net work: frames sent raise no interrupt, the device is told only when it
/// wants to be.
const SETTINGS: Settings = Settings {
    event_idx: true,
    tx_interrupts: false,
    rx_interrupts: true,
    packed: false,
    indirect: false,
};
/// Looks at a full ring before the driver sleeps.
const FULL_SPINS: u32 = 64;

/// The registers, for the interrupt handler; 0 until the card is up.
static BASE: AtomicUsize = AtomicUsize::new(0);

/// The card's registers, by their address.
struct Window(usize);

impl Registers for Window {
    fn read8(&self, at: usize) -> u8 {
        access(|| read8(self.0 + at))
    }

    fn read32(&self, at: usize) -> u32 {
        access(|| read32(self.0 + at))
    }

    fn write32(&self, at: usize, value: u32) {
        access(|| write32(self.0 + at, value));
    }
}

/// The interrupt handler's part: reads what it was about and acknowledges that. Returns `false` where
/// there is no such card.
pub(crate) fn on_interrupt() -> bool {
    let registers = Window(BASE.load(Ordering::Relaxed));
    if registers.0 == 0 {
        return false;
    }
    let causes = registers.read32(INTERRUPT_STATUS);
    if causes != 0 {
        registers.write32(INTERRUPT_ACK, causes);
    }
    true
}

/// A card that runs.
pub(crate) struct Card {
    driver: NetDriver<Window, Dma>,
    mac: [u8; 6],
    /// What the next frame to send is written to; `None` when all are with the card.
    next: Option<Frame>,
}

impl Card {
    /// Starts the card where the boot page says that there is one.
    pub(crate) fn open(boot: &Boot) -> Option<Self> {
        let at = boot.get(boot::VIRTIO_AT) as usize;
        BASE.store(at, Ordering::Relaxed);
        // Before the card may pull it.
        interrupts::enable_device(boot.get(boot::VIRTIO_LINE) as u8);
        let mut driver = NetDriver::start(Window(at), Dma::take()?, SETTINGS).ok()?;
        let mac = driver.mac()?;
        let next = driver.take_free();
        Some(Card { driver, mac, next })
    }

    /// Our address.
    pub(crate) fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Takes back what was sent, and says whether there is room.
    pub(crate) fn tx_ready(&mut self) -> bool {
        let (_, slots) = self.driver.ring_frames();
        if self.driver.tx_posted() == slots {
            self.reap();
        }
        if self.next.is_none() {
            self.next = self.driver.take_free();
        }
        self.next.is_some() && self.driver.tx_posted() < slots
    }

    fn reap(&mut self) {
        let (_, fault) = self.driver.tx_reap();
        assert!(fault.is_none(), "the card broke its rules");
    }

    /// Waits for room: looks a while, then sleeps.
    pub(crate) fn tx_wait(&mut self) {
        for _ in 0..FULL_SPINS {
            if self.tx_ready() {
                break;
            }
            pause();
        }
        if !self.tx_ready() {
            // When it has sent one, there is room already.
            sleep_until(|| self.driver.tx_enable_interrupts() || self.tx_ready());
            self.reap();
            self.driver.tx_disable_interrupts();
        }
    }

    /// Sends a frame of `len` bytes that `fill` writes; there is room.
    pub(crate) fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        let frame = self.next.take().expect("there is room");
        let begin = ticks();
        self.driver.with_frame(&frame, len, fill);
        Report::get().add(report::COPY_TICKS, ticks() - begin);
        self.driver.tx_post(frame, len).expect("there is room");
        self.driver.tx_kick();
    }

    /// Whether all frames were sent.
    pub(crate) fn tx_is_empty(&mut self) -> bool {
        self.reap();
        self.driver.tx_posted() == 0
    }

    /// Whether a received frame waits.
    pub(crate) fn rx_ready(&self) -> bool {
        self.driver.rx_has_used()
    }

    /// Takes a received frame, when there is one.
    pub(crate) fn receive<R>(&mut self, body: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        // With EVENT_IDX the wish for an interrupt is for the next frame alone.
        if !self.rx_ready() && !self.driver.rx_enable_interrupts() {
            return None;
        }
        let report = Report::get();
        let received = match self.driver.rx_take()? {
            Ok(received) => received,
            Err(fault) => {
                assert!(!fault.needs_restart(), "the card broke its rules");
                report.add(report::ERRORS, 1);
                return None;
            }
        };
        report.add(report::RX_FRAMES, 1);
        let len = received.len_bytes.min(FRAME_BYTES_MAX);
        let result = self.driver.with_frame(&received.frame, len, body);
        self.driver.rx_post(received.frame);
        self.driver.rx_kick();
        Some(result)
    }
}
