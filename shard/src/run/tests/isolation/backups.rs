//! Backups: who gets one, and what one of a workspace has.

use std::collections::BTreeSet;

use fairlead_names::Key;
use fairlead_store::{
    BackupContent, BackupReader, ExistingStore, Ownership, Range, RedbOptions, RedbStore, Store,
};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::installation::{CONSUMER, Installation, MASTER};
use crate::run::CODEC;

/// A record of a backup.
struct Found {
    key: String,
    value: Vec<u8>,
    ownership: Ownership,
}

impl Found {
    fn parts(&self) -> Key<'_> {
        CODEC.decode(self.key.as_bytes()).unwrap()
    }
}

async fn backup(installation: &Installation, path: &str) -> (BackupContent, Vec<Found>, Vec<u8>) {
    let response = installation.open(MASTER, "GET", path, &[], &Value::Null).await;
    assert_eq!(response.status(), 200, "{path}");
    assert_eq!(response.headers()["content-type"], "application/vnd.fairlead.backup");
    let bytes = response.into_body().collect().await.unwrap().to_bytes().to_vec();
    let mut reader = BackupReader::open(&bytes[..]).unwrap();
    assert_eq!(reader.header().source, "root");
    assert!(reader.header().anchor.is_some());
    let content = reader.header().content.clone();
    let mut found = Vec::new();
    while let Some(next) = reader.next_record().unwrap() {
        let key = String::from_utf8(next.record.key.to_vec()).unwrap();
        found.push(Found { key, value: next.record.value.to_vec(), ownership: next.ownership });
    }
    (content, found, bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_for_administrators_of_the_shard_and_has_what_belongs_to_it() {
    let installation = Installation::start().await;
    // A role with all rights in root makes nobody an administrator of the shard.
    let roles = "/clusters/root/apis/rbac.authorization.k8s.io/v1";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "everything"},
        "rules": [
            {"nonResourceURLs": ["*"], "verbs": ["*"]}, {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        ],
    });
    installation.create(&format!("{roles}/clusterroles"), role).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "everything"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "everything"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": CONSUMER}],
    });
    installation.create(&format!("{roles}/clusterrolebindings"), binding).await;
    for user in ["anonymous", CONSUMER, "stranger", "provider"] {
        for path in ["/backup", "/clusters/root/backup", "/clusters/<accepted>/backup", "/clusters/*/backup"]
        {
            let refused = installation.send(user, "GET", path, &Value::Null).await;
            assert_eq!(refused.code, 403, "{user} {path}: {}", refused.text);
        }
    }
    for (method, path, code) in [
        ("POST", "/backup", 405),
        ("GET", "/clusters/*/backup", 400),
        ("GET", "/clusters/absent/backup", 404),
        ("GET", "/backup/more", 404),
    ] {
        let refused = installation.send(MASTER, method, path, &json!({})).await;
        assert_eq!(refused.code, code, "{method} {path}: {}", refused.text);
    }
    let groups = [("impersonate-group", "system:kcp:admin"), ("impersonate-group", "system:authenticated")];
    let path = "/clusters/<accepted>/backup";
    let permitted = installation.open("master>administrator", "GET", path, &groups, &Value::Null).await;
    assert_eq!(permitted.status(), 200);
    permitted.into_body().collect().await.unwrap();
    a_workspace(&installation).await;
    the_whole_shard(&installation).await;
}

async fn a_workspace(installation: &Installation) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own"}, "stringData": {"key": "of this workspace"},
    });
    installation.create("/clusters/<accepted>/api/v1/namespaces/shared/secrets", secret).await;
    let cluster = installation.resolved("<accepted>");
    let (content, found, _) = backup(installation, "/clusters/root:accepted/backup").await;
    assert_eq!(content, BackupContent::Part { name: "root:accepted".to_owned() });

    let (own, elsewhere): (Vec<&Found>, Vec<&Found>) =
        found.iter().partition(|record| record.parts().scope == cluster);
    let resources: BTreeSet<&str> = own.iter().map(|record| record.parts().resource).collect();
    for resource in [
        "logicalclusters",
        "namespaces",
        "secrets",
        "configmaps",
        "apibindings",
        "widgets",
        "gadgets",
        "clusterrolebindings",
    ] {
        assert!(resources.contains(resource), "{resource} are missing: {resources:?}");
    }
    assert!(own.iter().all(|record| record.ownership == Ownership::Own));
    let widgets = own.iter().filter(|record| record.parts().resource == "widgets");
    assert_eq!(widgets.map(|record| record.parts().name).collect::<Vec<_>>(), ["plain", "red"]);

    let (shared, alone): (Vec<&Found>, Vec<&Found>) =
        elsewhere.into_iter().partition(|record| record.ownership == Ownership::Shared);
    let [workspace] = alone[..] else { panic!("only the Workspace is elsewhere and not shared") };
    let parts = workspace.parts();
    assert_eq!((parts.resource, parts.scope, parts.name), ("workspaces", "root", "accepted"));
    assert!(shared.iter().all(|record| record.parts().scope == "system:bound-crds"));
    for group in ["example.com", "other.example.com"] {
        let text = format!("\"group\":\"{group}\"");
        let is_there = shared.iter().any(|record| String::from_utf8_lossy(&record.value).contains(&text));
        assert!(is_there, "the bound definitions of {group} are missing");
    }
}

async fn the_whole_shard(installation: &Installation) {
    let (content, found, bytes) = backup(installation, "/backup").await;
    assert_eq!(content, BackupContent::Whole);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    let reader = BackupReader::open(&bytes[..]).unwrap();
    RedbStore::restore(&path, reader, ExistingStore::Refuse, None).unwrap();
    let store = RedbStore::open(&path, RedbOptions::default()).unwrap();
    let stored = store.list(&Range::all(), None, None).unwrap().records;
    assert_eq!(stored.len(), found.len());
    let differs = |(stored, found): (&fairlead_store::Record, &Found)| {
        stored.key != found.key.as_bytes() || stored.value != found.value
    };
    assert!(!stored.iter().zip(&found).any(differs));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_backup_at_a_time_is_made_and_an_abandoned_one_makes_room() {
    let installation = Installation::start().await;
    let open = || installation.open(MASTER, "GET", "/backup", &[], &Value::Null);
    // More than the channel takes, so that the thread waits while nothing is read.
    for index in 0..8 {
        let noise: String = (0..4_000).map(|_| uuid::Uuid::new_v4().to_string()).collect();
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("bulk-{index}")}, "data": {"a": noise},
        });
        installation.create("/clusters/<accepted>/api/v1/namespaces/shared/configmaps", map).await;
    }
    let first = open().await;
    assert_eq!(first.status(), 200);
    let second = open().await;
    assert_eq!(second.status(), 429);
    assert!(second.headers().contains_key("retry-after"));
    drop(first);
    // The thread notices at its next chunk.
    loop {
        let response = open().await;
        if response.status() == 200 {
            break;
        }
        tokio::task::yield_now().await;
    }
}
