//! Copies and clones of frames by the function that asked for them.

use std::collections::BTreeMap;

use serde::Serialize;
use sys::bpf::observer::{CopyCounts, FramePlace};

use super::names;
use crate::explain::symbols::Symbols;

/// Copies or clones that one caller made of frames of one interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ObservedCopies {
    /// Inode number of the interface's network namespace.
    pub netns: u32,
    /// Interface that the frame belonged to then.
    pub index: u32,
    pub interface: String,
    /// Kernel function that copied or cloned: `pskb_expand_head`, `skb_copy_bits`.
    pub function: String,
    /// First function above it that is no helper of the stack; `?` if the call chain was not seen.
    pub caller: String,
    /// Kernel module of the caller; `None` if it is built in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Commonest call chain, from the caller outwards.
    pub chain: Vec<String>,
    pub count: u64,
    /// Bytes copied; 0 of clones.
    pub bytes: u64,
    /// Of frames that were clones, or had clones: those are copied whatever room they have.
    pub shared_count: u64,
}

impl ObservedCopies {
    /// Mean of the bytes copied.
    pub fn bytes_each(&self) -> u64 {
        self.bytes.checked_div(self.count).unwrap_or(0)
    }

    /// The caller, with its module.
    pub fn by(&self) -> String {
        match &self.module {
            Some(module) => format!("{} [{module}]", self.caller),
            None => self.caller.clone(),
        }
    }
}

const CLONE: &str = "skb_clone";
const UNKNOWN: &str = "?";

/// Functions that copy; one that another of them calls is a part of that copy.
const COPYING: [&str; 6] = [
    "pskb_expand_head",
    "skb_copy",
    "skb_copy_expand",
    "__pskb_copy_fclone",
    "__pskb_pull_tail",
    "skb_copy_bits",
];

/// Functions that copy or clone for whatever calls them.
const HELPERS: [&str; 12] = [
    CLONE,
    "skb_clone_sk",
    "__skb_cow",
    "skb_realloc_headroom",
    "skb_expand_head",
    "skb_ensure_writable",
    "skb_ensure_writable_head_tail",
    "skb_cow_data",
    "skb_cow_data_for_xdp",
    "skb_pp_cow_data",
    "skb_share_check",
    "skb_unshare",
];

/// Call chain behind `function`, innermost first, and the module of the first one that is no helper.
/// `None` if the copy is a part of another.
fn callers(counts: &CopyCounts, symbols: &Symbols) -> Option<(Vec<String>, Option<String>)> {
    let names: Vec<String> = counts.chain.iter().map(|address| symbols.name(*address)).collect();
    // The program that counted is in front of it.
    let Some(at) = names.iter().position(|name| *name == counts.function) else {
        return Some((vec![UNKNOWN.to_owned()], None));
    };
    let behind = &names[at + 1..];
    if behind.first().is_some_and(|name| COPYING.contains(&name.as_str())) {
        return None;
    }
    let skipped = behind.iter().position(|name| !HELPERS.contains(&name.as_str()))?;
    let module = symbols.module(counts.chain[at + 1 + skipped]);
    Some((behind[skipped..].to_vec(), module))
}

/// Copies, most bytes first, and clones, most first.
pub(super) fn rows(
    counts: &[CopyCounts],
    symbols: &Symbols,
    interfaces: &BTreeMap<FramePlace, String>,
) -> (Vec<ObservedCopies>, Vec<ObservedCopies>) {
    let mut rows = BTreeMap::<(FramePlace, &str, String), (ObservedCopies, u64)>::new();
    for one in counts {
        let Some((chain, module)) = callers(one, symbols) else { continue };
        let key = (one.place, one.function, chain[0].clone());
        let (row, largest) = rows.entry(key).or_insert_with(|| {
            let row = ObservedCopies {
                netns: one.place.netns,
                index: one.place.ifindex,
                interface: names::of(interfaces, one.place),
                function: one.function.to_owned(),
                caller: chain[0].clone(),
                module,
                chain: Vec::new(),
                count: 0,
                bytes: 0,
                shared_count: 0,
            };
            (row, 0)
        });
        row.count += one.count;
        row.bytes += one.bytes;
        row.shared_count += one.shared;
        if one.count > *largest {
            (*largest, row.chain) = (one.count, chain);
        }
    }
    let rows = rows.into_values().map(|(row, _)| row);
    let (mut clones, mut copies): (Vec<_>, Vec<_>) = rows.partition(|row| row.function == CLONE);
    clones.sort_by_key(|row| std::cmp::Reverse(row.count));
    copies.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    (copies, clones)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "ffff0100 t bpf_prog_1_expand_head\t[bpf]\nffff0200 T pskb_expand_head\n\
                           ffff0300 t gre_tap_xmit\t[ip_gre]\nffff0400 T dev_hard_start_xmit\n\
                           ffff0500 T __pskb_pull_tail\nffff0600 T __skb_cow\n";

    fn counts(chain: &[u64], count: u64) -> CopyCounts {
        CopyCounts {
            place: FramePlace { netns: 1, ifindex: 3 },
            function: "pskb_expand_head",
            chain: chain.to_vec(),
            count,
            bytes: count * 100,
            shared: 0,
        }
    }

    #[test]
    fn a_copy_is_the_caller_s_whatever_helper_it_used_and_is_counted_once() {
        let symbols = Symbols::parse(SYMBOLS);
        let all = [
            counts(&[0xffff_0110, 0xffff_0210, 0xffff_0310, 0xffff_0410], 5),
            counts(&[0xffff_0110, 0xffff_0210, 0xffff_0610, 0xffff_0310], 2),
            // A part of a copy of another kind.
            counts(&[0xffff_0110, 0xffff_0210, 0xffff_0510, 0xffff_0310], 9),
            counts(&[], 1),
        ];
        let names = BTreeMap::from([(all[0].place, "gt".to_owned())]);
        let (copies, clones) = rows(&all, &symbols, &names);
        assert!(clones.is_empty());
        let [of_gre, unknown] = &copies[..] else { panic!("{copies:#?}") };
        assert_eq!((of_gre.count, of_gre.bytes_each()), (7, 100));
        assert_eq!(of_gre.by(), "gre_tap_xmit [ip_gre]");
        assert_eq!(of_gre.chain, ["gre_tap_xmit", "dev_hard_start_xmit"]);
        assert_eq!((unknown.caller.as_str(), unknown.count), (UNKNOWN, 1));
        assert_eq!(of_gre.interface, "gt");
    }
}
