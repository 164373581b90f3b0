//! Encryption in the workers: packets are encrypted after their outer headers are written, and decrypted
//! before those are read.
//!
//! The sequence number follows from a frame's position in its order, so workers encrypt in parallel and
//! numbers ascend on the wire.

use super::counts::add;
use super::{Forwarder, Rules};
use crate::decap::Inner;
use crate::encap::Place;
use crate::esp::{OpenError, Sealing};

const POSITION_BYTES: usize = 8;

/// Writes a frame's position in front of it, for the egress, which copies it into several tunnels. Without
/// room the copies are not sent.
pub(super) fn note_position(bytes: &mut [u8], frame: Place, position: u64) {
    let at = frame.at.saturating_sub(POSITION_BYTES);
    if let Some(to) = bytes.get_mut(at..frame.at).and_then(|to| to.first_chunk_mut()) {
        *to = position.to_be_bytes();
    }
}

/// Position in front of a frame.
pub(super) fn noted_position(bytes: &[u8], frame: Place) -> Option<u64> {
    let at = frame.at.checked_sub(POSITION_BYTES)?;
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

impl Forwarder<'_> {
    /// Encrypts a packet if its tunnel is encrypted. `None` if that fails, which is counted.
    ///
    /// - `sealing`: of the last packet of the batch.
    #[inline]
    pub(super) fn seal<'r>(
        &self,
        rules: &'r Rules,
        sealing: &mut Option<(usize, Sealing<'r>)>,
        tunnel: usize,
        bytes: &mut [u8],
        whole: Place,
        position: u64,
    ) -> Option<Place> {
        let Some(association) = rules.protection.of(tunnel) else { return Some(whole) };
        if sealing.as_ref().is_none_or(|(of, _)| *of != tunnel) {
            *sealing = Some((tunnel, association.sender.sealing()));
        }
        let (_, sealing) = sealing.as_mut()?;
        let sealed = sealing.seal(bytes, whole, position);
        sealed.map_err(|reason| add(&self.counts.seal_drops[reason.index()])).ok()
    }

    /// Finds the inner frame of a packet, which is decrypted before. Errors are counted.
    #[inline]
    pub(super) fn open(&self, rules: &Rules, bytes: &mut [u8], frame: Place) -> Result<Inner, ()> {
        let counts = &self.counts;
        if rules.protection.is_empty() {
            let opened = rules.decap.open(bytes, frame);
            return opened.map_err(|reason| add(&counts.decap_drops[reason.index()]));
        }
        let refused = |reason: OpenError| add(&counts.open_drops[reason.index()]);
        let opened = rules.protection.open(bytes, frame).map_err(refused)?;
        let (place, encrypted) = opened.map_or((frame, None), |(at, tunnel)| (at, Some(tunnel)));
        let inner = rules.decap.open(bytes, place);
        let inner = inner.map_err(|reason| add(&counts.decap_drops[reason.index()]))?;
        let reason = match encrypted {
            Some(tunnel) if tunnel != inner.tunnel => OpenError::WrongTunnel,
            None if rules.protection.of(inner.tunnel).is_some() => OpenError::Clear,
            _ => return Ok(inner),
        };
        refused(reason);
        Err(())
    }
}
