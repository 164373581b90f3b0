//! Reference to a frame, packed into one word.

/// Buffer, offset, length and class of a frame in 64 bits: one atomic word passes it between
/// workers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame(u64);

/// Maximum number of frames of a pool.
pub const FRAME_COUNT_MAX: u32 = 1 << INDEX_BITS;

const INDEX_BITS: u32 = 24;
const OFFSET_SHIFT: u32 = INDEX_BITS;
const LEN_SHIFT: u32 = OFFSET_SHIFT + 16;
const CLASS_SHIFT: u32 = LEN_SHIFT + 16;

impl Frame {
    /// Refers to a frame in a pool of buffers.
    ///
    /// - `index`: buffer number below [`FRAME_COUNT_MAX`]; higher bits are cut off.
    /// - `offset`: position of the first byte in the buffer (the headroom), in bytes.
    /// - `len_bytes`: length.
    /// - `class`: class of service, for the sender.
    pub fn new(index: u32, offset: u16, len_bytes: u16, class: u8) -> Frame {
        Frame(
            u64::from(index & (FRAME_COUNT_MAX - 1))
                | u64::from(offset) << OFFSET_SHIFT
                | u64::from(len_bytes) << LEN_SHIFT
                | u64::from(class) << CLASS_SHIFT,
        )
    }

    /// Buffer number in the pool.
    pub fn index(self) -> u32 {
        self.0 as u32 & (FRAME_COUNT_MAX - 1)
    }

    /// Position of the frame in its buffer, in bytes.
    pub fn offset(self) -> u16 {
        (self.0 >> OFFSET_SHIFT) as u16
    }

    /// Length in bytes.
    pub fn len_bytes(self) -> u16 {
        (self.0 >> LEN_SHIFT) as u16
    }

    /// Class of service.
    pub fn class(self) -> u8 {
        (self.0 >> CLASS_SHIFT) as u8
    }

    /// The same buffer, with the frame at another position.
    pub fn moved(self, offset: u16, len_bytes: u16) -> Frame {
        Frame::new(self.index(), offset, len_bytes, self.class())
    }

    /// The same frame in another class.
    pub fn in_class(self, class: u8) -> Frame {
        Frame::new(self.index(), self.offset(), self.len_bytes(), class)
    }

    pub(super) fn to_word(self) -> u64 {
        self.0
    }

    pub(super) fn from_word(word: u64) -> Frame {
        Frame(word)
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame")
            .field("index", &self.index())
            .field("offset", &self.offset())
            .field("len_bytes", &self.len_bytes())
            .field("class", &self.class())
            .finish()
    }
}
