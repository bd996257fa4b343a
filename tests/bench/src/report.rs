//! The table: goals, values, and a mark for each missed goal.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use crate::contestants::Kind;

/// A measured quantity, with a value for each contestant.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) what: String,
    /// The unit, printed after each value.
    pub(crate) unit: &'static str,
    pub(crate) digits: usize,
    pub(crate) values: BTreeMap<Kind, f64>,
    /// The gateway's value as a multiple of each other value: the median of the rounds, if measured round by round.
    pub(crate) times: BTreeMap<Kind, f64>,
    /// The difference between each other value and the gateway's: the median of the rounds, if measured round by round.
    pub(crate) more: BTreeMap<Kind, f64>,
    pub(crate) goals: Vec<Goal>,
}

/// The goal for the gateway.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    Most(f64),
    /// At most this multiple of another contestant's value.
    MostTimes(f64, Kind),
    LeastTimes(f64, Kind),
    /// At most this much more than another contestant's value.
    MostAbove(f64, Kind),
    /// With more of its parts enabled: at most this much more than the plain gateway.
    PartsMostAbove(f64, Kind),
}

/// All rows, and notes on the run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    pub(crate) notes: Vec<String>,
}

/// The comparison of a value with its goal.
struct Verdict {
    reach: String,
    got: String,
    is_missed: bool,
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, unit: &'static str, digits: usize) -> Self {
        Self {
            what: what.into(),
            unit,
            digits,
            values: BTreeMap::new(),
            times: BTreeMap::new(),
            more: BTreeMap::new(),
            goals: Vec::new(),
        }
    }

    pub(crate) fn goal(mut self, goal: Goal) -> Self {
        self.goals.push(goal);
        self
    }

    fn verdicts(&self) -> impl Iterator<Item = Verdict> {
        self.goals.iter().map(|goal| goal.judge(self))
    }

    fn times_of(&self, kind: Kind, own: f64) -> Option<f64> {
        let seen = self.times.get(&kind).copied();
        seen.or_else(|| self.values.get(&kind).map(|other| own / other))
    }

    fn more_of(&self, kind: Kind, own: f64) -> Option<f64> {
        let seen = self.more.get(&kind).copied();
        seen.or_else(|| self.values.get(&kind).map(|other| other - own))
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
        let Some(own) = row.values.get(&Kind::Gateway).copied() else { return self.unknown(row) };
        let written = |value| format!("{} {}", row.written(value), row.unit);
        let (got, is_missed) = match self {
            Self::Most(most) => (format!("{}, {:.2} of it", written(own), own / most), own > most),
            Self::MostTimes(times, kind) => {
                let Some(seen) = row.times_of(kind, own) else { return self.unknown(row) };
                (format!("{seen:.2} × {}", kind.name()), seen > times)
            }
            Self::LeastTimes(times, kind) => {
                let Some(seen) = row.times_of(kind, own) else { return self.unknown(row) };
                (format!("{seen:.2} × {}", kind.name()), seen < times)
            }
            Self::MostAbove(most, kind) => {
                let Some(other) = row.values.get(&kind) else { return self.unknown(row) };
                (format!("{} + {}", kind.name(), written(own - other)), own - other > most)
            }
            Self::PartsMostAbove(most, kind) => {
                let Some(more) = row.more_of(kind, own) else { return self.unknown(row) };
                (format!("{}: {more:+.*} {}", kind.name(), row.digits, row.unit), more > most)
            }
        };
        Verdict { got, is_missed, ..self.unknown(row) }
    }

    /// The goal, shown as long as a value is missing.
    fn unknown(self, row: &Row) -> Verdict {
        let written = |value| format!("{} {}", row.written(value), row.unit);
        let reach = match self {
            Self::Most(most) => format!("≤ {}", written(most)),
            Self::MostTimes(times, kind) => format!("≤ {times} × {}", kind.name()),
            Self::LeastTimes(times, kind) => format!("≥ {times} × {}", kind.name()),
            Self::MostAbove(most, kind) => format!("≤ {} + {}", kind.name(), written(most)),
            Self::PartsMostAbove(most, kind) => format!("{}: ≤ +{}", kind.name(), written(most)),
        };
        Verdict { reach, got: "–".to_owned(), is_missed: false }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = vec![vec!["what".to_owned(), "reach".to_owned(), "got".to_owned()]];
        // Contestants that take part on request only have a column only if they took part.
        let is_there = |kind: &Kind| {
            Kind::USUAL.contains(kind) || self.rows.iter().any(|row| row.values.contains_key(kind))
        };
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(is_there).collect();
        lines[0].extend(kinds.iter().map(|kind| kind.name().to_owned()));
        for row in &self.rows {
            let (mut reach, mut got) = (String::new(), String::new());
            for verdict in row.verdicts() {
                let separator = if reach.is_empty() { "" } else { "; " };
                let mark = if verdict.is_missed { " ✗" } else { "" };
                let _ = write!(reach, "{separator}{}", verdict.reach);
                let _ = write!(got, "{separator}{}{mark}", verdict.got);
            }
            let mut line = vec![format!("{}, {}", row.what, row.unit), reach, got];
            line.extend(kinds.iter().map(|kind| row.value(*kind)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_goals_are_marked_and_missing_values_are_not_judged() {
        let values = BTreeMap::from([
            (Kind::Gateway, 30.0),
            (Kind::Limited, 31.0),
            (Kind::Appliance, 32.0),
            (Kind::Haproxy, 20.0),
            (Kind::Direct, 29.5),
        ]);
        // The median of the rounds has precedence.
        let more = BTreeMap::from([(Kind::Appliance, 4.0)]);
        for (goal, got, is_missed) in [
            (Goal::Most(25.0), "30.0 µs, 1.20 of it", true),
            (Goal::Most(40.0), "30.0 µs, 0.75 of it", false),
            (Goal::MostTimes(1.5, Kind::Haproxy), "1.50 × haproxy", false),
            (Goal::MostTimes(1.1, Kind::Haproxy), "1.50 × haproxy", true),
            (Goal::LeastTimes(2.0, Kind::Haproxy), "1.50 × haproxy", true),
            (Goal::MostAbove(0.3, Kind::Direct), "direct + 0.5 µs", true),
            (Goal::PartsMostAbove(3.0, Kind::Appliance), "gateway+all: +4.0 µs", true),
            (Goal::PartsMostAbove(3.0, Kind::Limited), "gateway+limits: +1.0 µs", false),
            (Goal::PartsMostAbove(3.0, Kind::Observed), "–", false),
            (Goal::MostTimes(0.1, Kind::Kcp), "–", false),
        ] {
            let row = Row { values: values.clone(), more: more.clone(), ..Row::new("CPU", "µs", 1) };
            let verdict = goal.judge(&row);
            assert_eq!((verdict.got.as_str(), verdict.is_missed), (got, is_missed), "{goal:?}");
        }
    }
}
