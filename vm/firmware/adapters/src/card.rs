//! A card whose frames a stack borrows by tokens: one for a received frame, one for room to send.

use core::cell::{Cell, RefCell};

use virtio::net::{FRAME_BYTES_MAX, NetDriver, QUEUE_FRAMES, Received, Settings};
use virtio::{Memory, Registers, StartError};

/// Settings for a stack: sent frames are reaped before the next is sent, so the device need not
/// report them, except when the ring is full.
pub const SETTINGS: Settings = Settings {
    event_idx: true,
    tx_interrupts: false,
    rx_interrupts: true,
    packed: false,
    indirect: false,
    ring_frames: QUEUE_FRAMES as u16,
};

/// Receive buffers that are shown to the device together: a doorbell may cost an exit to a host.
const RX_BATCH: u16 = 16;

/// A frame that the stack sends while it reads a received one.
struct Reply {
    /// 0 if there is none.
    len_bytes: usize,
    bytes: [u8; FRAME_BYTES_MAX],
}

/// A started network card.
pub struct Card<R: Registers, M: Memory> {
    /// Borrowed for as long as the stack reads or writes a frame.
    driver: RefCell<NetDriver<R, M>>,
    reply: RefCell<Reply>,
    /// Receive buffers posted, but not yet shown to the device.
    unshown_count: Cell<u16>,
    /// The transmit interrupt was enabled because the ring was full.
    is_tx_armed: bool,
    restart_count: u64,
    /// The last restart failed.
    failure: Option<StartError>,
}

impl<R: Registers, M: Memory> Card<R, M> {
    /// Wraps a started driver, best with [`SETTINGS`].
    pub fn new(driver: NetDriver<R, M>) -> Self {
        Card {
            driver: RefCell::new(driver),
            reply: RefCell::new(Reply { len_bytes: 0, bytes: [0; FRAME_BYTES_MAX] }),
            unshown_count: Cell::new(0),
            is_tx_armed: false,
            restart_count: 0,
            failure: None,
        }
    }

    /// The device's MAC address, if it has one.
    pub fn mac(&self) -> Option<[u8; 6]> {
        self.driver.borrow().mac()
    }

    /// The driver, to read its counts.
    pub fn driver(&mut self) -> &NetDriver<R, M> {
        self.driver.get_mut()
    }

    /// Restarts of the card after it failed.
    pub fn restart_count(&self) -> u64 {
        self.restart_count
    }

    /// Acknowledges the card's interrupt, and restarts a card that asks for it. Call it after each
    /// interrupt, before the stack is polled.
    ///
    /// Errors: the card is out of order because its restart failed; nothing is received or sent until a
    /// later call restarts it.
    pub fn acknowledge(&mut self) -> Result<(), StartError> {
        let driver = self.driver.get_mut();
        let cause = driver.take_interrupt();
        if self.failure.is_some() || cause.config && driver.needs_restart() {
            self.restart();
        }
        self.failure.map_or(Ok(()), Err)
    }

    /// A received frame, and room for the answer. None also if the transmit ring is full; the card
    /// interrupts in either case when that changes.
    pub fn rx_token(&mut self) -> Option<(RxToken<'_, R, M>, TxToken<'_, R, M>)> {
        if !self.has_room() {
            self.show_buffers();
            return None;
        }
        let received = self.next_received()?;
        let card = &*self;
        Some((RxToken { card, received: Some(received) }, TxToken { card }))
    }

    /// Room for a frame to send; if the ring is full the card interrupts when it has sent one.
    pub fn tx_token(&mut self) -> Option<TxToken<'_, R, M>> {
        self.has_room().then_some(TxToken { card: self })
    }

    #[cfg(feature = "embassy")]
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    fn next_received(&mut self) -> Option<Received> {
        loop {
            match self.driver.get_mut().rx_take() {
                Some(Ok(received)) => return Some(received),
                Some(Err(fault)) if fault.needs_restart() => {
                    self.restart();
                    return None;
                }
                // A frame of invalid length was posted again.
                Some(Err(_)) => self.unshown_count.update(|count| count + 1),
                None => {
                    self.show_buffers();
                    let driver = self.driver.get_mut();
                    // Request, then check again: a frame that came before raises no interrupt.
                    if !driver.has_event_idx() || !driver.rx_enable_interrupts() {
                        return None;
                    }
                }
            }
        }
    }

    /// True if a frame can be sent.
    fn has_room(&mut self) -> bool {
        loop {
            let (_, fault) = self.driver.get_mut().tx_reap();
            if fault.is_some_and(|fault| fault.needs_restart()) {
                self.restart();
            }
            if self.failure.is_some() {
                return false;
            }
            let driver = self.driver.get_mut();
            if driver.tx_posted() < driver.ring_frames().1 {
                if core::mem::take(&mut self.is_tx_armed) && !driver.tx_wants_interrupts() {
                    driver.tx_disable_interrupts();
                }
                return true;
            }
            self.is_tx_armed = true;
            // Request, then check again, as above.
            if !driver.tx_enable_interrupts() {
                return false;
            }
        }
    }

    fn restart(&mut self) {
        self.restart_count += 1;
        self.is_tx_armed = false;
        self.unshown_count.set(0);
        self.failure = self.driver.get_mut().restart().err();
    }

    fn show_buffers(&mut self) {
        if self.unshown_count.take() > 0 {
            self.driver.get_mut().rx_kick();
        }
    }

    /// Sends the answer to a received frame, if there is one, and returns the frame to the device.
    fn finish(&self, received: Received) {
        let driver = &mut *self.driver.borrow_mut();
        let reply = &mut *self.reply.borrow_mut();
        let len_bytes = core::mem::take(&mut reply.len_bytes);
        if len_bytes > 0 {
            send(driver, len_bytes, |bytes| bytes.copy_from_slice(&reply.bytes[..len_bytes]));
        }
        driver.rx_post(received.frame);
        let unshown_count = self.unshown_count.get() + 1;
        // A small ring would run dry before a batch is full.
        let is_batch = unshown_count >= RX_BATCH.min(driver.ring_frames().0 / 2);
        self.unshown_count.set(if is_batch { 0 } else { unshown_count });
        if is_batch {
            driver.rx_kick();
        }
    }
}

/// Fills a frame and sends it. Only with a token, so there is room. Panics if `len_bytes` exceeds a
/// frame.
fn send<R: Registers, M: Memory, T>(
    driver: &mut NetDriver<R, M>,
    len_bytes: usize,
    fill: impl FnOnce(&mut [u8]) -> T,
) -> T {
    assert!(len_bytes <= FRAME_BYTES_MAX, "{len_bytes} bytes exceed a frame");
    let frame = driver.take_free().expect("the pool exceeds both rings and the token's frame");
    let result = driver.with_frame(&frame, len_bytes, fill);
    match driver.tx_post(frame, len_bytes) {
        Ok(()) => driver.tx_kick(),
        Err(frame) => driver.free(frame),
    }
    result
}

/// A received frame. It returns to the device when the token is consumed or dropped.
pub struct RxToken<'a, R: Registers, M: Memory> {
    card: &'a Card<R, M>,
    /// None only while it is dropped.
    received: Option<Received>,
}

impl<R: Registers, M: Memory> RxToken<'_, R, M> {
    /// Borrows the frame, from its Ethernet header on.
    pub fn read<T>(self, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let Received { frame, len_bytes } = self.received.as_ref().expect("it is not dropped yet");
        self.card.driver.borrow_mut().with_frame(frame, *len_bytes, work)
    }
}

impl<R: Registers, M: Memory> Drop for RxToken<'_, R, M> {
    fn drop(&mut self) {
        if let Some(received) = self.received.take() {
            self.card.finish(received);
        }
    }
}

/// Room for a frame to send.
pub struct TxToken<'a, R: Registers, M: Memory> {
    card: &'a Card<R, M>,
}

impl<R: Registers, M: Memory> TxToken<'_, R, M> {
    /// Sends a frame of `len_bytes` that `fill` writes, from its Ethernet header on. Panics if
    /// `len_bytes` exceeds a frame.
    pub fn write<T>(self, len_bytes: usize, fill: impl FnOnce(&mut [u8]) -> T) -> T {
        match self.card.driver.try_borrow_mut() {
            Ok(mut driver) => send(&mut driver, len_bytes, fill),
            // The stack reads the request: the answer is sent when that is done.
            Err(_) => {
                let reply = &mut *self.card.reply.borrow_mut();
                let bytes = reply.bytes.get_mut(..len_bytes).expect("no longer than a frame");
                let result = fill(bytes);
                reply.len_bytes = len_bytes;
                result
            }
        }
    }
}
