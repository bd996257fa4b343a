//! Values of flags in the syntax of Go's libraries.

use std::net::IpAddr;
use std::time::Duration;

/// A boolean in Go's syntax.
pub fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// An IP address; as in Go, spaces around it are ignored.
pub fn address(text: &str) -> Option<IpAddr> {
    text.trim().parse().ok()
}

/// An integer in Go's syntax: `443`, `-1`, `0x1d`, `0o17`, `017`, `0b1`, `1_000`.
pub fn integer(text: &str) -> Option<i64> {
    let (sign, rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (&text[..1], rest),
        None => ("", text),
    };
    let lower = rest.to_ascii_lowercase();
    let prefixes = [("0x", 16), ("0o", 8), ("0b", 2), ("0", 8)];
    let prefixed = prefixes.into_iter().find_map(|(prefix, base)| Some((lower.strip_prefix(prefix)?, base)));
    // A prefix may be followed by an underscore.
    let (digits, base) = match prefixed {
        Some((digits, base)) if !digits.is_empty() => (digits.strip_prefix('_').unwrap_or(digits), base),
        _ => (&*lower, 10),
    };
    let is_digits = |part: &str| !part.is_empty() && part.chars().all(|digit| digit.is_digit(base));
    if !digits.split('_').all(is_digits) {
        return None;
    }
    i64::from_str_radix(&format!("{sign}{}", digits.replace('_', "")), base).ok()
}

/// True if these are 32-bit integers.
pub fn are_numbers(text: &str) -> bool {
    text.split(',').all(|number| integer(number).is_some_and(|number| i32::try_from(number).is_ok()))
}

/// A log verbosity: decimal, without a sign, of 31 bits.
pub fn level(text: &str) -> Option<u32> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u32>().ok().filter(|level| is_decimal && i32::try_from(*level).is_ok())
}

/// True if these are patterns with a level each.
pub fn are_levels(text: &str) -> bool {
    text.split(',').filter(|item| !item.is_empty()).all(|item| {
        item.split_once('=').is_some_and(|(pattern, wanted)| !pattern.is_empty() && level(wanted).is_some())
    })
}

/// Feature gates: `Name=true,Other=false`.
pub fn gates(text: &str) -> Option<Vec<(&str, bool)>> {
    let gate = |item| -> Option<(&str, bool)> {
        let (name, value) = str::split_once(item, '=')?;
        Some((name.trim(), boolean(value.trim())?))
    };
    text.split(',').filter(|item| !item.is_empty()).map(gate).collect()
}

/// True if this is a Kubernetes quantity: `512`, `64Ki`, `1.5M`, `1e3`.
pub fn is_size(text: &str) -> bool {
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, unit) = rest.split_at(end);
    let is_exponent = || {
        let exponent = unit.strip_prefix(['e', 'E']).unwrap_or_default();
        exponent.parse::<i32>().is_ok()
    };
    let units = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    number.parse::<f64>().is_ok() && (units.contains(&unit) || is_exponent())
}

/// Go's maximum duration in seconds.
const LONGEST: f64 = 9_223_372_036.0;

/// A duration in Go's syntax: `2m`, `1h30m`, `500ms`, `1.5s`, `0`. A negative duration becomes zero.
pub fn duration(text: &str) -> Option<Duration> {
    let is_negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|end| *end > 0)?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let seconds = match &rest[..unit] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" | "μs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        total += number * seconds;
        rest = &rest[unit..];
    }
    let signed = if is_negative { 0.0 } else { total };
    Duration::try_from_secs_f64(signed).ok().filter(|_| total < LONGEST)
}

/// One line of comma-separated values, some of which may be quoted. `None` if a quote is in the wrong place.
pub fn list(text: &str) -> Option<Vec<String>> {
    let mut values = Vec::new();
    let mut rest = text;
    if rest.is_empty() {
        return Some(values);
    }
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut value = String::new();
            let mut inside = quoted;
            let after = loop {
                let end = inside.find('"')?;
                value.push_str(&inside[..end]);
                match inside[end + 1..].strip_prefix('"') {
                    Some(more) => {
                        value.push('"');
                        inside = more;
                    }
                    None => break &inside[end + 1..],
                }
            };
            values.push(value);
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None if after.is_empty() => return Some(values),
                None => return None,
            }
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            let value = &rest[..end];
            if value.contains('"') {
                return None;
            }
            values.push(value.to_owned());
            match rest.get(end + 1..) {
                Some(more) => rest = more,
                None => return Some(values),
            }
        }
    }
}

/// Names of groups, several of which the operator writes as one quoted value.
pub fn groups(values: Vec<String>) -> Vec<String> {
    let split = values.iter().flat_map(|value| value.split(','));
    let bare = split.map(|group| group.trim().trim_matches(['"', '\'']));
    bare.filter(|group| !group.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("2m", Some(120.0)),
            ("2m0s", Some(120.0)),
            ("1h30m", Some(5400.0)),
            ("1.5s", Some(1.5)),
            ("250ms", Some(0.25)),
            ("0", Some(0.0)),
            ("", None),
            ("5", None),
            ("m", None),
            ("1x", None),
            ("1.", None),
            ("-1s", Some(0.0)),
            ("+.5s", Some(0.5)),
            ("1m.5s", Some(60.5)),
            ("3000000h", None),
        ] {
            assert_eq!(duration(text).map(|duration| duration.as_secs_f64()), expected, "{text:?}");
        }
        for (text, expected) in [
            ("443", Some(443)),
            ("-1", Some(-1)),
            ("0", Some(0)),
            ("0x1D", Some(29)),
            ("017", Some(15)),
            ("1_000", Some(1000)),
            ("0x_1", Some(1)),
            ("", None),
            ("-", None),
            ("0x", None),
            ("--1", None),
            ("1__0", None),
            ("_1", None),
            ("09", None),
            ("x", None),
        ] {
            assert_eq!(integer(text), expected, "{text:?}");
        }
        for (text, expected) in [("4", Some(4)), ("+4", None), ("-1", None), ("", None), ("2147483648", None)]
        {
            assert_eq!(level(text), expected, "{text:?}");
        }
        for (text, expected) in [("true", Some(true)), ("f", Some(false)), ("yes", None), ("", None)] {
            assert_eq!(boolean(text), expected, "{text:?}");
        }
    }

    #[test]
    fn values_without_effect_are_right_or_wrong_as_in_go() {
        for (is_right, right, wrong) in [
            (are_numbers as fn(&str) -> bool, "23,0x1d", &["", "foo", "23,", "2147483648"][..]),
            (are_levels, "foo=4,,bar*=0", &["foo", "foo=abc", "=4", "foo=", "a=b=4"]),
            (is_size, "1.5Mi", &["", "Ki", "1.2.3", "1e", "5q", "1KiB"]),
            (is_size, "-1e-3", &["."]),
            (|text| gates(text).is_some(), "A=true, B = f ,", &["A", "A=maybe", "A="]),
        ] {
            assert!(is_right(right), "{right:?}");
            for text in wrong {
                assert!(!is_right(text), "{text:?}");
            }
        }
        assert_eq!(gates("A=true, B = f ,"), Some(vec![("A", true), ("B", false)]));
    }

    #[test]
    fn lists_may_have_quotes() {
        for (text, expected) in [
            ("", Some(vec![])),
            ("a", Some(vec!["a"])),
            ("a,b,", Some(vec!["a", "b", ""])),
            (r#""a,b",c"#, Some(vec!["a,b", "c"])),
            (r#""a""b""#, Some(vec![r#"a"b"#])),
            (r#"a"b"#, None),
            (r#""a"b"#, None),
            (r#""a"#, None),
        ] {
            let expected: Option<Vec<String>> =
                expected.map(|values| values.into_iter().map(str::to_owned).collect());
            assert_eq!(list(text), expected, "{text:?}");
        }
        let operator = list(r#""system:masters,system:kcp:x:*""#).unwrap_or_default();
        assert_eq!(groups(operator), ["system:masters", "system:kcp:x:*"]);
    }
}
