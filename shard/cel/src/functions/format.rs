//! `format()`: texts with placeholders. The same parser checks placeholders before an expression is evaluated.

use crate::failure::Failure;
use crate::library::quoted_for_go;
use crate::limits::{MAX_FORMAT_PRECISION, MAX_TEXT_SIZE};
use crate::value::{List, Map, Outcome, Value, to_string};
use crate::work::Work;

const DEFAULT_PRECISION: usize = 6;

/// The kind of a placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clause {
    String,
    Decimal,
    Fixed(Option<usize>),
    Scientific(Option<usize>),
    Binary,
    Hexadecimal { is_upper: bool },
    Octal,
}

impl Clause {
    /// The error for an argument of another type.
    pub(crate) fn fault(self, type_name: &str) -> String {
        let rule = match self {
            Self::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed(_) => "fixed-point clause can only be used on doubles",
            Self::Scientific(_) => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hexadecimal { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        };
        format!("{rule}, was given {type_name}")
    }
}

/// A wrong placeholder, or an argument that does not fit it.
pub(crate) enum FormatFault<F> {
    /// The text is wrong.
    Text(String),
    /// The callback has failed.
    Argument(F),
}

/// Calls `argument` with each placeholder and the place of its argument, and returns the text with what it has appended.
pub(crate) fn parse_format<F>(
    text: &str,
    size: usize,
    mut argument: impl FnMut(usize, Clause, &mut String) -> Result<(), F>,
) -> Result<String, FormatFault<F>> {
    let mut output = String::with_capacity(text.len());
    let mut rest = text;
    let mut index = 0;
    while let Some(start) = rest.find('%') {
        output.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        if let Some(behind) = rest.strip_prefix('%') {
            output.push('%');
            rest = behind;
            continue;
        }
        if rest.is_empty() {
            return Err(FormatFault::Text("unexpected end of string".to_owned()));
        }
        if index >= size {
            return Err(FormatFault::Text(format!("index {index} out of range")));
        }
        let (clause, behind) = parse_clause(rest)
            .map_err(|fault| FormatFault::Text(format!("could not parse formatting clause: {fault}")))?;
        argument(index, clause, &mut output).map_err(FormatFault::Argument)?;
        if output.len() > MAX_TEXT_SIZE {
            return Err(FormatFault::Text("the result is too large".to_owned()));
        }
        rest = behind;
        index += 1;
    }
    output.push_str(rest);
    Ok(output)
}

fn parse_clause(text: &str) -> Result<(Clause, &str), String> {
    let (precision, rest) = match text.strip_prefix('.') {
        Some(rest) => {
            let precision_fault = |fault: String| format!("error while parsing precision: {fault}");
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if digits == rest.len() {
                return Err(precision_fault("could not find end of precision specifier".to_owned()));
            }
            let precision = rest[..digits].parse::<usize>().map_err(|_| {
                let fault = if digits == 0 { "invalid syntax" } else { "value out of range" };
                precision_fault(format!(
                    "error while converting precision to integer: strconv.Atoi: parsing {:?}: {fault}",
                    &rest[..digits]
                ))
            })?;
            if precision > MAX_FORMAT_PRECISION {
                return Err(precision_fault(format!(
                    "precision {precision} exceeds maximum allowed precision {MAX_FORMAT_PRECISION}"
                )));
            }
            (Some(precision), &rest[digits..])
        }
        None => (None, text),
    };
    let clause = match rest.as_bytes().first() {
        Some(b's') => Clause::String,
        Some(b'd') => Clause::Decimal,
        Some(b'f') => Clause::Fixed(precision),
        Some(b'e') => Clause::Scientific(precision),
        Some(b'b') => Clause::Binary,
        Some(b'x') => Clause::Hexadecimal { is_upper: false },
        Some(b'X') => Clause::Hexadecimal { is_upper: true },
        Some(b'o') => Clause::Octal,
        other => {
            let shown = other.map_or(' ', |byte| char::from(*byte));
            return Err(format!("unrecognized formatting clause \"{shown}\""));
        }
    };
    Ok((clause, &rest[1..]))
}

/// A text that ends at the limits.
struct Output<'o> {
    text: &'o mut String,
    work: &'o Work,
}

impl Output<'_> {
    fn push(&mut self, part: &str) -> Result<(), Failure> {
        if self.text.len() + part.len() > MAX_TEXT_SIZE {
            return Err(Failure::too_large());
        }
        self.work.produce(part.len())?;
        self.text.push_str(part);
        Ok(())
    }
}

/// Fills in the placeholders of a text.
pub(crate) fn format<'a>(text: &str, arguments: &List<'a>, work: &Work) -> Outcome<'a> {
    let formatted = parse_format(text, arguments.len(), |index, clause, output| {
        let argument = arguments.get(index, work);
        let argument = argument.unwrap_or_else(|| Err(Failure::error("index out of range")))?;
        let mut output = Output { text: output, work };
        format_one(clause, &argument, &mut output).map_err(|fault| match fault {
            Failure::Error(message) => Failure::error(format!("error during formatting: {message}")),
            abort @ Failure::Abort(_) => abort,
        })
    });
    formatted.map(Value::text).map_err(|fault| match fault {
        FormatFault::Text(message) => Failure::error(message),
        FormatFault::Argument(failure) => failure,
    })
}

fn format_one(clause: Clause, value: &Value<'_>, output: &mut Output<'_>) -> Result<(), Failure> {
    output.work.items(1)?;
    let text = match (clause, value) {
        (Clause::String, value) => {
            if write_value(value, false, output)? {
                return Ok(());
            }
            None
        }
        (Clause::Decimal, Value::Int(value)) => Some(value.to_string()),
        (Clause::Decimal, Value::Uint(value)) => Some(value.to_string()),
        (Clause::Fixed(precision), value) => number_of(value).map(|number| fixed(number, precision)),
        (Clause::Scientific(precision), value) => {
            number_of(value).map(|number| scientific(number, precision))
        }
        (Clause::Binary, Value::Bool(value)) => Some(u8::from(*value).to_string()),
        (Clause::Binary, value) => signed(value, |number| format!("{number:b}")),
        (Clause::Octal, value) => signed(value, |number| format!("{number:o}")),
        (Clause::Hexadecimal { is_upper }, value) => match value {
            Value::String(text) => return write_hexadecimal(text.as_str().as_bytes(), is_upper, output),
            Value::Bytes(bytes) => return write_hexadecimal(bytes, is_upper, output),
            value => {
                let text = signed(value, |number| format!("{number:x}"));
                text.map(|text| if is_upper { text.to_uppercase() } else { text })
            }
        },
        _ => None,
    };
    match text {
        Some(text) => output.push(&text),
        None => Err(Failure::error(clause.fault(value.type_name()))),
    }
}

fn write_hexadecimal(bytes: &[u8], is_upper: bool, output: &mut Output<'_>) -> Result<(), Failure> {
    let digits: &[u8; 16] = if is_upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    let digit = |nibble: u8| char::from(digits[usize::from(nibble & 15)]);
    for part in bytes.chunks(1024) {
        let text: String = part.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect();
        output.push(&text)?;
    }
    Ok(())
}

/// An integer with its sign before its digits.
fn signed(value: &Value<'_>, digits: impl Fn(u64) -> String) -> Option<String> {
    match value {
        Value::Int(value) => {
            let sign = if *value < 0 { "-" } else { "" };
            Some(format!("{sign}{}", digits(value.unsigned_abs())))
        }
        Value::Uint(value) => Some(digits(*value)),
        _ => None,
    }
}

fn number_of(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(value) => Some(*value),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn not_finite(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        return Some("NaN");
    }
    value.is_infinite().then_some(if value > 0.0 { "∞" } else { "-∞" })
}

/// A number as the English locale writes it: with commas between thousands.
fn fixed(value: f64, precision: Option<usize>) -> String {
    if let Some(text) = not_finite(value) {
        return text.to_owned();
    }
    let magnitude = value.abs();
    let text = format!("{magnitude:.*}", precision.unwrap_or(DEFAULT_PRECISION));
    let (integer, fraction) = text.split_once('.').map_or((&*text, None), |(i, f)| (i, Some(f)));
    let mut output = String::new();
    if value < 0.0 {
        output.push('-');
    }
    for (index, digit) in integer.chars().enumerate() {
        if index > 0 && (integer.len() - index) % 3 == 0 {
            output.push(',');
        }
        output.push(digit);
    }
    if let Some(fraction) = fraction {
        output.push('.');
        output.push_str(fraction);
    }
    output
}

/// A number with an exponent, as the English locale writes it. The precision is the width of the text in cel-go.
fn scientific(value: f64, width: Option<usize>) -> String {
    let text = match not_finite(value) {
        Some(text) => text.to_owned(),
        None => {
            let text = format!("{value:.DEFAULT_PRECISION$e}");
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |rest| ("⁻", rest));
            let superscript: String = format!("{exponent:0>2}").chars().map(superscript).collect();
            format!("{digits}×10{sign}{superscript}")
        }
    };
    let width = width.unwrap_or(DEFAULT_PRECISION);
    format!("{text:>width$}")
}

fn superscript(digit: char) -> char {
    match digit {
        '0' => '⁰',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        _ => '⁹',
    }
}

/// Writes a value; within lists and maps, strings are quoted. `false` if it has no text.
fn write_value(value: &Value<'_>, is_nested: bool, output: &mut Output<'_>) -> Result<bool, Failure> {
    output.work.items(1)?;
    match value {
        Value::Null => output.push("null")?,
        Value::List(list) => write_list(list, output)?,
        Value::Map(map) => write_map(map, output)?,
        Value::Type(name) => output.push(name)?,
        Value::Double(value) if is_nested => match not_finite(*value) {
            Some("NaN") => output.push(&quoted_for_go("NaN"))?,
            Some(_) => output.push(&quoted_for_go(if *value > 0.0 { "+Inf" } else { "-Inf" }))?,
            None => output.push(&format!("{value:.DEFAULT_PRECISION$}"))?,
        },
        Value::Bytes(_) | Value::String(_) | Value::Timestamp(_) | Value::Duration(_) => {
            // The text is made before it is written.
            output.work.produce(value.text_size())?;
            let converted = to_string(value).map_err(|fault| match fault {
                Failure::Error(message) => {
                    let message = quoted_for_go(&message);
                    Failure::error(format!("could not convert argument {message} to string"))
                }
                abort @ Failure::Abort(_) => abort,
            })?;
            let text = converted.as_str().unwrap_or_default();
            match value {
                _ if !is_nested => output.push(text)?,
                Value::Bytes(_) => output.push(&format!("b{}", quoted_for_go(text)))?,
                Value::Timestamp(_) => output.push(&format!("timestamp({})", quoted_for_go(text)))?,
                Value::Duration(_) => output.push(&format!("duration({})", quoted_for_go(text)))?,
                _ => output.push(&quoted_for_go(text))?,
            }
        }
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) => {
            output.push(to_string(value)?.as_str().unwrap_or_default())?;
        }
        other if is_nested => {
            return Err(Failure::error(format!("no formatting function for {}", other.type_name())));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn write_list(list: &List<'_>, output: &mut Output<'_>) -> Result<(), Failure> {
    let work = output.work;
    output.push("[")?;
    for (index, item) in list.iter(work).enumerate() {
        if index > 0 {
            output.push(", ")?;
        }
        write_value(&item?, true, output)?;
    }
    output.push("]")
}

fn write_map(map: &Map<'_>, output: &mut Output<'_>) -> Result<(), Failure> {
    let work = output.work;
    let nested = |value: &Value<'_>| {
        let mut text = String::new();
        write_value(value, true, &mut Output { text: &mut text, work })?;
        Ok(text)
    };
    work.items(map.len())?;
    let mut pairs = Vec::with_capacity(map.len());
    for key in map.keys() {
        if !matches!(key, Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_)) {
            let message = format!("no formatting function for map key of type {}", key.type_name());
            return Err(Failure::error(message));
        }
        let value = map.find(&key, work)?;
        let value = value.ok_or_else(|| {
            Failure::error(format!("could not find key: {}", quoted_for_go(&key.to_string())))
        })?;
        pairs.push((nested(&key)?, nested(&value)?));
    }
    pairs.sort();
    output.push("{")?;
    for (index, (key, value)) in pairs.iter().enumerate() {
        if index > 0 {
            output.push(", ")?;
        }
        output.push(key)?;
        output.push(":")?;
        output.push(value)?;
    }
    output.push("}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_the_english_locale() {
        let cases = [
            (fixed(1_234_567.891, None), "1,234,567.891000"),
            (fixed(-0.0, None), "0.000000"),
            (fixed(2.5, Some(0)), "2"),
            (fixed(123_456_789_012_345_678.0, None), "123,456,789,012,345,680.000000"),
            (fixed(f64::NEG_INFINITY, None), "-∞"),
            (scientific(1_234_567.891, None), "1.234568×10⁰⁶"),
            (scientific(1e-300, None), "1.000000×10⁻³⁰⁰"),
            (scientific(1.5, Some(20)), "       1.500000×10⁰⁰"),
            (scientific(f64::NAN, None), "   NaN"),
        ];
        for (text, expected) in cases {
            assert_eq!(text, expected);
        }
    }
}
