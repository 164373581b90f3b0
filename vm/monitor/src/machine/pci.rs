//! The PCI bus: a host bridge and the device, by configuration mechanism 1.

use crate::lance::{Lance, Width};

/// Device number of the NIC.
const NIC: u32 = 3;
/// Ports of the mechanism: address, then four bytes of data.
pub(super) const ADDRESS: u16 = 0xcf8;
pub(super) const DATA: u16 = 0xcfc;
/// An Intel 440FX: what guests expect at 0:0.0.
const BRIDGE: [u32; 4] = [0x1237_8086, 0, 0x0600_0002, 0];

/// The bridge's address register.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PciBus {
    address: u32,
}

impl PciBus {
    /// True if the mechanism decodes `port`.
    pub(super) fn decodes(port: u16) -> bool {
        (ADDRESS..DATA + 4).contains(&port)
    }

    /// Which function and byte an access to a data port means.
    fn target(&self, port: u16) -> Option<(u32, u8)> {
        let enabled = self.address & 1 << 31 != 0;
        // Bus 0, function 0.
        let ours = self.address & 0x00ff_0700 == 0;
        let at = (self.address & 0xfc) as u8 + (port - DATA) as u8;
        (enabled && ours && port >= DATA).then_some((self.address >> 11 & 0x1f, at))
    }

    pub(super) fn read(&self, lance: Option<&Lance>, port: u16, width: Width) -> u32 {
        if port == ADDRESS && width == Width::Dword {
            return self.address;
        }
        if port < DATA {
            return width.mask();
        }
        match self.target(port) {
            Some((NIC, at)) => lance.map_or(width.mask(), |lance| lance.pci.read(at, width)),
            Some((0, at)) => {
                let long = BRIDGE.get(usize::from(at / 4)).copied().unwrap_or(0);
                long >> (8 * (at & 3)) & width.mask()
            }
            _ => width.mask(),
        }
    }

    pub(super) fn write(&mut self, lance: Option<&mut Lance>, port: u16, width: Width, value: u32) {
        if port == ADDRESS && width == Width::Dword {
            self.address = value;
        } else if port >= DATA
            && let Some((NIC, at)) = self.target(port)
            && let Some(lance) = lance
        {
            lance.pci.write(at, width, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_finds_bridge_and_nic_and_nothing_else() {
        let mut lance = Lance::new([2; 6]);
        let mut bus = PciBus::default();
        let mut found = Vec::new();
        for device in 0..32 {
            bus.write(Some(&mut lance), ADDRESS, Width::Dword, 1 << 31 | device << 11);
            let id = bus.read(Some(&lance), DATA, Width::Dword);
            if id != u32::MAX {
                found.push((device, id));
            }
        }
        assert_eq!(found, [(0, 0x1237_8086), (NIC, 0x2000_1022)]);
        bus.write(Some(&mut lance), ADDRESS, Width::Dword, 1 << 31 | NIC << 11 | 4);
        bus.write(Some(&mut lance), DATA, Width::Word, 5);
        assert!(lance.pci.is_bus_master());
        assert_eq!(bus.read(Some(&lance), DATA + 2, Width::Word), 0x0280);
        // Other buses and functions, and a mechanism that is off, read ones and take nothing.
        for address in [0, 1 << 31 | 1 << 16, 1 << 31 | 1 << 8 | NIC << 11] {
            bus.write(Some(&mut lance), ADDRESS, Width::Dword, address);
            assert_eq!(bus.read(Some(&lance), DATA, Width::Word), 0xffff);
            bus.write(Some(&mut lance), DATA, Width::Dword, 0);
        }
        assert!(lance.pci.is_bus_master());
        // A machine with another card has none there.
        bus.write(None, ADDRESS, Width::Dword, 1 << 31 | NIC << 11);
        assert_eq!(bus.read(None, DATA, Width::Dword), u32::MAX);
        bus.write(None, DATA, Width::Dword, 0);
        assert_eq!(bus.read(Some(&lance), ADDRESS + 1, Width::Byte), 0xff);
    }
}
