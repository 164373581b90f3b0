//! The crate `virtio-drivers` as the driver of a virtio-net card: a driver that is not this project's,
//! against which the monitor's card is tested.
//!
//! Its raw interface does not wait, as the project's own driver. Buffers are static; a slot has a buffer
//! for each descriptor of a ring.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

use guest_pages::{boot, report};
use virtio_drivers::device::net::VirtIONetRaw;
use virtio_drivers::transport::mmio::MmioTransport;
use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

use crate::cpu::{pause, ticks};
use crate::pages::{Boot, Report};
use crate::virtio_net;
use crate::wake::sleep_until;

/// Entries of a ring.
const RING: usize = 64;
/// Room for the header and the longest frame.
const BUFFER_BYTES: usize = 2048;
/// Bytes of the register window.
const WINDOW_BYTES: usize = 0x200;
/// Pages for two rings, of which each half has its own.
const DMA_PAGES: usize = 4;
/// Polls of a full ring before the driver sleeps.
const FULL_SPINS: u32 = 64;

#[repr(C, align(4096))]
struct Pages(UnsafeCell<[[u8; PAGE_SIZE]; DMA_PAGES]>);

// SAFETY: `dma_alloc` returns each page once.
unsafe impl Sync for Pages {}

static PAGES: Pages = Pages(UnsafeCell::new([[0; PAGE_SIZE]; DMA_PAGES]));
static USED_PAGES: AtomicUsize = AtomicUsize::new(0);

struct Buffers(UnsafeCell<[[u8; BUFFER_BYTES]; RING]>);

// SAFETY: there is one card, on the only processor, and interrupt handlers use no buffer.
unsafe impl Sync for Buffers {}

static TX_BUFFERS: Buffers = Buffers(UnsafeCell::new([[0; BUFFER_BYTES]; RING]));
static RX_BUFFERS: Buffers = Buffers(UnsafeCell::new([[0; BUFFER_BYTES]; RING]));

impl Buffers {
    /// A buffer.
    ///
    /// # Safety
    ///
    /// The card must not have the buffer while its bytes are used, and there must be no other reference.
    unsafe fn get(&self, slot: u8) -> &'static mut [u8; BUFFER_BYTES] {
        let first = self.0.get().cast::<[u8; BUFFER_BYTES]>();
        assert!(usize::from(slot) < RING);
        // SAFETY: the index is below the length of the array.
        let at = unsafe { first.add(slot.into()) };
        // SAFETY: the caller promises that there is no other user.
        unsafe { &mut *at }
    }
}

/// Identity mapping, and devices are cache-coherent.
struct Identity;

// SAFETY: `dma_alloc` returns unshared static memory, zeroed and page-aligned; the card uses the same addresses.
unsafe impl Hal for Identity {
    fn dma_alloc(count: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let first = USED_PAGES.fetch_add(count, Ordering::Relaxed);
        assert!(first + count <= DMA_PAGES, "two rings fit");
        let start = PAGES.0.get().cast::<u8>().wrapping_add(first * PAGE_SIZE);
        (start as PhysAddr, NonNull::new(start).expect("a static is not at 0"))
    }

    unsafe fn dma_dealloc(_: PhysAddr, _: NonNull<u8>, _: usize) -> i32 {
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

/// A started card.
pub(crate) struct Foreign {
    net: VirtIONetRaw<Identity, MmioTransport<'static>, RING>,
    /// Slot and length of each frame that the card has to send, by its token.
    sent: [(u8, u16); RING],
    /// Slots without a frame to send.
    free: [u8; RING],
    free_count: usize,
    /// Slot of each receive buffer that the card has, by its token.
    posted: [u8; RING],
}

impl Foreign {
    /// Starts the card at the address in the boot page.
    pub(crate) fn open(boot: &Boot) -> Option<Self> {
        virtio_net::listen(boot);
        let header = NonNull::new(boot.get(boot::VIRTIO_AT) as *mut _)?;
        // SAFETY: the monitor puts a virtio-mmio window there.
        let transport = unsafe { MmioTransport::new(header, WINDOW_BYTES) }.ok()?;
        let net = VirtIONetRaw::new(transport).ok()?;
        let free = core::array::from_fn(|slot| slot as u8);
        let empty = ([(0, 0); RING], [0; RING]);
        let mut card = Foreign { net, sent: empty.0, free, free_count: RING, posted: empty.1 };
        (0..RING as u8).for_each(|slot| card.post(slot));
        Some(card)
    }

    /// MAC address of the card.
    pub(crate) fn mac(&self) -> [u8; 6] {
        self.net.mac_address()
    }

    fn post(&mut self, slot: u8) {
        // SAFETY: the card has returned the buffer, or never had it.
        let buffer = unsafe { RX_BUFFERS.get(slot) };
        // SAFETY: the buffer is used again only after `receive_complete`.
        let token = unsafe { self.net.receive_begin(buffer) }.expect("the ring has its slot");
        self.posted[usize::from(token)] = slot;
    }

    /// Reclaims sent frames. Returns true if there is room.
    pub(crate) fn tx_ready(&mut self) -> bool {
        while let Some(token) = self.net.poll_transmit() {
            let (slot, len) = self.sent[usize::from(token)];
            // SAFETY: the card has used the buffer.
            let frame = unsafe { &TX_BUFFERS.get(slot)[..len.into()] };
            // SAFETY: it is the frame of this token.
            let done = unsafe { self.net.transmit_complete(token, frame) };
            done.expect("the card keeps its rules");
            self.free[self.free_count] = slot;
            self.free_count += 1;
        }
        self.net.can_send() && self.free_count > 0
    }

    /// Waits for room: polls for a while, then sleeps.
    pub(crate) fn tx_wait(&mut self) {
        for _ in 0..FULL_SPINS {
            if self.tx_ready() {
                return;
            }
            pause();
        }
        sleep_until(|| self.tx_ready());
    }

    /// Sends a frame of `len` bytes written by `fill`; requires room.
    pub(crate) fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        self.free_count -= 1;
        let slot = self.free[self.free_count];
        // SAFETY: the slot is free, so the card does not have its buffer.
        let buffer = unsafe { TX_BUFFERS.get(slot) };
        let header = self.net.fill_buffer_header(buffer).expect("a buffer has room for it");
        let begin = ticks();
        fill(&mut buffer[header..header + len]);
        Report::get().add(report::COPY_TICKS, ticks() - begin);
        // SAFETY: the slot stays taken until `transmit_complete`.
        let token = unsafe { self.net.transmit_begin(&buffer[..header + len]) };
        let token = token.expect("there is room");
        self.sent[usize::from(token)] = (slot, (header + len) as u16);
    }

    /// True if all frames were sent.
    pub(crate) fn tx_is_empty(&mut self) -> bool {
        self.tx_ready();
        self.free_count == RING
    }

    /// True if a received frame waits.
    pub(crate) fn rx_ready(&self) -> bool {
        self.net.poll_receive().is_some()
    }

    /// Takes a received frame, if any.
    pub(crate) fn receive<R>(&mut self, body: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let token = self.net.poll_receive()?;
        let slot = self.posted[usize::from(token)];
        // SAFETY: the card has used the buffer.
        let buffer = unsafe { RX_BUFFERS.get(slot) };
        // SAFETY: it is the buffer of this token.
        let received = unsafe { self.net.receive_complete(token, buffer) };
        let (header, len) = received.expect("the card keeps its rules");
        Report::get().add(report::RX_FRAMES, 1);
        let result = body(&mut buffer[header..header + len]);
        self.post(slot);
        Some(result)
    }
}
