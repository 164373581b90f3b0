//! Counters of an interface's driver, by their own names.

use std::io;

use super::call;

const GSSET_INFO: u32 = 0x37;
const GSTRINGS: u32 = 0x1b;
const GSTATS: u32 = 0x1d;
const SS_STATS: u32 = 1;
/// Length of a name with its zero bytes.
const NAME_BYTES: usize = 32;
/// Most counters that are read; a card with a hundred queues has thousands.
const COUNT_MAX: usize = 1 << 14;
/// Room for each answer, counters: a driver that gets more queues meanwhile writes more than it announced.
const ROOM: usize = COUNT_MAX * 4;

/// Returns what `ethtool -S` prints: names and counts.
///
/// Errors: EOPNOTSUPP for a driver without counters, or with more than 16,384; ENODEV without the interface.
///
/// Source: linux/ethtool.h, struct ethtool_sset_info, ethtool_gstrings and ethtool_stats.
pub fn statistics(ifindex: u32) -> io::Result<Vec<(String, u64)>> {
    // command, reserved, mask of sets (two words), count
    let mut info = [GSSET_INFO, 0, 0, 0, 0];
    info[super::low()] = 1 << SS_STATS;
    call(ifindex, &mut info)?;
    let count = info[4] as usize;
    if count == 0 || count > COUNT_MAX {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    // command, set, count, names
    let mut names = vec![0_u32; 3 + ROOM * NAME_BYTES / 4];
    names[..3].copy_from_slice(&[GSTRINGS, SS_STATS, count as u32]);
    call(ifindex, &mut names)?;
    // command, count, counters of two words
    let mut counts = vec![0_u32; 2 + ROOM * 2];
    counts[..2].copy_from_slice(&[GSTATS, count as u32]);
    call(ifindex, &mut counts)?;
    // Another number of queues meanwhile: the names are not those of the counts.
    if (names[2], counts[1]) != (count as u32, count as u32) {
        return Err(io::Error::from_raw_os_error(libc::EAGAIN));
    }
    let names = names[3..].chunks_exact(NAME_BYTES / 4).map(name_of);
    let counts = counts[2..].chunks_exact(2).map(|words| word_pair(words[0], words[1]));
    Ok(names.zip(counts).take(count).collect())
}

fn name_of(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).trim().to_owned()
}

/// A number of 64 bits from its words in memory.
fn word_pair(first: u32, second: u32) -> u64 {
    let (low, high) =
        if cfg!(target_endian = "little") { (first, second) } else { (second, first) };
    u64::from(low) | u64::from(high) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_a_zero_byte_and_counts_have_two_words() {
        let mut bytes = [0; NAME_BYTES];
        bytes[..10].copy_from_slice(b"  rx_drops");
        let words: Vec<u32> = bytes
            .chunks_exact(4)
            .map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap()))
            .collect();
        assert_eq!(name_of(&words), "rx_drops");
        let bytes = 0x1_0000_00f0_u64.to_ne_bytes();
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(word_pair(word(0), word(4)), 0x1_0000_00f0);
    }

    #[test]
    fn loopback_has_no_counters_of_a_driver() {
        let refused = |index| statistics(index).unwrap_err().raw_os_error();
        // SAFETY: a constant C string.
        let lo = unsafe { libc::if_nametoindex(c"lo".as_ptr()) };
        assert_eq!(refused(lo), Some(libc::EOPNOTSUPP));
        assert_eq!(refused(u32::MAX), Some(libc::ENODEV));
    }
}
