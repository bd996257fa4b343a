//! `pattern`: compiles Go's regular expressions for Rust's engine.

use fairlead_cel::rust_pattern;
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
        let translated = rust_pattern(source)?;
        for limit in SIZE_LIMITS {
            if limit > self.remaining_bytes {
                return Err("the patterns of the schema are too complex together".to_owned());
            }
            let built = RegexBuilder::new(&translated).size_limit(limit).dfa_size_limit(limit).build();
            // An attempt costs time in proportion to its limit, whether or not it succeeds.
            self.remaining_bytes -= limit;
            match built {
                Ok(regex) => return Ok(Pattern { source: source.into(), regex }),
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("the pattern is too complex".to_owned())
    }
}

/// Reports a pattern that is no regular expression. The size is not checked: the smallest limit ends the compilation, whose
/// cost is then that of parsing.
pub(super) fn check(source: &str) -> Result<(), String> {
    match RegexBuilder::new(&rust_pattern(source)?).size_limit(1).build() {
        Ok(_) | Err(regex::Error::CompiledTooBig(_)) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

impl Pattern {
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
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
        for (pattern, expected) in [
            ("(", "error parsing regexp: missing closing ): `(`"),
            ("[a", "error parsing regexp: missing closing ]: `[a`"),
            ("*a", "error parsing regexp: missing argument to repetition operator: `*`"),
            ("(?=a)", "error parsing regexp: invalid or unsupported Perl syntax: `(?=`"),
            (r"(?:(?:a{1000}){1000}){1000}", "error parsing regexp: invalid repeat count: `{1000}`"),
            (r"^\pL{1000}$", "the pattern is too complex"),
        ] {
            assert_eq!(PatternBudget::default().compile(pattern).err().as_deref(), Some(expected));
        }
    }

    #[test]
    fn many_patterns_have_a_common_budget() {
        let mut budget = PatternBudget::default();
        let compiled = (0..10_000).take_while(|index| budget.compile(&format!("^a{index}$")).is_ok()).count();
        assert_eq!(compiled, TOTAL_SIZE / SIZE_LIMITS[0]);
    }

    #[test]
    fn patterns_that_are_too_large_use_up_the_budget() {
        let mut budget = PatternBudget::default();
        let errors: Vec<String> =
            (0..40).filter_map(|number| budget.compile(&format!(r"^\pL{{300}}{number}$")).err()).collect();
        let too_complex = errors.iter().filter(|error| *error == "the pattern is too complex").count();
        assert_eq!(errors.len(), 40);
        assert!((20..30).contains(&too_complex), "{too_complex}");
    }
}
