//! VXLAN: an Ethernet frame in a UDP datagram.
//!
//! Source: RFC 7348.

use crate::FrameError;
use crate::error::{front, front_mut};

/// UDP port of VXLAN.
pub const PORT: u16 = 4789;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;
/// Largest network identifier.
pub const VNI_MAX: u32 = 0x00ff_ffff;

/// Flag: there is a network identifier.
const VNI_PRESENT: u8 = 0x08;

/// Reads the network identifier, 0 to [`VNI_MAX`], of the header that `bytes` start with.
///
/// Reserved bits are ignored, as the RFC says.
pub fn parse(bytes: &[u8]) -> Result<u32, FrameError> {
    let header = front(bytes, HEADER_BYTES, "the VXLAN header")?;
    if header[0] & VNI_PRESENT == 0 {
        return Err(FrameError::Other {
            field: "VXLAN flags",
            at: 0,
            expected: VNI_PRESENT.into(),
            found: header[0].into(),
        });
    }
    Ok(u32::from_be_bytes([0, header[4], header[5], header[6]]))
}

/// Writes a header to the first [`HEADER_BYTES`].
///
/// Errors: the buffer is too short, or `vni` exceeds [`VNI_MAX`].
pub fn write(vni: u32, bytes: &mut [u8]) -> Result<(), FrameError> {
    if vni > VNI_MAX {
        return Err(FrameError::Other {
            field: "VXLAN network identifier",
            at: 4,
            expected: VNI_MAX,
            found: vni,
        });
    }
    let header = front_mut(bytes, HEADER_BYTES, "the VXLAN header")?;
    header.copy_from_slice(&[VNI_PRESENT, 0, 0, 0, 0, 0, 0, 0]);
    header[4..].copy_from_slice(&(vni << 8).to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifier_survives_the_wire() {
        let mut bytes = [0xcc; 9];
        write(0x12_3456, &mut bytes).expect("it fits");
        assert_eq!(bytes, [8, 0, 0, 0, 0x12, 0x34, 0x56, 0, 0xcc]);
        assert_eq!(parse(&bytes), Ok(0x12_3456));
        for vni in [0, VNI_MAX] {
            write(vni, &mut bytes).expect("it fits");
            assert_eq!(parse(&bytes), Ok(vni));
        }
    }

    #[test]
    fn reserved_bits_are_ignored_and_the_flag_is_not() {
        assert_eq!(parse(&[0xff, 1, 2, 3, 0, 0, 9, 0xff]), Ok(9));
        assert!(parse(&[0xf7, 0, 0, 0, 0, 0, 9, 0]).is_err());
    }

    #[test]
    fn cut_header_and_too_large_identifier_are_errors() {
        for len in 0..8 {
            assert!(parse(&[8; 8][..len]).is_err(), "{len} bytes");
        }
        assert!(write(1, &mut [0; 7]).is_err());
        assert!(write(VNI_MAX + 1, &mut [0; 8]).is_err());
    }
}
