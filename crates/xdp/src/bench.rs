//! A ring over plain memory, to time it without the kernel.

use crate::plain::plain;
use crate::ring::{Consumer, Producer};

/// Both ends of a ring of 64-bit addresses.
#[derive(Debug)]
pub struct PlainRing {
    producer: Producer<u64>,
    consumer: Consumer<u64>,
}

impl PlainRing {
    /// `size`: entries, a power of two.
    pub fn new(size: u32) -> Self {
        let (producer, consumer) = plain(size, 0, 0);
        PlainRing { producer, consumer }
    }

    /// Posts `batch` entries, publishes them, takes and releases them; returns their sum.
    pub fn post_and_reap(&mut self, batch: u64) -> u64 {
        for addr in 0..batch {
            let _ = self.producer.push(addr);
        }
        self.producer.publish();
        let mut sum = 0;
        while let Some(addr) = self.consumer.take() {
            sum += addr;
        }
        self.consumer.release();
        sum
    }
}
