//! The heap, and the `virtio-drivers` HAL on top of it.
#![expect(unsafe_code, reason = "a heap and a HAL are promises about memory")]

use alloc::alloc::{alloc_zeroed, dealloc};
use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use embedded_alloc::TlsfHeap;
use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

const HEAP_BYTES: usize = 1 << 20;

#[global_allocator]
static HEAP: TlsfHeap = TlsfHeap::empty();

struct Area(UnsafeCell<[MaybeUninit<u8>; HEAP_BYTES]>);

// SAFETY: only the heap uses it.
unsafe impl Sync for Area {}

static AREA: Area = Area(UnsafeCell::new([MaybeUninit::uninit(); HEAP_BYTES]));

/// Initialises the heap. Call before the first allocation.
pub(super) fn open() {
    static OPENED: AtomicBool = AtomicBool::new(false);
    assert!(!OPENED.swap(true, Ordering::Relaxed), "the heap is opened once");
    // SAFETY: the flag makes this the only user of the area.
    unsafe { HEAP.init(AREA.0.get() as usize, HEAP_BYTES) }
}

/// Identity mapping, and QEMU's devices are cache-coherent.
pub(super) struct Identity;

fn pages(count: usize) -> Layout {
    Layout::from_size_align(count * PAGE_SIZE, PAGE_SIZE).expect("few pages")
}

// SAFETY: `dma_alloc` returns unshared memory from the heap, zeroed and page-aligned; devices use
// the same addresses.
unsafe impl Hal for Identity {
    fn dma_alloc(count: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        // SAFETY: the size is never 0.
        let start = unsafe { alloc_zeroed(pages(count)) };
        let start = NonNull::new(start).expect("the heap has room for the rings");
        (start.as_ptr() as PhysAddr, start)
    }

    unsafe fn dma_dealloc(_: PhysAddr, start: NonNull<u8>, count: usize) -> i32 {
        // SAFETY: the caller promises that it is from `dma_alloc`.
        unsafe { dealloc(start.as_ptr(), pages(count)) };
        0
    }

    unsafe fn mmio_phys_to_virt(address: PhysAddr, _: usize) -> NonNull<u8> {
        NonNull::new(address as *mut u8).expect("no window is at 0")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        buffer.as_ptr().cast::<u8>() as PhysAddr
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}
