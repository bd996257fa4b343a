//! The table: what was to be reached, what was, and a mark where it was missed.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use crate::contestants::Kind;

/// One measured thing, for each that was measured.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) what: String,
    /// Written after each value.
    pub(crate) unit: &'static str,
    pub(crate) digits: usize,
    pub(crate) values: BTreeMap<Kind, f64>,
    pub(crate) goals: Vec<Goal>,
}

/// What the gateway is to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    Most(f64),
    /// At most so many times the value of another one.
    MostTimes(f64, Kind),
    LeastTimes(f64, Kind),
    /// At most so much more than another one.
    MostAbove(f64, Kind),
}

/// All rows, and what the reader must know of the run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    pub(crate) notes: Vec<String>,
}

/// How a goal and a value compare.
struct Verdict {
    reach: String,
    got: String,
    is_missed: bool,
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, unit: &'static str, digits: usize) -> Self {
        Self { what: what.into(), unit, digits, values: BTreeMap::new(), goals: Vec::new() }
    }

    pub(crate) fn goal(mut self, goal: Goal) -> Self {
        self.goals.push(goal);
        self
    }

    fn verdicts(&self) -> impl Iterator<Item = Verdict> {
        self.goals.iter().map(|goal| goal.judge(self))
    }

    fn value(&self, kind: Kind) -> String {
        let value = self.values.get(&kind);
        value.map_or("–".to_owned(), |value| self.written(*value))
    }

    fn written(&self, value: f64) -> String {
        format!("{value:.*}", self.digits)
    }
}

impl Goal {
    fn judge(self, row: &Row) -> Verdict {
        let own = row.values.get(&Kind::Gateway).copied();
        let other = |kind| row.values.get(&kind).copied();
        let written = |value| format!("{} {}", row.written(value), row.unit);
        let (reach, got, of) = match self {
            Self::Most(most) => {
                (format!("≤ {}", written(most)), own.map(|own| (own / most, own <= most)), "it")
            }
            Self::MostTimes(times, kind) => {
                let ratio = own.zip(other(kind)).map(|(own, other)| own / other);
                (times_of("≤", times, kind), ratio.map(|ratio| (ratio, ratio <= times)), kind.name())
            }
            Self::LeastTimes(times, kind) => {
                let ratio = own.zip(other(kind)).map(|(own, other)| own / other);
                (times_of("≥", times, kind), ratio.map(|ratio| (ratio, ratio >= times)), kind.name())
            }
            Self::MostAbove(most, kind) => {
                let above = own.zip(other(kind)).map(|(own, other)| own - other);
                let reach = format!("≤ {} + {}", kind.name(), written(most));
                let got = above.map_or("–".to_owned(), |above| format!("+ {}", written(above)));
                let is_missed = above.is_some_and(|above| above > most);
                return Verdict { reach, got, is_missed };
            }
        };
        match got {
            Some((ratio, met)) => Verdict { reach, got: format!("{ratio:.2} × {of}"), is_missed: !met },
            None => Verdict { reach, got: "–".to_owned(), is_missed: false },
        }
    }
}

fn times_of(sign: &str, times: f64, kind: Kind) -> String {
    format!("{sign} {times} × {}", kind.name())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = vec![vec!["what".to_owned(), "reach".to_owned(), "got".to_owned()]];
        lines[0].extend(Kind::ALL.iter().map(|kind| kind.name().to_owned()));
        for row in &self.rows {
            let (mut reach, mut got) = (String::new(), String::new());
            for verdict in row.verdicts() {
                let separator = if reach.is_empty() { "" } else { "; " };
                let mark = if verdict.is_missed { " ✗" } else { "" };
                let _ = write!(reach, "{separator}{}", verdict.reach);
                let _ = write!(got, "{separator}{}{mark}", verdict.got);
            }
            let mut line = vec![format!("{}, {}", row.what, row.unit), reach, got];
            line.extend(Kind::ALL.iter().map(|kind| row.value(*kind)));
            lines.push(line);
        }
        let columns = lines[0].len();
        let width =
            |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (number, line) in lines.iter().enumerate() {
            for (cell, width) in line.iter().zip(&widths) {
                write!(f, "| {cell:<width$} ")?;
            }
            writeln!(f, "|")?;
            if number == 0 {
                for width in &widths {
                    write!(f, "|{:-<1$}", "", width + 2)?;
                }
                writeln!(f, "|")?;
            }
        }
        for note in &self.notes {
            writeln!(f, "\n{note}")?;
        }
        Ok(())
    }
}
