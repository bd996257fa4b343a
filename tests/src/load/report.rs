//! Figures beside their goals, as one table.

use std::fmt;

/// One measured quantity.
#[derive(Debug, Clone)]
pub struct Figure {
    quantity: String,
    value: Result<f64, String>,
    unit: &'static str,
    goal: Goal,
    conditions: String,
}

/// The required value.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Goal {
    None,
    AtMost(f64),
    AtLeast(f64),
}

impl Figure {
    /// A measured value in a unit.
    pub fn new(quantity: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            quantity: quantity.into(),
            value: Ok(value),
            unit,
            goal: Goal::None,
            conditions: String::new(),
        }
    }

    /// A quantity that cannot be measured on this server, with the reason.
    pub fn absent(quantity: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { value: Err(reason.into()), ..Self::new(quantity, 0.0, "") }
    }

    /// Sets the highest value that meets the goal.
    #[must_use]
    pub fn at_most(self, goal: f64) -> Self {
        Self { goal: Goal::AtMost(goal), ..self }
    }

    /// Sets the lowest value that meets the goal.
    #[must_use]
    pub fn at_least(self, goal: f64) -> Self {
        Self { goal: Goal::AtLeast(goal), ..self }
    }

    /// Sets the load and other conditions of the measurement.
    #[must_use]
    pub fn conditions(self, conditions: impl Into<String>) -> Self {
        Self { conditions: conditions.into(), ..self }
    }

    /// The measured quantity.
    pub(super) fn quantity(&self) -> &str {
        &self.quantity
    }

    fn shown(&self) -> String {
        match &self.value {
            Ok(value) => amount(*value, self.unit),
            Err(reason) => reason.clone(),
        }
    }

    fn goal(&self) -> String {
        match self.goal {
            Goal::None => "-".to_owned(),
            Goal::AtMost(goal) => format!("≤ {}", amount(goal, self.unit)),
            Goal::AtLeast(goal) => format!("≥ {}", amount(goal, self.unit)),
        }
    }

    fn mark(&self) -> &'static str {
        match (&self.value, self.goal) {
            (Ok(value), Goal::AtMost(goal)) if *value <= goal => "met",
            (Ok(value), Goal::AtLeast(goal)) if *value >= goal => "met",
            (Ok(_), Goal::AtMost(_) | Goal::AtLeast(_)) => "missed",
            (Err(_), _) | (_, Goal::None) => "-",
        }
    }
}

/// The value of another server and its conditions, with the reason where there is no value.
fn beside(other: Option<&Figure>) -> (String, String) {
    let absent = "-".to_owned();
    let Some(figure) = other else { return (absent, String::new()) };
    match &figure.value {
        Ok(_) => (figure.shown(), figure.conditions.clone()),
        Err(reason) => (absent, reason.clone()),
    }
}

/// Three digits are more than the measurements have.
fn amount(value: f64, unit: &str) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let separator = if unit.is_empty() || unit == "×" { "" } else { " " };
    format!("{value:.digits$}{separator}{unit}")
}

/// The figures of our server, beside those of another one. `Display` formats them as an aligned Markdown table.
#[derive(Debug, Clone, Default)]
pub struct GoalTable {
    rows: Vec<(Figure, Option<Figure>)>,
    has_other: bool,
}

impl GoalTable {
    /// Adds the figures of one measurement, beside those of the other server, which are found by their quantity.
    pub fn extend(&mut self, ours: Vec<Figure>, other: Option<Vec<Figure>>) {
        self.has_other |= other.is_some();
        let other = other.unwrap_or_default();
        self.rows.extend(ours.into_iter().map(|figure| {
            let beside = other.iter().find(|other| other.quantity == figure.quantity).cloned();
            (figure, beside)
        }));
    }

    /// Whether a figure misses its goal.
    pub fn has_missed(&self) -> bool {
        self.rows.iter().any(|(figure, _)| figure.mark() == "missed")
    }
}

impl fmt::Display for GoalTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut heading = vec!["quantity", "figure", "goal", "mark"];
        heading.extend(self.has_other.then_some("kcp"));
        heading.push("conditions");
        let rows = self.rows.iter().map(|(figure, other)| {
            let mut cells =
                vec![figure.quantity.clone(), figure.shown(), figure.goal(), figure.mark().to_owned()];
            let mut conditions = figure.conditions.clone();
            if self.has_other {
                let (value, note) = beside(other.as_ref());
                cells.push(value);
                if !note.is_empty() && note != conditions {
                    let separator = if conditions.is_empty() { "" } else { "; " };
                    conditions = format!("{conditions}{separator}kcp: {note}");
                }
            }
            cells.push(conditions);
            cells
        });
        let mut lines = vec![heading.into_iter().map(str::to_owned).collect::<Vec<_>>()];
        lines.extend(rows);
        let columns = lines[0].len();
        let width =
            |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (index, line) in lines.iter().enumerate() {
            for (cell, width) in line.iter().zip(&widths) {
                write!(f, "| {cell:<width$} ")?;
            }
            writeln!(f, "|")?;
            if index == 0 {
                widths.iter().try_for_each(|width| write!(f, "|{:-<1$}", "", width + 2))?;
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_marked_by_their_goals() {
        let ours = vec![
            Figure::new("CPU per get", 24.96, "µs").at_most(25.0).conditions("400 B"),
            Figure::new("creations", 7_999.0, "/s").at_least(8_000.0),
            Figure::new("p99 beside a list", 2.0, "×").at_most(2.0),
            Figure::absent("CPU per apply", "not served"),
            Figure::new("p99", 1.234, "ms"),
        ];
        let other = vec![
            Figure::new("creations", 905.0, "/s").conditions("400 B"),
            Figure::new("CPU per get", 100.0, "µs").conditions("400 B"),
            Figure::absent("p99", "one shard"),
        ];
        let mut table = GoalTable::default();
        table.extend(ours, Some(other));
        assert!(table.has_missed());
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 7);
        assert!(lines.iter().all(|line| line.chars().count() == lines[0].chars().count()), "{text}");
        let cells = |line: usize| lines[line].split('|').map(str::trim).collect::<Vec<_>>();
        assert_eq!(cells(2), ["", "CPU per get", "25.0 µs", "≤ 25.0 µs", "met", "100 µs", "400 B", ""]);
        assert_eq!(cells(3)[1..6], ["creations", "7999 /s", "≥ 8000 /s", "missed", "905 /s"]);
        assert_eq!(cells(3)[6], "kcp: 400 B");
        assert_eq!(cells(4)[2..5], ["2.00×", "≤ 2.00×", "met"]);
        assert_eq!(cells(5)[1..5], ["CPU per apply", "not served", "-", "-"]);
        assert_eq!(cells(6)[2..7], ["1.23 ms", "-", "-", "-", "kcp: one shard"]);
        let mut alone = GoalTable::default();
        alone.extend(vec![Figure::new("p99", 1.0, "ms")], None);
        assert!(!alone.to_string().contains("kcp") && !alone.has_missed());
    }
}
