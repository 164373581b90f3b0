//! Reads the device tree.

use core::ops::Range;

use dtoolkit::fdt::Fdt;
use dtoolkit::standard::NodeStandard;
use dtoolkit::{Node, Property};

use crate::{console, power};

/// QEMU's address of the tree for an image that is not a Linux kernel: the start of RAM.
const RAM: usize = 0x4000_0000;
/// virtio-mmio windows on `virt`.
const WINDOWS_MAX: usize = 32;

/// The parts of the device tree that the firmware uses.
#[derive(Debug, Clone)]
pub struct Machine {
    pub command_line: &'static str,
    /// Address range of the tree itself.
    pub tree: Range<usize>,
    windows: [(usize, u32); WINDOWS_MAX],
    windows_count: usize,
}

impl Machine {
    /// virtio-mmio windows: address, and number of the shared peripheral interrupt.
    pub fn virtio_windows(&self) -> &[(usize, u32)] {
        &self.windows[..self.windows_count]
    }
}

/// Reads the tree at `address`, or at the start of RAM if that is 0. Powers off if there is none.
pub(crate) fn read(address: usize) -> Machine {
    let address = if address == 0 { RAM } else { address };
    // SAFETY: RAM is mapped; the tree is validated before use, and never written.
    let parsed = unsafe { Fdt::from_raw(address as *const u8) };
    let Ok(tree) = parsed else {
        console::print(format_args!("wirepath-guest: no device tree at {address:#x}\n"));
        power::off()
    };
    let root = tree.root();
    let command_line = root
        .child("chosen")
        .and_then(|chosen| chosen.property("bootargs"))
        .and_then(|value| value.value_as::<&'static str>().ok())
        .unwrap_or("");
    let mut machine = Machine {
        command_line,
        tree: address..address + tree.data().len(),
        windows: [(0, 0); WINDOWS_MAX],
        windows_count: 0,
    };
    for node in root.children().filter(|node| node.is_compatible("virtio,mmio")) {
        let word = |name, index: usize| {
            let property = node.property(name)?;
            let bytes = property.value().get(index * 4..index * 4 + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?))
        };
        // reg = <address-high address-low size-high size-low>; interrupts = <0 number flags>.
        let (Some(0), Some(low), Some(0), Some(number)) =
            (word("reg", 0), word("reg", 1), word("interrupts", 0), word("interrupts", 1))
        else {
            continue;
        };
        if let Some(slot) = machine.windows.get_mut(machine.windows_count) {
            *slot = (low as usize, number);
            machine.windows_count += 1;
        }
    }
    machine
}
