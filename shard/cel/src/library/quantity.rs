//! `quantity()`: amounts with suffixes, such as `1.5Gi`.

use std::cmp::Ordering;
use std::sync::Arc;

/// Longest number that an operation produces, in digits. Kubernetes has no limit: `1e999999999` occupies it for minutes.
const MAX_DIGITS: usize = 10_000;

const WRONG_FORM: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";
const TOO_LARGE: &str = "quantity is too large";

/// An amount. As in Kubernetes, only some have an integer value: those that were written with few digits and no point.
#[derive(Clone, Debug)]
pub struct Quantity(Amount);

#[derive(Clone, Debug)]
enum Amount {
    /// `value` times ten to the power of `scale`.
    Small {
        value: i64,
        scale: i32,
    },
    Large(Arc<Decimal>),
}

/// A decimal number: digits, the most significant first, times ten to the power of the exponent.
#[derive(Clone, Debug)]
struct Decimal {
    is_negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

/// A quantity in its parts.
struct Parts<'q> {
    is_negative: bool,
    integer: &'q str,
    fraction: &'q str,
    suffix: &'q str,
}

#[derive(Clone, Copy, PartialEq)]
enum Suffix {
    Decimal(i32),
    Binary(u32),
}

impl Quantity {
    /// Reads a quantity.
    ///
    /// # Errors
    /// In the words of Kubernetes, if the text is no quantity.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err(WRONG_FORM);
        }
        let parts = split(text)?;
        let suffix = suffix(parts.suffix)?;
        if let Some(amount) = small(&parts, suffix) {
            return Ok(Self(amount));
        }
        let digits = format!("{}{}", parts.integer, parts.fraction);
        let mut decimal = Decimal {
            is_negative: parts.is_negative,
            digits: digits.bytes().map(|digit| digit - b'0').collect(),
            exponent: -(parts.fraction.len() as i64),
        };
        match suffix {
            Suffix::Decimal(exponent) => decimal.exponent += i64::from(exponent),
            Suffix::Binary(exponent) => decimal.multiply(1 << exponent),
        }
        decimal.round_up_to_nano();
        decimal.trim();
        if decimal.digits.len() as i64 + decimal.exponent.abs() > MAX_DIGITS as i64 {
            return Err(TOO_LARGE);
        }
        if matches!(suffix, Suffix::Binary(_)) {
            decimal.cap();
        }
        Ok(Self(Amount::Large(Arc::new(decimal))))
    }

    /// The text that Kubernetes writes for a quantity: `2k` for `2000`, `1Mi` for `1024Ki`, `500m` for `0.5`.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn canonical(text: &str) -> Result<String, &'static str> {
        let quantity = Self::parse(text)?;
        let form = split(text)?.suffix;
        let decimal = quantity.decimal();
        if matches!(suffix(form)?, Suffix::Binary(_))
            && let Some(binary) = decimal.binary_text()
        {
            return Ok(binary);
        }
        // `E` alone is a suffix; before a number it begins an exponent.
        let has_exponent = form.len() > 1 && form.starts_with(['e', 'E']) && !form.ends_with('i');
        Ok(decimal.decimal_text(has_exponent))
    }

    pub(crate) fn from_int(value: i64) -> Self {
        Self(Amount::Small { value, scale: 0 })
    }

    /// The value as an integer, if it has one.
    pub(crate) fn as_integer(&self) -> Option<i64> {
        match &self.0 {
            Amount::Small { value, scale: 0 } => Some(*value),
            Amount::Small { value, scale } => {
                let scale = u32::try_from(*scale).ok()?;
                if *value == 0 { Some(0) } else { value.checked_mul(10_i64.checked_pow(scale)?) }
            }
            Amount::Large(_) => None,
        }
    }

    /// The nearest floating-point number.
    pub fn as_double(&self) -> f64 {
        let power = |exponent: i64| format!("1e{exponent}").parse().unwrap_or(f64::INFINITY);
        match &self.0 {
            Amount::Small { value, scale: 0 } => *value as f64,
            Amount::Small { value, scale } => *value as f64 * power(i64::from(*scale)),
            Amount::Large(decimal) => {
                // Kubernetes stores such numbers in units of a billionth.
                let units: f64 = format!("{}e9", decimal.text()).parse().unwrap_or(f64::INFINITY);
                units * 1e-9
            }
        }
    }

    /// 1, 0 or -1.
    pub fn sign(&self) -> i64 {
        match &self.0 {
            Amount::Small { value, .. } => value.signum(),
            Amount::Large(decimal) if decimal.digits.is_empty() => 0,
            Amount::Large(decimal) => {
                if decimal.is_negative {
                    -1
                } else {
                    1
                }
            }
        }
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Amount::Small { value: a, scale: s }, Amount::Small { value: b, scale: t }) if s == t => {
                a.cmp(b)
            }
            _ => self.decimal().compare(&other.decimal()),
        }
    }

    /// The sum.
    pub(crate) fn add(&self, other: &Self) -> Result<Self, &'static str> {
        if let (Amount::Small { value: a, scale: s }, Amount::Small { value: b, scale: t }) =
            (&self.0, &other.0)
            && let Some((value, scale)) = add_small((*a, *s), (*b, *t))
        {
            return Ok(Self(Amount::Small { value, scale }));
        }
        let sum = self.decimal().add(&other.decimal()).ok_or(TOO_LARGE)?;
        Ok(Self(Amount::Large(Arc::new(sum))))
    }

    /// The difference.
    pub(crate) fn subtract(&self, other: &Self) -> Result<Self, &'static str> {
        if let Amount::Small { value, scale } = &other.0
            && let Some(negated) = value.checked_neg()
        {
            return self.add(&Self(Amount::Small { value: negated, scale: *scale }));
        }
        let mut negated = other.decimal();
        negated.is_negative = !negated.is_negative;
        self.add(&Self(Amount::Large(Arc::new(negated))))
    }

    fn decimal(&self) -> Decimal {
        match &self.0 {
            Amount::Small { value, scale } => {
                let digits = value.unsigned_abs().to_string().bytes().map(|digit| digit - b'0').collect();
                let mut decimal = Decimal { is_negative: *value < 0, digits, exponent: i64::from(*scale) };
                decimal.trim();
                decimal
            }
            Amount::Large(decimal) => (**decimal).clone(),
        }
    }
}

fn add_small(left: (i64, i32), right: (i64, i32)) -> Option<(i64, i32)> {
    if right.0 == 0 {
        return Some(left);
    }
    if left.0 == 0 {
        return Some(right);
    }
    let (high, low) = if left.1 >= right.1 { (left, right) } else { (right, left) };
    let shift = u32::try_from(high.1.checked_sub(low.1)?).ok()?;
    let scaled = high.0.checked_mul(10_i64.checked_pow(shift)?)?;
    Some((scaled.checked_add(low.0)?, low.1))
}

fn split(text: &str) -> Result<Parts<'_>, &'static str> {
    let is_negative = text.starts_with('-');
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let rest = rest.trim_start_matches('0');
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (integer, rest) = rest.split_at(digits(rest));
    let integer = if integer.is_empty() { "0" } else { integer };
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let letters = suffix.bytes().take_while(|byte| b"eEinumkKMGTP".contains(byte)).count();
    let exponent = &suffix[letters..];
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(WRONG_FORM);
    }
    Ok(Parts { is_negative, integer, fraction, suffix })
}

fn suffix(text: &str) -> Result<Suffix, &'static str> {
    Ok(match text {
        "n" => Suffix::Decimal(-9),
        "u" => Suffix::Decimal(-6),
        "m" => Suffix::Decimal(-3),
        "" => Suffix::Decimal(0),
        "k" => Suffix::Decimal(3),
        "M" => Suffix::Decimal(6),
        "G" => Suffix::Decimal(9),
        "T" => Suffix::Decimal(12),
        "P" => Suffix::Decimal(15),
        "E" => Suffix::Decimal(18),
        "Ki" => Suffix::Binary(10),
        "Mi" => Suffix::Binary(20),
        "Gi" => Suffix::Binary(30),
        "Ti" => Suffix::Binary(40),
        "Pi" => Suffix::Binary(50),
        "Ei" => Suffix::Binary(60),
        _ => {
            let exponent = text.strip_prefix(['e', 'E']).and_then(|exponent| exponent.parse::<i64>().ok());
            let exponent = exponent.ok_or(WRONG_SUFFIX)?;
            Suffix::Decimal(i32::try_from(exponent).map_err(|_| TOO_LARGE)?)
        }
    })
}

/// The form of numbers with up to 18 digits.
fn small(parts: &Parts<'_>, suffix: Suffix) -> Option<Amount> {
    let length = i32::try_from(parts.integer.len() + parts.fraction.len()).ok()?;
    let (scale, mantissa, precision) = match suffix {
        Suffix::Decimal(exponent) => (exponent, 1, 18 - length),
        Suffix::Binary(exponent) if parts.fraction.is_empty() => {
            (0, 1_i64 << exponent, 15 - length - i32::try_from(exponent).ok()? * 3 / 10 - 1)
        }
        Suffix::Binary(_) => return None,
    };
    let scale = scale.checked_sub(i32::try_from(parts.fraction.len()).ok()?)?;
    if precision < 0 || scale < -9 {
        return None;
    }
    let digits: i64 = format!("{}{}", parts.integer, parts.fraction).parse().ok()?;
    let value = digits.checked_mul(mantissa)?;
    Some(Amount::Small { value: if parts.is_negative { -value } else { value }, scale })
}

impl Decimal {
    /// Removes zeros at both ends; zero has no digits.
    fn trim(&mut self) {
        while self.digits.last() == Some(&0) {
            self.digits.pop();
            self.exponent += 1;
        }
        let zeros = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..zeros);
        if self.digits.is_empty() {
            self.exponent = 0;
            self.is_negative = false;
        }
    }

    fn multiply(&mut self, factor: u64) {
        let mut carry: u128 = 0;
        for digit in self.digits.iter_mut().rev() {
            let product = u128::from(*digit) * u128::from(factor) + carry;
            *digit = (product % 10) as u8;
            carry = product / 10;
        }
        while carry > 0 {
            self.digits.insert(0, (carry % 10) as u8);
            carry /= 10;
        }
    }

    /// Rounds away from zero to billionths.
    fn round_up_to_nano(&mut self) {
        self.trim();
        let excess = -9 - self.exponent;
        if excess <= 0 {
            return;
        }
        let remaining = self.digits.len().saturating_sub(usize::try_from(excess).unwrap_or(usize::MAX));
        let is_inexact = self.digits.iter().skip(remaining).any(|digit| *digit != 0);
        self.digits.truncate(remaining);
        self.exponent = -9;
        if is_inexact {
            self.increment();
        }
    }

    fn increment(&mut self) {
        for digit in self.digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                return;
            }
            *digit = 0;
        }
        self.digits.insert(0, 1);
    }

    /// The largest number with a binary suffix is that of 64 bits with a sign.
    fn cap(&mut self) {
        let digits = i64::MAX.to_string().bytes().map(|digit| digit - b'0').collect();
        let max = Self { is_negative: self.is_negative, digits, exponent: 0 };
        if self.compare_magnitude(&max).is_gt() {
            *self = max;
        }
    }

    fn text(&self) -> String {
        let digits: String = self.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        let sign = if self.is_negative { "-" } else { "" };
        // The exponent is added by the caller, so zeros are written out.
        if self.exponent >= 0 {
            let zeros = "0".repeat(usize::try_from(self.exponent).unwrap_or(0));
            return format!("{sign}{}{zeros}", if digits.is_empty() { "0" } else { &digits });
        }
        let decimals = usize::try_from(-self.exponent).unwrap_or(0);
        let padded = format!("{digits:0>width$}", width = decimals + 1);
        let (integer, fraction) = padded.split_at(padded.len() - decimals);
        format!("{sign}{integer}.{fraction}")
    }

    /// The number with an exponent that is a multiple of three, as a suffix where there is one.
    fn decimal_text(&self, has_exponent: bool) -> String {
        if self.digits.is_empty() {
            return "0".to_owned();
        }
        let highest = if has_exponent { i64::MAX } else { 18 };
        let exponent = (self.exponent.div_euclid(3) * 3).min(highest);
        let suffix = match (exponent, has_exponent) {
            (0, _) => String::new(),
            (exponent, true) => format!("e{exponent}"),
            (-9, _) => "n".to_owned(),
            (-6, _) => "u".to_owned(),
            (-3, _) => "m".to_owned(),
            (exponent, _) => {
                let index = usize::try_from(exponent / 3 - 1).unwrap_or(0);
                ["k", "M", "G", "T", "P", "E"].get(index).copied().unwrap_or_default().to_owned()
            }
        };
        let sign = if self.is_negative { "-" } else { "" };
        let digits: String = self.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        let zeros = usize::try_from(self.exponent - exponent).unwrap_or(0);
        format!("{sign}{digits}{}{suffix}", "0".repeat(zeros))
    }

    /// The number with a binary suffix; `None` for fractions and for numbers below 1024.
    fn binary_text(&self) -> Option<String> {
        if self.exponent < 0 {
            return None;
        }
        let mut value: u128 = 0;
        for digit in self.digits.iter().copied().chain((0..self.exponent).map(|_| 0)) {
            value = value.checked_mul(10)?.checked_add(u128::from(digit))?;
        }
        if value < 1024 {
            return None;
        }
        let mut suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].into_iter();
        let mut suffix = suffixes.next()?;
        while value.is_multiple_of(1024)
            && let Some(next) = suffixes.next()
        {
            (value, suffix) = (value / 1024, next);
        }
        Some(format!("{}{value}{suffix}", if self.is_negative { "-" } else { "" }))
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self.is_negative, other.is_negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.compare_magnitude(other),
            (true, true) => other.compare_magnitude(self),
        }
    }

    fn compare_magnitude(&self, other: &Self) -> Ordering {
        if self.digits.is_empty() || other.digits.is_empty() {
            return self.digits.len().cmp(&other.digits.len());
        }
        let order = |decimal: &Self| decimal.digits.len() as i64 + decimal.exponent;
        order(self).cmp(&order(other)).then_with(|| {
            let length = self.digits.len().max(other.digits.len());
            let padded = |decimal: &Self, index: usize| decimal.digits.get(index).copied().unwrap_or(0);
            let differences = (0..length).map(|index| padded(self, index).cmp(&padded(other, index)));
            differences.fold(Ordering::Equal, Ordering::then)
        })
    }

    fn add(&self, other: &Self) -> Option<Self> {
        let exponent = self.exponent.min(other.exponent);
        let left = self.aligned(exponent)?;
        let right = other.aligned(exponent)?;
        let mut sum = if self.is_negative == other.is_negative {
            Self { is_negative: self.is_negative, digits: add_digits(&left, &right), exponent }
        } else if self.compare_magnitude(other).is_ge() {
            Self { is_negative: self.is_negative, digits: subtract_digits(&left, &right), exponent }
        } else {
            Self { is_negative: other.is_negative, digits: subtract_digits(&right, &left), exponent }
        };
        sum.trim();
        Some(sum)
    }

    /// Digits for a smaller exponent, the least significant first.
    fn aligned(&self, exponent: i64) -> Option<Vec<u8>> {
        let zeros = usize::try_from(self.exponent - exponent).ok()?;
        if zeros + self.digits.len() > MAX_DIGITS {
            return None;
        }
        let mut digits = vec![0; zeros];
        digits.extend(self.digits.iter().rev());
        Some(digits)
    }
}

fn add_digits(left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut sum = Vec::with_capacity(left.len().max(right.len()) + 1);
    let mut carry = 0;
    for index in 0..left.len().max(right.len()) {
        let digit = |digits: &[u8]| digits.get(index).copied().unwrap_or(0);
        let total = digit(left) + digit(right) + carry;
        sum.push(total % 10);
        carry = total / 10;
    }
    sum.push(carry);
    sum.reverse();
    sum
}

/// The difference of a larger and a smaller number.
fn subtract_digits(left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut difference = Vec::with_capacity(left.len());
    let mut borrow = 0;
    for (index, digit) in left.iter().enumerate() {
        let subtrahend = right.get(index).copied().unwrap_or(0) + borrow;
        borrow = u8::from(*digit < subtrahend);
        difference.push(digit + 10 * borrow - subtrahend);
    }
    difference.reverse();
    difference
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    #[test]
    fn quantities_have_one_canonical_text() {
        for (text, expected) in [
            ("2", "2"),
            ("2000", "2k"),
            ("007", "7"),
            ("+1", "1"),
            ("0", "0"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("1500m", "1500m"),
            ("1500k", "1500k"),
            ("1000k", "1M"),
            ("-2000", "-2k"),
            ("1e3", "1e3"),
            ("12e2", "1200"),
            ("1E", "1E"),
            ("1024Ki", "1Mi"),
            ("1000Ki", "1000Ki"),
            ("512Ki", "512Ki"),
            ("0.5Gi", "512Mi"),
            ("1Ki", "1Ki"),
            ("0.25Ki", "256"),
            ("0.0001", "100u"),
        ] {
            assert_eq!(Quantity::canonical(text).as_deref(), Ok(expected), "{text}");
        }
        assert!(Quantity::canonical("x").is_err());
    }

    #[test]
    fn quantities_are_compared_by_value() {
        let cases = [
            ("1", "1000m", Ordering::Equal),
            ("1Ki", "1024", Ordering::Equal),
            ("50Mi", "50M", Ordering::Greater),
            ("1.5Gi", "1610612736", Ordering::Equal),
            ("-1", "1", Ordering::Less),
            ("0.1n", "1n", Ordering::Equal),
            ("1e3", "1k", Ordering::Equal),
            ("1E", "1e18", Ordering::Equal),
            ("100Ei", "9223372036854775807", Ordering::Equal),
            ("99999999999999999999", "99999999999999999998", Ordering::Greater),
            ("0", "-0", Ordering::Equal),
        ];
        for (left, right, expected) in cases {
            assert_eq!(quantity(left).compare(&quantity(right)), expected, "{left} {right}");
        }
    }

    #[test]
    fn quantities_are_added() {
        let cases = [("1", "1m", "1001m"), ("1Gi", "1", "1073741825"), ("99999999999999999999", "1", "1e20")];
        for (left, right, sum) in cases {
            let added = quantity(left).add(&quantity(right)).unwrap();
            assert!(added.compare(&quantity(sum)).is_eq(), "{left} + {right}");
            assert!(added.subtract(&quantity(right)).unwrap().compare(&quantity(left)).is_eq());
        }
        assert_eq!(quantity("50k").as_integer(), Some(50_000));
        assert_eq!(quantity("1.5").as_integer(), None);
        assert_eq!(quantity("-3").sign(), -1);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "x", "1x", "1Kib", "1e", "1 Gi", "1ee5", "--1"] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
        assert!(Quantity::parse(&format!("{}e9999999", "9".repeat(30))).is_err());
    }
}
