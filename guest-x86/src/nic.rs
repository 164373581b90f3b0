//! The network card, whichever it is.

use crate::cpu::ticks;
use crate::interrupts::{self, handler_ticks};
use crate::lance::{self, Lance};
use crate::pages::{Boot, Report};
use crate::virtio_net::{self, Card};
use wire::nettest::{boot, report};

use core::sync::atomic::Ordering;

/// A card that runs.
///
/// One of each kind exists at most, and every call goes to the same: the branch is predicted.
#[expect(clippy::large_enum_variant, reason = "there is one, on the first frame of the stack")]
pub(crate) enum Nic {
    /// The monitor's Lance, or QEMU's.
    Lance(Lance),
    /// QEMU's virtio-net.
    Virtio(Card),
}

impl Nic {
    /// Finds the card that the boot page means, and starts it, interrupts on.
    pub(crate) fn open(boot: &Boot) -> Option<Self> {
        match boot.get(boot::VIRTIO_AT) {
            0 => Lance::open(boot).map(Nic::Lance),
            _ => Card::open(boot).map(Nic::Virtio),
        }
    }

    /// Our address.
    pub(crate) fn mac(&self) -> [u8; 6] {
        match self {
            Nic::Lance(lance) => lance.mac(),
            Nic::Virtio(card) => card.mac(),
        }
    }

    /// Whether there is room for a frame.
    pub(crate) fn tx_ready(&mut self) -> bool {
        match self {
            Nic::Lance(lance) => lance.tx_ready(),
            Nic::Virtio(card) => card.tx_ready(),
        }
    }

    /// Waits for room, and books the time.
    #[cold]
    pub(crate) fn tx_wait(&mut self) {
        let report = Report::get();
        // Sleep and handlers have their own place in the books.
        let elsewhere = || report.get_word(report::IDLE_TICKS) + handler_ticks();
        let (begin, others) = (ticks(), elsewhere());
        report.add(report::TX_FULL, 1);
        match self {
            Nic::Lance(lance) => lance.tx_wait(),
            Nic::Virtio(card) => card.tx_wait(),
        }
        let others = elsewhere() - others;
        report.add(report::FULL_TICKS, (ticks() - begin).saturating_sub(others));
    }

    /// Sends a frame of `len` bytes that `fill` writes, after waiting for room.
    pub(crate) fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        assert!((14..=1514).contains(&len));
        if !self.tx_ready() {
            self.tx_wait();
        }
        match self {
            Nic::Lance(lance) => lance.send(len, fill),
            Nic::Virtio(card) => card.send(len, fill),
        }
        Report::get().add(report::TX_FRAMES, 1);
    }

    /// Whether all frames were sent.
    pub(crate) fn tx_is_empty(&mut self) -> bool {
        match self {
            Nic::Lance(lance) => lance.tx_is_empty(),
            Nic::Virtio(card) => card.tx_is_empty(),
        }
    }

    /// Whether a received frame waits.
    pub(crate) fn rx_ready(&self) -> bool {
        match self {
            Nic::Lance(lance) => lance.rx_ready(),
            Nic::Virtio(card) => card.rx_ready(),
        }
    }

    /// Takes a received frame without its check sequence, when there is one.
    pub(crate) fn receive<R>(&mut self, body: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        match self {
            Nic::Lance(lance) => lance.receive(body),
            Nic::Virtio(card) => card.receive(body),
        }
    }
}

/// The interrupt handler's part, with the card's line masked.
pub(crate) fn on_interrupt() {
    if !virtio_net::on_interrupt() {
        lance::on_interrupt();
    }
}

/// Sleeps until `is_so`; whatever makes it so interrupts.
pub(crate) fn sleep_until(mut is_so: impl FnMut() -> bool) {
    loop {
        interrupts::wake_word().store(0, Ordering::Release);
        if is_so() {
            break;
        }
        crate::idle();
    }
    // The word was cleared here: what set it before, such as a frame that arrived, is not to be
    // slept through by the caller.
    interrupts::wake_word().store(1, Ordering::Release);
}
