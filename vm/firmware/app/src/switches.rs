//! The switches: one bit each, read once at boot.

use core::fmt;

macro_rules! switches {
    ($($(#[$doc:meta])* $name:ident = $id:literal,)*) => {
        /// One optimisation, off in the baseline. Add new ones at the end: the position is the bit.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Switch { $($(#[$doc])* $name,)* }

        impl Switch {
            /// All switches, in the order of their bits.
            pub const ALL: &[Switch] = &[$(Switch::$name),*];

            /// Name on the command line.
            pub const fn id(self) -> &'static str {
                match self { $(Switch::$name => $id),* }
            }
        }
    };
}

switches! {
    /// Prints nothing per packet. Counters and trace are kept in either state.
    Quiet = "quiet",
    /// Hands a frame to the device without waiting; refuses it if the ring is full. Off: polls for
    /// the completion in turns of 10 microseconds.
    AsyncTx = "async-tx",
    /// Reaps completions when frames arrive and before the next send. Off: in an interrupt for
    /// each. Requires `async-tx`.
    LazyReap = "lazy-reap",
    /// Handles frames in a task woken by the interrupt, with other interrupts allowed. Off: in the
    /// interrupt.
    RxTask = "rx-task",
    /// Asks the device not to interrupt for frames sent.
    NoTxInterrupt = "no-tx-interrupt",
    /// VIRTIO_F_EVENT_IDX: each side publishes the index from which it wants notifications.
    EventIdx = "event-idx",
    /// Answers ICMP echoes in place in the interrupt, before the default handling.
    IcmpInIrq = "icmp-in-irq",
    /// VIRTIO_F_RING_PACKED: one ring for both directions instead of three parts.
    Packed = "packed",
    /// VIRTIO_F_INDIRECT_DESC: sends a frame as a table of two descriptors, header and frame.
    Indirect = "indirect",
    /// Handles several frames per pass: answers share one doorbell, and receive buffers are
    /// returned once. Off: both for every frame. For sending, requires `async-tx`.
    Batching = "batching",
    /// Polls the receive ring whenever no other task runs. The device never interrupts for
    /// received frames, and the CPU never sleeps.
    PollMode = "poll-mode",
    /// Handles at most one pass of frames in an interrupt; the receive task handles the rest, with
    /// other interrupts allowed. Off: the interrupt lasts until the ring is empty.
    RxBudget = "rx-budget",
    /// Rings of 64 frames. Off: 256.
    Ring64 = "ring-64",
    /// Records no trace, and reads no clock for it. Off: several entries a packet.
    NoTrace = "no-trace",
    /// Counts no packet, interrupt or wake-up. Off: up to fourteen additions for an echo. Errors are
    /// counted in either state, and the driver counts its notifications.
    NoCounters = "no-counters",
}

/// A set of switches: the switch word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches(u32);

/// Switches of an image that has the code of one arm alone, which `cargo xtask firmware --sizes` builds to compare sizes;
/// `None` if the command line chooses, as in every other image.
const ONLY: Option<Switches> = match option_env!("WIREPATH_GUEST_ONLY") {
    Some(names) => Some(parse_at_build(names.as_bytes())),
    None => None,
};

/// As [`Switches::parse`], while the image is built. An unknown name fails the build.
const fn parse_at_build(names: &[u8]) -> Switches {
    let (mut set, mut from, mut at) = (Switches(0), 0, 0);
    while at <= names.len() {
        if at == names.len() || names[at] == b',' {
            if at > from {
                set = set.with(named(names, from, at));
            }
            from = at + 1;
        }
        at += 1;
    }
    set
}

/// The switch whose name is `names[from..to]`.
const fn named(names: &[u8], from: usize, to: usize) -> Switch {
    let mut bit = 0;
    while bit < Switch::ALL.len() {
        let id = Switch::ALL[bit].id().as_bytes();
        let mut len = 0;
        while len < id.len() && from + len < to && id[len] == names[from + len] {
            len += 1;
        }
        if len == id.len() && from + len == to {
            return Switch::ALL[bit];
        }
        bit += 1;
    }
    panic!("WIREPATH_GUEST_ONLY has a name that is not a switch")
}

impl Switches {
    /// Switches that this image obeys: those of the command line, or those of the only arm that it has.
    pub const fn in_image(self) -> Switches {
        match ONLY {
            Some(only) => only,
            None => self,
        }
    }

    pub const fn has(self, switch: Switch) -> bool {
        self.0 & 1 << switch as u8 != 0
    }

    #[must_use]
    pub const fn with(self, switch: Switch) -> Switches {
        Switches(self.0 | 1 << switch as u8)
    }

    pub const fn word(self) -> u32 {
        self.0
    }

    /// Parses comma-separated names; an empty string is the baseline. Errors: the unknown name.
    pub fn parse(text: &str) -> Result<Switches, &str> {
        text.split(',').filter(|id| !id.is_empty()).try_fold(Switches::default(), |set, id| {
            let switch = Switch::ALL.iter().find(|switch| switch.id() == id).ok_or(id)?;
            Ok(set.with(*switch))
        })
    }
}

impl fmt::Display for Switches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("baseline");
        }
        let mut first = true;
        for switch in Switch::ALL.iter().filter(|switch| self.has(**switch)) {
            if !first {
                f.write_str(",")?;
            }
            first = false;
            f.write_str(switch.id())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_to_its_bit_and_prints_the_same() {
        for (bit, switch) in Switch::ALL.iter().enumerate() {
            let set = Switches::parse(switch.id()).expect("it is known");
            assert_eq!(set.word(), 1 << bit);
            assert_eq!(set.to_string(), switch.id());
        }
        let all = Switches((1 << Switch::ALL.len()) - 1);
        assert_eq!(Switches::parse(&all.to_string()), Ok(all));
        assert_eq!(Switches::parse(""), Ok(Switches::default()));
        assert_eq!(Switches::default().to_string(), "baseline");
    }

    #[test]
    fn names_are_parsed_alike_while_an_image_is_built() {
        for names in ["", "quiet", "async-tx,lazy-reap", "no-counters,quiet,", "rx-task"] {
            let parsed = Switches::parse(names).expect("they are known");
            assert_eq!(parse_at_build(names.as_bytes()), parsed, "{names}");
        }
        assert_eq!(Switches::default().in_image(), Switches::default());
        for names in ["quie", "quiets", "lazy"] {
            assert!(std::panic::catch_unwind(|| parse_at_build(names.as_bytes())).is_err());
        }
    }

    #[test]
    fn unknown_name_is_reported() {
        assert_eq!(Switches::parse("quiet,lazy,rx-task"), Err("lazy"));
        assert_eq!(Switches::parse("Quiet"), Err("Quiet"));
    }
}
