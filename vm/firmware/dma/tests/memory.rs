//! The shared memory on the host, also run under Miri.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dma::Dma;
use virtio::Memory;

/// There is one area in the program: tests lock it.
fn memory() -> MutexGuard<'static, Dma> {
    static MEMORY: OnceLock<Mutex<Dma>> = OnceLock::new();
    let memory = MEMORY.get_or_init(|| Mutex::new(Dma::take().expect("it is the first call")));
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn only_the_first_call_returns_it() {
    let _memory = memory();
    assert!(Dma::take().is_none());
}

#[test]
fn fields_and_bytes_are_the_same_memory_little_endian() {
    let mut memory = memory();
    memory.write16(0, 0x0201);
    memory.write32(4, 0x0807_0605);
    memory.write64(8, 0x100f_0e0d_0c0b_0a09);
    memory.write_barrier();
    let bytes = memory.with_bytes(0..16, |bytes| bytes.to_vec());
    assert_eq!(bytes, [1, 2, 0, 0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
    memory.read_barrier();
    assert_eq!((memory.read16(6), memory.read32(12)), (0x0807, 0x100f_0e0d));
    let end = memory.len_bytes();
    memory.copy(4, end - 12, 12);
    memory.full_barrier();
    assert_eq!(memory.with_bytes(end - 12..end, |bytes| bytes.to_vec()), bytes[4..]);
    memory.with_bytes(0..16, |bytes| bytes.fill(0));
    assert_eq!(memory.read32(4), 0);
    assert!(memory.address().is_multiple_of(4096));
}

#[test]
fn out_of_bounds_or_misaligned_access_panics() {
    let mut memory = memory();
    let end = memory.len_bytes();
    let writes: [fn(&Dma, usize); 3] = [
        |memory, at| memory.write16(at, 7),
        |memory, at| memory.write32(at, 7),
        |memory, at| memory.write64(at, 7),
    ];
    for (write, width) in writes.into_iter().zip([2, 4, 8]) {
        write(&memory, end - width);
        for at in [1, width - 1, end, end - width + 1, usize::MAX, usize::MAX - width + 1] {
            let outcome = catch_unwind(AssertUnwindSafe(|| write(&memory, at)));
            assert!(outcome.is_err(), "{width} bytes at {at:#x}");
        }
    }
    for range in [end..end + 1, end - 1..end + 1, 0..usize::MAX] {
        let lend = AssertUnwindSafe(|| memory.with_bytes(range.clone(), |bytes| bytes.len()));
        assert!(catch_unwind(lend).is_err(), "{range:?}");
    }
    let places = [(0, 8, 9), (8, 0, 9), (0, end - 7, 8), (end - 7, 0, 8), (0, usize::MAX - 7, 8)];
    for (from, to, len_bytes) in places {
        let copy = AssertUnwindSafe(|| memory.copy(from, to, len_bytes));
        assert!(catch_unwind(copy).is_err(), "{len_bytes} from {from:#x} to {to:#x}");
    }
}
