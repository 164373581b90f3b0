//! The processor's thread: runs the guest and answers when it is left.

use std::sync::PoisonError;

use guest_pages::{Signal, report};
use host::kvm::{Exit, Vcpu, VcpuStatistics};
use sys::clock::monotonic_ns;
use sys::rusage::ThreadUsage;

use super::boot::REPORT_PAGE;
use super::counters::{Exits, Snapshot};
use super::error::MonitorError;
use super::pci::PciBus;
use super::shared::Shared;
use super::shortcuts::Shortcuts;
use super::spec::{GuestEnd, GuestOutcome};
use crate::lance::{LancePort, RAP_WORD, Width, csr0};
use crate::virtio::{TX, register};

/// The kernel's processor, and its statistics where the kernel has them.
pub(super) type Descriptors = (Vcpu, Option<VcpuStatistics>);

/// The processor and what it sees beside the device.
pub(super) struct Processor<'a> {
    shared: &'a Shared,
    vcpu: Vcpu,
    statistics: Option<VcpuStatistics>,
    bus: PciBus,
    exits: Exits,
    handling_ns: u64,
    shortcuts: Shortcuts,
    begin: Option<Snapshot>,
    measured: Option<Snapshot>,
}

impl<'a> Processor<'a> {
    pub(super) fn new(shared: &'a Shared, vcpu: Vcpu, statistics: Option<VcpuStatistics>) -> Self {
        Processor {
            shared,
            statistics,
            vcpu,
            bus: PciBus::default(),
            exits: Exits::default(),
            handling_ns: 0,
            shortcuts: Shortcuts::default(),
            begin: None,
            measured: None,
        }
    }

    /// Descriptors to close after the run.
    pub(super) fn into_descriptors(self) -> Descriptors {
        (self.vcpu, self.statistics)
    }

    pub(super) fn run(&mut self) -> Result<GuestOutcome, MonitorError> {
        self.take_shortcuts()?;
        let end = loop {
            if self.shared.is_stopping() {
                break GuestEnd::Stopped;
            }
            let exit = self.vcpu.run()?;
            let (before_ns, demand_count) = (monotonic_ns(), self.exits.demand_count);
            self.drain(before_ns)?;
            let end = self.handle(exit, before_ns)?;
            // An exit for a demand is not a reason: each would send at once, and combine nothing.
            if self.shared.switches.flush_at_exit && self.exits.demand_count == demand_count {
                self.shared.device_for_guest().flush_at_exit()?;
            }
            self.handling_ns += monotonic_ns() - before_ns;
            if let Some(end) = end {
                break end;
            }
        };
        let condition = self.shared.device_for_guest().condition();
        Ok(GuestOutcome { end, measured: self.measured.take(), total: self.snapshot()?, condition })
    }

    /// Applies the writes that the kernel collected: they came before whatever is handled next.
    fn drain(&mut self, now_ns: u64) -> Result<(), MonitorError> {
        let Some(rap) = self.shortcuts.rap else { return Ok(()) };
        let mut failed = Ok(());
        let mut device = None;
        let count = self.vcpu.drain(|write| {
            let device = device.get_or_insert_with(|| self.shared.device_for_guest());
            if write.port == rap && write.width_bytes == 2 {
                let done = device.write(RAP_WORD.into(), Width::Word, write.value, now_ns);
                if done.is_err() {
                    failed = done;
                }
            }
        })?;
        drop(device);
        self.exits.coalesced_count += count as u64;
        Ok(failed?)
    }

    fn handle(&mut self, exit: Exit, now_ns: u64) -> Result<Option<GuestEnd>, MonitorError> {
        match exit {
            Exit::In { port, width_bytes, count } => {
                self.each(width_bytes, count, |this, operand, width| {
                    let value = this.port_in(port, width)?;
                    operand.copy_from_slice(&value.to_le_bytes()[..operand.len()]);
                    Ok(None)
                })
            }
            Exit::Out { port, width_bytes, count } => {
                self.each(width_bytes, count, |this, operand, width| {
                    let mut value = [0; 4];
                    value[..operand.len()].copy_from_slice(operand);
                    this.port_out(port, width, u32::from_le_bytes(value), now_ns)
                })
            }
            Exit::MemoryRead { address } => {
                let mut operand = [0xff; 8];
                let len = self.vcpu.operand().len().min(8);
                if let Some((offset, width)) = self.memory_register(address, len) {
                    self.exits.other_device_count += 1;
                    let value = self.shared.device_for_guest().read(offset, width)?;
                    operand[..len].copy_from_slice(&value.to_le_bytes()[..len]);
                } else {
                    self.exits.stray_count += 1;
                }
                self.vcpu.operand().copy_from_slice(&operand[..len]);
                self.take_shortcuts()?;
                Ok(None)
            }
            Exit::MemoryWrite { address } => {
                let mut operand = [0; 8];
                let len = self.vcpu.operand().len().min(8);
                operand[..len].copy_from_slice(&self.vcpu.operand()[..len]);
                if let Some((offset, width)) = self.memory_register(address, len) {
                    let value = u32::from_le_bytes([0, 1, 2, 3].map(|i| operand[i]));
                    self.memory_write(offset, width, value, now_ns)?;
                } else {
                    self.exits.stray_count += 1;
                }
                self.take_shortcuts()?;
                Ok(None)
            }
            Exit::Interrupted => {
                self.exits.interrupted_count += 1;
                Ok(None)
            }
            // The in-kernel controller keeps halts to itself.
            Exit::Halt => {
                self.exits.halt_count += 1;
                Ok(None)
            }
            Exit::Shutdown => Ok(Some(GuestEnd::Shutdown)),
            Exit::Failed { what, detail } => {
                let at = self.vcpu.registers().map(|registers| registers.rip).unwrap_or(0);
                Ok(Some(GuestEnd::Stuck { what: what.to_owned(), detail, at }))
            }
        }
    }

    /// Register of the device that a memory access means.
    fn memory_register(&self, address: u64, len: usize) -> Option<(u16, Width)> {
        let width = Width::new(len)?;
        Some((self.shared.device_for_guest().nic.decode_memory(address)?, width))
    }

    /// A write to one of the device's registers in memory.
    fn memory_write(
        &mut self,
        offset: u16,
        width: Width,
        value: u32,
        now_ns: u64,
    ) -> Result<(), MonitorError> {
        let mut device = self.shared.device_for_guest();
        let notifies = device.nic.is_virtio() && offset == register::QUEUE_NOTIFY;
        let demands = notifies && value == u32::from(TX);
        self.exits.demand_count += u64::from(demands);
        self.exits.other_device_count += 1;
        let put_off = device.puts_off_interrupt();
        device.write(offset, width, value, now_ns)?;
        // As for ports; and buffers for a frame that is held, or frames that the device is to poll for.
        let tells = device.nic.has_demand()
            || device.sender.unsent_count() > 0
            || !put_off && device.puts_off_interrupt() && self.shared.switches.tdmd_doorbell
            || notifies && (!demands || self.shared.switches.own_polling)
            || offset == register::STATUS && device.nic.is_virtio();
        device.work.event_call_count += u64::from(tells);
        drop(device);
        if tells {
            self.shared.wake();
        }
        Ok(())
    }

    /// Does each access of a port instruction; a string instruction makes several.
    fn each(
        &mut self,
        width_bytes: u8,
        count: u32,
        mut access: impl FnMut(&mut Self, &mut [u8], Width) -> Result<Option<GuestEnd>, MonitorError>,
    ) -> Result<Option<GuestEnd>, MonitorError> {
        let Some(width) = Width::new(width_bytes.into()) else { return Ok(None) };
        for i in 0..count as usize {
            let range = i * width.bytes()..(i + 1) * width.bytes();
            let mut value = [0; 4];
            let value = &mut value[..width.bytes()];
            let Some(operand) = self.vcpu.operand().get(range.clone()) else { break };
            value.copy_from_slice(operand);
            let end = access(self, value, width)?;
            if let Some(operand) = self.vcpu.operand().get_mut(range) {
                operand.copy_from_slice(value);
            }
            if end.is_some() {
                return Ok(end);
            }
        }
        Ok(None)
    }

    fn port_in(&mut self, port: u16, width: Width) -> Result<u32, MonitorError> {
        let mut device = self.shared.device_for_guest();
        if PciBus::decodes(port) {
            self.exits.configuration_count += 1;
            return Ok(self.bus.read(device.nic.lance(), port, width));
        }
        let lance = device.nic.lance();
        let Some((lance, offset)) = lance.and_then(|l| Some((l, l.pci.decode_port(port)?))) else {
            self.exits.stray_count += 1;
            return Ok(width.mask());
        };
        let register = lance.port(offset, width);
        match register {
            Some(LancePort::Rdp) => {
                self.exits.csr_read_counts[usize::from(lance.rap() & 0x7f)] += 1;
            }
            Some(LancePort::Rap) => self.exits.rap_read_count += 1,
            _ => self.exits.other_device_count += 1,
        }
        let value = device.read(offset.into(), width)?;
        drop(device);
        if register == Some(LancePort::Reset) {
            self.take_shortcuts()?;
        }
        Ok(value)
    }

    fn port_out(
        &mut self,
        port: u16,
        width: Width,
        value: u32,
        now_ns: u64,
    ) -> Result<Option<GuestEnd>, MonitorError> {
        if port == guest_pages::PORT {
            self.exits.signal_count += 1;
            return self.signal(value as u8);
        }
        let mut device = self.shared.device_for_guest();
        if PciBus::decodes(port) {
            self.exits.configuration_count += 1;
            self.bus.write(device.nic.lance_mut(), port, width, value);
            drop(device);
            self.take_shortcuts()?;
            return Ok(None);
        }
        let lance = device.nic.lance();
        let Some((lance, offset)) = lance.and_then(|l| Some((l, l.pci.decode_port(port)?))) else {
            self.exits.stray_count += 1;
            return Ok(None);
        };
        let rap = lance.rap();
        let mut changes = true;
        match lance.port(offset, width) {
            Some(LancePort::Rdp) => {
                self.exits.csr_write_counts[usize::from(rap & 0x7f)] += 1;
                let status = rap == 0;
                self.exits.demand_count += u64::from(status && value as u16 & csr0::TDMD != 0);
                let commands = csr0::INIT | csr0::STRT | csr0::STOP;
                // Starting, stopping, and suspending change what a doorbell means.
                changes = status && value as u16 & commands != 0 || rap == 5;
                if status && value as u16 & csr0::STOP != 0 {
                    // What was rung before the stop is void.
                    self.shared.doorbell.take();
                    device.work.event_call_count += 1;
                }
            }
            Some(LancePort::Rap) => {
                self.exits.rap_write_count += 1;
                changes = false;
            }
            _ => self.exits.other_device_count += 1,
        }
        let put_off = device.puts_off_interrupt();
        device.write(offset.into(), width, value, now_ns)?;
        // The wire had no room, the kernel none for all, or an interrupt is put off as soon as the
        // guest allows it, for frames sent since: the device's thread polls again.
        let tells = changes
            || device.nic.has_demand()
            || device.sender.unsent_count() > 0
            || !put_off && device.puts_off_interrupt() && self.shared.switches.tdmd_doorbell;
        device.work.event_call_count += u64::from(tells);
        drop(device);
        if changes {
            self.take_shortcuts()?;
        }
        if tells {
            self.shared.wake();
        }
        Ok(None)
    }

    /// Tells the kernel which accesses need not leave the guest in the device's present state.
    fn take_shortcuts(&mut self) -> Result<(), MonitorError> {
        Ok(self.shortcuts.update(self.shared)?)
    }

    fn signal(&mut self, byte: u8) -> Result<Option<GuestEnd>, MonitorError> {
        match Signal::from_byte(byte) {
            Some(Signal::Begin) => self.begin = Some(self.snapshot()?),
            Some(Signal::End) => {
                if let Some(begin) = &self.begin {
                    self.measured = Some(self.snapshot()?.since(begin));
                }
            }
            Some(Signal::Done) => return Ok(Some(GuestEnd::Done)),
            Some(Signal::Failed) => {
                let report = self.report();
                return Ok(Some(GuestEnd::GuestFailed {
                    line: report[report::PANIC_LINE],
                    exception: report[report::EXCEPTION],
                    at: report[report::EXCEPTION_AT],
                }));
            }
            Some(Signal::Ready) | None => {}
        }
        Ok(None)
    }

    fn report(&self) -> [u64; report::LEN] {
        let ram = self.shared.machine.ram();
        std::array::from_fn(|i| ram.load_u64(REPORT_PAGE + 8 * i as u64).unwrap_or(0))
    }

    fn snapshot(&self) -> Result<Snapshot, MonitorError> {
        let clock = self.shared.worker_clock.lock().unwrap_or_else(PoisonError::into_inner);
        let device_cpu_ns = clock.as_ref().map_or(0, sys::clock::ThreadCpuClock::read_ns);
        let device = self.shared.device_for_guest();
        Ok(Snapshot {
            at_ns: monotonic_ns(),
            began_ns: 0,
            exits: self.exits.clone(),
            work: device.work(),
            nic: *device.nic.counters(),
            vcpu: ThreadUsage::now(),
            device_cpu_ns,
            handling_ns: self.handling_ns,
            kernel: self.statistics.as_ref().map_or(Ok(Default::default()), |s| s.read())?,
            report: self.report(),
        })
    }
}
