//! Cost of an exit on this host. Under nested virtualization it is a hundred times higher, and every
//! figure of this path depends on it.

use host::kvm::{Exit, Vcpu, VirtualMachine};
use sys::clock::thread_cpu_ns;

use super::boot;
use super::error::MonitorError;

/// Exits that are averaged.
const COUNT: u64 = 200;
const RAM_BYTES: usize = 4 << 20;

/// CPU time of one port access that leaves the guest for this process and does nothing there,
/// nanoseconds.
///
/// Errors: no KVM, or [`MonitorError::Unfit`] when it cannot run such guests.
pub fn exit_cost_ns() -> Result<u64, MonitorError> {
    // mov dx, 0x80; in al, dx; jmp to the in
    const CODE: [u8; 7] = [0x66, 0xba, 0x80, 0x00, 0xec, 0xeb, 0xfd];
    let machine = VirtualMachine::new(RAM_BYTES)?;
    boot::write_tables(machine.ram())?;
    machine.ram().write(boot::IMAGE_FLOOR, &CODE)?;
    let mut vcpu = machine.vcpu()?;
    boot::set_registers(&vcpu, boot::IMAGE_FLOOR, RAM_BYTES as u64 - 16)?;
    // The first ones fault memory in.
    (0..3).try_for_each(|_| leave(&mut vcpu))?;
    let before_ns = thread_cpu_ns();
    (0..COUNT).try_for_each(|_| leave(&mut vcpu))?;
    Ok((thread_cpu_ns() - before_ns) / COUNT)
}

/// Runs the guest until it reads its port.
fn leave(vcpu: &mut Vcpu) -> Result<(), MonitorError> {
    loop {
        match vcpu.run()? {
            Exit::In { .. } => {
                vcpu.operand().fill(0);
                return Ok(());
            }
            Exit::Interrupted => {}
            exit => return Err(MonitorError::Unfit { exit }),
        }
    }
}
