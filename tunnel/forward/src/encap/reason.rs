//! Reasons for which a frame is not encapsulated.

/// Reason for a frame that is not encapsulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum EncapDrop {
    /// Shorter than an Ethernet header.
    #[error("shorter than an Ethernet header")]
    Runt,
    /// Larger than the MTU once the outer headers are added; see [`super::Encap::inner_bytes_max`].
    #[error("larger than the tunnel's MTU")]
    TooBig,
    /// Headroom too small, or frame outside the buffer.
    #[error("not enough headroom")]
    NoHeadroom,
    /// Packet of this same tunnel: a loop.
    #[error("packet of this same tunnel (loop)")]
    Looped,
}

impl EncapDrop {
    /// All reasons, in the order of [`Self::index`].
    pub const ALL: [EncapDrop; 4] =
        [EncapDrop::Runt, EncapDrop::TooBig, EncapDrop::NoHeadroom, EncapDrop::Looped];

    /// Index in [`Self::ALL`], for an array of counters.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Name of its counter.
    pub fn name(self) -> &'static str {
        match self {
            EncapDrop::Runt => "runt",
            EncapDrop::TooBig => "too_big",
            EncapDrop::NoHeadroom => "no_headroom",
            EncapDrop::Looped => "looped",
        }
    }
}
