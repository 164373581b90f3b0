//! Body of the fuzz target `esp`. The committed corpus and a property test call the same function.

use std::net::IpAddr;
use std::sync::Arc;

use super::{Association, Framing, Key, Protection, Receiver, ReplayWindow, Sender};
use crate::encap::Place;

/// Bit of the mode byte: the input is a plain packet, to encrypt and decrypt again.
pub const PLAIN: u8 = 1;
/// Bit of the mode byte: 32-bit sequence numbers.
pub const SHORT: u8 = 2;
/// Bit of the mode byte: ESP straight in IP.
pub const IP: u8 = 4;

/// Two ends whose keys fit: what `.0` sends `.1` receives.
pub fn ends(framing: Framing, is_extended: bool) -> (Protection, Protection) {
    let [a, b]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
    let key = |spi, byte| Key::new(spi, &[byte; 16], [byte; 4], is_extended).expect("16 bytes");
    let end = |send, receive, from| {
        let sender = Sender::new(key(send, send as u8), framing, 1, u64::MAX);
        let window = ReplayWindow::new(64, 0);
        let receiver = Receiver::new(key(receive, receive as u8), framing, from, window);
        Protection::new(vec![Some(Arc::new(Association { sender, receiver }))])
    };
    (end(0x1001, 0x1002, (b, a)), end(0x1002, 0x1001, (a, b)))
}

/// Runs one input: a mode byte ([`PLAIN`], [`SHORT`], [`IP`]), then a frame.
///
/// - Any frame from the network is refused, is no ESP packet, or is opened in bounds.
/// - A packet that is encrypted is the same after decryption, and is refused the second time.
pub fn esp(input: &[u8]) {
    let Some((modes, bytes)) = input.split_first() else { return };
    let framing =
        if modes & IP != 0 { Framing::Ip } else { Framing::Udp { port: super::UDP_PORT } };
    let (near, far) = ends(framing, modes & SHORT == 0);
    let mut buffer = vec![0; 64];
    buffer.extend(bytes);
    let place = Place { at: 64, len: bytes.len() };
    if modes & PLAIN == 0 {
        if let Ok(Some((opened, _))) = far.open(&mut buffer, place) {
            assert!(opened.at >= place.at && opened.at + opened.len <= buffer.len());
        }
        return;
    }
    buffer.extend([0; 64]);
    let Some(association) = near.of(0) else { return };
    let Ok(sealed) = association.sender.seal(&mut buffer, place, 0) else { return };
    assert!(sealed.at < place.at && sealed.at + sealed.len <= buffer.len());
    let mut again = buffer.clone();
    // Fails for addresses, lengths and protocols that no tunnel has.
    let Ok(Some((opened, 0))) = far.open(&mut buffer, sealed) else { return };
    assert_eq!(opened.at, place.at);
    assert_eq!(buffer[opened.at + 34..opened.at + opened.len], bytes[34..opened.len]);
    assert!(far.open(&mut again, sealed).is_err(), "accepted twice");
}
