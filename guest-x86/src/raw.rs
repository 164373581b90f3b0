//! Raw frames as fast as the device takes them.

use wire::nettest::{Signal, boot};

use crate::lance::Lance;
use crate::pages::{Boot, Report};
use crate::{interrupts, signal};

use core::sync::atomic::Ordering;

/// EtherType of experiments: no stack answers.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// The buffer that all frames are copied from.
static SOURCE: [u8; 1514] = {
    let mut bytes = [0; 1514];
    let mut i = 0;
    while i < bytes.len() {
        bytes[i] = (i * 7 + i / 256) as u8;
        i += 1;
    }
    bytes
};

/// Sends the warm-up, then the measured frames.
pub(crate) fn send(boot: &Boot, lance: &mut Lance) {
    let len = (boot.get(boot::SIZE_BYTES) as usize).clamp(60, 1514);
    let mut source = SOURCE;
    source[..6].copy_from_slice(&boot.get(boot::PEER_MAC).to_le_bytes()[..6]);
    source[6..12].copy_from_slice(&lance.mac());
    source[12..14].copy_from_slice(&ETHERTYPE);
    let mut sequence = 0u64;
    let mut send = |lance: &mut Lance, count: u64| {
        for _ in 0..count {
            lance.send(len, |frame| {
                frame.copy_from_slice(&source[..len]);
                frame[14..22].copy_from_slice(&sequence.to_be_bytes());
            });
            sequence += 1;
        }
        while !lance.tx_is_empty() {
            interrupts::wake_word().store(0, Ordering::Release);
            if lance.tx_is_empty() {
                break;
            }
            // With the transmit interrupt masked nobody would wake us.
            crate::cpu::pause();
        }
    };
    send(lance, boot.get(boot::WARM_UP));
    Report::get().clear();
    signal(Signal::Begin);
    match boot.get(boot::COUNT) {
        0 => send(lance, u64::MAX),
        count => send(lance, count),
    }
    signal(Signal::End);
}
