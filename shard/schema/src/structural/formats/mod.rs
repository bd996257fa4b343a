//! `format`: the formats of strings and numbers that Kubernetes validates. Unknown formats accept all values.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine as _;
use regex::Regex;
use serde_json::Number;

use super::{Dialect, TypeSet};

/// Whether a string has a format. Unknown formats accept all strings.
pub(super) fn has_format(format: &str, text: &str, dialect: Dialect) -> bool {
    match without_dashes(format).as_ref() {
        // Go decodes bytes of built-in types itself and accepts an empty value.
        "byte" => is_base64(text) && (dialect == Dialect::OpenApi || !text.is_empty()),
        "date" => is_date(text),
        "datetime" => is_date_time(text),
        "duration" => is_duration(text),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uri" => is_uri(text),
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
            let integer = number.as_i128().or_else(|| {
                let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
                // A float beyond the range of the target is its largest value.
                Some(float as i128)
            });
            integer.is_some_and(|integer: i128| (min..=max).contains(&integer))
        }
        (TypeSet::NUMBER, Some("float")) => number.as_f64().is_none_or(|float| (float as f32).is_finite()),
        _ => true,
    }
}

fn is_base64(text: &str) -> bool {
    base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

/// `<date>T<hh>:<mm>:<ss>[.<digits>](Z|±hh:mm)`, letters in upper or lower case.
fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't']) else {
        return false;
    };
    let Some((clock, rest)) = time.split_at_checked(8) else {
        return false;
    };
    let rest = match rest.strip_prefix('.') {
        Some(fraction) => {
            let end = fraction.find(|character: char| !character.is_ascii_digit()).unwrap_or(fraction.len());
            if end == 0 {
                return false;
            }
            &fraction[end..]
        }
        None => rest,
    };
    is_date(date) && is_clock(clock) && is_offset(rest)
}

fn is_clock(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    let [hours, minutes, seconds] = parts.as_slice() else {
        return false;
    };
    are_two_digits(hours, 23) && are_two_digits(minutes, 59) && are_two_digits(seconds, 59)
}

fn is_offset(text: &str) -> bool {
    if text.eq_ignore_ascii_case("z") {
        return true;
    }
    let Some((hours, minutes)) = text.strip_prefix(['+', '-']).and_then(|text| text.split_once(':')) else {
        return false;
    };
    are_two_digits(hours, 99) && are_two_digits(minutes, 99)
}

fn are_two_digits(text: &str, max: u8) -> bool {
    text.len() == 2
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && text.parse::<u8>().is_ok_and(|n| n <= max)
}

/// A duration of Go (`1h30m`, `-1.5s`) or a text that contains a number with a unit (`3 days`, `2w`).
fn is_duration(text: &str) -> bool {
    is_go_duration(text) || is_worded_duration(text)
}

fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let end = rest.find(|character: char| !(character.is_ascii_digit() || character == '.'));
        let Some((number, unit)) = end.map(|end| rest.split_at(end)) else {
            return false;
        };
        if !is_decimal(number) {
            return false;
        }
        let units = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];
        // The longest match wins: `ms` is not `m` followed by `s`.
        let found = units.iter().filter_map(|name| unit.strip_prefix(name)).min_by_key(|rest| rest.len());
        let Some(after) = found else { return false };
        rest = after;
    }
    true
}

fn is_decimal(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    digits > 0 && text.len() - digits <= 1
}

/// Whether any number in the text has a unit of time. Other characters are ignored.
fn is_worded_duration(text: &str) -> bool {
    // The last name of a unit is a prefix of further names, such as `seconds`.
    const UNITS: [(&[&str], &str); 8] = [
        (&["ns"], "nano"),
        (&["us", "µs"], "micro"),
        (&["ms"], "milli"),
        (&["s"], "sec"),
        (&["m"], "min"),
        (&["h", "hr"], "hour"),
        (&["d"], "day"),
        (&["w", "wk"], "week"),
    ];
    let is_digit = |character: char| character.is_ascii_digit();
    let mut has_unit = false;
    let mut rest = text;
    while let Some(start) = rest.find(is_digit) {
        let digits = &rest[start..];
        let (number, after) = digits.split_at(digits.find(|c| !is_digit(c)).unwrap_or(digits.len()));
        let after = after.trim_start_matches(['\t', '\n', '\x0c', '\r', ' ']);
        let is_letter = |character: char| character.is_ascii_alphabetic() || character == 'µ';
        let (unit, after) = after.split_at(after.find(|c| !is_letter(c)).unwrap_or(after.len()));
        rest = after;
        if unit.is_empty() {
            continue;
        }
        if number.parse::<i64>().is_err() {
            return false;
        }
        let unit = unit.to_ascii_lowercase();
        has_unit |= UNITS.iter().any(|(names, prefix)| names.contains(&&*unit) || unit.starts_with(prefix));
    }
    has_unit
}

fn is_email(text: &str) -> bool {
    let address = match (text.find('<'), text.strip_suffix('>')) {
        (Some(start), Some(before)) => &before[start + 1..],
        _ => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.ends_with('.')
            && !part.contains("..")
            && !part.contains(|character: char| {
                character.is_whitespace() || character.is_control() || "()<>[]:;@\\,\"".contains(character)
            })
    };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.starts_with('[') && domain.ends_with(']');
    (quoted || plain(local)) && (literal || plain(domain))
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

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let length_at_most = |max: u8| {
        !length.is_empty()
            && length.len() <= 3
            && length.bytes().all(|byte| byte.is_ascii_digit())
            && length.parse::<u8>().is_ok_and(|bits| bits <= max)
    };
    (address.parse::<Ipv4Addr>().is_ok() && length_at_most(32))
        || (address.parse::<Ipv6Addr>().is_ok() && length_at_most(128))
}

fn is_mac(text: &str) -> bool {
    let groups = |separator: char, width: usize, counts: &[usize]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len()) && parts.iter().all(|part| part.len() == width && is_hexadecimal(part))
    };
    groups(':', 2, &[6, 8, 20]) || groups('-', 2, &[6, 8, 20]) || groups('.', 4, &[3, 4, 10])
}

/// An absolute path or an absolute URI.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|character| character.is_control() || character == ' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let scheme_is_valid = scheme.starts_with(|character: char| character.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    scheme_is_valid && !rest.is_empty()
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
    text.chars().filter(|character| !matches!(character, ' ' | '-')).collect()
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

/// Thirteen to nineteen digits with a Luhn checksum.
fn is_credit_card(text: &str) -> bool {
    let digits = without_separators(text);
    if !(13..=19).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
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

/// `ddd[- ]dd[- ]dddd`.
fn is_social_security_number(text: &str) -> bool {
    let mut rest = text;
    for (index, width) in [3, 2, 4].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(['-', ' ']).unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(width) else {
            return false;
        };
        if !group.bytes().all(|byte| byte.is_ascii_digit()) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && is_hexadecimal(digits)
}

/// `rgb(r, g, b)` with parts up to 255.
fn is_rgb_color(text: &str) -> bool {
    let inner = text.strip_prefix("rgb(").and_then(|text| text.strip_suffix(')'));
    let Some(inner) = inner else { return false };
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    parts.len() == 3
        && parts.iter().all(|part| part.parse::<u8>().is_ok_and(|value| value.to_string() == *part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_checked_as_in_kubernetes() {
        let table: &[(&str, &[&str], &[&str])] = &[
            ("byte", &["YWJj", "YQ=="], &["a", "$$$$", ""]),
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
            ("ipv4", &["10.0.0.1"], &["10.0.0.256", "::1", "010.0.0.1"]),
            ("ipv6", &["::1", "2001:db8::1"], &["10.0.0.1", "g::1"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "x/8", "10.0.0.0/+8"]),
            ("mac", &["01:23:45:67:89:ab", "0123.4567.89ab"], &["01:23:45", "01:23:45:67:89:zz"]),
            ("uri", &["https://a.example/b", "/path", "mailto:a@b"], &["", "a b", "relative", "1x://y"]),
            (
                "uuid",
                &["123e4567-e89b-12d3-a456-426614174000"],
                &["123e4567", "g23e4567-e89b-12d3-a456-426614174000"],
            ),
            ("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]),
            ("uuid5", &["123e4567-e89b-52d3-a456-426614174000"], &["123e4567-e89b-52d3-0456-426614174000"]),
            ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f"]),
            ("isbn", &["0-306-40615-2", "978-3-16-148410-0"], &["0-306-40615-3", "978-3-16-148410-1"]),
            ("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112", "1"]),
            ("ssn", &["123-45-6789", "123456789"], &["12-345-6789"]),
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
