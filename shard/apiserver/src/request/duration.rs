//! Durations in the syntax of Go: `1h30m`, `1.5s`.

use std::time::Duration;

/// A text that is no duration. The message is that of Go.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DurationError {
    /// Not a sequence of numbers and units.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// An unknown unit.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The duration.
        text: String,
    },
}

/// Parses a duration. A negative one is zero, because all limits treat them alike.
///
/// # Errors
/// [`DurationError`].
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (is_negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if unsigned == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = unsigned;
    let mut seconds = 0.0;
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let factor = match &rest[..unit_end] {
            "" => return Err(DurationError::MissingUnit(text.to_owned())),
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            unit => {
                return Err(DurationError::UnknownUnit { unit: unit.to_owned(), text: text.to_owned() });
            }
        };
        seconds += number * factor;
        rest = &rest[unit_end..];
    }
    // Go's durations end at 292 years.
    let duration =
        Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds < 9.2e9).ok_or_else(invalid)?;
    Ok(if is_negative { Duration::ZERO } else { duration })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_by_go() {
        for (text, millis) in [
            ("0", 0),
            ("32s", 32_000),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            ("100ms", 100),
            ("-1s", 0),
            ("+2s", 2000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for (text, message) in [
            ("", "time: invalid duration \"\""),
            ("abc", "time: invalid duration \"abc\""),
            ("30", "time: missing unit in duration \"30\""),
            ("3x", "time: unknown unit \"x\" in duration \"3x\""),
            ("1s.", "time: invalid duration \"1s.\""),
            ("99999999999h", "time: invalid duration \"99999999999h\""),
        ] {
            assert_eq!(parse_duration(text).unwrap_err().to_string(), message);
        }
    }
}
