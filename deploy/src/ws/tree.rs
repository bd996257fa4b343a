//! `ws tree`: the workspaces below the current one.

use fairlead_client::{Client, ClientError};
use fairlead_names::WorkspacePath;

use super::WsError;
use super::requests::{self, Workspace};
use super::session::{Session, workspace_of};

/// The text of each workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Name of the workspace.
    Short,
    /// Path of the workspace.
    Full,
    /// Name and phases of the workspace.
    Wide,
}

/// A workspace and its children.
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
    let client = session.client(&here);
    let columns = columns(&client, "-".to_owned(), style).await?;
    let children = requests::workspaces(&client).await?;
    let children = nodes(session, &here, children, style).await?;
    let root = Node { label, columns, children };
    let blank = if style == Style::Wide { "" } else { "\n" };
    Ok(format!("{}{blank}", draw(&root)))
}

/// The nodes of the workspaces of one parent, with their descendants.
async fn nodes(
    session: &Session,
    parent: &WorkspacePath,
    workspaces: Vec<Workspace>,
    style: Style,
) -> Result<Vec<Node>, WsError> {
    let mut below = Vec::new();
    for workspace in workspaces {
        if workspace.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let path = path_of(parent, &workspace);
        let mut label = if style == Style::Full { path.to_string() } else { workspace.metadata.name.clone() };
        if workspace.spec.mount.is_some() {
            label.push_str(" [m]");
            below.push(Node { label, ..Node::default() });
            continue;
        }
        let client = session.client(&path);
        let columns = columns(&client, workspace.status.phase, style).await?;
        let children = match requests::workspaces(&client).await {
            Ok(children) => children,
            // The user may not read it, or the server is still creating it. Its siblings are printed.
            Err(error) if matches!(error.code(), Some(403 | 404)) => {
                label.push_str(" [?]");
                Vec::new()
            }
            Err(error) => return Err(error.into()),
        };
        let children = Box::pin(nodes(session, &path, children, style)).await?;
        below.push(Node { label, columns, children });
    }
    Ok(below)
}

/// The path of a child, from its URL: the path of a home in the kubeconfig may be an alias with the name of the user.
fn path_of(parent: &WorkspacePath, workspace: &Workspace) -> WorkspacePath {
    let by_url = workspace_of(&workspace.spec.url).map(|(_, path)| path);
    by_url.unwrap_or_else(|| parent.join(&workspace.metadata.name))
}

async fn columns(client: &Client, phase: String, style: Style) -> Result<Vec<String>, ClientError> {
    if style != Style::Wide {
        return Ok(Vec::new());
    }
    let logical_cluster = match requests::logical_cluster_phase(client).await {
        Ok(phase) => phase,
        // The server is still creating it, or the user may not read it.
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
