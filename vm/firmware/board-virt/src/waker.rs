//! A waker for futures that a task of the kernel runs.

use core::task::{RawWaker, RawWakerVTable, Waker};

use kernel::system::Semaphore;

const TABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, |_| {});

/// Waker that posts a semaphore; interrupts may use it. The task pends on the semaphore before it
/// polls its future again.
pub fn waker(semaphore: &'static Semaphore) -> Waker {
    let semaphore = core::ptr::from_ref(semaphore).cast();
    // SAFETY: the functions of the table are safe to call from any task and interrupt, and read
    // nothing but a semaphore that lives for ever.
    unsafe { Waker::from_raw(RawWaker::new(semaphore, &TABLE)) }
}

fn clone(semaphore: *const ()) -> RawWaker {
    RawWaker::new(semaphore, &TABLE)
}

/// # Safety
///
/// The pointer must be that of [`waker`].
unsafe fn wake(semaphore: *const ()) {
    // SAFETY: it is a `&'static Semaphore`, which is never written.
    let semaphore = unsafe { *semaphore.cast::<Semaphore>() };
    // A semaphore that is full wakes its task, too.
    let _ = semaphore.post();
}
