//! Rules by which a device steers the packets of some flows to a receive queue.

use std::io;

use super::{RXNFC_WORDS, call, rxnfc};

const GRXCLSRLCNT: u32 = 0x2e;
const GRXCLSRULE: u32 = 0x2f;
const GRXCLSRLALL: u32 = 0x30;
const SRXCLSRLDEL: u32 = 0x31;
const SRXCLSRLINS: u32 = 0x32;

/// Words of `struct ethtool_rxnfc`: those of its `struct ethtool_rx_flow_spec`, then those for lists.
const FLOW_TYPE: usize = 4;
const FIELDS: usize = 5;
const MASK: usize = 23;
const QUEUE: usize = 42;
const LOCATION: usize = 44;
const RULE_COUNT: usize = 46;
const LOCATIONS: usize = 47;

/// Bytes of the fields that a rule compares, `union ethtool_flow_union`.
pub const FIELDS_BYTES: usize = 52;

/// More rules than any device holds.
const RULES_MAX: u32 = 1 << 16;

/// One rule, in the kernel's own form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowRule {
    /// Place in the device's table; of two rules that fit, the lower one counts.
    pub location: u32,
    /// `TCP_V4_FLOW` and so on, with flags such as `FLOW_EXT`.
    pub flow_type: u32,
    /// Fields of the packet in network byte order, as in the structure that the type selects.
    pub fields: [u8; FIELDS_BYTES],
    /// Bits of the fields that count.
    pub mask: [u8; FIELDS_BYTES],
    /// Receive queue, or `RX_CLS_FLOW_DISC` to drop.
    pub queue: u64,
}

impl FlowRule {
    fn request(&self, command: u32) -> [u32; RXNFC_WORDS] {
        let mut request = rxnfc(command);
        request[FLOW_TYPE] = self.flow_type;
        put(&mut request[FIELDS..], &self.fields);
        put(&mut request[MASK..], &self.mask);
        put(&mut request[QUEUE..], &self.queue.to_ne_bytes());
        request[LOCATION] = self.location;
        request
    }

    fn from_answer(answer: &[u32; RXNFC_WORDS]) -> Self {
        FlowRule {
            location: answer[LOCATION],
            flow_type: answer[FLOW_TYPE],
            fields: bytes(&answer[FIELDS..]),
            mask: bytes(&answer[MASK..]),
            queue: u64::from_ne_bytes(bytes(&answer[QUEUE..])),
        }
    }
}

/// Writes bytes as words; there is a multiple of four of them.
fn put(words: &mut [u32], bytes: &[u8]) {
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
}

fn bytes<const N: usize>(words: &[u32]) -> [u8; N] {
    let mut bytes = [0; N];
    for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// Rules of a device, by location.
///
/// Errors: EOPNOTSUPP if the driver has none; EMSGSIZE if one was added meanwhile; ENODEV.
pub fn flow_rules(ifindex: u32) -> io::Result<Vec<FlowRule>> {
    let mut request = rxnfc(GRXCLSRLCNT);
    call(ifindex, &mut request)?;
    let count = request[RULE_COUNT];
    if count > RULES_MAX {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    let mut locations = locations(ifindex, count)?;
    locations.sort_unstable();
    locations.into_iter().map(|location| flow_rule(ifindex, location)).collect()
}

fn locations(ifindex: u32, count: u32) -> io::Result<Vec<u32>> {
    if count == 0 {
        // Without room for one, the kernel passes the driver none, and drivers differ in how they take that.
        return Ok(Vec::new());
    }
    let mut request = vec![0; RXNFC_WORDS + count as usize];
    request[0] = GRXCLSRLALL;
    request[RULE_COUNT] = count;
    call(ifindex, &mut request)?;
    let count = request[RULE_COUNT].min(count) as usize;
    Ok(request[LOCATIONS..][..count].to_vec())
}

fn flow_rule(ifindex: u32, location: u32) -> io::Result<FlowRule> {
    let mut request = rxnfc(GRXCLSRULE);
    request[LOCATION] = location;
    call(ifindex, &mut request)?;
    Ok(FlowRule { location, ..FlowRule::from_answer(&request) })
}

/// Adds a rule.
///
/// Errors: EINVAL, EOPNOTSUPP and others if the driver cannot hold such a rule, or not while `ntuple` is
/// off; EPERM without CAP_NET_ADMIN; ENODEV.
pub fn insert_flow_rule(ifindex: u32, rule: &FlowRule) -> io::Result<()> {
    call(ifindex, &mut rule.request(SRXCLSRLINS))
}

/// Removes the rule at a location. Errors: as of [`insert_flow_rule`]; most drivers say ENOENT or EINVAL
/// if there is none.
pub fn delete_flow_rule(ifindex: u32, location: u32) -> io::Result<()> {
    let mut request = rxnfc(SRXCLSRLDEL);
    request[LOCATION] = location;
    call(ifindex, &mut request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> FlowRule {
        let mut rule = FlowRule {
            location: 7,
            flow_type: 2,
            fields: [0; FIELDS_BYTES],
            mask: [0; FIELDS_BYTES],
            queue: 3,
        };
        rule.fields[10..12].copy_from_slice(&4789_u16.to_be_bytes());
        rule.fields[51] = 9;
        rule.mask[10..12].fill(0xff);
        rule
    }

    #[test]
    fn a_rule_is_where_the_kernel_looks_for_it() {
        let request = rule().request(SRXCLSRLINS);
        assert_eq!(FlowRule::from_answer(&request), rule());
        let bytes: Vec<u8> = request.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // Offsets of linux/ethtool.h, by offsetof.
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!([word(0), word(16), word(176), word(184)], [SRXCLSRLINS, 2, 7, 0]);
        assert_eq!(bytes[20 + 10..20 + 12], 4789_u16.to_be_bytes());
        assert_eq!((bytes[20 + 51], bytes[72]), (9, 0));
        assert_eq!(bytes[92 + 10..92 + 12], [0xff; 2]);
        assert_eq!(bytes[168..176], 3_u64.to_ne_bytes());
    }

    #[test]
    fn loopback_has_no_rules_and_takes_none() {
        // SAFETY: a constant C string.
        let lo = unsafe { libc::if_nametoindex(c"lo".as_ptr()) };
        let refused = |result: io::Result<()>| result.unwrap_err().raw_os_error();
        assert_eq!(refused(flow_rules(lo).map(drop)), Some(libc::EOPNOTSUPP));
        assert_eq!(refused(flow_rules(u32::MAX).map(drop)), Some(libc::ENODEV));
        let unchanged = [Some(libc::EOPNOTSUPP), Some(libc::EPERM)];
        assert!(unchanged.contains(&refused(insert_flow_rule(lo, &rule()))));
        assert!(unchanged.contains(&refused(delete_flow_rule(lo, 7))));
    }
}
