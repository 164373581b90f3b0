//! The AMD Lance in its PCI form (Am79C970A, PCnet-PCI II) as a state machine over guest memory.
//!
//! It has no hypervisor, clock or thread. Its owner passes port accesses and arriving frames, with
//! guest memory and a wire for the duration of each call, and then reads
//! [`Lance::irq`]. Nothing that a guest does makes it panic, touch what [`GuestMemory`] does not
//! offer, or work without bound: one call processes at most [`WORK_MAX`] transmit descriptors.
//!
//! Deliberately absent: the serial EEPROM, the boot PROM, LEDs beyond the link's, Magic Packet,
//! big-endian buffers, look-ahead packet processing, and collisions other than forced ones.
//!
//! Source: AMD publication 19436, rev. E. Where a driver can tell, CSR72 to CSR78 count as other
//! monitors' models do (lengths, not two's complements).

mod aprom;
mod bcr;
mod counters;
mod csr;
mod filter;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod init;
mod pci;
mod ports;
mod receive;
mod ring;
mod state;
#[cfg(test)]
mod tests;
mod transmit;

pub use crate::bus::{Bus, BusError, GuestMemory, NetworkSide, PlainMemory, Reception, Sent};
pub use bcr::RingStyle;
pub use counters::Counters;
pub use csr::{csr0, csr3, csr4, csr5, mode};
pub use filter::{Match, hash};
pub use pci::{BAR_BYTES, Pci};
pub use ports::{
    BDP_DWORD, BDP_WORD, LancePort, RAP_DWORD, RAP_WORD, RDP, RESET_DWORD, RESET_WORD, Width,
};
pub use ring::{WORK_MAX, status, tx_error};
pub use state::{RingState, State};
pub use transmit::FRAME_BYTES_MAX;

use bcr::{Bcr, SSIZE32};
use csr::Csr;
use init::InitBlock;
use ring::{Ring, RingKind};

/// One chip.
#[derive(Debug)]
pub struct Lance {
    mac: [u8; 6],
    rap: u8,
    csr: Csr,
    bcr: Bcr,
    aprom: [u8; 16],
    /// Configuration space; how ports are decoded is the owner's business.
    pub pci: Pci,
    pub counters: Counters,
    tx_frame: Vec<u8>,
    rx_frame: Vec<u8>,
    /// Descriptors that the last received frame took.
    rx_used: u16,
}

impl Lance {
    /// A chip after power-on whose PROM holds `mac`.
    pub fn new(mac: [u8; 6]) -> Self {
        Lance {
            mac,
            rap: 0,
            csr: Csr::new(mac),
            bcr: Bcr::new(),
            aprom: aprom::contents(mac),
            pci: Pci::new(),
            counters: Counters::default(),
            // All that they will ever hold: no allocation while frames pass.
            tx_frame: Vec::with_capacity(FRAME_BYTES_MAX + 1),
            rx_frame: Vec::with_capacity(FRAME_BYTES_MAX + 4),
            rx_used: 0,
        }
    }

    /// The reset line: all of the chip and its configuration space.
    pub fn hard_reset(&mut self) {
        self.bcr = Bcr::new();
        self.pci = Pci::new();
        self.aprom = aprom::contents(self.mac);
        self.soft_reset();
    }

    /// Reset by a read of the reset register.
    fn soft_reset(&mut self) {
        self.csr.reset(self.mac);
        self.bcr.soft_reset();
        self.rap = 0;
    }

    /// Level of the interrupt line. Look after every operation.
    pub fn irq(&self) -> bool {
        self.csr.irq()
    }

    /// True if sent frames are the only cause of [`Self::irq`], which may then be delayed a little.
    pub fn irq_tells_only_of_sent(&self) -> bool {
        self.csr.irq_tells_only_of_sent()
    }

    /// True if the guest masks the interrupt for sent frames.
    pub fn masks_tx_interrupt(&self) -> bool {
        self.csr.any(csr::MASKS, csr::csr3::TINTM)
    }

    /// Register that RDP and BDP address now.
    pub fn rap(&self) -> u8 {
        self.rap
    }

    /// True if the transmitter is on and not suspended, so that a doorbell has an effect.
    pub fn can_transmit(&self) -> bool {
        self.csr.any(csr::STATUS, csr0::TXON) && !self.csr.any(csr::EXTENDED, csr5::SPND)
    }

    /// True if a demand is unfinished, because the wire was busy or one call has a limit: call
    /// [`Lance::poll`] again soon.
    pub fn has_demand(&self) -> bool {
        self.can_transmit() && self.csr.any(csr::STATUS, csr0::TDMD)
    }

    /// True if the chip polls the transmit ring by itself.
    pub fn polls(&self) -> bool {
        self.can_transmit() && !self.csr.any(csr::FEATURES, csr4::DPOLL)
    }

    /// Time between two polls at 33 MHz, nanoseconds.
    pub fn poll_interval_ns(&self) -> u64 {
        (65_536 - u64::from(self.csr.get(csr::POLL_INTERVAL))) * 1000 / 33
    }

    /// Looks at the transmit ring, as the chip does from time to time unless DPOLL is set, and
    /// as often as its owner likes.
    pub fn poll<M: GuestMemory, W: NetworkSide>(&mut self, bus: &mut Bus<'_, M, W>) {
        if self.polls() || self.has_demand() {
            self.transmit(bus);
        }
    }

    /// Transmit demand that does not come through [`Lance::write`]: processes the ring.
    pub fn demand<M: GuestMemory, W: NetworkSide>(&mut self, bus: &mut Bus<'_, M, W>) {
        self.csr.raise(csr::STATUS, csr0::TDMD);
        self.transmit(bus);
    }

    /// Value that software reads from a CSR.
    pub fn read_csr(&self, at: u8) -> u16 {
        let style = self.bcr.style();
        self.csr.read(at, self.bcr.style_word(), |rx, ahead| {
            let kind = if rx { RingKind::Rx } else { RingKind::Tx };
            Ring::new(&self.csr, style, kind).address(ahead)
        })
    }

    fn write_csr<M: GuestMemory, W: NetworkSide>(
        &mut self,
        bus: &mut Bus<'_, M, W>,
        at: u8,
        value: u16,
    ) {
        match at {
            0 => self.write_status(bus, value),
            // BCR20 by another name.
            58 => {
                let open = self.csr.is_open();
                self.bcr.write(20, value, open);
            }
            _ => self.csr.write(at, value),
        }
    }

    fn write_status<M: GuestMemory, W: NetworkSide>(
        &mut self,
        bus: &mut Bus<'_, M, W>,
        value: u16,
    ) {
        self.csr.clear(csr::STATUS, value & csr0::STATUS | csr0::INEA);
        self.csr.raise(csr::STATUS, value & (csr0::INEA | csr0::TDMD));
        let mut command = value & (csr0::INIT | csr0::STRT | csr0::STOP);
        if command == csr0::INIT | csr0::STRT | csr0::STOP {
            command = csr0::STOP;
        }
        if command & csr0::STOP != 0 && !self.csr.any(csr::STATUS, csr0::STOP) {
            self.csr.stop();
        }
        if command & csr0::INIT != 0 && !self.csr.any(csr::STATUS, csr0::INIT) {
            self.init(bus.memory);
        }
        if command & csr0::STRT != 0 && !self.csr.any(csr::STATUS, csr0::STRT) {
            self.start();
        }
        if self.csr.any(csr::STATUS, csr0::TDMD) {
            self.transmit(bus);
        }
    }

    fn init(&mut self, memory: &impl GuestMemory) {
        self.csr.clear(csr::STATUS, csr0::STOP);
        self.csr.raise(csr::STATUS, csr0::INIT);
        let ssize32 = self.bcr.style_word() & SSIZE32 != 0;
        let at = self.csr.pair(csr::INIT_LOW) & !1;
        let block = self
            .expect_bus_master(at)
            .and_then(|()| InitBlock::read(memory, at, ssize32, self.high_address()));
        let Ok(block) = block else {
            self.bus_error();
            return;
        };
        self.csr.set(csr::MODE, block.mode);
        self.csr.set_mac(block.padr);
        for (i, word) in block.ladrf.into_iter().enumerate() {
            self.csr.set(csr::LADRF + i, word);
        }
        self.csr.set_pair(csr::RX_BASE, block.rx_base);
        self.csr.set_pair(csr::TX_BASE, block.tx_base);
        let codes = u16::from(block.tx_code) << 12 | u16::from(block.rx_code) << 8;
        self.csr.set(csr::RING_LENGTHS, codes);
        for (length, left, code) in [
            (csr::RX_LENGTH, csr::RX_LEFT, block.rx_code),
            (csr::TX_LENGTH, csr::TX_LEFT, block.tx_code),
        ] {
            self.csr.set(length, init::ring_len(code));
            self.csr.set(left, init::ring_len(code));
        }
        self.csr.raise(csr::STATUS, csr0::IDON);
    }

    fn start(&mut self) {
        self.csr.clear(csr::STATUS, csr0::STOP);
        self.csr.raise(csr::STATUS, csr0::STRT);
        if !self.csr.any(csr::MODE, mode::DTX) {
            self.csr.raise(csr::STATUS, csr0::TXON);
        }
        if !self.csr.any(csr::MODE, mode::DRX) {
            self.csr.raise(csr::STATUS, csr0::RXON);
        }
    }

    /// Bits 31 to 24 of every address of the 16-bit style; none for the others.
    fn high_address(&self) -> u32 {
        match self.bcr.style() {
            RingStyle::Lance => u32::from(self.csr.get(csr::INIT_HIGH) & 0xff00) << 16,
            RingStyle::Pcnet | RingStyle::PcnetSwapped => 0,
        }
    }

    fn expect_bus_master(&self, at: u32) -> Result<(), BusError> {
        if self.pci.is_bus_master() { Ok(()) } else { Err(BusError { at, len_bytes: 0 }) }
    }

    /// A transfer addressed no memory: stops both engines and sets the error bits.
    fn bus_error(&mut self) {
        self.counters.bus_error_count += 1;
        self.pci.set_master_abort();
        self.csr.clear(csr::STATUS, csr0::TXON | csr0::RXON | csr0::TDMD);
        self.csr.raise(csr::STATUS, csr0::MERR);
        self.csr.raise(csr::EXTENDED, csr5::SINT);
    }
}
