//! A card as a device of `smoltcp`.

use ::smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use ::smoltcp::time::Instant;
use virtio::net::FRAME_BYTES_MAX;
use virtio::{Memory, Registers};

use crate::{Card, RxToken, TxToken};

impl<R: Registers, M: Memory> Device for Card<R, M> {
    type RxToken<'a>
        = RxToken<'a, R, M>
    where
        Self: 'a;
    type TxToken<'a>
        = TxToken<'a, R, M>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(RxToken<'_, R, M>, TxToken<'_, R, M>)> {
        self.rx_token()
    }

    fn transmit(&mut self, _: Instant) -> Option<TxToken<'_, R, M>> {
        self.tx_token()
    }

    /// Checksums are the stack's: the driver negotiates no offload.
    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME_BYTES_MAX;
        capabilities
    }
}

impl<R: Registers, M: Memory> phy::RxToken for RxToken<'_, R, M> {
    fn consume<T, F: FnOnce(&[u8]) -> T>(self, work: F) -> T {
        self.read(|bytes| work(bytes))
    }
}

impl<R: Registers, M: Memory> phy::TxToken for TxToken<'_, R, M> {
    fn consume<T, F: FnOnce(&mut [u8]) -> T>(self, len_bytes: usize, fill: F) -> T {
        self.write(len_bytes, fill)
    }
}
