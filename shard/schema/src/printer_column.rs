//! Printer columns of a Table: conversion of values to cells.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::jsonpath::JsonPath;

/// The type of a printer column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// `boolean`
    Boolean,
    /// `date`: printed as an age.
    Date,
    /// `integer`
    Integer,
    /// `number`
    Number,
    /// `string`: any value, printed as text.
    String,
}

impl ColumnType {
    /// All names, in the order of Kubernetes' error messages.
    pub const NAMES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];

    /// Parses the name of a type.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "boolean" => Self::Boolean,
            "date" => Self::Date,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "string" => Self::String,
            _ => return None,
        })
    }

    /// The name in a Table's column definition.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Date => "date",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::String => "string",
        }
    }
}

/// A column of `additionalPrinterColumns`.
#[derive(Clone, Debug, PartialEq)]
pub struct PrinterColumn {
    /// The column's heading.
    pub name: String,
    /// The type of the cells.
    pub column_type: ColumnType,
    /// `format`; empty if absent.
    pub format: String,
    /// `description`; empty if absent.
    pub description: String,
    /// Columns with a priority above 0 are shown in wide output only.
    pub priority: i64,
    /// The path of the value.
    pub path: JsonPath,
}

impl PrinterColumn {
    /// The age of the object: the only column of custom resources that define none.
    pub fn age() -> Self {
        Self {
            name: "Age".to_owned(),
            column_type: ColumnType::Date,
            format: String::new(),
            description: "When the object was created.".to_owned(),
            priority: 0,
            path: JsonPath::fields(["metadata", "creationTimestamp"]),
        }
    }

    /// The cell of an object at the time `now`; null if the path matches no value.
    pub fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let Some(value) = self.path.find_first(object).filter(|value| !value.is_null()) else {
            return Value::Null;
        };
        match (self.column_type, value) {
            (ColumnType::String, Value::String(_)) => value.clone(),
            (ColumnType::String, other) => Value::String(other.to_string()),
            (ColumnType::Boolean, Value::Bool(_)) => value.clone(),
            (ColumnType::Integer, Value::Number(number)) => number
                .as_i64()
                .or_else(|| number.as_f64().map(|float| float as i64))
                .map_or(Value::Null, Value::from),
            (ColumnType::Number, Value::Number(_)) => value.clone(),
            (ColumnType::Date, Value::String(text)) => Value::String(age(text, now)),
            _ => Value::Null,
        }
    }
}

/// The time since an RFC 3339 timestamp, or `<invalid>`.
pub fn age(timestamp: &str, now: Timestamp) -> String {
    match timestamp.parse::<Timestamp>() {
        Ok(then) => human_duration(now.duration_since(then)),
        Err(_) => "<invalid>".to_owned(),
    }
}

/// A duration in the short form of kubectl: `0s`, `5m3s`, `3h`, `2d4h`, `1y20d`.
///
/// A duration of up to a second in the future counts as zero, because clocks differ.
pub fn human_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match (minutes, hours) {
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two_units(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two_units(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => two_units(days, "d", hours % 24, "h"),
        _ if hours < 24 * 365 * 2 => format!("{days}d"),
        _ if hours < 24 * 365 * 8 => two_units(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

fn two_units(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_read_as_in_kubectl() {
        let (minute, hour, day) = (60, 3600, 86_400);
        let table = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (2 * minute, "2m"),
            (5 * minute + 3, "5m3s"),
            (10 * minute + 3, "10m"),
            (179 * minute, "179m"),
            (3 * hour, "3h"),
            (3 * hour + 20 * minute, "3h20m"),
            (8 * hour + 20 * minute, "8h"),
            (47 * hour, "47h"),
            (2 * day, "2d"),
            (2 * day + 4 * hour, "2d4h"),
            (8 * day + 4 * hour, "8d"),
            (729 * day, "729d"),
            (730 * day, "2y"),
            (2 * 365 * day + 20 * day, "2y20d"),
            (9 * 365 * day + 20 * day, "9y"),
        ];
        for (seconds, text) in table {
            assert_eq!(human_duration(SignedDuration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn cells_have_their_columns_type() {
        let now: Timestamp = "2026-11-21T13:41:43Z".parse().unwrap();
        let object = json!({
            "s": "text", "i": 3, "f": 2.5, "b": true, "t": "2026-11-21T13:31:43Z", "bad": "yesterday",
            "list": [1, "a"], "null": null,
        });
        let table = [
            ("string", ".s", json!("text")),
            ("string", ".i", json!("3")),
            ("string", ".b", json!("true")),
            ("string", ".list", json!("[1,\"a\"]")),
            ("string", ".list[*]", json!("1")),
            ("string", ".absent", json!(null)),
            ("string", ".null", json!(null)),
            ("integer", ".i", json!(3)),
            ("integer", ".f", json!(2)),
            ("integer", ".s", json!(null)),
            ("number", ".f", json!(2.5)),
            ("boolean", ".b", json!(true)),
            ("boolean", ".s", json!(null)),
            ("date", ".t", json!("10m")),
            ("date", ".bad", json!("<invalid>")),
            ("date", ".i", json!(null)),
        ];
        for (column_type, path, expected) in table {
            let column = PrinterColumn {
                column_type: ColumnType::parse(column_type).unwrap(),
                path: JsonPath::parse(path).unwrap(),
                ..PrinterColumn::age()
            };
            assert_eq!(column.cell(&object, now), expected, "{column_type} {path}");
        }
    }
}
