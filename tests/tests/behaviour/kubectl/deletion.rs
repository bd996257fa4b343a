//! kubectl: deletion with dependents, and waiting for it.

use super::{Session, with_each};

/// A finalizer keeps the object until it is removed.
const DEPENDENT: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata:
  name: cargo
  finalizers: [pier.example.com/unload]
  ownerReferences:
  - {apiVersion: v1, kind: ConfigMap, name: ship, uid: "UID", blockOwnerDeletion: true}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_are_deleted_in_the_foreground_after_their_dependents() {
    with_each(|session: Session| async move {
        dependent(&session).await;
        session.ok("delete cm ship --cascade=foreground --wait=false").await;
        session
            .prints(
                &["get", "cm", "ship", "-o", "jsonpath={.metadata.finalizers}"],
                r#"["foregroundDeletion"]"#,
            )
            .await;
        session.ok(r#"patch cm cargo --type=merge -p {"metadata":{"finalizers":null}}"#).await;
        session.ok("wait --for=delete cm/cargo cm/ship --timeout=60s").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphans_keep_no_reference_to_their_owner() {
    with_each(|session: Session| async move {
        dependent(&session).await;
        session.ok("delete cm ship --cascade=orphan").await;
        session.prints(&["get", "cm", "cargo", "-o", "jsonpath={.metadata.ownerReferences}"], "").await;
        session.prints(&["get", "cm", "cargo", "-o", "jsonpath={.metadata.deletionTimestamp}"], "").await;
    })
    .await;
}

/// Creates `ship`, and `cargo`, which it owns.
async fn dependent(session: &Session) {
    session.ok("create cm ship").await;
    let uid = session.ok("get cm ship -o jsonpath={.metadata.uid}").await;
    session.apply(&DEPENDENT.replace("UID", uid.trim())).await;
}
