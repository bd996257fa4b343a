//! The report of a run, as a table and as data for programs.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::{Action, Authority, Reason};

/// The result of applying a plan. `Display` prints the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The PKI directory.
    pub directory: PathBuf,
    /// One row per item, in the plan's order.
    pub rows: Vec<Row>,
    /// Notes for the operator: tightened permissions, authorities near their expiry.
    pub notes: Vec<String>,
}

/// One item of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The item, e.g. `kcp-admin client`.
    pub name: String,
    /// The file of its certificate or public key.
    pub file: PathBuf,
    /// Its subject, e.g. `CN=kcp-admin,O=system:kcp:admin`; empty for a key pair without a certificate.
    pub subject: String,
    /// The authority that signed it; `None` for an authority.
    #[serde(serialize_with = "as_text")]
    pub signer: Option<Authority>,
    /// The expiry; `None` for a key pair without a certificate.
    #[serde(serialize_with = "as_text")]
    pub expires: Option<Timestamp>,
    /// The action.
    pub action: Action,
    /// The reason of the action.
    pub reason: Reason,
}

impl Report {
    /// Whether the run has changed nothing.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.rows.iter().all(|row| row.action == Action::Unchanged)
    }

    /// The row of a file.
    #[must_use]
    pub fn row(&self, file: &Path) -> Option<&Row> {
        self.rows.iter().find(|row| row.file == file)
    }
}

const HEADINGS: [&str; 6] = ["NAME", "FILE", "SUBJECT", "SIGNED BY", "EXPIRES", "ACTION"];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells: Vec<[String; 6]> = self.rows.iter().map(|row| row.cells(&self.directory)).collect();
        let mut widths = HEADINGS.map(str::len);
        for row in &cells {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.len());
            }
        }
        writeln!(f, "{}", line(HEADINGS, widths))?;
        for row in &cells {
            writeln!(f, "{}", line(row.each_ref().map(String::as_str), widths))?;
        }
        for note in &self.notes {
            writeln!(f, "Note: {note}.")?;
        }
        Ok(())
    }
}

impl Row {
    fn cells(&self, directory: &Path) -> [String; 6] {
        let or_dash =
            |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned());
        [
            self.name.clone(),
            self.file.strip_prefix(directory).unwrap_or(&self.file).display().to_string(),
            or_dash(Some(self.subject.clone())),
            or_dash(self.signer.map(|signer| signer.to_string())),
            or_dash(self.expires.map(|expires| expires.strftime("%Y-%m-%d").to_string())),
            match self.reason {
                Reason::New | Reason::Valid => self.action.to_string(),
                reason => format!("{} ({reason})", self.action),
            },
        ]
    }
}

fn line(cells: [&str; 6], widths: [usize; 6]) -> String {
    let padded: Vec<String> =
        cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
    padded.join("  ").trim_end().to_owned()
}

fn as_text<T: ToString, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(serializer)
}
