//! Counts of compared writes and of their differences.

use std::collections::BTreeMap;

use super::answer::Answer;
use super::sequence::{Operation, Step};

/// Differences on purpose.
const DIFFERENCES: &[Reason] = &[
    Reason {
        text: "Kubernetes refuses objects with equal items in a list if a field has an owner in another version",
        explains: |difference| {
            difference.is_error("", ": duplicate entries for key [")
                && !difference.is_error("failed to create typed patch object", "")
        },
    },
    Reason {
        text: "Kubernetes cannot remove items whose keys nobody owns if a field has an owner in another version",
        explains: |difference| {
            difference.is_error("failed to prune fields: ", "failed to convert pruned object")
        },
    },
    Reason {
        text: "Kubernetes loses all owners by an update of an object that did not have its type",
        explains: |difference| difference.is_error("failed to convert live object", ""),
    },
    Reason {
        text: "Kubernetes rounds integers of more than 53 bits in managedFields",
        explains: |difference| {
            let is_of_state = ["owners", "object"].iter().any(|part| difference.text.starts_with(part));
            is_of_state
                && ["900719925474099", "-922337203685477"].iter().any(|part| difference.text.contains(part))
        },
    },
    Reason {
        text: "Kubernetes removes an object or a list that is applied again as null or empty",
        explains: |difference| {
            let configuration = difference.step.object.to_string();
            difference.step.op == Operation::Apply
                && difference.text.starts_with("object")
                && [":null", ":{}"].iter().any(|empty| configuration.contains(empty))
        },
    },
];

struct Reason {
    text: &'static str,
    explains: fn(&Difference<'_>) -> bool,
}

struct Difference<'d> {
    step: &'d Step,
    answer: &'d Answer,
    text: &'d str,
}

impl Difference<'_> {
    /// Whether Kubernetes refuses the write by an error that begins with one text and contains another.
    fn is_error(&self, start: &str, part: &str) -> bool {
        self.answer.as_ref().is_err_and(|error| error.starts_with(start) && error.contains(part))
    }
}

/// Differences that are shown in full.
const SHOWN: usize = 8;

#[derive(Default)]
pub(crate) struct Report {
    /// Compared writes by what they are and how they end.
    counts: BTreeMap<&'static str, usize>,
    explained: BTreeMap<&'static str, usize>,
    differences: Vec<String>,
}

impl Report {
    pub(crate) fn count(
        &mut self,
        step: &Step,
        answer: &Answer,
        difference: Option<String>,
        case: impl FnOnce() -> String,
    ) {
        let name = match (step.op, answer) {
            (Operation::Update, Ok(_)) => "updates",
            (Operation::Update, Err(_)) => "updates without owners",
            (Operation::Apply, Ok(_)) => "applied configurations",
            (Operation::Apply, Err(error)) if error.starts_with("Apply failed") => "conflicts",
            (Operation::Apply, Err(_)) => "refused configurations",
        };
        *self.counts.entry(name).or_default() += 1;
        let Some(difference) = difference else { return };
        let explained = Difference { step, answer, text: &difference };
        match DIFFERENCES.iter().find(|reason| (reason.explains)(&explained)) {
            Some(reason) => *self.explained.entry(reason.text).or_default() += 1,
            None => self.differences.push(format!("{difference}\n  {}", case())),
        }
    }

    pub(crate) fn compared(&self) -> usize {
        self.counts.values().sum()
    }

    pub(crate) fn merge(mut self, other: Self) -> Self {
        for (name, count) in other.counts {
            *self.counts.entry(name).or_default() += count;
        }
        for (reason, count) in other.explained {
            *self.explained.entry(reason).or_default() += count;
        }
        self.differences.extend(other.differences);
        self
    }

    /// Prints the counts, and fails on differences; `with_all_reasons`: also if a reason explains none.
    pub(crate) fn finish(self, with_all_reasons: bool) {
        println!("{} writes compared: {:?}", self.compared(), self.counts);
        for (reason, count) in &self.explained {
            println!("{count} differ because {reason}");
        }
        let mut shortest: Vec<&String> = self.differences.iter().collect();
        shortest.sort_by_key(|text| text.len());
        for text in shortest.into_iter().take(SHOWN) {
            println!("{text}");
        }
        assert_eq!(self.differences.len(), 0, "differences");
        if with_all_reasons {
            for Reason { text, .. } in DIFFERENCES {
                assert!(self.explained.contains_key(text), "no write differs because {text}");
            }
        }
    }
}
