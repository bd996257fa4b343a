//! `format`: the formats of strings and numbers that Kubernetes validates. Unknown formats accept all values.

mod duration;
mod mail_address;
mod network;

use std::borrow::Cow;
use std::sync::LazyLock;

use base64::Engine as _;
use fairlead_cel::NamedFormat;
use regex::Regex;
use serde_json::Number;

use super::{Dialect, TypeSet};

/// Whether a string has a format. Unknown formats accept all strings.
pub(super) fn has_format(format: &str, text: &str, dialect: Dialect) -> bool {
    match without_dashes(format).as_ref() {
        // Go decodes bytes of built-in types itself and accepts an empty value.
        "byte" if dialect == Dialect::OpenApi => {
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        }
        "byte" => is_base64(text),
        "date" => is_date(text),
        "datetime" => has_named_format("datetime", text),
        "duration" => duration::is_duration(text),
        "email" => mail_address::is_mail_address(text),
        "hostname" => is_hostname(text),
        "ipv4" => network::is_dotted_address(text),
        "ipv6" => network::is_ipv6(text),
        "cidr" => network::is_cidr(text),
        "mac" => network::is_mac(text),
        "uri" => has_named_format("uri", text) && network::has_regular_host(text),
        "uuid" => is_uuid(text, &[], &[]),
        "uuid3" => is_uuid(text, b"3", &[]),
        "uuid4" => is_uuid(text, b"4", b"89abAB"),
        "uuid5" => is_uuid(text, b"5", b"89abAB"),
        "bsonobjectid" => text.len() == 24 && is_hexadecimal(text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_credit_card(text),
        "ssn" => is_social_security_number(text),
        "hexcolor" => is_hex_color(text),
        "rgbcolor" => is_rgb_color(text),
        "k8sshortname" => crate::names::dns1123_label(text).is_empty(),
        "k8slongname" => crate::names::dns1123_subdomain(text).is_empty(),
        _ => true,
    }
}

/// Whether Kubernetes supports a format in schemas of a type. It ignores others.
pub(super) fn is_supported(format: &str, types: TypeSet) -> bool {
    match types {
        TypeSet::INTEGER => matches!(format, "int32" | "int64"),
        TypeSet::NUMBER => matches!(format, "float" | "double"),
        // A set of several types counts as none.
        types if types.is_empty() || types == TypeSet::STRING || types == TypeSet::INT_OR_STRING => {
            is_text_format(format)
        }
        _ => false,
    }
}

/// Whether a format is one of strings, with or without dashes.
pub(super) fn is_text_format(format: &str) -> bool {
    const FORMATS: [&str; 26] = [
        "bsonobjectid",
        "byte",
        "cidr",
        "creditcard",
        "date",
        "datetime",
        "duration",
        "email",
        "hexcolor",
        "hostname",
        "ipv4",
        "ipv6",
        "isbn",
        "isbn10",
        "isbn13",
        "k8slongname",
        "k8sshortname",
        "mac",
        "password",
        "rgbcolor",
        "ssn",
        "uri",
        "uuid",
        "uuid3",
        "uuid4",
        "uuid5",
    ];
    FORMATS.binary_search(&&*without_dashes(format)).is_ok()
}

fn without_dashes(format: &str) -> Cow<'_, str> {
    if format.contains('-') { format.replace('-', "").into() } else { format.into() }
}

/// Whether a number can be converted to a type and a format as Go does it: integers must be whole and fit their format.
pub(super) fn number_has_format(types: TypeSet, format: Option<&str>, number: &Number) -> bool {
    match (types, format) {
        (TypeSet::INTEGER, format) => {
            let (min, max) = match format {
                Some("int32") => (i32::MIN.into(), i32::MAX.into()),
                _ => (i64::MIN.into(), i64::MAX.into()),
            };
            // Go converts a float by way of its shortest decimal form, whose last digits may be zeros.
            let integer = number.as_i128().or_else(|| number.as_f64()?.to_string().parse().ok());
            integer.is_some_and(|integer: i128| (min..=max).contains(&integer))
        }
        (TypeSet::NUMBER, Some("float")) => number.as_f64().is_none_or(|float| (float as f32).is_finite()),
        _ => true,
    }
}

/// Whether a string has a format that expressions check too.
fn has_named_format(format: &str, text: &str) -> bool {
    NamedFormat::named(format).is_some_and(|format| format.faults(text).is_empty())
}

/// Whether a text has the form of base64. As in Kubernetes, the unused bits of the last character may be set.
fn is_base64(text: &str) -> bool {
    let digits = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    !text.is_empty() && text.len().is_multiple_of(4) && digits.bytes().all(is_digit)
}

fn is_date(text: &str) -> bool {
    let is_number = |(index, byte): (usize, u8)| matches!(index, 4 | 7) || byte.is_ascii_digit();
    text.len() == 10 && text.bytes().enumerate().all(is_number) && text.parse::<jiff::civil::Date>().is_ok()
}

/// One label with at most one dash, or several labels and a top level without digits. Letters and symbols of all scripts
/// are allowed.
fn is_hostname(text: &str) -> bool {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let character = r"a-zA-Z0-9\p{S}\p{L}";
        let label = format!(r"[{character}]-?[{character}]*");
        let domain = format!(r"(?:[{character}](?:[{character}-]*[{character}])?\.)+[a-zA-Z\p{{L}}]{{2,}}");
        Regex::new(&format!("^(?:{label}|{domain})$")).ok()
    });
    text.len() <= 255
        && text.split('.').all(|label| label.len() <= 63)
        && PATTERN.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// Hyphens are optional. `versions` and `variants` are the allowed first digits of the third and fourth group.
fn is_uuid(text: &str, versions: &[u8], variants: &[u8]) -> bool {
    let mut rest = text.as_bytes();
    for (index, width) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(width) else {
            return false;
        };
        let allowed = match index {
            2 => versions,
            3 => variants,
            _ => &[],
        };
        let first_is_allowed = allowed.is_empty() || allowed.contains(&group[0]);
        if !first_is_allowed || !group.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

fn is_hexadecimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn without_separators(text: &str) -> String {
    text.chars().filter(|character| !(character.is_ascii_whitespace() || *character == '-')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = without_separators(text);
    if digits.len() != 10 {
        return false;
    }
    let mut sum = 0;
    for (index, byte) in digits.bytes().enumerate() {
        let digit = match byte {
            b'0'..=b'9' => usize::from(byte - b'0'),
            b'X' if index == 9 => 10,
            _ => return false,
        };
        sum += (index + 1) * digit;
    }
    sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = without_separators(text);
    if digits.len() != 13 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let weighted = digits.bytes().enumerate();
    let sum: u32 =
        weighted.map(|(index, byte)| u32::from(byte - b'0') * if index % 2 == 0 { 1 } else { 3 }).sum();
    sum.is_multiple_of(10)
}

/// The number of a card of an issuer that Kubernetes knows, with a Luhn checksum and any characters between its digits.
fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !has_known_issuer(&digits) {
        return false;
    }
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(index, byte)| {
            let digit = u32::from(byte - b'0');
            match (index % 2 == 1, digit * 2) {
                (true, doubled) if doubled > 9 => doubled - 9,
                (true, doubled) => doubled,
                (false, _) => digit,
            }
        })
        .sum();
    sum.is_multiple_of(10)
}

/// The prefixes and lengths of numbers of Visa, Mastercard, Discover, American Express, Diners Club and JCB.
fn has_known_issuer(digits: &str) -> bool {
    let prefix = |length: usize| digits.get(..length).and_then(|prefix| prefix.parse::<u16>().ok());
    matches!(
        (digits.len(), prefix(4), prefix(3), prefix(2)),
        (13 | 16, _, _, Some(40..=49))
            | (16, _, _, Some(51..=55 | 65 | 35))
            | (16, Some(6011), _, _)
            | (15, Some(2131 | 1800), _, _)
            | (15, _, _, Some(34 | 37))
            | (14, _, Some(300..=305), _)
            | (14, _, _, Some(36 | 38))
    )
}

/// `ddd-dd-dddd`, with hyphens or spaces.
fn is_social_security_number(text: &str) -> bool {
    text.len() == 11
        && text.bytes().enumerate().all(|(index, byte)| match index {
            3 | 6 => matches!(byte, b'-' | b' '),
            _ => byte.is_ascii_digit(),
        })
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && is_hexadecimal(digits)
}

/// `rgb(r, g, b)` with parts up to 255.
fn is_rgb_color(text: &str) -> bool {
    let inner = text.strip_prefix("rgb(").and_then(|text| text.strip_suffix(')'));
    let Some(inner) = inner else { return false };
    let parts: Vec<&str> =
        inner.split(',').map(|part| part.trim_matches(|c: char| c.is_ascii_whitespace())).collect();
    parts.len() == 3
        && parts.iter().all(|part| part.parse::<u8>().is_ok_and(|value| value.to_string() == *part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_checked_as_in_kubernetes() {
        let table: &[(&str, &[&str], &[&str])] = &[
            ("byte", &["YWJj", "YQ==", "YWJ="], &["a", "$$$$", "", "====", "YQ=a"]),
            ("date", &["2026-11-21", "2024-02-29"], &["2026-13-01", "2023-02-29", "2026-1-1", "x"]),
            (
                "date-time",
                &["2026-11-21T13:31:43Z", "2026-11-21t13:31:43.123z", "2026-11-21T13:31:43+01:00"],
                &[
                    "2026-11-21",
                    "2026-11-21T25:00:00Z",
                    "2026-11-21T13:31:43",
                    "2026-11-21T13:31:43.Z",
                    "T",
                    "",
                ],
            ),
            (
                "duration",
                &["1h30m", "1.5s", "0", "-3ms", "3 days", "2w", "1h ", "1..5s", "6ba7-11d1", "4 Weekends"],
                &["", "1", "h", "1x", "1 sx", "99999999999999999999 s"],
            ),
            ("email", &["a@b.example", "A <a@b.example>"], &["a", "@b", "a@", "a b@c"]),
            (
                "hostname",
                &["a.example", "a", "1", "a-b", "a-b-c.example", "ü.example"],
                &["", "-a", "a..b", "a_b", "a-b-c", "a.example.", "10.0.0.1", "a.b"],
            ),
            ("ipv4", &["10.0.0.1", "010.0.0.1", "::ffff:1.2.3.4"], &["10.0.0.256", "::1", "1.2.3"]),
            ("ipv6", &["::1", "2001:db8::1"], &["10.0.0.1", "g::1"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "x/8", "10.0.0.0/+8"]),
            (
                "mac",
                &["01:23:45:67:89:ab", "0123.4567.89ab", "0123456789ab"],
                &["01:23:45", "0123456789", "01:23:45:67:89:zz"],
            ),
            (
                "uri",
                &[
                    "https://a.example/b",
                    "/path",
                    "mailto:a@b",
                    "http://u:p@[fe80::1%25en0]:80/",
                    "x://[::1]",
                ],
                &[
                    "",
                    "a b",
                    "relative",
                    "1x://y",
                    "http://[,::1]/",
                    "http://[a]/",
                    "http://::1/",
                    "http://a:1:2/",
                ],
            ),
            (
                "uuid",
                &["123e4567-e89b-12d3-a456-426614174000"],
                &["123e4567", "g23e4567-e89b-12d3-a456-426614174000"],
            ),
            ("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]),
            ("uuid5", &["123e4567-e89b-52d3-a456-426614174000"], &["123e4567-e89b-52d3-0456-426614174000"]),
            ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f"]),
            ("isbn", &["0-306-40615-2", "978-3-16-148410-0"], &["0-306-40615-3", "978-3-16-148410-1"]),
            (
                "creditcard",
                &["4111 1111 1111 1111", "4111_1111_1111_1111", "340000000000009"],
                &["4111 1111 1111 1112", "1", "1234567812345670"],
            ),
            ("ssn", &["123-45-6789", "123 45 6789"], &["12-345-6789", "123456789"]),
            ("hexcolor", &["#fff", "a1b2c3"], &["#ffff", "#ggg"]),
            ("rgbcolor", &["rgb(1, 2, 255)"], &["rgb(1,2,256)", "rgb(1,2)"]),
            ("k8s-short-name", &["abc"], &["a.b", "A"]),
            ("k8s-long-name", &["a.b"], &["A"]),
            ("password", &["anything"], &[]),
            ("unheard-of", &["anything", ""], &[]),
        ];
        for (format, right, wrong) in table {
            for text in *right {
                assert!(has_format(format, text, Dialect::Structural), "{format}: {text}");
            }
            for text in *wrong {
                assert!(!has_format(format, text, Dialect::Structural), "{format}: {text}");
            }
        }
        assert!(has_format("byte", "", Dialect::OpenApi));
    }

    #[test]
    fn integers_must_fit_their_format() {
        let fits = |format: &str, text: &str| {
            let number: Number = serde_json::from_str(text).unwrap();
            let types = if format.starts_with("int") { TypeSet::INTEGER } else { TypeSet::NUMBER };
            number_has_format(types, Some(format), &number)
        };
        assert!(fits("int32", "2147483647") && !fits("int32", "2147483648"));
        assert!(fits("int64", "9223372036854775807") && !fits("int64", "9223372036854775808"));
        assert!(fits("int64", "2.0") && !fits("int64", "2.5") && !fits("int64", "1e30"));
        assert!(fits("double", "1e300") && fits("float", "1e30") && !fits("float", "1e300"));
    }
}
