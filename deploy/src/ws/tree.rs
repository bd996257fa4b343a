//! `ws tree`: the workspaces below the current one.

use fairlead_client::{Client, ClientError};
use fairlead_names::WorkspacePath;

use super::WsError;
use super::remote::{self, Workspace};
use super::session::{Session, workspace_of};

/// What is told of each workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Its name.
    Short,
    /// Its path.
    Full,
    /// Its name and phases.
    Wide,
}

/// A workspace with those below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    label: String,
    /// Phases, in the wide style.
    columns: Vec<String>,
    children: Vec<Node>,
}

/// The tree as text. One request per workspace, or two in the wide style, one after the other.
pub(crate) async fn tree(session: &Session, style: Style) -> Result<String, WsError> {
    let here = session.path()?;
    let label = here.to_string();
    let root = node(session, &here, label, "-".to_owned(), style).await?;
    let blank = if style == Style::Wide { "" } else { "\n" };
    Ok(format!("{}{blank}", draw(&root)))
}

async fn node(
    session: &Session,
    path: &WorkspacePath,
    label: String,
    phase: String,
    style: Style,
) -> Result<Node, WsError> {
    let client = session.client(path);
    let columns = columns(&client, phase, style).await?;
    let mut children = Vec::new();
    for workspace in remote::workspaces(&client).await? {
        let name = &workspace.metadata.name;
        if workspace.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let child_path = path_of(path, &workspace);
        let mut label = if style == Style::Full { child_path.to_string() } else { name.clone() };
        if workspace.spec.mount.is_some() {
            label.push_str(" [m]");
            children.push(Node { label, ..Node::default() });
        } else {
            let phase = workspace.status.phase;
            children.push(Box::pin(node(session, &child_path, label, phase, style)).await?);
        }
    }
    Ok(Node { label, columns, children })
}

/// Where a child is, by its URL: only that is right in a home, which is also known by its user's name.
fn path_of(parent: &WorkspacePath, workspace: &Workspace) -> WorkspacePath {
    let by_url = workspace_of(&workspace.spec.url).map(|(_, path)| path);
    by_url.unwrap_or_else(|| parent.join(&workspace.metadata.name))
}

async fn columns(client: &Client, phase: String, style: Style) -> Result<Vec<String>, ClientError> {
    if style != Style::Wide {
        return Ok(Vec::new());
    }
    let logical_cluster = match remote::logical_cluster_phase(client).await {
        Ok(phase) => phase,
        // It is only just being made, or is not for us to see.
        Err(error) if matches!(error.code(), Some(403 | 404)) => "-".to_owned(),
        Err(error) => return Err(error),
    };
    Ok(vec![format!("ws={phase}"), format!("lc={logical_cluster}")])
}

fn draw(root: &Node) -> String {
    let mut rows = Vec::new();
    draw_below(std::slice::from_ref(root), "", &mut rows);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max();
    let widths: Vec<_> = (0..3).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = ".\n".to_owned();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn draw_below(nodes: &[Node], indent: &str, rows: &mut Vec<Vec<String>>) {
    for (index, node) in nodes.iter().enumerate() {
        let (branch, trunk) =
            if index + 1 == nodes.len() { ("└── ", "    ") } else { ("├── ", "│   ") };
        let first = format!("{indent}{branch}{}", node.label);
        rows.push([first].into_iter().chain(node.columns.iter().cloned()).collect());
        draw_below(&node.children, &format!("{indent}{trunk}"), rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(label: &str, columns: &[&str], children: Vec<Node>) -> Node {
        Node {
            label: label.to_owned(),
            columns: columns.iter().map(|column| (*column).to_owned()).collect(),
            children,
        }
    }

    #[test]
    fn a_tree_has_branches() {
        let sub = node("sub", &[], vec![]);
        let tree = node("root", &[], vec![node("org", &[], vec![sub]), node("a [m]", &[], vec![])]);
        assert_eq!(draw(&tree), ".\n└── root\n    ├── org\n    │   └── sub\n    └── a [m]\n");
    }

    #[test]
    fn columns_are_aligned() {
        let child = node("team", &["ws=Ready", "lc=Ready"], vec![]);
        let tree = node("root", &["ws=-", "lc=Ready"], vec![child, node("m [m]", &[], vec![])]);
        assert_eq!(
            draw(&tree),
            ".\n\
             └── root       ws=-      lc=Ready\n    \
                 ├── team   ws=Ready  lc=Ready\n    \
                 └── m [m]\n"
        );
    }
}
