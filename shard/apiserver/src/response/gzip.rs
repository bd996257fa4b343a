//! gzip (RFC 1952), compressed by zlib-rs.
//!
//! zlib-rs is called directly, not through flate2: features of a dependency unify over the workspace, so another crate that enables
//! a C library in flate2 would make the shard compress in C.

use zlib_rs::{DeflateConfig, ReturnCode, compress_bound, compress_slice};

/// The fastest level, which Kubernetes uses too.
const LEVEL: i32 = 1;
/// A window of 32 KiB (15 bits); adding 16 selects the header and trailer of gzip.
const GZIP_WINDOW_BITS: i32 = 15 + 16;
/// Additional room for the header and trailer of gzip; `compress_bound` is for those of zlib.
const GZIP_FRAME: usize = 18;

/// Compresses a whole body; `None` if the library reports an error.
///
/// Costs about 5 ms per MiB, and temporarily as much memory as the input.
pub(super) fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::Read as _;

    use super::gzip;

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
}
