//! Traffic of a load: directions, flows and lengths of frames.

use crate::path::TunnelLoad;
use crate::topology::PAYLOAD_BYTES_MAX;

/// Direction of a flow through the forwarder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// From the source's side into the tunnel.
    Into,
    /// Out of the tunnel: the source is at its other end.
    OutOf,
}

/// Flows of `multi-flow`.
pub(crate) const FLOW_COUNT: u16 = 64;
/// Lengths of `imix` in turn, seven of 64 bytes, four of 594 and one of 1518, without the frame check
/// sequence. Spread evenly: a burst of one length would be another load.
const MIX: [u16; 12] = [60, 590, 60, 590, 60, 1514, 60, 590, 60, 60, 590, 60];

/// Traffic of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Directions, each with a source and a sink.
    pub(crate) ways: &'static [Way],
    /// Flows of each direction.
    pub(crate) flow_count: u16,
    /// Lengths of frames in turn, from the Ethernet header on; empty for one length.
    pub(crate) lengths: &'static [u16],
    /// The sinks build a socket buffer of every frame.
    pub(crate) ends_in_skbs: bool,
    /// The forwarder receives socket buffers that have a hash, as those of a driver do, and the CPU of each is
    /// counted.
    pub(crate) has_hash: bool,
}

impl Way {
    /// Name of its delivery.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Into => "forward",
            Way::OutOf => "return",
        }
    }

    /// Name of its source among the costs.
    pub(crate) fn source(self) -> &'static str {
        match self {
            Way::Into => "source",
            Way::OutOf => "return source",
        }
    }
}

impl Traffic {
    pub(crate) fn of(load: TunnelLoad) -> Traffic {
        let one = Traffic {
            ways: &[Way::Into],
            flow_count: 1,
            lengths: &[],
            ends_in_skbs: false,
            has_hash: false,
        };
        let multi_flow = Traffic { flow_count: FLOW_COUNT, ..one };
        match load {
            TunnelLoad::FloodSkb => Traffic { ends_in_skbs: true, ..one },
            TunnelLoad::DecapSkb => Traffic { ways: &[Way::OutOf], ends_in_skbs: true, ..one },
            TunnelLoad::MultiFlow => multi_flow,
            // A veth without GRO hands a socket buffer to the other side on the CPU that sent it.
            TunnelLoad::MultiFlowHash => {
                Traffic { ends_in_skbs: true, has_hash: true, ..multi_flow }
            }
            TunnelLoad::Decap => Traffic { ways: &[Way::OutOf], ..one },
            TunnelLoad::BothWays => Traffic { ways: &[Way::Into, Way::OutOf], ..one },
            TunnelLoad::Imix => Traffic { lengths: &MIX, ..one },
            _ => one,
        }
    }

    /// UDP payload of the longest frame.
    ///
    /// - `size_bytes`: that of the load; 0 if its lengths are its own.
    pub(crate) fn payload_bytes_max(&self, size_bytes: usize) -> usize {
        if self.lengths.is_empty() { size_bytes } else { PAYLOAD_BYTES_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_is_seven_to_four_to_one_of_its_lengths() {
        let counts = [60, 590, 1514].map(|length| MIX.iter().filter(|it| **it == length).count());
        assert_eq!(counts, [7, 4, 1]);
        assert_eq!(usize::from(MIX.iter().copied().max().unwrap()), 42 + PAYLOAD_BYTES_MAX);
    }
}
