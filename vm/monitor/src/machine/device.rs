//! The device as the monitor's two threads share it: under one lock, with its wire and its
//! interrupt line.

use std::sync::Arc;

use host::kvm::{Event, GuestRam, KvmError, VirtualMachine};
use sys::clock::monotonic_ns;

use super::backend::{Sender, SenderWire};
use super::condition::Condition;
use super::counters::DeviceWork;
use super::moderation::Moderation;
use super::nic::Nic;
use super::switches::{COMBINE_TICK_US, Switches};
use crate::bus::{Bus, BusError, GuestMemory, Reception};
use crate::lance::Width;

/// Longest time that anything is put off here.
const TICK_NS: u64 = COMBINE_TICK_US * 1000;
/// Looks at the ring by the device's thread for each that is timed, from the first one on. That thread's work is
/// part of what is measured, and two readings of the clock a frame would be a tenth of the cheapest frame.
pub(super) const TIMED_PASSES: u64 = 8;

impl GuestMemory for GuestRam {
    fn read(&self, at: u32, into: &mut [u8]) -> Result<(), BusError> {
        let len_bytes = into.len();
        GuestRam::read(self, u64::from(at), into).map_err(|_| BusError { at, len_bytes })
    }

    fn write(&self, at: u32, from: &[u8]) -> Result<(), BusError> {
        let len_bytes = from.len();
        GuestRam::write(self, u64::from(at), from).map_err(|_| BusError { at, len_bytes })
    }

    fn load_u32(&self, at: u32) -> Result<u32, BusError> {
        GuestRam::load_u32(self, u64::from(at)).map_err(|_| BusError { at, len_bytes: 4 })
    }

    fn store_u32(&self, at: u32, value: u32) -> Result<(), BusError> {
        GuestRam::store_u32(self, u64::from(at), value).map_err(|_| BusError { at, len_bytes: 4 })
    }
}

/// The device's line to the interrupt controller.
///
/// The controller's inputs are edge triggered: a level that rises is one interrupt, and a pulse
/// is as good as a level.
#[derive(Debug)]
pub(super) struct IrqLine {
    machine: Arc<VirtualMachine>,
    line: u32,
    pulse: Option<Event>,
    level: bool,
}

impl IrqLine {
    /// A line of the machine; by pulses of `pulse`, when there is one.
    pub(super) fn new(
        machine: Arc<VirtualMachine>,
        line: u32,
        pulse: Option<Event>,
    ) -> Result<Self, KvmError> {
        if let Some(pulse) = &pulse {
            machine.attach_irq(pulse, line)?;
        }
        Ok(IrqLine { machine, line, pulse, level: false })
    }

    fn set(&mut self, level: bool, work: &mut DeviceWork) -> Result<(), KvmError> {
        if level == self.level {
            return Ok(());
        }
        self.level = level;
        work.interrupt_count += u64::from(level);
        match &self.pulse {
            Some(pulse) => {
                if level {
                    work.interrupt_call_count += 1;
                    pulse.ring()?;
                }
                Ok(())
            }
            None => {
                work.interrupt_call_count += 1;
                self.machine.set_irq(self.line, level)
            }
        }
    }
}

/// Device, wire and line.
pub(super) struct Device {
    pub(super) nic: Nic,
    pub(super) sender: Box<dyn Sender>,
    pub(super) work: DeviceWork,
    /// System calls of the receiving half, which the device's thread has.
    pub(super) receive_call_count: u64,
    /// The vCPU's thread holds the device now.
    pub(super) is_guest_waiting: bool,
    ram: GuestRam,
    line: IrqLine,
    /// Delayed interrupts; `None` without `int-moderation`.
    moderation: Option<Moderation>,
    /// Demands that go together at most.
    combine_frames: u64,
    /// Demands that wait for others.
    pending: u64,
    first_pending_ns: u64,
    last_demand_ns: u64,
    /// Since when the back end has frames that the kernel has not taken.
    left_since_ns: Option<u64>,
}

impl Device {
    pub(super) fn new(
        nic: Nic,
        sender: Box<dyn Sender>,
        ram: GuestRam,
        line: IrqLine,
        switches: &Switches,
    ) -> Self {
        Device {
            nic,
            sender,
            work: DeviceWork::default(),
            receive_call_count: 0,
            is_guest_waiting: false,
            ram,
            line,
            moderation: switches.int_moderation.then(Moderation::default),
            combine_frames: switches.combine_frames(),
            pending: 0,
            first_pending_ns: 0,
            last_demand_ns: 0,
            left_since_ns: None,
        }
    }

    /// All that was done so far.
    pub(super) fn work(&self) -> DeviceWork {
        DeviceWork {
            backend_call_count: self.receive_call_count + self.sender.call_count(),
            refused_count: self.sender.refused_count(),
            ..self.work
        }
    }

    /// How things stand.
    pub(super) fn condition(&self) -> Condition {
        Condition {
            nic: self.nic.state(&self.ram),
            pending_demand_count: self.pending,
            unsent_count: self.sender.unsent_count(),
        }
    }

    /// Has the device do something, hands over what it sent, and sets the line.
    fn with<R>(
        &mut self,
        body: impl FnOnce(&mut Nic, &mut Bus<'_, GuestRam, SenderWire<'_>>) -> R,
    ) -> Result<R, KvmError> {
        let sent_before = self.nic.counters().tx_frame_count;
        // On the processor's thread the guest waits, and where the time goes is what this path is
        // about; an exit costs far more than a few reads of the clock.
        let timed = self.is_guest_waiting;
        let is_sampled = !timed && self.work.thread_pass_count.is_multiple_of(TIMED_PASSES);
        let now_ns = || if timed { monotonic_ns() } else { 0 };
        let send_ns = (timed || is_sampled).then_some(0);
        let mut wire = SenderWire { sender: self.sender.as_mut(), send_ns };
        let begin_ns = now_ns();
        let result = body(&mut self.nic, &mut Bus { memory: &self.ram, wire: &mut wire });
        let send_ns = wire.send_ns.unwrap_or(0);
        let emulated_ns = now_ns();
        let sent_count = self.nic.counters().tx_frame_count - sent_before;
        if sent_count > 0 {
            if !timed {
                self.work.thread_pass_count += 1;
            }
            if is_sampled {
                let flush_ns = monotonic_ns();
                self.sender.flush();
                self.work.device_transmit_ns += send_ns + (monotonic_ns() - flush_ns);
                self.work.device_timed_frame_count += sent_count;
            } else {
                self.sender.flush();
            }
        }
        if let Some(place) = self.sender.in_place() {
            // The line is an edge: it must fall after an acknowledgement, or the guest is not told of a frame that
            // arrives in the same call.
            if !self.nic.irq() {
                self.line.set(false, &mut self.work)?;
            }
            self.nic.exchange(&self.ram, place);
        }
        if sent_count > 0 {
            if self.nic.masks_tx_interrupt() {
                self.work.masked_frame_count += sent_count;
            }
            if self.nic.is_packed() {
                self.work.packed_frame_count += sent_count;
            }
        }
        let flushed_ns = now_ns();
        self.set_line(sent_count)?;
        if timed {
            let work = &mut self.work;
            work.vcpu_sent_frame_count += sent_count;
            work.emulate_ns += (emulated_ns - begin_ns).saturating_sub(send_ns);
            work.transmit_ns += send_ns + (flushed_ns - emulated_ns);
            work.notify_ns += monotonic_ns() - flushed_ns;
        }
        Ok(result)
    }

    /// Sets the interrupt line as the device has it, or later; `sent_count` frames were just sent.
    fn set_line(&mut self, sent_count: u64) -> Result<(), KvmError> {
        let mut level = self.nic.irq();
        if let Some(moderation) = &mut self.moderation {
            // A line that is up tells of these as well.
            if self.line.level || !self.nic.irq_tells_only_of_sent() {
                moderation.clear();
            } else if moderation.puts_off(sent_count, monotonic_ns()) {
                self.work.moderated_count += sent_count;
                level = false;
            }
        }
        self.line.set(level, &mut self.work)
    }

    /// A read of one of the device's ports.
    pub(super) fn read(&mut self, offset: u16, width: Width) -> Result<u32, KvmError> {
        self.with(|nic, _| nic.read(offset, width))
    }

    /// A write to one of the device's ports; a demand may be put off.
    pub(super) fn write(
        &mut self,
        offset: u16,
        width: Width,
        value: u32,
        now_ns: u64,
    ) -> Result<(), KvmError> {
        if self.combine_frames > 1
            && self.nic.can_transmit()
            && let Some(rest) = self.nic.without_demand(offset, width, value)
        {
            if let Some(rest) = rest {
                self.with(|nic, bus| nic.write(bus, offset, width, rest))?;
            }
            return self.demand(1, now_ns);
        }
        if self.nic.stops(offset, width, value) {
            self.pending = 0;
        }
        self.with(|nic, bus| nic.write(bus, offset, width, value))
    }

    /// `count` demands, which go at once or with others.
    pub(super) fn demand(&mut self, count: u64, now_ns: u64) -> Result<(), KvmError> {
        if self.pending == 0 {
            self.first_pending_ns = now_ns;
        }
        self.pending += count;
        // Fewer than one per tick: no other demand would arrive in time to be combined.
        let busy = now_ns.saturating_sub(self.last_demand_ns) < TICK_NS;
        self.last_demand_ns = now_ns;
        if busy && self.pending < self.combine_frames && !self.is_overdue(now_ns) {
            self.work.combined_count += count;
            return Ok(());
        }
        self.flush()
    }

    fn is_overdue(&self, now_ns: u64) -> bool {
        self.pending > 0 && now_ns.saturating_sub(self.first_pending_ns) >= TICK_NS
    }

    /// Sends what has waited for a tick, and tells the guest of it.
    pub(super) fn tick(&mut self, now_ns: u64) -> Result<(), KvmError> {
        if self.moderation.as_ref().is_some_and(|moderation| moderation.is_overdue(now_ns)) {
            self.set_line(0)?;
        }
        if self.sender.unsent_count() == 0 {
            self.left_since_ns = None;
        } else if now_ns.saturating_sub(*self.left_since_ns.get_or_insert(now_ns)) >= TICK_NS {
            // Asked again at once it would refuse again, and a thread that spins would do so.
            self.left_since_ns = None;
            self.sender.flush();
        }
        if self.is_overdue(now_ns) || self.nic.has_demand() { self.flush() } else { Ok(()) }
    }

    /// True if an interrupt is delayed.
    pub(super) fn puts_off_interrupt(&self) -> bool {
        self.moderation.as_ref().is_some_and(Moderation::is_waiting)
    }

    /// True if demands are being combined, an interrupt is delayed, the back end is full, or the kernel
    /// has frames left.
    pub(super) fn is_waiting(&self) -> bool {
        self.pending > 0
            || self.nic.has_demand()
            || self.puts_off_interrupt()
            || self.sender.unsent_count() > 0
    }

    /// Looks at the ring now.
    pub(super) fn flush(&mut self) -> Result<(), KvmError> {
        self.pending = 0;
        self.with(|nic, bus| nic.demand(bus))
    }

    /// Sends what waits for others, since the guest has been left anyway.
    pub(super) fn flush_at_exit(&mut self) -> Result<(), KvmError> {
        if self.pending == 0 {
            return Ok(());
        }
        let before = self.nic.counters().tx_frame_count;
        self.flush()?;
        self.work.exit_flush_count += 1;
        self.work.exit_flushed_frame_count += self.nic.counters().tx_frame_count - before;
        Ok(())
    }

    /// Looks at the ring as the chip does by itself; returns whether it found anything.
    pub(super) fn poll(&mut self) -> Result<bool, KvmError> {
        let before = self.nic.counters().tx_frame_count;
        self.with(|nic, bus| nic.poll(bus))?;
        let found_count = self.nic.counters().tx_frame_count - before;
        self.work.polled_frame_count += found_count;
        Ok(found_count > 0)
    }

    /// Before polling ends: asks the guest for demands. Returns true if frames wait already.
    pub(super) fn rearm(&mut self) -> Result<bool, KvmError> {
        self.with(|nic, bus| nic.rearm(bus.memory))
    }

    /// Exchanges frames with a back end that has guest memory. Returns true if one arrived.
    pub(super) fn exchange(&mut self) -> Result<bool, KvmError> {
        let before = self.nic.counters().rx_frame_count;
        self.with(|_, _| ())?;
        Ok(self.nic.counters().rx_frame_count > before)
    }

    /// A frame from the network; what waits to be sent goes with it.
    pub(super) fn receive(&mut self, frame: &[u8]) -> Result<Reception, KvmError> {
        if self.pending > 0 {
            self.flush()?;
        }
        self.with(|nic, bus| nic.receive(bus.memory, frame))
    }
}
