//! The responder: from an interrupt to an answer.
//!
//! The variants are functions in a [`Plan`], chosen once at boot, so no arm tests its switches on
//! every packet.

mod receive;
mod telemetry;
mod transmit;

pub use self::telemetry::KernelGauges;

use core::fmt;

use ::telemetry::dump::Request;
use ::telemetry::{Counter, Counters, Event, Trace};
use net::{Identity, Peer};
use virtio::net::{NetDriver, QUEUE_FRAMES, Received, Settings};
use virtio::{Frame, Memory, Registers, StartError};

use crate::{Switch, Switches};

/// Turns of polling for a completion before it times out.
pub const POLL_TURNS_MAX: u32 = 1000;
pub const POLL_TURN_US: u32 = 10;
/// Frames queued for the task behind echoes answered in the interrupt.
const BACKLOG: usize = 64;
/// Queued dump requests.
const DUMPS: usize = 4;

/// The function of an arm that has these constant parameters.
macro_rules! of_consts {
    ($function:ident[$($known:tt)*]) => { Self::$function::<$($known)*> };
    ($function:ident[$($known:tt)*] $first:expr $(, $rest:expr)*) => {
        if $first {
            of_consts!($function[$($known)* true,] $($rest),*)
        } else {
            of_consts!($function[$($known)* false,] $($rest),*)
        }
    };
}

/// Services of the machine that the responder needs.
pub trait Platform {
    /// Nanoseconds since the machine started.
    fn now_ns(&self) -> u64;
    /// Busy-waits.
    fn udelay(&self, us: u32);
    fn print(&self, text: fmt::Arguments<'_>);
    /// Toggles the GPIO pin.
    fn toggle(&mut self);
    /// Wakes the task that calls [`Responder::receive_some`].
    fn wake_receiver(&self);
    /// Wakes the task that calls [`Responder::take_dump`].
    fn wake_dumper(&self);
}

/// Functions of one arm.
struct Plan<S> {
    /// Runs after the interrupt was acknowledged.
    interrupt: fn(&mut S),
    /// Handles some frames in the task.
    task: fn(&mut S) -> bool,
    /// Handles some frames when no other task runs.
    poll: fn(&mut S) -> bool,
    transmit: fn(&mut S, Frame, usize),
    /// Reports a received frame.
    report_received: fn(&mut S, usize),
    /// Reports a frame handed to the device.
    report_posted: fn(&mut S, usize),
    /// Traces an event with a new time stamp.
    trace_now: fn(&mut S, Event, u32),
    /// Traces an event with the last time stamp.
    trace_too: fn(&S, Event, u32),
}

/// A queued dump request.
#[derive(Debug, Clone, Copy)]
pub struct Dump {
    pub request: Request,
    pub from: Peer,
}

/// Answers ARP, ICMP and UDP echoes on one network card.
pub struct Responder<R: Registers, M: Memory, P: Platform> {
    driver: NetDriver<R, M>,
    platform: P,
    identity: Identity,
    switches: Switches,
    plan: Plan<Self>,
    gpio: bool,
    counters: &'static Counters,
    trace: &'static Trace,
    /// Packets, interrupts and wake-ups are counted.
    counts: bool,
    /// Time of the last time stamp. Reading the clock takes a lock in the emulator, so events that
    /// follow immediately share a stamp.
    now_ns: u64,
    /// The transmit interrupt was enabled because the ring was full.
    tx_armed: bool,
    /// The interrupt has left received frames to the task, which has not finished.
    rx_left: bool,
    /// Receive passes that found a frame.
    passes_count: u64,
    backlog: [Option<Received>; BACKLOG],
    backlog_head: usize,
    backlog_len: usize,
    dumps: [Option<Dump>; DUMPS],
}

/// Parts of a responder, apart from its device.
pub struct Parts<P> {
    pub platform: P,
    pub switches: Switches,
    pub ip: core::net::Ipv4Addr,
    /// MAC address; the device's if `None`.
    pub mac: Option<[u8; 6]>,
    /// Toggle the pin per packet.
    pub gpio: bool,
    pub counters: &'static Counters,
    pub trace: &'static Trace,
}

impl<R: Registers, M: Memory, P: Platform> Responder<R, M, P> {
    /// Starts the card and selects the functions of the arm.
    pub fn start(registers: R, memory: M, parts: Parts<P>) -> Result<Self, StartError> {
        let switches = parts.switches.in_image();
        let settings = Settings {
            event_idx: switches.has(Switch::EventIdx),
            tx_interrupts: !switches.has(Switch::NoTxInterrupt),
            rx_interrupts: !switches.has(Switch::PollMode),
            packed: switches.has(Switch::Packed),
            indirect: switches.has(Switch::Indirect),
            ring_frames: if switches.has(Switch::Ring64) { 64 } else { QUEUE_FRAMES as u16 },
        };
        let driver = NetDriver::start(registers, memory, settings)?;
        // An arm must not run without the feature it is named for.
        for (wanted, got, feature) in [
            (settings.event_idx, driver.has_event_idx(), "VIRTIO_F_EVENT_IDX"),
            (settings.packed, driver.has_packed_rings(), "VIRTIO_F_RING_PACKED"),
            (settings.indirect, driver.has_indirect(), "VIRTIO_F_INDIRECT_DESC"),
        ] {
            if wanted && !got {
                return Err(StartError::FeatureMissing { feature, offered: driver.offered() });
            }
        }
        // Locally administered address, for a device that has none.
        let mac = parts.mac.or(driver.mac()).unwrap_or([0x02, 0x57, 0x50, 0x00, 0x00, 0x02]);
        Ok(Responder {
            driver,
            platform: parts.platform,
            identity: Identity { mac, ip: parts.ip },
            switches,
            plan: Self::plan(switches),
            gpio: parts.gpio,
            counters: parts.counters,
            trace: parts.trace,
            counts: !switches.has(Switch::NoCounters),
            now_ns: 0,
            tx_armed: false,
            rx_left: false,
            passes_count: 0,
            backlog: [const { None }; BACKLOG],
            backlog_head: 0,
            backlog_len: 0,
            dumps: [None; DUMPS],
        })
    }

    fn plan(switches: Switches) -> Plan<Self> {
        let quiet = switches.has(Switch::Quiet);
        let untraced = switches.has(Switch::NoTrace);
        let in_place = switches.has(Switch::IcmpInIrq);
        let lazy = switches.has(Switch::LazyReap);
        let batched = switches.has(Switch::Batching);
        Plan {
            interrupt: if switches.has(Switch::PollMode) {
                // Received frames are handled elsewhere.
                if lazy { Self::of_completions::<true> } else { Self::of_completions::<false> }
            } else {
                Self::interrupt(switches)
            },
            poll: match (in_place, batched) {
                (false, false) => Self::poll_pass::<false, false>,
                (false, true) => Self::poll_pass::<false, true>,
                (true, false) => Self::poll_pass::<true, false>,
                (true, true) => Self::poll_pass::<true, true>,
            },
            task: if batched { Self::task_pass::<true> } else { Self::task_pass::<false> },
            transmit: match (switches.has(Switch::AsyncTx), lazy, batched) {
                // Each send waits for its completion, so there is nothing to batch.
                (false, _, _) => Self::transmit_polled,
                (true, false, false) => Self::transmit_async::<false, false>,
                (true, true, false) => Self::transmit_async::<true, false>,
                (true, false, true) => Self::transmit_async::<false, true>,
                (true, true, true) => Self::transmit_async::<true, true>,
            },
            report_received: if quiet { Self::report_nothing } else { Self::print_received },
            report_posted: if quiet { Self::report_nothing } else { Self::print_posted },
            trace_now: if untraced { |_, _, _| {} } else { Self::record_now },
            trace_too: if untraced { |_, _, _| {} } else { Self::record_too },
        }
    }

    /// Interrupt function if frames are received by interrupt.
    fn interrupt(switches: Switches) -> fn(&mut Self) {
        let in_place = switches.has(Switch::IcmpInIrq);
        let lazy = switches.has(Switch::LazyReap);
        let batched = switches.has(Switch::Batching);
        let budget = switches.has(Switch::RxBudget);
        match (switches.has(Switch::RxTask), in_place) {
            (false, _) => of_consts!(in_interrupt[] in_place, lazy, batched, budget),
            (true, false) => of_consts!(in_task[] lazy),
            (true, true) => of_consts!(echoes_in_interrupt[] lazy, batched, budget),
        }
    }

    pub fn identity(&self) -> Identity {
        self.identity
    }

    pub fn switches(&self) -> Switches {
        self.switches
    }

    pub fn driver(&self) -> &NetDriver<R, M> {
        &self.driver
    }

    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// Handles the card's interrupt. Call with interrupts masked.
    pub fn on_interrupt(&mut self) {
        let cause = self.driver.take_interrupt();
        self.count(Counter::Interrupts, 1);
        let bits = u32::from(cause.used) | u32::from(cause.config) << 1;
        self.trace_now(Event::Interrupt, bits);
        if cause.config && self.driver.needs_restart() {
            self.restart();
            return;
        }
        (self.plan.interrupt)(self);
    }

    /// Sends a gratuitous ARP, which also signals that the responder is ready.
    pub fn announce(&mut self) {
        let Some(frame) = self.driver.take_free() else { return };
        let identity = self.identity;
        let room = virtio::net::FRAME_BYTES_MAX;
        let written =
            self.driver.with_frame(&frame, room, |bytes| net::write_announcement(bytes, &identity));
        match written {
            Ok(len) => self.send_now(frame, len),
            Err(_) => self.driver.free(frame),
        }
    }

    /// Adds to a counter of packets, if this arm counts them. Errors are counted in every arm.
    ///
    /// A branch that always goes the same way: a function pointer, as of the trace, costs more than
    /// the addition.
    fn count(&self, counter: Counter, more: u64) {
        debug_assert!(counter.is_per_packet(), "{} is counted in every arm", counter.name());
        if self.counts {
            self.counters.add(counter, more);
        }
    }

    /// Traces an event with a new time stamp, if this arm traces.
    fn trace_now(&mut self, event: Event, detail: u32) {
        (self.plan.trace_now)(self, event, detail);
    }

    /// Traces an event that immediately follows another, with the same time stamp, if this arm traces.
    fn trace_too(&self, event: Event, detail: u32) {
        (self.plan.trace_too)(self, event, detail);
    }

    fn record_now(&mut self, event: Event, detail: u32) {
        self.now_ns = self.platform.now_ns();
        self.trace.record(self.now_ns, event, detail);
    }

    fn record_too(&self, event: Event, detail: u32) {
        self.trace.record(self.now_ns, event, detail);
    }

    /// Restarts the card after a fault, and prints a line: it must never happen.
    fn restart(&mut self) {
        self.counters.add(Counter::Restarts, 1);
        self.trace_now(Event::Restarted, 0);
        self.tx_armed = false;
        // The new rings ask for interrupts.
        self.rx_left = false;
        if let Err(error) = self.driver.restart() {
            self.platform.print(format_args!("wirepath-guest: restart failed: {error}\n"));
        }
    }
}
