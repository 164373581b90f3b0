//! The switches: one bit each, read once at boot.

use core::fmt;

macro_rules! switches {
    ($($(#[$doc:meta])* $name:ident = $id:literal,)*) => {
        /// One optimisation, off in the baseline. New ones go to the end: a switch's bit is its
        /// place.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Switch { $($(#[$doc])* $name,)* }

        impl Switch {
            /// All of them, in the order of their bits.
            pub const ALL: &[Switch] = &[$(Switch::$name),*];

            /// Name on the command line.
            pub const fn id(self) -> &'static str {
                match self { $(Switch::$name => $id),* }
            }
        }
    };
}

switches! {
    /// Nothing is printed per packet; counters instead.
    Quiet = "quiet",
    /// A frame is handed to the device and left to it; refused when the ring is full. Off: the
    /// completion is polled for in turns of 10 microseconds.
    AsyncTx = "async-tx",
    /// Completions are reaped when frames arrive and before the next send. Off: in an interrupt
    /// for each. Means something with `async-tx` only.
    LazyReap = "lazy-reap",
    /// Frames are handled by a task that the interrupt wakes. Off: in the interrupt.
    RxTask = "rx-task",
    /// The device is asked not to interrupt for frames sent.
    NoTxInterrupt = "no-tx-interrupt",
    /// VIRTIO_F_EVENT_IDX: both sides say from which index on they want to be told.
    EventIdx = "event-idx",
    /// ICMP echoes are turned round in place in the interrupt, before the normal way.
    IcmpInIrq = "icmp-in-irq",
    /// VIRTIO_F_RING_PACKED: one ring for both directions instead of three parts.
    Packed = "packed",
    /// VIRTIO_F_INDIRECT_DESC: a frame is sent as a table of its header and itself.
    Indirect = "indirect",
    /// Several frames a pass: their answers go out with one doorbell, and the device gets its
    /// buffers back once. Off: both for every frame. Of sending with `async-tx` only.
    Batching = "batching",
    /// The receive ring is looked at all the time that nothing else runs; the device is never asked
    /// to interrupt for frames received, and the CPU never sleeps.
    PollMode = "poll-mode",
}

/// A set of switches: the switch word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches(u32);

impl Switches {
    /// Whether a switch is on.
    pub const fn has(self, switch: Switch) -> bool {
        self.0 & 1 << switch as u8 != 0
    }

    /// The set with one more.
    #[must_use]
    pub const fn with(self, switch: Switch) -> Switches {
        Switches(self.0 | 1 << switch as u8)
    }

    /// The bits.
    pub const fn word(self) -> u32 {
        self.0
    }

    /// Reads names between commas; none for the baseline. Fails with the name that is unknown.
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
    fn every_name_gives_its_bit_and_comes_back() {
        for (bit, switch) in Switch::ALL.iter().enumerate() {
            let set = Switches::parse(switch.id()).expect("it is known");
            assert_eq!(set.word(), 1 << bit);
            assert_eq!(set.to_string(), switch.id());
        }
        let all = Switches(0x3ff).to_string();
        assert_eq!(Switches::parse(&all), Ok(Switches(0x3ff)));
        assert_eq!(Switches::parse(""), Ok(Switches::default()));
        assert_eq!(Switches::default().to_string(), "baseline");
    }

    #[test]
    fn unknown_name_is_named() {
        assert_eq!(Switches::parse("quiet,lazy,rx-task"), Err("lazy"));
        assert_eq!(Switches::parse("Quiet"), Err("Quiet"));
    }
}
