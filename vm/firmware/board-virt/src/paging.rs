//! Page tables: read-only code, non-executable data, inaccessible guard pages.
//!
//! `aarch64-rt` starts with a coarse table and caches on; the fine one replaces it.

use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use aarch64_paging::Mapping;
use aarch64_paging::descriptor::{El1Attributes, PhysicalAddress};
use aarch64_paging::paging::{El1And0, MemoryRegion, PageTable, Translation, VaRange};
use aarch64_rt::{InitialPagetable, initial_pagetable};

use crate::stacks;
use crate::tree::Machine;

/// Memory attributes 0 and 1 of `aarch64_rt::DEFAULT_MAIR`: device, normal write-back.
const DEVICE: El1Attributes = El1Attributes::VALID
    .union(El1Attributes::ATTRIBUTE_INDEX_0)
    .union(El1Attributes::ACCESSED)
    .union(El1Attributes::PXN)
    .union(El1Attributes::UXN);
const NORMAL: El1Attributes = El1Attributes::VALID
    .union(El1Attributes::ATTRIBUTE_INDEX_1)
    .union(El1Attributes::INNER_SHAREABLE)
    .union(El1Attributes::ACCESSED)
    .union(El1Attributes::UXN);
const CODE: El1Attributes = NORMAL.union(El1Attributes::READ_ONLY);
const CONSTANTS: El1Attributes = CODE.union(El1Attributes::PXN);
const DATA: El1Attributes = NORMAL.union(El1Attributes::PXN);

initial_pagetable!({
    let mut table = [0; 512];
    table[0] = DEVICE.bits();
    table[1] = NORMAL.bits() | 0x4000_0000;
    InitialPagetable(table)
});

unsafe extern "C" {
    static text_begin: u8;
    static text_end: u8;
    static rodata_begin: u8;
    static rodata_end: u8;
    static data_begin: u8;
    static dma_region: u8;
}

/// GIC, UART, GPIO, virtio: all of `virt`'s low devices.
const DEVICES: MemoryRegion = MemoryRegion::new(0x0800_0000, 0x0b00_0000);

const TABLES: usize = 16;
type Table = PageTable<El1Attributes>;

struct Pool(UnsafeCell<[Table; TABLES]>);

// SAFETY: only `protect` uses it, once, before any task runs.
unsafe impl Sync for Pool {}

static POOL: Pool = Pool(UnsafeCell::new([const { Table::EMPTY }; TABLES]));

/// Allocates tables from a fixed pool; identity mapping.
struct FromPool {
    used: usize,
}

impl Translation<El1Attributes> for FromPool {
    fn allocate_table(&mut self) -> (NonNull<Table>, PhysicalAddress) {
        assert!(self.used < TABLES, "the pool of page tables is empty");
        let table = POOL.0.get().cast::<Table>().wrapping_add(self.used);
        let table = NonNull::new(table).expect("the pool is not at 0");
        self.used += 1;
        (table, PhysicalAddress(table.as_ptr() as usize))
    }

    unsafe fn deallocate_table(&mut self, _table: NonNull<Table>) {
        // Tables are never freed.
    }

    fn physical_to_virtual(&self, address: PhysicalAddress) -> NonNull<Table> {
        NonNull::new(address.0 as *mut Table).expect("no table is at 0")
    }
}

/// Replaces the start-up table. Call once, before any task runs.
pub(crate) fn protect(machine: &Machine) {
    let mapping =
        Mapping::with_asid_and_va_range(FromPool { used: 0 }, 0, 1, El1And0, VaRange::Lower);
    // It must never be dropped.
    let mut mapping = ManuallyDrop::new(mapping);
    let mut map = |start: usize, end: usize, attributes| {
        if start < end {
            let region = MemoryRegion::new(start, end);
            let mapped = map_range(&mut mapping, &region, attributes);
            assert!(mapped, "{start:#x} to {end:#x} cannot be mapped");
        }
    };
    map(DEVICES.start().0, DEVICES.end().0, DEVICE);
    map(machine.tree.start, machine.tree.end, CONSTANTS);
    let address = |symbol: *const u8| symbol as usize;
    map(address(&raw const text_begin), address(&raw const text_end), CODE);
    map(address(&raw const rodata_begin), address(&raw const rodata_end), CONSTANTS);
    let mut start = address(&raw const data_begin);
    for guard in stacks::guards() {
        map(start, guard.start, DATA);
        start = guard.end;
    }
    map(start, address(&raw const dma_region), DATA);
    // SAFETY: everything that the image uses keeps its mapping.
    unsafe { mapping.activate() };
    // SAFETY: flushes the old, coarse and writable entries, which must not be used any more.
    unsafe { core::arch::asm!("dsb ishst", "tlbi vmalle1", "dsb ish", "isb", options(nostack)) };
}

fn map_range(
    mapping: &mut Mapping<FromPool, El1And0>,
    region: &MemoryRegion,
    attributes: El1Attributes,
) -> bool {
    let start = PhysicalAddress(region.start().0);
    mapping
        .map_range(region, start, attributes, aarch64_paging::paging::Constraints::empty())
        .is_ok()
}
