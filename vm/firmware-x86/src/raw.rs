//! Raw frames, as fast as the device accepts them.

use guest_pages::{Signal, boot, report};

use crate::cpu::ticks;
use crate::nic::Nic;
use crate::pages::{Boot, Report};
use crate::{signal, wake};

use core::sync::atomic::Ordering;

/// EtherType for experiments: no stack answers it.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Source buffer of all frames.
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
pub(crate) fn send(boot: &Boot, nic: &mut Nic) {
    let len = (boot.get(boot::SIZE_BYTES) as usize).clamp(60, 1514);
    let mut source = SOURCE;
    source[..6].copy_from_slice(&boot.get(boot::PEER_MAC).to_le_bytes()[..6]);
    source[6..12].copy_from_slice(&nic.mac());
    source[12..14].copy_from_slice(&ETHERTYPE);
    let mut sequence = 0u64;
    let mut send = |nic: &mut Nic, count: u64, ticks_max: u64| {
        let begin = ticks();
        for _ in 0..count {
            if ticks() - begin >= ticks_max {
                break;
            }
            nic.send(len, |frame| {
                frame.copy_from_slice(&source[..len]);
                frame[14..22].copy_from_slice(&sequence.to_be_bytes());
            });
            sequence += 1;
        }
        while !nic.tx_is_empty() {
            wake::wake_word().store(0, Ordering::Release);
            if nic.tx_is_empty() {
                break;
            }
            // With the transmit interrupt masked, nothing would wake the driver.
            crate::cpu::pause();
        }
    };
    let or_without_end = |value: u64| if value == 0 { u64::MAX } else { value };
    let count = or_without_end(boot.get(boot::COUNT));
    let ticks_max = boot.get(boot::DURATION_US).saturating_mul(boot.tsc_khz()) / 1000;
    send(nic, boot.get(boot::WARM_UP), u64::MAX);
    Report::get().clear();
    signal(Signal::Begin);
    let begin = ticks();
    send(nic, count, or_without_end(ticks_max));
    Report::get().set(report::TOTAL_TICKS, ticks() - begin);
    signal(Signal::End);
}
