//! Times as Go's `time.Parse` reads them: what it accepts, and the texts of its errors, which clients get.

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp, tz::Offset};

/// The two layouts in which Kubernetes reads times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeLayout {
    /// RFC 3339; a fraction of a second may follow (`metav1.Time`).
    Seconds,
    /// RFC 3339 with exactly six digits of a fraction (`metav1.MicroTime`).
    Microseconds,
}

impl TimeLayout {
    /// Reads a time.
    ///
    /// # Errors
    /// The text of Go's error, such as `parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"`.
    pub(crate) fn parse(self, text: &str) -> Result<Timestamp, String> {
        let reader = Reader { layout: self, rest: text.as_bytes() };
        reader.time().map_err(|error| match error {
            Malformed::Element { rest, element } => format!(
                "parsing time {} as {}: cannot parse {} as {}",
                quote(text.as_bytes()),
                quote(self.text().as_bytes()),
                quote(&rest),
                quote(element.as_bytes())
            ),
            Malformed::OutOfRange(part) => {
                format!("parsing time {}: {part} out of range", quote(text.as_bytes()))
            }
            Malformed::ExtraText(rest) => {
                format!("parsing time {}: extra text: {}", quote(text.as_bytes()), quote(&rest))
            }
        })
    }

    fn text(self) -> &'static str {
        match self {
            Self::Seconds => "2006-01-02T15:04:05Z07:00",
            Self::Microseconds => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

enum Malformed {
    /// The rest of the text does not begin with the element of the layout.
    Element {
        rest: Vec<u8>,
        element: &'static str,
    },
    OutOfRange(&'static str),
    ExtraText(Vec<u8>),
}

struct Reader<'t> {
    layout: TimeLayout,
    rest: &'t [u8],
}

impl Reader<'_> {
    fn time(mut self) -> Result<Timestamp, Malformed> {
        let year = self.year()?;
        self.skip("-")?;
        let month = self.two_digits("01")?;
        in_range(month, 1..=12, "month")?;
        self.skip("-")?;
        let day = self.two_digits("02")?;
        self.skip("T")?;
        let hour = self.hour()?;
        in_range(hour, 0..=23, "hour")?;
        self.skip(":")?;
        let minute = self.two_digits("04")?;
        in_range(minute, 0..=59, "minute")?;
        self.skip(":")?;
        let second = self.two_digits("05")?;
        in_range(second, 0..=59, "second")?;
        let nanosecond = match self.layout {
            TimeLayout::Seconds => self.optional_fraction(),
            TimeLayout::Microseconds => self.six_digits()?,
        };
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(Malformed::ExtraText(self.rest.to_vec()));
        }
        let date_time = DateTime::new(year, month, day, hour, minute, second, nanosecond);
        let date_time = date_time.map_err(|_| Malformed::OutOfRange("day"))?;
        let instant = Offset::UTC.to_timestamp(date_time).and_then(|utc| utc.checked_sub(offset));
        instant.map_err(|_| Malformed::OutOfRange("year"))
    }

    fn malformed(&self, element: &'static str) -> Malformed {
        Malformed::Element { rest: self.rest.to_vec(), element }
    }

    fn skip(&mut self, prefix: &'static str) -> Result<(), Malformed> {
        self.rest = self.rest.strip_prefix(prefix.as_bytes()).ok_or_else(|| self.malformed(prefix))?;
        Ok(())
    }

    fn year(&mut self) -> Result<i16, Malformed> {
        let digits = self.rest.get(..4).filter(|digits| digits.iter().all(u8::is_ascii_digit));
        let digits = digits.ok_or_else(|| self.malformed("2006"))?;
        let year = digits.iter().fold(0, |year, digit| year * 10 + i16::from(digit - b'0'));
        self.rest = &self.rest[4..];
        Ok(year)
    }

    fn two_digits(&mut self, element: &'static str) -> Result<i8, Malformed> {
        let number = leading_two_digits(self.rest).ok_or_else(|| self.malformed(element))?;
        self.rest = &self.rest[2..];
        Ok(number)
    }

    /// One digit is enough for an hour.
    fn hour(&mut self) -> Result<i8, Malformed> {
        match (leading_two_digits(self.rest), self.rest.first()) {
            (None, Some(digit)) if digit.is_ascii_digit() => {
                self.rest = &self.rest[1..];
                Ok((digit - b'0') as i8)
            }
            _ => self.two_digits("15"),
        }
    }

    /// Any number of digits after a period or a comma; those after the ninth are ignored.
    fn optional_fraction(&mut self) -> i32 {
        let [b'.' | b',', digits @ ..] = self.rest else { return 0 };
        let length = digits.iter().take_while(|digit| digit.is_ascii_digit()).count();
        if length == 0 {
            return 0;
        }
        self.rest = &digits[length..];
        nanoseconds(&digits[..length])
    }

    fn six_digits(&mut self) -> Result<i32, Malformed> {
        let digits = match self.rest {
            [b'.' | b',', digits @ ..] => digits.get(..6),
            _ => None,
        };
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_digit));
        let digits = digits.ok_or_else(|| self.malformed(".000000"))?;
        self.rest = &self.rest[7..];
        Ok(nanoseconds(digits))
    }

    /// `Z`, or a sign, hours and minutes. 24 hours and 60 minutes are accepted.
    fn offset(&mut self) -> Result<SignedDuration, Malformed> {
        if let [b'Z', rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(SignedDuration::ZERO);
        }
        let malformed = || Malformed::Element { rest: self.rest.to_vec(), element: "Z07:00" };
        let (offset, rest) = self.rest.split_at_checked(6).ok_or_else(malformed)?;
        if offset[3] != b':' {
            return Err(malformed());
        }
        let hours = leading_two_digits(&offset[1..]);
        let minutes = leading_two_digits(&offset[4..]);
        in_range(hours.unwrap_or(0), 0..=24, "time zone offset hour")?;
        in_range(minutes.unwrap_or(0), 0..=60, "time zone offset minute")?;
        let (Some(hours), Some(minutes)) = (hours, minutes) else { return Err(malformed()) };
        let seconds = (i64::from(hours) * 60 + i64::from(minutes)) * 60;
        let offset = match offset[0] {
            b'+' => SignedDuration::from_secs(seconds),
            b'-' => SignedDuration::from_secs(-seconds),
            _ => return Err(malformed()),
        };
        self.rest = rest;
        Ok(offset)
    }
}

fn in_range(number: i8, range: core::ops::RangeInclusive<i8>, part: &'static str) -> Result<(), Malformed> {
    if range.contains(&number) { Ok(()) } else { Err(Malformed::OutOfRange(part)) }
}

fn leading_two_digits(text: &[u8]) -> Option<i8> {
    match text {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9', ..] => Some(((tens - b'0') * 10 + (ones - b'0')) as i8),
        _ => None,
    }
}

fn nanoseconds(digits: &[u8]) -> i32 {
    let padded = digits.iter().copied().chain(core::iter::repeat(b'0')).take(9);
    padded.fold(0, |number, digit| number * 10 + i32::from(digit - b'0'))
}

/// A text in quotes, with the escapes of Go's package `time`: control characters and bytes beyond ASCII are `\x..`.
fn quote(text: &[u8]) -> String {
    use core::fmt::Write as _;
    let mut quoted = String::from("\"");
    for byte in text {
        match byte {
            b'"' | b'\\' => {
                quoted.push('\\');
                quoted.push(char::from(*byte));
            }
            b' '..=0x7f => quoted.push(char::from(*byte)),
            _ => {
                let _ = write!(quoted, "\\x{byte:02x}");
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of `time.Parse` in Go 1.26.
    #[test]
    fn times_are_read_as_by_go() {
        let (seconds, micros) = (TimeLayout::Seconds, TimeLayout::Microseconds);
        for (layout, text, expected) in [
            (seconds, "2026-01-02T03:04:05Z", r#"2026-01-02T03:04:05.000000000Z"#),
            (seconds, "2026-01-02T03:04:05.5Z", r#"2026-01-02T03:04:05.500000000Z"#),
            (seconds, "2026-01-02T03:04:05,123456789012Z", r#"2026-01-02T03:04:05.123456789Z"#),
            (seconds, "2026-01-02T03:04:05+01:00", r#"2026-01-02T02:04:05.000000000Z"#),
            (seconds, "2026-01-02T03:04:05-24:60", r#"2026-01-03T04:04:05.000000000Z"#),
            (seconds, "2026-01-02T3:04:05Z", r#"2026-01-02T03:04:05.000000000Z"#),
            (seconds, "", r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#),
            (
                seconds,
                "yesterday",
                r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#,
            ),
            (
                seconds,
                "2026",
                r#"parsing time "2026" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "-""#,
            ),
            (
                seconds,
                "2026-1-02T03:04:05Z",
                r#"parsing time "2026-1-02T03:04:05Z" as "2006-01-02T15:04:05Z07:00": cannot parse "1-02T03:04:05Z" as "01""#,
            ),
            (seconds, "2026-13-02T03:04:05Z", r#"parsing time "2026-13-02T03:04:05Z": month out of range"#),
            (seconds, "2026-00-02T03:04:05Z", r#"parsing time "2026-00-02T03:04:05Z": month out of range"#),
            (seconds, "2026-02-30T03:04:05Z", r#"parsing time "2026-02-30T03:04:05Z": day out of range"#),
            (seconds, "2026-02-00T03:04:05Z", r#"parsing time "2026-02-00T03:04:05Z": day out of range"#),
            (seconds, "2024-02-29T03:04:05Z", r#"2024-02-29T03:04:05.000000000Z"#),
            (
                seconds,
                "2026-01-02 03:04:05Z",
                r#"parsing time "2026-01-02 03:04:05Z" as "2006-01-02T15:04:05Z07:00": cannot parse " 03:04:05Z" as "T""#,
            ),
            (
                seconds,
                "2026-01-02t03:04:05Z",
                r#"parsing time "2026-01-02t03:04:05Z" as "2006-01-02T15:04:05Z07:00": cannot parse "t03:04:05Z" as "T""#,
            ),
            (
                seconds,
                "2026-01-02",
                r#"parsing time "2026-01-02" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#,
            ),
            (
                seconds,
                "2026-01-02T03:04Z",
                r#"parsing time "2026-01-02T03:04Z" as "2006-01-02T15:04:05Z07:00": cannot parse "Z" as ":""#,
            ),
            (seconds, "2026-01-02T24:04:05Z", r#"parsing time "2026-01-02T24:04:05Z": hour out of range"#),
            (seconds, "2026-01-02T03:60:05Z", r#"parsing time "2026-01-02T03:60:05Z": minute out of range"#),
            (seconds, "2026-01-02T03:04:60Z", r#"parsing time "2026-01-02T03:04:60Z": second out of range"#),
            (
                seconds,
                "2026-01-02T03:04:05",
                r#"parsing time "2026-01-02T03:04:05" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#,
            ),
            (
                seconds,
                "2026-01-02T03:04:05z",
                r#"parsing time "2026-01-02T03:04:05z" as "2006-01-02T15:04:05Z07:00": cannot parse "z" as "Z07:00""#,
            ),
            (
                seconds,
                "2026-01-02T03:04:05.Z",
                r#"parsing time "2026-01-02T03:04:05.Z" as "2006-01-02T15:04:05Z07:00": cannot parse ".Z" as "Z07:00""#,
            ),
            (
                seconds,
                "2026-01-02T03:04:05+0100",
                r#"parsing time "2026-01-02T03:04:05+0100" as "2006-01-02T15:04:05Z07:00": cannot parse "+0100" as "Z07:00""#,
            ),
            (
                seconds,
                "2026-01-02T03:04:05+01",
                r#"parsing time "2026-01-02T03:04:05+01" as "2006-01-02T15:04:05Z07:00": cannot parse "+01" as "Z07:00""#,
            ),
            (
                seconds,
                "2026-01-02T03:04:05+25:00",
                r#"parsing time "2026-01-02T03:04:05+25:00": time zone offset hour out of range"#,
            ),
            (
                seconds,
                "2026-01-02T03:04:05+01:61",
                r#"parsing time "2026-01-02T03:04:05+01:61": time zone offset minute out of range"#,
            ),
            (
                seconds,
                "2026-01-02T03:04:05*01:00",
                r#"parsing time "2026-01-02T03:04:05*01:00" as "2006-01-02T15:04:05Z07:00": cannot parse "*01:00" as "Z07:00""#,
            ),
            (
                seconds,
                "2026-01-02T03:04:05+a1:00",
                r#"parsing time "2026-01-02T03:04:05+a1:00" as "2006-01-02T15:04:05Z07:00": cannot parse "+a1:00" as "Z07:00""#,
            ),
            (
                seconds,
                "2026-01-02T03:04:05Z[UTC]",
                r#"parsing time "2026-01-02T03:04:05Z[UTC]": extra text: "[UTC]""#,
            ),
            (
                seconds,
                "20260102T030405Z",
                r#"parsing time "20260102T030405Z" as "2006-01-02T15:04:05Z07:00": cannot parse "0102T030405Z" as "-""#,
            ),
            (seconds, "2026-01-02T03:04:05Z ", r#"parsing time "2026-01-02T03:04:05Z ": extra text: " ""#),
            (
                seconds,
                "2026-01-02T03:04:05é",
                r#"parsing time "2026-01-02T03:04:05\xc3\xa9" as "2006-01-02T15:04:05Z07:00": cannot parse "\xc3\xa9" as "Z07:00""#,
            ),
            (
                seconds,
                "+2026-01-02T03:04:05Z",
                r#"parsing time "+2026-01-02T03:04:05Z" as "2006-01-02T15:04:05Z07:00": cannot parse "+2026-01-02T03:04:05Z" as "2006""#,
            ),
            (
                seconds,
                "-001-01-02T03:04:05Z",
                r#"parsing time "-001-01-02T03:04:05Z" as "2006-01-02T15:04:05Z07:00": cannot parse "-001-01-02T03:04:05Z" as "2006""#,
            ),
            (
                seconds,
                "20a6-01-02T03:04:05Z",
                r#"parsing time "20a6-01-02T03:04:05Z" as "2006-01-02T15:04:05Z07:00": cannot parse "20a6-01-02T03:04:05Z" as "2006""#,
            ),
            (
                seconds,
                "\"2026\n",
                r#"parsing time "\"2026\x0a" as "2006-01-02T15:04:05Z07:00": cannot parse "\"2026\x0a" as "2006""#,
            ),
            (micros, "2026-01-02T03:04:05.123456Z", r#"2026-01-02T03:04:05.123456000Z"#),
            (micros, "2026-01-02T03:04:05,123456+01:00", r#"2026-01-02T02:04:05.123456000Z"#),
            (
                micros,
                "2026-01-02T03:04:05Z",
                r#"parsing time "2026-01-02T03:04:05Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#,
            ),
            (
                micros,
                "2026-01-02T03:04:05.12345Z",
                r#"parsing time "2026-01-02T03:04:05.12345Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse ".12345Z" as ".000000""#,
            ),
            (
                micros,
                "2026-01-02T03:04:05.1234567Z",
                r#"parsing time "2026-01-02T03:04:05.1234567Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "7Z" as "Z07:00""#,
            ),
            (
                micros,
                "2026-01-02T03:04:05",
                r#"parsing time "2026-01-02T03:04:05" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "" as ".000000""#,
            ),
            (
                micros,
                "yesterday",
                r#"parsing time "yesterday" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "yesterday" as "2006""#,
            ),
            (
                micros,
                "2026-02-30T03:04:05.123456Z",
                r#"parsing time "2026-02-30T03:04:05.123456Z": day out of range"#,
            ),
        ] {
            let found = layout.parse(text).map(|time| format!("{time:.9}"));
            let found = found.unwrap_or_else(|error| error);
            assert_eq!(found, expected, "{layout:?} {text:?}");
        }
    }
}
