//! Interface between a monitor and the test program inside its guest: two pages of 64-bit
//! little-endian words, and one port.
//!
//! The monitor writes the boot page before the guest starts. The guest writes the report page at
//! any time, and a byte to [`PORT`] when a phase begins or ends.

#![no_std]

use wire::image::{MARK_BYTES, mark};

/// Mark of the guest's image: the version of this interface.
pub const MARK: [u8; MARK_BYTES] = mark(&[include_bytes!("lib.rs")]);

/// TCP port to which the guest connects for its streams.
pub const STREAM_PORT: u16 = 5001;

/// Byte `i` of every write to a stream; of at most 65,536.
pub fn stream_byte(i: usize) -> u8 {
    (i * 131 + i / 251) as u8
}

/// Port of the guest's [`Signal`]s, one byte each.
pub const PORT: u16 = 0x600;

/// Microseconds after its last frame during which a polling device still reads the ring without a
/// notification.
pub const POLL_LINGER_US: u64 = 100;

/// First word of both pages, once they are written: "wpnettst".
pub const MAGIC: u64 = u64::from_le_bytes(*b"wpnettst");

/// Words of the boot page, by index.
pub mod boot {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// Test to run, see [`super::Mode`].
    pub const MODE: usize = 1;
    /// Bytes of a raw frame without its check sequence, or of one write to a stream.
    pub const SIZE_BYTES: usize = 2;
    /// Frames or writes of the measured part; 0 if only the duration limits it.
    pub const COUNT: usize = 3;
    /// Frames before the measured part.
    pub const WARM_UP: usize = 4;
    /// Driver behaviour: the bits of [`super::driver`].
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
    /// Frequency of the time stamp counter in kHz; 0 if the guest must calibrate it.
    pub const TSC_KHZ: usize = 11;
    /// Guest physical address of the interrupt descriptor table, which the guest fills.
    pub const IDT: usize = 12;
    /// Guest physical address of the report page.
    pub const REPORT: usize = 13;
    /// Microseconds after which the measured part ends, if it has not before; 0 without end.
    pub const DURATION_US: usize = 14;
    /// Address of the registers of a virtio network card; 0 for a Lance, which is found by PCI. Next
    /// word: its line of the interrupt controller.
    pub const VIRTIO_AT: usize = 15;
    /// See [`VIRTIO_AT`].
    pub const VIRTIO_LINE: usize = 16;
    /// Words in use.
    pub const LEN: usize = 17;
}

/// Guest physical address of a word that keeps `hlt` from sleeping while it is not 0. The guest
/// clears it, checks for work, and sleeps; its handlers set it.
///
/// At privilege level 3 `hlt` faults into the monitor's stub, which emulates it.
pub const WAKE_AT: u64 = 0x9000;

/// Guest physical address of the next word: the vector of the interrupt that ended a sleep. The
/// guest runs its handler, at its own privilege level, and clears the word.
pub const PENDING_AT: u64 = WAKE_AT + 8;

/// Address of the boot page on a plain PC, set by its loader; its memory is larger.
pub const PLAIN_BOOT_AT: u64 = 0x300_0000;

/// Address of the interrupt descriptor table on a plain PC.
pub const PLAIN_IDT_AT: u64 = 0x2000;

/// Address of the 2 MiB with the registers of a virtio card on a plain PC.
pub const PLAIN_DEVICES_AT: u64 = 0xfeb0_0000;

/// Address of the report page on a plain PC.
pub const PLAIN_REPORT_AT: u64 = 0x8000;

/// Bits of [`boot::DRIVER`].
pub mod driver {
    /// Mask the transmit interrupt: descriptors are reclaimed when the next frame is sent.
    pub const MASK_TX_INTERRUPT: u64 = 1 << 0;
    /// Write no doorbell while the device has pending frames: it polls.
    pub const DEVICE_POLLS: u64 = 1 << 1;
    /// Digest streams: their SHA-256 goes into the report page.
    pub const DIGEST: u64 = 1 << 2;
    /// The machine is a plain PC: privilege level 0, [`super::Signal`]s go to the debug console, each
    /// followed by the report page.
    pub const PLAIN_PC: u64 = 1 << 3;
    /// The virtio-net card's driver is the crate `virtio-drivers` instead of the project's own.
    pub const FOREIGN: u64 = 1 << 4;
}

/// Test that the guest runs; the values of [`boot::MODE`].
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
    /// Value in the boot page.
    pub fn to_word(self) -> u64 {
        match self {
            Mode::Send => 1,
            Mode::Echo => 2,
            Mode::TcpSend => 3,
            Mode::TcpReceive => 4,
            Mode::Serve => 5,
        }
    }

    /// Decodes the value in the boot page.
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
    /// Frames passed to the device.
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
    /// Number of times the transmit ring was full.
    pub const TX_FULL: usize = 7;
    /// Time stamp counter: ticks spent in accesses to the device's ports.
    pub const PORT_TICKS: usize = 8;
    /// Ticks spent in accesses to the interrupt controller's ports.
    pub const PIC_TICKS: usize = 9;
    /// Ticks spent copying frames.
    pub const COPY_TICKS: usize = 10;
    /// Ticks spent asleep, interrupt handlers not counted.
    pub const IDLE_TICKS: usize = 11;
    /// Ticks spent polling for space in the ring; handlers not counted.
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
    /// Sleeps of the stack that ended without an interrupt of the device although a frame was
    /// waiting: its interrupt was late or lost.
    pub const OVERSLEPT: usize = 26;
    /// Of those, sleeps whose interrupt had not come ten seconds later: it was lost.
    pub const LOST_WAKE_UPS: usize = 27;
    /// Words in use.
    pub const LEN: usize = 28;
}

/// Meaning of a byte to [`PORT`].
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
    /// A panic or an exception, described in the report page.
    Failed,
}

impl Signal {
    /// Byte on the port.
    pub fn to_byte(self) -> u8 {
        match self {
            Signal::Ready => 1,
            Signal::Begin => 2,
            Signal::End => 3,
            Signal::Done => 4,
            Signal::Failed => 5,
        }
    }

    /// Decodes a byte on the port.
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
    fn words_and_bytes_decode_to_their_values() {
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
