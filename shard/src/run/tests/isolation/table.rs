//! The requests of `table.txt`, and what is seen of their responses.

use core::fmt;

use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::installation::{Installation, MASTER};

/// The verbs of a line, in the order of its codes.
const VERBS: [&str; 14] = [
    "get",
    "list",
    "watch",
    "table",
    "metadata",
    "create",
    "update",
    "merge",
    "json",
    "apply",
    "delete",
    "collection",
    "status",
    "scale",
];

/// All requests of one identity at one path form for one object: the cells of a line in the table.
pub(super) struct Row {
    identity: String,
    form: String,
    resource: String,
    workspace: String,
    object: String,
    /// A code for each verb.
    codes: Vec<String>,
    /// The objects that lists and watches show, as `<workspace>/<name>`.
    shown: String,
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { identity, form, resource, workspace, object, .. } = self;
        write!(out, "{identity} | {form} | {resource} | {workspace} | {object}")
    }
}

/// Expands the lines of the table: `identities | forms | resources | workspaces | objects | codes | shown objects`, where each of the
/// first five is a list. `@` in the last one is the workspace. A single code is that of all verbs.
pub(super) fn rows(table: &str) -> Vec<Row> {
    let lines = table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.flat_map(expand).collect()
}

fn expand(line: &str) -> Vec<Row> {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let [identities, forms, resources, workspaces, objects, codes, shown] = columns[..] else {
        panic!("seven columns: {line}");
    };
    let codes: Vec<String> = codes.split_whitespace().map(str::to_owned).collect();
    let codes = if codes.len() == 1 { vec![codes[0].clone(); VERBS.len()] } else { codes };
    assert_eq!(codes.len(), VERBS.len(), "{line}");
    let mut rows = Vec::new();
    for identity in identities.split_whitespace() {
        for form in forms.split_whitespace() {
            for resource in resources.split_whitespace() {
                for workspace in workspaces.split_whitespace() {
                    for object in objects.split_whitespace() {
                        rows.push(Row {
                            identity: identity.to_owned(),
                            form: form.to_owned(),
                            resource: resource.to_owned(),
                            workspace: workspace.to_owned(),
                            object: object.to_owned(),
                            codes: codes.clone(),
                            shown: shown.replace('@', workspace),
                        });
                    }
                }
            }
        }
    }
    rows
}

/// The number of requests that the table states, so that no row is lost unnoticed.
pub(super) fn stated_requests(table: &str) -> usize {
    table.lines().find_map(|line| line.strip_prefix("# requests: ")).unwrap().parse().unwrap()
}

/// The number of requests of all rows.
pub(super) fn requests(rows: &[Row]) -> usize {
    rows.len() * VERBS.len()
}

impl Row {
    /// Sends the requests of the row, and describes what differs from the table. Writes are dry runs, so that rows do not depend on
    /// each other.
    pub(super) async fn difference(&self, installation: &Installation) -> Option<String> {
        let (mut codes, mut shown) = (Vec::new(), Vec::new());
        for verb in VERBS {
            let (code, names) = self.send(installation, verb).await;
            if let Some(names) = names.filter(|names| code == "200" && *names != self.shown) {
                shown.push(format!("{verb} shows {names:?}"));
            }
            codes.push(code);
        }
        let different: Vec<&str> = (0..VERBS.len())
            .filter(|&index| codes[index] != self.codes[index])
            .map(|index| VERBS[index])
            .collect();
        if different.is_empty() && shown.is_empty() {
            return None;
        }
        Some(format!("{self} | {} | {}\n    ({})\n", codes.join(" "), shown.join(", "), different.join(" ")))
    }

    /// The code of a response, and the objects that it shows if it may show several.
    async fn send(&self, installation: &Installation, verb: &str) -> (String, Option<String>) {
        let (collection, object) =
            (self.collection(true), format!("{}/{}", self.collection(true), self.object));
        let lists = self.collection(self.workspace != "*");
        let dry = |path: &str| format!("{path}?dryRun=All");
        let apply = format!("{object}?dryRun=All&fieldManager=table&force=true");
        let watch = format!(
            "{lists}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        );
        let mut new = self.object(&self.object);
        let (method, path, kind) = match verb {
            "get" => ("GET", object, ""),
            "list" => ("GET", lists, ""),
            "watch" => ("GET", watch, ""),
            "table" => ("GET", lists, "application/json;as=Table;v=v1;g=meta.k8s.io"),
            "metadata" => ("GET", lists, "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"),
            "create" => ("POST", dry(&collection), ""),
            "update" => ("PUT", dry(&object), ""),
            "merge" => ("PATCH", dry(&object), "application/merge-patch+json"),
            "json" => ("PATCH", dry(&object), "application/json-patch+json"),
            "apply" => ("PATCH", apply, "application/apply-patch+yaml"),
            "delete" => ("DELETE", dry(&object), ""),
            "collection" => ("DELETE", dry(&collection), ""),
            other => ("GET", format!("{object}/{other}"), ""),
        };
        let body = match verb {
            "create" => self.object("new"),
            "update" => {
                new["metadata"]["resourceVersion"] = self.revision(installation).await;
                new
            }
            "merge" => json!({"metadata": {"annotations": {"a": "b"}}}),
            "json" => json!([{"op": "add", "path": "/metadata/annotations/a", "value": "b"}]),
            "apply" => new,
            _ => Value::Null,
        };
        let header = if method == "PATCH" { "content-type" } else { "accept" };
        let headers = [(header, kind)];
        let headers = if kind.is_empty() { &[][..] } else { &headers[..] };
        let mut response = installation.open(&self.identity, method, &path, headers, &body).await;
        let code = response.status().as_str().to_owned();
        if verb == "watch" && code == "200" {
            let mut text = String::new();
            while !text.contains("k8s.io/initial-events-end") {
                let frame = response.body_mut().frame().await.unwrap().unwrap();
                text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
            }
            let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let events: Vec<Value> = events
                .filter(|event| event["type"] != "BOOKMARK")
                .map(|mut event| event["object"].take())
                .collect();
            return (code, Some(shown(installation, &events)));
        }
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let objects = value["items"].as_array().cloned();
        let rows = value["rows"].as_array();
        let rows = rows.map(|rows| rows.iter().map(|row| row["object"].clone()).collect::<Vec<_>>());
        let all = ["list", "table", "metadata", "collection"].contains(&verb);
        (code, objects.or(rows).filter(|_| all).map(|objects| shown(installation, &objects)))
    }

    /// The path of the objects, of those in the namespace or of all.
    fn collection(&self, is_in_namespace: bool) -> String {
        let Self { workspace, resource, .. } = self;
        let cluster = if workspace == "*" { "*".to_owned() } else { format!("<{workspace}>") };
        let export = "/services/apiexport/<provider>/widgets/clusters";
        let base = match &*self.form {
            "direct" => format!("/clusters/{cluster}"),
            "direct-path" => format!("/clusters/root:{workspace}"),
            "view" => format!("{export}/{cluster}"),
            "view-of-path" => format!("/services/apiexport/root:provider/widgets/clusters/{cluster}"),
            "view-at-path" => format!("{export}/root:{workspace}"),
            "view-of-absent" => format!("/services/apiexport/<provider>/absent/clusters/{cluster}"),
            "view-of-consumer" => format!("/services/apiexport/{cluster}/widgets/clusters/{cluster}"),
            "view-of-other" => format!("/services/apiexport/<other>/gadgets/clusters/{cluster}"),
            "view-nested" => format!("{export}/<accepted>/clusters/{cluster}"),
            "view-in-view" => {
                format!("{export}/<accepted>/services/apiexport/<provider>/widgets/clusters/{cluster}")
            }
            "view-dots" => format!("{export}/<accepted>/../{cluster}"),
            "view-escaped-dots" => format!("{export}/<accepted>/%2e%2e/{cluster}"),
            "view-escaped-slash" => format!("{export}/<accepted>%2f..%2f{cluster}"),
            "view-double-slash" => format!("{export}//{cluster}"),
            "view-escaped-star" => format!("{export}/%2a"),
            other => panic!("unknown form {other}"),
        };
        let group = match resource.split(':').next().unwrap() {
            "widgets" => "/apis/example.com/v1",
            "gadgets" => "/apis/other.example.com/v1",
            _ => "/api/v1",
        };
        let namespace = if is_in_namespace { "/namespaces/shared" } else { "" };
        format!("{base}{group}{namespace}/{resource}")
    }

    fn object(&self, name: &str) -> Value {
        let (api_version, kind) = match self.resource.split(':').next().unwrap() {
            "configmaps" => ("v1", "ConfigMap"),
            "secrets" => ("v1", "Secret"),
            "widgets" => ("example.com/v1", "Widget"),
            _ => ("other.example.com/v1", "Gadget"),
        };
        json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {"name": name, "namespace": "shared", "annotations": {"c": "d"}},
        })
    }

    /// The revision of the object as a master sees it.
    async fn revision(&self, installation: &Installation) -> Value {
        let (form, resource) = ("direct".to_owned(), self.resource.split(':').next().unwrap().to_owned());
        let workspace = if self.workspace == "*" { "accepted" } else { &self.workspace }.to_owned();
        let direct = Self {
            form,
            resource,
            workspace,
            identity: MASTER.to_owned(),
            object: self.object.clone(),
            codes: Vec::new(),
            shown: String::new(),
        };
        let path = format!("{}/{}", direct.collection(true), direct.object);
        let found = installation.send(MASTER, "GET", &path, &Value::Null).await.json();
        found["metadata"]["resourceVersion"].clone()
    }
}

/// Objects as `<workspace>/<name>`, each once and in order.
fn shown(installation: &Installation, objects: &[Value]) -> String {
    let name = |object: &Value| {
        let metadata = &object["metadata"];
        let cluster = metadata["annotations"]["kcp.io/cluster"].as_str().unwrap_or_default();
        format!("{}/{}", installation.workspace_of(cluster), metadata["name"].as_str().unwrap_or_default())
    };
    let mut names: Vec<String> = objects.iter().map(name).collect();
    names.sort();
    names.dedup();
    names.join(" ")
}
