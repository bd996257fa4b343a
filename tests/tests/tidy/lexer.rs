//! Splits Rust source text into tokens, as far as the rules need it.

/// A token and the line on which it begins, from 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    pub line: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Identifier,
    /// One character, or `::`.
    Punctuation,
    /// The content of a string literal, without quotes and with its escapes as they are written.
    Text,
    /// A number or a character.
    Other,
    /// A comment with its slashes, one token per line comment.
    Comment,
}

/// The tokens of a source file. Text that is not valid Rust gives some tokens, too.
pub fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { source, at: 0, line: 1 };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next() {
        tokens.push(token);
    }
    tokens
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let rest = &self.source[self.at..];
            let first = rest.chars().next()?;
            if first.is_whitespace() {
                self.skip(first.len_utf8());
                continue;
            }
            let line = self.line;
            let (kind, length, inner) = classify(rest, first);
            let start = self.at;
            self.skip(length);
            let text = &self.source[start + inner.start..start + inner.end];
            return Some(Token { kind, text, line });
        }
    }

    fn skip(&mut self, length: usize) {
        let skipped = &self.source[self.at..self.at + length];
        self.line += skipped.bytes().filter(|byte| *byte == b'\n').count();
        self.at += length;
    }
}

/// Kind and length of the token at the start of `rest`, and the range of its text.
fn classify(rest: &str, first: char) -> (Kind, usize, std::ops::Range<usize>) {
    let whole = |kind: Kind, length: usize| (kind, length, 0..length);
    if rest.starts_with("//") {
        return whole(Kind::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return whole(Kind::Comment, block_comment(rest));
    }
    if let Some((prefix, hashes)) = string_prefix(rest) {
        let close = format!("\"{}", "#".repeat(hashes));
        let is_raw = rest[..prefix].contains('r');
        let start = prefix;
        let mut at = start;
        while at < rest.len() {
            if !is_raw && rest[at..].starts_with('\\') {
                at += 1 + rest[at + 1..].chars().next().map_or(0, char::len_utf8);
            } else if rest[at..].starts_with(&close) {
                return (Kind::Text, at + close.len(), start..at);
            } else {
                at += rest[at..].chars().next().map_or(1, char::len_utf8);
            }
        }
        return (Kind::Text, rest.len(), start..rest.len());
    }
    if first == '\'' {
        return whole(Kind::Other, character_or_lifetime(rest));
    }
    let is_word = |c: char| c == '_' || c.is_alphanumeric();
    if first.is_ascii_digit() {
        return whole(Kind::Other, rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
    }
    if is_word(first) {
        let start = if rest.starts_with("r#") { 2 } else { 0 };
        let end = rest[start..].find(|c| !is_word(c)).map_or(rest.len(), |end| start + end);
        return (Kind::Identifier, end, start..end);
    }
    let length = if rest.starts_with("::") { 2 } else { first.len_utf8() };
    whole(Kind::Punctuation, length)
}

/// The length of the prefix up to and including the opening quote, and the number of hashes, if a string begins here.
fn string_prefix(rest: &str) -> Option<(usize, usize)> {
    let letters = rest.bytes().take_while(|byte| matches!(byte, b'b' | b'c' | b'r')).count();
    if letters > 2 {
        return None;
    }
    let is_raw = rest[..letters].contains('r');
    let hashes = if is_raw { rest[letters..].bytes().take_while(|byte| *byte == b'#').count() } else { 0 };
    rest[letters + hashes..].starts_with('"').then_some((letters + hashes + 1, hashes))
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn character_or_lifetime(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            // The escaped character may be a quote.
            let end = rest.char_indices().skip(3).find(|(_, c)| *c == '\'');
            end.map_or(rest.len(), |(at, _)| at + 1)
        }
        Some((at, c)) => match chars.next() {
            Some((close, '\'')) => close + 1,
            _ => at + c.len_utf8(),
        },
        None => rest.len(),
    }
}

/// The tokens without comments and without items that only tests and fuzzers compile.
pub fn program_tokens<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let code: Vec<Token<'a>> = tokens.iter().filter(|token| token.kind != Kind::Comment).cloned().collect();
    let mut kept = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let attribute = attribute_end(&code, at);
        match attribute {
            Some(end) if is_test_attribute(&code[at..end]) => at = item_end(&code, end),
            Some(end) => {
                kept.extend_from_slice(&code[at..end]);
                at = end;
            }
            None => {
                kept.push(code[at].clone());
                at += 1;
            }
        }
    }
    kept
}

/// The index after an outer attribute that begins at `at`.
fn attribute_end(code: &[Token<'_>], at: usize) -> Option<usize> {
    if code.get(at)?.text != "#" || code.get(at + 1)?.text != "[" || code[at].kind != Kind::Punctuation {
        return None;
    }
    let mut depth = 0;
    for (index, token) in code.iter().enumerate().skip(at + 1) {
        match (token.kind, token.text) {
            (Kind::Punctuation, "[") => depth += 1,
            (Kind::Punctuation, "]") => {
                depth -= 1;
                if depth == 0 {
                    return Some(index + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// `#[cfg(test)]` and other conditions with `test` or `fuzzing`, unless negated.
fn is_test_attribute(attribute: &[Token<'_>]) -> bool {
    let has = |text: &str| attribute.iter().any(|token| token.kind == Kind::Identifier && token.text == text);
    attribute.get(2).is_some_and(|token| token.text == "cfg") && has("test") && !has("not")
}

/// The index after the item, field or statement that begins at `at`.
fn item_end(code: &[Token<'_>], mut at: usize) -> usize {
    while let Some(end) = attribute_end(code, at) {
        at = end;
    }
    const ITEMS: [&str; 15] = [
        "pub",
        "fn",
        "impl",
        "mod",
        "use",
        "struct",
        "enum",
        "trait",
        "const",
        "static",
        "type",
        "async",
        "unsafe",
        "extern",
        "macro_rules",
    ];
    let is_item = code.get(at).is_some_and(|token| ITEMS.contains(&token.text));
    let mut keywords = code[at..].iter().take(8).map(|token| token.text);
    let ends_with_semicolon = keywords.any(|text| matches!(text, "use" | "static" | "let" | "type"));
    let mut depth = 0;
    for (index, token) in code.iter().enumerate().skip(at) {
        if token.kind != Kind::Punctuation {
            continue;
        }
        match token.text {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" if depth == 0 => return index,
            "}" | ")" | "]" => {
                depth -= 1;
                if depth == 0 && token.text == "}" && !ends_with_semicolon {
                    return index + 1;
                }
            }
            ";" if depth == 0 => return index + 1,
            "," if depth == 0 && !is_item => return index + 1,
            _ => {}
        }
    }
    code.len()
}

#[test]
fn tokens_of_strings_comments_and_lifetimes_are_told_apart() {
    let source = r##"use a::b; // Who "x"
/* y /* z */ */ let c: &'a str = "d\"// e"; let f = ('\'', 'g', b'h', r#"i"j"#, 1_000u8, r#type);"##;
    let found: Vec<_> =
        tokens(source).into_iter().map(|token| (token.kind, token.text, token.line)).collect();
    let texts = |kind: Kind| -> Vec<&str> {
        found.iter().filter(|(k, _, _)| *k == kind).map(|(_, text, _)| *text).collect()
    };
    assert_eq!(texts(Kind::Text), ["d\\\"// e", "i\"j"]);
    assert_eq!(texts(Kind::Comment), ["// Who \"x\"", "/* y /* z */ */"]);
    assert_eq!(texts(Kind::Other), ["'a", "'\\''", "'g'", "'h'", "1_000u8"]);
    let expected = ["use", "a", "b", "let", "c", "str", "let", "f", "b", "type"];
    assert_eq!(texts(Kind::Identifier), expected);
    assert_eq!(found.last().unwrap().2, 2);
}

#[test]
fn items_of_tests_are_left_out() {
    let source = "
use kept_a;
#[cfg(test)]
use dropped::{a, b};
#[cfg(test)]
#[allow(dead_code)]
pub(crate) fn dropped<A, B>(a: [u8; 2]) -> A { dropped }
struct KeptB { #[cfg(test)] dropped: (A, B), kept_c: u8, #[cfg(test)] dropped: u8 }
#[cfg(any(test, feature = \"fuzzing\"))]
mod dropped;
#[cfg(test)]
const DROPPED: [u8; 2] = [1, 2];
#[cfg(not(test))]
fn kept_d() { #[cfg(test)] dropped(); kept_e() }
#[cfg(test)]
mod tests { fn dropped() {} }
fn kept_f() {}
";
    let all = tokens(source);
    let kept = program_tokens(&all);
    let names: Vec<&str> = kept
        .iter()
        .filter(|token| token.kind == Kind::Identifier)
        .map(|token| token.text)
        .filter(|text| text.to_lowercase().contains("kept") || text.to_lowercase().contains("dropped"))
        .collect();
    assert_eq!(names, ["kept_a", "KeptB", "kept_c", "kept_d", "kept_e", "kept_f"]);
}
