//! Styles of YAML scalars: which text needs quotes, and which characters need escapes.

/// Longest key without the indicator `? `, in bytes.
const MAX_SIMPLE_KEY: usize = 128;

/// The style of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    /// A block of lines after `|`.
    Literal,
}

impl Style {
    /// The style of a string.
    pub(crate) fn of(text: &str) -> Self {
        let form = Form::of(text);
        let quoted = if form.fits_single_quotes { Self::SingleQuoted } else { Self::DoubleQuoted };
        if text.contains('\n') {
            return if form.fits_block { Self::Literal } else { Self::DoubleQuoted };
        }
        // Strings that YAML 1.1 would read as another type.
        if !is_read_as_string(text) {
            return Self::DoubleQuoted;
        }
        if form.fits_plain { Self::Plain } else { quoted }
    }
}

/// The styles that a string fits.
struct Form {
    fits_plain: bool,
    fits_single_quotes: bool,
    fits_block: bool,
}

impl Form {
    fn of(text: &str) -> Self {
        let characters: Vec<char> = text.chars().collect();
        let at = |index: usize| characters.get(index).copied();
        let mut has_indicator = text.starts_with("---") || text.starts_with("...");
        let mut is_escaped = false;
        let (mut space_after_break, mut break_after_space) = (false, false);
        let mut before = None;
        for (index, &character) in characters.iter().enumerate() {
            let ends_word = at(index + 1).is_none_or(|next| matches!(next, ' ' | '\t'));
            has_indicator |= match (character, before) {
                ('#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!', None) => true,
                ('|' | '>' | '\'' | '"' | '%' | '@' | '`', None) => true,
                ('?' | ':' | '-', None) | (':', Some(_)) => ends_word,
                ('#', Some(before)) => matches!(before, ' ' | '\t') || is_break(before),
                _ => false,
            };
            is_escaped |= !is_printable(character);
            space_after_break |= character == ' ' && before.is_some_and(is_break);
            break_after_space |= is_break(character) && before == Some(' ');
            before = Some(character);
        }
        let edges = [characters.first(), characters.last()].into_iter().flatten();
        let has_blank_edge = edges.into_iter().any(|edge| *edge == ' ' || is_break(*edge));
        let has_break = characters.iter().any(|character| is_break(*character));
        let fits_single_quotes = !space_after_break && !break_after_space && !is_escaped && !has_break;
        Self {
            fits_plain: fits_single_quotes && !has_indicator && !has_blank_edge,
            fits_single_quotes,
            fits_block: !break_after_space && !is_escaped && !text.ends_with(' '),
        }
    }
}

/// Whether a key fits before `:`, without the indicator `? `.
pub(crate) fn is_simple_key(text: &str) -> bool {
    text.len() <= MAX_SIMPLE_KEY && !text.contains(is_break)
}

/// The escape of a character in double quotes, if it needs one.
pub(crate) fn escape(character: char) -> Option<String> {
    if is_printable(character) && !is_break(character) && !matches!(character, '"' | '\\') {
        return None;
    }
    let short = match character {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' => '"',
        '\\' => '\\',
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        other => {
            let code = u32::from(other);
            return Some(match code {
                0..=0xff => format!("\\x{code:02X}"),
                0x100..=0xffff => format!("\\u{code:04X}"),
                _ => format!("\\U{code:08X}"),
            });
        }
    };
    Some(format!("\\{short}"))
}

fn is_break(character: char) -> bool {
    matches!(character, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Characters outside of the Basic Multilingual Plane, such as emoji, count as unprintable in `yaml.v2`.
fn is_printable(character: char) -> bool {
    matches!(character, '\n' | ' '..='~' | '\u{a0}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

/// Whether YAML 1.1 reads plain text as a string: not as null, a boolean, a number or a time.
fn is_read_as_string(text: &str) -> bool {
    let Some(first) = text.chars().next() else { return false };
    let is_word = matches!(
        text,
        "y" | "Y"
            | "yes"
            | "Yes"
            | "YES"
            | "on"
            | "On"
            | "ON"
            | "true"
            | "True"
            | "TRUE"
            | "n"
            | "N"
            | "no"
            | "No"
            | "NO"
            | "off"
            | "Off"
            | "OFF"
            | "false"
            | "False"
            | "FALSE"
            | "~"
            | "null"
            | "Null"
            | "NULL"
            | ".nan"
            | ".NaN"
            | ".NAN"
            | ".inf"
            | ".Inf"
            | ".INF"
            | "+.inf"
            | "+.Inf"
            | "+.INF"
            | "-.inf"
            | "-.Inf"
            | "-.INF"
    );
    let is_number = match first {
        '.' => is_decimal(text),
        '+' | '-' | '0'..='9' => is_number(text) || is_base_60(text) || is_time(text),
        _ => false,
    };
    !is_word && !is_number
}

fn is_number(text: &str) -> bool {
    let text = text.replace('_', "");
    let digits = text.strip_prefix(['+', '-']).unwrap_or(&text);
    let based = |prefixes: [&str; 2], radix| {
        let digits = prefixes.iter().find_map(|prefix| digits.strip_prefix(prefix));
        digits.is_some_and(|digits| !digits.starts_with('+') && u64::from_str_radix(digits, radix).is_ok())
    };
    based(["0x", "0X"], 16) || based(["0o", "0O"], 8) || based(["0b", "0B"], 2) || is_decimal(&text)
}

/// Digits with an optional sign, fraction and exponent that do not overflow.
fn is_decimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_form = unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && unsigned.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'));
    is_form && unsigned.parse::<f64>().is_ok_and(f64::is_finite)
}

/// Numbers to the base 60, such as `1:30`. Some parsers still read them.
fn is_base_60(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'_';
    let mut parts = whole.split(':');
    let first = parts.next().unwrap_or_default();
    let mut further = parts.peekable();
    let is_sixtieth = |part: &str| match part.as_bytes() {
        [digit] => digit.is_ascii_digit(),
        [tens, digit] => (b'0'..=b'5').contains(tens) && digit.is_ascii_digit(),
        _ => false,
    };
    first.starts_with(|c: char| c.is_ascii_digit())
        && first.bytes().all(is_digit)
        && fraction.bytes().all(is_digit)
        && further.peek().is_some()
        && further.all(is_sixtieth)
}

/// A date, or a date and a time: `2006-1-2`, `2006-1-2 15:4:5.9`, `2006-1-2T15:4:5Z`.
fn is_time(text: &str) -> bool {
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some(&text[at..])),
        None => (text, None),
    };
    let number = |text: &str, most: usize| {
        let is_short = (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        is_short.then(|| text.parse::<i16>().ok()).flatten()
    };
    let mut parts = date.split('-');
    let (Some(year), Some(month), Some(day), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let date = (year.len() == 4).then(|| (number(year, 4), number(month, 2), number(day, 2)));
    let Some((Some(year), Some(month), Some(day))) = date else { return false };
    let narrow = |number: i16| i8::try_from(number).unwrap_or(i8::MAX);
    if jiff::civil::Date::new(year, narrow(month), narrow(day)).is_err() {
        return false;
    }
    let Some(time) = time else { return true };
    let (time, has_zone) = match time.strip_prefix(' ') {
        Some(time) => (time, false),
        None => (&time[1..], true),
    };
    let zone_at = time.find(['Z', '+', '-']);
    let (time, zone) = match zone_at {
        Some(at) => (&time[..at], &time[at..]),
        None => (time, ""),
    };
    let is_zone = match zone.as_bytes() {
        [] => !has_zone,
        [b'Z'] => has_zone,
        [_, h1, h2, b':', m1, m2] => has_zone && [h1, h2, m1, m2].iter().all(|digit| digit.is_ascii_digit()),
        _ => false,
    };
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut parts = clock.split(':').map(|part| number(part, 2));
    let limits = [23, 59, 59];
    let is_clock = limits.iter().all(|limit| parts.next().flatten().is_some_and(|part| part <= *limit));
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    is_zone && is_clock && parts.next().is_none() && is_fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The styles were printed by Go's `yaml.v2`.
    #[test]
    fn strings_have_quotes_where_yaml_needs_them() {
        for (style, texts) in [
            (
                Style::Plain,
                &[
                    "text",
                    "a:b",
                    "a#b",
                    "a, b",
                    "-a",
                    "?a",
                    "<<",
                    "yep",
                    "a 'b' \"c\"",
                    "1.2.3",
                    "0x",
                    "é",
                    "http://a",
                    "2006-13-01",
                    "0b2",
                    "1:99",
                    "=",
                    "a\\b",
                    "2006-01-02T",
                    "1e999",
                ][..],
            ),
            (
                Style::SingleQuoted,
                &[
                    "a: b", "a #b", "#a", "- a", "-", "*", "? a", "a:", "'a'", "\"a\"", " a", "a ", "---",
                    "{}", "@a", "%a",
                ],
            ),
            (
                Style::DoubleQuoted,
                &[
                    "",
                    "y",
                    "No",
                    "null",
                    "~",
                    "1",
                    "-1",
                    "0x1F",
                    "0b1",
                    "010",
                    "1_000",
                    "1.5",
                    ".5",
                    "1e3",
                    ".inf",
                    "1:30",
                    "2006-01-02",
                    "2006-1-2 15:4:5",
                    "2006-01-02T15:04:05Z",
                    "a\tb",
                    "a\u{1f600}",
                    "a\rb",
                ],
            ),
            (Style::Literal, &["a\nb", "a\n", "\n"]),
        ] {
            for text in texts {
                assert_eq!(Style::of(text), style, "{text:?}");
            }
        }
        assert_eq!(Style::of("a\nb "), Style::DoubleQuoted);
    }

    #[test]
    fn characters_have_short_escapes() {
        for (character, expected) in [
            ('a', None),
            ('é', None),
            ('"', Some("\\\"")),
            ('\n', Some("\\n")),
            ('\u{1}', Some("\\x01")),
            ('\u{feff}', Some("\\uFEFF")),
            ('\u{1f600}', Some("\\U0001F600")),
        ] {
            assert_eq!(escape(character).as_deref(), expected, "{character:?}");
        }
    }
}
