//! The card: `virtio-drivers` behind the device interface of `smoltcp`.
#![expect(unsafe_code, reason = "a transport is made of an address")]

use core::ptr::NonNull;

use board_virt::interrupts;
use board_virt::tree::Machine;
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use virtio_drivers::device::net::{RxBuffer, VirtIONet};
use virtio_drivers::transport::mmio::MmioTransport;

use super::memory::Identity;

/// Entries of a ring. Four times those of the crate's examples; a card with 256 does not fit on
/// the stack, where it is built before it is moved.
const RING: usize = 64;
/// Room for the header and the longest frame.
const BUFFER_BYTES: usize = 2048;
const FRAME_BYTES_MAX: usize = 1514;
/// Bytes of a virtio window on `virt`.
const WINDOW_BYTES: usize = 0x200;

type Net = VirtIONet<Identity, MmioTransport<'static>, RING>;

pub(super) struct Card(Net);

/// Opens the first network card.
///
/// - `on_interrupt`: handler of its interrupt. The controller listens before the card starts: the
///   edge of a frame that comes before would be lost.
pub(super) fn open(machine: &Machine, on_interrupt: fn()) -> Option<Card> {
    machine.virtio_windows().iter().find_map(|(base, interrupt)| {
        // Empty slots read as device kind 0. Probed with our own transport, which releases its handle.
        let window = board_virt::window(*base);
        virtio::Transport::probe(window, virtio::net::DEVICE_NET).ok()?;
        let header = NonNull::new(*base as *mut _)?;
        // SAFETY: the device tree lists a virtio-mmio window there, mapped as a device; the handle
        // that probed it is gone.
        let transport = unsafe { MmioTransport::new(header, WINDOW_BYTES) }.ok()?;
        interrupts::on_net(*interrupt, on_interrupt);
        let mut net = Net::new(transport, BUFFER_BYTES).ok()?;
        net.enable_interrupts();
        Some(Card(net))
    })
}

impl Card {
    pub(super) fn mac(&self) -> [u8; 6] {
        self.0.mac_address()
    }

    /// Acknowledges the interrupt at the device.
    pub(super) fn acknowledge(&mut self) {
        let _what = self.0.ack_interrupt();
    }

    fn receive(&mut self) -> Option<RxBuffer> {
        self.0.receive().ok()
    }

    fn recycle(&mut self, buffer: RxBuffer) {
        self.0.recycle_rx_buffer(buffer).expect("its slot in the ring is free");
    }

    /// Sends, and waits until the device has taken the frame, as `VirtIONet` does. The crate's raw
    /// interface (`VirtIONetRaw`: `transmit_begin`, `transmit_complete`) does not wait; its buffers are
    /// the caller's to keep, which `smoltcp` tokens do not.
    fn send<R>(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut buffer = self.0.new_tx_buffer(len);
        let result = fill(buffer.packet_mut());
        self.0.send(buffer).expect("a frame of legal length");
        result
    }
}

/// The card as a `smoltcp` device; borrowed for one call at a time, as interrupts use it too.
pub(super) struct Shared;

pub(super) struct Received(RxBuffer);
pub(super) struct Sending;

impl Device for Shared {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending)> {
        super::with_card(Card::receive).map(|buffer| (Received(buffer), Sending))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending> {
        Some(Sending)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME_BYTES_MAX;
        capabilities
    }
}

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, work: F) -> R {
        let result = work(self.0.packet());
        super::with_card(|card| card.recycle(self.0));
        result
    }
}

impl phy::TxToken for Sending {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        super::with_card(|card| card.send(len, fill))
    }
}
