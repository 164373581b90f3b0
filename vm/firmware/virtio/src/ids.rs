//! Buffer ids of a queue.

/// Ids of a queue, `0..size`: free, or in use by the device with a token of the driver.
///
/// The device returns ids in any order (2.7.14, 2.8); returned ids refill the free list.
pub(crate) struct Ids<const N: usize> {
    size: u16,
    free: [u16; N],
    free_count: u16,
    /// Token of each id in use.
    posted: [Option<u16>; N],
}

impl<const N: usize> Ids<N> {
    pub(crate) fn new(size: u16) -> Self {
        assert!(size > 0 && usize::from(size) <= N, "queue size {size}");
        let mut free = [0; N];
        for (index, id) in free.iter_mut().take(usize::from(size)).enumerate() {
            // The last one pushed is popped first, so ids are used from 0 on.
            *id = size - 1 - index as u16;
        }
        Ids { size, free, free_count: size, posted: [None; N] }
    }

    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    pub(crate) fn posted_count(&self) -> u16 {
        self.size - self.free_count
    }

    /// Takes an id for a buffer; `None` if the device has all of them.
    pub(crate) fn take(&mut self, token: u16) -> Option<u16> {
        let left = self.free_count.checked_sub(1)?;
        let id = self.free[usize::from(left)];
        self.free_count = left;
        self.posted[usize::from(id)] = Some(token);
        Some(id)
    }

    /// Frees a returned id. Returns the token of its buffer, or `None` without effect if the id is
    /// not in use: the device may return any number.
    pub(crate) fn give(&mut self, id: u32) -> Option<u16> {
        let place = usize::try_from(id).ok().filter(|id| *id < usize::from(self.size))?;
        let token = self.posted[place].take()?;
        self.free[usize::from(self.free_count)] = id as u16;
        self.free_count += 1;
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_freed_once_and_only_while_in_use() {
        let mut ids = Ids::<8>::new(5);
        let taken: std::vec::Vec<u16> = (10..20).filter_map(|token| ids.take(token)).collect();
        assert_eq!((taken, ids.posted_count()), (std::vec![0, 1, 2, 3, 4], 5));
        assert_eq!(
            (ids.give(3), ids.give(3), ids.give(5), ids.give(u32::MAX)),
            (Some(13), None, None, None)
        );
        assert_eq!((ids.posted_count(), ids.take(99)), (4, Some(3)));
    }
}
