//! Values in error messages, and numbers as texts in the form of Go.

use std::fmt;

use super::Value;

/// A double as `%g` of Go writes it: the shortest text, with an exponent below 1e-4 and from 1e6 on.
pub(crate) fn double_to_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// The form in error messages such as `no such key: name`.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Uint(value) => write!(f, "{value}"),
            Self::Double(value) => f.write_str(&double_to_text(*value)),
            Self::String(text) => f.write_str(text.as_str()),
            Self::Bytes(bytes) => write!(f, "{bytes:?}"),
            Self::Duration(duration) => write!(f, "{duration}"),
            Self::Timestamp(timestamp) => write!(f, "{timestamp}"),
            Self::Optional(Some(value)) => write!(f, "optional({value})"),
            Self::Optional(None) => f.write_str("optional.none()"),
            Self::Type(name) => f.write_str(name),
            Self::List(_) | Self::Map(_) | Self::Preserved(_) | Self::Object(_) | Self::Extension(_) => {
                f.write_str(self.type_name())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_written_as_in_go() {
        let cases = [
            (1.0, "1"),
            (0.1, "0.1"),
            (-1.5, "-1.5"),
            (100_000.0, "100000"),
            (1_234_567.0, "1.234567e+06"),
            (1e20, "1e+20"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.25e-7, "1.25e-07"),
            (f64::INFINITY, "+Inf"),
        ];
        for (value, expected) in cases {
            assert_eq!(double_to_text(value), expected);
        }
    }
}
