//! The card: `virtio-drivers` under the interface that `smoltcp` asks for.
#![expect(unsafe_code, reason = "a transport is made of an address")]

use core::ptr::NonNull;

use board_virt::tree::Machine;
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use virtio_drivers::device::net::{RxBuffer, VirtIONet};
use virtio_drivers::transport::mmio::MmioTransport;

use super::memory::Identity;

/// Entries of a ring. Four times those of the crate's examples; a card of 256 is made on the stack
/// before it is moved, and does not fit there.
const RING: usize = 64;
/// Room for the header and the longest frame.
const BUFFER_BYTES: usize = 2048;
const FRAME_BYTES_MAX: usize = 1514;
/// Bytes of a virtio window on `virt`.
const WINDOW_BYTES: usize = 0x200;

type Net = VirtIONet<Identity, MmioTransport<'static>, RING>;

/// The network card.
pub(super) struct Card(Net);

/// The first card there is, and the number of its interrupt.
pub(super) fn open(machine: &Machine) -> Option<(Card, u32)> {
    machine.virtio_windows().iter().find_map(|(base, interrupt)| {
        // Empty slots read as devices of kind 0: looked at by our own reader, which says so
        // without a handle to give back.
        let window = board_virt::window(*base);
        virtio::Transport::probe(window, virtio::net::DEVICE_NET).ok()?;
        let header = NonNull::new(*base as *mut _)?;
        // SAFETY: the device tree lists a virtio-mmio window there, mapped as a device; the handle
        // that probed is gone.
        let transport = unsafe { MmioTransport::new(header, WINDOW_BYTES) }.ok()?;
        let mut net = Net::new(transport, BUFFER_BYTES).ok()?;
        net.enable_interrupts();
        Some((Card(net), *interrupt))
    })
}

impl Card {
    pub(super) fn mac(&self) -> [u8; 6] {
        self.0.mac_address()
    }

    /// Tells the device that its interrupt was heard.
    pub(super) fn acknowledge(&mut self) {
        let _what = self.0.ack_interrupt();
    }

    fn receive(&mut self) -> Option<RxBuffer> {
        self.0.receive().ok()
    }

    fn recycle(&mut self, buffer: RxBuffer) {
        self.0.recycle_rx_buffer(buffer).expect("its place in the ring is free");
    }

    /// Sends, and waits until the device has taken it: there is no other way in this interface.
    fn send<R>(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut buffer = self.0.new_tx_buffer(len);
        let result = fill(buffer.packet_mut());
        self.0.send(buffer).expect("a frame of legal length");
        result
    }
}

/// The card as a device of `smoltcp`; it is lent for one call at a time, as interrupts want it too.
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
