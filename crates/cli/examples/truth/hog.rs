//! Other work on the machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use model::Random;

use crate::spin;

/// A thread that takes a CPU for about 300 ms and leaves it for about as long, until dropped.
pub(crate) struct Hog {
    stop: &'static AtomicBool,
    thread: Option<thread::JoinHandle<()>>,
}

impl Hog {
    pub(crate) fn start(seed: u64) -> Self {
        let stop: &'static AtomicBool = Box::leak(Box::default());
        let thread = thread::spawn(move || {
            let mut random = Random::new(seed, 9);
            while !stop.load(Ordering::Relaxed) {
                let phase = |random: &mut Random| Duration::from_secs_f64(0.6 * random.unit());
                spin(phase(&mut random));
                thread::sleep(phase(&mut random));
            }
        });
        Hog { stop, thread: Some(thread) }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
