//! Control and status registers, reached through RAP and RDP.
//!
//! Source: Am79C970A data sheet, "Control and Status Registers"; where it leaves a choice, as
//! the device models of other monitors do, which drivers are tested against.

/// Bits of CSR0, the status and command register.
pub mod csr0 {
    /// Command: read the initialization block.
    pub const INIT: u16 = 1 << 0;
    /// Command: begin to send and receive.
    pub const STRT: u16 = 1 << 1;
    /// Command: end all activity. Also the state.
    pub const STOP: u16 = 1 << 2;
    /// Command: process the transmit ring now, without waiting for the poll.
    pub const TDMD: u16 = 1 << 3;
    /// The transmitter is on.
    pub const TXON: u16 = 1 << 4;
    /// The receiver is on.
    pub const RXON: u16 = 1 << 5;
    /// Interrupts are enabled.
    pub const INEA: u16 = 1 << 6;
    /// There is a cause for an interrupt, enabled or not.
    pub const INTR: u16 = 1 << 7;
    /// Initialization is done.
    pub const IDON: u16 = 1 << 8;
    /// A frame was sent.
    pub const TINT: u16 = 1 << 9;
    /// A frame was received.
    pub const RINT: u16 = 1 << 10;
    /// No memory answered a transfer.
    pub const MERR: u16 = 1 << 11;
    /// A frame was lost for want of a receive descriptor.
    pub const MISS: u16 = 1 << 12;
    /// Collision error; this wire has none.
    pub const CERR: u16 = 1 << 13;
    /// A frame longer than the standard allows was sent.
    pub const BABL: u16 = 1 << 14;
    /// Any of BABL, CERR, MISS, MERR.
    pub const ERR: u16 = 1 << 15;

    /// Written 1 to clear.
    pub(in super::super) const STATUS: u16 = BABL | CERR | MISS | MERR | RINT | TINT | IDON;
    /// Causes of an interrupt; their masks in CSR3 have the same positions.
    pub(in super::super) const CAUSES: u16 = STATUS & !CERR;
}

/// Bits of CSR3, interrupt masks and deferral control.
pub mod csr3 {
    /// A transmit underflow does not switch the transmitter off.
    pub const DXSUFLO: u16 = 1 << 6;
    /// Mask of the transmit interrupt.
    pub const TINTM: u16 = 1 << 9;
}

/// Bits of CSR4, test and features control.
pub mod csr4 {
    /// No polling of the transmit ring: only TDMD makes the device process it.
    pub const DPOLL: u16 = 1 << 12;
    /// Pad short frames to the minimum.
    pub const APAD_XMT: u16 = 1 << 11;
    /// Strip pad bytes from received frames with a length field.
    pub const ASTRP_RCV: u16 = 1 << 10;
    /// Command: raise a user interrupt.
    pub const UINTCMD: u16 = 1 << 7;
    /// User interrupt.
    pub const UINT: u16 = 1 << 6;
    /// A frame began to be sent.
    pub const TXSTRT: u16 = 1 << 3;

    /// Written 1 to clear: MFCO, UINT, RCVCCO, TXSTRT, JAB.
    pub(in super::super) const STATUS: u16 = 0x026a;
    /// Masks of MFCO, RCVCCO, TXSTRT and JAB, one bit below each.
    pub(in super::super) const MASKS: u16 = 0x0115;
    /// Missed-frame counter overflow.
    pub(in super::super) const MFCO: u16 = 1 << 9;
}

/// Bits of CSR5, extended control and interrupts.
pub mod csr5 {
    /// No transmit interrupt for frames that were sent without error.
    pub const TOKINTD: u16 = 1 << 15;
    /// Transmit interrupts only for descriptors that ask for one.
    pub const LTINTEN: u16 = 1 << 14;
    /// System interrupt: a transfer ended in an abort.
    pub const SINT: u16 = 1 << 11;
    /// Suspend: hold both engines, keep their state.
    pub const SPND: u16 = 1 << 0;

    /// Written 1 to clear: SINT, SLPINT, EXDINT, MPINT.
    pub(in super::super) const STATUS: u16 = 0x0a90;
    /// Enables of EXDINT and MPINT, one bit below each.
    pub(in super::super) const ENABLES: u16 = 0x0048;
    /// Enables of SINT and SLPINT, which do not depend on INEA.
    pub(in super::super) const SYSTEM_ENABLES: u16 = 0x0500;
}

/// Bits of CSR15, the mode register.
pub mod mode {
    /// Receiver off.
    pub const DRX: u16 = 1 << 0;
    /// Transmitter off.
    pub const DTX: u16 = 1 << 1;
    /// Loopback.
    pub const LOOP: u16 = 1 << 2;
    /// Do not append a frame check sequence.
    pub const DXMTFCS: u16 = 1 << 3;
    /// Force a collision (internal loopback).
    pub const FCOLL: u16 = 1 << 4;
    /// Loop back inside the chip.
    pub const INTL: u16 = 1 << 6;
    /// Do not accept our own address.
    pub const DRCVPA: u16 = 1 << 13;
    /// Do not accept broadcasts.
    pub const DRCVBC: u16 = 1 << 14;
    /// Accept every address.
    pub const PROM: u16 = 1 << 15;
}

/// CSR124 bit 3: accept frames shorter than the minimum.
pub(super) const RUNT_ACCEPT: u16 = 1 << 3;

/// Registers by number.
pub(super) const STATUS: usize = 0;
pub(super) const INIT_LOW: usize = 1;
pub(super) const INIT_HIGH: usize = 2;
pub(super) const MASKS: usize = 3;
pub(super) const FEATURES: usize = 4;
pub(super) const EXTENDED: usize = 5;
pub(super) const RING_LENGTHS: usize = 6;
pub(super) const LADRF: usize = 8;
pub(super) const PADR: usize = 12;
pub(super) const MODE: usize = 15;
const INIT_LOW_ALIAS: usize = 16;
const INIT_HIGH_ALIAS: usize = 17;
pub(super) const RX_BUFFER: usize = 18;
pub(super) const TX_BUFFER: usize = 20;
pub(super) const RX_BASE: usize = 24;
const RX_NEXT: usize = 26;
const RX_CURRENT: usize = 28;
pub(super) const TX_BASE: usize = 30;
const TX_NEXT: usize = 32;
const TX_CURRENT: usize = 34;
pub(super) const RX_COUNT_STATUS: usize = 40;
pub(super) const TX_COUNT_STATUS: usize = 42;
pub(super) const POLL_INTERVAL: usize = 47;
const STYLE: usize = 58;
pub(super) const RX_LEFT: usize = 72;
pub(super) const TX_LEFT: usize = 74;
pub(super) const RX_LENGTH: usize = 76;
pub(super) const TX_LENGTH: usize = 78;
const FIFO: usize = 80;
const CHIP_LOW: usize = 88;
const BUS_TIMEOUT: usize = 100;
pub(super) const MISSED: usize = 112;
pub(super) const TEST: usize = 124;

/// Part number 0x2621 (PCnet-PCI II), manufacturer AMD: what drivers know the chip by.
const CHIP_ID: u32 = 0x0262_1003;

/// The register file.
#[derive(Debug, Clone)]
pub(super) struct Csr {
    words: [u16; 128],
}

impl Csr {
    pub(super) fn new(mac: [u8; 6]) -> Self {
        let mut csr = Csr { words: [0; 128] };
        csr.reset(mac);
        csr
    }

    /// State that both kinds of reset share.
    pub(super) fn reset(&mut self, mac: [u8; 6]) {
        let old_mode = self.words[MODE];
        let old_base = [RX_BASE, TX_BASE].map(|at| self.pair(at));
        self.words = [0; 128];
        self.words[STATUS] = csr0::STOP;
        self.words[FEATURES] = 0x0115;
        self.set_mac(mac);
        // The port selection survives.
        self.words[MODE] = old_mode & 0x21c4;
        // So do the rings, which nothing reads before they are set again.
        self.set_pair(RX_BASE, old_base[0]);
        self.set_pair(TX_BASE, old_base[1]);
        for at in [RX_LEFT, TX_LEFT, RX_LENGTH, TX_LENGTH] {
            self.words[at] = 1;
        }
        self.words[FIFO] = 0x1410;
        self.set_pair(CHIP_LOW, CHIP_ID);
        self.words[BUS_TIMEOUT] = 0x0200;
    }

    /// The STOP command: clears status, keeps features.
    pub(super) fn stop(&mut self) {
        self.words[STATUS] = csr0::STOP;
        // The user interrupt and its command, and the causes that count frames.
        self.words[FEATURES] &= !0x02c2;
        self.words[EXTENDED] &= !(0x0010 | csr5::SPND);
    }

    pub(super) fn get(&self, at: usize) -> u16 {
        self.words[at]
    }

    pub(super) fn set(&mut self, at: usize, value: u16) {
        self.words[at] = value;
    }

    /// True if any of `bits` is set in register `at`.
    pub(super) fn any(&self, at: usize, bits: u16) -> bool {
        self.words[at] & bits != 0
    }

    pub(super) fn raise(&mut self, at: usize, bits: u16) {
        self.words[at] |= bits;
    }

    pub(super) fn clear(&mut self, at: usize, bits: u16) {
        self.words[at] &= !bits;
    }

    /// A 32-bit value in two registers, low half first.
    pub(super) fn pair(&self, at: usize) -> u32 {
        u32::from(self.words[at]) | u32::from(self.words[at + 1]) << 16
    }

    pub(super) fn set_pair(&mut self, at: usize, value: u32) {
        self.words[at] = value as u16;
        self.words[at + 1] = (value >> 16) as u16;
    }

    pub(super) fn set_mac(&mut self, mac: [u8; 6]) {
        for (i, pair) in mac.chunks_exact(2).enumerate() {
            self.words[PADR + i] = u16::from_le_bytes([pair[0], pair[1]]);
        }
    }

    /// The address that the receiver answers to.
    pub(super) fn mac(&self) -> [u8; 6] {
        let [a, b, c] = [0, 1, 2].map(|i| self.words[PADR + i].to_le_bytes());
        [a[0], a[1], b[0], b[1], c[0], c[1]]
    }

    /// STOP or SPND: the registers that describe the rings may be written.
    pub(super) fn is_open(&self) -> bool {
        self.any(STATUS, csr0::STOP) || self.any(EXTENDED, csr5::SPND)
    }

    /// True if an interrupt cause is present and not masked.
    pub(super) fn has_cause(&self) -> bool {
        self.status_causes() != 0 || self.has_other_cause()
    }

    /// Those of CSR0.
    fn status_causes(&self) -> u16 {
        self.words[STATUS] & !self.words[MASKS] & csr0::CAUSES
    }

    /// Those of CSR4 and CSR5.
    fn has_other_cause(&self) -> bool {
        let (features, extended) = (self.words[FEATURES], self.words[EXTENDED]);
        (features >> 1) & !features & csr4::MASKS != 0
            || features & csr4::UINT != 0
            || (extended >> 1) & extended & csr5::ENABLES != 0
            || self.has_system_cause()
    }

    fn has_system_cause(&self) -> bool {
        let extended = self.words[EXTENDED];
        (extended >> 1) & extended & csr5::SYSTEM_ENABLES != 0
    }

    /// Level of the interrupt line.
    pub(super) fn irq(&self) -> bool {
        self.has_system_cause() || self.any(STATUS, csr0::INEA) && self.has_cause()
    }

    /// True if sent frames are the only cause of the interrupt.
    pub(super) fn irq_tells_only_of_sent(&self) -> bool {
        self.irq() && self.status_causes() == csr0::TINT && !self.has_other_cause()
    }

    /// CSR0 with its derived bits.
    pub(super) fn status(&self) -> u16 {
        let stored = self.words[STATUS];
        let errors = stored & (csr0::BABL | csr0::CERR | csr0::MISS | csr0::MERR) != 0;
        stored | if errors { csr0::ERR } else { 0 } | if self.has_cause() { csr0::INTR } else { 0 }
    }

    /// Value that software reads from register `at` (modulo 128); `style` is BCR20.
    pub(super) fn read(&self, at: u8, style: u16, descriptor: impl Fn(bool, u32) -> u32) -> u16 {
        let at = usize::from(at & 0x7f);
        // The lower half of a pair of registers at an even offset, or the upper one.
        let shift = 16 * (at % 2);
        match at {
            STATUS => self.status(),
            INIT_LOW_ALIAS => self.words[INIT_LOW],
            INIT_HIGH_ALIAS => self.words[INIT_HIGH],
            STYLE => style,
            RX_NEXT..=27 => (descriptor(true, 1) >> shift) as u16,
            RX_CURRENT..=29 => (descriptor(true, 0) >> shift) as u16,
            TX_NEXT..=33 => (descriptor(false, 1) >> shift) as u16,
            TX_CURRENT..=35 => (descriptor(false, 0) >> shift) as u16,
            _ => self.words[at],
        }
    }

    /// Writes register `at`, other than CSR0 and CSR58.
    pub(super) fn write(&mut self, at: u8, value: u16) {
        let at = usize::from(at & 0x7f);
        match at {
            MASKS | MODE if at == MASKS || self.is_open() => self.words[at] = value,
            FEATURES => {
                let kept = self.words[at] & !value & csr4::STATUS;
                // The command bit is not stored: what it does is the user interrupt.
                let command = value & csr4::UINTCMD != 0;
                self.words[at] = value & !csr4::STATUS & !csr4::UINTCMD | kept;
                if command {
                    self.words[at] |= csr4::UINT;
                }
            }
            EXTENDED => {
                let kept = self.words[at] & !value & csr5::STATUS;
                self.words[at] = value & !csr5::STATUS | kept;
            }
            INIT_LOW_ALIAS if self.is_open() => self.words[INIT_LOW] = value,
            INIT_HIGH_ALIAS if self.is_open() => self.words[INIT_HIGH] = value,
            1 | 2 | 8..=14 | 18..=25 | 30 | 31 | 40..=47 | 72 | 74 | 76 | 78 | MISSED
                if self.is_open() =>
            {
                self.words[at] = value;
            }
            FIFO | 82 | BUS_TIMEOUT | TEST => self.words[at] = value,
            // Read-only, derived, reserved, or locked while the engines run.
            _ => {}
        }
    }
}
