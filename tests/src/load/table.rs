//! Results as one table.

use std::fmt;

/// One measured value.
#[derive(Debug, Clone)]
pub struct Row {
    /// The measured quantity.
    pub what: String,
    /// The value with its unit.
    pub value: String,
    /// The conditions of the measurement.
    pub note: String,
}

/// Rows in the order of measurement. `Display` formats them as an aligned Markdown table.
#[derive(Debug, Clone, Default)]
pub struct Table {
    rows: Vec<Row>,
}

impl Table {
    /// Adds a row.
    pub fn push(&mut self, what: impl Into<String>, value: impl Into<String>, note: impl Into<String>) {
        self.rows.push(Row { what: what.into(), value: value.into(), note: note.into() });
    }

    /// Adds the rows of another table.
    pub fn extend(&mut self, other: Self) {
        self.rows.extend(other.rows);
    }

    /// All rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ("quantity", "value", "conditions");
        let width = |head: &str, cell: fn(&Row) -> &str| {
            self.rows
                .iter()
                .map(|row| cell(row).chars().count())
                .chain([head.len()])
                .max()
                .unwrap_or_default()
        };
        let (a, b, c) = (width(head.0, |r| &r.what), width(head.1, |r| &r.value), width(head.2, |r| &r.note));
        writeln!(f, "| {:<a$} | {:>b$} | {:<c$} |", head.0, head.1, head.2)?;
        writeln!(f, "|{:-<1$}|{2:-<3$}:|{4:-<5$}|", "", a + 2, "", b + 1, "", c + 2)?;
        for Row { what, value, note } in &self.rows {
            writeln!(f, "| {what:<a$} | {value:>b$} | {note:<c$} |")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::default();
        table.push("gateway CPU per GET", "52 µs", "16 × 8");
        table.push("RSS", "31.0 MB", "");
        let text = table.to_string();
        let lengths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert_eq!(lengths.len(), 4);
        assert!(lengths.iter().all(|length| *length == lengths[0]), "{text}");
    }
}
