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
    pub sentence: String,
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

    /// Growth since then, by namespace.
    pub(super) fn growth(&self, spaces: &mut Spaces) -> Growth {
        let mut growth = Growth::new();
        for (inode, before) in &self.by_netns {
            spaces.open(*inode);
            let after = spaces.opened(*inode).and_then(|space| space.run(counters_here));
            let grown = after.unwrap_or_default().into_iter().filter_map(|(name, count)| {
                let begin = before.get(&name).copied().unwrap_or(0);
                Some((name, count.checked_sub(begin).filter(|grown| *grown > 0)?))
            });
            growth.insert(*inode, grown.collect());
        }
        growth
    }
}

/// Counters that grew, with their growth, by the namespace's inode.
pub(super) type Growth = BTreeMap<u32, BTreeMap<String, u64>>;

/// Counters that grew by more than the drops explain.
pub(super) fn rows(growth: &Growth, spaces: &Spaces, drops: &[DropRow]) -> Vec<CounterRow> {
    let mut rows = Vec::new();
    for (inode, grown) in growth {
        let space = spaces.opened(*inode);
        let netns = space.and_then(|space| space.name.as_ref());
        let mut own = rows_of(*inode, netns, grown, drops);
        let overflows = own.iter_mut().filter(|row| row.reason == "TCP_LISTEN_OVERFLOW");
        if let (Some(row), Some(full)) =
            (overflows.into_iter().next(), space.and_then(|space| space.full_listeners().next()))
        {
            let owner = spaces.owner(full.inode);
            let (waiting, most) = full.queue.unwrap_or_default();
            row.sentence = format!(
                "the accept queue of TCP port {} of {} is full ({waiting} connections wait, {most} may)",
                full.local.port(),
                owner.as_deref().unwrap_or("an unknown program")
            );
        }
        rows.extend(own);
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    rows
}

/// Part of the packets seen by which a counter may be above them: the trace begins and ends a little later.
const TOLERANCE: u64 = 20;

fn rows_of(
    inode: u32,
    netns: Option<&String>,
    all_grown: &BTreeMap<String, u64>,
    drops: &[DropRow],
) -> Vec<CounterRow> {
    let mut rows = Vec::new();
    for known in drop_sentences::counted() {
        let grown: BTreeMap<&'static str, u64> = known
            .counters
            .iter()
            .filter_map(|name| Some((*name, *all_grown.get(*name)?)))
            .collect();
        let count: u64 = grown.values().sum();
        let own = drops.iter().filter(|row| known.has(row.meaning())).flat_map(|row| &row.kinds);
        let seen_count: u64 = own.filter(|kind| kind.netns == inode).map(|kind| kind.count).sum();
        if count > seen_count + seen_count / TOLERANCE {
            rows.push(CounterRow {
                reason: known.reason(),
                sentence: known.sentence.to_owned(),
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
        let grown = [("TcpExtListenOverflows", 3_018), ("UdpInDatagrams", 9)];
        let grown = grown.map(|(name, count)| (name.to_owned(), count)).into();
        let rows = rows_of(7, None, &grown, &[]);
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(
            (rows[0].reason, rows[0].count, rows[0].seen_count),
            ("TCP_LISTEN_OVERFLOW", 3_018, 0)
        );
        assert_eq!(rows[0].grown, BTreeMap::from([("TcpExtListenOverflows", 3_018)]));
    }
}
