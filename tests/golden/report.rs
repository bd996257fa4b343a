//! Counts equal responses, and checks differences against the list of expected ones.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::compare::Difference;
use super::differences::{LISTED, Listed, Reason};

/// The results of all comparisons so far.
#[derive(Default)]
pub struct Report {
    /// For each place, the number of responses that are equal, differ as listed, and differ otherwise.
    counts: BTreeMap<String, [usize; 3]>,
    unlisted: Vec<String>,
    /// The number of differences that each line of the list explained.
    used: BTreeMap<usize, usize>,
}

impl Report {
    /// Whether all of these differences are listed.
    pub fn is_explained(place: &str, seq: u32, subject: &str, found: &[Difference]) -> bool {
        found.iter().all(|difference| explanation(place, seq, subject, difference).is_some())
    }

    /// Adds the differences of one response; none if it is equal.
    pub fn add(&mut self, place: &str, seq: u32, subject: &str, found: &[Difference]) {
        let outcome = match found {
            [] => 0,
            _ if Self::is_explained(place, seq, subject, found) => 1,
            _ => 2,
        };
        self.counts.entry(place.to_owned()).or_default()[outcome] += 1;
        for difference in found {
            match explanation(place, seq, subject, difference) {
                Some(index) => *self.used.entry(index).or_default() += 1,
                None => self.unlisted.push(describe(place, seq, subject, difference)),
            }
        }
    }

    /// Differences that are not listed, and listed differences that did not occur.
    pub fn faults(&self) -> Vec<String> {
        let unused = LISTED.iter().enumerate().filter(|(index, listed)| {
            let is_required = !matches!(listed.reason, Reason::Timing(_));
            is_required && !self.used.contains_key(index)
        });
        let unused = unused.map(|(_, listed)| format!("no longer differs, remove it: {listed:?}"));
        self.unlisted.iter().cloned().chain(unused).collect()
    }

    /// The number of compared responses, and the reasons of the differences.
    pub fn summary(&self) -> String {
        let mut text = String::from("place: responses that are equal, differ as listed, differ otherwise\n");
        for (place, [equal, listed, unlisted]) in &self.counts {
            let _ = writeln!(text, "  {place}: {equal}, {listed}, {unlisted}");
        }
        for kind in ["deliberate", "later", "recording", "timing"] {
            let used = self.used.iter().map(|(index, uses)| (&LISTED[*index], uses));
            let of_kind: Vec<_> = used.filter(|(listed, _)| listed.reason.kind() == kind).collect();
            let uses: usize = of_kind.iter().map(|(_, uses)| **uses).sum();
            let _ = writeln!(text, "{kind}: {} lines of the list, {uses} differences", of_kind.len());
            for (Listed { place, on, reason, .. }, uses) in of_kind {
                let _ = writeln!(text, "  {uses:5} {place} {on}: {}", reason.text());
            }
        }
        let _ = writeln!(text, "unexplained: {}", self.unlisted.len());
        text
    }
}

fn explanation(place: &str, seq: u32, subject: &str, difference: &Difference) -> Option<usize> {
    LISTED.iter().position(|listed| covers(listed, place, seq, subject, difference))
}

fn covers(listed: &Listed, place: &str, seq: u32, subject: &str, difference: &Difference) -> bool {
    let in_place = listed.place.split(',').any(|pattern| matches(pattern, place));
    let on_subject = match listed.on.strip_prefix('#') {
        Some(numbers) => numbers.split(',').any(|number| number.parse() == Ok(seq)),
        None => listed.on.split('|').any(|pattern| matches(pattern, subject)),
    };
    in_place && on_subject && listed.at.iter().any(|pattern| matches(pattern, &difference.at))
}

/// `*` matches any text, also the empty one.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            let ends = text.char_indices().map(|(index, _)| index).chain([text.len()]);
            ends.into_iter().any(|index| matches(rest, &text[index..]))
        }),
    }
}

fn describe(place: &str, seq: u32, subject: &str, difference: &Difference) -> String {
    const MAX_CHARACTERS: usize = 600;
    let show = |value: &Option<serde_json::Value>| {
        let text = value.as_ref().map_or("nothing".to_owned(), ToString::to_string);
        text.chars().take(MAX_CHARACTERS).collect::<String>()
    };
    let (theirs, ours) = (show(&difference.theirs), show(&difference.ours));
    format!("{place} {seq} {subject}\n  at {}\n    kcp:  {theirs}\n    ours: {ours}", difference.at)
}
