//! Bus control registers, reached through RAP and BDP.

/// BCR20 bit 8: 32-bit structures.
pub(super) const SSIZE32: u16 = 1 << 8;
/// BCR18 bit 7: 32-bit port accesses.
const DWIO: u16 = 1 << 7;

const MISC: usize = 2;
const LED0: usize = 4;
const LED3: usize = 7;
const BURST: usize = 18;
const STYLE: usize = 20;

/// Layout of rings and of the initialization block in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingStyle {
    /// The Lance's: 16-bit, descriptors of 8 bytes, addresses of 24 bits.
    Lance,
    /// 32-bit, descriptors of 16 bytes (software styles 1 and 2).
    Pcnet,
    /// As [`RingStyle::Pcnet`] with the first and the third word changed over, so that the three
    /// words that matter are written in ascending order.
    PcnetSwapped,
}

/// The register file.
#[derive(Debug, Clone)]
pub(super) struct Bcr {
    words: [u16; 32],
}

impl Bcr {
    pub(super) fn new() -> Self {
        let mut words = [0; 32];
        words[0] = 0x0005;
        words[1] = 0x0005;
        words[MISC] = 0x0002;
        // The link is up: LED 0 shows it and is lit.
        words[LED0] = 0x00c0;
        words[5] = 0x0084;
        words[6] = 0x0088;
        words[LED3] = 0x0090;
        words[BURST] = 0x9001;
        words[19] = 0x0002;
        words[STYLE] = 0x0200;
        words[22] = 0xff06;
        Bcr { words }
    }

    /// A soft reset leaves all but the width of port accesses.
    pub(super) fn soft_reset(&mut self) {
        self.words[BURST] &= !DWIO;
    }

    pub(super) fn is_dwio(&self) -> bool {
        self.words[BURST] & DWIO != 0
    }

    pub(super) fn set_dwio(&mut self) {
        self.words[BURST] |= DWIO;
    }

    /// BCR2 bit 8: the address PROM's shadow may be written.
    pub(super) fn aprom_is_writable(&self) -> bool {
        self.words[MISC] & (1 << 8) != 0
    }

    pub(super) fn style_word(&self) -> u16 {
        self.words[STYLE]
    }

    pub(super) fn style(&self) -> RingStyle {
        match self.words[STYLE] & 0xff {
            0 => RingStyle::Lance,
            3 => RingStyle::PcnetSwapped,
            _ => RingStyle::Pcnet,
        }
    }

    pub(super) fn read(&self, at: u8) -> u16 {
        let at = usize::from(at);
        let Some(&word) = self.words.get(at) else { return 0 };
        match at {
            // Bit 15 tells whether the LED is lit; bit 6 selects the link as its reason.
            LED0..=LED3 => word & 0x7fff | if word & 0x0040 != 0 { 0x8000 } else { 0 },
            _ => word,
        }
    }

    /// `open`: STOP or SPND is set, without which the software style stays.
    pub(super) fn write(&mut self, at: u8, value: u16, open: bool) {
        match usize::from(at) {
            at @ (MISC | LED0..=LED3 | 9 | 16 | 17 | 21 | 22) => self.words[at] = value,
            BURST => self.words[BURST] = value & !DWIO | self.words[BURST] & DWIO,
            STYLE if open => {
                self.words[STYLE] = match value & 0xff {
                    0 => 0x0200,
                    1 => 0x0101,
                    // CSRPCNET, beside the size.
                    style @ (2 | 3) => 0x0200 | SSIZE32 | style,
                    // Reserved: stays what it was.
                    _ => return,
                };
            }
            _ => {}
        }
    }
}
