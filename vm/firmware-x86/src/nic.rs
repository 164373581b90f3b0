//! The network card, of either kind.

use crate::cpu::ticks;
use crate::foreign::Foreign;
use crate::lance::{self, Lance};
use crate::pages::{Boot, Report};
use crate::virtio_net::{self, Card};
use crate::wake::handler_ticks;
use guest_pages::{boot, driver, report};

/// A started card.
///
/// At most one exists, and every call goes to the same variant: the branch is predicted.
#[expect(clippy::large_enum_variant, reason = "there is one, on the first frame of the stack")]
pub(crate) enum Nic {
    /// The monitor's or QEMU's Lance.
    Lance(Lance),
    /// The monitor's or QEMU's virtio-net.
    Virtio(Card),
    /// The same, with the driver of crate `virtio-drivers`.
    Foreign(Foreign),
}

impl Nic {
    /// Finds and starts the card named by the boot page, with interrupts enabled.
    pub(crate) fn open(boot: &Boot) -> Option<Self> {
        match boot.get(boot::VIRTIO_AT) {
            0 => Lance::open(boot).map(Nic::Lance),
            _ if boot.get(boot::DRIVER) & driver::FOREIGN != 0 => {
                Foreign::open(boot).map(Nic::Foreign)
            }
            _ => Card::open(boot).map(Nic::Virtio),
        }
    }

    /// MAC address of the card.
    pub(crate) fn mac(&self) -> [u8; 6] {
        match self {
            Nic::Lance(lance) => lance.mac(),
            Nic::Virtio(card) => card.mac(),
            Nic::Foreign(card) => card.mac(),
        }
    }

    /// True if there is room for a frame.
    pub(crate) fn tx_ready(&mut self) -> bool {
        match self {
            Nic::Lance(lance) => lance.tx_ready(),
            Nic::Virtio(card) => card.tx_ready(),
            Nic::Foreign(card) => card.tx_ready(),
        }
    }

    /// Waits for room, and records the time.
    #[cold]
    pub(crate) fn tx_wait(&mut self) {
        let report = Report::get();
        // Sleep and handlers are accounted separately.
        let elsewhere = || report.get_word(report::IDLE_TICKS) + handler_ticks();
        let (begin, others) = (ticks(), elsewhere());
        report.add(report::TX_FULL, 1);
        match self {
            Nic::Lance(lance) => lance.tx_wait(),
            Nic::Virtio(card) => card.tx_wait(),
            Nic::Foreign(card) => card.tx_wait(),
        }
        let others = elsewhere() - others;
        report.add(report::FULL_TICKS, (ticks() - begin).saturating_sub(others));
    }

    /// Sends a frame of `len` bytes written by `fill`, after waiting for room.
    pub(crate) fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        assert!((14..=1514).contains(&len));
        if !self.tx_ready() {
            self.tx_wait();
        }
        match self {
            Nic::Lance(lance) => lance.send(len, fill),
            Nic::Virtio(card) => card.send(len, fill),
            Nic::Foreign(card) => card.send(len, fill),
        }
        Report::get().add(report::TX_FRAMES, 1);
    }

    /// True if all frames were sent.
    pub(crate) fn tx_is_empty(&mut self) -> bool {
        match self {
            Nic::Lance(lance) => lance.tx_is_empty(),
            Nic::Virtio(card) => card.tx_is_empty(),
            Nic::Foreign(card) => card.tx_is_empty(),
        }
    }

    /// True if a received frame waits.
    pub(crate) fn rx_ready(&self) -> bool {
        match self {
            Nic::Lance(lance) => lance.rx_ready(),
            Nic::Virtio(card) => card.rx_ready(),
            Nic::Foreign(card) => card.rx_ready(),
        }
    }

    /// Takes a received frame without its check sequence, if any.
    pub(crate) fn receive<R>(&mut self, body: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        match self {
            Nic::Lance(lance) => lance.receive(body),
            Nic::Virtio(card) => card.receive(body),
            Nic::Foreign(card) => card.receive(body),
        }
    }
}

/// Interrupt handler; runs with the card's line masked.
pub(crate) fn on_interrupt() {
    if !virtio_net::on_interrupt() {
        lance::on_interrupt();
    }
}
