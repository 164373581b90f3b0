//! What a monitor and the test program inside its guest tell each other: two pages of 64-bit
//! little-endian words, and one port.
//!
//! The monitor writes the boot page before the guest starts. The guest writes the report page
//! whenever it likes, and tells by a byte to [`PORT`] that a phase begins or ends.

/// TCP port to which the guest connects for its streams.
pub const STREAM_PORT: u16 = 5001;

/// Byte `i` of every write to a stream; of at most 65,536.
pub fn stream_byte(i: usize) -> u8 {
    (i * 131 + i / 251) as u8
}

/// Port of the guest's [`Signal`]s, one byte each.
pub const PORT: u16 = 0x600;

/// Microseconds after its last frame for which the guest may count on a device that polls to look
/// at the ring by itself.
pub const POLL_LINGER_US: u64 = 100;

/// First word of both pages, once they are written: "wpnettst".
pub const MAGIC: u64 = u64::from_le_bytes(*b"wpnettst");

/// Words of the boot page, by index.
pub mod boot {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// What the guest is to do, see [`super::Mode`].
    pub const MODE: usize = 1;
    /// Bytes of a raw frame without its check sequence, or of one write to a stream.
    pub const SIZE_BYTES: usize = 2;
    /// Frames, or writes, of the measured part; 0 for as many as there is time for.
    pub const COUNT: usize = 3;
    /// Frames before the measured part.
    pub const WARM_UP: usize = 4;
    /// How the driver behaves: the bits of [`super::driver`].
    pub const DRIVER: usize = 5;
    /// Base-2 logarithm of the transmit ring's length.
    pub const TX_RING_LOG2: usize = 6;
    /// Base-2 logarithm of the receive ring's length.
    pub const RX_RING_LOG2: usize = 7;
    /// MAC address of the other end, first byte lowest.
    pub const PEER_MAC: usize = 8;
    /// IPv4 address of the guest, in host order.
    pub const IP: usize = 9;
    /// IPv4 address of the other end, in host order.
    pub const PEER_IP: usize = 10;
    /// Frequency of the time stamp counter in kHz; 0 where the guest is to find out.
    pub const TSC_KHZ: usize = 11;
    /// Guest physical address of the interrupt descriptor table, which the guest fills.
    pub const IDT: usize = 12;
    /// Guest physical address of the report page.
    pub const REPORT: usize = 13;
    /// Microseconds after which the measured part ends, if it has not before; 0 without end.
    pub const DURATION_US: usize = 14;
    /// Address of the registers of a virtio network card, and its line of the interrupt controller;
    /// 0 where the device is a Lance, which is found by PCI.
    pub const VIRTIO_AT: usize = 15;
    /// See [`VIRTIO_AT`].
    pub const VIRTIO_LINE: usize = 16;
    /// Words in use.
    pub const LEN: usize = 17;
}

/// Guest physical address of a word that keeps `hlt` from sleeping while it is not 0. The guest
/// clears it, looks whether there is anything to do, and sleeps; its handlers set it.
///
/// At privilege level 3 `hlt` faults into the monitor's stub, which does the rest.
pub const WAKE_AT: u64 = 0x9000;

/// Guest physical address of the word behind it: the vector of the interrupt that ended a sleep.
/// Its handler has not run: the guest runs it, at its own privilege level, and clears the word.
pub const PENDING_AT: u64 = WAKE_AT + 8;

/// Where the boot page lies on a plain PC, whose loader puts it there; its memory is larger.
pub const PLAIN_BOOT_AT: u64 = 0x300_0000;

/// Where the interrupt descriptor table is there.
pub const PLAIN_IDT_AT: u64 = 0x2000;

/// In which 2 MiB the registers of a virtio card are there.
pub const PLAIN_DEVICES_AT: u64 = 0xfeb0_0000;

/// Where the report page is there.
pub const PLAIN_REPORT_AT: u64 = 0x8000;

/// Bits of [`boot::DRIVER`].
pub mod driver {
    /// Mask the transmit interrupt: descriptors are taken back when the next frame is sent.
    pub const MASK_TX_INTERRUPT: u64 = 1 << 0;
    /// Ring no bell while the device has frames of ours: it polls.
    pub const DEVICE_POLLS: u64 = 1 << 1;
    /// Digest streams: their SHA-256 goes into the report page.
    pub const DIGEST: u64 = 1 << 2;
    /// The machine is a plain PC: privilege level 0, [`super::Signal`]s go to the debug console, each
    /// with the report page behind it.
    pub const PLAIN_PC: u64 = 1 << 3;
}

/// What the guest does; the values of [`boot::MODE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Sends raw frames as fast as it can.
    Send,
    /// Answers ARP, ICMP echo and UDP to port 7.
    Echo,
    /// Sends a stream over TCP.
    TcpSend,
    /// Receives a stream over TCP.
    TcpReceive,
    /// Serves echo (7), discard (9) and chargen (19) over TCP, echo over UDP, and answers ping.
    Serve,
}

impl Mode {
    /// As written in the boot page.
    pub fn to_word(self) -> u64 {
        match self {
            Mode::Send => 1,
            Mode::Echo => 2,
            Mode::TcpSend => 3,
            Mode::TcpReceive => 4,
            Mode::Serve => 5,
        }
    }

    /// As read from the boot page.
    pub fn from_word(word: u64) -> Option<Self> {
        [Mode::Send, Mode::Echo, Mode::TcpSend, Mode::TcpReceive, Mode::Serve]
            .into_iter()
            .find(|mode| mode.to_word() == word)
    }
}

/// Words of the report page, by index.
pub mod report {
    /// [`super::MAGIC`], once the driver is up.
    pub const MAGIC: usize = 0;
    /// Frames given to the device.
    pub const TX_FRAMES: usize = 1;
    /// Frames taken from the device.
    pub const RX_FRAMES: usize = 2;
    /// Interrupts of the device.
    pub const INTERRUPTS: usize = 3;
    /// Accesses to the device's ports or registers.
    pub const PORT_ACCESSES: usize = 4;
    /// Accesses to the interrupt controller's ports.
    pub const PIC_ACCESSES: usize = 5;
    /// Sleeps.
    pub const HALTS: usize = 6;
    /// Times that the transmit ring was found full.
    pub const TX_FULL: usize = 7;
    /// Time stamp counter: ticks spent in accesses to the device's ports.
    pub const PORT_TICKS: usize = 8;
    /// Ticks spent in accesses to the interrupt controller's ports.
    pub const PIC_TICKS: usize = 9;
    /// Ticks spent copying frames.
    pub const COPY_TICKS: usize = 10;
    /// Ticks spent asleep, interrupt handlers not counted.
    pub const IDLE_TICKS: usize = 11;
    /// Ticks spent waiting awake for room in the ring; handlers not counted.
    pub const FULL_TICKS: usize = 12;
    /// Frames that the device marked as faulty.
    pub const ERRORS: usize = 13;
    /// Payload bytes of streams.
    pub const STREAM_BYTES: usize = 14;
    /// Source line of a panic.
    pub const PANIC_LINE: usize = 15;
    /// Vector of an exception.
    pub const EXCEPTION: usize = 16;
    /// Instruction pointer of an exception.
    pub const EXCEPTION_AT: usize = 17;
    /// Ticks of the measured part.
    pub const TOTAL_TICKS: usize = 18;
    /// SHA-256 of the stream's bytes, four words, first byte lowest.
    pub const DIGEST: usize = 19;
    /// State of the stream's connection when it was last open: 1 for LISTEN and so on to 10 for
    /// TIME-WAIT, in the order of RFC 9293, section 3.3.2; 0 without one.
    pub const STREAM_STATE: usize = 23;
    /// Bytes of the stream that were sent or wait to be, and are not acknowledged.
    pub const STREAM_UNACKED_BYTES: usize = 24;
    /// Interrupts of the timer.
    pub const TIMER_INTERRUPTS: usize = 25;
    /// Sleeps of the stack that ended without an interrupt of the device, with a frame waiting: its
    /// interrupt was late, or was lost, and then all that follow are too long.
    pub const OVERSLEPT: usize = 26;
    /// Words in use.
    pub const LEN: usize = 27;
}

/// What a byte to [`PORT`] means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// The driver is up.
    Ready,
    /// The measured part begins.
    Begin,
    /// The measured part has ended.
    End,
    /// All is done.
    Done,
    /// A panic or an exception; the report page says which.
    Failed,
}

impl Signal {
    /// As written to the port.
    pub fn to_byte(self) -> u8 {
        match self {
            Signal::Ready => 1,
            Signal::Begin => 2,
            Signal::End => 3,
            Signal::Done => 4,
            Signal::Failed => 5,
        }
    }

    /// As read by the monitor.
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Signal::Ready, Signal::Begin, Signal::End, Signal::Done, Signal::Failed]
            .into_iter()
            .find(|signal| signal.to_byte() == byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_bytes_lead_back_to_what_they_mean() {
        for mode in [Mode::Send, Mode::Echo, Mode::TcpSend, Mode::TcpReceive, Mode::Serve] {
            assert_eq!(Mode::from_word(mode.to_word()), Some(mode));
        }
        assert_eq!(Mode::from_word(0), None);
        for byte in 1..=5 {
            assert_eq!(Signal::from_byte(byte).map(Signal::to_byte), Some(byte));
        }
        assert_eq!(Signal::from_byte(0), None);
    }
}
