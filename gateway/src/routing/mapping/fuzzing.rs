//! Fuzzing target: invariants of the mapping file parser.

use std::path::Path;

use crate::routing::mapping::file::parse;
use crate::routing::mapping::pattern::Pattern;

/// Parses a mapping file. An error must name the file; in a valid file no two entries match the same paths with the same
/// specificity.
///
/// # Panics
/// If an invariant does not hold.
pub fn mapping(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match parse(text, Path::new("mapping.yaml")) {
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("mapping.yaml"), "an error without a location: {message}");
        }
        Ok(entries) => {
            for (number, entry) in entries.iter().enumerate() {
                let again = Pattern::parse(&entry.pattern.to_string());
                assert!(
                    again.is_ok_and(|again| again == entry.pattern),
                    "{} is parsed differently",
                    entry.pattern
                );
                for other in &entries[..number] {
                    let is_equally_specific = entry.pattern.specificity() == other.pattern.specificity();
                    assert!(
                        !(is_equally_specific && entry.pattern.overlaps(&other.pattern)),
                        "{} or {}",
                        entry.pattern,
                        other.pattern
                    );
                }
            }
        }
    }
}
