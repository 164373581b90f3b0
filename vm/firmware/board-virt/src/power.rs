//! Power control through PSCI.

use smccc::{Hvc, psci};

/// Powers the machine off: QEMU exits.
pub fn off() -> ! {
    let _ = psci::system_off::<Hvc>();
    loop {
        aarch64_cpu::asm::wfi();
    }
}

pub fn wait_for_interrupt() {
    aarch64_cpu::asm::wfi();
}
