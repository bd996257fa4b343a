//! The hashes that kcp puts on the wire: SHA-224 and SHA-256 in base 16, 36 and 62.

use core::fmt::Write as _;

use sha2::{Digest as _, Sha224, Sha256};

const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// `bytes` as one big-endian number in base 36 (`0-9a-z`), unpadded; nothing or zero gives `0`.
pub fn base36(bytes: &[u8]) -> String {
    number(bytes, 36)
}

/// As [`base36`], with one `0` in front for each leading zero byte. All-zero input gives just the zeros.
pub fn base36_padded(bytes: &[u8]) -> String {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let mut text = "0".repeat(zeros);
    if zeros < bytes.len() {
        text.push_str(&number(&bytes[zeros..], 36));
    }
    text
}

/// `bytes` as one big-endian number in base 62 (`0-9a-zA-Z`), unpadded; nothing or zero gives `0`.
pub fn base62(bytes: &[u8]) -> String {
    number(bytes, 62)
}

/// Base 36 of SHA-224.
pub fn sha224_base36(text: &str) -> String {
    base36(&Sha224::digest(text))
}

/// Base 62 of SHA-224.
pub fn sha224_base62(text: &str) -> String {
    base62(&Sha224::digest(text))
}

/// Lower-case hexadecimal SHA-224.
pub fn hex_sha224(text: &str) -> String {
    hex(&Sha224::digest(text))
}

/// Lower-case hexadecimal SHA-256, for example an export's identity hash of its secret key.
pub fn hex_sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The name of a user's home logical cluster: base 36 of the first eight bytes of SHA-224.
pub fn home_cluster_name(user: &str) -> String {
    base36_padded(&Sha224::digest(user)[..8])
}

/// The eight characters that kcp writes into a Workspace's `internal.tenancy.kcp.io/shard`.
pub fn shard_hash(shard: &str) -> String {
    let mut text = base36_padded(&Sha224::digest(shard));
    text.truncate(8);
    text
}

/// The hash of an APIExport that APIBindings carry in the label `internal.apis.kcp.io/export`.
pub fn export_hash(cluster: &str, export: &str) -> String {
    sha224_base62(&format!("{cluster}:{export}"))
}

/// The five-character suffix in the name of a default APIBinding of `cluster`.
pub fn default_binding_suffix(cluster: &str, export_path: &str, export: &str) -> String {
    let mut text = sha224_base62(&format!("{cluster}|{export_path}|{export}"));
    text.truncate(5);
    text.make_ascii_lowercase();
    text
}

/// Key and value of the label that marks a logical cluster as waiting for `initializer`.
pub fn initializer_label(initializer: &str) -> (String, String) {
    lifecycle_label("initializer.internal.kcp.io/", initializer)
}

/// Key and value of the label that marks a logical cluster as waiting for `terminator`.
pub fn terminator_label(terminator: &str) -> (String, String) {
    lifecycle_label("terminator.internal.kcp.io/", terminator)
}

/// The key is filled up to 63 characters, the longest a label key may be.
fn lifecycle_label(prefix: &str, name: &str) -> (String, String) {
    let value = hex_sha224(name);
    let key = format!("{prefix}{}", &value[..63 - prefix.len()]);
    (key, value)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Long division by the base, once per digit: at most 45 passes over 28 bytes.
fn number(bytes: &[u8], base: u32) -> String {
    let mut rest = bytes.to_vec();
    let mut digits = Vec::new();
    while rest.iter().any(|byte| *byte != 0) {
        let mut carry = 0_u32;
        for byte in &mut rest {
            let value = (carry << 8) | u32::from(*byte);
            *byte = (value / base) as u8;
            carry = value % base;
        }
        digits.push(char::from(DIGITS[carry as usize]));
    }
    if digits.is_empty() {
        digits.push('0');
    }
    digits.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kcp_vectors() {
        for (got, expected) in [
            (sha224_base36(""), "2n6a5vwpk9ckyxi5x87i7768t4bpqmp64qi0556ih35b"),
            (sha224_base62(""), "aAkHCkvjglfF66mdhRcVKb0I3FT1lepYlWZNwj"),
            (sha224_base36("hello"), "2yfg0ibsewngbzapgs5fesiord507vsncfiw4jd5c2oj"),
            (sha224_base62("hello"), "bPWFAjMdldrWYheSsV0t7VkdTNtgGHBplr6qLF"),
            (sha224_base36("input50"), "4xtfzmllsov5334t8xolbc31qfgtl44oza013n6uzk"),
            (base36_padded(&[0x00, 0xc6, 0x50, 0xb1, 0xad, 0x5a, 0x99, 0xc3]), "0f9mt7goyif7"),
            (home_cluster_name(""), "36ks9xj4a2n61"),
            (home_cluster_name("user172"), "0f9mt7goyif7"),
            (home_cluster_name("user-1"), "285xjbwx8vocb"),
            (home_cluster_name("alice"), "v1u4alow0iv9"),
            (home_cluster_name("bob"), "2okdry95y5lkv"),
            (home_cluster_name("user:with:colons"), "2bqfj6xlthg3t"),
            (shard_hash("root"), "1pfxsevk"),
            (shard_hash("shard-1"), "2e1tfbst"),
            (shard_hash("alpha"), "221wvpxe"),
            (export_hash("root", "tenancy.kcp.io"), "bmCdly9xXiUpEHe3ypvDwvXMTfoVZUE92mqAQf"),
            (export_hash("abcd1234", "my-export"), "phGj1BkmdNY3LKTrtFc1KGLYTBs8Nt50p8PIU"),
            (default_binding_suffix("root", "root", "tenancy.kcp.io"), "by23s"),
            (default_binding_suffix("root", "root", "topology.kcp.io"), "a0zte"),
            (hex_sha256(b"abcd1234"), "e9cee71ab932fde863338d08be4de9dfe39ea049bdafb342ce659ec5450b69ae"),
        ] {
            assert_eq!(got, expected);
        }
    }

    #[test]
    fn lifecycle_labels_fill_the_key() {
        let value = "2eadcbf778956517ec99fd1c1c32a9b13cbae759770fc37c341c7fe8";
        assert_eq!(
            initializer_label("pluto"),
            ("initializer.internal.kcp.io/2eadcbf778956517ec99fd1c1c32a9b13cb".into(), value.into())
        );
        assert_eq!(
            terminator_label("pluto"),
            ("terminator.internal.kcp.io/2eadcbf778956517ec99fd1c1c32a9b13cba".into(), value.into())
        );
    }

    #[test]
    fn zero_bytes() {
        assert_eq!(base36(&[]), "0");
        assert_eq!(base36(&[0, 0]), "0");
        assert_eq!(base36_padded(&[]), "");
        assert_eq!(base36_padded(&[0, 0]), "00");
        assert_eq!(base62(&[61]), "Z");
    }
}
