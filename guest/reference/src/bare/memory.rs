//! The heap, and how `virtio-drivers` is told of memory.
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

// SAFETY: the heap is its only user.
unsafe impl Sync for Area {}

static AREA: Area = Area(UnsafeCell::new([MaybeUninit::uninit(); HEAP_BYTES]));

/// Gives the heap its memory; before anything is allocated.
pub(super) fn open() {
    static OPENED: AtomicBool = AtomicBool::new(false);
    assert!(!OPENED.swap(true, Ordering::Relaxed), "the heap is opened once");
    // SAFETY: the flag makes this the only user of the area.
    unsafe { HEAP.init(AREA.0.get() as usize, HEAP_BYTES) }
}

/// Memory is mapped one to one, and QEMU's devices see our caches.
pub(super) struct Identity;

fn pages(count: usize) -> Layout {
    Layout::from_size_align(count * PAGE_SIZE, PAGE_SIZE).expect("few pages")
}

// SAFETY: what `dma_alloc` returns is from the heap, zeroed, aligned to a page and nobody else's;
// addresses of memory are those that the device uses.
unsafe impl Hal for Identity {
    fn dma_alloc(count: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        // SAFETY: nobody asks for no pages.
        let start = unsafe { alloc_zeroed(pages(count)) };
        let start = NonNull::new(start).expect("the heap has room for the rings");
        (start.as_ptr() as PhysAddr, start)
    }

    unsafe fn dma_dealloc(_: PhysAddr, start: NonNull<u8>, count: usize) -> i32 {
        // SAFETY: the caller says that it is from `dma_alloc`.
        unsafe { dealloc(start.as_ptr(), pages(count)) };
        0
    }

    unsafe fn mmio_phys_to_virt(address: PhysAddr, _: usize) -> NonNull<u8> {
        NonNull::new(address as *mut u8).expect("no window lies at 0")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        buffer.as_ptr().cast::<u8>() as PhysAddr
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}
