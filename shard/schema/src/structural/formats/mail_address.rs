//! Mail addresses (RFC 5322) as Go reads them: with a name, comments, quoted texts and groups of one address.

use std::net::IpAddr;

use base64::Engine as _;

/// Whether a text is one mail address.
pub(super) fn is_mail_address(text: &str) -> bool {
    let mut parser = Parser { rest: text };
    let count = parser.mailbox_or_group(Groups::Allowed);
    count == Some(1) && parser.skip_comments().is_some() && parser.rest.is_empty()
}

/// Whether a group of addresses may stand at a place. Groups do not contain groups.
#[derive(Clone, Copy, PartialEq)]
enum Groups {
    Allowed,
    Refused,
}

/// Whether the dots of an atom may stand anywhere, as in names.
#[derive(Clone, Copy, PartialEq)]
enum Dots {
    Anywhere,
    Between,
}

struct Parser<'t> {
    rest: &'t str,
}

impl<'t> Parser<'t> {
    /// The number of addresses of a mailbox or group.
    fn mailbox_or_group(&mut self, groups: Groups) -> Option<usize> {
        self.skip_space();
        if self.address().is_some() {
            self.skip_space();
            if self.rest.starts_with('(') {
                self.name_in_comment()?;
            }
            return Some(1);
        }
        if !self.rest.starts_with('<') {
            self.phrase()?;
        }
        self.skip_space();
        if groups == Groups::Allowed && self.consume(':') {
            return self.group();
        }
        self.expect('<')?;
        self.address()?;
        self.expect('>')?;
        Some(1)
    }

    /// The addresses of a group, up to its semicolon.
    fn group(&mut self) -> Option<usize> {
        self.skip_space();
        let mut count = 0;
        while !self.consume(';') {
            if count > 0 {
                self.expect(',')?;
            }
            self.skip_space();
            count += self.mailbox_or_group(Groups::Refused)?;
            self.skip_comments()?;
        }
        self.skip_comments()?;
        Some(count)
    }

    /// `local@domain`. Consumes nothing if there is none.
    fn address(&mut self) -> Option<()> {
        let start = self.rest;
        let found = self.local_part_and_domain();
        if found.is_none() {
            self.rest = start;
        }
        found
    }

    fn local_part_and_domain(&mut self) -> Option<()> {
        self.skip_space();
        if self.rest.starts_with('"') {
            let is_empty = self.quoted_text()?;
            if is_empty {
                return None;
            }
        } else {
            self.atom(Dots::Between)?;
        }
        self.expect('@')?;
        self.skip_space();
        match self.rest.strip_prefix('[') {
            Some(literal) => {
                let (address, rest) = literal.split_once(']')?;
                self.rest = rest;
                address.parse::<IpAddr>().ok().map(drop)
            }
            None => self.atom(Dots::Between).map(drop),
        }
    }

    /// The words of a name.
    fn phrase(&mut self) -> Option<()> {
        let mut has_words = false;
        loop {
            if has_words {
                self.skip_comments()?;
            }
            self.skip_space();
            if self.rest.is_empty() {
                // As in Go, a name without words is found to lack its address later.
                return Some(());
            }
            let word = if self.rest.starts_with('"') {
                self.quoted_text().map(drop)
            } else {
                self.atom(Dots::Anywhere).filter(|word| !has_unsupported_charset(word)).map(drop)
            };
            if word.is_none() {
                return has_words.then_some(());
            }
            has_words = true;
        }
    }

    fn name_in_comment(&mut self) -> Option<()> {
        let start = self.rest;
        self.consume('(');
        self.skip_comment()?;
        let comment = &start[1..start.len() - self.rest.len() - 1];
        let words = comment.split([' ', '\t']).filter(|word| !word.is_empty());
        words.into_iter().all(|word| !has_unsupported_charset(&word.replace('\\', ""))).then_some(())
    }

    /// A text in quotes. Returns whether it is empty.
    fn quoted_text(&mut self) -> Option<bool> {
        let mut is_escaped = false;
        let mut is_empty = true;
        for (index, character) in self.rest.char_indices().skip(1) {
            match character {
                _ if !is_visible(character) && !matches!(character, ' ' | '\t') => return None,
                _ if is_escaped => {
                    is_escaped = false;
                    is_empty = false;
                }
                '"' => {
                    self.rest = &self.rest[index + 1..];
                    return Some(is_empty);
                }
                '\\' => is_escaped = true,
                _ => is_empty = false,
            }
        }
        None
    }

    fn atom(&mut self, dots: Dots) -> Option<&'t str> {
        let is_special = |character: char| "()<>[]:;@\\,\"".contains(character) || !is_visible(character);
        let end = self.rest.find(is_special).unwrap_or(self.rest.len());
        let (atom, rest) = self.rest.split_at(end);
        if atom.is_empty() {
            return None;
        }
        self.rest = rest;
        let is_well_dotted = !atom.starts_with('.') && !atom.ends_with('.') && !atom.contains("..");
        (dots == Dots::Anywhere || is_well_dotted).then_some(atom)
    }

    fn skip_comments(&mut self) -> Option<()> {
        self.skip_space();
        while self.consume('(') {
            self.skip_comment()?;
            self.skip_space();
        }
        Some(())
    }

    /// Skips a comment behind its first parenthesis.
    fn skip_comment(&mut self) -> Option<()> {
        let mut depth = 1;
        let mut is_escaped = false;
        for (index, byte) in self.rest.bytes().enumerate() {
            match byte {
                _ if is_escaped => is_escaped = false,
                // The last character of the text escapes nothing.
                b'\\' if index + 1 < self.rest.len() => is_escaped = true,
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.rest = &self.rest[index + 1..];
                return Some(());
            }
        }
        None
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn expect(&mut self, character: char) -> Option<()> {
        self.consume(character).then_some(())
    }

    fn consume(&mut self, character: char) -> bool {
        match self.rest.strip_prefix(character) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }
}

fn is_visible(character: char) -> bool {
    matches!(character, '!'..='~') || !character.is_ascii()
}

/// Whether a word is a well-formed encoded word (RFC 2047) in a character set that Go cannot read.
fn has_unsupported_charset(word: &str) -> bool {
    let inner = word.strip_prefix("=?").and_then(|word| word.strip_suffix("?="));
    let parts: Vec<&str> = inner.unwrap_or("").split('?').collect();
    let [charset, encoding, text] = parts.as_slice() else {
        return false;
    };
    let is_readable = match *encoding {
        "b" | "B" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "q" | "Q" => is_quoted_printable(text),
        _ => false,
    };
    let is_known = |known: &&str| charset.eq_ignore_ascii_case(known);
    is_readable && !charset.is_empty() && !["utf-8", "iso-8859-1", "us-ascii"].iter().any(is_known)
}

fn is_quoted_printable(text: &str) -> bool {
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let length = if character == '=' { 3 } else { character.len_utf8() };
        let is_valid = match character {
            '=' => rest.as_bytes().get(1..3).is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit)),
            _ => matches!(character, ' '..='~' | '\t' | '\n' | '\r'),
        };
        if !is_valid {
            return false;
        }
        rest = &rest[length..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_in_go() {
        for text in [
            "a@b.c",
            "a@b",
            "Foo Bar <a@b.c>",
            "\"a b\"@c.d",
            "a@[1.2.3.4]",
            "a@b (x)",
            " a@b ",
            "g: a@b;",
            "\"Foo, B.\" <a@b>",
            "F. Oo (x) <a@b>",
            "é@b",
            "=?utf-8?q?x?= <a@b>",
            "=?x?y <a@b>",
        ] {
            assert!(is_mail_address(text), "{text}");
        }
        for text in [
            "",
            "a",
            "a@",
            "@b",
            "a@b@c",
            "a..b@c",
            ".a@b",
            "a.@b",
            "\"\"@b",
            "a@[x]",
            "a@b, c@d",
            "a b@c",
            "a@b (",
            "g: a@b, c@d;",
            "g:;",
            "<a@b",
            "(x)<a@b>",
            "=?koi8?q?x?= <a@b>",
            "a@b\n",
        ] {
            assert!(!is_mail_address(text), "{text}");
        }
    }
}
