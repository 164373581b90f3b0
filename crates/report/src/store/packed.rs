//! Documents in the file: text, or deflated text as a blob.
//!
//! The outcome of a whole ladder is about 300 kB of JSON, mostly repeated names; deflating it leaves
//! an eighth. The column type tells text and blob apart, so rows of a version 1 file stay unchanged.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};

/// Far above any real document. A stranger's row of some kilobytes can inflate to a thousand times its size, and each page
/// of `serve` reads some of them.
const DOCUMENT_BYTES_MAX: u64 = 8 << 20;

fn too_large() -> std::io::Error {
    std::io::Error::other(format!("a document of more than {} MiB", DOCUMENT_BYTES_MAX >> 20))
}

/// Returns the deflated text. Errors: it is larger than any that is read.
pub(crate) fn pack(text: &str) -> std::io::Result<Vec<u8>> {
    if text.len() as u64 > DOCUMENT_BYTES_MAX {
        return Err(too_large());
    }
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
    packed.write_all(text.as_bytes())?;
    packed.finish()
}

pub(crate) struct Document(pub(crate) String);

impl FromSql for Document {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let packed = match value {
            ValueRef::Text(text) if text.len() as u64 > DOCUMENT_BYTES_MAX => {
                return Err(FromSqlError::other(too_large()));
            }
            ValueRef::Text(text) => {
                let text = std::str::from_utf8(text).map_err(FromSqlError::other)?;
                return Ok(Document(text.to_owned()));
            }
            ValueRef::Blob(packed) => packed,
            _ => return Err(FromSqlError::InvalidType),
        };
        let mut text = String::new();
        let read = ZlibDecoder::new(packed).take(DOCUMENT_BYTES_MAX + 1).read_to_string(&mut text);
        match read {
            Ok(len) if len as u64 <= DOCUMENT_BYTES_MAX => Ok(Document(text)),
            Ok(_) => Err(FromSqlError::other(too_large())),
            Err(e) => Err(FromSqlError::other(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_that_inflate_beyond_the_limit_are_refused_in_either_form_and_not_written() {
        let text = " ".repeat(DOCUMENT_BYTES_MAX as usize + 1);
        let whole = &text[1..];
        let packed = pack(whole).unwrap();
        assert!(packed.len() < 16 << 10);
        let read = |value| Document::column_result(value).map(|document| document.0.len());
        assert_eq!(read(ValueRef::Blob(&packed)).unwrap(), whole.len());
        assert!(pack(&text).unwrap_err().to_string().contains("8 MiB"));
        // 256 MiB in 256 kB.
        let mut bomb = ZlibEncoder::new(Vec::new(), Compression::default());
        (0..32).for_each(|_| bomb.write_all(whole.as_bytes()).unwrap());
        for value in [ValueRef::Blob(&bomb.finish().unwrap()), ValueRef::Text(text.as_bytes())] {
            assert!(read(value).unwrap_err().to_string().contains("8 MiB"));
        }
    }

    #[test]
    fn what_was_packed_comes_back_and_damage_is_an_error() {
        let text = "{\"arms\": [\"baseline\", \"spin\"]}".repeat(50);
        let packed = pack(&text).unwrap();
        assert!(packed.len() * 5 < text.len());
        let read = |value| Document::column_result(value).map(|document| document.0);
        assert_eq!(read(ValueRef::Blob(&packed)).unwrap(), text);
        assert_eq!(read(ValueRef::Text(text.as_bytes())).unwrap(), text);
        for cut in 0..packed.len() {
            match read(ValueRef::Blob(&packed[..cut])) {
                Ok(read) => assert_eq!(read, text, "cut at {cut}"),
                Err(_) => continue,
            }
        }
        assert!(read(ValueRef::Blob(&packed[..packed.len() / 2])).is_err());
        assert!(read(ValueRef::Null).is_err());
        assert!(read(ValueRef::Text(b"\xff")).is_err());
    }
}
