//! The cost of a changed CRD beside others.

use fairlead_client::{PatchType, WriteOptions};
use http::Method;
use serde_json::{Value, json};

use super::super::LoadError;
use super::super::report::Figure;
use super::super::run::{Size, body, millis, retried, send, settle};
use super::fill::{DEFINITIONS, collection, define, definition, workspace};
use super::server::{ROOT, Server};

/// Changes one of many CRDs of a workspace, again and again, each time with a new field.
pub(super) async fn redefinition(server: &Server, size: Size) -> Result<Vec<Figure>, LoadError> {
    let (definitions, updates) = (size.of(5, 100, 100), size.of(5, 50, 200));
    let path = workspace(&server.client(ROOT), "many").await?;
    let client = server.client(&path);
    for number in 0..definitions {
        let (plural, kind) = (format!("things{number}"), format!("Thing{number}"));
        define(&client, &plural, &definition(&plural, &kind, &spec())).await?;
    }
    let changed = format!("{DEFINITIONS}/things0.bench.example.com");
    let things = collection("things0");
    settle().await;
    let meter = server.meter()?;
    for update in 0..updates {
        let field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let patch =
            json!([{ "op": "add", "path": format!("{field}/new{update}"), "value": { "type": "string" } }]);
        send(&client, Method::PATCH, &changed, PatchType::Json.content_type(), body(&patch)).await?;
        // A write that has the new field makes the server use the new definition.
        let object = json!({
            "apiVersion": "bench.example.com/v1", "kind": "Thing0", "metadata": { "name": "one" },
            "spec": { format!("new{update}"): "value" },
        });
        let options = WriteOptions { dry_run: true, field_manager: None };
        retried(|| async { client.create::<Value>(&things, &object, &options).await.map(drop) }).await?;
    }
    settle().await;
    let cpu = millis(meter.read()?.cpu) / updates as f64;
    let conditions = format!("one of {definitions} CRDs, {updates} changes, each with one use");
    Ok(vec![Figure::new("changed CRD: CPU", cpu, "ms").at_most(5.0).conditions(conditions)])
}

fn spec() -> Value {
    let field = |index: usize| (format!("field{index}"), json!({ "type": "string", "maxLength": 63 }));
    let fields: serde_json::Map<String, Value> = (0..50).map(field).collect();
    json!({ "type": "object", "properties": fields })
}
