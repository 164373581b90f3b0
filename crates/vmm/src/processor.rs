//! The processor's thread: runs the guest and answers when it is left.

use std::sync::PoisonError;

use host::kvm::{Exit, Vcpu, VcpuStatistics};
use sys::clock::monotonic_ns;
use sys::rusage::ThreadUsage;
use wire::nettest::{self, Signal, report};

use super::boot::REPORT_PAGE;
use super::counters::{Exits, Snapshot};
use super::monitor::{End, MonitorError, Outcome, Shared};
use super::pci::PciBus;
use crate::lance::{Port, RAP_WORD, RDP, Width, csr0};

/// Value that the guest writes to CSR0 to start transmission: TDMD and INEA.
const KICK: u16 = csr0::TDMD | csr0::INEA;

/// Port accesses that are registered with the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Shortcuts {
    /// Port whose writes it collects.
    rap: Option<u16>,
    /// Port whose demands ring the bell.
    doorbell: Option<u16>,
}

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

    pub(super) fn run(&mut self) -> Result<Outcome, MonitorError> {
        self.take_shortcuts()?;
        let end = loop {
            if self.shared.is_stopping() {
                break End::Stopped;
            }
            let exit = self.vcpu.run()?;
            let (before_ns, demand_count) = (monotonic_ns(), self.exits.demand_count);
            self.drain(before_ns)?;
            let end = self.handle(exit, before_ns)?;
            // An exit for a demand is no reason: each would send at once, and combine nothing.
            if self.shared.switches.flush_at_exit && self.exits.demand_count == demand_count {
                self.shared.device_for_guest().flush_at_exit()?;
            }
            self.handling_ns += monotonic_ns() - before_ns;
            if let Some(end) = end {
                break end;
            }
        };
        let condition = self.shared.device_for_guest().condition();
        Ok(Outcome { end, measured: self.measured.take(), total: self.snapshot()?, condition })
    }

    /// Applies the writes that the kernel collected: they came before whatever is handled next.
    fn drain(&mut self, now_ns: u64) -> Result<(), MonitorError> {
        let Some(rap) = self.shortcuts.rap else { return Ok(()) };
        let mut failed = Ok(());
        let mut device = None;
        let count = self.vcpu.drain(|write| {
            let device = device.get_or_insert_with(|| self.shared.device_for_guest());
            if write.port == rap && write.width_bytes == 2 {
                let done = device.write(RAP_WORD, Width::Word, write.value, now_ns);
                if done.is_err() {
                    failed = done;
                }
            }
        })?;
        drop(device);
        self.exits.coalesced_count += count as u64;
        Ok(failed?)
    }

    fn handle(&mut self, exit: Exit, now_ns: u64) -> Result<Option<End>, MonitorError> {
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
                    self.exits.other_device_count += 1;
                    let value = u32::from_le_bytes([0, 1, 2, 3].map(|i| operand[i]));
                    self.shared.device_for_guest().write(offset, width, value, now_ns)?;
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
            Exit::Shutdown => Ok(Some(End::Shutdown)),
            Exit::Failed { what, detail } => {
                let at = self.vcpu.registers().map(|registers| registers.rip).unwrap_or(0);
                Ok(Some(End::Stuck { what: what.to_owned(), detail, at }))
            }
        }
    }

    /// Register of the device that a memory access means.
    fn memory_register(&self, address: u64, len: usize) -> Option<(u8, Width)> {
        let width = Width::of_bytes(len)?;
        Some((self.shared.device_for_guest().lance.pci.decode_memory(address)?, width))
    }

    /// Does each access of a port instruction; a string instruction makes several.
    fn each(
        &mut self,
        width_bytes: u8,
        count: u32,
        mut access: impl FnMut(&mut Self, &mut [u8], Width) -> Result<Option<End>, MonitorError>,
    ) -> Result<Option<End>, MonitorError> {
        let Some(width) = Width::of_bytes(width_bytes.into()) else { return Ok(None) };
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
            return Ok(self.bus.read(&device.lance, port, width));
        }
        let Some(offset) = device.lance.pci.decode_port(port) else {
            self.exits.stray_count += 1;
            return Ok(width.mask());
        };
        let register = device.lance.port(offset, width);
        match register {
            Some(Port::Rdp) => {
                self.exits.csr_read_counts[usize::from(device.lance.rap() & 0x7f)] += 1;
            }
            Some(Port::Rap) => self.exits.rap_read_count += 1,
            _ => self.exits.other_device_count += 1,
        }
        let value = device.read(offset, width)?;
        drop(device);
        if register == Some(Port::Reset) {
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
    ) -> Result<Option<End>, MonitorError> {
        if port == nettest::PORT {
            self.exits.signal_count += 1;
            return self.signal(value as u8);
        }
        let mut device = self.shared.device_for_guest();
        if PciBus::decodes(port) {
            self.exits.configuration_count += 1;
            self.bus.write(&mut device.lance, port, width, value);
            drop(device);
            self.take_shortcuts()?;
            return Ok(None);
        }
        let Some(offset) = device.lance.pci.decode_port(port) else {
            self.exits.stray_count += 1;
            return Ok(None);
        };
        let rap = device.lance.rap();
        let mut changes = true;
        match device.lance.port(offset, width) {
            Some(Port::Rdp) => {
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
            Some(Port::Rap) => {
                self.exits.rap_write_count += 1;
                changes = false;
            }
            _ => self.exits.other_device_count += 1,
        }
        let put_off = device.puts_off_interrupt();
        device.write(offset, width, value, now_ns)?;
        // The wire had no room, the kernel none for all, or an interrupt is put off as soon as the
        // guest allows it, for frames sent since: the device's thread polls again.
        let tells = changes
            || device.lance.has_demand()
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
        let wanted = {
            let device = self.shared.device_for_guest();
            let lance = &device.lance;
            // Only the 16-bit layout has shortcuts: it is what the drivers use.
            let base = lance.pci.io_base().filter(|&base| {
                base <= u16::MAX - 31 && lance.port(RAP_WORD, Width::Word).is_some()
            });
            let switches = &self.shared.switches;
            Shortcuts {
                rap: base.filter(|_| switches.rap_in_kernel).map(|base| base + u16::from(RAP_WORD)),
                doorbell: base
                    .filter(|_| switches.tdmd_doorbell && lance.can_transmit())
                    .map(|base| base + u16::from(RDP)),
            }
        };
        let machine = &self.shared.machine;
        if wanted.rap != self.shortcuts.rap {
            if let Some(port) = self.shortcuts.rap.take() {
                machine.uncoalesce(port, 2)?;
            }
            if let Some(port) = wanted.rap {
                machine.coalesce(port, 2)?;
                self.shortcuts.rap = Some(port);
            }
        }
        if wanted.doorbell != self.shortcuts.doorbell {
            let doorbell = &self.shared.doorbell;
            if let Some(port) = self.shortcuts.doorbell.take() {
                machine.detach_doorbell(doorbell, port, KICK)?;
            }
            if let Some(port) = wanted.doorbell {
                machine.attach_doorbell(doorbell, port, KICK)?;
                self.shortcuts.doorbell = Some(port);
            }
        }
        Ok(())
    }

    fn signal(&mut self, byte: u8) -> Result<Option<End>, MonitorError> {
        match Signal::from_byte(byte) {
            Some(Signal::Begin) => self.begin = Some(self.snapshot()?),
            Some(Signal::End) => {
                if let Some(begin) = &self.begin {
                    self.measured = Some(self.snapshot()?.since(begin));
                }
            }
            Some(Signal::Done) => return Ok(Some(End::Done)),
            Some(Signal::Failed) => {
                let report = self.report();
                return Ok(Some(End::GuestFailed {
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
        let device_cpu_ns = clock.as_ref().map_or(0, sys::clock::ThreadClock::read_ns);
        let device = self.shared.device_for_guest();
        Ok(Snapshot {
            at_ns: monotonic_ns(),
            exits: self.exits.clone(),
            work: device.work(),
            lance: device.lance.counters,
            vcpu: ThreadUsage::now(),
            device_cpu_ns,
            handling_ns: self.handling_ns,
            kernel: self.statistics.as_ref().map_or(Ok(Default::default()), |s| s.read())?,
            report: self.report(),
        })
    }
}
