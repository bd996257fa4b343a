//! The entry point of the fuzz target of admission webhooks.

use fairlead_schema::patch::JsonPatch;
use serde_json::{Value, json};

use super::super::patched::{MAX_PATCHED, PatchedObject};
use super::configuration::{ReviewVersion, WebhookKind};
use super::review::ExpectedResponse;

/// A response, and the object that its patch makes. Only a mutating webhook changes objects; a refusal is an error.
pub(crate) fn admission_response(body: &[u8]) {
    let before = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "a", "uid": "u", "generation": 1, "annotations": {"x/y": "z"}}, "data": {"a": "b"}});
    for kind in [WebhookKind::Mutating, WebhookKind::Validating] {
        for version in [ReviewVersion::V1, ReviewVersion::V1beta1] {
            let Ok(verdict) = (ExpectedResponse { kind, version, uid: "u" }).verdict(body) else { continue };
            if let Some(refusal) = verdict.refusal {
                let status = refusal.into_status("w.example.com");
                assert!((400..600).contains(&status.code), "{status:?}");
            }
            let Some(patch) = verdict.patch else { continue };
            assert_eq!(kind, WebhookKind::Mutating);
            let Ok(patch) = JsonPatch::parse(patch) else { continue };
            for before in [before.clone(), json!({"apiVersion": "v1", "kind": "K"})] {
                let mut after = before.clone();
                if patch.apply(&mut after, MAX_PATCHED).is_ok() {
                    check(PatchedObject { before: &before, after, old: None });
                }
            }
        }
    }
}

fn check(mut patched: PatchedObject<'_>) {
    if patched.keep_identity().is_err() {
        return;
    }
    let is_same = |pointer| patched.before.pointer(pointer) == patched.after.pointer(pointer);
    assert!(["/apiVersion", "/kind", "/metadata/name"].into_iter().all(is_same), "{}", patched.after);
    patched.remove_annotations(&["x/y"]);
    assert_eq!(patched.after.pointer("/metadata/annotations/x~1y"), None::<&Value>);
}
