//! Values of flags as Go's libraries write them.

use std::time::Duration;

/// A boolean as Go reads it.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// A duration as Go reads it: `2m`, `1h30m`, `500ms`, `1.5s`, `0`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|end| *end > 0)?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let seconds = match &rest[..unit] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        total += number * seconds;
        rest = &rest[unit..];
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(total).ok()).flatten()
}

/// One line of comma-separated values, of which some may stand in quotes. `None` for quotes in the wrong places.
pub(super) fn list(text: &str) -> Option<Vec<String>> {
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

/// Names of groups, of which the operator writes several into one pair of quotes.
pub(super) fn groups(values: Vec<String>) -> Vec<String> {
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
            ("-1s", None),
        ] {
            assert_eq!(duration(text).map(|duration| duration.as_secs_f64()), expected, "{text:?}");
        }
        for (text, expected) in [("true", Some(true)), ("f", Some(false)), ("yes", None), ("", None)] {
            assert_eq!(boolean(text), expected, "{text:?}");
        }
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
