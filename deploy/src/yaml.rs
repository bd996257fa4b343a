//! YAML text as `kubectl -o yaml` and kcp's plugin print it, byte for byte.
//!
//! Generated APIResourceSchemas are kept in repositories, where another layout of equal content would be a change. The
//! layout is that of Go's `yaml.v2`: keys in natural order, lists at the indentation of their key, text wrapped after 80
//! columns, quotes only where YAML 1.1 needs them. Decision 0074 has the reasons.

mod scalar;

use std::cmp::Ordering;

use serde_json::{Map, Number, Value};

use scalar::Style;

/// Column after which text is continued on the next line.
const WIDTH: usize = 80;
/// Indentation of one level.
const STEP: usize = 2;

/// The text of a document, with a line break at its end.
pub(crate) fn to_yaml(value: &Value) -> String {
    let mut writer = Writer::default();
    match value {
        Value::Object(fields) if !fields.is_empty() => writer.mapping(fields, 0),
        Value::Array(items) if !items.is_empty() => writer.sequence(items, 0),
        scalar => writer.scalar(scalar, STEP),
    }
    writer.end_line();
    writer.text
}

/// A float as Go's `strconv.FormatFloat(.., 'g', -1, 64)` prints it.
fn float_text(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => number.to_string(),
    }
}

/// Compares keys like Go's `yaml.v2`: letters by code point, after all other characters; runs of digits by their value.
fn natural_order(left: &str, right: &str) -> Ordering {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let Some(at) = left.iter().zip(&right).position(|(left, right)| left != right) else {
        return left.len().cmp(&right.len());
    };
    let (one, other) = (left[at], right[at]);
    match (one.is_alphabetic(), other.is_alphabetic()) {
        (true, true) => return one.cmp(&other),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // Zeros after other digits count as digits of the same number.
    let before = left[..at].iter().rev().take_while(|digit| digit.is_ascii_digit());
    let continues = (one == '0' || other == '0') && before.into_iter().any(|digit| *digit != '0');
    let (one_value, one_length) = run_of_digits(&left[at..], continues);
    let (other_value, other_length) = run_of_digits(&right[at..], continues);
    one_value.cmp(&other_value).then(one_length.cmp(&other_length)).then(one.cmp(&other))
}

/// Value and length of the digits at the beginning.
fn run_of_digits(text: &[char], continues: bool) -> (i64, usize) {
    let digits = text.iter().map_while(|digit| digit.to_digit(10));
    digits.fold((i64::from(continues), 0), |(value, length), digit| {
        (value.wrapping_mul(10).wrapping_add(i64::from(digit)), length + 1)
    })
}

/// The text so far and the column of its last line, in characters.
#[derive(Default)]
struct Writer {
    text: String,
    column: usize,
}

impl Writer {
    fn mapping(&mut self, fields: &Map<String, Value>, indent: usize) {
        let mut fields: Vec<_> = fields.iter().collect();
        fields.sort_by(|(left, _), (right, _)| natural_order(left, right));
        for (index, (key, value)) in fields.into_iter().enumerate() {
            self.start_entry(index, indent);
            if scalar::is_simple_key(key) {
                self.string(key, Place::Key);
                self.put(':');
                match value {
                    Value::Object(inner) if !inner.is_empty() => self.mapping(inner, indent + STEP),
                    Value::Array(items) if !items.is_empty() => self.sequence(items, indent),
                    scalar => {
                        self.put(' ');
                        self.scalar(scalar, indent + STEP);
                    }
                }
            } else {
                self.put_all("? ");
                self.string(key, Place::Value { indent: indent + STEP });
                self.start_line(indent);
                self.put_all(": ");
                self.entry(value, indent + STEP);
            }
        }
    }

    fn sequence(&mut self, items: &[Value], indent: usize) {
        for (index, item) in items.iter().enumerate() {
            self.start_entry(index, indent);
            self.put_all("- ");
            self.entry(item, indent + STEP);
        }
    }

    /// A value that begins in the line of its indicator.
    fn entry(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Object(fields) if !fields.is_empty() => self.mapping(fields, indent),
            Value::Array(items) if !items.is_empty() => self.sequence(items, indent),
            scalar => self.scalar(scalar, indent),
        }
    }

    /// A scalar, or an empty mapping or list. `indent` is that of further lines.
    fn scalar(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Null => self.put_all("null"),
            Value::Bool(value) => self.put_all(if *value { "true" } else { "false" }),
            Value::Number(number) => self.put_all(&number_text(number)),
            Value::String(text) => self.string(text, Place::Value { indent }),
            Value::Array(_) => self.put_all("[]"),
            Value::Object(_) => self.put_all("{}"),
        }
    }

    fn string(&mut self, text: &str, place: Place) {
        let wrap = match place {
            Place::Key => None,
            Place::Value { indent } => Some(indent),
        };
        match Style::of(text) {
            Style::Plain => self.words(text, wrap, Style::Plain),
            Style::SingleQuoted => {
                self.put('\'');
                self.words(text, wrap, Style::SingleQuoted);
                self.put('\'');
            }
            Style::DoubleQuoted => {
                self.put('"');
                self.words(text, wrap, Style::DoubleQuoted);
                self.put('"');
            }
            Style::Literal => self.literal(text, wrap.unwrap_or_default()),
        }
    }

    /// Characters of a scalar. A single space beyond the width becomes a line break, except at either end.
    fn words(&mut self, text: &str, wrap: Option<usize>, style: Style) {
        let mut characters = text.chars().peekable();
        let mut is_first = true;
        let mut is_after_space = false;
        while let Some(character) = characters.next() {
            let next = characters.peek().copied();
            if character != ' ' {
                self.character(character, style);
                is_after_space = false;
            } else {
                let may_break = !is_after_space && self.column > WIDTH && !is_first && next.is_some();
                let is_break = may_break && (style == Style::DoubleQuoted || next != Some(' '));
                match wrap.filter(|_| is_break) {
                    None => self.put(' '),
                    Some(indent) => {
                        self.start_line(indent);
                        if next == Some(' ') {
                            self.put('\\');
                        }
                    }
                }
                is_after_space = true;
            }
            is_first = false;
        }
    }

    fn character(&mut self, character: char, style: Style) {
        match style {
            Style::Plain | Style::Literal => self.put(character),
            Style::SingleQuoted if character == '\'' => self.put_all("''"),
            Style::SingleQuoted => self.put(character),
            Style::DoubleQuoted => match scalar::escape(character) {
                None => self.put(character),
                Some(escaped) => self.put_all(&escaped),
            },
        }
    }

    /// A block of lines: `|`, with hints for leading spaces and for line breaks at the end.
    fn literal(&mut self, text: &str, indent: usize) {
        self.put('|');
        if text.starts_with([' ', '\n']) {
            self.put_all(&STEP.to_string());
        }
        if !text.ends_with('\n') {
            self.put('-');
        } else if text == "\n" || text.ends_with("\n\n") {
            self.put('+');
        }
        self.break_line();
        for line in text.split_inclusive('\n') {
            let content = line.strip_suffix('\n').unwrap_or(line);
            if !content.is_empty() {
                self.start_line(indent);
                self.put_all(content);
            }
            if line.ends_with('\n') {
                self.break_line();
            }
        }
    }

    /// Begins a line for an entry. The first entry after an indicator, `- ` or `: `, continues its line.
    fn start_entry(&mut self, index: usize, indent: usize) {
        let continues = self.text.ends_with("- ") || self.text.ends_with(": ");
        if index > 0 || !continues {
            self.start_line(indent);
        }
    }

    /// Begins a line, unless the current one is empty.
    fn start_line(&mut self, indent: usize) {
        self.end_line();
        (0..indent).for_each(|_| self.put(' '));
    }

    fn end_line(&mut self) {
        if self.column > 0 {
            self.break_line();
        }
    }

    fn break_line(&mut self) {
        self.text.push('\n');
        self.column = 0;
    }

    fn put(&mut self, character: char) {
        self.text.push(character);
        self.column += 1;
    }

    fn put_all(&mut self, text: &str) {
        text.chars().for_each(|character| self.put(character));
    }
}

/// Position of a string.
#[derive(Clone, Copy)]
enum Place {
    /// Keys have one line, unless they begin with `? `.
    Key,
    /// Further lines of a value have this indentation.
    Value { indent: usize },
}

/// Whole floats are integers, because JSON does not tell them apart.
fn number_text(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return number.to_string() };
    let digits = float.to_string();
    let is_integer = digits.parse::<i64>().is_ok() || digits.parse::<u64>().is_ok();
    if is_integer { digits } else { float_text(float) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn mappings_and_lists_have_the_layout_of_kubectl() {
        let value = json!({
            "b": [{ "y": 1, "x": [[1, 2], []] }, {}, "text"], "a": { "c": {}, "d": null },
            "numbers": [0.5, 1e-7, 1e25, 1_234_567.5, -3, 100_000.5, u64::MAX, 1e10],
        });
        let expected = "a:\n  c: {}\n  d: null\nb:\n- x:\n  - - 1\n    - 2\n  - []\n  \"y\": 1\n- {}\n- text\n\
                        numbers:\n- 0.5\n- 1e-07\n- 1e+25\n- 1.2345675e+06\n- -3\n- 100000.5\n- 18446744073709551615\n- 10000000000\n";
        assert_eq!(to_yaml(&value), expected);
        assert_eq!(to_yaml(&json!([])), "[]\n");
        assert_eq!(to_yaml(&json!("x")), "x\n");
    }

    #[test]
    fn long_text_is_wrapped_at_single_spaces() {
        let words = |count: usize| vec!["word"; count].join(" ");
        let text = format!("{} end", words(16));
        assert_eq!(to_yaml(&json!({ "a": text })), format!("a: {}\n  end\n", words(16)));
        let quoted = format!("x: {} end", words(15));
        assert_eq!(to_yaml(&json!({ "a": quoted })), format!("a: 'x: {}\n  end'\n", words(15)));
        let wide = format!("{}  end", words(16));
        assert_eq!(to_yaml(&json!({ "a": wide })), format!("a: {wide}\n"));
        let escaped = format!("\t{}  end", words(16));
        assert_eq!(to_yaml(&json!({ "a": escaped })), format!("a: \"\\t{}\n  \\ end\"\n", words(16)));
    }

    #[test]
    fn text_of_several_lines_is_a_block() {
        for (text, block) in [
            ("a\nb", "|-\n  a\n  b\n"),
            ("a\n\n  b\n", "|\n  a\n\n    b\n"),
            ("a\n\n", "|+\n  a\n\n"),
            (" a\nb", "|2-\n   a\n  b\n"),
            ("\n", "|2+\n\n"),
        ] {
            assert_eq!(to_yaml(&json!({ "k": text })), format!("k: {block}"), "{text:?}");
        }
        assert_eq!(to_yaml(&json!({ "k": "a\nb " })), "k: \"a\\nb \"\n");
        assert_eq!(to_yaml(&json!({ "a\nb": [{ "c": 1 }] })), "? |-\n  a\n  b\n: - c: 1\n");
        let long = "k".repeat(129);
        assert_eq!(to_yaml(&json!({ &long: {} })), format!("? {long}\n: {{}}\n"));
    }

    #[test]
    fn keys_are_in_natural_order() {
        let mut keys = vec!["b", "a10", "a9", "a", "B", "$ref", "x-a", "xa", "a01", "1", "_"];
        keys.sort_by(|left, right| natural_order(left, right));
        assert_eq!(keys, ["$ref", "_", "1", "B", "a", "a01", "a9", "a10", "b", "x-a", "xa"]);
    }
}
