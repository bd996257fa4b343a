//! Values with a unit: `30s`, `64MiB`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A span of time, written as Go and Kubernetes write it: `250ms`, `30s`, `1m30s`, `2h`. Zero is `0s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timespan(Duration);

impl Timespan {
    /// Whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// Whole seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// The same span as the standard library's type.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl FromStr for Timespan {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let malformed = || UnitError::new(text, "a duration such as \"250ms\", \"30s\", \"1m30s\" or \"2h\"");
        let mut rest = text;
        let mut total: u64 = 0;
        // Each unit may appear once, largest first, so that "1s1h" is an error.
        let mut allowed: &[(&str, u64)] = &[("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
        if rest.is_empty() {
            return Err(malformed());
        }
        while !rest.is_empty() {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let amount: u64 = rest[..digits].parse().map_err(|_| malformed())?;
            rest = &rest[digits..];
            let letters = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
            let unit = &rest[..letters];
            rest = &rest[letters..];
            let index = allowed.iter().position(|(name, _)| *name == unit).ok_or_else(malformed)?;
            let millis = amount.checked_mul(allowed[index].1).ok_or_else(malformed)?;
            total = total.checked_add(millis).ok_or_else(malformed)?;
            allowed = &allowed[index + 1..];
        }
        Ok(Self::from_millis(total))
    }
}

impl fmt::Display for Timespan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut millis = self.0.as_millis();
        if millis == 0 {
            return f.write_str("0s");
        }
        for (unit, size) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
            if millis >= size {
                write!(f, "{}{unit}", millis / size)?;
                millis %= size;
            }
        }
        Ok(())
    }
}

/// An amount of memory or storage: a number of bytes, or a number with `KiB`, `MiB` or `GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(u64);

const SIZES: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl ByteSize {
    /// `amount` KiB.
    pub const fn kib(amount: u64) -> Self {
        Self(amount << 10)
    }

    /// `amount` MiB.
    pub const fn mib(amount: u64) -> Self {
        Self(amount << 20)
    }

    /// `amount` bytes.
    pub const fn of_bytes(amount: u64) -> Self {
        Self(amount)
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let malformed = || UnitError::new(text, "a size such as \"512KiB\", \"64MiB\" or \"1GiB\"");
        let (digits, factor) = SIZES
            .iter()
            .find_map(|(unit, factor)| text.strip_suffix(unit).map(|digits| (digits, *factor)))
            .unwrap_or((text, 1));
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(malformed());
        }
        let amount: u64 = digits.parse().map_err(|_| malformed())?;
        amount.checked_mul(factor).map(Self).ok_or_else(malformed)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SIZES.iter().find(|(_, size)| self.0 >= *size && self.0.is_multiple_of(*size)) {
            Some((unit, size)) => write!(f, "{}{unit}", self.0 / size),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A share of something, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Fraction(f64);

impl Fraction {
    /// The share 0.
    pub const NONE: Self = Self(0.0);
    /// The share 1.
    pub const ALL: Self = Self(1.0);

    /// The share as a number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl<'de> serde::Deserialize<'de> for Fraction {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(deserializer)?;
        if (0.0..=1.0).contains(&share) {
            return Ok(Self(share));
        }
        let wanted = "a share such as 0.01: a number from 0 to 1";
        Err(serde::de::Error::custom(UnitError::new(&share.to_string(), wanted)))
    }
}

impl serde::Serialize for Fraction {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

/// A text that is not a valid value of its key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {wanted}")]
pub struct UnitError {
    text: String,
    wanted: &'static str,
}

impl UnitError {
    pub(crate) fn new(text: &str, wanted: &'static str) -> Self {
        Self { text: text.to_owned(), wanted }
    }
}

/// Reads and writes a type as the text of its `FromStr` and `Display`.
macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}
pub(crate) use as_text;

as_text!(Timespan, ByteSize);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn durations_are_read_and_printed() {
        for (text, millis, printed) in [
            ("0s", 0, "0s"),
            ("250ms", 250, "250ms"),
            ("30s", 30_000, "30s"),
            ("90s", 90_000, "1m30s"),
            ("1m30s", 90_000, "1m30s"),
            ("2h", 7_200_000, "2h"),
            ("1h0m5s1ms", 3_605_001, "1h5s1ms"),
        ] {
            let span: Timespan = text.parse().unwrap();
            assert_eq!(span.get().as_millis(), millis, "{text}");
            assert_eq!(span.to_string(), printed);
        }
    }

    #[test]
    fn malformed_durations_are_refused() {
        for text in ["", "30", "s", "-1s", "1.5s", "1s1h", "1s1s", "5d", "30 s", "99999999999999999999s"] {
            assert!(text.parse::<Timespan>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn shares_are_numbers_from_0_to_1() {
        for (text, expected) in [
            ("0", Some(0.0)),
            ("1", Some(1.0)),
            ("0.01", Some(0.01)),
            ("1.01", None),
            ("-0.1", None),
            ("\"1%\"", None),
        ] {
            let share = serde_json::from_str::<Fraction>(text).ok();
            assert_eq!(share.map(Fraction::get), expected, "{text}");
        }
    }

    #[test]
    fn sizes_are_read_and_printed() {
        for (text, bytes, printed) in [
            ("0", 0, "0"),
            ("1000", 1000, "1000"),
            ("1024", 1024, "1KiB"),
            ("64MiB", 64 << 20, "64MiB"),
            ("2GiB", 2 << 30, "2GiB"),
        ] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!(size.bytes(), bytes, "{text}");
            assert_eq!(size.to_string(), printed);
        }
        for text in ["", "MiB", "-1", "1.5GiB", "64MB", "64 MiB", "+1", "18446744073709551615GiB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text:?}");
        }
    }
}
