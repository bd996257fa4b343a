//! The columns of a resource's tables (`kubectl get`).

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One column definition, as `meta.k8s.io/v1` Table has it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `name` for the column that identifies the row, else mostly empty.
    pub format: String,
    /// One sentence for people.
    pub description: String,
    /// 0 is shown always, more only in wide output.
    pub priority: i32,
}

/// Knows the columns of one version of a resource.
pub trait Columns: Send + Sync {
    /// The headings.
    fn definitions(&self) -> Vec<Column>;

    /// One row's cells, in the order of the headings. `now` is for ages, in seconds since the epoch.
    fn cells(&self, object: &Value, now: i64) -> Vec<Value>;
}
