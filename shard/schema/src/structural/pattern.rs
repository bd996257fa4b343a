//! `pattern`: compiles Go's regular expressions for Rust's engine.

use std::iter::Peekable;
use std::str::Chars;

use regex::{Regex, RegexBuilder};

/// Size limits of a compiled pattern in bytes, tried in order. Both engines run in linear time, so the size bounds the
/// work.
const SIZE_LIMITS: [usize; 3] = [16 << 10, 128 << 10, 1 << 20];

/// Maximum size of all patterns of a schema together.
const TOTAL_SIZE: usize = 32 << 20;

/// A compiled pattern and its source, which error messages quote.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    pub(super) source: Box<str>,
    regex: Regex,
}

/// Limits the total size of the patterns of one schema.
pub(super) struct PatternBudget {
    remaining_bytes: usize,
}

impl Default for PatternBudget {
    fn default() -> Self {
        Self { remaining_bytes: TOTAL_SIZE }
    }
}

impl PatternBudget {
    pub(super) fn compile(&mut self, source: &str) -> Result<Pattern, String> {
        let translated = to_rust(source);
        for limit in SIZE_LIMITS {
            if limit > self.remaining_bytes {
                return Err("the patterns of the schema are too complex together".to_owned());
            }
            let built = RegexBuilder::new(&translated).size_limit(limit).dfa_size_limit(limit).build();
            match built {
                Ok(regex) => {
                    self.remaining_bytes -= limit;
                    return Ok(Pattern { source: source.into(), regex });
                }
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("the pattern is too complex".to_owned())
    }
}

impl Pattern {
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

/// Rewrites syntax that differs between Go's RE2 and Rust: `\d`, `\w`, `\s`, `\b` and their negations match ASCII
/// only, `\Q…\E` quotes, `\z` and `\C` exist, and `[[` or `&&` in a class are plain characters.
fn to_rust(source: &str) -> String {
    let mut output = String::with_capacity(source.len() + 8);
    let mut characters = source.chars().peekable();
    let mut in_class = false;
    let mut class_is_empty = false;
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                class_is_empty = false;
                match characters.next() {
                    Some('Q') if !in_class => quote_literal(&mut characters, &mut output),
                    Some(escaped) => {
                        output.push_str(&escape(escaped, in_class));
                        if matches!(escaped, 'p' | 'P' | 'x') && characters.peek() == Some(&'{') {
                            output.extend(characters.by_ref().take_while(|inner| *inner != '}'));
                            output.push('}');
                        }
                    }
                    None => output.push('\\'),
                }
            }
            '{' if !in_class && !is_repetition(characters.clone()) => output.push_str("\\{"),
            '[' if !in_class => {
                in_class = true;
                class_is_empty = true;
                output.push('[');
                if characters.next_if_eq(&'^').is_some() {
                    output.push('^');
                }
            }
            '[' if characters.peek() == Some(&':') => {
                class_is_empty = false;
                output.push('[');
                // A named class ends at its own `:]`.
                while let Some(inner) = characters.next() {
                    output.push(inner);
                    if inner == ':' && characters.next_if_eq(&']').is_some() {
                        output.push(']');
                        break;
                    }
                }
            }
            ']' if in_class && class_is_empty => {
                class_is_empty = false;
                output.push_str("\\]");
            }
            ']' if in_class => {
                in_class = false;
                output.push(']');
            }
            '[' | '&' | '~' | '#' if in_class => {
                class_is_empty = false;
                output.push('\\');
                output.push(character);
            }
            other => {
                class_is_empty = false;
                output.push(other);
            }
        }
    }
    output
}

/// Whether the text after a brace makes it a repetition. Otherwise the brace is a literal in Go.
fn is_repetition(characters: Peekable<Chars<'_>>) -> bool {
    let inner: String = characters.take_while(|character| *character != '}').take(10).collect();
    let (min, max) = inner.split_once(',').unwrap_or((&inner, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !min.is_empty() && is_number(min) && is_number(max)
}

fn quote_literal(characters: &mut Peekable<Chars<'_>>, output: &mut String) {
    let mut literal = String::new();
    while let Some(character) = characters.next() {
        if character == '\\' && characters.next_if_eq(&'E').is_some() {
            break;
        }
        literal.push(character);
    }
    output.push_str(&regex::escape(&literal));
}

fn escape(escaped: char, in_class: bool) -> String {
    match (escaped, in_class) {
        ('d', true) => "0-9".to_owned(),
        ('w', true) => "0-9A-Za-z_".to_owned(),
        ('s', true) => "\\t\\n\\x0C\\r ".to_owned(),
        ('D', true) => "[^0-9]".to_owned(),
        ('W', true) => "[^0-9A-Za-z_]".to_owned(),
        ('S', true) => "[^\\t\\n\\x0C\\r ]".to_owned(),
        ('d', false) => "[0-9]".to_owned(),
        ('w', false) => "[0-9A-Za-z_]".to_owned(),
        ('s', false) => "[\\t\\n\\x0C\\r ]".to_owned(),
        ('D', false) => "[^0-9]".to_owned(),
        ('W', false) => "[^0-9A-Za-z_]".to_owned(),
        ('S', false) => "[^\\t\\n\\x0C\\r ]".to_owned(),
        // Only ASCII characters make a word boundary. Strings are always UTF-8, so the engine accepts the flag.
        ('b', false) => "(?-u:\\b)".to_owned(),
        ('B', false) => "\\B".to_owned(),
        ('C', false) => "(?s:.)".to_owned(),
        (other, _) if other.is_ascii_alphanumeric() => format!("\\{other}"),
        (other, _) if other.is_ascii() => format!("\\{other}"),
        (other, _) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        let table: &[(&str, &str, bool)] = &[
            (r"^\d+$", "123", true),
            (r"^\d+$", "١٢٣", false),
            (r"^\w+$", "a_Z9", true),
            (r"^\w+$", "é", false),
            (r"^[\w.-]+$", "a.b-c", true),
            (r"^[^\d]+$", "abc", true),
            (r"^[\D]+$", "abc", true),
            (r"^[\S]+$", "a b", false),
            (r"^\S+$", "a b", false),
            (r"\bword\b", "a word here", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^[[:alpha:]]+$", "abc", true),
            (r"^[a[]+$", "a[", true),
            (r"^[]a]+$", "]a", true),
            (r"^[a&&b]+$", "&", true),
            (r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", "bad_Name", false),
            (r"a#b", "a#b", true),
            (r"^/$", "/", true),
            (r"^\/x$", "/x", true),
            (r"^(?i)ABC$", "abc", true),
            (r"^a{,2}$", "a{,2}", true),
            (r"^{x}$", "{x}", true),
            (r"^a{2,}b{1,2}c{3}$", "aabccc", true),
            (r"^\p{Greek}\x{41}$", "αA", true),
            (r"^\pL$", "é", true),
        ];
        let mut budget = PatternBudget::default();
        for (pattern, text, matches) in table {
            let compiled = budget.compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(compiled.is_match(text), *matches, "{pattern} on {text}");
        }
    }

    #[test]
    fn broken_or_huge_patterns_are_refused() {
        for pattern in ["(", "[a", "*a", "(?=a)", r"(?:(?:a{1000}){1000}){1000}"] {
            assert!(PatternBudget::default().compile(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn many_patterns_have_a_common_budget() {
        let mut budget = PatternBudget::default();
        let compiled = (0..10_000).take_while(|index| budget.compile(&format!("^a{index}$")).is_ok()).count();
        assert_eq!(compiled, TOTAL_SIZE / SIZE_LIMITS[0]);
    }
}
