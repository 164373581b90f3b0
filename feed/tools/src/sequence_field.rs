//! A sequence number in payloads of any protocol: width, byte order and offset, as `be32@4`.

use std::fmt;
use std::str::FromStr;

/// Place of a sequence number in a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SequenceField {
    /// 1, 2, 4 or 8.
    bytes: usize,
    is_big_endian: bool,
    offset_bytes: usize,
}

/// Error of a text that names no field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} names no field: give byte order (be or le), bits (8, 16, 32 or 64) and the offset in bytes, \
     such as be32@4"
)]
pub struct SequenceFieldError {
    text: String,
}

impl SequenceField {
    /// The number of a payload; `None` if it ends before.
    #[inline]
    pub fn read(&self, payload: &[u8]) -> Option<u64> {
        let field = payload.get(self.offset_bytes..)?.get(..self.bytes)?;
        let mut wide = [0; 8];
        if self.is_big_endian {
            wide[8 - self.bytes..].copy_from_slice(field);
            return Some(u64::from_be_bytes(wide));
        }
        wide[..self.bytes].copy_from_slice(field);
        Some(u64::from_le_bytes(wide))
    }
}

impl FromStr for SequenceField {
    type Err = SequenceFieldError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| SequenceFieldError { text: text.to_owned() })
    }
}

/// `None` for text of another form.
fn parse(text: &str) -> Option<SequenceField> {
    let (kind, offset) = text.split_once('@')?;
    let (order, bits) = kind.split_at_checked(2)?;
    let bytes = match bits {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        "64" => 8,
        _ => return None,
    };
    let offset: u16 = offset.parse().ok()?;
    let is_big_endian = match order {
        "be" => true,
        "le" => false,
        _ => return None,
    };
    Some(SequenceField { bytes, is_big_endian, offset_bytes: offset.into() })
}

impl fmt::Display for SequenceField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.is_big_endian { "be" } else { "le" };
        write!(f, "{order}{}@{}", self.bytes * 8, self.offset_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_width_and_order_are_read() {
        let payload = [0, 1, 2, 3, 4, 5, 6, 7, 8];
        for (text, number) in [
            ("be8@3", 3),
            ("be16@1", 0x0102),
            ("le16@1", 0x0201),
            ("be32@4", 0x0405_0607),
            ("le32@5", 0x0807_0605),
            ("be64@1", 0x0102_0304_0506_0708),
        ] {
            let field: SequenceField = text.parse().expect(text);
            assert_eq!(field.read(&payload), Some(number), "{text}");
            assert_eq!(field.to_string(), text);
        }
        let beyond: SequenceField = "be64@2".parse().expect("a field");
        assert_eq!(beyond.read(&payload), None);
    }

    #[test]
    fn a_text_that_names_no_field_is_refused_with_the_form() {
        for text in
            ["", "be32", "be24@0", "xx32@0", "32@0", "be32@-1", "be32@70000", "é@", "be32@4 "]
        {
            let why = text.parse::<SequenceField>().expect_err(text).to_string();
            assert!(why.contains("be32@4"), "{why}");
        }
    }
}
