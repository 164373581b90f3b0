//! Counters of the kernel beside the drops that were seen as packets: packets are traced a part of the time, and not
//! every refusal frees a packet with a reason.

use std::collections::{BTreeMap, BTreeSet};

use sys::bpf::explain::TraceScope;

use super::drop_sentences;
use super::drops::{DropRow, Spaces};
use crate::causes::counters_here;

/// Counters that grew together.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CounterRow {
    /// Drop reason that the same packets have, or the nearest one.
    pub reason: &'static str,
    pub sentence: &'static str,
    pub remedy: &'static str,
    pub undo: &'static str,
    /// Network namespace: name of `ip netns`, or a process in it; `None` for the one of this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Growth by the names of `nstat`, in the whole time.
    pub grown: BTreeMap<&'static str, u64>,
    /// Sum of `grown`.
    pub count: u64,
    /// Packets that were seen to be dropped for that reason there.
    pub seen_count: u64,
}

/// Counters of the traced namespaces at the begin, by the namespace's inode.
#[derive(Debug, Default)]
pub(super) struct Before {
    by_netns: BTreeMap<u32, BTreeMap<String, u64>>,
}

impl Before {
    /// Reads the counters of the namespaces that are named.
    pub(super) fn read(scopes: &[TraceScope]) -> Before {
        let netns: BTreeSet<u32> = scopes.iter().map(|scope| scope.netns).collect();
        let mut spaces = Spaces::default();
        let read = |inode| {
            spaces.open(inode);
            Some((inode, spaces.opened(inode)?.run(counters_here)?))
        };
        Before { by_netns: netns.into_iter().filter_map(read).collect() }
    }

    /// Counters that grew by more than the drops explain.
    pub(super) fn grown(&self, spaces: &mut Spaces, drops: &[DropRow]) -> Vec<CounterRow> {
        let mut rows = Vec::new();
        for (inode, before) in &self.by_netns {
            spaces.open(*inode);
            let Some(space) = spaces.opened(*inode) else { continue };
            let Some(after) = space.run(counters_here) else { continue };
            rows.extend(rows_of(*inode, space.name.as_ref(), before, &after, drops));
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.count));
        rows
    }
}

fn rows_of(
    inode: u32,
    netns: Option<&String>,
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
    drops: &[DropRow],
) -> Vec<CounterRow> {
    let count_of = |counters: &BTreeMap<String, u64>, name: &str| counters.get(name).copied();
    let mut rows = Vec::new();
    for known in drop_sentences::counted() {
        let mut grown = BTreeMap::new();
        for name in known.counters {
            let begin = count_of(before, name).unwrap_or(0);
            let growth = count_of(after, name).unwrap_or(0).saturating_sub(begin);
            if growth > 0 {
                grown.insert(*name, growth);
            }
        }
        let count = grown.values().sum();
        let own = drops.iter().filter(|row| known.has(&row.reason)).flat_map(|row| &row.kinds);
        let seen_count = own.filter(|kind| kind.netns == inode).map(|kind| kind.count).sum();
        if count > seen_count {
            rows.push(CounterRow {
                reason: known.reason(),
                sentence: known.sentence,
                remedy: known.remedy,
                undo: known.undo,
                netns: netns.cloned(),
                grown,
                count,
                seen_count,
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_grew_by_more_than_was_seen_are_rows_and_others_are_not() {
        let counters = |overflows: u64, ports: u64| {
            BTreeMap::from([
                ("TcpExtListenOverflows".to_owned(), overflows),
                ("UdpNoPorts".to_owned(), ports),
                ("UdpInDatagrams".to_owned(), overflows),
            ])
        };
        let rows = rows_of(7, None, &counters(10, 5), &counters(3_028, 5), &[]);
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!((rows[0].reason, rows[0].count, rows[0].seen_count), ("TCP_LISTEN_OVERFLOW", 3_018, 0));
        assert_eq!(rows[0].grown, BTreeMap::from([("TcpExtListenOverflows", 3_018)]));
    }
}
