//! Regular expressions with the syntax of Go (RE2), run by an engine of linear time.
//!
//! `\d`, `\w`, `\s` and `\b` are those of ASCII, `\Q…\E` quotes, and syntax that Go does not have is refused.

use std::iter::Peekable;
use std::str::CharIndices;

use regex::{Regex, RegexBuilder};

use super::repetitions::{MAX_REPETITIONS, Repetitions};
use crate::limits::PATTERN_SIZES;

/// Deepest nesting of groups, as in Go.
const MAX_DEPTH: usize = 1_000;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    #[cfg(test)]
    fn new(source: &str) -> Result<Self, String> {
        let mut budget = usize::MAX;
        Self::within(source, &mut budget)
    }

    /// Compiles a pattern within a budget in bytes, from which the limit of the pattern's size is taken: time and memory are
    /// in proportion to it, also of a pattern that is too large.
    ///
    /// # Errors
    /// In the words of Go, if the syntax is wrong, or if the pattern is larger than the largest limit or the budget.
    pub(crate) fn within(source: &str, budget: &mut usize) -> Result<Self, String> {
        let translated = rust_pattern(source)?;
        for limit in PATTERN_SIZES {
            if limit > *budget {
                break;
            }
            let built = RegexBuilder::new(&translated)
                .size_limit(limit)
                .dfa_size_limit(limit)
                .nest_limit(MAX_DEPTH as u32)
                .build();
            match built {
                Ok(regex) => {
                    *budget -= limit;
                    return Ok(Self(regex));
                }
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(other) => {
                    return Err(format!("error parsing regexp: {}", last_line(&other.to_string())));
                }
            }
        }
        *budget = budget.saturating_sub(PATTERN_SIZES.iter().sum());
        Err("error parsing regexp: expression too large".to_owned())
    }

    /// Whether the syntax is right. The size is not checked: the smallest limit ends the compilation, whose cost is then
    /// that of parsing.
    pub(crate) fn is_valid(source: &str) -> bool {
        rust_pattern(source).is_ok_and(|translated| {
            let built = RegexBuilder::new(&translated).size_limit(1).nest_limit(MAX_DEPTH as u32).build();
            matches!(built, Ok(_) | Err(regex::Error::CompiledTooBig(_)))
        })
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    pub(crate) fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.0.find(text).map(|found| found.as_str())
    }

    pub(crate) fn find_all<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        self.0.find_iter(text).map(|found| found.as_str())
    }
}

/// Translates a pattern with the syntax of Go into that of the crate `regex`.
///
/// # Errors
/// In the words of Go, if the syntax is wrong.
pub fn rust_pattern(source: &str) -> Result<String, String> {
    Translator::new(source).translate()
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or(text).trim()
}

struct Translator<'r> {
    source: &'r str,
    characters: Peekable<CharIndices<'r>>,
    output: String,
    depth: usize,
    repetitions: Repetitions,
}

impl<'r> Translator<'r> {
    fn new(source: &'r str) -> Self {
        let output = String::with_capacity(source.len() + 8);
        Self {
            source,
            characters: source.char_indices().peekable(),
            output,
            depth: 0,
            repetitions: Repetitions::default(),
        }
    }

    fn translate(mut self) -> Result<String, String> {
        // Whether a repetition may follow, and where the one before begins.
        let mut has_operand = false;
        let mut repetition: Option<usize> = None;
        while let Some((offset, character)) = self.characters.next() {
            let mut is_repetition = false;
            match character {
                '\\' => self.escape(offset)?,
                '[' => self.class(offset)?,
                '(' => {
                    self.group(offset)?;
                    has_operand = false;
                    repetition = None;
                    continue;
                }
                ')' => {
                    if self.depth == 0 {
                        return Err(fault(&format!("unexpected ): `{}`", self.source)));
                    }
                    self.depth -= 1;
                    self.output.push(')');
                    self.repetitions.close_group();
                    has_operand = true;
                    repetition = None;
                    continue;
                }
                '|' => {
                    self.output.push('|');
                    self.repetitions.operand();
                    has_operand = false;
                    repetition = None;
                    continue;
                }
                '*' | '+' | '?' => {
                    self.output.push(character);
                    is_repetition = true;
                }
                '{' => match self.repetition(offset)? {
                    Some(text) => {
                        self.output.push_str(&text);
                        is_repetition = true;
                    }
                    None => self.output.push_str("\\{"),
                },
                '}' => self.output.push_str("\\}"),
                other => self.literal(other),
            }
            if !is_repetition {
                self.repetitions.operand();
                has_operand = true;
                repetition = None;
                continue;
            }
            if !has_operand {
                let operator = self.operator_at(offset);
                return Err(fault(&format!("missing argument to repetition operator: `{operator}`")));
            }
            if let Some(start) = repetition {
                let operators = &self.source[start..offset + self.operator_at(offset).len()];
                return Err(fault(&format!("invalid nested repetition operator: `{operators}`")));
            }
            if self.characters.next_if(|(_, next)| *next == '?').is_some() {
                self.output.push('?');
            }
            repetition = Some(offset);
        }
        if self.depth > 0 {
            return Err(fault(&format!("missing closing ): `{}`", self.source)));
        }
        Ok(self.output)
    }

    /// The text of a repetition operator.
    fn operator_at(&self, offset: usize) -> &'r str {
        let rest = &self.source[offset..];
        let length = if rest.starts_with('{') { rest.find('}').map_or(1, |end| end + 1) } else { 1 };
        &rest[..length]
    }

    fn literal(&mut self, character: char) {
        // Characters that Rust's syntax reserves in other modes are literals in Go.
        if matches!(character, '#' | '&' | '~' | '-' | ']') {
            self.output.push('\\');
        }
        self.output.push(character);
    }

    fn group(&mut self, offset: usize) -> Result<(), String> {
        self.depth += 1;
        self.repetitions.open_group();
        if self.depth > MAX_DEPTH {
            return Err(fault(&format!("expression nests too deeply: `{}`", self.source)));
        }
        let rest = &self.source[offset..];
        let Some(head) = rest.strip_prefix("(?") else {
            self.output.push('(');
            return Ok(());
        };
        let is_named = head.starts_with("P<")
            || (head.starts_with('<') && !head.starts_with("<=") && !head.starts_with("<!"));
        let end = if is_named { head.find('>') } else { head.find([':', ')']) };
        let Some(end) = end else {
            let name = if is_named { "invalid named capture" } else { "missing closing )" };
            return Err(fault(&format!("{name}: `{rest}`")));
        };
        let inner = &head[..=end];
        if is_named {
            let name = inner.trim_start_matches('P').trim_matches(['<', '>']);
            let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if name.is_empty() || !name.bytes().all(is_word) {
                return Err(fault(&format!("invalid named capture: `(?{inner}`")));
            }
            // Matches have no names here, so groups need none: Rust refuses names that begin with a digit.
            self.output.push('(');
        } else {
            let flags = &inner[..end];
            let is_valid = flags.bytes().all(|byte| b"imsU-".contains(&byte))
                && flags.matches('-').count() <= 1
                && !flags.ends_with('-')
                && !(flags.is_empty() && inner.ends_with(')'));
            if !is_valid {
                let shown: String = format!("(?{inner}").chars().take(3).collect();
                return Err(fault(&format!("invalid or unsupported Perl syntax: `{shown}`")));
            }
            self.output.push_str("(?");
            self.output.push_str(inner);
            if inner.ends_with(')') {
                self.depth -= 1;
                self.repetitions.close_group();
            }
        }
        for _ in 0..inner.chars().count() + 1 {
            self.characters.next();
        }
        Ok(())
    }

    /// A repetition in braces, or `None` if the brace is a literal.
    fn repetition(&mut self, offset: usize) -> Result<Option<String>, String> {
        let rest = &self.source[offset..];
        let Some(end) = rest.find('}') else {
            return Ok(None);
        };
        let inner = &rest[1..end];
        let (min, max) = match inner.split_once(',') {
            Some((min, max)) => (min, Some(max)),
            None => (inner, None),
        };
        let is_number = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_digit())
                && (text.len() == 1 || !text.starts_with('0'))
        };
        if !is_number(min) || !max.is_none_or(|max| max.is_empty() || is_number(max)) {
            return Ok(None);
        }
        let value = |text: &str| text.parse::<u32>().unwrap_or(u32::MAX);
        let limit = max.filter(|max| !max.is_empty()).map_or(value(min), value);
        let is_wrong = value(min) > MAX_REPETITIONS || limit > MAX_REPETITIONS || value(min) > limit;
        if is_wrong || self.repetitions.repeat(limit) {
            return Err(fault(&format!("invalid repeat count: `{}`", &rest[..=end])));
        }
        for _ in 0..end {
            self.characters.next();
        }
        Ok(Some(rest[..=end].to_owned()))
    }

    fn escape(&mut self, offset: usize) -> Result<(), String> {
        let Some((_, character)) = self.characters.next() else {
            return Err(fault("trailing backslash at end of expression: ``"));
        };
        match character {
            'Q' => {
                let rest = &self.source[offset + 2..];
                let length = rest.find("\\E").unwrap_or(rest.len());
                self.output.push_str("(?:");
                self.output.push_str(&regex::escape(&rest[..length]));
                self.output.push(')');
                for _ in 0..rest[..length].chars().count() + 2 {
                    self.characters.next();
                }
            }
            // Go ignores an end without a beginning.
            'E' => {}
            'A' | 'z' => {
                self.output.push('\\');
                self.output.push(character);
            }
            'b' => self.output.push_str("(?-u:\\b)"),
            'B' => self.output.push_str("(?:\\b{start-half}\\b{end-half}|[0-9A-Za-z_]{0}(?-u:\\B))"),
            'C' => self.output.push_str("(?s:.)"),
            'd' | 'D' | 'w' | 'W' | 's' | 'S' => {
                let (is_negated, set) = ascii_set(character);
                self.output.push_str(if is_negated { "[^" } else { "[" });
                self.output.push_str(set);
                self.output.push(']');
            }
            _ => {
                let escaped = self.character_escape(offset, character)?;
                self.output.push_str(&escaped);
            }
        }
        Ok(())
    }

    /// An escape sequence that is one character or a class of Unicode, in Rust's syntax.
    fn character_escape(&mut self, offset: usize, character: char) -> Result<String, String> {
        let invalid =
            |end: usize| Err(fault(&format!("invalid escape sequence: `{}`", &self.source[offset..end])));
        let end = offset + 1 + character.len_utf8();
        match character {
            'a' | 'f' | 't' | 'n' | 'r' | 'v' => Ok(format!("\\{character}")),
            'p' | 'P' => self.unicode_class(offset, character),
            'x' => self.hexadecimal(offset),
            '0'..='7' => {
                let is_octal = |next: char| ('0'..='7').contains(&next);
                let follows = self.characters.peek().is_some_and(|(_, next)| is_octal(*next));
                if character != '0' && !follows {
                    return invalid(end);
                }
                let mut value = character.to_digit(8).unwrap_or(0);
                for _ in 0..2 {
                    let Some((_, digit)) = self.characters.next_if(|(_, next)| is_octal(*next)) else {
                        break;
                    };
                    value = value * 8 + digit.to_digit(8).unwrap_or(0);
                }
                Ok(format!("\\x{{{value:x}}}"))
            }
            other if other.is_ascii_punctuation() => Ok(format!("\\{other}")),
            other if other.is_ascii() && !other.is_ascii_alphanumeric() => {
                Ok(format!("\\x{{{:x}}}", u32::from(other)))
            }
            _ => invalid(end),
        }
    }

    fn hexadecimal(&mut self, offset: usize) -> Result<String, String> {
        let rest = &self.source[offset + 2..];
        let (digits, length) = match rest.strip_prefix('{') {
            Some(inner) => match inner.find('}') {
                Some(end) => (&inner[..end], end + 2),
                None => ("", 0),
            },
            None => (rest.get(..2).unwrap_or(""), 2),
        };
        let value = Some(digits)
            .filter(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .filter(|value| char::from_u32(*value).is_some());
        let Some(value) = value else {
            let shown: String = self.source[offset..].chars().take(2 + length.min(2)).collect();
            return Err(fault(&format!("invalid escape sequence: `{shown}`")));
        };
        for _ in 0..length {
            self.characters.next();
        }
        Ok(format!("\\x{{{value:x}}}"))
    }

    fn unicode_class(&mut self, offset: usize, character: char) -> Result<String, String> {
        let rest = &self.source[offset + 2..];
        let length = match rest.strip_prefix('{') {
            Some(inner) => inner.find('}').map(|end| end + 2),
            None => rest.chars().next().map(char::len_utf8),
        };
        let Some(length) = length else {
            return Err(fault(&format!("invalid character class range: `{}`", &self.source[offset..])));
        };
        let (text, _) = rest.split_at(length);
        let name = text.trim_start_matches('{').trim_end_matches('}').trim_start_matches('^');
        // Rust knows more names, such as `Alphabetic` and `gc=Lu`.
        if !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_') || name.is_empty() {
            return Err(fault(&format!(
                "invalid character class range: `{}`",
                &self.source[offset..offset + 2 + length]
            )));
        }
        for _ in 0..text.chars().count() {
            self.characters.next();
        }
        let is_negated = text.contains('^') != (character == 'P');
        let name = if name == "Any" { "Any" } else { name };
        Ok(format!("\\{}{{{name}}}", if is_negated { 'P' } else { 'p' }))
    }

    /// A class in brackets. Go has neither nested classes nor set operations.
    fn class(&mut self, offset: usize) -> Result<(), String> {
        self.output.push('[');
        if self.characters.next_if(|(_, next)| *next == '^').is_some() {
            self.output.push('^');
        }
        let mut is_first = true;
        // The low end of a range that may follow.
        let mut low: Option<(usize, char)> = None;
        loop {
            let Some((at, character)) = self.characters.next() else {
                return Err(fault(&format!("missing closing ]: `{}`", &self.source[offset..])));
            };
            let rest = &self.source[at..];
            match character {
                ']' if !is_first => break,
                '[' if rest.starts_with("[:") && rest[2..].contains(":]") => {
                    let length = rest[2..].find(":]").map_or(0, |end| end + 4);
                    let name = &rest[..length];
                    if !is_named_class(name) {
                        return Err(fault(&format!("invalid character class range: `{name}`")));
                    }
                    self.output.push_str(name);
                    for _ in 1..length {
                        self.characters.next();
                    }
                    low = None;
                }
                '-' if low.is_some() && !rest[1..].starts_with(']') => {
                    self.output.push('-');
                    let high = self.class_character(rest)?;
                    let start = low.take().unwrap_or((at, high));
                    if start.1 > high {
                        let end = self.characters.peek().map_or(self.source.len(), |(end, _)| *end);
                        let range = &self.source[start.0..end];
                        return Err(fault(&format!("invalid character class range: `{range}`")));
                    }
                }
                '\\' => match self.characters.peek().map(|(_, next)| *next) {
                    Some(set @ ('d' | 'D' | 'w' | 'W' | 's' | 'S')) => {
                        self.characters.next();
                        let (is_negated, members) = ascii_set(set);
                        let text = if is_negated { format!("[^{members}]") } else { members.to_owned() };
                        self.output.push_str(&text);
                        low = None;
                    }
                    Some(class @ ('p' | 'P')) => {
                        self.characters.next();
                        let text = self.unicode_class(at, class)?;
                        self.output.push_str(&text);
                        low = None;
                    }
                    _ => low = Some((at, self.escaped_class_character(at)?)),
                },
                other => {
                    self.push_class_character(other);
                    low = Some((at, other));
                }
            }
            is_first = false;
        }
        self.output.push(']');
        Ok(())
    }

    fn class_character(&mut self, context: &str) -> Result<char, String> {
        match self.characters.next() {
            Some((at, '\\')) => self.escaped_class_character(at),
            Some((_, character)) => {
                self.push_class_character(character);
                Ok(character)
            }
            None => Err(fault(&format!("missing closing ]: `{context}`"))),
        }
    }

    fn escaped_class_character(&mut self, at: usize) -> Result<char, String> {
        let Some((_, character)) = self.characters.next() else {
            return Err(fault("trailing backslash at end of expression: ``"));
        };
        let text = self.character_escape(at, character)?;
        let value = match text.strip_prefix("\\x{").and_then(|text| text.strip_suffix('}')) {
            Some(digits) => {
                u32::from_str_radix(digits, 16).ok().and_then(char::from_u32).unwrap_or(character)
            }
            None => match character {
                'a' => '\u{07}',
                'f' => '\u{0C}',
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                'v' => '\u{0B}',
                other => other,
            },
        };
        self.output.push_str(&text);
        Ok(value)
    }

    fn push_class_character(&mut self, character: char) {
        if matches!(character, '[' | ']' | '&' | '~' | '-' | '^' | '#') {
            self.output.push('\\');
        }
        self.output.push(character);
    }
}

fn fault(message: &str) -> String {
    format!("error parsing regexp: {message}")
}

fn ascii_set(character: char) -> (bool, &'static str) {
    let set = match character.to_ascii_lowercase() {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        _ => "\\t\\n\\x0C\\r ",
    };
    (character.is_ascii_uppercase(), set)
}

fn is_named_class(name: &str) -> bool {
    let name = name.trim_start_matches("[:").trim_start_matches('^').trim_end_matches(":]");
    matches!(
        name,
        "alnum"
            | "alpha"
            | "ascii"
            | "blank"
            | "cntrl"
            | "digit"
            | "graph"
            | "lower"
            | "print"
            | "punct"
            | "space"
            | "upper"
            | "word"
            | "xdigit"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        let table: &[(&str, &str, bool)] = &[
            (r"^\d+$", "123", true),
            (r"^\d+$", "١٢٣", false),
            (r"^[\w.-]+$", "a.b-c", true),
            (r"^[^\d]+$", "abc", true),
            (r"^[\D]+$", "abc", true),
            (r"^\S+$", "a b", false),
            (r"\bword\b", "a word here", true),
            (r"a\Bb", "ab", true),
            (r"a\B", "a", false),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^[[:alpha:]]+$", "abc", true),
            (r"^[a[]+$", "a[", true),
            (r"^[]a]+$", "]a", true),
            (r"^[a&&b]+$", "&", true),
            (r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", "bad_Name", false),
            (r"a#b", "a#b", true),
            (r"^\/x$", "/x", true),
            (r"^(?i)ABC$", "abc", true),
            (r"^a{,2}$", "a{,2}", true),
            (r"^{x}$", "{x}", true),
            (r"^a{2,}b{1,2}c{3}$", "aabccc", true),
            (r"^\p{Greek}\x{41}\101$", "αAA", true),
            (r"^\pL$", "é", true),
            (r"^(?P<x>a)(?:b)$", "ab", true),
            (r"^[+--]$", ",", true),
            (r"^[a-]$", "-", true),
            (r"^[a-z-9]+$", "-9", true),
        ];
        for (pattern, text, matches) in table {
            let compiled = Pattern::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(compiled.is_match(text), *matches, "{pattern} on {text}");
        }
    }

    #[test]
    fn broken_patterns_are_refused_in_the_words_of_go() {
        let table = [
            ("(", "missing closing ): `(`"),
            ("a)", "unexpected ): `a)`"),
            ("[a", "missing closing ]: `[a`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("(b|(a{100}){10}){2,}", "invalid repeat count: `{2,}`"),
            (r"\y", r"invalid escape sequence: `\y`"),
            (r"\8", r"invalid escape sequence: `\8`"),
            ("a\\", "trailing backslash at end of expression: ``"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
        ];
        for (pattern, message) in table {
            let error = Pattern::new(pattern).unwrap_err();
            assert_eq!(error, format!("error parsing regexp: {message}"), "{pattern}");
        }
        assert!(Pattern::is_valid("(?:a{10}){100}b{1000}") && !Pattern::is_valid("("));
    }

    #[test]
    fn small_and_refused_patterns_use_up_a_budget() {
        let whole = PATTERN_SIZES.iter().sum::<usize>();
        for (pattern, cost) in [(r"^\d+$", PATTERN_SIZES[0]), (r"^\pL{300}$", whole)] {
            let mut budget = 10 * whole;
            let attempts = std::iter::from_fn(|| {
                let before = budget;
                let _ = Pattern::within(pattern, &mut budget);
                (before >= PATTERN_SIZES[0]).then(|| before - budget)
            });
            let charged: Vec<usize> = attempts.take_while(|charged| *charged == cost).collect();
            assert_eq!(charged.len(), 10 * whole / cost, "{pattern}");
            assert!(Pattern::within(r"a", &mut budget).is_err(), "{pattern}");
        }
    }
}
