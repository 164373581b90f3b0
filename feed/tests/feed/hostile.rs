//! Captures of strangers: their text does not drive the terminal.

use testkit::hostile;

use crate::common::contained::assert_contained;
use crate::common::{Data, run, wirepath};

/// A block of pcapng.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let len = (padded as u32 + 12).to_le_bytes();
    let padding = vec![0; padded - body.len()];
    [&kind.to_le_bytes(), &len, body, &padding, &len].concat()
}

/// An option of a block, and the end of the options if it is the last one.
fn option(code: u16, text: &str) -> Vec<u8> {
    let text = text.as_bytes();
    let padding = vec![0; text.len().next_multiple_of(4) - text.len()];
    [&code.to_le_bytes()[..], &(text.len() as u16).to_le_bytes(), text, &padding].concat()
}

/// A capture with a text in each of its comments and names.
fn capture(text: &str) -> Vec<u8> {
    let end = [0; 4];
    let options =
        |codes: &[u16]| codes.iter().map(|&code| option(code, text)).collect::<Vec<_>>().concat();
    // Comment, hardware, system, program.
    let head =
        [&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..], &[0xff; 8], &options(&[1, 2, 3, 4]), &end]
            .concat();
    // Ethernet; comment, name, description, filter, system.
    let interface = [&[1, 0, 0, 0, 0, 0, 1, 0][..], &options(&[1, 2, 3, 12]), &end].concat();
    let frame = [&[0xff; 12][..], &[0x08, 0x00], text.as_bytes()].concat();
    let len = (frame.len() as u32).to_le_bytes();
    let padding = vec![0; frame.len().next_multiple_of(4) - frame.len()];
    let packet = [&[0; 12][..], &len, &len, &frame, &padding, &options(&[1]), &end].concat();
    [block(0x0a0d_0d0a, &head), block(1, &interface), block(6, &packet)].concat()
}

#[test]
fn no_text_of_a_capture_drives_the_terminal() {
    let data = Data::new();
    let file = data.file("a.pcapng");
    for (name, text) in hostile::texts() {
        std::fs::write(&file, capture(&text)).unwrap();
        for command in ["decode", "report"] {
            let args = ["feed", command, &file];
            assert_contained(&run(wirepath(&args)), &format!("{name}, {}", args.join(" ")));
        }
    }
}
