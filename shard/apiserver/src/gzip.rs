//! gzip (RFC 1952), compressed by zlib-rs.
//!
//! zlib-rs is called directly, not through flate2: features of a dependency unify over the workspace, so another crate that enables
//! a C library in flate2 would make the shard compress in C.

use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, ReturnCode, Status, compress_bound, compress_slice};

/// The fastest level, which Kubernetes uses too.
const LEVEL: i32 = 1;
/// A window of 32 KiB (15 bits); adding 16 selects the header and trailer of gzip.
const GZIP_WINDOW_BITS: i32 = 15 + 16;
/// Additional room for the header and trailer of gzip; `compress_bound` is for those of zlib.
const GZIP_FRAME: usize = 18;

/// Compresses a whole body; `None` if the library reports an error.
///
/// Costs about 5 ms per MiB, and temporarily as much memory as the input.
pub(crate) fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let config = DeflateConfig { window_bits: GZIP_WINDOW_BITS, ..DeflateConfig::new(LEVEL) };
    let mut output = vec![0; compress_bound(bytes.len()) + GZIP_FRAME];
    let (compressed, code) = compress_slice(&mut output, bytes, config);
    let length = compressed.len();
    if code != ReturnCode::Ok {
        return None;
    }
    output.truncate(length);
    output.shrink_to_fit();
    Some(output)
}

/// Compresses a stream, piece by piece. Its state takes about 270 KiB.
pub(crate) struct GzipStream(Deflate);

impl GzipStream {
    pub(crate) fn new() -> Self {
        let config = DeflateConfig { window_bits: GZIP_WINDOW_BITS, ..DeflateConfig::new(LEVEL) };
        Self(Deflate::new_with_config(config))
    }

    /// The compressed bytes that are complete, all of them for the last piece; `None` if the library reports an error.
    pub(crate) fn compress(&mut self, mut piece: &[u8], is_last: bool) -> Option<Vec<u8>> {
        const ROOM: usize = 32 * 1024;
        let flush = if is_last { DeflateFlush::Finish } else { DeflateFlush::NoFlush };
        let mut output = Vec::new();
        loop {
            let written = output.len();
            output.resize(written + ROOM, 0);
            let (taken_before, made_before) = (self.0.total_in(), self.0.total_out());
            let status = self.0.compress(piece, &mut output[written..], flush).ok()?;
            let taken = usize::try_from(self.0.total_in() - taken_before).ok()?;
            let made = usize::try_from(self.0.total_out() - made_before).ok()?;
            piece = piece.get(taken..)?;
            output.truncate(written + made);
            let has_all = piece.is_empty() && made < ROOM;
            if status == Status::StreamEnd || (!is_last && has_all) {
                return Some(output);
            }
            if taken == 0 && made == 0 && is_last {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::Read as _;

    use super::{GzipStream, gzip};

    #[test]
    fn another_implementation_reads_what_was_compressed() {
        let noise: Vec<u8> = (0..1_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for input in [&b""[..], b"a", &b"{\"kind\":\"List\"}".repeat(10_000), &noise] {
            let compressed = gzip(input).unwrap();
            let mut output = Vec::new();
            flate2::read::GzDecoder::new(&*compressed).read_to_end(&mut output).unwrap();
            assert!(output == input, "{} bytes", input.len());
        }
    }

    #[test]
    fn another_implementation_reads_a_stream() {
        let noise: Vec<u8> = (0..300_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for input in [&b""[..], b"a", &b"{\"kind\":\"List\"}".repeat(20_000), &noise] {
            for size in [1000, 65_536, 1 << 20] {
                let mut stream = GzipStream::new();
                let mut compressed = Vec::new();
                for piece in input.chunks(size) {
                    compressed.extend(stream.compress(piece, false).unwrap());
                }
                compressed.extend(stream.compress(b"", true).unwrap());
                let mut output = Vec::new();
                flate2::read::GzDecoder::new(&*compressed).read_to_end(&mut output).unwrap();
                assert!(output == input, "{} bytes in pieces of {size}", input.len());
            }
        }
    }
}
