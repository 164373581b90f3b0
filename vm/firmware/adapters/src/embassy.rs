//! A card as a driver of `embassy-net`, and the signal from its interrupt to the task.

use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Context;

use atomic_waker::AtomicWaker;
use embassy_net_driver::{self as driver, Capabilities, Driver, HardwareAddress, LinkState};
use virtio::net::FRAME_BYTES_MAX;
use virtio::{Memory, Registers};

use crate::{Card, RxToken, TxToken};

/// Signal from the interrupt handler, which calls [`raise`](Self::raise), to the task that polls the
/// card.
#[derive(Default)]
pub struct InterruptSignal {
    is_raised: AtomicBool,
    waker: AtomicWaker,
}

impl InterruptSignal {
    pub const fn new() -> Self {
        InterruptSignal { is_raised: AtomicBool::new(false), waker: AtomicWaker::new() }
    }

    /// Wakes the task.
    pub fn raise(&self) {
        self.is_raised.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Has `cx` woken by the next interrupt. Returns true if one has come since the last call.
    fn listen(&self, cx: &Context<'_>) -> bool {
        // Before the check: an interrupt in between wakes the task again.
        self.waker.register(cx.waker());
        self.is_raised.swap(false, Ordering::Acquire)
    }
}

/// A card with its interrupt, as `embassy-net` takes it.
pub struct EmbassyCard<'s, R: Registers, M: Memory> {
    card: Card<R, M>,
    mac: [u8; 6],
    interrupt: &'s InterruptSignal,
}

impl<'s, R: Registers, M: Memory> EmbassyCard<'s, R, M> {
    /// Driver of a card.
    ///
    /// - `mac`: its address, [`Card::mac`] if the device has one.
    /// - `interrupt`: raised by the handler of its interrupt, from before the card starts.
    pub fn new(card: Card<R, M>, mac: [u8; 6], interrupt: &'s InterruptSignal) -> Self {
        EmbassyCard { card, mac, interrupt }
    }

    /// The card, to read its counts.
    pub fn card(&mut self) -> &mut Card<R, M> {
        &mut self.card
    }

    /// Registers the task, and acknowledges the card if it has interrupted.
    fn listen(&mut self, cx: &Context<'_>) {
        if self.interrupt.listen(cx) {
            // A restart that failed shows in the state of the link.
            let _ = self.card.acknowledge();
        }
    }
}

impl<R: Registers, M: Memory> Driver for EmbassyCard<'_, R, M> {
    type RxToken<'a>
        = RxToken<'a, R, M>
    where
        Self: 'a;
    type TxToken<'a>
        = TxToken<'a, R, M>
    where
        Self: 'a;

    fn receive(&mut self, cx: &mut Context<'_>) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        self.listen(cx);
        self.card.rx_token()
    }

    fn transmit(&mut self, cx: &mut Context<'_>) -> Option<Self::TxToken<'_>> {
        self.listen(cx);
        self.card.tx_token()
    }

    /// Down while the card is out of order.
    fn link_state(&mut self, cx: &mut Context<'_>) -> LinkState {
        self.listen(cx);
        if self.card.has_failed() { LinkState::Down } else { LinkState::Up }
    }

    /// Checksums are the stack's: the driver negotiates no offload.
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.max_transmission_unit = FRAME_BYTES_MAX;
        capabilities
    }

    fn hardware_address(&self) -> HardwareAddress {
        HardwareAddress::Ethernet(self.mac)
    }
}

impl<R: Registers, M: Memory> driver::RxToken for RxToken<'_, R, M> {
    fn consume<T, F: FnOnce(&mut [u8]) -> T>(self, work: F) -> T {
        self.read(work)
    }
}

impl<R: Registers, M: Memory> driver::TxToken for TxToken<'_, R, M> {
    fn consume<T, F: FnOnce(&mut [u8]) -> T>(self, len_bytes: usize, fill: F) -> T {
        self.write(len_bytes, fill)
    }
}
