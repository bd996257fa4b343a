//! Timestamps and durations.

use std::fmt;

use jiff::tz::{TimeZone, TimeZoneDatabase};

const NANOSECONDS: i64 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
/// The first second of the year 1 and the last of 9999.
const MIN_SECONDS: i64 = -62_135_596_800;
const MAX_SECONDS: i64 = 253_402_300_799;

/// A duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duration {
    /// Its length.
    pub nanoseconds: i64,
}

/// A point in time with the offset of the time zone in which it was written.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds of the second.
    pub nanoseconds: u32,
    /// Seconds east of UTC.
    offset: i32,
}

/// A part of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Getter {
    FullYear,
    Month,
    DayOfYear,
    DayOfMonth,
    Date,
    DayOfWeek,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Units of the long form, with the beginnings that name them.
const LONG_UNITS: [(&[&str], i64); 8] = [
    (&["ns", "nano"], 1),
    (&["us", "µs", "micro"], 1_000),
    (&["ms", "milli"], 1_000_000),
    (&["s", "sec"], NANOSECONDS),
    (&["m", "min"], 60 * NANOSECONDS),
    (&["h", "hr", "hour"], 3_600 * NANOSECONDS),
    (&["d", "day"], SECONDS_PER_DAY * NANOSECONDS),
    (&["w", "wk", "week"], 7 * SECONDS_PER_DAY * NANOSECONDS),
];

impl Duration {
    /// Reads the form of Go: numbers with units, such as `1h30m`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (is_negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Some(Self { nanoseconds: 0 });
        }
        if rest.is_empty() {
            return None;
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (part, behind) = Self::parse_part(rest)?;
            total = total.checked_add(part).filter(|total| *total <= 1 << 63)?;
            rest = behind;
        }
        let nanoseconds =
            if is_negative { i64::try_from(-i128::from(total)).ok()? } else { i64::try_from(total).ok()? };
        Some(Self { nanoseconds })
    }

    /// A number with its unit, in nanoseconds, and the text behind it.
    fn parse_part(text: &str) -> Option<(u64, &str)> {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let whole = digits(text);
        let (integer, mut rest) = text.split_at(whole);
        let mut fraction = "";
        if let Some(behind) = rest.strip_prefix('.') {
            (fraction, rest) = behind.split_at(digits(behind));
        }
        if integer.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = rest.find(|character: char| character == '.' || character.is_ascii_digit());
        let (unit, behind) = rest.split_at(end.unwrap_or(rest.len()));
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let integer: u64 = if integer.is_empty() { 0 } else { integer.parse().ok()? };
        let mut value = integer.checked_mul(*unit).filter(|value| *value <= 1 << 63)?;
        if !fraction.is_empty() {
            let (mut digits, mut scale): (u64, f64) = (0, 1.0);
            for digit in fraction.bytes() {
                let Some(next) = digits.checked_mul(10).and_then(|n| n.checked_add(u64::from(digit - b'0')))
                else {
                    break;
                };
                if next > 1 << 63 {
                    break;
                }
                digits = next;
                scale *= 10.0;
            }
            value = value.checked_add((digits as f64 * (*unit as f64 / scale)) as u64)?;
        }
        Some((value, behind))
    }

    /// Reads the form of Go, or numbers with long units, such as `3 days`.
    pub(crate) fn parse_lenient(text: &str) -> Option<Self> {
        if let Some(duration) = Self::parse(text) {
            return Some(duration);
        }
        let mut total: Option<i64> = None;
        let mut rest = text;
        while let Some(start) = rest.find(|character: char| character.is_ascii_digit()) {
            rest = &rest[start..];
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, behind) = rest.split_at(digits);
            let unit_text = behind.trim_start_matches(['\t', '\n', '\u{0C}', '\r', ' ']);
            let is_letter = |character: char| character.is_ascii_alphabetic() || character == 'µ';
            let length = unit_text.find(|character| !is_letter(character)).unwrap_or(unit_text.len());
            let unit = unit_text[..length].to_lowercase();
            rest = &unit_text[length..];
            if unit.is_empty() {
                continue;
            }
            let number: i64 = number.parse().ok()?;
            for (names, factor) in LONG_UNITS {
                let last = names.last().copied().unwrap_or_default();
                let count =
                    names.iter().filter(|name| **name == unit || (**name == last && unit.starts_with(last)));
                for _ in count {
                    total = Some(total.unwrap_or(0).wrapping_add(number.wrapping_mul(factor)));
                }
            }
        }
        total.map(|nanoseconds| Self { nanoseconds })
    }

    pub(crate) fn add(self, other: Self) -> Option<Self> {
        self.nanoseconds.checked_add(other.nanoseconds).map(|nanoseconds| Self { nanoseconds })
    }

    pub(crate) fn subtract(self, other: Self) -> Option<Self> {
        self.nanoseconds.checked_sub(other.nanoseconds).map(|nanoseconds| Self { nanoseconds })
    }

    pub(crate) fn negate(self) -> Option<Self> {
        self.nanoseconds.checked_neg().map(|nanoseconds| Self { nanoseconds })
    }

    /// The whole duration in a unit, without fractions.
    pub(crate) fn get(self, getter: Getter) -> Option<i64> {
        let unit = match getter {
            Getter::Hours => 3_600 * NANOSECONDS,
            Getter::Minutes => 60 * NANOSECONDS,
            Getter::Seconds => NANOSECONDS,
            Getter::Milliseconds => 1_000_000,
            _ => return None,
        };
        Some(self.nanoseconds / unit)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.nanoseconds / NANOSECONDS, self.nanoseconds % NANOSECONDS);
        write!(f, "{}s", seconds as f64 + rest as f64 / 1e9)
    }
}

impl Timestamp {
    pub(crate) fn from_seconds(seconds: i64) -> Option<Self> {
        Self { seconds, nanoseconds: 0, offset: 0 }.in_range()
    }

    /// The timestamp, unless its year has not four digits.
    pub(crate) fn in_range(self) -> Option<Self> {
        (MIN_SECONDS..=MAX_SECONDS).contains(&self.seconds).then_some(self)
    }

    /// Reads the form of RFC 3339.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (mut timestamp, rest) = Self::parse_local(text)?;
        let offset = if rest == "Z" {
            0
        } else {
            let sign = match rest.as_bytes().first()? {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            let bytes = rest.as_bytes();
            if bytes.len() != 6 || bytes.get(3) != Some(&b':') {
                return None;
            }
            let (hours, minutes) = (number(rest, 1..3)?, number(rest, 4..6)?);
            if hours > 24 || minutes > 60 {
                return None;
            }
            sign * (hours * 3_600 + minutes * 60)
        };
        timestamp.seconds -= offset;
        timestamp.offset = i32::try_from(offset).ok()?;
        Some(timestamp)
    }

    /// Reads RFC 3339, perhaps without a time zone; an empty text is the beginning of 1970, as in Kubernetes.
    pub(crate) fn parse_lenient(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Self::from_seconds(0);
        }
        Self::parse(text).or_else(|| {
            let (timestamp, rest) = Self::parse_local(text)?;
            rest.is_empty().then_some(timestamp)
        })
    }

    /// Reads a date.
    pub(crate) fn parse_date(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
            return None;
        }
        let (year, month, day) = (number(text, 0..4)?, number(text, 5..7)?, number(text, 8..10)?);
        if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
            return None;
        }
        let seconds = days_of(year, month, day) * SECONDS_PER_DAY;
        Some(Self { seconds, nanoseconds: 0, offset: 0 })
    }

    /// Reads a date and a time, and returns the text behind them.
    fn parse_local(text: &str) -> Option<(Self, &str)> {
        let (date, rest) = text.split_at_checked(10)?;
        let mut timestamp = Self::parse_date(date)?;
        // Go takes hours with one digit, too.
        let (hours, rest) = rest.strip_prefix('T')?.split_once(':')?;
        let hours = number(hours, 0..hours.len().clamp(1, 2)).filter(|_| hours.len() <= 2)?;
        let (clock, mut rest) = rest.split_at_checked(5)?;
        if clock.as_bytes()[2] != b':' {
            return None;
        }
        let (minutes, seconds) = (number(clock, 0..2)?, number(clock, 3..5)?);
        if hours > 23 || minutes > 59 || seconds > 59 {
            return None;
        }
        timestamp.seconds += hours * 3_600 + minutes * 60 + seconds;
        if let Some(fraction) = rest.strip_prefix(['.', ',']) {
            let length = fraction.bytes().take_while(u8::is_ascii_digit).count();
            if length == 0 {
                return None;
            }
            let digits = &fraction[..length.min(9)];
            timestamp.nanoseconds = format!("{digits:0<9}").parse().ok()?;
            rest = &fraction[length..];
        }
        Some((timestamp, rest))
    }

    pub(crate) fn instant(&self) -> (i64, u32) {
        (self.seconds, self.nanoseconds)
    }

    pub(crate) fn is_same_instant(&self, other: &Self) -> bool {
        self.instant() == other.instant()
    }

    /// Go's zero time: the beginning of the year 1.
    pub(crate) fn is_zero(&self) -> bool {
        self.instant() == (MIN_SECONDS, 0)
    }

    pub(crate) fn add(&self, duration: Duration) -> Option<Self> {
        let nanoseconds = i64::from(self.nanoseconds) + duration.nanoseconds.rem_euclid(NANOSECONDS);
        let seconds = self.seconds.checked_add(duration.nanoseconds.div_euclid(NANOSECONDS))?;
        let sum = Self {
            seconds: seconds.checked_add(nanoseconds / NANOSECONDS)?,
            nanoseconds: u32::try_from(nanoseconds % NANOSECONDS).ok()?,
            offset: self.offset,
        };
        sum.in_range()
    }

    pub(crate) fn since(&self, other: &Self) -> Option<Duration> {
        let seconds = self.seconds.checked_sub(other.seconds)?.checked_mul(NANOSECONDS)?;
        let nanoseconds = seconds.checked_add(i64::from(self.nanoseconds) - i64::from(other.nanoseconds))?;
        Some(Duration { nanoseconds })
    }

    /// A part of the timestamp in UTC or in a time zone: a name, or an offset such as `+01:00`.
    pub(crate) fn get(&self, getter: Getter, zone: Option<&str>) -> Result<i64, String> {
        let offset = zone.map_or(Ok(0), |zone| self.offset_in(zone))?;
        let local = self.seconds.saturating_add(offset);
        let days = local.div_euclid(SECONDS_PER_DAY);
        let second = local.rem_euclid(SECONDS_PER_DAY);
        let (year, month, day) = date_of(days);
        Ok(match getter {
            Getter::FullYear => year,
            Getter::Month => month - 1,
            Getter::DayOfYear => days - days_of(year, 1, 1),
            Getter::DayOfMonth => day - 1,
            Getter::Date => day,
            Getter::DayOfWeek => (days + 4).rem_euclid(7),
            Getter::Hours => second / 3_600,
            Getter::Minutes => second / 60 % 60,
            Getter::Seconds => second % 60,
            Getter::Milliseconds => i64::from(self.nanoseconds / 1_000_000),
        })
    }

    fn offset_in(&self, zone: &str) -> Result<i64, String> {
        let Some((hours, minutes)) = zone.split_once(':') else {
            return self.offset_in_named(zone);
        };
        let parse = |text: &str| {
            text.parse::<i64>().map_err(|_| format!("strconv.Atoi: parsing \"{text}\": invalid syntax"))
        };
        let (hours, minutes) = (parse(hours)?, parse(minutes)?);
        if !(0..=59).contains(&minutes) {
            return Err(format!("timezone offset minutes out of range [0, 59]: {zone}"));
        }
        let minutes = if zone.starts_with('-') { -minutes } else { minutes };
        let total = hours.checked_mul(60).and_then(|hours| hours.checked_add(minutes));
        total.and_then(|total| total.checked_mul(60)).ok_or_else(|| format!("unknown time zone {zone}"))
    }

    fn offset_in_named(&self, zone: &str) -> Result<i64, String> {
        if matches!(zone, "" | "UTC") {
            return Ok(0);
        }
        let unknown = || format!("unknown time zone {zone}");
        let zone: TimeZone = TimeZoneDatabase::bundled().get(zone).map_err(|_| unknown())?;
        let instant = jiff::Timestamp::from_second(self.seconds).map_err(|_| unknown())?;
        Ok(i64::from(zone.to_offset(instant).seconds()))
    }
}

/// The form of RFC 3339 with as many digits of the second as needed.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = self.seconds + i64::from(self.offset);
        let (year, month, day) = date_of(local.div_euclid(SECONDS_PER_DAY));
        let second = local.rem_euclid(SECONDS_PER_DAY);
        let (hours, minutes, seconds) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}")?;
        if self.nanoseconds > 0 {
            let digits = format!("{:09}", self.nanoseconds);
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        if self.offset == 0 {
            return f.write_str("Z");
        }
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.abs() / 60;
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

fn number(text: &str, range: std::ops::Range<usize>) -> Option<i64> {
    let digits = text.get(range)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970 of a date. Years are counted from March, so that the leap day is the last one.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The date of a day since 1970; the inverse of [`days_of`].
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_forms_of_go() {
        let cases = [
            ("1h30m", Some(5_400 * NANOSECONDS)),
            ("-1.5s", Some(-1_500_000_000)),
            ("1us1µs", Some(2_000)),
            (".5ms", Some(500_000)),
            ("0", Some(0)),
            ("1", None),
            ("1x", None),
            ("", None),
            ("9223372036854775807ns", Some(i64::MAX)),
            ("9223372036854775808ns", None),
            ("-9223372036854775808ns", Some(i64::MIN)),
        ];
        for (text, expected) in cases {
            assert_eq!(Duration::parse(text).map(|duration| duration.nanoseconds), expected, "{text}");
        }
        let days = Duration::parse_lenient("3 days").unwrap();
        assert_eq!(days.nanoseconds, 3 * SECONDS_PER_DAY * NANOSECONDS);
        assert_eq!(Duration { nanoseconds: 1_500_000_000 }.to_string(), "1.5s");
    }

    #[test]
    fn timestamps_are_read_and_written() {
        let cases = [
            ("2009-02-13T23:31:30Z", Some(1_234_567_890), "2009-02-13T23:31:30Z"),
            ("2000-02-29T00:00:00.120+01:30", Some(951_777_000), "2000-02-29T00:00:00.12+01:30"),
            ("0001-01-01T00:00:00Z", Some(MIN_SECONDS), "0001-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59Z", Some(MAX_SECONDS), "9999-12-31T23:59:59Z"),
            ("1999-02-29T00:00:00Z", None, ""),
            ("2000-01-01 00:00:00Z", None, ""),
            ("2000-01-01T24:00:00Z", None, ""),
            ("2000-01-01T00:00:00", None, ""),
            ("2000-01-01T1:00:00Z", Some(946_688_400), "2000-01-01T01:00:00Z"),
        ];
        for (text, seconds, written) in cases {
            let timestamp = Timestamp::parse(text);
            assert_eq!(timestamp.map(|timestamp| timestamp.seconds), seconds, "{text}");
            if let Some(timestamp) = timestamp {
                assert_eq!(timestamp.to_string(), written);
            }
        }
    }

    #[test]
    fn parts_depend_on_the_time_zone() {
        let timestamp = Timestamp::parse("2023-12-25T23:30:15.123Z").unwrap();
        let cases = [
            (Getter::FullYear, None, 2023),
            (Getter::Month, None, 11),
            (Getter::DayOfYear, None, 358),
            (Getter::DayOfWeek, None, 1),
            (Getter::Milliseconds, None, 123),
            (Getter::Date, Some("Europe/Berlin"), 26),
            (Getter::Hours, Some("-02:30"), 21),
            (Getter::Minutes, Some("-02:15"), 15),
            (Getter::Hours, Some("America/New_York"), 18),
        ];
        for (getter, zone, expected) in cases {
            assert_eq!(timestamp.get(getter, zone), Ok(expected), "{getter:?} in {zone:?}");
        }
        assert_eq!(
            timestamp.get(Getter::Date, Some("Mars/Base")).unwrap_err(),
            "unknown time zone Mars/Base"
        );
    }
}
