//! Finds the selectors and the comparisons in PromQL expressions.

/// Keywords of PromQL. Functions are recognized by the bracket after them.
const WORDS: [&str; 34] = [
    "and",
    "or",
    "unless",
    "atan2",
    "bool",
    "offset",
    "inf",
    "nan",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "sum",
    "min",
    "max",
    "avg",
    "group",
    "stddev",
    "stdvar",
    "count",
    "count_values",
    "bottomk",
    "topk",
    "quantile",
    "limitk",
    "limit_ratio",
    "start",
    "end",
    "step",
    "true",
    "false",
    "keep_metric_names",
];
/// Keywords that are followed by label names in brackets.
const LABELS_FOLLOW: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

/// The selectors of series in an expression, with their braces.
pub fn selectors(expr: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), expr);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' | '\'' | '`' => quoted(rest),
            '[' => until_closed(rest, ']'),
            '{' => {
                let length = until_closed(rest, '}');
                found.push(rest[..length].to_owned());
                length
            }
            letter if letter.is_ascii_alphabetic() || "_:".contains(letter) => word(rest, &mut found),
            digit if digit.is_ascii_digit() => length_of(rest, |c| c.is_ascii_alphanumeric() || c == '.'),
            other => other.len_utf8(),
        };
        rest = &rest[length..];
    }
    found
}

/// Replaces each comparison by a subtraction, which has a value whenever both sides have one. The matching of series stays
/// the same.
pub fn differences(expr: &str) -> String {
    let (mut written, mut rest) = (String::with_capacity(expr.len()), expr);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' | '\'' | '`' => quoted(rest),
            '{' => until_closed(rest, '}'),
            _ => first.len_utf8(),
        };
        let comparison = ["==", "!=", ">=", "<=", ">", "<"].into_iter().find(|sign| rest.starts_with(sign));
        let Some(sign) = comparison else {
            written.push_str(&rest[..length]);
            rest = &rest[length..];
            continue;
        };
        written.push('-');
        rest = &rest[sign.len()..];
        let operand = rest.trim_start();
        rest = operand.strip_prefix("bool ").unwrap_or(rest);
    }
    written
}

/// Reads a word, adds it if it is a selector, and returns its length.
fn word(text: &str, found: &mut Vec<String>) -> usize {
    let length = length_of(text, |c| c.is_ascii_alphanumeric() || "_:".contains(c));
    let name = &text[..length];
    let after = &text[length..];
    let blank = after.len() - after.trim_start().len();
    let next = after[blank..].chars().next();
    if LABELS_FOLLOW.contains(&name) && next == Some('(') {
        return length + blank + until_closed(&after[blank..], ')');
    }
    if WORDS.contains(&name) || next == Some('(') {
        return length;
    }
    let braces = if next == Some('{') { blank + until_closed(&after[blank..], '}') } else { 0 };
    found.push(text[..length + braces].to_owned());
    length + braces
}

fn length_of(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_part(c)).unwrap_or(text.len())
}

/// The length of a string, including its quotes.
fn quoted(text: &str) -> usize {
    let quote = text.chars().next();
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            letter if Some(letter) == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length up to and including a bracket outside strings.
fn until_closed(text: &str, bracket: char) -> usize {
    let mut at = 1;
    while let Some(letter) = text[at..].chars().next() {
        match letter {
            '"' | '\'' | '`' => at += quoted(&text[at..]),
            letter if letter == bracket => return at + 1,
            letter => at += letter.len_utf8(),
        }
    }
    text.len()
}

#[test]
fn selectors_are_found_in_all_positions() {
    for (expr, expected) in [
        ("up", &["up"] as &[&str]),
        ("sum by (a, b) (rate(x_total{a=~\"b|}\"}[5m])) > 1e9", &["x_total{a=~\"b|}\"}"]),
        ("histogram_quantile(0.99, sum by (le) (rate(y_bucket[$w])))", &["y_bucket"]),
        ("a / on (instance) group_left () b{c='d'} > bool 2", &["a", "b{c='d'}"]),
        ("time() - max by (x) (m:rate5m {n=\"o\"} offset 1h) or vector(0)", &["m:rate5m {n=\"o\"}"]),
        (
            "{job=\"x\"} unless topk(10, z) and sum without (q) (nan_total)",
            &["{job=\"x\"}", "z", "nan_total"],
        ),
        ("\"no{metric}\"", &[]),
    ] {
        assert_eq!(selectors(expr), expected, "{expr}");
    }
}

#[test]
fn comparisons_become_differences_in_all_positions() {
    for (expr, expected) in [
        ("up{job=~\"x>y\", a!=\"b\"} == 0", "up{job=~\"x>y\", a!=\"b\"} - 0"),
        ("time() - a >= 2 * 3 and b<c", "time() - a - 2 * 3 and b-c"),
        (
            "sum by (i) (a > 1)\n  != on (i) group_left () (b)",
            "sum by (i) (a - 1)\n  - on (i) group_left () (b)",
        ),
        ("a <= bool b unless c > 0", "a -b unless c - 0"),
        ("a or vector(1)", "a or vector(1)"),
    ] {
        assert_eq!(differences(expr), expected, "{expr}");
    }
}
