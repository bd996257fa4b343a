//! Memory of workspaces: empty ones, and ones with a large CRD.

use std::sync::Arc;

use fairlead_client::Client;
use serde_json::{Map, Value, json};

use super::super::LoadError;
use super::super::report::Figure;
use super::super::run::{Size, Until, body, closed_loop, post, retried, settle};
use super::super::workspaces::{WorkspaceLoad, measure_workspaces};
use super::fill::{DEFINITIONS, collection, definition, workspace};
use super::server::{ROOT, Server};

/// The slope of the memory over empty workspaces.
pub(super) async fn empty(server: &Server, size: Size) -> Result<Vec<Figure>, LoadError> {
    let load = WorkspaceLoad {
        clients: 32,
        count: size.of(60, 6_000, 20_000),
        settled_after: size.of(20, 2_000, 2_000),
        name_prefix: "empty".to_owned(),
        type_name: "universal".to_owned(),
    };
    let table = measure_workspaces(&server.target(ROOT), &load).await?;
    let row = table.rows().iter().find(|row| row.what.ends_with("memory per workspace"));
    let row = row.ok_or_else(|| LoadError::Unexpected("no memory was measured".to_owned()))?;
    let each = row.value.split(' ').next().and_then(|value| value.parse().ok()).unwrap_or(f64::NAN);
    Ok(vec![Figure::new("empty workspace: memory", each, "KiB").at_most(4.0).conditions(&row.note)])
}

/// A CRD of 5,000 lines in many workspaces, each of which uses it: the slope over the second half, minus that of empty
/// workspaces.
pub(super) async fn large_definition(server: &Server, size: Size) -> Result<Vec<Figure>, LoadError> {
    let count = size.of(10, 1_000, 1_000);
    let object = Arc::new(definition("larges", "Large", &large_spec()));
    let lines = lines(&object);
    let clients = server.clients(ROOT, 4);
    let half = count / 2;
    let with_definition = |first: usize| {
        let object = body(&object);
        move |root: Client, number: usize| {
            let object = object.clone();
            async move {
                let path = workspace(&root, &format!("user-{}", first + number)).await?;
                let client = root.with_prefix(&path);
                post(&client, DEFINITIONS, object).await?;
                let larges = collection("larges");
                retried(|| async { client.get(&larges).await.map(drop) }).await?;
                let large = json!({
                    "apiVersion": "bench.example.com/v1", "kind": "Large", "metadata": { "name": "one" },
                    "spec": { "group0": { "field0": { "name": "a" } } },
                });
                Ok(post(&client, &larges, body(&large)).await?)
            }
        }
    };
    closed_loop(&clients, 2, Until::Count(half), with_definition(0)).await?;
    let before = kept_memory(server, &clients).await?;
    closed_loop(&clients, 2, Until::Count(count - half), with_definition(half)).await?;
    let between = kept_memory(server, &clients).await?;
    closed_loop(&clients, 2, Until::Count(count - half), |root, number| async move {
        workspace(&root, &format!("empty-{number}")).await.map(drop)
    })
    .await?;
    let after = kept_memory(server, &clients).await?;
    let per_workspace = |from: u64, to: u64| (to as f64 - from as f64) / (count - half) as f64 / 1024.0;
    let (with, without) = (per_workspace(before, between), per_workspace(between, after));
    let conditions = format!(
        "{lines} lines of YAML, {} B, page cache 1 MiB, workspaces {half} to {count}: {with:.2} KiB each; an empty one {without:.2} KiB",
        object.to_string().len()
    );
    Ok(vec![
        Figure::new("large CRD, further workspace: memory", with - without, "KiB")
            .at_most(2.0)
            .conditions(conditions),
    ])
}

/// The resident memory after a load: the least of several samples beside small requests, because the allocator gives memory back
/// only while its threads work. A parsed CRD of this size is a megabyte, more than what is measured.
async fn kept_memory(server: &Server, clients: &[Client]) -> Result<u64, LoadError> {
    settle().await;
    let mut least = u64::MAX;
    for _ in 0..20 {
        closed_loop(clients, 8, Until::Count(200), |root, _| async move {
            Ok(root.get("/api/v1/namespaces").await.map(drop)?)
        })
        .await?;
        least = least.min(server.sample()?.resident);
    }
    Ok(least)
}

fn large_spec() -> Value {
    let field = json!({
        "type": "object", "description": "A part of the specification.",
        "properties": {
            "name": { "type": "string", "maxLength": 63 },
            "count": { "type": "integer", "minimum": 0 },
            "tags": { "type": "array", "items": { "type": "string" } },
        },
    });
    let fields = |count: usize, prefix: &str, value: &Value| -> Map<String, Value> {
        (0..count).map(|index| (format!("{prefix}{index}"), value.clone())).collect()
    };
    let group = json!({ "type": "object", "properties": fields(16, "field", &field) });
    json!({ "type": "object", "properties": fields(22, "group", &group) })
}

/// The number of lines as YAML: one per scalar and per key of a map or list.
fn lines(value: &Value) -> usize {
    match value {
        Value::Object(members) => {
            members.values().map(|member| usize::from(!is_scalar(member)) + lines(member)).sum()
        }
        Value::Array(items) => items.iter().map(lines).sum(),
        _ => 1,
    }
}

fn is_scalar(value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}
