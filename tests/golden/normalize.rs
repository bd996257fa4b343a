//! Removes from responses what differs from one installation to another.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use fairlead_tests::recordings::mask_description;
use regex::Regex;
use serde_json::{Map, Value};

/// Replaces the values of one installation that vary: generated names, addresses, times, versions.
pub struct Normalizer {
    /// Value and replacement, for example the name of a logical cluster and `<cluster team-a>`.
    names: Vec<(String, String)>,
    known: BTreeSet<String>,
}

/// (pattern, replacement)
static PATTERNS: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let patterns = [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "<time in microseconds>"),
        (r"X509SHA256=[0-9a-f]{64}", "X509SHA256=<fingerprint>"),
        (r"hash=[0-9A-F]{128}", "hash=<hash>"),
        (r"(?s)-----BEGIN CERTIFICATE-----.*-----END CERTIFICATE-----", "<certificate>"),
        // Default bindings are named after the export, with a random suffix.
        (r"\b((?:tenancy|topology|shards\.core|cache)\.kcp\.io)-[0-9a-z]{5}\b", "$1-<suffix>"),
        (r"\bgen-[0-9a-z]{5}\b", "gen-<suffix>"),
        (r"(resource version: )\d+", "$1<n>"),
        (r"(resource version: <n> )\(\d+\)", "$1(<n>)"),
        (r"(resource version: <n>, current: )\d+", "$1<n>"),
    ];
    patterns.map(|(pattern, replacement)| (Regex::new(pattern).unwrap(), replacement)).into()
});

static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^(\d+d)?(\d+h)?(\d+m)?(\d+s)?$").unwrap());

impl Normalizer {
    /// Takes the servers' authorities (`host:port`), each with its replacement.
    pub fn new(authorities: &[(&str, &str)]) -> Self {
        let names = authorities.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
        Self { names, known: BTreeSet::new() }
    }

    /// Learns the names of logical clusters and the identities of exports from a response.
    pub fn learn(&mut self, body: &Value) {
        match body {
            Value::Array(items) => items.iter().for_each(|item| self.learn(item)),
            Value::Object(object) => {
                self.learn_object(body);
                object.values().for_each(|value| self.learn(value));
            }
            _ => {}
        }
    }

    fn learn_object(&mut self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let annotation = |key: &str| object["metadata"]["annotations"][key].as_str();
        if let Some(cluster) = annotation("internal.tenancy.kcp.io/cluster") {
            self.add(cluster, &format!("<cluster {name}>"));
        }
        if let (Some(cluster), Some(path)) = (annotation("kcp.io/cluster"), annotation("kcp.io/path")) {
            let name = path.rsplit(':').next().unwrap_or_default();
            self.add(cluster, &format!("<cluster {name}>"));
        }
        let export = object["spec"]["reference"]["export"]["name"].as_str();
        for bound in object["status"]["boundResources"].as_array().into_iter().flatten() {
            if let (Some(export), Some(identity)) = (export, bound["schema"]["identityHash"].as_str()) {
                self.add(identity, &format!("<identity of {export}>"));
            }
        }
        if let Some(identity) = object["status"]["identityHash"].as_str() {
            self.add(identity, &format!("<identity of {name}>"));
        }
    }

    fn add(&mut self, from: &str, to: &str) {
        // `root` and the system clusters have the same name in every installation.
        let is_random = from.len() >= 13 && !from.contains(':');
        if is_random && self.known.insert(from.to_owned()) {
            self.names.push((from.to_owned(), to.to_owned()));
        }
    }

    /// Normalises a text.
    pub fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (from, to) in &self.names {
            if text.contains(from.as_str()) {
                text = text.replace(from.as_str(), to);
            }
        }
        for (pattern, replacement) in PATTERNS.iter() {
            if pattern.is_match(&text) {
                text = pattern.replace_all(&text, *replacement).into_owned();
            }
        }
        text
    }

    /// Normalises a document. Lists whose items have keys become maps.
    pub fn value(&self, value: Value) -> Value {
        self.at("", value)
    }

    fn at(&self, key: &str, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.string(key, &text)),
            Value::Array(items) => self.array(key, items),
            Value::Object(object) => self.object(object),
            other => other,
        }
    }

    fn object(&self, mut object: Map<String, Value>) -> Value {
        // The recordings have no managedFields: those of kcp's controllers, which write by its own API, differ. The schema
        // crate compares the tracking of fields with Kubernetes.
        object.remove("managedFields");
        // The recordings have no descriptions. A property that is named so is no text.
        if object.get("description").is_some_and(Value::is_string) {
            object.remove("description");
        }
        // At the end of a list, custom resources have an empty continue token, others have none.
        if object.get("continue").is_some_and(|token| token == "") {
            object.remove("continue");
        }
        let entries = object.into_iter().map(|(key, value)| {
            let value = self.at(&key, value);
            (self.text(&key), value)
        });
        Value::Object(entries.collect())
    }

    fn string(&self, key: &str, text: &str) -> String {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && text != "0";
        match key {
            "resourceVersion" if is_number => "<version>".to_owned(),
            "continue" if !text.is_empty() => "<continue>".to_owned(),
            "gitVersion" | "gitCommit" | "goVersion" | "compiler" => "<build>".to_owned(),
            // kcp places workspaces at random, Fairlead by load.
            "internal.tenancy.kcp.io/shard" | "core.kcp.io/shard" if is_shard(text) => {
                "<one of the shards>".to_owned()
            }
            "region" if text.starts_with("us-east-") => "<one of the regions>".to_owned(),
            "serverAddress" => self.text(text).replace(" shard-1>", " root>"),
            "kubernetes.io/description" if !text.starts_with('<') => mask_description(text),
            _ => self.text(text),
        }
    }

    fn array(&self, key: &str, items: Vec<Value>) -> Value {
        if key == "cells" {
            return items.into_iter().map(|cell| self.cell(cell)).collect();
        }
        let items: Vec<Value> = items.into_iter().map(|item| self.at("", item)).collect();
        match key_of(key, &items) {
            // The order of a list is compared apart from its items.
            Some(keys) if key == "items" || key == "rows" => {
                let order = keys.iter().cloned().map(Value::String).collect();
                let mut map: Map<String, Value> = keys.into_iter().zip(items).collect();
                map.insert("<order>".to_owned(), Value::Array(order));
                Value::Object(map)
            }
            Some(keys) => Value::Object(keys.into_iter().zip(items).collect()),
            None => Value::Array(items),
        }
    }

    fn cell(&self, cell: Value) -> Value {
        match cell {
            Value::String(text) if text.starts_with("us-east-") => "<one of the regions>".into(),
            Value::String(text) if !text.is_empty() && AGE.is_match(&text) => "<age>".into(),
            other => self.at("", other),
        }
    }
}

fn is_shard(text: &str) -> bool {
    // kcp also writes the names as hashes.
    ["root", "shard-1", "1pfxsevk", "2e1tfbst"].contains(&text)
}

/// The keys of the items, if all items have one and all are distinct.
fn key_of(key: &str, items: &[Value]) -> Option<Vec<String>> {
    let name = |item: &Value| -> Option<String> {
        let pointers: &[&str] = match key {
            "items" => &["/metadata/namespace", "/metadata/name"],
            "rows" => &["/object/metadata/namespace", "/object/metadata/name"],
            "conditions" => &["/type"],
            "groups" => &["/name"],
            "resources" => &["/resource", "/name"],
            "subresources" => &["/subresource"],
            _ => return None,
        };
        // Bound CRDs are named after the UID of their schema.
        let schema = item["metadata"]["annotations"].get("apis.kcp.io/schema-name");
        if let Some(schema) = schema.and_then(Value::as_str) {
            return Some(schema.to_owned());
        }
        let parts: Vec<&str> =
            pointers.iter().filter_map(|pointer| item.pointer(pointer)?.as_str()).collect();
        (!parts.is_empty()).then(|| parts.join("/"))
    };
    let keys: Vec<String> = items.iter().map(name).collect::<Option<_>>()?;
    let distinct: BTreeSet<&String> = keys.iter().collect();
    (!keys.is_empty() && distinct.len() == keys.len()).then_some(keys)
}
