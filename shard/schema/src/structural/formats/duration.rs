//! Durations as Kubernetes reads them: those of Go, and texts with numbers and units of time.

/// A duration of Go (`1h30m`, `-1.5s`) or a text that contains a number with a unit (`3 days`, `2w`).
pub(super) fn is_duration(text: &str) -> bool {
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
        if !is_decimal(number) || !is_in_range(number) {
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

/// Whether the whole part of a number fits 64 bits.
fn is_in_range(number: &str) -> bool {
    let whole = number.split_once('.').map_or(number, |(whole, _)| whole);
    whole.is_empty() || whole.parse::<i64>().is_ok()
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
