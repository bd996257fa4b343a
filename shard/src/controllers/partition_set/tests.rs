#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;

use serde_json::json;

use super::super::testing::{Shard, condition};
use super::*;
use crate::placement::ShardInfo;

const SETS: &str = "partitionsets.topology.kcp.io";
const PARTITIONS_RESOURCE: &str = "partitions.topology.kcp.io";

fn labels(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn shard_info(of: &[(&str, &str)]) -> ShardInfo {
    ShardInfo { labels: labels(of), ..ShardInfo::default() }
}

fn set(spec: Value) -> Value {
    json!({"metadata": {"name": "set", "uid": "u1"}, "spec": spec})
}

fn partition(selector: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"selector": selector}})
}

fn planned(set: &Value, shards: &[ShardInfo], partitions: &[Value]) -> plan::Plan {
    plan(set, shards, partitions, Timestamp::UNIX_EPOCH, |prefix| Ok(format!("{prefix}xxxxx"))).unwrap()
}

#[test]
fn each_group_of_shards_gets_one_partition() {
    let shards = [
        shard_info(&[("region", "Europe"), ("cloud", "Azure"), ("az", "1")]),
        shard_info(&[("region", "Europe"), ("cloud", "Azure"), ("az", "2")]),
        shard_info(&[("region", "Europe"), ("cloud", "AWS")]),
        shard_info(&[("region", "Asia"), ("cloud", "Azure"), ("hidden", "")]),
        shard_info(&[("region", "Asia")]),
    ];
    let visible = json!({"matchExpressions": [{"key": "hidden", "operator": "DoesNotExist"}]});
    for (spec, expected) in [
        (json!({}), vec![]),
        (json!({"dimensions": ["other"]}), vec![]),
        (json!({"dimensions": ["region"]}), vec!["set-asia-xxxxx", "set-europe-xxxxx"]),
        (
            json!({"dimensions": ["region"], "shardSelector": visible}),
            vec!["set-asia-xxxxx", "set-europe-xxxxx"],
        ),
        (
            json!({"dimensions": ["region", "cloud", "region"]}),
            vec!["set-azure-asia-xxxxx", "set-aws-europe-xxxxx", "set-azure-europe-xxxxx"],
        ),
        (
            json!({"dimensions": ["region", "cloud"], "shardSelector": visible}),
            vec!["set-aws-europe-xxxxx", "set-azure-europe-xxxxx"],
        ),
        (json!({"shardSelector": {"matchLabels": {"cloud": "Azure"}}}), vec!["set-xxxxx"]),
        (
            json!({"dimensions": ["cloud"], "shardSelector": {"matchLabels": {"cloud": "Azure"}}}),
            vec!["set-azure-xxxxx"],
        ),
    ] {
        let plan = planned(&set(spec.clone()), &shards, &[]);
        let mut names: Vec<&str> =
            plan.missing.iter().map(|one| one["metadata"]["name"].as_str().unwrap()).collect();
        let mut expected = expected;
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected, "{spec}");
        assert_eq!(plan.set["status"]["count"].as_u64().unwrap_or(0), names.len() as u64, "{spec}");
        assert!(condition(&plan.set, "PartitionSetValid").unwrap().0, "{spec}");
        assert!(condition(&plan.set, "PartitionsReady").unwrap().0, "{spec}");
        // Planning again with these Partitions changes nothing.
        let again = planned(&plan.set, &shards, &plan.missing);
        assert_eq!((again.obsolete, again.missing, &again.set), (vec![], vec![], &plan.set), "{spec}");
    }
}

#[test]
fn a_partition_selects_its_group_and_belongs_to_the_set() {
    let expressions = json!([{"key": "region", "operator": "Exists"}]);
    let spec = json!({"dimensions": ["region"], "shardSelector": {"matchExpressions": expressions}});
    let plan = planned(&set(spec), &[shard_info(&[("region", "us")])], &[]);
    assert_eq!(
        plan.missing,
        [json!({
            "apiVersion": "topology.kcp.io/v1alpha1",
            "kind": "Partition",
            "metadata": {
                "name": "set-us-xxxxx",
                "generateName": "set-us-",
                "ownerReferences": [{
                    "apiVersion": "topology.kcp.io/v1alpha1", "kind": "PartitionSet", "name": "set", "uid": "u1",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {"selector": {"matchLabels": {"region": "us"}, "matchExpressions": expressions}},
        })]
    );
}

#[test]
fn partitions_of_other_groups_or_expressions_are_deleted() {
    let expressions = json!([{"key": "region", "operator": "In", "values": ["eu", "us"]}]);
    let spec = json!({"dimensions": ["region"], "shardSelector": {"matchExpressions": expressions}});
    let shards = [shard_info(&[("region", "eu")]), shard_info(&[("region", "us")])];
    let partitions = [
        partition(json!({"matchLabels": {"region": "eu"}, "matchExpressions": expressions})),
        partition(json!({"matchLabels": {"region": "asia"}, "matchExpressions": expressions})),
        partition(json!({"matchLabels": {"region": "us"}})),
        partition(json!({"matchLabels": {"region": "us", "az": "1"}, "matchExpressions": expressions})),
        partition(Value::Null),
    ];
    let plan = planned(&set(spec), &shards, &partitions);
    assert_eq!(plan.obsolete, [1, 2, 3, 4]);
    assert_eq!(plan.missing.len(), 1);
    assert_eq!(plan.missing[0]["spec"]["selector"]["matchLabels"], json!({"region": "us"}));
}

#[test]
fn problems_are_shown_by_conditions() {
    let shards = [shard_info(&[("region", "not_a_name")]), shard_info(&[("region", "eu")])];
    let plan = planned(&set(json!({"dimensions": ["region"]})), &shards, &[]);
    let reason = "ErrorGeneratingPartitions";
    let failed = (false, reason.to_owned(), "partition could not get created".to_owned());
    assert_eq!(condition(&plan.set, "PartitionsReady"), Some(failed));
    assert_eq!(plan.missing.len(), 1, "the others are created");

    let invalid = json!({"shardSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}});
    let plan = planned(&set(invalid), &shards, &[partition(Value::Null)]);
    let message = r#""Like" is not a valid label selector operator"#;
    let failed = (false, "InvalidSelector".to_owned(), message.to_owned());
    assert_eq!(condition(&plan.set, "PartitionSetValid"), Some(failed));
    assert_eq!(condition(&plan.set, "PartitionsReady"), Some((false, reason.to_owned(), String::new())));
    assert!(plan.obsolete.is_empty() && plan.missing.is_empty());
}

fn stored_shard(name: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "core.kcp.io/v1alpha1", "kind": "Shard", "metadata": {"name": name, "labels": labels},
        "spec": {"baseURL": "https://base.example.com"},
    })
}

fn start(shard: &Shard) {
    let global = GlobalView::new();
    let controller = PartitionSetController {
        objects: shard.objects.clone(),
        hub: shard.hub.clone(),
        definitions: shard.definitions.clone(),
        clusters: shard.clusters.clone(),
        placement: shard.placement(&global),
        global,
    };
    controller.start(&shard.tasks, &shard.shutdown);
}

/// The labels and names of all Partitions in `abc`.
fn partitions(shard: &Shard) -> Vec<(Value, String)> {
    let origin = shard.definitions.exported(&PARTITIONS).unwrap().origin.clone();
    let one = ScopeSelector::One(Scope::new("abc"));
    let all = shard.objects.list(&PARTITIONS, &origin, &one, None).unwrap();
    let mut found: Vec<(Value, String)> = all
        .iter()
        .map(|stored| shard.objects.tree(stored).unwrap())
        .map(|one| {
            let name = one["metadata"]["name"].as_str().unwrap().to_owned();
            (one["spec"]["selector"]["matchLabels"].clone(), name)
        })
        .collect();
    found.sort_by_key(|(labels, _)| labels.to_string());
    found
}

async fn until_regions(shard: &Shard, regions: &[&str]) {
    let expected: Vec<Value> = regions.iter().map(|region| json!({"region": region})).collect();
    let holds = || {
        let set = shard.get("abc", SETS, None, "set").unwrap_or_default();
        let found: Vec<Value> = partitions(shard).into_iter().map(|(labels, _)| labels).collect();
        found == expected
            && set["status"]["count"].as_u64().unwrap_or(0) == regions.len() as u64
            && condition(&set, "PartitionsReady").is_some_and(|(is_ready, ..)| is_ready)
    };
    shard.until(&format!("partitions of {regions:?}"), holds).await;
}

#[tokio::test(start_paused = true)]
async fn partitions_follow_the_shards_and_the_set() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.ensure("root", stored_shard("base", json!({}))).await;
    start(&shard);
    let spec = json!({
        "dimensions": ["region"],
        "shardSelector": {"matchExpressions": [{"key": "excluded", "operator": "DoesNotExist"}]},
    });
    let object = json!({
        "apiVersion": "topology.kcp.io/v1alpha1", "kind": "PartitionSet", "metadata": {"name": "set"}, "spec": spec,
    });
    shard.create("abc", SETS, object).await.unwrap();
    until_regions(&shard, &[]).await;
    shard.ensure("root", stored_shard("s1", json!({"region": "r1"}))).await;
    until_regions(&shard, &["r1"]).await;
    let (_, first) = partitions(&shard).remove(0);
    assert!(first.starts_with("set-r1-") && first.len() == "set-r1-".len() + 5, "{first}");
    shard.ensure("root", stored_shard("s2", json!({"region": "r2"}))).await;
    until_regions(&shard, &["r1", "r2"]).await;
    shard.ensure("root", stored_shard("s2", json!({"region": "r1"}))).await;
    until_regions(&shard, &["r1"]).await;
    shard.ensure("root", stored_shard("s3", json!({"region": "r3"}))).await;
    until_regions(&shard, &["r1", "r3"]).await;
    shard.ensure("root", stored_shard("s3", json!({"excluded": "true"}))).await;
    until_regions(&shard, &["r1"]).await;
    assert_eq!(partitions(&shard).remove(0).1, first, "a group that stays keeps its Partition");

    shard.delete("abc", PARTITIONS_RESOURCE, None, &first).await;
    until_regions(&shard, &["r1"]).await;
    assert_ne!(partitions(&shard).remove(0).1, first, "a deleted Partition is replaced");
    shard.discard("root", &stored_shard("s1", json!({}))).await;
    shard.discard("root", &stored_shard("s2", json!({}))).await;
    until_regions(&shard, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_partition_with_finalizers_is_marked_and_all_go_with_the_set() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.ensure("root", stored_shard("s1", json!({"region": "r1"}))).await;
    start(&shard);
    let object = json!({
        "apiVersion": "topology.kcp.io/v1alpha1", "kind": "PartitionSet", "metadata": {"name": "set"},
        "spec": {"dimensions": ["region"]},
    });
    shard.create("abc", SETS, object).await.unwrap();
    until_regions(&shard, &["r1"]).await;
    let (_, first) = partitions(&shard).remove(0);
    let hold = |one: &mut Value| one["metadata"]["finalizers"] = json!(["example.com/f"]);
    shard.change("abc", PARTITIONS_RESOURCE, None, &first, hold).await;
    shard.ensure("root", stored_shard("s1", json!({"region": "r2"}))).await;
    shard.until("both partitions", || partitions(&shard).len() == 2).await;
    let marked = shard.get("abc", PARTITIONS_RESOURCE, None, &first).unwrap();
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    shard
        .change("abc", PARTITIONS_RESOURCE, None, &first, |one| one["metadata"]["finalizers"] = json!([]))
        .await;
    until_regions(&shard, &["r2"]).await;
    shard.delete("abc", SETS, None, "set").await;
    shard.until("the partitions are collected", || partitions(&shard).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn generated_names_are_truncated_to_58_characters_before_the_suffix() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    start(&shard);
    let values: Vec<String> = (1..=5).map(|nth| format!("label{nth}-{}", "1234567890".repeat(5))).collect();
    let pairs =
        || values.iter().enumerate().map(|(index, value)| (format!("l{index}"), Value::from(value.as_str())));
    shard.ensure("root", stored_shard("s1", Value::Object(pairs().collect()))).await;
    let dimensions: Vec<String> = pairs().map(|(label, _)| label).collect();
    let object = json!({
        "apiVersion": "topology.kcp.io/v1alpha1", "kind": "PartitionSet", "metadata": {"name": "set"},
        "spec": {"dimensions": dimensions},
    });
    shard.create("abc", SETS, object).await.unwrap();
    shard.until("the partition exists", || partitions(&shard).len() == 1).await;
    let expected = &format!("set-{}", values.join("-"))[..58];
    let (_, name) = partitions(&shard).remove(0);
    assert_eq!((name.len(), &name[..58]), (63, expected));
}

#[tokio::test(start_paused = true)]
async fn invalid_selectors_of_sets_are_refused() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let expression = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    let long = "1234567890".repeat(7);
    let definition = fairlead_api::resource("topology.kcp.io", "partitionsets").unwrap();
    for (index, (selector, is_valid)) in [
        (expression("region", "NotIn", json!(["antarctica"])), true),
        (expression(&format!("region/{long}"), "NotIn", json!(["antarctica"])), false),
        (expression("region", "NotIn", json!(["_A.1"])), false),
        (expression("region", "NotIn", json!([])), false),
        (expression("region", "DoesNotExist", json!(["antarctica"])), false),
        (expression("region", "Like", json!(["antarctica"])), false),
        (json!({"matchLabels": {"a_b/aaa": "value"}}), false),
        (json!({"matchLabels": {"key": "a%b"}}), false),
    ]
    .into_iter()
    .enumerate()
    {
        let object = json!({
            "apiVersion": "topology.kcp.io/v1alpha1", "kind": "PartitionSet",
            "metadata": {"name": format!("set-{index}")}, "spec": {"shardSelector": selector},
        });
        // The rules are part of the shard's admission, the rest of the schema of the registry.
        let follows_rules = definition.validate_rules("v1alpha1", None, &object).is_empty();
        let is_created = shard.create("abc", SETS, object).await.is_ok();
        assert_eq!(follows_rules && is_created, is_valid, "{selector}");
    }
}
