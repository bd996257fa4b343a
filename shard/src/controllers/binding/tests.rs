#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use fairlead_api::{ExportReference, condition_type, finalizer};
use fairlead_apiserver::hub::SubscriptionEnd;
use fairlead_apiserver::registry::Conversion;

use serde_json::json;

use super::super::testing::{Shard, condition};
use super::*;
use crate::exports::as_bound;

const BINDINGS: &str = "apibindings.apis.kcp.io";
const WORKSPACES: &str = "workspaces.tenancy.kcp.io";
const EXPORTS: &str = "apiexports.apis.kcp.io";
const SCHEMAS: &str = "apiresourceschemas.apis.kcp.io";
const THINGS: &str = "things.example.com";

#[test]
fn foreign_locks_are_preserved() {
    let text = r#"{"a.x":{"n":"mine"},"b.x":{"c":true,"e":"2026-01-01T00:00:00Z"}}"#;
    assert_eq!(ResourceLocks::parse(text).to_json(), text);
    assert_eq!(ResourceLocks::parse("nonsense"), ResourceLocks::default());
}

#[tokio::test(start_paused = true)]
async fn a_binding_to_the_current_resources_is_settled() {
    let shard = Shard::start().await;
    let controller = controller(&shard);
    let bound =
        as_bound(binding("mine"), shard.root_exports.get("tenancy.kcp.io").unwrap(), Timestamp::now());
    let changed = |change: fn(&mut Value)| {
        let mut binding = bound.clone();
        change(&mut binding);
        controller.is_settled("abc", binding.to_string().as_bytes())
    };
    assert!(changed(|_| {}));
    assert!(!changed(|binding| binding["status"]["phase"] = "Binding".into()));
    assert!(!changed(|binding| binding["status"] = json!({})));
    assert!(!changed(|binding| binding["metadata"]["deletionTimestamp"] = "x".into()));
    assert!(!changed(|binding| binding["status"]["boundResources"][0]["schema"]["UID"] = "earlier".into()));
    assert!(!changed(
        |binding| binding["status"]["exportPermissionClaims"] = json!([{"resource": "secrets"}])
    ));
    assert!(!changed(|binding| binding["spec"]["reference"]["export"]["name"] = "unknown".into()));
    assert!(!changed(|binding| binding["metadata"]["annotations"] = json!({"extra.apis.kcp.io/a": "old"})));
    assert!(changed(|binding| binding["metadata"]["annotations"] = json!({"example.com/a": "own"})));
    assert!(
        !changed(|binding| binding["status"]["boundResources"][0]["schema"]["identityHash"] = "x".into())
    );
    assert!(!changed(|binding| binding["status"]["apiExportClusterName"] = "other".into()));
    // The export was missing, and a process ended before the binding said that it is back.
    for kind in [condition_type::API_EXPORT_VALID, condition_type::BINDING_UP_TO_DATE] {
        let mut binding = bound.clone();
        let mut conditions = fairlead_api::conditions_of(&binding);
        let unmet =
            fairlead_api::Condition::unmet(kind, fairlead_api::Severity::Error, "APIExportNotFound", "");
        fairlead_api::set_condition(&mut conditions, unmet, Timestamp::now());
        fairlead_api::write_conditions(&mut binding, &conditions);
        assert!(!controller.is_settled("abc", binding.to_string().as_bytes()), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_binding_has_the_extra_annotations_of_its_export() {
    let shard = Shard::start().await;
    let mut export = PublishedExport::clone(shard.root_exports.get("tenancy.kcp.io").unwrap());
    let annotated = |annotations: Value| {
        let mut binding = binding("mine");
        binding["metadata"]["annotations"] = annotations;
        binding
    };
    let annotations_after = |binding: &Value, export: Option<&PublishedExport>| {
        let plan = bind(binding, &context(export), Timestamp::UNIX_EPOCH);
        plan.binding.unwrap()["metadata"]["annotations"].clone()
    };
    let mut object = (*export.object).clone();
    object["metadata"]["annotations"] =
        json!({"extra.apis.kcp.io/docs": "new", "extra.apis.kcp.io/b": "b", "example.com/own": "x"});
    let plain = export.clone();
    export.object = Arc::new(object);
    let old = json!({"extra.apis.kcp.io/docs": "old", "extra.apis.kcp.io/gone": "", "example.com/mine": "y"});
    for (before, export, after) in [
        (
            old.clone(),
            Some(&export),
            json!({
                "example.com/mine": "y", "extra.apis.kcp.io/b": "b", "extra.apis.kcp.io/docs": "new",
            }),
        ),
        (old.clone(), Some(&plain), json!({"example.com/mine": "y"})),
        (old, None, json!({"example.com/mine": "y"})),
        (json!({"extra.apis.kcp.io/gone": ""}), Some(&plain), Value::Null),
        (Value::Null, Some(&export), json!({"extra.apis.kcp.io/b": "b", "extra.apis.kcp.io/docs": "new"})),
    ] {
        assert_eq!(annotations_after(&annotated(before), export), after);
    }
    let bound = bind(&binding("mine"), &context(Some(&export)), Timestamp::UNIX_EPOCH).binding.unwrap();
    let decoded = bound.to_string();
    let decoded = PartialBinding::decode(decoded.as_bytes()).unwrap();
    assert!(has_extra_annotations(&decoded, &export) && !has_extra_annotations(&decoded, &plain));
}

#[tokio::test(start_paused = true)]
async fn a_bound_binding_keeps_its_status_until_the_replicas_of_its_export_are_read() {
    let shard = Shard::start().await;
    let mut bound = binding_to("mine", "elsewhere", "things");
    let waits = |binding: &Value| {
        let need = controller(&shard).need_of("abc", binding.to_string().as_bytes());
        matches!(need, Ok(Need::Replicas))
    };
    assert!(!waits(&bound), "an export that was never found");
    bound["status"] = json!({"phase": "Bound", "apiExportClusterName": "elsewhere"});
    assert!(waits(&bound));
    bound["metadata"]["deletionTimestamp"] = "x".into();
    assert!(!waits(&bound));
    shard.workspace("provider").await;
    let mut local = binding_to("mine", "provider", "things");
    local["status"] = json!({"phase": "Bound", "apiExportClusterName": "provider"});
    assert!(!waits(&local), "an export of this shard");
}

#[tokio::test(start_paused = true)]
async fn resources_are_bound_only_where_they_are_free() {
    let shard = Shard::start().await;
    let export = shard.root_exports.get("tenancy.kcp.io").unwrap();
    let mine = binding("mine");
    let other = binding("other");
    let none: &[&Value] = &[];
    let one: &[&Value] = &[&other];
    let lock = |holder: &str| format!(r#"{{"workspaces.tenancy.kcp.io":{{"n":"{holder}"}}}}"#);
    for (locks, others, crds, conflict) in [
        ("{}".to_owned(), none, None, None),
        (lock("mine"), one, None, None),
        (lock("vanished"), one, None, None),
        (r#"{"workspaces.tenancy.kcp.io":{"c":true}}"#.to_owned(), none, None, None),
        (lock("other"), one, None, Some("map[workspaces.tenancy.kcp.io:{other false}]")),
        (
            "{}".to_owned(),
            none,
            Some("workspaces.tenancy.kcp.io"),
            Some("map[workspaces.tenancy.kcp.io:{ true}]"),
        ),
    ] {
        let context = BindContext {
            locks: ResourceLocks::parse(&locks),
            others,
            holders: crds.into_iter().map(definition).collect(),
            ..context(Some(export))
        };
        let plan = bind(&mine, &context, Timestamp::UNIX_EPOCH);
        let bound = plan.binding.unwrap();
        let resources: Vec<&str> =
            bound_resources(&bound).filter_map(|resource| resource["resource"].as_str()).collect();
        assert!(resources.contains(&"workspacetypes"), "a free resource is bound in any case");
        assert_eq!(resources.contains(&"workspaces"), conflict.is_none(), "{locks}");
        match conflict {
            None => {
                assert_eq!(bound["status"]["phase"], "Bound", "{locks}");
                assert_eq!(plan.locks.0["workspaces.tenancy.kcp.io"].binding.as_deref(), Some("mine"));
            }
            Some(conflict) => {
                assert_eq!(bound["status"]["phase"], "Binding", "{locks}");
                assert_eq!(
                    plan.locks.0.get("workspaces.tenancy.kcp.io"),
                    context.locks.0.get("workspaces.tenancy.kcp.io")
                );
                for kind in [condition_type::READY, condition_type::BINDING_UP_TO_DATE] {
                    let (holds, reason, message) = condition(&bound, kind).unwrap();
                    assert_eq!((holds, &*reason), (false, "NamingConflicts"));
                    assert_eq!(
                        message,
                        format!(
                            "Unable to bind APIs because they are bound by other APIBindings or CRDs: {conflict}"
                        )
                    );
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_bound_binding_stays_bound_when_its_resources_conflict() {
    let shard = Shard::start().await;
    let export = shard.root_exports.get("tenancy.kcp.io").unwrap();
    let with_locks =
        |locks: &str| BindContext { locks: ResourceLocks::parse(locks), ..context(Some(export)) };
    let mut mine = binding("mine");
    mine["metadata"]["finalizers"] = json!(["example.com/f"]);
    let first = bind(&mine, &with_locks("{}"), Timestamp::UNIX_EPOCH);
    let bound = first.binding.unwrap();
    assert_eq!(bound["metadata"]["finalizers"], json!(["example.com/f", finalizer::API_BINDING]));
    let again = bind(&bound, &with_locks(&first.locks.to_json()), Timestamp::from_second(9).unwrap());
    assert_eq!(again.binding.as_ref(), Some(&bound));
    let mut conflicts = with_locks("{}");
    conflicts.holders.push(definition("workspaces.tenancy.kcp.io"));
    let conflict = bind(&bound, &conflicts, Timestamp::UNIX_EPOCH).binding.unwrap();
    assert_eq!(conflict["status"]["phase"], "Bound");
    assert_eq!(conflict["status"]["boundResources"], bound["status"]["boundResources"]);
    assert!(condition(&conflict, condition_type::INITIAL_BINDING_COMPLETED).unwrap().0);
    assert!(!condition(&conflict, condition_type::BINDING_UP_TO_DATE).unwrap().0);
}

#[tokio::test(start_paused = true)]
async fn a_binding_says_why_it_does_not_bind() {
    let shard = Shard::start().await;
    let complete = &**shard.root_exports.get("tenancy.kcp.io").unwrap();
    let without_identity = PublishedExport { identity: None, ..complete.clone() };
    let without_schema = PublishedExport { missing_schema: Some("v1.a.b".into()), ..complete.clone() };
    let invalid = "Invalid APIExport. Please contact the APIExport owner to resolve: APIResourceSchema \"v1.a.b\" not found";
    for (export, reason, message) in [
        (None, "APIExportNotFound", "APIExport root|tenancy.kcp.io not found"),
        (
            Some(&without_identity),
            "MissingIdentityHash",
            "APIExport root|tenancy.kcp.io is missing status.identityHash",
        ),
        (Some(&without_schema), "InternalError", invalid),
    ] {
        let bound = bind(&binding("mine"), &context(export), Timestamp::UNIX_EPOCH).binding.unwrap();
        assert_eq!(bound["status"]["phase"], "Binding");
        let (holds, found, text) = condition(&bound, condition_type::API_EXPORT_VALID).unwrap();
        assert_eq!((holds, &*found, &*text), (false, reason, message));
        let waiting = condition(&bound, condition_type::READY).unwrap();
        assert_eq!((waiting.0, &*waiting.1), (false, "WaitingForEstablished"));
    }
}

#[tokio::test(start_paused = true)]
async fn names_in_use_are_not_bound() {
    let shard = Shard::start().await;
    let export = shard.root_exports.get("tenancy.kcp.io").unwrap();
    let names = |plural: &str, kind: &str, short: &str| CrdNames {
        plural: plural.to_owned(),
        kind: kind.to_owned(),
        short_names: vec![short.to_owned()],
        ..CrdNames::default()
    };
    let by_definition =
        || NameOwner::Definition { name: "x.tenancy.kcp.io".to_owned(), is_established: true };
    let by_binding = |path: &str| NameOwner::Binding {
        name: "theirs".to_owned(),
        export_path: path.to_owned(),
        export: "e".to_owned(),
    };
    for (names, owner, details) in [
        (
            names("xs", "Workspace", "x"),
            by_definition(),
            "naming conflict with CustomResourceDefinition \"x.tenancy.kcp.io\": spec.names.kind=Workspace is forbidden",
        ),
        (
            names("xs", "X", "ws"),
            by_binding("root:p"),
            "naming conflict with APIBinding \"theirs\" bound to APIExport root:p:e: spec.names.shortNames=[ws] is forbidden",
        ),
        (
            names("workspaces", "X", "x"),
            by_binding(""),
            "naming conflict with APIBinding \"theirs\" bound to local APIExport \"e\": spec.names.plural=workspaces is forbidden",
        ),
    ] {
        let mut context = context(Some(export));
        context.holders.push(NameHolder {
            group: "tenancy.kcp.io".to_owned(),
            names: names.into(),
            uid: "u".to_owned(),
            owner,
        });
        let bound = bind(&binding("mine"), &context, Timestamp::UNIX_EPOCH).binding.unwrap();
        let (holds, reason, message) = condition(&bound, condition_type::INITIAL_BINDING_COMPLETED).unwrap();
        assert_eq!(
            (holds, &*reason, message),
            (false, "NamingConflicts", format!("Unable to bind APIs: {details}"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_workspace_binds_the_export_of_another_one() {
    let shard = Shard::start().await;
    shard.workspace("provider").await;
    shard.workspace("consumer").await;
    shard.create("consumer", BINDINGS, binding_to("mine", "provider", "things")).await.unwrap();
    let read = |name: &str| shard.get("consumer", BINDINGS, None, name).unwrap();
    let reason = |kind: &str| condition(&read("mine"), kind).map(|one| one.1);
    shard
        .until("it waits", || {
            reason(condition_type::API_EXPORT_VALID).as_deref() == Some("APIExportNotFound")
        })
        .await;
    shard.create("provider", SCHEMAS, schema("v1", "first")).await.unwrap();
    shard.create("provider", EXPORTS, export("things", &["v1"])).await.unwrap();
    shard.until("it is bound", || read("mine")["status"]["phase"] == "Bound").await;
    shard.settle().await;
    let bound = read("mine");
    assert_eq!(bound["status"]["apiExportClusterName"], "provider");
    let exported = shard.get("provider", EXPORTS, None, "things").unwrap();
    let identity = exported["status"]["identityHash"].as_str().unwrap().to_owned();
    assert_eq!(bound["status"]["boundResources"][0]["schema"]["identityHash"], identity);
    assert_eq!(bound["status"]["boundResources"][0]["storageVersions"], json!(["v1"]));
    shard.create("consumer", THINGS, thing("a")).await.unwrap();
    let refused = shard.create("provider", THINGS, thing("a")).await.unwrap_err();
    assert_eq!(refused.code, 404, "the provider does not serve its export");
    shard.create("provider", SCHEMAS, schema("v2", "second")).await.unwrap();
    shard
        .change("provider", EXPORTS, None, "things", |export| {
            export["spec"]["resources"][0]["schema"] = "v2.things.example.com".into();
        })
        .await;
    let schema_name = || read("mine")["status"]["boundResources"][0]["schema"]["name"].clone();
    shard.until("it follows the export", || schema_name() == "v2.things.example.com").await;
    assert!(shard.get("consumer", THINGS, None, "a").is_some(), "objects stay");
    shard.settle().await;
    let name = ResourceName::new("example.com", "things");
    let everywhere = shard.definitions.bindings().newest_schema(&identity, &name).unwrap();
    assert_eq!(
        everywhere,
        read("mine")["status"]["boundResources"][0]["schema"]["UID"].as_str().unwrap().into()
    );
    shard.delete("consumer", BINDINGS, None, "mine").await;
    shard.until("it is removed", || shard.get("consumer", BINDINGS, None, "mine").is_none()).await;
    assert!(shard.keys("consumer").iter().all(|key| !key.contains("/things/")));
    shard.settle().await;
    assert_eq!(shard.definitions.bindings().newest_schema(&identity, &name), None);
}

#[tokio::test(start_paused = true)]
async fn a_new_schema_needs_no_decision_about_names_if_it_keeps_them() {
    let shard = Shard::start().await;
    shard.workspace("provider").await;
    shard.workspace("consumer").await;
    shard.create("provider", SCHEMAS, schema("v1", "first")).await.unwrap();
    shard.create("provider", EXPORTS, export("things", &["v1"])).await.unwrap();
    shard.create("consumer", BINDINGS, binding_to("mine", "provider", "things")).await.unwrap();
    let read = || shard.get("consumer", BINDINGS, None, "mine").unwrap();
    shard.until("it is bound", || read()["status"]["phase"] == "Bound").await;
    shard.settle().await;
    let controller = controller(&shard);
    let published = shard.exports.find("provider", "things").unwrap().unwrap();
    let second = PublishedSchema { uid: "second".into(), ..published.schemas[0].clone() };
    let with = |schemas: &[&PublishedSchema]| PublishedExport {
        schemas: schemas.iter().copied().cloned().collect(),
        ..(*published).clone()
    };
    let mut other_kind = second.clone();
    other_kind.names.kind = "Other".to_owned();
    let other_resource = PublishedSchema { resource: "others".into(), ..second.clone() };
    let unknown_identity = PublishedExport { identity: Some("other".into()), ..with(&[&second]) };
    let (bound, mut waiting) = (read(), read());
    waiting["status"]["phase"] = "Binding".into();
    for (what, binding, export, keeps) in [
        ("the same schema", &bound, with(&[&published.schemas[0]]), true),
        ("another schema of the same names", &bound, with(&[&second]), true),
        ("fewer resources", &bound, with(&[]), true),
        ("another kind", &bound, with(&[&other_kind]), false),
        ("another resource", &bound, with(&[&second, &other_resource]), false),
        ("another identity", &bound, unknown_identity, false),
        ("a binding that was never bound", &waiting, with(&[&second]), false),
    ] {
        let json = binding.to_string();
        let binding = PartialBinding::decode(json.as_bytes()).unwrap();
        assert_eq!(controller.keeps_names(&binding, &export).unwrap(), keeps, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn objects_are_converted_by_the_rules_of_the_provider() {
    let shard = Shard::start().await;
    shard.workspace("provider").await;
    shard.workspace("consumer").await;
    let mut converted = schema("v1", "old");
    converted["spec"]["conversion"] = json!({"strategy": "None"});
    let second = json!({"name": "v2", "served": true, "storage": false,
                        "schema": {"type": "object", "properties": {"new": {"type": "string"}}}});
    converted["spec"]["versions"].as_array_mut().unwrap().push(second);
    shard.create("provider", SCHEMAS, converted).await.unwrap();
    let rule =
        |expression: &str| json!([{"field": "old", "destination": "new", "transformation": expression}]);
    let conversion = |expression: &str| {
        json!({
            "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion",
            "metadata": {"name": "v1.things.example.com"},
            "spec": {"conversions": [{"from": "v1", "to": "v2", "rules": rule(expression)}]},
        })
    };
    const CONVERSIONS: &str = "apiconversions.apis.kcp.io";
    const NAME: &str = "v1.things.example.com";
    shard.create("provider", CONVERSIONS, conversion("'first ' + self")).await.unwrap();
    shard.create("provider", EXPORTS, export("things", &["v1"])).await.unwrap();
    shard.create("consumer", BINDINGS, binding_to("mine", "provider", "things")).await.unwrap();
    let things = || {
        let catalog = shard.definitions.catalog(&Scope::new("consumer")).unwrap();
        let mut resources = catalog.resources.iter();
        resources.find(|resource| &*resource.name.resource == "things").cloned()
    };
    let to_second = || match &things()?.conversion {
        Conversion::Rules(rules) => {
            let object = json!({"apiVersion": "example.com/v1", "kind": "Thing", "old": "x"});
            rules.convert(object, "v2").unwrap()["new"].as_str().map(ToOwned::to_owned)
        }
        _ => None,
    };
    shard.settle().await;
    assert_eq!(to_second().as_deref(), Some("first x"), "the rules from before the binding");
    let first = things().unwrap();
    let watch = shard.watch("consumer", THINGS);
    shard
        .change("provider", CONVERSIONS, None, NAME, |one| {
            one["spec"]["conversions"][0]["rules"] = rule("'second ' + self");
        })
        .await;
    shard.settle().await;
    assert_eq!(to_second().as_deref(), Some("second x"));
    assert!(things().unwrap().key != first.key, "another definition");
    assert!(matches!(watch.next().await, Err(SubscriptionEnd::Cancelled)), "watches end");
    shard.delete("provider", CONVERSIONS, None, NAME).await;
    shard.settle().await;
    assert!(things().is_some() && to_second().is_none());
    shard.create("provider", CONVERSIONS, conversion("'third ' + self")).await.unwrap();
    shard.settle().await;
    assert_eq!(to_second().as_deref(), Some("third x"));
    // Objects of a schema keep their rules after the provider has removed it.
    shard.delete("provider", SCHEMAS, None, NAME).await;
    shard.delete("provider", CONVERSIONS, None, NAME).await;
    shard.settle().await;
    assert_eq!(to_second().as_deref(), Some("third x"));
}

#[tokio::test(start_paused = true)]
async fn a_second_binding_waits_for_the_removal_of_the_first() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let first = default_binding_name(&shard);
    shard.create("abc", BINDINGS, binding("second")).await.unwrap();
    let second = || shard.get("abc", BINDINGS, None, "second").unwrap();
    let conflicts = || {
        condition(&second(), condition_type::BINDING_UP_TO_DATE).is_some_and(|one| one.1 == "NamingConflicts")
    };
    shard.until("it conflicts", conflicts).await;
    shard.create("abc", WORKSPACES, workspace("kept", json!([]))).await.unwrap();
    shard.delete("abc", BINDINGS, None, &first).await;
    shard.until("it is bound", || second()["status"]["phase"] == "Bound").await;
    assert_eq!(shard.get("abc", BINDINGS, None, &first), None);
    let locks = ResourceLocks::of(&shard.logical_cluster("abc").unwrap());
    assert_eq!(locks.0["workspaces.tenancy.kcp.io"].binding.as_deref(), Some("second"));
    let is_stored = shard.keys("abc").iter().any(|key| key.ends_with("/kept"));
    assert!(is_stored, "objects of an export that another binding refers to are kept");
    shard.settle().await;
    assert!(shard.get("abc", WORKSPACES, None, "kept").is_some());
}

#[tokio::test(start_paused = true)]
async fn the_objects_of_a_removed_binding_always_have_an_owner() {
    const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
    let shard = Shard::start().await;
    shard.workspace("provider").await;
    shard.workspace("consumer").await;
    shard.create("provider", SCHEMAS, schema("v1", "first")).await.unwrap();
    shard.create("provider", EXPORTS, export("things", &["v1"])).await.unwrap();
    let read = |name: &str| shard.get("consumer", BINDINGS, None, name).unwrap();
    shard.create("consumer", BINDINGS, binding_to("first", "provider", "things")).await.unwrap();
    shard.until("it is bound", || read("first")["status"]["phase"] == "Bound").await;
    shard.create("consumer", BINDINGS, binding_to("second", "provider", "things")).await.unwrap();
    let conflicts =
        || condition(&read("second"), condition_type::BINDING_UP_TO_DATE).is_some_and(|one| !one.0);
    shard.until("it conflicts", conflicts).await;
    // A CRD waits for the name, too.
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": THINGS},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                          "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    shard.create("consumer", DEFINITIONS, definition).await.unwrap();
    let definition = || shard.get("consumer", DEFINITIONS, None, THINGS).unwrap();
    assert!(!has_condition(&definition(), "Established"));
    shard.create("consumer", THINGS, thing("a")).await.unwrap();
    let things = || shard.keys("consumer").iter().filter(|key| key.contains("/things")).count();
    let before = things();
    shard.delete("consumer", BINDINGS, None, "first").await;
    shard.until("it is removed", || shard.get("consumer", BINDINGS, None, "first").is_none()).await;
    let locks = || ResourceLocks::of(&shard.logical_cluster("consumer").unwrap());
    assert_eq!(locks().0[THINGS].binding.as_deref(), Some("second"), "in the commit of the removal");
    assert_eq!(read("second")["status"]["boundResources"][0]["resource"], "things");
    assert_eq!(things(), before);
    shard.settle().await;
    assert_eq!(read("second")["status"]["phase"], "Bound");
    shard.delete("consumer", BINDINGS, None, "second").await;
    shard.until("it is removed, too", || shard.get("consumer", BINDINGS, None, "second").is_none()).await;
    assert_eq!(things(), before - 1, "the object is removed, the CRD stays");
}

#[tokio::test(start_paused = true)]
async fn schemas_that_exceed_a_commit_are_bound_in_several() {
    let shard = Shard::start().await;
    shard.workspace("provider").await;
    shard.workspace("consumer").await;
    let long = "x".repeat(1_300_000);
    let versions: Vec<String> = (0..16).map(|number| format!("v{number}")).collect();
    for version in &versions {
        let mut schema = schema(version, "first");
        schema["spec"]["versions"][0]["schema"]["description"] = long.clone().into();
        let (plural, kind) = (format!("things{version}"), format!("Thing{version}"));
        schema["metadata"]["name"] = format!("{version}.{plural}.example.com").into();
        schema["spec"]["names"] =
            json!({"plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List")});
        shard.create("provider", SCHEMAS, schema).await.unwrap();
    }
    let mut export = export("things", &[]);
    let resources = versions.iter().map(|version| {
        let name = format!("things{version}");
        json!({"group": "example.com", "name": name, "schema": format!("{version}.{name}.example.com"),
               "storage": {"crd": {}}})
    });
    export["spec"]["resources"] = resources.collect();
    shard.create("provider", EXPORTS, export).await.unwrap();
    shard.create("consumer", BINDINGS, binding_to("mine", "provider", "things")).await.unwrap();
    let read = || shard.get("consumer", BINDINGS, None, "mine").unwrap();
    shard.until("it is bound", || read()["status"]["phase"] == "Bound").await;
    assert_eq!(bound_resources(&read()).count(), versions.len());
}

#[tokio::test(start_paused = true)]
async fn deleting_a_binding_removes_its_objects_and_locks() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.workspace("other").await;
    let first = default_binding_name(&shard);
    for cluster in ["abc", "other"] {
        shard.create(cluster, WORKSPACES, workspace("free", json!([]))).await.unwrap();
    }
    shard.create("abc", WORKSPACES, workspace("held", json!([finalizer::WORKSPACE]))).await.unwrap();
    shard.delete("abc", BINDINGS, None, &first).await;
    shard.settle().await;
    let left = shard.get("abc", BINDINGS, None, &first).unwrap();
    let (holds, reason, message) = condition(&left, condition_type::BINDING_RESOURCE_DELETE_SUCCESS).unwrap();
    assert_eq!((holds, &*reason), (false, "SomeFinalizersRemain"));
    assert!(message.ends_with("core.kcp.io/logicalcluster in 1 resource instances"), "{message}");
    assert!(shard.get("abc", WORKSPACES, None, "held").unwrap()["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(shard.get("abc", WORKSPACES, None, "free"), None);
    shard
        .change("abc", WORKSPACES, None, "held", |object| object["metadata"]["finalizers"] = json!([]))
        .await;
    shard.until("it is removed", || shard.get("abc", BINDINGS, None, &first).is_none()).await;
    assert!(shard.keys("abc").iter().all(|key| !key.contains("/workspaces/")));
    assert!(shard.get("other", WORKSPACES, None, "free").is_some());
    let locks = ResourceLocks::of(&shard.logical_cluster("abc").unwrap());
    assert!(!locks.0.is_empty() && locks.0.values().all(|lock| lock.binding.as_deref() != Some(&first)));
}

fn binding(name: &str) -> Value {
    let reference = ExportReference { path: "root".to_owned(), name: "tenancy.kcp.io".to_owned() };
    fairlead_api::api_binding(name, &reference, "root", "root:w", &[])
}

fn workspace(name: &str, finalizers: Value) -> Value {
    json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
        "metadata": {"name": name, "finalizers": finalizers},
        "spec": {"type": {"name": "universal", "path": "root"}},
    })
}

/// The default binding to `tenancy.kcp.io`.
fn default_binding_name(shard: &Shard) -> String {
    let locks = ResourceLocks::of(&shard.logical_cluster("abc").unwrap());
    locks.0["workspaces.tenancy.kcp.io"].binding.clone().unwrap()
}

fn controller(shard: &Shard) -> Bindings {
    Bindings {
        objects: shard.objects.clone(),
        definitions: shard.definitions.clone(),
        clusters: ClusterIndex::follow(&shard.objects, &shard.hub).unwrap(),
        exports: shard.exports.clone(),
    }
}

fn context(export: Option<&PublishedExport>) -> BindContext<'_> {
    BindContext {
        cluster: "abc",
        export,
        locks: ResourceLocks::default(),
        others: &[],
        holders: Vec::new(),
        obstacles: Obstacles::default(),
    }
}

/// An established CRD, in another group than the name says, so that only its resource conflicts.
fn definition(name: &str) -> NameHolder {
    NameHolder {
        group: "example.com".to_owned(),
        names: Arc::default(),
        uid: "u".to_owned(),
        owner: NameOwner::Definition { name: name.to_owned(), is_established: true },
    }
}

fn binding_to(name: &str, path: &str, export: &str) -> Value {
    let reference = ExportReference { path: path.to_owned(), name: export.to_owned() };
    fairlead_api::api_binding(name, &reference, path, "root:w", &[])
}

fn export(name: &str, schemas: &[&str]) -> Value {
    let resources = schemas.iter().map(|prefix| {
        json!({"group": "example.com", "name": "things", "schema": format!("{prefix}.things.example.com"), "storage": {"crd": {}}})
    });
    json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport",
        "metadata": {"name": name}, "spec": {"resources": resources.collect::<Vec<_>>()},
    })
}

fn schema(prefix: &str, field: &str) -> Value {
    json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": {"name": format!("{prefix}.things.example.com")},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                          "schema": {"type": "object", "properties": {field: {"type": "string"}}}}],
        },
    })
}

fn thing(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}})
}
