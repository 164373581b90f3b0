//! The device of a machine, of either model.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bus::{Bus, GuestMemory, InPlace, NetworkSide, Reception};
use crate::lance::{self, Counters, Lance, LancePort, Width, csr0};
use crate::offload::OffloadHeader;
use crate::virtio::{self, NicOptions, VirtioNet, register};

/// Guest physical address of the virtio card's registers: the last 2 MiB below 1 GiB, which are never
/// memory.
pub const VIRTIO_AT: u64 = 0x3fe0_0000;

/// A card.
#[derive(Debug)]
pub(super) enum Nic {
    /// AMD Lance, found by PCI, in ports.
    Lance(Box<Lance>),
    /// virtio-net at [`VIRTIO_AT`], in memory.
    Virtio(Box<VirtioNet>),
}

/// State of a card, for a reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NicState {
    /// The chip and its rings.
    Lance(lance::State),
    /// The card and its queues.
    Virtio(virtio::State),
}

impl fmt::Display for NicState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NicState::Lance(state) => state.fmt(f),
            NicState::Virtio(state) => state.fmt(f),
        }
    }
}

/// Evaluates an expression with the card of either model.
macro_rules! either {
    ($self:expr, $card:ident => $done:expr) => {
        match $self {
            Nic::Lance($card) => $done,
            Nic::Virtio($card) => $done,
        }
    };
}

impl Nic {
    pub(super) fn virtio(mac: [u8; 6], options: NicOptions) -> Self {
        Nic::Virtio(Box::new(VirtioNet::new(mac, options)))
    }

    pub(super) fn lance(&self) -> Option<&Lance> {
        match self {
            Nic::Lance(lance) => Some(lance),
            Nic::Virtio(_) => None,
        }
    }

    pub(super) fn lance_mut(&mut self) -> Option<&mut Lance> {
        match self {
            Nic::Lance(lance) => Some(lance),
            Nic::Virtio(_) => None,
        }
    }

    pub(super) fn is_virtio(&self) -> bool {
        matches!(self, Nic::Virtio(_))
    }

    pub(super) fn is_packed(&self) -> bool {
        matches!(self, Nic::Virtio(card) if card.is_packed())
    }

    /// Register that a memory access means, as an offset into the card's window.
    pub(super) fn decode_memory(&self, address: u64) -> Option<u16> {
        match self {
            Nic::Lance(lance) => lance.pci.decode_memory(address).map(u16::from),
            Nic::Virtio(_) => {
                let offset = address.checked_sub(VIRTIO_AT)?;
                (offset < virtio::WINDOW_BYTES).then_some(offset as u16)
            }
        }
    }

    pub(super) fn read(&mut self, offset: u16, width: Width) -> u32 {
        match self {
            // Decoded to 32 bytes.
            Nic::Lance(lance) => lance.read(offset as u8, width),
            Nic::Virtio(card) => card.read(offset, width),
        }
    }

    pub(super) fn write<M: GuestMemory, W: NetworkSide>(
        &mut self,
        bus: &mut Bus<'_, M, W>,
        offset: u16,
        width: Width,
        value: u32,
    ) {
        match self {
            Nic::Lance(lance) => lance.write(bus, offset as u8, width, value),
            Nic::Virtio(card) => card.write(bus, offset, width, value),
        }
    }

    /// True if a write stops the card.
    pub(super) fn stops(&self, offset: u16, width: Width, value: u32) -> bool {
        match self {
            Nic::Lance(lance) => {
                is_status(lance, offset, width) && value & u32::from(csr0::STOP) != 0
            }
            Nic::Virtio(_) => offset == register::STATUS && value == 0,
        }
    }

    /// The rest of a write that demands transmission: `Some(None)` if there is no other effect.
    pub(super) fn without_demand(
        &self,
        offset: u16,
        width: Width,
        value: u32,
    ) -> Option<Option<u32>> {
        match self {
            Nic::Lance(lance) => {
                let tdmd = u32::from(csr0::TDMD);
                let stop = u32::from(csr0::STOP);
                let demands = is_status(lance, offset, width) && value & (tdmd | stop) == tdmd;
                demands.then_some(Some(value & !tdmd))
            }
            Nic::Virtio(card) => {
                (offset == register::QUEUE_NOTIFY && card.is_tx(value)).then_some(None)
            }
        }
    }

    pub(super) fn irq(&self) -> bool {
        either!(self, card => card.irq())
    }

    pub(super) fn irq_tells_only_of_sent(&self) -> bool {
        either!(self, card => card.irq_tells_only_of_sent())
    }

    pub(super) fn masks_tx_interrupt(&self) -> bool {
        either!(self, card => card.masks_tx_interrupt())
    }

    pub(super) fn can_transmit(&self) -> bool {
        either!(self, card => card.can_transmit())
    }

    pub(super) fn has_demand(&self) -> bool {
        either!(self, card => card.has_demand())
    }

    pub(super) fn polls(&self) -> bool {
        either!(self, card => card.polls())
    }

    /// Time between two polls of a card that polls by a timer; `None` if it has none.
    pub(super) fn poll_interval_ns(&self) -> Option<u64> {
        self.lance().filter(|lance| lance.polls()).map(Lance::poll_interval_ns)
    }

    pub(super) fn poll<M: GuestMemory, W: NetworkSide>(&mut self, bus: &mut Bus<'_, M, W>) {
        either!(self, card => card.poll(bus))
    }

    pub(super) fn demand<M: GuestMemory, W: NetworkSide>(&mut self, bus: &mut Bus<'_, M, W>) {
        either!(self, card => card.demand(bus))
    }

    /// Before polling ends: asks for demands. Returns true if frames wait already.
    pub(super) fn rearm(&mut self, memory: &impl GuestMemory) -> bool {
        match self {
            // Its drivers demand after a pause of their own.
            Nic::Lance(_) => false,
            Nic::Virtio(card) => card.rearm(memory),
        }
    }

    pub(super) fn receive(&mut self, memory: &impl GuestMemory, frame: &[u8]) -> Reception {
        match self {
            Nic::Lance(lance) => lance.receive(memory, frame),
            // The monitor's back ends leave no work.
            Nic::Virtio(card) => card.receive(memory, &OffloadHeader::FINISHED, frame),
        }
    }

    /// Exchanges frames that stay in guest memory. A Lance has none.
    pub(super) fn exchange(&mut self, memory: &impl GuestMemory, place: &mut dyn InPlace) {
        if let Nic::Virtio(card) = self {
            card.exchange(memory, place);
        }
    }

    pub(super) fn counters(&self) -> &Counters {
        either!(self, card => &card.counters)
    }

    pub(super) fn state(&self, memory: &impl GuestMemory) -> NicState {
        match self {
            Nic::Lance(lance) => NicState::Lance(lance.state(memory)),
            Nic::Virtio(card) => NicState::Virtio(card.state(memory)),
        }
    }
}

/// True if an access is to CSR0.
fn is_status(lance: &Lance, offset: u16, width: Width) -> bool {
    lance.port(offset as u8, width) == Some(LancePort::Rdp) && lance.rap() == 0
}
