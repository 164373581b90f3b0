//! The station: from an interrupt to an answer, in as many ways as there are arms.
//!
//! The ways are functions of the plan, chosen once at boot; no arm asks at every packet
//! whether it is another.

mod receive;
mod tell;
mod transmit;

use core::fmt;

use net::{Identity, Peer};
use observe::dump::Request;
use observe::{Counter, Counters, Event, Trace};
use virtio::net::{NetDriver, Received, Settings};
use virtio::{Frame, Memory, Registers, StartError};

use crate::{Switch, Switches};

/// Turns of polling for a completion before it is given up.
pub const POLL_TURNS_MAX: u32 = 1000;
/// Length of a turn.
pub const POLL_TURN_US: u32 = 10;
/// Frames that wait for the task, behind echoes answered in the interrupt.
const BACKLOG: usize = 64;
/// Questions for a dump that wait.
const DUMPS: usize = 4;

/// What the station needs of the machine it runs on.
pub trait Platform {
    /// Nanoseconds since the machine started.
    fn now_ns(&self) -> u64;
    /// Spins.
    fn udelay(&self, us: u32);
    /// Prints to the console.
    fn print(&self, text: fmt::Arguments<'_>);
    /// Toggles the pin.
    fn toggle(&mut self);
    /// Wakes the task that calls [`Station::receive_some`].
    fn wake_receiver(&self);
    /// Has a task call [`Station::take_dump`].
    fn wake_dumper(&self);
}

/// Functions of an arm.
struct Plan<S> {
    /// After the interrupt was acknowledged.
    interrupt: fn(&mut S),
    /// Some frames, in the task.
    task: fn(&mut S) -> bool,
    /// Some frames, when nothing else runs.
    poll: fn(&mut S) -> bool,
    /// Sends a frame.
    transmit: fn(&mut S, Frame, usize),
    /// Tells about a frame received.
    tell_received: fn(&mut S, usize),
    /// Tells about a frame sent.
    tell_posted: fn(&mut S, usize),
}

/// A question for a dump.
#[derive(Debug, Clone, Copy)]
pub struct Dump {
    /// What is asked for.
    pub request: Request,
    /// Who asks.
    pub from: Peer,
}

/// The station.
pub struct Station<R: Registers, M: Memory, P: Platform> {
    driver: NetDriver<R, M>,
    platform: P,
    identity: Identity,
    switches: Switches,
    plan: Plan<Self>,
    gpio: bool,
    counters: &'static Counters,
    trace: &'static Trace,
    /// When the last time stamp was taken. Reading the clock costs a lock in the machine that is
    /// emulated, so what follows at once shares a stamp.
    now_ns: u64,
    /// The transmit interrupt was asked for because the ring was full.
    tx_armed: bool,
    /// Passes of receiving that found a frame.
    passes_count: u64,
    backlog: [Option<Received>; BACKLOG],
    backlog_head: usize,
    backlog_len: usize,
    dumps: [Option<Dump>; DUMPS],
}

/// What a station is made of, beside its device.
pub struct Parts<P> {
    /// The machine.
    pub platform: P,
    /// Which arm.
    pub switches: Switches,
    /// Our address.
    pub ip: core::net::Ipv4Addr,
    /// Our MAC address; the device's if `None`.
    pub mac: Option<[u8; 6]>,
    /// Toggle the pin per packet.
    pub gpio: bool,
    /// Where to count.
    pub counters: &'static Counters,
    /// Where to trace.
    pub trace: &'static Trace,
}

impl<R: Registers, M: Memory, P: Platform> Station<R, M, P> {
    /// Starts the card and chooses the plan.
    pub fn start(registers: R, memory: M, parts: Parts<P>) -> Result<Self, StartError> {
        let switches = parts.switches;
        let settings = Settings {
            event_idx: switches.has(Switch::EventIdx),
            tx_interrupts: !switches.has(Switch::NoTxInterrupt),
            rx_interrupts: !switches.has(Switch::PollMode),
            packed: switches.has(Switch::Packed),
            indirect: switches.has(Switch::Indirect),
        };
        let driver = NetDriver::start(registers, memory, settings)?;
        // An arm that silently runs without what it is named for would be a lie.
        for (wanted, got, feature) in [
            (settings.event_idx, driver.has_event_idx(), "VIRTIO_F_EVENT_IDX"),
            (settings.packed, driver.has_packed_rings(), "VIRTIO_F_RING_PACKED"),
            (settings.indirect, driver.has_indirect(), "VIRTIO_F_INDIRECT_DESC"),
        ] {
            if wanted && !got {
                return Err(StartError::FeatureMissing { feature, offered: driver.offered() });
            }
        }
        // Locally administered; for a device that has none.
        let mac = parts.mac.or(driver.mac()).unwrap_or([0x02, 0x57, 0x50, 0x00, 0x00, 0x02]);
        Ok(Station {
            driver,
            platform: parts.platform,
            identity: Identity { mac, ip: parts.ip },
            switches,
            plan: Self::plan(switches),
            gpio: parts.gpio,
            counters: parts.counters,
            trace: parts.trace,
            now_ns: 0,
            tx_armed: false,
            passes_count: 0,
            backlog: [const { None }; BACKLOG],
            backlog_head: 0,
            backlog_len: 0,
            dumps: [None; DUMPS],
        })
    }

    fn plan(switches: Switches) -> Plan<Self> {
        let quiet = switches.has(Switch::Quiet);
        let in_place = switches.has(Switch::IcmpInIrq);
        let lazy = switches.has(Switch::LazyReap);
        let batched = switches.has(Switch::Batching);
        Plan {
            interrupt: if switches.has(Switch::PollMode) {
                // Frames are not its business.
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
                // Who awaits each frame has nothing to put off.
                (false, _, _) => Self::transmit_polled,
                (true, false, false) => Self::transmit_async::<false, false>,
                (true, true, false) => Self::transmit_async::<true, false>,
                (true, false, true) => Self::transmit_async::<false, true>,
                (true, true, true) => Self::transmit_async::<true, true>,
            },
            tell_received: if quiet { Self::tell_nothing } else { Self::print_received },
            tell_posted: if quiet { Self::tell_nothing } else { Self::print_posted },
        }
    }

    /// What an interrupt does where frames come by interrupt.
    fn interrupt(switches: Switches) -> fn(&mut Self) {
        let in_place = switches.has(Switch::IcmpInIrq);
        let lazy = switches.has(Switch::LazyReap);
        let batched = switches.has(Switch::Batching);
        match (switches.has(Switch::RxTask), in_place, lazy, batched) {
            (false, false, false, false) => Self::in_interrupt::<false, false, false>,
            (false, false, true, false) => Self::in_interrupt::<false, true, false>,
            (false, true, false, false) => Self::in_interrupt::<true, false, false>,
            (false, true, true, false) => Self::in_interrupt::<true, true, false>,
            (false, false, false, true) => Self::in_interrupt::<false, false, true>,
            (false, false, true, true) => Self::in_interrupt::<false, true, true>,
            (false, true, false, true) => Self::in_interrupt::<true, false, true>,
            (false, true, true, true) => Self::in_interrupt::<true, true, true>,
            (true, false, false, _) => Self::in_task::<false>,
            (true, false, true, _) => Self::in_task::<true>,
            (true, true, false, false) => Self::echoes_in_interrupt::<false, false>,
            (true, true, true, false) => Self::echoes_in_interrupt::<true, false>,
            (true, true, false, true) => Self::echoes_in_interrupt::<false, true>,
            (true, true, true, true) => Self::echoes_in_interrupt::<true, true>,
        }
    }

    /// Who we are.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Which arm runs.
    pub fn switches(&self) -> Switches {
        self.switches
    }

    /// The driver, for tests and reports.
    pub fn driver(&self) -> &NetDriver<R, M> {
        &self.driver
    }

    /// The machine.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// The card interrupted. With interrupts masked.
    pub fn on_interrupt(&mut self) {
        let cause = self.driver.take_interrupt();
        self.counters.add(Counter::Interrupts, 1);
        let bits = u32::from(cause.used) | u32::from(cause.config) << 1;
        self.trace_now(Event::Interrupt, bits);
        if cause.config && self.driver.needs_restart() {
            self.restart();
            return;
        }
        (self.plan.interrupt)(self);
    }

    /// Announces our address; whoever waits for us knows that we are ready.
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

    /// Traces an event under a new time stamp.
    fn trace_now(&mut self, event: Event, detail: u32) {
        self.now_ns = self.platform.now_ns();
        self.trace.record(self.now_ns, event, detail);
    }

    /// Traces an event that follows another at once.
    fn trace_too(&self, event: Event, detail: u32) {
        self.trace.record(self.now_ns, event, detail);
    }

    /// Restarts the card, and says so: it must never happen.
    fn restart(&mut self) {
        self.counters.add(Counter::Restarts, 1);
        self.trace_now(Event::Restarted, 0);
        self.tx_armed = false;
        if let Err(error) = self.driver.restart() {
            self.platform.print(format_args!("wirepath-guest: restart failed: {error}\n"));
        }
    }
}
