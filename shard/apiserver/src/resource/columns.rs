//! The columns of a resource's tables (`kubectl get`).

use fairlead_schema::{ColumnType, JsonPath, PrinterColumn};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A column definition of a `meta.k8s.io/v1` Table.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `name` for the column that identifies the row, else mostly empty.
    pub format: String,
    /// The description.
    pub description: String,
    /// 0 is always shown, higher values only in wide output.
    pub priority: i32,
}

/// The table columns of one version of a resource.
pub trait Columns: Send + Sync {
    /// The headings.
    fn definitions(&self) -> Vec<Column>;

    /// The cells of a row, in the order of the headings. `now` is for ages, in seconds since the epoch.
    fn cells(&self, object: &Value, now: i64) -> Vec<Value>;
}

/// The name, then the printer columns of a definition; without any, the age.
pub struct PrinterColumns(Vec<PrinterColumn>);

impl PrinterColumns {
    /// The given columns, or the age if there are none.
    pub fn new(columns: Vec<PrinterColumn>) -> Self {
        Self(if columns.is_empty() { vec![PrinterColumn::age()] } else { columns })
    }
}

/// The columns of a Scale.
pub(crate) fn scale_columns() -> PrinterColumns {
    let replicas = [
        ("Desired", "Number of desired replicas", ".spec.replicas"),
        ("Available", "Number of actual replicas", ".status.replicas"),
    ];
    let replicas = replicas.into_iter().filter_map(|(name, description, path)| {
        Some(PrinterColumn {
            name: name.to_owned(),
            column_type: ColumnType::Integer,
            format: String::new(),
            description: description.to_owned(),
            priority: 0,
            path: JsonPath::parse(path).ok()?,
        })
    });
    PrinterColumns(replicas.chain([PrinterColumn::age()]).collect())
}

impl Columns for PrinterColumns {
    fn definitions(&self) -> Vec<Column> {
        let name = Column {
            name: "Name".to_owned(),
            kind: "string".to_owned(),
            format: "name".to_owned(),
            description: NAME_DESCRIPTION.to_owned(),
            priority: 0,
        };
        let own = self.0.iter().map(|column| Column {
            name: column.name.clone(),
            kind: column.column_type.name().to_owned(),
            format: column.format.clone(),
            description: column.description.clone(),
            priority: i32::try_from(column.priority).unwrap_or(i32::MAX),
        });
        [name].into_iter().chain(own).collect()
    }

    fn cells(&self, object: &Value, now: i64) -> Vec<Value> {
        let now = Timestamp::from_second(now).unwrap_or_default();
        let name = object["metadata"]["name"].clone();
        [name].into_iter().chain(self.0.iter().map(|column| column.cell(object, now))).collect()
    }
}

const NAME_DESCRIPTION: &str =
    "The name of the object, unique among its kind in its namespace and logical cluster.";
