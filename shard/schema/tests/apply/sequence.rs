//! Generates sequences of writes. Each write depends on the object that the previous ones have left.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::random::Random;
use super::schemas::Schemas;
use super::values::{change, change_metadata, part, value};

/// The annotation of client-side apply.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The times of all writes begin with this and end with their seconds.
pub(crate) const DAY: &str = "2026-01-01T00:00:";

/// A write.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Step {
    pub(crate) op: Operation,
    pub(crate) manager: String,
    /// `v1` or `v2`.
    pub(crate) version: &'static str,
    /// `status` or empty.
    pub(crate) subresource: &'static str,
    pub(crate) force: bool,
    /// Whether the schemas have changed.
    pub(crate) evolved: bool,
    pub(crate) object: Value,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    /// Any write but server-side apply. Without an object it is a create.
    Update,
    Apply,
}

/// Writes to one object, and sometimes its deletion.
pub(crate) struct Sequence {
    random: Random,
    pub(crate) schemas: Schemas,
    /// The object, in the version of the last write.
    live: Option<Value>,
    /// The last configuration of each manager.
    applied: BTreeMap<String, (&'static str, Value)>,
    evolved: bool,
    many_managers: bool,
    index: usize,
}

impl Sequence {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let schemas = Schemas::generate(&mut random);
        let many_managers = random.percent(10);
        Self {
            random,
            schemas,
            live: None,
            applied: BTreeMap::new(),
            evolved: false,
            many_managers,
            index: 0,
        }
    }

    /// The object before the next write, with managedFields.
    pub(crate) fn live(&self) -> Option<&Value> {
        self.live.as_ref()
    }

    /// The time of the current write.
    pub(crate) fn now(&self) -> String {
        format!("{DAY}{:02}Z", self.index)
    }

    pub(crate) fn next_step(&mut self) -> Step {
        self.index += 1;
        let random = &mut self.random;
        if random.percent(5) {
            self.live = None;
            self.applied.clear();
        }
        if random.percent(6) {
            self.evolved = !self.evolved;
        }
        let manager = self.pick_manager();
        let random = &mut self.random;
        let op = if random.percent(55) && !self.many_managers { Operation::Apply } else { Operation::Update };
        let version = if random.percent(70) { "v1" } else { "v2" };
        let subresource = if random.percent(15) && self.live.is_some() { "status" } else { "" };
        let force = op == Operation::Apply && random.percent(35);
        let object = match op {
            Operation::Update => self.updated(version),
            Operation::Apply => self.configuration(&manager, version),
        };
        Step { op, manager, version, subresource, force, evolved: self.evolved, object }
    }

    /// Tells the object after the write; `None`: it was refused.
    pub(crate) fn finish(&mut self, step: &Step, result: Option<&Value>) {
        if step.op == Operation::Apply {
            self.applied.insert(step.manager.clone(), (step.version, step.object.clone()));
        }
        match result {
            Some(result) => self.live = Some(result.clone()),
            None if step.op == Operation::Update => self.live = Some(written(step)),
            // An object that does not have its type refuses all later writes.
            None if self.random.percent(20) => self.live = None,
            None => {}
        }
    }

    fn pick_manager(&mut self) -> String {
        let random = &mut self.random;
        if self.many_managers {
            return format!("m{}", random.below(14));
        }
        (*random.pick(&["a", "a", "b", "b", "c", "kubectl", "kubectl", "ü \"q\"", ""])).to_owned()
    }

    fn schema(&self, version: &str) -> Value {
        let [v1, v2] = self.schemas.versions(self.evolved);
        if version == "v1" { v1.clone() } else { v2.clone() }
    }

    /// The object that a client writes after it has changed it.
    fn updated(&mut self, version: &'static str) -> Value {
        let schema = self.schema(version);
        let rename = self.schemas.rename;
        let random = &mut self.random;
        let invalid = if random.percent(6) { 8 } else { 0 };
        let Some(live) = &self.live else {
            let mut object = fresh(random, &schema, version, invalid);
            if random.percent(15) {
                change_metadata(random, &mut object["metadata"]);
            }
            if random.percent(6) {
                set_last_applied(random, &schema, &mut object);
            }
            return object;
        };
        let mut object = converted(live.clone(), &format!("g.io/{version}"), rename);
        change_managed_fields(random, &mut object);
        for _ in 0..1 + random.below(3) {
            match random.below(10) {
                0 => change_metadata(random, &mut object["metadata"]),
                1..=3 => change_part(random, &schema, &mut object, "status", invalid),
                _ => change_part(random, &schema, &mut object, "spec", invalid),
            }
        }
        if random.percent(4) {
            set_last_applied(random, &schema, &mut object);
        }
        object
    }

    /// What a manager applies: its last configuration with changes, a part of the object, or something new.
    fn configuration(&mut self, manager: &str, version: &'static str) -> Value {
        let schema = self.schema(version);
        let rename = self.schemas.rename;
        let random = &mut self.random;
        let invalid = if random.percent(10) { 8 } else { 0 };
        let last = self.applied.get(manager).filter(|_| random.percent(70));
        let mut object = if let Some((_, last)) = last {
            let mut object = converted(last.clone(), &format!("g.io/{version}"), rename);
            for _ in 0..random.below(3) {
                let name = if random.percent(70) { "spec" } else { "status" };
                change_part(random, &schema, &mut object, name, invalid);
            }
            object
        } else if let Some(live) = self.live.as_ref().filter(|_| random.percent(60)) {
            let live = converted(live.clone(), &format!("g.io/{version}"), rename);
            let mut object = json!({
                "apiVersion": live["apiVersion"], "kind": "T", "metadata": {"name": "n"},
            });
            for name in ["spec", "status"] {
                if live[name].is_object() && random.percent(80) {
                    object[name] = part(random, &schema["properties"][name], &live[name]);
                    if random.percent(40) {
                        change_part(random, &schema, &mut object, name, invalid);
                    }
                }
            }
            object
        } else {
            fresh(random, &schema, version, invalid)
        };
        if random.percent(15) {
            change_metadata(random, &mut object["metadata"]);
        }
        if random.percent(invalid) {
            object["unknown"] = json!(1);
        }
        object
    }
}

fn fresh(random: &mut Random, schema: &Value, version: &str, invalid: u64) -> Value {
    let mut object = json!({"apiVersion": format!("g.io/{version}"), "kind": "T", "metadata": {"name": "n"}});
    for (name, probability) in [("spec", 95), ("status", 40)] {
        if random.percent(probability) {
            object[name] = value(random, &schema["properties"][name], invalid);
        }
    }
    object
}

fn change_part(random: &mut Random, schema: &Value, object: &mut Value, name: &str, invalid: u64) {
    let schema = &schema["properties"][name];
    if object[name].is_null() {
        object[name] = value(random, schema, invalid);
    } else {
        change(random, schema, &mut object[name], invalid);
    }
}

/// Sets the annotation of client-side apply to a part of the object.
fn set_last_applied(random: &mut Random, schema: &Value, object: &mut Value) {
    let configuration = json!({
        "apiVersion": object["apiVersion"], "kind": "T", "metadata": {"name": "n"},
        "spec": part(random, &schema["properties"]["spec"], &object["spec"]),
    });
    let text = if random.percent(5) { "no json".to_owned() } else { configuration.to_string() };
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][LAST_APPLIED] = text.into();
}

/// Clients that do not know managedFields send none, some reset them, and few change them.
fn change_managed_fields(random: &mut Random, object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    match random.below(40) {
        0 => {
            metadata.insert("managedFields".to_owned(), json!([]));
        }
        1 => {
            metadata.insert("managedFields".to_owned(), json!([{}]));
        }
        2..=7 => {
            if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut)
                && !entries.is_empty()
            {
                change_entries(random, entries);
            }
        }
        8..=15 => {
            metadata.remove("managedFields");
        }
        _ => {}
    }
}

fn change_entries(random: &mut Random, entries: &mut Vec<Value>) {
    let index = random.below(entries.len());
    match random.below(9) {
        0 => {
            entries.remove(index);
        }
        1 => entries[index]["manager"] = json!("d"),
        2 => entries[index]["operation"] = json!("Update"),
        3 => entries[index]["operation"] = json!("Bogus"),
        4 => entries[index]["apiVersion"] = json!("g.io/v3"),
        5 => entries[index]["fieldsV1"] = json!({"f:spec": {"f:a": {}, "f:zz": {".": {}, "f:y": {}}}}),
        6 => entries[index]["fieldsV1"] = json!({"x:spec": {}}),
        7 => entries[index]["time"] = entries[0]["time"].clone(),
        _ => {
            if let Some(entry) = entries[index].as_object_mut() {
                entry.remove("time");
            }
        }
    }
}

/// The object in another version.
pub(crate) fn converted(mut object: Value, api_version: &str, rename: bool) -> Value {
    if object["apiVersion"] == api_version {
        return object;
    }
    let (from, to) = if api_version == "g.io/v2" { ("a", "renamed") } else { ("renamed", "a") };
    if rename
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(value) = spec.remove(from)
    {
        spec.insert(to.into(), value);
    }
    object["apiVersion"] = api_version.into();
    object
}

/// The object after an update, but for its managedFields.
pub(crate) fn written(step: &Step) -> Value {
    let mut object = step.object.clone();
    take_managed(&mut object);
    if object["metadata"]["uid"].is_null() {
        object["metadata"]["uid"] = "uid".into();
    }
    object
}

pub(crate) fn take_managed(object: &mut Value) -> Option<Value> {
    object["metadata"].as_object_mut()?.remove("managedFields").filter(|managed| !managed.is_null())
}
