//! virtio-net driver over memory-mapped registers, as in the monitor and on QEMU's `microvm`.

use core::sync::atomic::{AtomicUsize, Ordering};

use dma::Dma;
use guest_pages::{boot, driver, report};
use virtio::mmio::register::{INTERRUPT_ACK, INTERRUPT_STATUS};
use virtio::net::{FRAME_BYTES_MAX, NetDriver, QUEUE_FRAMES, Settings};
use virtio::{Frame, Registers};

use crate::controller::enable_device;
use crate::cpu::{pause, read8, read32, ticks, write32};
use crate::lance::access;
use crate::pages::{Boot, Report};
use crate::wake::sleep_until;

/// Settings of the driver, as far as the device offers them: it is notified only if it asks for it.
const SETTINGS: Settings = Settings {
    event_idx: true,
    tx_interrupts: true,
    rx_interrupts: true,
    packed: true,
    indirect: false,
    ring_frames: QUEUE_FRAMES as u16,
};
/// Polls of a full ring before the driver sleeps.
const FULL_SPINS: u32 = 64;

/// Address of the registers, for the interrupt handler; 0 until the card has started.
static BASE: AtomicUsize = AtomicUsize::new(0);

/// Registers of the card, by their address.
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

/// Enables the interrupt of the card in the boot page, before the card may raise it. Returns the address of its
/// registers.
pub(crate) fn listen(boot: &Boot) -> usize {
    let at = boot.get(boot::VIRTIO_AT) as usize;
    BASE.store(at, Ordering::Relaxed);
    enable_device(boot.get(boot::VIRTIO_LINE) as u8);
    at
}

/// Interrupt handler: reads and acknowledges the cause. Returns `false` if there is no such
/// card.
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

/// A started card.
pub(crate) struct Card {
    driver: NetDriver<Window, Dma>,
    mac: [u8; 6],
    /// Buffer for the next frame to send; `None` when the card has all of them.
    next: Option<Frame>,
    /// Frames sent raise interrupts, so each call reclaims them; else only a full ring does.
    tx_interrupts: bool,
}

impl Card {
    /// Starts the card at the address in the boot page.
    pub(crate) fn open(boot: &Boot) -> Option<Self> {
        let at = listen(boot);
        let tx_interrupts = boot.get(boot::DRIVER) & driver::MASK_TX_INTERRUPT == 0;
        let settings = Settings { tx_interrupts, ..SETTINGS };
        let mut driver = NetDriver::start(Window(at), Dma::take()?, settings).ok()?;
        let mac = driver.mac()?;
        let next = driver.take_free();
        Some(Card { driver, mac, next, tx_interrupts })
    }

    /// MAC address of the card.
    pub(crate) fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Reclaims sent frames. Returns true if there is room.
    pub(crate) fn tx_ready(&mut self) -> bool {
        let (_, slots) = self.driver.ring_frames();
        if self.tx_interrupts || self.driver.tx_posted() == slots {
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

    /// Waits for room: polls for a while, then sleeps.
    pub(crate) fn tx_wait(&mut self) {
        for _ in 0..FULL_SPINS {
            if self.tx_ready() {
                break;
            }
            pause();
        }
        if !self.tx_ready() {
            // The card may have sent one in the meantime.
            sleep_until(|| self.driver.tx_enable_interrupts() || self.tx_ready());
            self.reap();
            if !self.tx_interrupts {
                self.driver.tx_disable_interrupts();
            }
        }
    }

    /// Sends a frame of `len` bytes written by `fill`; requires room.
    pub(crate) fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        let frame = self.next.take().expect("there is room");
        let begin = ticks();
        self.driver.with_frame(&frame, len, fill);
        Report::get().add(report::COPY_TICKS, ticks() - begin);
        self.driver.tx_post(frame, len).expect("there is room");
        self.driver.tx_kick();
    }

    /// True if all frames were sent.
    pub(crate) fn tx_is_empty(&mut self) -> bool {
        self.reap();
        self.driver.tx_posted() == 0
    }

    /// True if a received frame waits.
    pub(crate) fn rx_ready(&self) -> bool {
        self.driver.rx_has_used()
    }

    /// Takes a received frame, if any.
    pub(crate) fn receive<R>(&mut self, body: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        // With EVENT_IDX, the interrupt request covers the next frame only.
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
