//! `pattern`: compiles Go's regular expressions for Rust's engine.

use std::collections::HashMap;

use fairlead_cel::rust_pattern;
use regex::{Regex, RegexBuilder};

/// Size limits of a compiled pattern in bytes, tried in order.
const SIZE_LIMITS: [usize; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// Maximum size of all patterns of a schema together.
const TOTAL_SIZE: usize = 32 << 20;

/// Maximum size of the states that a pattern keeps while it matches. Smaller ones would slow down small patterns.
const CACHE_SIZES: std::ops::RangeInclusive<usize> = 16 << 10..=1 << 20;

/// A compiled pattern and its source, which error messages quote.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    pub(super) source: Box<str>,
    regex: Regex,
    /// The limit below which the pattern was compiled.
    size: usize,
}

/// Limits the total size of the patterns of one schema. Equal patterns are compiled once.
pub(super) struct PatternBudget {
    remaining_bytes: usize,
    compiled: HashMap<Box<str>, Pattern>,
}

impl Default for PatternBudget {
    fn default() -> Self {
        Self { remaining_bytes: TOTAL_SIZE, compiled: HashMap::new() }
    }
}

impl PatternBudget {
    pub(super) fn compile(&mut self, source: &str) -> Result<Pattern, String> {
        if let Some(known) = self.compiled.get(source) {
            return Ok(known.clone());
        }
        let translated = rust_pattern(source)?;
        for limit in SIZE_LIMITS {
            if limit > self.remaining_bytes {
                return Err("the patterns of the schema are too complex together".to_owned());
            }
            let cache_size = limit.clamp(*CACHE_SIZES.start(), *CACHE_SIZES.end());
            let built = RegexBuilder::new(&translated).size_limit(limit).dfa_size_limit(cache_size).build();
            // An attempt costs time in proportion to its limit, whether or not it succeeds.
            self.remaining_bytes -= limit;
            match built {
                Ok(regex) => {
                    let pattern = Pattern { source: source.into(), regex, size: limit };
                    self.compiled.insert(source.into(), pattern.clone());
                    return Ok(pattern);
                }
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
    /// The most steps that a match costs, each of them some 100 ns. The engine visits each state of the pattern for each
    /// byte at worst: 1 MiB of states and a text of 1 MB would occupy a processor for minutes.
    pub(super) fn cost(&self, text: &str) -> u64 {
        text.len() as u64 * (self.size >> 10) as u64
    }

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
            (r"^\ a\<b\>$", " a<b>", true),
            (r"^\p{L}{1,63}$", "λόγος", true),
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
            (0..40).filter_map(|number| budget.compile(&format!(r"^\pL{{1000}}{number}$")).err()).collect();
        let too_complex = errors.iter().filter(|error| *error == "the pattern is too complex").count();
        assert_eq!((errors.len(), too_complex), (40, TOTAL_SIZE / SIZE_LIMITS.iter().sum::<usize>()));
    }

    #[test]
    fn a_match_costs_in_proportion_to_pattern_and_text() {
        let mut budget = PatternBudget::default();
        let small = budget.compile("^[a-z]+$").unwrap();
        let large = budget.compile(r"^\pL*a\pL{30}c$").unwrap();
        assert!(small.cost(&"a".repeat(1 << 20)) < 10_000_000, "ordinary patterns match every text");
        assert!(large.cost(&"a".repeat(1 << 20)) > 10_000_000);
    }
}
