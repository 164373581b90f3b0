//! Input of a capture, inflated on the way if it is compressed by gzip.
//!
//! Memory does not depend on the input. An input that inflates like no capture does is refused, because a
//! few megabytes could keep a reader busy for hours.

use std::io::{self, BufReader, Chain, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

/// First bytes of a gzip member.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Inflated size of an input that is too much for a capture: both limits are exceeded.
#[derive(Debug, Clone, Copy)]
struct InflateLimit {
    bytes: u64,
    /// Multiple of the compressed size. Captures shrink to a tenth or a twentieth.
    ratio: u64,
}

const INFLATE_LIMIT: InflateLimit = InflateLimit { bytes: 1 << 30, ratio: 100 };

/// An input that inflates too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{compressed_bytes} bytes inflate to more than {inflated_bytes}")]
pub(super) struct InflatesTooMuch {
    pub(super) compressed_bytes: u64,
    pub(super) inflated_bytes: u64,
}

/// An input and the bytes of it that were read already.
type Begun<R> = Chain<Cursor<Vec<u8>>, R>;

#[derive(Debug)]
pub(super) enum Input<R> {
    Plain(Begun<R>),
    Gzip(Box<Gzip<R>>),
}

#[derive(Debug)]
pub(super) struct Gzip<R> {
    decoder: MultiGzDecoder<BufReader<Counted<Begun<R>>>>,
    inflated_bytes: u64,
    limit: InflateLimit,
}

/// Counts the bytes read.
#[derive(Debug)]
struct Counted<R> {
    input: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(into)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

impl<R: Read> Input<R> {
    /// Reads the first two bytes, which tell if it is compressed.
    pub(super) fn begin(input: R) -> io::Result<Self> {
        Input::begin_within(input, INFLATE_LIMIT)
    }

    fn begin_within(mut input: R, limit: InflateLimit) -> io::Result<Self> {
        let mut begin = Vec::new();
        input.by_ref().take(GZIP.len() as u64).read_to_end(&mut begin)?;
        let is_gzip = begin == GZIP;
        let input = Cursor::new(begin).chain(input);
        if !is_gzip {
            return Ok(Input::Plain(input));
        }
        let decoder = MultiGzDecoder::new(BufReader::new(Counted { input, bytes: 0 }));
        Ok(Input::Gzip(Box::new(Gzip { decoder, inflated_bytes: 0, limit })))
    }

    pub(super) fn is_gzip(&self) -> bool {
        matches!(self, Input::Gzip(_))
    }
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::Plain(input) => input.read(into),
            Input::Gzip(gzip) => gzip.read(into),
        }
    }
}

impl<R: Read> Read for Gzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let inflated = self.decoder.read(into)?;
        self.inflated_bytes += inflated as u64;
        let compressed_bytes = self.decoder.get_ref().get_ref().bytes;
        let InflateLimit { bytes, ratio } = self.limit;
        let limit = bytes.max(compressed_bytes.saturating_mul(ratio));
        if self.inflated_bytes > limit {
            return Err(io::Error::other(InflatesTooMuch {
                compressed_bytes,
                inflated_bytes: limit,
            }));
        }
        Ok(inflated)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    fn inflated(bytes: &[u8], limit: InflateLimit) -> (Vec<u8>, io::Result<()>) {
        let mut found = Vec::new();
        let mut input = Input::begin_within(bytes, limit).expect("memory");
        let read = input.read_to_end(&mut found);
        (found, read.map(drop))
    }

    #[test]
    fn members_are_inflated_one_after_the_other_and_other_input_is_passed_on() {
        let both = [compressed(b"one, "), compressed(b"two")].concat();
        let (found, end) = inflated(&both, INFLATE_LIMIT);
        assert_eq!((&found[..], end.is_ok()), (&b"one, two"[..], true));
        for plain in [&b""[..], b"\x1f", b"\x1f\x8c", b"plain"] {
            let (found, end) = inflated(plain, INFLATE_LIMIT);
            assert_eq!((&found[..], end.is_ok()), (plain, true));
        }
    }

    #[test]
    fn the_part_before_the_tear_is_inflated() {
        let noise: Vec<u8> =
            (0..50_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let whole = compressed(&noise);
        let (found, end) = inflated(&whole[..whole.len() / 2], INFLATE_LIMIT);
        assert_eq!(end.expect_err("torn").kind(), io::ErrorKind::UnexpectedEof);
        assert!(!found.is_empty() && noise.starts_with(&found));
    }

    #[test]
    fn a_bomb_is_refused_and_a_small_file_of_zeros_is_not() {
        let bomb = compressed(&vec![0; 1 << 20]);
        let limit = InflateLimit { bytes: 1 << 16, ratio: 100 };
        let (found, end) = inflated(&bomb, limit);
        let error = end.expect_err("too much");
        let why = error.get_ref().and_then(|why| why.downcast_ref::<InflatesTooMuch>());
        assert!(why.is_some(), "{error}");
        assert!(found.len() < 1 << 19, "{}", found.len());
        let (found, end) = inflated(&bomb, INFLATE_LIMIT);
        assert_eq!((found.len(), end.is_ok()), (1 << 20, true));
    }
}
