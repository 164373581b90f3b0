//! Headroom that interfaces need, which netlink does not report.

use std::collections::BTreeMap;

use super::error::BpfError;
use super::hooks::read_inside;
use super::object::embedded;
use crate::netns::Netns;

/// `needed_headroom` in bytes of the first 512 interfaces of a namespace, by index.
///
/// # Errors
/// [`BpfError::Permission`] without CAP_BPF and CAP_PERFMON; [`BpfError::Load`] where the kernel has
/// no BTF or no task iterator (before 5.8), or is locked down against reading its memory.
pub fn headrooms(netns: &Netns) -> Result<BTreeMap<u32, u16>, BpfError> {
    let text = read_inside(netns, "headrooms", embedded!("headrooms"))?;
    Ok(text.lines().filter_map(parse).collect())
}

fn parse(line: &str) -> Option<(u32, u16)> {
    let (index, bytes) = line.split_once(' ')?;
    Some((index.parse().ok()?, bytes.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_and_nonsense_is_not() {
        assert_eq!(parse("7 50"), Some((7, 50)));
        for bad in ["", "7", "x 1", "7 70000", "-1 3"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_new_namespace_has_one_interface_that_asks_for_nothing() {
        let found = headrooms(&Netns::new().unwrap()).unwrap();
        assert_eq!(found.get(&1), Some(&0), "{found:?}");
    }
}
